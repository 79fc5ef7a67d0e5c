"""Does it return its input without noise?

Where there is almost no noise, the best output is the input. For that reason alone, a good network is linear there, and
near its Gaussian and its linear map. So agreement at the lowest noise is no evidence of anything else.
"""

from collections.abc import Iterator

from .. import axes
from ..architectures import PUBLISHED, architecture, label
from ..claims.claim import LOW_NOISE, Found, Threshold, claim, control, statistic
from ..claims.comparisons import largest, minus
from ..claims.evidence import Evidence
from ..figures import Curves, Drawing, Line, about, closed_forms
from ..plan import Plan
from ..study import Findings, Part, Study

_NMSE = axes.quantity("identity_nmse", "NMSE", log=True, on="held_out")
_LINEAR_NMSE = axes.quantity("identity_nmse", "NMSE", bounds=axes.POSITIVE, on="held_out")
_COSINE = axes.quantity("identity_cosine", "cosine", bounds=axes.CORRELATION, on="held_out")
_DIFFERENCE = Threshold("our choice: 2 % of an image's norm is not visible", above=-0.02, below=0.02)


@claim("C19", "At low noise, the network returns its input, as the Wiener filter does.")
def c19(evidence: Evidence) -> Found:
    """Identity gap (NMSE) of a network minus that of the Wiener filter, mean over σ ≤ 0.1; for each architecture.

    On held-out images, at the largest N.
    """
    gaps = evidence.where(study="identity", **_NMSE.tags).at(0.0, LOW_NOISE)
    judged, names = gaps.where(n=largest(gaps)), gaps.names("network")
    difference = minus({"denoiser": "network"}, {"denoiser": "gaussian"})
    for name in names if len(names) > 1 else [None]:
        words = "identity gap minus the Wiener filter's, σ ≤ 0.1" + (f", {name}" if name else "")
        yield statistic(words, _DIFFERENCE, judged.where(network=name) if name else judged, difference)
    for denoiser in ("network", "gaussian"):
        yield from control(f"identity gap, {denoiser}", gaps.where(denoiser=denoiser), Evidence.mean)


def parts(plan: Plan) -> Iterator[Part]:
    """The largest size at every seed: the plan's own network first, then the published architectures."""
    for name in dict.fromkeys((plan.training["network"], *PUBLISHED)):
        for seed in range(plan.seeds):
            model = plan.model(plan.sizes[-1], seed, **architecture(plan, name))
            yield Part(f"{name}, seed {seed}", plan.measured(model, "identity_gap"))


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Fig. 15 of the paper."""
    own = findings.plan.training["network"]
    names = sorted(findings.evidence.names("network"), key=lambda name: (name != own, name))
    count = largest(findings.evidence.where(**_NMSE.tags), "count")
    whose = (
        f"of {count} noisy held-out images, for networks of several architectures trained on the most images. A good "
        "denoiser returns its input where there is no noise. Controls: the Gaussian of their training images, and the "
        "multi-delta denoiser of these images, which returns one of them."
    )
    low = "The figure before, at σ ≤ 2."
    claimed = f"The claim is that at σ ≤ {LOW_NOISE:g} the networks are as near 0 as the Gaussian is."
    error, cosine = (quantity.by(axes.LOW_SIGMA).at(0.0, 2.0) for quantity in (_LINEAR_NMSE, _COSINE))
    for title, caption, quantity in (
        ("Distance of outputs from inputs", f"Mean of ‖D(x) − x‖/‖D(x)‖ {whose}", _NMSE),
        ("Distance of outputs from inputs at low noise", f"{low} {claimed}", error),
        ("Direction of outputs and inputs", f"Mean cosine between D(x) and x {whose}", _COSINE),
        ("Directions at low noise", low, cosine),
    ):
        yield Curves(
            **about(title, 15, "C19"),
            caption=caption,
            of=quantity,
            lines=(
                *(Line(label(name), network=name, denoiser="network") for name in names),
                *closed_forms("gaussian", "multidelta", network=own),
            ),
        )


STUDY = Study("identity", __doc__, parts, drawings, figures=(15,), judges=(c19,))
