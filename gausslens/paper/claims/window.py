"""The window of a study: the noise levels at which the multi-delta and the Gaussian denoiser differ.

In the window, RMSE(M, G) on held-out images exceeds half its maximum, on average over the study's training sets. It does not
depend on any network.
"""

from collections.abc import Mapping
from functools import cached_property
from statistics import fmean

from .claim import HIGH_NOISE, LOW_NOISE
from .evidence import Evidence, Number, greatest, mean_at, slope
from .inference import Real


def window(memory_to_gaussian: Mapping[Real, Number]) -> list[Real]:
    """The noise levels at which the multi-delta and the Gaussian denoiser differ by more than half their largest difference.

    On held-out images the two also differ at the lowest noise, where every good denoiser returns its input. So only the
    paper's intermediate noise levels count, if any of the levels is one.
    """
    most = greatest(memory_to_gaussian.values()).value
    apart = [sigma for sigma, number in memory_to_gaussian.items() if number.value > most / 2]
    return [sigma for sigma in apart if LOW_NOISE <= sigma <= HIGH_NOISE] or apart


class InWindow:
    """RMSE(θ, G) in the window of a study, without records that have a `role`; G is gaussian or gaussian_full."""

    def __init__(self, evidence: Evidence, study: str, reference: str = "gaussian") -> None:
        self._controls = gaps_of(evidence, study).where(denoiser="multidelta", reference="gaussian")
        self._network = {"denoiser": "network", "reference": reference}
        found = evidence.where(study=study, quantity=("rmse", "memorized_fraction"), denoiser="network", role=None)
        self.studied = Evidence(found.records, (f"study {study}",), found.undone)

    @cached_property
    def sigmas(self) -> list[Real]:
        """The noise levels of the window."""
        levels = self._controls.by("sigma").items()
        return window({sigma: Number(fmean(r["value"] for r in group.records)) for sigma, group in levels})

    def mean(self, records: Evidence) -> Number:
        """The mean over the window, of one model's records."""
        return mean_at(self._of(records).curve(), self.sigmas)

    def over(self, records: Evidence, tag: str) -> dict[Real, Number]:
        """The mean over the window at each value of a tag, of one seed's records."""
        return {value: mean_at(group.curve(), self.sigmas) for value, group in self._of(records).by(tag).items()}

    def slope(self, records: Evidence, tag: str) -> Number:
        """The slope of the mean on the logarithm of a tag, of one seed's records, over all values in the study."""
        return slope(self.over(records, tag), self._of(self.studied).by(tag))

    def _of(self, records: Evidence) -> Evidence:
        return records.where(quantity="rmse", on="held_out", **self._network)


def gaps_of(evidence: Evidence, study: str) -> Evidence:
    """The records of gaps, RMSE on held-out images, of the models that a study judges."""
    return evidence.where(study=study, quantity="rmse", on="held_out", role=None)
