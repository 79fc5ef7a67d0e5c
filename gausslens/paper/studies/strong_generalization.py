"""Strong generalisation, whether models that share no training image agree: claims C15, C16; figures 9, 26."""

from typing import NamedTuple

from ...experiments.task import Task
from .. import axes
from ..claims.claim import CORRELATION, Finding, Threshold, claim, control, controls, statistic
from ..claims.comparisons import each
from ..claims.evidence import Evidence
from ..figures import Curves, Drawing, Line, about, closed_forms, trainings_behind
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.agreement import agreement_task, stationary_task, subset_gaussians_task

_SUBSETS = 8  # random subsets whose Gaussians are compared; they take no training
_ROLES = ("large", "early", "narrow", "small")
_IN_TIME = "in time"  # the role of the small pair while it is trained
_PAIR = axes.among("pair of models", {role: {"role": role} for role in _ROLES})
_SHOWS = about(9, 26, "C15")

_AGREE = Threshold("our choice: two models that retrieve training images agree this much", above=0.0)
_SMALL = Threshold(
    "our choice: a correlation that differs by less than .05 reads as equal; two models that retrieve training images "
    "have an excess of exactly 0, which could not be shown without a margin",
    below=0.05,
)
_SAME = Threshold("our choice: the same to the eye in Fig. 9", above=0.95, possible=CORRELATION)


@claim("C15", "Models trained on disjoint images agree if they have many images, stop early, or are narrow.")
def c15(evidence: Evidence) -> Finding:
    """Agreement of models on disjoint images minus that of their multi-delta denoisers, paired (noise excess).

    Controls: the agreement itself (noise same); with the noise exchanged (shuffled); of samples with the noise they
    began with (itself), since models that have learned nothing hand it on, and agree; and of closed forms.
    """
    pairs = evidence.where(study="strong", **axes.AGREEMENT.tags, reference=None)
    excess = {f", {role}": pairs.where(role=role, denoiser="network", noise="excess") for role in _ROLES}
    small = {", small": excess.pop(", small")}
    beside = {
        f"agreement{words.format(role)}": pairs.where(role=role, denoiser=denoiser, noise=noise)
        for role in _ROLES
        for words, denoiser, noise in (
            (", {}", "network", "same"),
            (", {}, noise exchanged", "network", "shuffled"),
            (" of samples and their noise, {}", "network", "itself"),
            (", {}, multi-delta", "multidelta", "same"),
            (", {}, stationary Gaussians", "stationary", "same"),
        )
    }
    return Finding(
        (
            *each("excess agreement", _AGREE, excess, Evidence.one),
            *each("excess agreement", _SMALL, small, Evidence.one),
        ),
        controls(Evidence.one, beside, CORRELATION),
    )


@claim("C16", "The Gaussian of few images gives nearly the same samples as the Gaussian of many.")
def c16(evidence: Evidence) -> Finding:
    """Correlation of samples of the Gaussian of a small subset with those of the Gaussian of a large one, same noise."""
    tags = {**axes.AGREEMENT.tags, "denoiser": "gaussian", "reference": "gaussian_full", "role": None}
    same, shuffled = (evidence.where(study="strong", **tags, noise=noise) for noise in ("same", "shuffled"))
    return Finding(
        (statistic("correlation of Gaussian samples, a random subset each seed", _SAME, same, Evidence.one),),
        control("the same, noise exchanged", shuffled, Evidence.one, CORRELATION),
    )


class Pair(NamedTuple):
    """Two models on disjoint sets of images."""

    n: int  # images of each
    width: int  # channels
    kimg: float | None = None  # when training is stopped; None is its end


