"""Do models agree? Pairs that share no training image, from the same noise."""

from typing import NamedTuple

from ...experiments.task import Task
from ...measures.memorization import MEMORIZED
from ...report import Axis, CurveFigure, Figure, ImageGrid, Series, Threshold
from ..claims.evidence import Evidence
from ..claims.thresholds import THRESHOLDS
from ..figures import (
    COPIES,
    CORRELATION,
    TRAINED,
    line,
    non_empty_figures,
    non_empty_series,
    sample_grid,
    trainings,
    trainings_behind,
)
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.agreement import agreement_task
from ..tasks.stationary_gaussian import stationary_task
from ..tasks.subset_gaussians import subset_gaussians_task

_SHOWN = 8  # noises of each pair
_SUBSETS = 8  # random subsets whose Gaussians are compared; they take no training
_ROLES = ("large", "early", "narrow", "small")
_IN_TIME = "in time"  # the role of the small pair while it is trained
_PAIR = Axis("pair of models", names=_ROLES)
_REFERENCES = {
    "stationary": "stationary Gaussian",
    "gaussian_full": "Gaussian of all images",
    "gaussian": "Gaussian",
    "multidelta": "multi-delta",
}


class Pair(NamedTuple):
    """Two models on disjoint sets of images.

    Attributes:
        n: images of each.
        width: channels.
        kimg: when training is stopped; None is its end.
    """

    n: int
    width: int
    kimg: float | None = None


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
            found += [Part(_key(role, seed, half), task, {"role": role}) for half, task in enumerate(both, 1)]
            told = {"role": role, "n": pair.n, "seed": seed}
            found.append(Part(f"{role}, seed {seed}", agreement_task(plan, both), told))
            found.append(Part(_stationary(role, seed), stationary_task(plan, both), told))
        for kimg in _between(plan):
            pair = pairs(plan)["small"]._replace(kimg=kimg)
            compared = agreement_task(plan, _sampled(plan, pair, seed))
            told = {"role": _IN_TIME, "n": pair.n, "seed": seed}
            found.append(Part(f"small after {kimg:g}, seed {seed}", compared, told))
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


