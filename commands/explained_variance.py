"""Explained variance of networks on CIFAR-10 beside published values of other networks, as Markdown for docs/tables/.

The first table says how much of a network's variance the Gaussian and the multi-delta denoiser explain, and how much of the
Gaussian's own variance multi-delta explains. The second extrapolates the Gaussian's share to longer training. `publish.py`
writes both.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from gausslens.paper.claims.evidence import Evidence, Number, mean, slope
from gausslens.paper.claims.inference import Combined, combine
from gausslens.paper.figures import line
from gausslens.paper.plan import Plan
from gausslens.paper.tasks.explained_variance import QUANTITY as EXPLAINED
from gausslens.report import Series

# σ, and the variance of public CIFAR-10 models that the Gaussian and the multi-delta denoiser explain there.
PUBLISHED_EV = (
    (0.5, 0.952, 0.929), (1.0, 0.923, 0.838), (2.0, 0.913, 0.603), (5.0, 0.942, 0.535), (10.0, 0.965, 0.969),
)  # fmt: skip
PUBLISHED_KIMG = 200_000  # how long those models were trained


def explained(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """How much of the network's variance its Gaussian and the multi-delta denoiser explain, beside published models.

    Yields:
        Lines.
    """
    of_network = evidence.where(study="references", denoiser="network", n=plan.sizes[-1], kimg=plan.kimg)
    known = [of_network.where(quantity=quantity) for quantity in ("ev", EXPLAINED)]
    if not plan.name.startswith("cifar10") or not any(map(len, known)):
        return
    yield "## Explained variance\n"
    yield (
        "G is the share of the network's variance that the Gaussian explains, M the share that multi-delta explains. "
        "Published values are at the noise level of the first column, ours at the nearest measured level, in the second. "
        "The control is the share of the Gaussian's variance that multi-delta explains, on training images.\n"
    )
    sets = ("published", "training images", "held-out images")
    yield f"| published at | ours at | {' | '.join(f'{whose}, {images}' for whose in 'GM' for images in sets)} | control |"
    yield "|---|---|---|---|---|---|---|---|---|"
    curves = [
        _told(*(line(reference, part.where(reference=reference, on=on)) for part in known))
        for reference in ("gaussian", "multidelta")
        for on in ("train", "held_out")
    ]
    control = _told(
        line("control", evidence.where(study="references", quantity=EXPLAINED, denoiser="gaussian", on="train"))
    )
    for sigma, *published in PUBLISHED_EV:
        level = min(curves[0], key=lambda known, sigma=sigma: abs(math.log(known / sigma)))  # type: ignore[misc]
        ours, beside = [curve[level] for curve in curves], control.get(sigma, "not measured")
        gaussian, memory = (f"{value:.3f}" for value in published)
        yield f"| σ = {sigma:g} | σ = {level:.3g} | {' | '.join([gaussian, *ours[:2], memory, *ours[2:], beside])} |"
    yield ""


def _told(*lines: Series) -> dict[float, str]:
    """The numbers of lines with their intervals, by noise level; of a level that is in several, the last."""
    return {
        x: f"{y:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")
        for one in lines
        for x, y, low, high in zip(one.x, one.y, one.low, one.high, strict=True)
    }


def led_to(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """Explained variance after a training as long as that of published models, if distances change on as they do at the end.

    Yields:
        Lines, for the noise levels near published ones; nothing before a training was followed in time.
    """
    many = evidence.where(study="time", on="held_out", denoiser="network", reference="gaussian", n=plan.sizes[-1])
    gaps, shares = many.where(quantity="rmse"), many.where(quantity="ev", kimg=plan.kimg)
    doublings = [min(plan.times, key=lambda kimg, part=part: abs(kimg * part - plan.kimg)) for part in (8, 4, 2, 1)]  # type: ignore[misc]
    rows, seeds = [], 0
    for sigma, at_level in gaps.by("sigma").items() if len(gaps) and plan.name.startswith("cifar10") else ():
        near = " and ".join(f"{value:.3f} at {at:g}" for at, value, _ in PUBLISHED_EV if 0.6 < at / sigma < 1.7)
        now = shares.where(sigma=sigma)
        of_seeds = [(lengths.over("kimg"), now.where(seed=seed)) for seed, lengths in at_level.by("seed").items()]
        trends = [
            _trend(rmse, share.one().value, doublings)
            for rmse, share in of_seeds
            if len(share) and {*doublings} <= {*rmse}
        ]
        if near and trends:
            seeds = len(trends)
            share, *steps, end = (combine(values, [0.0] * seeds) for values in zip(*trends, strict=True))
            told = [f"{sigma:.3g}", f"{share.value:.3f}", *(_with_ends(step, 4) for step in steps)]
            reached = "no line: it ends below 0" if math.isnan(end.value) else _with_ends(end, 3)
            rows.append(f"| {' | '.join(told)} | {reached} | {near} |")
    if rows:
        yield "## Explained variance after longer training\n"
        yield (
            f"The published models were trained on {PUBLISHED_KIMG / 1000:g} million images. The middle columns show how "
            "much the RMSE between network and Gaussian grows when training doubles from one length to the next (thousand "
            "images). "
            f"The extrapolation follows a line through the lengths from {doublings[1]:,g} to {doublings[-1]:,g} thousand "
            "images. It is a guess: "
            f"nothing beyond {plan.kimg:,g} thousand was measured, and the line fails where growth changes from doubling to "
            f"doubling. Numbers are on held-out images, from {_trainings(seeds)}.\n"
        )
        between = [f"{low:,g} to {high:,g}" for low, high in itertools.pairwise(doublings)]
        yield f"| σ | explained by the Gaussian now | {' | '.join(between)} | extrapolated | published |"
        yield "|---|---|---|---|---|---|---|"
        yield from rows
        yield ""


def _trend(rmse: Mapping[float, Number], share: float, doublings: Sequence[float]) -> tuple[float, ...]:
    """Of one training: EV now, growth of the RMSE in each of the last three doublings, and EV along the line.

    The line goes through RMSE against the logarithm of the length, over the last two doublings; 1 − EV is taken to grow with
    RMSE². It is NaN where the line ends below 0.

    Args:
        rmse: by length of training.
        share: EV at its end.
        doublings: the lengths between which growth is told, the last of them the end.
    """
    late = {kimg: number for kimg, number in rmse.items() if kimg >= doublings[1]}
    middle = math.exp(sum(map(math.log, late)) / len(late))
    reached = mean(late.values()).value + slope(late).value * math.log(PUBLISHED_KIMG / middle)
    steps = [rmse[high].value - rmse[low].value for low, high in itertools.pairwise(doublings)]
    end = 1 - (1 - share) * (reached / rmse[doublings[-1]].value) ** 2
    return share, *steps, end if reached > 0 else math.nan


def _trainings(seeds: int) -> str:
    return (
        "one training run, so there are no intervals"
        if seeds == 1
        else f"{seeds} training runs; intervals are over these"
    )


def _with_ends(number: Combined, digits: int) -> str:
    ends = number.interval()
    told = "" if ends is None else f" [{ends[0]:.{digits}f}, {ends[1]:.{digits}f}]"
    return f"{number.value:.{digits}f}{told}"
