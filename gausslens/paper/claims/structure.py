"""C17, C20, C21: autoencoders of one noise level, Jacobians, and the theorem."""

from .evidence import Evidence, MissingError, Number, greatest, mean, mean_at
from .findings import Finding, Statistic, bound, pixel_scale, statistic

_UNDERTRAINED = 42.0  # the noise levels from here on, at which the paper finds networks of all levels under-trained
_PRINCIPAL = 10.0  # the noise level from which Jacobians are said to follow the principal components


def c17(evidence: Evidence) -> Finding:
    """max RMSE(linear autoencoder, G); the other autoencoders' minus a network's of all levels, mean over σ ≥ 42.

    | quantity | tags |
    |---|---|
    | rmse | study autoencoders; on held_out; reference gaussian; network linear, skipnet, dit, ncsnpp, … with |
    | | preconditioning none, and one network with preconditioning edm; sigma, seed |
    | data_rms | |
    """
    gaps = evidence.where(
        study="autoencoders", quantity="rmse", on="held_out", denoiser="network", reference="gaussian"
    )
    plain = gaps.where(preconditioning="none")
    names = sorted({str(record.get("network")) for record in plain.records} - {"linear"})

    def largest(records: Evidence) -> Number:
        return greatest(records.curve().values()) / pixel_scale(evidence)

    def compare(name: str) -> Statistic:
        def difference(records: Evidence) -> Number:
            high = records.at(_UNDERTRAINED)
            curve = high.where(preconditioning="none", network=name).curve()
            return mean(curve.values()) - mean_at(high.where(preconditioning="edm").curve(), [*curve])

        return statistic(f"RMSE to G at σ ≥ 42, {name} minus EDM", "C17 difference", gaps, difference)

    linear = plain.where(network="linear")
    return Finding(
        (
            statistic("largest RMSE of the linear autoencoder to G", "C17 linear", linear, largest),
            *(compare(name) for name in names or ["another autoencoder"]),
        )
    )


def c20(evidence: Evidence) -> Finding:
    """Overlap of the Jacobian's leading singular subspace with the principal one at σ ≥ 10, and its fall below.

    | quantity | tags |
    |---|---|
    | jacobian_overlap | study jacobian; denoiser network; sigma, k, seed; interval over images |
    """
    overlap = evidence.where(study="jacobian", quantity="jacobian_overlap", denoiser="network")

    def level(records: Evidence) -> Number:
        return mean(mean(group.over("k").values()) for group in records.by("sigma").values())

    def fall(records: Evidence) -> Number:
        below = Evidence([record for record in records.at(0.0, _PRINCIPAL).records if record["sigma"] < _PRINCIPAL])
        if not len(below):
            raise MissingError(f"no record of jacobian_overlap at sigma < {_PRINCIPAL:g}")
        return level(records.at(_PRINCIPAL)) - level(below)

    return Finding(
        (
            statistic(
                "overlap with principal components, σ ≥ 10", "C20 overlap", overlap, lambda r: level(r.at(_PRINCIPAL))
            ),
            statistic("its fall below σ = 10", "C20 fall", overlap, fall),
        )
    )


def c21(evidence: Evidence) -> Finding:
    """The theorem's residuals: algebra, so neither images nor seeds count.

    | quantity | tags |
    |---|---|
    | theorem_residual | any study; relative distances of the optimum and of gradient descent to the Wiener filter |
    """
    residuals = evidence.where(quantity="theorem_residual")
    return Finding((bound("largest relative residual", "C21 residual", residuals),))
