"""Do models agree?

Two models are trained on images that they do not share, and sampled from the same noise. If both have learned the
distribution of the images, their samples are similar. If both retrieve their own training images, their samples are only
as similar as images retrieved from two such sets happen to be. The multi-delta denoisers of the two sets, which do nothing
but retrieve, measure this similarity, and it is subtracted.

The paper says that models of many images agree, and that models of few images do not, unless training is stopped early or
the network is narrow. It also says that the Gaussian of few images is nearly that of many.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ...experiments.task import Task
from ...report import Axis
from .. import axes
from ..claims.claim import Found, Threshold, claim, control, statistic
from ..claims.evidence import Evidence
from ..figures import COPIED, Curves, Drawing, Line, about, closed_forms, trainings_behind
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.agreement import compare_gaussians, compare_samples, compare_with_stationary
from ..tasks.denoised_outputs import LABELS

_SUBSETS = 8  # random subsets whose Gaussians are compared; they take no training
_ROLES = ("large", "early", "narrow", "small")
_IN_TIME = "in time"  # the role of the small pair while it is trained
_PAIR = axes.among("pair of models", {role: {"role": role} for role in _ROLES})
_SHOWS = (9, 26, "C15")

_AGREE = Threshold("our choice: the agreement of two models that retrieve training images", above=0.0)
_SMALL = Threshold(
    "our choice: correlations closer than .05 count as equal; two models that retrieve training images have an excess "
    "of exactly 0, which cannot be shown without a margin",
    below=0.05,
)
_SAME = Threshold("our choice: looks the same in Fig. 9", above=0.95, possible=axes.CORRELATION)


@claim("C15", "Models trained on disjoint images agree if they have many images, stop early, or are narrow.")
def c15(evidence: Evidence) -> Found:
    """Agreement of models on disjoint images minus that of their multi-delta denoisers, paired (noise excess).

    Controls: the agreement itself (noise same); with the noise exchanged (shuffled); of samples with their own initial noise
    (itself), since untrained models pass it on and so agree; and of closed-form denoisers.
    """
    pairs = evidence.where(study="strong", **axes.AGREEMENT.tags, reference=None)
    for role in _ROLES:
        of_role, threshold = pairs.where(role=role), _SMALL if role == "small" else _AGREE
        excess = of_role.where(denoiser="network", noise="excess")
        yield statistic(f"excess agreement, {role}", threshold, excess, Evidence.one)
        for name, denoiser, noise in (
            (f"agreement, {role}", "network", "same"),
            (f"agreement, {role}, noise exchanged", "network", "shuffled"),
            (f"agreement of samples and their noise, {role}", "network", "itself"),
            (f"agreement, {role}, multi-delta", "multidelta", "same"),
            (f"agreement, {role}, stationary Gaussians", "stationary", "same"),
        ):
            yield from control(name, of_role.where(denoiser=denoiser, noise=noise), Evidence.one, axes.CORRELATION)


@claim("C16", "The Gaussian of few images gives nearly the same samples as the Gaussian of many.")
def c16(evidence: Evidence) -> Found:
    """Correlation of samples of the Gaussian of a small subset with those of the Gaussian of a large one, same noise."""
    tags = {**axes.AGREEMENT.tags, "denoiser": "gaussian", "reference": "gaussian_full", "role": None}
    same, shuffled = (evidence.where(study="strong", **tags, noise=noise) for noise in ("same", "shuffled"))
    yield statistic("correlation of Gaussian samples, a random subset each seed", _SAME, same, Evidence.one)
    yield from control("the same, noise exchanged", shuffled, Evidence.one, axes.CORRELATION)


class Pair(NamedTuple):
    """Two models on disjoint sets of images."""

    n: int  # images of each
    width: int  # channels
    kimg: float | None = None  # the length of training; None for all of it


def pairs(plan: Plan) -> dict[str, Pair]:
    """The pairs by their roles: on many images, and on few of them stopped early, narrow, and neither."""
    least = plan.sizes[0]
    return {
        "large": Pair(plan.available // 2, plan.width),
        "small": Pair(least, plan.width),
        "early": Pair(least, plan.width, plan.early),
        "narrow": Pair(least, plan.narrow),
    }


def parts(plan: Plan) -> Iterator[Part]:
    """Every pair at every seed: samples of both from the same noise, and their agreement; then Gaussians of subsets."""
    for seed in range(plan.sweep_seeds):
        for role, pair in pairs(plan).items():
            if role == "large" and seed >= plan.seeds:  # it varies least, and takes longest
                continue
            both, tags = _sampled(plan, pair, seed), {"role": role, "n": pair.n, "seed": seed}
            for half, task in enumerate(both, 1):
                yield Part(f"{role}, seed {seed}, half {half}", task, {"role": role})
            yield Part(f"{role}, seed {seed}", plan.on_model(compare_samples, *both), tags)
            splits = [plan.split(pair.n, half) for half in (1, 2)]
            stationary = plan.on_model(compare_with_stationary, *both, splits=splits, **plan.loading)
            yield Part(f"{role}, seed {seed}, stationary", stationary, tags)
        small = pairs(plan)["small"]
        for kimg in _between(plan):
            compared = plan.on_model(compare_samples, *_sampled(plan, small._replace(kimg=kimg), seed))
            yield Part(f"small after {kimg:g}, seed {seed}", compared, {"role": _IN_TIME, "n": small.n, "seed": seed})
    for seed in range(_SUBSETS):
        options: dict[str, Any] = {"seed": plan.seed(seed), "sizes": tuple(_subsets(plan)), "judged": plan.subset}
        yield Part(f"subsets, seed {seed}", plan.on_images(compare_gaussians, samples=plan.samples, **options))


def _sampled(plan: Plan, pair: Pair, seed: int) -> list[Task]:
    """The tasks that sample both models of a pair."""
    models = (plan.model(pair.n, seed, half=half, width=pair.width) for half in (1, 2))
    return [plan.sampled(model, kimg=pair.kimg) for model in models]


def _between(plan: Plan) -> list[float]:
    """When else the small pair is compared: only if its models are those of the study of time, which keep snapshots."""
    return [kimg for kimg in plan.times if kimg not in (plan.early, plan.kimg)] if plan.sizes[0] == plan.few else []


def _subsets(plan: Plan) -> list[int]:
    """Doubling sizes on both sides of the one that is judged, up to half of the images."""
    sizes = {int(plan.subset * 2.0**power) for power in range(-3, 10)}
    return sorted(n for n in sizes if 2 <= n <= plan.available // 2)


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 9 and 26 of the paper."""
    plan = findings.plan
    large, early, narrow, small = (pairs(plan)[role] for role in _ROLES)
    of_networks = findings.evidence.where(**axes.AGREEMENT.tags, denoiser="network")
    of_pairs, all_times = of_networks.where(reference=None, role=_ROLES), ("early", _IN_TIME, "small")
    references = {"stationary": "stationary Gaussian", "gaussian_full": "Gaussian of all images"}
    references |= {name: LABELS[name] for name in ("gaussian", "multidelta")}
    with_references = of_networks.where(reference=tuple(references), noise="same")
    same = Line("networks", denoiser="network", reference=None, noise="same")
    exchanged = Line("control: networks, noise exchanged", denoiser="network", reference=None, noise="shuffled")
    memory = closed_forms("multidelta", noise="same")
    yield Curves(
        **about("Agreement of models that share no training image", *_SHOWS),
        caption="Correlation of the pixels of two models' samples from the same noise, over "
        f"{_noises_and_trainings(of_pairs)}, for four pairs of models: large ({large.n:,} images each, {large.width} "
        f"channels), early ({early.n:,} images, stopped after {early.kimg:,g} thousand), narrow ({narrow.n:,} images, "
        f"{narrow.width} channels) and small ({small.n:,} images, {small.width} channels). Judge the excess over the "
        "multi-delta denoisers of the two sets, because retrieval alone gives more agreement than samples from "
        "different noise. The other controls are the same samples with the noise exchanged (paired with the wrong "
        "noise), a model's samples against their own initial noise (which an untrained model passes on), the Gaussians "
        "of the sets, and stationary Gaussians, which know only mean colour and power spectrum.",
        of=axes.AGREEMENT.by(_PAIR),
        lines=(
            same,
            exchanged,
            Line("control: networks, with the noise itself", denoiser="network", reference=None, noise="itself"),
            *memory,
            Line("Gaussians", dashed=True, denoiser="gaussian", reference=None, noise="same"),
            Line("stationary Gaussians", dashed=True, denoiser="stationary", noise="same"),
        ),
    )
    yield Curves(
        **about("Agreement beyond retrieval", *_SHOWS),
        caption="Agreement of the same pairs minus that of the multi-delta denoisers of their images, paired by noise; "
        "two models that retrieve training images have 0. The claim is that the first three pairs agree and the last "
        "does not. Untrained networks, which pass on their noise, also agree: see the figure before and the samples.",
        of=axes.quantity("agreement_correlation", "excess correlation")
        .by(_PAIR)
        .against(_AGREE, "more than retrieval lies above")
        .against(_SMALL, "the same as retrieval lies below"),
        lines=(Line("networks", denoiser="network", noise="excess"),),
    )
    yield Curves(
        **about("What samples of the pairs are like", *_SHOWS),
        caption="Correlation of the pixels of the first model's samples with those of closed-form denoisers from the "
        f"same noise, over {_noises_and_trainings(with_references)}. The denoisers are those of its own training "
        "images, and the Gaussian of all images that could be used for training. If models of few images agree "
        "although the Gaussians of their images do not, they share something else; the denoiser with the highest line "
        "suggests what.",
        of=axes.AGREEMENT.by(_PAIR).where(denoiser="network", noise="same"),
        lines=[Line(words, reference=name) for name, words in references.items()],
    )
    yield Curves(
        **about("Copies among samples of the pairs", *_SHOWS),
        caption=f"Share of {plan.samples} samples {COPIED}, over both models of each of the four pairs. Controls: "
        "samples of the closed-form denoisers of the same images.",
        of=axes.COPIES.by(_PAIR),
        lines=(Line("networks", denoiser="network"), *closed_forms()),
    )
    if _between(plan):
        yield Curves(
            **about(f"Agreement as training goes on, N = {small.n:,}", *_SHOWS),
            caption="Correlation of the pixels of samples from the same noise, over "
            f"{_noises_and_trainings(of_networks.where(reference=None, role=all_times))}, of two models of "
            f"{small.width} channels on disjoint sets of {small.n:,} images. When models begin to memorise, their "
            "agreement falls toward that of multi-delta. Controls: the same models with noise exchanged, and the "
            "multi-delta denoisers and the Gaussians of the two sets, which do not change in time.",
            of=axes.AGREEMENT.by(axes.TIME).where(role=all_times, reference=None),
            lines=(same, exchanged, *memory, Line("control: Gaussians", denoiser="gaussian", noise="same")),
        )
    for role in _ROLES:
        yield _samples_of_pair(findings, role)
    yield Curves(
        **about("How many images make a Gaussian?", 9, "C16"),
        caption="Correlation of samples of the Gaussian of a random subset with those of the Gaussian of all "
        f"{plan.available:,} images, from the same noise, over {plan.samples} initial noises and {_SUBSETS} subsets of "
        f"each size. The claim is judged at {plan.subset:,} images. Control: noise exchanged.",
        of=axes.AGREEMENT.by(axes.Along(Axis("images in the subset", log=True), "n"))
        .where(denoiser="gaussian", reference="gaussian_full")
        .against(_SAME, "nearly the same"),
        lines=(Line("same noise", noise="same"), Line("control: noise exchanged", noise="shuffled")),
    )
    yield sample_grid(
        findings,
        [
            *((f"Gaussian of {n:,} images", "subsets, seed 0", str(n)) for n in _subsets(plan)),
            (f"Gaussian of all {plan.available:,}", "subsets, seed 0", "all"),
        ],
        **about("Samples of the Gaussians of subsets", 9, "C16"),
        caption="Samples from the same initial noise. With enough images, they are those of the Gaussian of all.",
        training=False,
    )