def draw(findings: Findings) -> list[Figure]:
    """Figs. 9 and 26 of the paper."""
    plan, evidence, command = findings.plan, findings.evidence, findings.command
    alike = evidence.where(quantity="agreement_correlation")
    subsets = alike.where(denoiser="gaussian", reference="gaussian_full")
    own = alike.where(denoiser="network", noise="same", reference=tuple(_REFERENCES))
    figures: list[Figure | None] = [
        CurveFigure(
            title="Agreement of models that share no training image",
            caption=f"Correlation of the pixels of two models' samples from the same noise, over "
            f"{_noises(alike.where(denoiser='network', reference=None, role=_ROLES))} noises and {_trained(alike)}. "
            f"{_told(plan)} Controls: the same models with noises exchanged, which "
            "shows how alike any two images are; a model's samples with the noise they began with, which one that has "
            "learned nothing hands on; the multi-delta denoisers of the two sets, which shows how alike retrieved training "
            "images are; their Gaussians; and their stationary Gaussians, which know the mean colour and the power spectrum "
            "of the images and no place. Look how far the models exceed the multi-delta denoisers: beating exchanged "
            "noises proves nothing, since retrieval does so too.",
            redraws=(9, 26),
            claims=("C15",),
            command=command,
            x=_PAIR,
            y=CORRELATION,
            series=_agreements(alike),
        ),
        CurveFigure(
            title="Agreement beyond retrieval",
            caption="The models' agreement minus that of the multi-delta denoisers of the same images, paired by noise. "
            f"{_told(plan)} The paper says that the first three agree, and the last does not: two models that retrieve "
            "their training images have 0. Networks that have learned nothing agree as well, for they hand their noise "
            "on; the figure before says how much of it is left in samples, and the rows below whether these are images.",
            redraws=(9, 26),
            claims=("C15",),
            command=command,
            x=_PAIR,
            y=Axis("excess correlation"),
            series=_by_role("networks", alike.where(denoiser="network", noise="excess")),
            thresholds=(
                Threshold(THRESHOLDS["C15 agree"].above or 0.0, "more than retrieval lies above"),
                Threshold(THRESHOLDS["C15 small"].below or 0.0, "what reads as retrieval lies below"),
            ),
        ),
        CurveFigure(
            title="What samples of the pairs are like",
            caption="Correlation of the pixels of the first model's samples with those of controls from the same noise: the "
            "Gaussian, the stationary Gaussian and the multi-delta denoiser of its own training images, and the Gaussian of "
            f"all images that could have been trained on; over {_noises(own)} noises and {_trained(own)}. {_told(plan)} "
            "Models of few images that agree although the Gaussians of their images do not must be near something else "
            "that both share: look which.",
            redraws=(9, 26),
            claims=("C15",),
            command=command,
            x=_PAIR,
            y=CORRELATION,
            series=tuple(
                series for name, words in _REFERENCES.items() for series in _by_role(words, own.where(reference=name))
            ),
        ),
        CurveFigure(
            title="Copies among samples of the pairs",
            caption=f"Share of {plan.samples} samples whose nearest training image is less than a third as far as the "
            f"second nearest, over both models of a pair. {_told(plan)} Controls: samples of the multi-delta and the "
            "Gaussian denoiser of the same images.",
            redraws=(9, 26),
            claims=("C15",),
            command=command,
            x=_PAIR,
            y=COPIES,
            series=_copies(evidence.where(quantity="memorized_fraction")),
            thresholds=(Threshold(MEMORIZED, "memorising"),),
        ),
        _in_time(findings, alike) if _between(plan) else None,
        *(_grid(findings, role) for role in _ROLES),
        CurveFigure(
            title="How many images make a Gaussian?",
            caption="Correlation of samples of the Gaussian of a random subset with those of the Gaussian of all "
            f"{plan.available:,} images, from the same noise, over {plan.samples} noises and {_SUBSETS} subsets of "
            f"each size. The claim is judged at {plan.subset:,} images. Control: noises exchanged.",
            redraws=(9,),
            claims=("C16",),
            command=command,
            x=Axis("images in the subset", log=True),
            y=CORRELATION,
            series=non_empty_series(
                line("same noise", subsets.where(noise="same"), x="n"),
                line("control: noises exchanged", subsets.where(noise="shuffled"), x="n", dashed=True),
            ),
            thresholds=(Threshold(THRESHOLDS["C16 correlation"].above or 0.0, "nearly the same"),),
        ),
        sample_grid(
            findings,
            [
                *((f"Gaussian of {n:,} images", "subsets, seed 0", str(n)) for n in _subsets(plan)),
                (f"Gaussian of all {plan.available:,}", "subsets, seed 0", "all"),
            ],
            title="Samples of the Gaussians of subsets",
            caption="From the same noises. Look how many images it takes until the samples are those of the Gaussian of "
            "all.",
            redraws=(9,),
            claims=("C16",),
            training=False,
        ),
    ]
    return non_empty_figures(*figures)


def _in_time(findings: Findings, alike: Evidence) -> CurveFigure:
    n, width, _ = pairs(findings.plan)["small"]
    of_pair = alike.where(role=("early", _IN_TIME, "small"), reference=None)
    network = of_pair.where(denoiser="network")
    return CurveFigure(
        title=f"Agreement as training goes on, N = {n:,}",
        caption=f"Correlation of the pixels of samples from the same noise of two models of {width} channels on disjoint "
        f"sets of {n:,} images, over {_noises(network)} noises and {trainings_behind(network)}. Controls: the same models "
        "with noises exchanged; the multi-delta denoisers and the Gaussians of the two sets, which no training changes. "
        "Models that come to memorise part ways: look when, and whether they come down to the multi-delta denoisers.",
        redraws=(9, 26),
        claims=("C15",),
        command=findings.command,
        x=TRAINED,
        y=CORRELATION,
        series=non_empty_series(
            line("networks", network.where(noise="same"), x="kimg"),
            line("control: networks, noises exchanged", network.where(noise="shuffled"), x="kimg", dashed=True),
            *(
                line(f"control: {name}", of_pair.where(denoiser=denoiser, noise="same"), x="kimg", dashed=True)
                for name, denoiser in (("multi-delta", "multidelta"), ("Gaussians", "gaussian"))
            ),
        ),
    )


def _agreements(alike: Evidence) -> tuple[Series, ...]:
    network = alike.where(denoiser="network", reference=None)
    return (
        *_by_role("networks", network.where(noise="same")),
        *_by_role("control: networks, noises exchanged", network.where(noise="shuffled"), dashed=True),
        *_by_role("control: networks, with the noise itself", network.where(noise="itself"), dashed=True),
        *_by_role("control: multi-delta", alike.where(denoiser="multidelta", noise="same"), dashed=True),
        *_by_role("Gaussians", alike.where(denoiser="gaussian", reference=None, noise="same"), dashed=True),
        *_by_role("stationary Gaussians", alike.where(denoiser="stationary", noise="same"), dashed=True),
    )


