"""Which changes does it keep? The Jacobian's singular vectors along sampling trajectories, and steps along them."""

import math

from ...report import Axis, CurveFigure, Figure, ImageGrid, Series, Threshold
from ..claims.evidence import Evidence
from ..claims.thresholds import THRESHOLDS
from ..figures import NOISE, OVERLAP, line, lines, non_empty_figures, non_empty_series
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.jacobians import STEERS, jacobian_task
from .jacobian_pictures import correlation_maps, vector_grid

_MAPS = (0, 2, 4, 6, 10)  # which of the eleven levels that are looked at
_STEERED = (2, 5, 10)  # σ = 22.8, 1.98 and 0.002, as in the paper's Fig. 30
_SUBSPACE = 5  # dimensions of the subspace that controls are drawn for, or the next below


def parts(plan: Plan) -> list[Part]:
    """The largest size at every seed."""
    return [Part(f"seed {seed}", jacobian_task(plan, plan.model(plan.sizes[-1], seed))) for seed in range(plan.seeds)]


def draw(findings: Findings) -> list[Figure]:
    """Figs. 28 and 30 of the paper."""
    overlap = findings.evidence.where(quantity="jacobian_overlap")
    network = overlap.where(denoiser="network")
    ks = sorted({record["k"] for record in network.records})
    k = max((k for k in ks if k <= _SUBSPACE), default=ks[0] if ks else 0)
    count = max((record["count"] for record in network.records), default=0)
    dim, key = findings.plan.dim, _key(findings)
    figures: list[Figure | None] = [
        CurveFigure(
            title="Overlap of the Jacobian's leading singular vectors with principal components",
            caption=f"‖UᵀU_data‖²/k of the k leading left singular vectors of ∇D(x_t; σ_t) along {count} sampling "
            "trajectories of the network on the most images, and as many principal components of its training images. "
            "Only subspaces that the eigenvalues of the images part from the rest are compared. Unrelated ones would "
            f"have k/{dim}.",
            redraws=(28,),
            claims=("C20",),
            command=findings.command,
            x=NOISE,
            y=OVERLAP,
            series=lines(network, "k", lambda k: f"k = {k}"),
            thresholds=(Threshold(THRESHOLDS["C20 overlap"].above or 0.0, "four fifths"),),
        ),
        CurveFigure(
            title=f"Overlap of Jacobians with controls, k = {k}",
            caption="At the same x_t, the Jacobians of the Gaussian and, for small images, of the multi-delta denoiser "
            "of the training images. The Gaussian's is the same at all x: where its overlap falls, at the lowest "
            "noise, single precision is the reason. Where the multi-delta denoiser, which retrieves, follows the "
            "components too, doing so says nothing about generalising; where both controls do and the network does "
            "not, it is not a good denoiser there.",
            redraws=(28,),
            claims=("C20",),
            command=findings.command,
            x=NOISE,
            y=OVERLAP,
            series=_with_controls(overlap.where(k=k)),
        ),
        correlation_maps(
            *(findings, key, _MAPS),
            title="Singular vectors of the Jacobian against principal components",
            redraws=(28,),
            claims=("C20",),
        ),
        vector_grid(
            *(findings, key),
            title="A trajectory, and the first singular vectors of the Jacobian along it",
            redraws=(28,),
            claims=("C20",),
        ),
        _response(findings, count),
        _steered(findings),
    ]
    return non_empty_figures(*figures)


def _with_controls(overlap: Evidence) -> tuple[Series, ...]:
    names = {"network": "network", "gaussian": "control: Gaussian", "multidelta": "control: multi-delta"}
    return non_empty_series(
        *(line(words, overlap.where(denoiser=name), dashed=name != "network") for name, words in names.items())
    )


def _response(findings: Findings, count: int) -> CurveFigure:
    moved = findings.evidence.where(quantity="steering_response")
    return CurveFigure(
        title="How far a sample moves when its trajectory is moved",
        caption=f"Distance of samples over distance of states, ‖Δx₀‖/‖Δx_t‖, for steps x_t ± 3σ_t·v of {count} "
        "trajectories of the network, v the first singular vector of the Jacobian there or a random direction. Dashed: "
        "the same steps from the same x_t when the Gaussian goes on. A value of 1 means that the step is kept as it "
        "is; a step itself is the smaller the lower the noise.",
        redraws=(30,),
        claims=("C20",),
        command=findings.command,
        x=NOISE,
        y=Axis("‖Δx₀‖/‖Δx_t‖", bounds=(0.0, math.inf)),
        series=non_empty_series(
            *(
                line(
                    f"{words}, {of}",
                    moved.where(direction=direction, denoiser=name),
                    dashed=name != "network",
                )
                for name, of in (("network", "network"), ("gaussian", "control: Gaussian"))
                for direction, words in (("first", "first singular vector"), ("random", "random"))
            )
        ),
    )


def _steered(findings: Findings) -> ImageGrid | None:
    key = _key(findings)
    samples = findings.array(key, "steered")
    if samples is None:
        return None
    sigmas = findings.array(key, "sigmas")
    rows = tuple(
        f"σ = {sigmas[level]:.3g}, noise {noise + 1}" for level in _STEERED for noise in range(samples.shape[1])
    )
    return ImageGrid(
        title="Samples after a step along the first singular vector",
        caption="Sampling goes on from x_t, and from x_t moved by 3σ_t along the first left singular vector u₁ of the "
        "Jacobian, or along a random direction, either way. The paper sees other images at high noise, other details "
        "at intermediate noise and no change at the lowest.",
        redraws=(30,),
        claims=("C20",),
        command=findings.command,
        rows=rows,
        columns=tuple("not moved" if steer == "none" else steer for steer in STEERS),
        images=samples[list(_STEERED)].reshape(-1, *samples.shape[2:]),
    )


def _key(findings: Findings) -> str:
    """The part that pictures are of."""
    return f"seed {findings.plan.shown}"


STUDY = Study(
    name="jacobian",
    title="Which changes does it keep?",
    question="A denoiser is locally linear: its Jacobian says which small changes of a noisy image survive. The "
    "Gaussian's keeps the principal components of the images, wherever it is. Along trajectories of the network, do "
    "the changes it keeps follow these components, or the image that emerges? At high noise the first is expected of "
    "any good denoiser, so compare the controls.",
    figures=(28, 30),
    claims=("C20",),
    parts=parts,
    draw=draw,
)
