"""C15, C16, C18: whether models that share no training image, or no architecture, make the same images from the same noise.

`noise` excess is the paired difference: the two models' agreement minus that of the two multi-delta denoisers of their
images (`agreement(...).excess`); same is the agreement itself, shuffled the control with the noises exchanged, and itself
that of samples with the noises they began with: models that have learned nothing hand these on, and agree.
"""

from itertools import chain

from .evidence import Evidence
from .findings import Control, Finding, Statistic, control, statistic
from .thresholds import CORRELATION


def c15(evidence: Evidence) -> Finding:
    """Agreement of models on disjoint images minus that of their multi-delta denoisers.

    | quantity | tags |
    |---|---|
    | agreement_correlation | study strong; role large, early, narrow and small; noise excess; denoiser network; seed |
    | the same as controls | noise same, shuffled and itself; denoisers multidelta and stationary, noise same |
    """
    pairs = evidence.where(study="strong", quantity="agreement_correlation", reference=None)

    def excess(role: str, threshold: str) -> Statistic:
        of_role = pairs.where(role=role, denoiser="network", noise="excess")
        return statistic(f"excess agreement, {role}", threshold, of_role, Evidence.one)

    def beside(role: str) -> tuple[Control, ...]:
        shown = {
            f"agreement, {role}": ("network", "same"),
            f"agreement, {role}, noises exchanged": ("network", "shuffled"),
            f"agreement of samples and their noise, {role}": ("network", "itself"),
            f"agreement, {role}, multi-delta": ("multidelta", "same"),
            f"agreement, {role}, stationary Gaussians": ("stationary", "same"),
        }
        found = (
            control(name, pairs.where(role=role, denoiser=denoiser, noise=noise), Evidence.one, CORRELATION)
            for name, (denoiser, noise) in shown.items()
        )
        return tuple(chain.from_iterable(found))

    return Finding(
        (*(excess(role, "C15 agree") for role in ("large", "early", "narrow")), excess("small", "C15 small")),
        beside("large") + beside("early") + beside("narrow") + beside("small"),
    )


def c16(evidence: Evidence) -> Finding:
    """Correlation of samples of the Gaussian of a small subset with those of the Gaussian of a large one, same noise.

    | quantity | tags |
    |---|---|
    | agreement_correlation | study strong; denoiser gaussian, reference gaussian_full; no role; noise same; seed |
    | the same as control | noise shuffled |
    """
    pairs = evidence.where(
        study="strong", quantity="agreement_correlation", denoiser="gaussian", reference="gaussian_full", role=None
    )
    judged = statistic(
        "correlation of Gaussian samples, a random subset each seed",
        "C16 correlation",
        pairs.where(noise="same"),
        Evidence.one,
    )
    return Finding(
        (judged,), control("the same, noises exchanged", pairs.where(noise="shuffled"), Evidence.one, CORRELATION)
    )


def c18(evidence: Evidence) -> Finding:
    """Agreement of architectures minus the multi-delta denoisers'; and, blurred, with the Gaussian's samples.

    | quantity | tags |
    |---|---|
    | agreement_correlation | study networks; noise excess; network and reference, two architectures; seed |
    | agreement_lowpass_correlation | study networks; noise excess; network; reference gaussian; seed |
    """
    found = evidence.where(study="networks", noise="excess")
    across, layout = (
        found.where(quantity="agreement_correlation"),
        found.where(quantity="agreement_lowpass_correlation"),
    )
    pairs = sorted({(str(record.get("network")), str(record.get("reference"))) for record in across.records})
    names = sorted({str(record.get("network")) for record in layout.records})

    def agree(first: str, second: str) -> Statistic:
        of_pair = across.where(network=first, reference=second)
        return statistic(f"excess agreement, {first} and {second}", "C18 agreement", of_pair, Evidence.one)

    def resemble(name: str) -> Statistic:
        of_network = layout.where(network=name, reference="gaussian")
        return statistic(f"excess agreement with the Gaussian, blurred, {name}", "C18 layout", of_network, Evidence.one)

    return Finding(
        (
            *(agree(*pair) for pair in pairs or [("one architecture", "another")]),
            *(resemble(name) for name in names or ["any architecture"]),
        )
    )