def pairs(plan: Plan) -> dict[str, Pair]:
    """The pairs by their roles: on many images, and on few of them stopped early, narrow, and neither."""
    least = plan.sizes[0]
    return {
        "large": Pair(plan.available // 2, plan.width),
        "small": Pair(least, plan.width),
        "early": Pair(least, plan.width, plan.early),
        "narrow": Pair(least, plan.narrow),
    }


def parts(plan: Plan) -> list[Part]:
    """Every pair at every seed: samples of both from the same noise, and how alike they are; then Gaussians of subsets."""
    found = []
    for seed in range(plan.sweep_seeds):
        for role, pair in pairs(plan).items():
            if role == "large" and seed >= plan.seeds:  # it varies least, and takes longest
                continue
            both = _sampled(plan, pair, seed)
            found += [
                Part(f"{role}, seed {seed}, half {half}", task, {"role": role}) for half, task in enumerate(both, 1)
            ]
            tags = {"role": role, "n": pair.n, "seed": seed}
            found.append(Part(f"{role}, seed {seed}", agreement_task(plan, both), tags))
            found.append(Part(f"{role}, seed {seed}, stationary", stationary_task(plan, both), tags))
        small = pairs(plan)["small"]
        for kimg in _between(plan):
            compared = agreement_task(plan, _sampled(plan, small._replace(kimg=kimg), seed))
            tags = {"role": _IN_TIME, "n": small.n, "seed": seed}
            found.append(Part(f"small after {kimg:g}, seed {seed}", compared, tags))
    for seed in range(_SUBSETS):
        found.append(Part(f"subsets, seed {seed}", subset_gaussians_task(plan, plan.seed(seed), _subsets(plan))))
    return found


def _sampled(plan: Plan, pair: Pair, seed: int) -> list[Task]:
    """The tasks that sample both models of a pair."""
    models = (plan.model(pair.n, seed, half=half, width=pair.width) for half in (1, 2))
    return [plan.sampled(model, kimg=pair.kimg) for model in models]


def _between(plan: Plan) -> list[float]:
    """When else the small pair is compared: where its models are those of the study of time, which keep snapshots."""
    return [kimg for kimg in plan.times if kimg not in (plan.early, plan.kimg)] if plan.sizes[0] == plan.few else []


def _subsets(plan: Plan) -> list[int]:
    """Doubling sizes on both sides of the one that is judged, up to half of the images."""
    sizes = {int(plan.subset * 2.0**power) for power in range(-3, 10)}
    return sorted(n for n in sizes if 2 <= n <= plan.available // 2)


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 9 and 26 of the paper."""
    plan = findings.plan
    large, early, narrow, small = (pairs(plan)[role] for role in _ROLES)
    roles = (
        f"Large: {large.n:,} images each, {large.width} channels. Early: {early.n:,} images, stopped after "
        f"{early.kimg:,g} thousand. Narrow: {narrow.n:,} images, {narrow.width} channels. Small: {small.n:,} images, "
        f"{small.width} channels."
    )
    of_networks = findings.evidence.where(**axes.AGREEMENT.tags, denoiser="network")
    all_times = ("early", _IN_TIME, "small")
    references = {
        "stationary": "stationary Gaussian",
        "gaussian_full": "Gaussian of all images",
        "gaussian": "Gaussian",
        "multidelta": "multi-delta",
    }
    between, with_references, in_time = (
        _noises_and_trainings(of_networks.where(**tags))
        for tags in (
            {"reference": None, "role": _ROLES},
            {"reference": tuple(references), "noise": "same"},
            {"reference": None, "role": all_times},
        )
    )
    same, exchanged, memory = (
        Line("networks", denoiser="network", reference=None, noise="same"),
        Line("control: networks, noise exchanged", denoiser="network", reference=None, noise="shuffled"),
        closed_forms("multidelta", noise="same"),
    )
    return [
        Curves(
            title="Agreement of models that share no training image",
            caption=f"Correlation of the pixels of two models' samples from the same noise, over {between}. {roles} "
            "Controls: the same models with noise exchanged; a model's samples with the noise they began with, which one "
            "that has learned nothing hands on; the multi-delta denoisers of the two sets, which retrieve training "
            "images; their Gaussians; and their stationary Gaussians, which know the mean colour and the power spectrum "
            "of the images and no place. What counts is how far models exceed the multi-delta denoisers: retrieval beats "
            "exchanged noise too.",
            **_SHOWS,
            of=axes.AGREEMENT.by(_PAIR),
            lines=(
                same,
                exchanged,
                Line("control: networks, with the noise itself", denoiser="network", reference=None, noise="itself"),
                *memory,
                Line("Gaussians", dashed=True, denoiser="gaussian", reference=None, noise="same"),
                Line("stationary Gaussians", dashed=True, denoiser="stationary", noise="same"),
            ),
        ),
        Curves(
            title="Agreement beyond retrieval",
            caption="The models' agreement minus that of the multi-delta denoisers of the same images, paired by noise. "
            f"{roles} The paper says that the first three agree, and the last does not: two models that retrieve "
            "their training images have 0. Networks that have learned nothing agree as well, for they hand their noise "
            "on; the figure before says how much of it is left in samples, and the rows below whether these are images.",
            **_SHOWS,
            of=axes.quantity("agreement_correlation", "excess correlation")
            .by(_PAIR)
            .against(_AGREE, "more than retrieval lies above")
            .against(_SMALL, "what reads as retrieval lies below"),
            lines=(Line("networks", denoiser="network", noise="excess"),),
        ),
        Curves(
            title="What samples of the pairs are like",
            caption="Correlation of the pixels of the first model's samples with those of controls from the same "
            "noise: the closed-form denoisers of its own training images, and the Gaussian of all images that could have "
            f"been trained on; over {with_references}. {roles} Models of few images that agree although the Gaussians of "
            "their images do not must be near something else that both share: the highest line tells what.",
            **_SHOWS,
            of=axes.AGREEMENT.by(_PAIR).where(denoiser="network", noise="same"),
            lines=[Line(words, reference=name) for name, words in references.items()],
        ),
        Curves(
            title="Copies among samples of the pairs",
            caption=f"Share of {plan.samples} samples whose nearest training image is less than a third as far as the "
            f"second nearest, over both models of a pair. {roles} Controls: samples of the multi-delta and the "
            "Gaussian denoiser of the same images.",
            **_SHOWS,
            of=axes.COPIES.by(_PAIR),
            lines=(Line("networks", denoiser="network"), *closed_forms()),
        ),
        Curves(
            title=f"Agreement as training goes on, N = {small.n:,}",
            caption=f"Correlation of the pixels of samples from the same noise of two models of {small.width} channels "
            f"on disjoint sets of {small.n:,} images, over {in_time}. Controls: the same models with noise exchanged; the "
            "multi-delta denoisers and the Gaussians of the two sets, which no training changes. Models that come to "
            "memorise part ways: their agreement falls toward that of multi-delta.",
            **_SHOWS,
            of=axes.AGREEMENT.by(axes.TIME).where(role=all_times, reference=None),
            lines=(same, exchanged, *memory, Line("control: Gaussians", denoiser="gaussian", noise="same")),
        )
        if _between(plan)
        else None,
        *(_grid(findings, role) for role in _ROLES),
        Curves(
            title="How many images make a Gaussian?",
            caption="Correlation of samples of the Gaussian of a random subset with those of the Gaussian of all "
            f"{plan.available:,} images, from the same noise, over {plan.samples} initial noises and {_SUBSETS} subsets "
            f"of each size. The claim is judged at {plan.subset:,} images. Control: noise exchanged.",
            **about(9, "C16"),
            of=axes.AGREEMENT.by(axes.along("n", "images in the subset", log=True))
            .where(denoiser="gaussian", reference="gaussian_full")
            .against(_SAME, "nearly the same"),
            lines=(Line("same noise", noise="same"), Line("control: noise exchanged", noise="shuffled")),
        ),
        sample_grid(
            findings,
            [
                *((f"Gaussian of {n:,} images", "subsets, seed 0", str(n)) for n in _subsets(plan)),
                (f"Gaussian of all {plan.available:,}", "subsets, seed 0", "all"),
            ],
            title="Samples of the Gaussians of subsets",
            caption="From the same initial noise. With enough images in the subset, samples are those of the Gaussian of "
            "all.",
            **about(9, "C16"),
            training=False,
        ),
    ]


def _grid(findings: Findings, role: str) -> Drawing:
    plan, (n, width, kimg) = findings.plan, pairs(findings.plan)[role]
    first, second = (f"{role}, seed {plan.shown}, half {half}" for half in (1, 2))
    if findings.result(first) is None or findings.result(second) is None:  # one alone would be no comparison
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
        title=f"Two models on disjoint images: {role}",
        caption=f"Samples from the same initial noise of two models of {width} channels, trained for "
        f"{kimg or plan.kimg:,g} thousand images on disjoint sets S1 and S2 of {n:,} images each, with their nearest "
        "training images, and samples of the closed-form denoisers of each set. If the models generalise, the networks' "
        "rows are more alike than the multi-delta rows, and neither copies images.",
        **_SHOWS,
    )


def _noises_and_trainings(alike: Evidence) -> str:
    """How many there are behind a figure; noises may differ where samples were left behind."""
    counts = sorted({record["count"] for record in alike.records}) or ["no"]
    noises = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"{noises} initial noises and {trainings_behind(alike)}"


STUDY = Study(
    name="strong",
    title="Do models agree?",
    question="Two models are trained on images that they do not share, and sampled from the same noise. If both have "
    "learned the law of the images, they make like images; if both retrieve their own training images, they cannot, "
    "but for what any two such sets have in common. That is measured with the multi-delta denoisers of the two sets, "
    "and taken off.\n\nThe paper says that models of many images agree, that models of few do not, and that these "
    "agree again if training is stopped early or the network is narrow; and that the Gaussian of few images is nearly "
    "that of many.",
    figures=(9, 26),
    parts=parts,
    drawings=figures,
    judges=(c15, c16),
)