def _copies(records: Evidence) -> tuple[Series, ...]:
    return (
        *_by_role("networks", records.where(denoiser="network")),
        *_by_role("control: multi-delta", records.where(denoiser="multidelta"), dashed=True),
        *_by_role("control: Gaussian", records.where(denoiser="gaussian"), dashed=True),
    )


def _by_role(name: str, records: Evidence, *, dashed: bool = False) -> tuple[Series, ...]:
    """A point for each role that there is; the places are those of `_PAIR`."""
    placed = [
        {**record, "place": _ROLES.index(record["role"]) + 1} for record in records.records if record["role"] in _ROLES
    ]
    return non_empty_series(line(name, Evidence(placed), x="place", dashed=dashed))


def _trained(alike: Evidence) -> str:
    """How often each pair was trained."""
    counts: dict[str, list[str]] = {}
    for role in _ROLES:
        if len(of_role := alike.where(denoiser="network", role=role)):
            counts.setdefault(trainings(of_role), []).append(role)
    return ", ".join(f"{words} ({', '.join(roles)})" for words, roles in counts.items())


def _noises(alike: Evidence) -> str:
    """How many noises there are, which may differ where samples were left behind."""
    counts = sorted({record["count"] for record in alike.records})
    return " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1]))) if counts else "no"


def _told(plan: Plan) -> str:
    """What the roles are, in numbers."""
    large, early, narrow, small = (pairs(plan)[role] for role in _ROLES)
    return (
        f"Large: {large.n:,} images each, {large.width} channels. Early: {early.n:,} images, stopped after "
        f"{early.kimg:,g} thousand. Narrow: {narrow.n:,} images, {narrow.width} channels. Small: {small.n:,} images, "
        f"{small.width} channels."
    )


def _grid(findings: Findings, role: str) -> ImageGrid | None:
    n, width, kimg = pairs(findings.plan)[role]
    first, second = (_key(role, findings.plan.shown, half) for half in (1, 2))
    if findings.result(first) is None or findings.result(second) is None:  # one alone would be no comparison
        return None
    length = f"{kimg or findings.plan.kimg:,g} thousand"
    return sample_grid(
        findings,
        [
            ("stationary of S1", _stationary(role, findings.plan.shown), "first"),
            ("Gaussian of S1", first, "gaussian"),
            ("Gaussian of S2", second, "gaussian"),
            ("nearest in S1", first, "nearest"),
            ("network of S1", first, "network"),
            ("network of S2", second, "network"),
            ("nearest in S2", second, "nearest"),
            ("multi-delta of S1", first, "multidelta"),
            ("multi-delta of S2", second, "multidelta"),
        ],
        columns=_SHOWN,
        title=f"Two models on disjoint images: {role}",
        caption=f"Samples from the same noises of two models of {width} channels, trained for {length} images on "
        f"disjoint sets S1 and S2 of {n:,} images each, with the images of the own set that are nearest to them, and "
        "samples of each set's Gaussian and multi-delta denoiser. Look whether the two networks' rows are alike, more "
        "than the multi-delta rows are, and whether each copies its nearest images.",
        redraws=(9, 26),
        claims=("C15",),
    )


def _stationary(role: str, seed: int) -> str:
    return f"{role}, seed {seed}, stationary"


def _key(role: str, seed: int, half: int) -> str:
    return f"{role}, seed {seed}, half {half}"


def _subsets(plan: Plan) -> list[int]:
    """Doubling sizes on both sides of the one that is judged, up to half of the images."""
    judged = plan.subset
    sizes = {judged * 2**power for power in range(10)} | {judged // 2**power for power in range(1, 4)}
    return sorted(n for n in sizes if 2 <= n <= plan.available // 2)


STUDY = Study(
    name="strong",
    title="Do models agree?",
    question="Two models are trained on images that they do not share, and sampled from the same noise. If both have "
    "learned the law of the images, they make like images; if both retrieve their own training images, they cannot, but "
    "for what any two such sets have in common. That is measured with the multi-delta denoisers of the two sets, and "
    "taken off.\n\nThe paper says that models of many images agree, that models of few do not, and that these agree "
    "again if training is stopped early or the network is narrow; and that the Gaussian of few images is nearly that of "
    "many.",
    figures=(9, 26),
    claims=("C15", "C16"),
    parts=parts,
    draw=draw,
)
