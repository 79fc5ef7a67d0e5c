"""Which changes does it keep?

A denoiser is locally linear: its Jacobian says which small changes of a noisy image it keeps. The Gaussian keeps the
principal components of the images everywhere. Along trajectories of the network, do the changes that it keeps follow these
components, or the image that emerges? At high noise any good denoiser follows the components, so compare the controls.
"""

import math
from collections.abc import Iterator

from ...report import ImageGrid
from .. import axes
from ..claims.claim import Found, Threshold, claim, statistic
from ..claims.comparisons import largest, positive
from ..claims.evidence import Evidence, Number, mean
from ..figures import Curves, Drawing, Line, about, closed_forms, sigma_label
from ..pictures import jacobian_pictures
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.jacobians import STEERS, jacobian_task

_MAPS = (0, 2, 4, 6, 10)  # which of the eleven levels of the path
_STEERED = [2, 5, 10]  # σ = 22.8, 1.98 and 0.002, as in the paper's Fig. 30
_SUBSPACE = 5  # largest dimension of the subspace in figures of one subspace
_PRINCIPAL = 10.0  # the noise level from which on, by the claim, Jacobians follow the principal components

_OVERLAP = Threshold(
    "our choice: an overlap of four fifths looks like the same subspace in Fig. 28", above=0.8, possible=axes.SHARE
)


@claim(
    "C20",
    "The Jacobian's leading directions are the principal components at high noise, and depend on the image at low noise.",
)
def c20(evidence: Evidence) -> Found:
    """Overlap of the Jacobian's leading singular subspace with the principal one at σ ≥ 10, and its fall below."""
    overlap = evidence.where(study="jacobian", **axes.JACOBIAN_OVERLAP.tags, denoiser="network")

    def mean_at(records: Evidence, low: float, high: float = math.inf) -> Number:
        return mean(mean(level.over("k").values()) for level in records.at(low, high).by("sigma").values())

    def fall(records: Evidence) -> Number:
        return mean_at(records, _PRINCIPAL) - mean_at(records, 0.0, math.nextafter(_PRINCIPAL, 0.0))

    high = "overlap with principal components, σ ≥ 10"
    yield statistic(high, _OVERLAP, overlap, lambda records: mean_at(records, _PRINCIPAL))
    yield statistic("its fall below σ = 10", positive("Fig. 28"), overlap, fall)


def parts(plan: Plan) -> Iterator[Part]:
    """The largest size at every seed."""
    for seed in range(plan.seeds):
        yield Part(f"seed {seed}", jacobian_task(plan, plan.model(plan.sizes[-1], seed)))


def shown_subspace(overlap: Evidence) -> int:
    """The dimension of the subspace that is drawn in figures of one subspace."""
    ks = sorted({record["k"] for record in overlap.where(denoiser="network").records})
    return max((k for k in ks if k <= _SUBSPACE), default=ks[0] if ks else 0)


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 28 and 30 of the paper."""
    overlap = findings.evidence.where(**axes.JACOBIAN_OVERLAP.tags)
    k, count = shown_subspace(overlap), largest(overlap.where(denoiser="network"), "count")
    key = f"seed {findings.plan.shown}"
    yield Curves(
        **about("Overlap of the Jacobian's leading singular vectors with principal components", 28, "C20"),
        caption="‖UᵀU_data‖²/k, where the columns of U are the k leading left singular vectors of the Jacobian ∇D(x_t; "
        f"σ_t) along {count} sampling trajectories of the network trained on the most images, and the columns of "
        "U_data are as many principal components of its training images. Only subspaces that are separated by a gap in "
        f"the eigenvalues of the images are compared. Unrelated subspaces would have k/{findings.plan.dim}.",
        of=axes.JACOBIAN_OVERLAP.against(_OVERLAP, "four fifths"),
        lines=(Line(lambda k: f"k = {k}", by="k", denoiser="network"),),
    )
    yield Curves(
        **about(f"Overlap of Jacobians with controls, k = {k}", 28, "C20"),
        caption="The same overlap, and as controls those of the Gaussian and, for small images, of the multi-delta "
        "denoiser of the training images, at the same x_t. Where both controls follow the components and the network "
        "does not, it is not a good denoiser; where multi-delta follows them, doing so is no sign of generalising. The "
        "Gaussian's Jacobian is the same at all x, so its overlap should not fall; where it falls at the lowest noise, "
        "this is due to single precision.",
        of=axes.JACOBIAN_OVERLAP.where(k=k),
        lines=(Line("network", denoiser="network"), *closed_forms("gaussian", "multidelta")),
    )
    yield from jacobian_pictures(findings, key, _MAPS, "", 28, "C20")
    yield Curves(
        **about("How far a sample moves when its trajectory is moved", 30, "C20"),
        caption=f"Distance of samples over distance of states, ‖Δx₀‖/‖Δx_t‖, for steps x_t ± 3σ_t·v of {count} "
        "trajectories of the network; v is the first singular vector of the Jacobian there, or a random direction. A "
        "value of 1 means that the sample moves as far as the state; steps are smaller at lower noise. Control "
        "(dashed): the same steps from the same x_t, continued with the Gaussian.",
        of=axes.quantity("steering_response", "‖Δx₀‖/‖Δx_t‖", bounds=axes.POSITIVE),
        lines=[
            Line(f"{of}{words}", direction=direction, denoiser=name)
            for name, of in (("network", "network"), ("gaussian", "control: Gaussian"))
            for direction, words in (("first", ", first singular vector"), ("random", ", random direction"))
        ],
    )
    samples, sigmas = findings.array(key, "steered"), findings.array(key, "sigmas")
    if samples is not None:
        yield ImageGrid(
            **about("Samples after a step along the first singular vector", 30, "C20"),
            caption="Samples that start at x_t, or at x_t moved by 3σ_t either way along the first left singular "
            "vector u₁ of the Jacobian or along a random direction. In the paper, such a step changes the whole image "
            "at high noise, only its details at intermediate noise, and nothing at the lowest.",
            rows=tuple(
                f"{sigma_label(sigma)}, noise {noise + 1}"
                for sigma in sigmas[_STEERED]
                for noise in range(samples.shape[1])
            ),
            columns=tuple("not moved" if steer == "none" else steer for steer in STEERS),
            images=samples[_STEERED].reshape(-1, *samples.shape[2:]),
        )


STUDY = Study("jacobian", __doc__, parts, drawings, figures=(28, 30), judges=(c20,))
