"""Which changes does it keep? The Jacobian's singular vectors along sampling trajectories, and steps along them."""

import math

from ...report import Axis, Figure, ImageGrid
from .. import axes
from ..claims.evidence import Evidence, MissingError, Number, mean
from ..claims.findings import Finding, claim, statistic
from ..claims.thresholds import SIGN, Threshold
from ..figures import Curves, Line, Tags, about, controls, level, sigma_label
from ..pictures import jacobian_maps, jacobian_vectors
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.jacobians import STEERS, jacobian_task

_MAPS = (0, 2, 4, 6, 10)  # which of the eleven levels that are looked at
_STEERED = (2, 5, 10)  # σ = 22.8, 1.98 and 0.002, as in the paper's Fig. 30
_SUBSPACE = 5  # dimensions of the subspace that controls are drawn for, or the next below
_PRINCIPAL = 10.0  # the noise level from which Jacobians are said to follow the principal components
_SHOWS = about(28, "C20")

_OVERLAP = Threshold("our choice: four fifths reads as the same subspace in Fig. 28", above=0.8, possible=(0.0, 1.0))
_FALL = Threshold(SIGN + " in Fig. 28", above=0.0)


@claim("C20", "The Jacobian follows the principal components at high noise and the image at low noise.")
def c20(evidence: Evidence) -> Finding:
    """Overlap of the Jacobian's leading singular subspace with the principal one at σ ≥ 10, and its fall below."""
    overlap = evidence.where(study="jacobian", quantity="jacobian_overlap", denoiser="network")

    def high(records: Evidence) -> Number:
        return _mean_overlap(records.at(_PRINCIPAL))

    def fall(records: Evidence) -> Number:
        below = Evidence([record for record in records.at(0.0, _PRINCIPAL).records if record["sigma"] < _PRINCIPAL])
        if not len(below):
            raise MissingError(f"no record of jacobian_overlap at sigma < {_PRINCIPAL:g}")
        return high(records) - _mean_overlap(below)

    return Finding(
        (
            statistic("overlap with principal components, σ ≥ 10", _OVERLAP, overlap, high),
            statistic("its fall below σ = 10", _FALL, overlap, fall),
        )
    )


def _mean_overlap(records: Evidence) -> Number:
    return mean(mean(group.over("k").values()) for group in records.by("sigma").values())


def parts(plan: Plan) -> list[Part]:
    """The largest size at every seed."""
    return [Part(f"seed {seed}", jacobian_task(plan, plan.model(plan.sizes[-1], seed))) for seed in range(plan.seeds)]


def shown_subspace(overlap: Evidence) -> int:
    """Dimensions of the subspace that is drawn where one is."""
    ks = sorted({record["k"] for record in overlap.where(denoiser="network").records})
    return max((k for k in ks if k <= _SUBSPACE), default=ks[0] if ks else 0)


def figures(findings: Findings) -> list[Curves | Figure | None]:
    """Figs. 28 and 30 of the paper."""
    overlap = findings.evidence.where(quantity="jacobian_overlap")
    k = shown_subspace(overlap)
    count = max((record["count"] for record in overlap.where(denoiser="network").records), default=0)
    key = f"seed {findings.plan.shown}"
    return [
        Curves(
            title="Overlap of the Jacobian's leading singular vectors with principal components",
            caption=f"‖UᵀU_data‖²/k of the k leading left singular vectors of ∇D(x_t; σ_t) along {count} sampling "
            "trajectories of the network on the most images, and as many principal components of its training images. "
            "Only subspaces that the eigenvalues of the images part from the rest are compared. Unrelated ones would "
            f"have k/{findings.plan.dim}.",
            **_SHOWS,
            y=axes.OVERLAP,
            where=Tags(quantity="jacobian_overlap", denoiser="network"),
            lines=(Line(lambda k: f"k = {k}", by="k"),),
            levels=(level(_OVERLAP, "four fifths"),),
        ),
        Curves(
            title=f"Overlap of Jacobians with controls, k = {k}",
            caption="At the same x_t, the Jacobians of the Gaussian and, for small images, of the multi-delta denoiser "
            "of the training images. The Gaussian's is the same at all x: where its overlap falls, at the lowest "
            "noise, single precision is the reason. Where the multi-delta denoiser, which retrieves, follows the "
            "components too, doing so says nothing about generalising; where both controls do and the network does "
            "not, it is not a good denoiser there.",
            **_SHOWS,
            y=axes.OVERLAP,
            where=Tags(quantity="jacobian_overlap", k=k),
            lines=(Line("network", denoiser="network"), *controls("gaussian", "multidelta")),
        ),
        jacobian_maps(
            findings, key, _MAPS, title="Singular vectors of the Jacobian against principal components", **_SHOWS
        ),
        jacobian_vectors(
            findings, key, title="A trajectory, and the first singular vectors of the Jacobian along it", **_SHOWS
        ),
        Curves(
            title="How far a sample moves when its trajectory is moved",
            caption=f"Distance of samples over distance of states, ‖Δx₀‖/‖Δx_t‖, for steps x_t ± 3σ_t·v of {count} "
            "trajectories of the network, v the first singular vector of the Jacobian there or a random direction. "
            "Dashed: the same steps from the same x_t when the Gaussian goes on. A value of 1 means that the step is "
            "kept as it is; a step itself is the smaller the lower the noise.",
            **about(30, "C20"),
            y=Axis("‖Δx₀‖/‖Δx_t‖", bounds=(0.0, math.inf)),
            where=Tags(quantity="steering_response"),
            lines=[
                Line(f"{words}, {of}", dashed=name != "network", direction=direction, denoiser=name)
                for name, of in (("network", "network"), ("gaussian", "control: Gaussian"))
                for direction, words in (("first", "first singular vector"), ("random", "random"))
            ],
        ),
        _steered(findings, key),
    ]


def _steered(findings: Findings, key: str) -> ImageGrid | None:
    samples, sigmas = findings.array(key, "steered"), findings.array(key, "sigmas")
    if samples is None:
        return None
    return ImageGrid(
        title="Samples after a step along the first singular vector",
        caption="Sampling goes on from x_t, and from x_t moved by 3σ_t along the first left singular vector u₁ of the "
        "Jacobian, or along a random direction, either way. The paper sees other images at high noise, other details "
        "at intermediate noise and no change at the lowest.",
        **about(30, "C20"),
        rows=tuple(
            f"{sigma_label(sigmas[place])}, noise {noise + 1}"
            for place in _STEERED
            for noise in range(samples.shape[1])
        ),
        columns=tuple("not moved" if steer == "none" else steer for steer in STEERS),
        images=samples[list(_STEERED)].reshape(-1, *samples.shape[2:]),
    )


STUDY = Study(
    name="jacobian",
    title="Which changes does it keep?",
    question="A denoiser is locally linear: its Jacobian says which small changes of a noisy image survive. The "
    "Gaussian's keeps the principal components of the images, wherever it is. Along trajectories of the network, do "
    "the changes it keeps follow these components, or the image that emerges? At high noise the first is expected of "
    "any good denoiser, so compare the controls.",
    figures=(28, 30),
    parts=parts,
    drawings=figures,
    judges=(c20,),
)
