"""C11–C14: what number of images, width and time of training do to a network.

On held-out images, `denoiser` network, `reference` gaussian (of the model's own subset), in the window of `windows`. Records
with a `role`, of models to compare with, are not read.
"""

import math

from ...measures.memorization import MEMORIZED
from .evidence import Evidence, MissingError, Number, least, mean, slope
from .findings import Finding, control, rank_statistic, statistic
from .inference import Real
from .thresholds import HIGH_NOISE, LOW_NOISE, PAPER_GENERALIZATION
from .window import InWindow, gaps_of

_RANKED_SIZES = 5  # fewer sizes have too few orders


def c11(evidence: Evidence) -> Finding:
    """Slopes of RMSE(θ, G) on log N and log width; its late rise in time, small minus large N; its minimum in time.

    | quantity | tags |
    |---|---|
    | rmse | study size: n; study capacity: width; study time: n, kimg; all: sigma, seed |
    | rmse | the same studies; denoiser multidelta, reference gaussian: fixes the window |
    | rmse, as control | study size; reference gaussian_full |
    | memorized_fraction | study time, smallest n; denoiser network; kimg, seed |
    """
    size, width, time = (InWindow(evidence, study) for study in ("size", "capacity", "time"))
    full = InWindow(evidence, "size", reference="gaussian_full")
    return Finding(
        (
            statistic("slope of RMSE(θ, G) on log N", "C11 size", size.studied, lambda r: size.slope(r, "n")),
            statistic(
                "slope of RMSE(θ, G) on log width", "C11 width", width.studied, lambda r: width.slope(r, "width")
            ),
            statistic(
                "late rise in time, smallest minus largest N",
                "C11 late rise",
                time.studied,
                lambda r: _extra_rise(time, r),
            ),
            statistic("log time from the minimum to memorising", "C11 order", time.studied, lambda r: _lead(time, r)),
        ),
        control("slope on log N against the Gaussian of all data", full.studied, lambda r: full.slope(r, "n")),
    )


def c12(evidence: Evidence) -> Finding:
    """Slope of RMSE(θ, G) on log width at σ ≥ 20 after the shortest training, and how much longer training adds to it.

    | quantity | tags |
    |---|---|
    | rmse | study capacity; width, kimg (two or more), sigma, seed |
    """
    high = gaps_of(evidence, "capacity").where(denoiser="network", reference="gaussian").at(HIGH_NOISE)

    def trend(records: Evidence, kimg: Real) -> Number:
        groups = records.where(kimg=kimg).by("width")
        return slope({width: mean(group.curve().values()) for width, group in groups.items()}, high.by("width"))

    def removed(records: Evidence) -> Number:
        lengths = [*high.by("kimg")]
        if len(lengths) < 2:
            raise MissingError("two lengths of training are needed, 1 found")
        return trend(records, lengths[-1]) - trend(records, lengths[0])

    return Finding(
        (
            statistic(
                "slope of RMSE(θ, G) on log width, σ ≥ 20", "C12 width", high, lambda r: trend(r, min(high.by("kimg")))
            ),
            statistic("what longer training adds to the slope", "C12 training", high, removed),
        )
    )


def c13(evidence: Evidence) -> Finding:
    """At the smallest σ: log RMSE(θ, G) at the smallest minus at the largest N; narrowest over widest minus 1.

    | quantity | tags |
    |---|---|
    | rmse | study size: n; study capacity: width; sigma (the smallest at most 0.1), seed |
    """
    size, capacity = (
        gaps_of(evidence, study).where(denoiser="network", reference="gaussian").at(0.0, LOW_NOISE)
        for study in ("size", "capacity")
    )

    def ends(records: Evidence, studied: Evidence, tag: str) -> tuple[Number, Number]:
        values = [*studied.by(tag)]
        if len(values) < 2:
            raise MissingError(f"two values of {tag} are needed, 1 found")
        lowest = records.where(sigma=min(studied.by("sigma")))
        first, last = (lowest.where(**{tag: value}).one() for value in (values[0], values[-1]))
        return first, last

    def of_size(records: Evidence) -> Number:
        small, large = ends(records, size, "n")
        return small.log() - large.log()

    def of_width(records: Evidence) -> Number:
        narrow, wide = ends(records, capacity, "width")
        return narrow / wide - Number(1.0)

    return Finding(
        (
            statistic("log RMSE(θ, G) at the least σ, smallest minus largest N", "C13 size", size, of_size),
            statistic("RMSE(θ, G) at the least σ, narrowest over widest, minus 1", "C13 width", capacity, of_width),
        )
    )


