"""C1–C4: how linear networks are, by number of images, architecture, weights of the superposition and parametrisation.

All read the study `linearity` (C2 also `networks`), on held-out images, `denoiser` network. Records without `alpha` have
α² = ½. `preconditioning` is edm but for the badly parametrised baseline of C4.
"""

from collections.abc import Callable, Iterable

from .evidence import Evidence, Number, greatest, least, mean, mean_at, slope
from .findings import Finding, Statistic, control, of_the_papers_images, statistic
from .inference import Real
from .thresholds import HIGH_NOISE

_BASELINES = ("none", "ve", "vp")


def c1(evidence: Evidence) -> Finding:
    """Slope on log N of the least affine linearity over σ.

    | quantity | tags |
    |---|---|
    | linearity_cosine | study linearity; affine; n, sigma, seed |
    """
    cosine = _linearity(evidence, "cosine", study="linearity")

    def minimum(records: Evidence, n: Real, *, affine: bool) -> Number:
        return least(records.where(affine=affine, n=n).curve().values())

    def trend(records: Evidence, *, affine: bool) -> Number:
        sizes = cosine.where(affine=affine).by("n")
        return slope({n: minimum(records, n, affine=affine) for n in records.where(affine=affine).by("n")}, sizes)

    judged = [
        statistic("slope of the least affine linearity on log N", "C1 slope", cosine, lambda r: trend(r, affine=True))
    ]
    if of_the_papers_images(cosine):
        judged += [
            statistic(
                "least linearity at the largest N",
                "C1 generalizing",
                cosine,
                lambda r: minimum(r, max(cosine.by("n")), affine=False),
            ),
            statistic(
                "least linearity at the smallest N",
                "C1 memorizing",
                cosine,
                lambda r: minimum(r, min(cosine.by("n")), affine=False),
            ),
        ]
    raw = control("slope of the least raw linearity", cosine, lambda r: trend(r, affine=False))
    memory = _linearity(evidence, "cosine", study="linearity", denoiser="multidelta")
    return Finding(
        tuple(judged),
        raw + control("slope for multi-delta denoisers", memory, lambda r: trend(r, affine=True)),
    )


def c2(evidence: Evidence) -> Finding:
    """The slopes of the least cosine and of the largest relative error, affine, for each architecture.

    | quantity | tags |
    |---|---|
    | linearity_cosine, linearity_nmse | study linearity or networks; affine; network, n, sigma, seed |
    """
    studied = {metric: _linearity(evidence, metric, study=("linearity", "networks")) for metric in ("cosine", "nmse")}
    names = sorted({str(record["network"]) for record in studied["cosine"].records if record.get("network")})

    def trend(network: str, metric: str, worst: Callable[[Iterable[Number]], Number], word: str) -> Statistic:
        def measure(records: Evidence) -> Number:
            groups = records.where(affine=True, network=network).by("n")
            sizes = studied[metric].where(affine=True, network=network).by("n")
            return slope({n: worst(group.curve().values()) for n, group in groups.items()}, sizes)

        return statistic(f"slope of the {word} on log N, {network}", f"C2 {metric}", studied[metric], measure)

    judged = [
        trend(network, *of)
        for network in (names if len(names) > 1 else [*names, "a second architecture"])
        for of in (("cosine", least, "least cosine"), ("nmse", greatest, "largest NMSE"))
    ]
    return Finding(tuple(judged))


def c3(evidence: Evidence) -> Finding:
    """LS(α² = ½) − LS(α), paired, mean over σ, for each other α; at the largest N.

    | quantity | tags |
    |---|---|
    | linearity_difference | study linearity; alpha (the other α), n, sigma, seed |
    """
    paired = evidence.where(study="linearity", quantity="linearity_difference", denoiser="network", on="held_out")
    alphas = sorted({record["alpha"] for record in paired.records if record.get("alpha") is not None})

    def difference(alpha: Real | None) -> Statistic:
        def average(records: Evidence) -> Number:
            return mean(records.where(n=max(paired.by("n")), alpha=alpha).curve().values())

        name = "linearity at equal weights minus linearity" + ("" if alpha is None else f" at α = {alpha:.3g}")
        return statistic(name, "C3 difference", paired, average)

    return Finding(tuple(difference(alpha) for alpha in alphas or [None]))


def c4(evidence: Evidence) -> Finding:
    """LS of the EDM parametrisation minus LS of the baseline, raw, mean over σ ≥ 20; at the baseline's largest N.

    | quantity | tags |
    |---|---|
    | linearity_cosine | study linearity; not affine; preconditioning edm, and none, ve or vp; n, sigma, seed |
    """
    cosine = evidence.where(
        study="linearity", quantity="linearity_cosine", denoiser="network", on="held_out", alpha=None
    )

    def advantage(records: Evidence, *, affine: bool) -> Number:
        high = records.where(affine=affine).at(HIGH_NOISE)
        n = max(cosine.where(preconditioning=_BASELINES).by("n"))
        curve = high.where(preconditioning=_BASELINES, n=n).curve()
        return mean_at(high.where(preconditioning="edm", n=n).curve(), [*curve]) - mean(curve.values())

    return Finding(
        (
            statistic(
                "linearity of EDM minus baseline, σ ≥ 20", "C4 difference", cosine, lambda r: advantage(r, affine=False)
            ),
        ),
        control("the same, affine", cosine, lambda r: advantage(r, affine=True)),
    )


def _linearity(evidence: Evidence, metric: str, *, study: str | tuple[str, ...], denoiser: str = "network") -> Evidence:
    return evidence.where(
        study=study,
        quantity=f"linearity_{metric}",
        denoiser=denoiser,
        on="held_out",
        alpha=None,
        preconditioning=(None, "edm"),
    )
