"""C5–C7, C19: how far a generalising network is from its linear, Gaussian and multi-delta counterparts, and from idleness.

All on held-out images, at the largest N. Gaps are divided by the data's RMS (`data_rms`, one record for the data) except for
the paper's images.
"""

from .evidence import Evidence, Number, greatest, mean, mean_at, window
from .findings import Control, Finding, Statistic, control, pixel_scale, statistic, unit_words
from .thresholds import HIGH_NOISE, LOW_NOISE, MUCH_CLOSER, POSITIVE

AUTOMATIC = (
    "almost automatic: the best affine fit of any good denoiser, on noisy images of its own data, is the Gaussian one;"
    " compare the controls"
)


def c5(evidence: Evidence) -> Finding:
    """max RMSE(L, θ) over σ ≥ 20 and σ ≤ 0.1, L the unshrunk fit.

    | quantity | tags |
    |---|---|
    | rmse | study references; denoiser network, reference linear, shrunk False; n, sigma, seed |
    | data_rms | |
    """
    gaps = evidence.where(study="references", quantity="rmse", on="held_out")
    linear = gaps.where(denoiser="network", reference="linear", shrunk=False)

    def worst(records: Evidence) -> Number:
        curve = records.where(n=max(linear.by("n")))
        ends = [*curve.at(HIGH_NOISE).curve().values(), *curve.at(0.0, LOW_NOISE).curve().values()]
        return greatest(ends) / pixel_scale(evidence)

    def between(records: Evidence) -> Number:
        curve = records.where(n=max(linear.by("n"))).at(LOW_NOISE, HIGH_NOISE).curve()
        return greatest(curve.values()) / pixel_scale(evidence)

    return Finding(
        (statistic(f"largest RMSE(L, θ) at σ ≥ 20 and σ ≤ 0.1{unit_words(evidence)}", "C5 gap", linear, worst),),
        control(f"largest RMSE(L, θ) between{unit_words(evidence)}", linear, between, POSITIVE),
    )


def c6(evidence: Evidence) -> Finding:
    """max RMSE(L, G) over all σ, L the unshrunk fit.

    | quantity | tags |
    |---|---|
    | rmse | study distillation; denoiser linear, reference gaussian, shrunk False; n, sigma, seed; on held_out |
    | the same as controls | of multidelta (what was distilled); on surrogate |
    | data_rms | |
    """
    fits = evidence.where(study="distillation", quantity="rmse", denoiser="linear", reference="gaussian", shrunk=False)

    def worst(records: Evidence) -> Number:
        return greatest(records.where(n=max(fits.by("n"))).curve().values()) / pixel_scale(evidence)

    said = f"largest RMSE(L, G), unshrunk{unit_words(evidence)}"
    judged = statistic(said, "C6 gap", fits.where(on="held_out", of=(None, "network")), worst)
    controls = control(
        "the same for the multi-delta denoiser", fits.where(on="held_out", of="multidelta"), worst, POSITIVE
    )
    controls += control(
        "the same on Gaussian surrogates", fits.where(on="surrogate", of=(None, "network")), worst, POSITIVE
    )
    return Finding((judged,), controls, AUTOMATIC)


def c7(evidence: Evidence) -> Finding:
    """mean log RMSE(G, θ)/RMSE(M, θ) over the window, and mean log RMSE(L, θ)/RMSE(G, θ) there, L the unshrunk fit.

    | quantity | tags |
    |---|---|
    | rmse | study references; n, sigma, seed; denoiser and reference: |
    | | network and each of gaussian, multidelta, linear (shrunk False); multidelta and gaussian |
    """
    gaps = evidence.where(study="references", quantity="rmse", on="held_out")

    def ratio(records: Evidence, above: str, below: str) -> Number:
        records = records.where(n=max(gaps.by("n")))
        sigmas = window(records.where(denoiser="multidelta", reference="gaussian").curve())
        network = records.where(denoiser="network")
        unshrunk = {"linear": False}  # a fit shrunk toward the Gaussian assumes what is to be shown
        curves = [network.where(reference=name, shrunk=unshrunk.get(name)).curve() for name in (above, below)]
        logs = [{sigma: number.log() for sigma, number in curve.items()} for curve in curves]
        return mean_at(logs[0], sigmas) - mean_at(logs[1], sigmas)

    closer = statistic(
        "mean log RMSE(G, θ)/RMSE(M, θ) in the window", "C7 ratio", gaps, lambda r: ratio(r, "gaussian", "multidelta")
    )
    alike = statistic(
        "mean log RMSE(L, θ)/RMSE(G, θ) in the window", "C7 linear", gaps, lambda r: ratio(r, "linear", "gaussian")
    )
    much = closer.high is not None and closer.high < MUCH_CLOSER
    return Finding((closer, alike), note="much closer: by more than a factor of 2" if much else None)


def c19(evidence: Evidence) -> Finding:
    """Identity gap (NMSE) of a network minus that of the Wiener filter, mean over σ ≤ 0.1; for each architecture.

    | quantity | tags |
    |---|---|
    | identity_nmse | study identity; denoiser network, and gaussian; network (the architecture), n, sigma, seed |
    """
    gaps = evidence.where(study="identity", quantity="identity_nmse", on="held_out").at(0.0, LOW_NOISE)

    def difference(records: Evidence) -> Number:
        records = records.where(n=max(gaps.by("n")))
        network = records.where(denoiser="network").curve()
        return mean(network.values()) - mean_at(records.where(denoiser="gaussian").curve(), [*network])

    def of(name: str) -> tuple[Control, ...]:
        return control(f"identity gap, {name}", gaps.where(denoiser=name), lambda r: mean(r.curve().values()))

    def compare(name: str | None) -> Statistic:
        words = f", {name}" if len(names) > 1 else ""
        said = f"identity gap minus the Wiener filter's, σ ≤ 0.1{words}"
        return statistic(said, "C19 difference", gaps.where(network=name), difference)

    names = sorted({record.get("network") for record in gaps.records}, key=str) or [None]
    return Finding(tuple(compare(name) for name in names), of("network") + of("gaussian"))