def c14(evidence: Evidence) -> Finding:
    """Slope of relative GL on log N, and its rank correlation with the least affine linearity; at least 5 sizes.

    | quantity | tags |
    |---|---|
    | relative_gl, gl | study size; denoiser network; n, seed |
    | linearity_cosine | study linearity; affine; as for C1, the same n and seeds |
    """
    samples = evidence.where(study="size", denoiser="network")
    lines = evidence.where(
        study="linearity", denoiser="network", quantity="linearity_cosine", on="held_out", alpha=None
    )
    both = Evidence([*samples.records, *lines.where(affine=True, preconditioning=(None, "edm")).records])

    def relative(records: Evidence) -> dict[Real, Number]:
        found = records.where(study="size", quantity="relative_gl").over("n")
        if len(found) < _RANKED_SIZES:
            raise MissingError(f"{_RANKED_SIZES} sizes needed, {len(found)} found")
        return found

    def sizes() -> list[Real]:
        return [*samples.where(quantity="relative_gl").by("n")]

    def ranked(records: Evidence) -> tuple[list[Real], list[Real]]:
        scores, by_size = relative(records), records.where(study="linearity", quantity="linearity_cosine").by("n")
        common = [n for n in scores if n in by_size]
        if len(common) < _RANKED_SIZES:
            raise MissingError(f"linearity at {_RANKED_SIZES} sizes needed, {len(common)} found")
        return [scores[n].value for n in common], [least(by_size[n].curve().values()).value for n in common]

    def score(which: int) -> str:
        found = control("", samples.where(quantity="gl"), lambda r: [*r.over("n").values()][which])
        return f"{found[0].value:.2f}" if found else "unknown"

    rule = f"the paper's rule of {PAPER_GENERALIZATION} is not judged"
    shown = f"GL is {score(0)} at the smallest and {score(-1)} at the largest N; {rule}"
    return Finding(
        (
            statistic("slope of relative GL on log N", "C14 slope", both, lambda r: slope(relative(r), sizes())),
            rank_statistic("Spearman's ρ of relative GL and linearity", "C14 rank", both, ranked),
        ),
        note=shown if len(samples.where(quantity="gl")) else None,
    )


def _extra_rise(time: InWindow, records: Evidence) -> Number:
    sizes = [*time.studied.where(quantity="rmse").by("n")]
    if len(sizes) < 2:
        raise MissingError("a large N beside the small one is needed in time, 1 size found")
    rises = []
    for n in (sizes[0], sizes[-1]):
        gaps = [*time.over(records.where(n=n), "kimg").values()]
        rises.append(gaps[-1] - least(gaps))
    return rises[0] - rises[1]


def _lead(time: InWindow, records: Evidence) -> Number:
    """log of the time of memorising over the time of the minimum, each known to a step between snapshots."""
    small = records.where(n=min(time.studied.where(quantity="rmse").by("n")))
    gaps = {kimg: gap for kimg, gap in time.over(small, "kimg").items() if kimg > 0}
    copies = small.where(quantity="memorized_fraction").over("kimg")
    memorizing = [kimg for kimg, fraction in copies.items() if fraction.value > MEMORIZED and kimg > 0]
    if not memorizing or len(gaps) < 2:
        raise MissingError(f"no snapshot with a memorised fraction above {MEMORIZED} after others")
    lowest = min(gaps, key=lambda kimg: gaps[kimg].value)
    step = math.log(max(gaps) / min(gaps)) / (len(gaps) - 1)
    error = step / math.sqrt(12)  # of a uniform law one step wide
    return Number(math.log(memorizing[0] / lowest), error, error, gaps[lowest].count)