def _samples_of_pair(findings: Findings, role: str) -> Drawing:
    """Samples of both models of a pair with their references; None if either is not finished."""
    plan, (n, width, kimg) = findings.plan, pairs(findings.plan)[role]
    first, second = (f"{role}, seed {plan.shown}, half {half}" for half in (1, 2))
    if findings.result(first) is None or findings.result(second) is None:
        return None
    return sample_grid(
        findings,
        [
            ("stationary of S1", f"{role}, seed {plan.shown}, stationary", "first"),
            ("Gaussian of S1", first, "gaussian"),
            ("Gaussian of S2", second, "gaussian"),
            ("nearest in S1", first, "nearest"),
            ("network of S1", first, "network"),
            ("network of S2", second, "network"),
            ("nearest in S2", second, "nearest"),
            ("multi-delta of S1", first, "multidelta"),
            ("multi-delta of S2", second, "multidelta"),
        ],
        columns=8,
        **about(f"Two models on disjoint images: {role}", *_SHOWS),
        caption=f"Samples from the same initial noise of two models of {width} channels, trained for "
        f"{kimg or plan.kimg:,g} thousand images on disjoint sets S1 and S2 of {n:,} images each, with their nearest "
        "training images. Controls: samples of the closed-form denoisers of each set. If the models generalise, the "
        "networks' rows resemble each other more than the multi-delta rows do, and neither has copies.",
    )


def _noises_and_trainings(agreement: Evidence) -> str:
    """The numbers of noises and training runs of a figure; noises may differ, since some runs have fewer samples left."""
    counts = sorted({record["count"] for record in agreement.records}) or ["no"]
    noises = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{noises} initial noises and {trainings_behind(agreement)}"


STUDY = Study("strong", __doc__, parts, drawings, figures=(9, 26), judges=(c15, c16))
