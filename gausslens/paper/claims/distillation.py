"""C8–C10: the matrices of distilled networks against those of Gaussians, on training and on held-out images.

All read the study `distillation`: fits without shrinkage, with at least ten calls per dimension (`count` of a record against
`dim`, one record for the data); weight errors are against the Gaussian of the training images. The largest N
generalises, the smallest memorises.
"""

from .evidence import Evidence, MissingError, Number, greatest, least, mean, mean_at
from .findings import Finding, control, statistic
from .inference import Real
from .references import AUTOMATIC
from .thresholds import HIGH_NOISE, LOW_NOISE, THRESHOLDS

_OF_TRAIN = "gaussian of train"
_CALLS = 10  # for each dimension: with fewer, the fit's own error hides what is compared
# The paper excepts its largest and its smallest level, 80 and 0.002.
_LEAST_SIGMA, _GREATEST_SIGMA = 0.01, 60.0


def c8(evidence: Evidence) -> Finding:
    """max over σ, the largest and the smallest excepted, of weight error − its floor; on held-out images.

    | quantity | tags |
    |---|---|
    | weight_error | denoiser network (control: multidelta); on held_out (controls: train, surrogate); reference |
    | | "gaussian of train"; n, sigma, seed; count (calls) |
    | weight_error_floor | the same, without reference |
    | dim | |
    """
    studied = evidence.where(study="distillation")

    def worst(records: Evidence) -> Number:
        return greatest(_excess(records.where(n=max(studied.by("n"))), evidence).values())

    def on(inputs: str, denoiser: str = "network") -> Evidence:
        return studied.where(on=inputs, denoiser=denoiser)

    judged = statistic("largest weight error minus its floor", "C8 error", on("held_out"), worst)
    controls = control("the same on training images", on("train"), worst)
    controls += control("the same for the multi-delta denoiser", on("held_out", "multidelta"), worst)
    controls += control("the same for the multi-delta denoiser, training images", on("train", "multidelta"), worst)
    controls += control("the same on Gaussian surrogates", on("surrogate"), worst)
    return Finding((judged,), controls, AUTOMATIC)


def c9(evidence: Evidence) -> Finding:
    """(overlap − chance)/(ceiling − chance), mean over k, the least over σ ≥ 0.1.

    Leading subspaces are cut where the Gaussian's gains are apart, and where they pass ½: at low noise the first hundreds
    are all nearly 1, and what a denoiser keeps is told from what it removes by the subspace of all that pass.

    | quantity | tags |
    |---|---|
    | overlap, overlap_chance, overlap_ceiling | denoiser network (control: multidelta); on held_out (controls: train, |
    | | surrogate); n, sigma, k, seed; separated False where near-equal gains forbid a cut after k; passed where |
    | | gains pass ½ |
    """
    studied = evidence.where(study="distillation").at(LOW_NOISE)

    def worst(records: Evidence) -> Number:
        levels = records.where(n=max(studied.by("n"))).by("sigma").values()
        shares = [share for share in map(_aligned, levels) if share is not None]
        if not shares:
            raise MissingError("no subspace whose ceiling is above chance")
        return least(shares)

    def on(inputs: str, denoiser: str = "network") -> Evidence:
        return studied.where(on=inputs, denoiser=denoiser)

    judged = statistic("least overlap, as a share of the ceiling", "C9 overlap", on("held_out"), worst)
    controls = control("the same on training images", on("train"), worst)
    controls += control("the same for the multi-delta denoiser", on("held_out", "multidelta"), worst)
    controls += control("the same on Gaussian surrogates", on("surrogate"), worst)
    return Finding((judged,), controls, AUTOMATIC)


def c10(evidence: Evidence) -> Finding:
    """Weight error and FVU, smallest minus largest N, mean over 0.1 ≤ σ ≤ 20, held-out; and the former on training images.

    | quantity | tags |
    |---|---|
    | weight_error, weight_error_floor, dim | as for C8; on held_out and train |
    | fvu | denoiser network; on held_out; n, sigma, seed |
    """
    studied = evidence.where(study="distillation", denoiser="network").at(LOW_NOISE, HIGH_NOISE)
    held_out, train = studied.where(on="held_out"), studied.where(on="train")

    def sizes() -> tuple[Real, Real]:
        found = studied.by("n")
        if len(found) < 2:
            raise MissingError("a memorising and a generalising model are needed, 1 size found")
        return min(found), max(found)

    def weight(records: Evidence, reference: str = _OF_TRAIN) -> Number:
        small, large = (mean(_excess(records.where(n=n), evidence, reference).values()) for n in sizes())
        return small - large

    def unexplained(records: Evidence) -> Number:
        small, large = (mean(records.where(quantity="fvu", n=n).curve().values()) for n in sizes())
        return small - large

    def orthogonality(records: Evidence) -> Number:
        small = records.where(n=sizes()[0])
        floor = mean(small.where(quantity="weight_error_floor").curve().values())
        limit = THRESHOLDS["C10 train"].below or 0.0
        if floor.value > limit:
            raise MissingError(f"errors of {limit:g} cannot be seen by a fit whose own is {floor.value:.2g}")
        return mean(_excess(small, evidence).values())

    return Finding(
        (
            statistic("weight error, memorising minus generalising", "C10 held-out", held_out, weight),
            statistic("FVU, memorising minus generalising", "C10 held-out", held_out, unexplained),
            statistic("weight error on training images, memorising", "C10 train", train, orthogonality),
        ),
        # W_G of few images has a low rank, from which every denoiser is far at low noise.
        control(
            "weight error against the Gaussian of held-out images, memorising minus generalising",
            *(held_out, lambda r: weight(r, "gaussian of held_out")),
        ),
    )


def _excess(records: Evidence, evidence: Evidence, reference: str = _OF_TRAIN) -> dict[Real, Number]:
    """Weight error minus its floor at each noise level."""
    dim = evidence.where(quantity="dim").one().value
    errors = records.where(quantity="weight_error", reference=reference).at(_LEAST_SIGMA, _GREATEST_SIGMA)
    curve = errors.curve()
    floor = records.where(quantity="weight_error_floor").curve()
    for number in curve.values():
        if number.count is None or number.count < _CALLS * dim:
            raise MissingError(f"{_CALLS * dim:.0f} calls are needed for an unshrunk fit, {number.count} were made")
    return {sigma: number - mean_at(floor, [sigma]) for sigma, number in curve.items()}


def _aligned(records: Evidence) -> Number | None:
    """How far between chance and ceiling at one noise level, mean over subspaces where they differ; None without any."""
    cuts = Evidence(r for r in records.records if r.get("separated") is not False or r.get("passed"))
    found = [cuts.where(quantity=quantity) for quantity in ("overlap", "overlap_chance", "overlap_ceiling")]
    if not all(map(len, found)):
        return None
    overlap, chance, ceiling = (one.over("k") for one in found)
    shares = [
        (overlap[k] - chance[k]) / (ceiling[k] - chance[k])
        for k in overlap
        if k in chance and k in ceiling and ceiling[k].value - chance[k].value > 0.1
    ]
    return mean(shares) if shares else None
