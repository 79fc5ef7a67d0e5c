"""Jacobians along sampling trajectories, and steps along their singular vectors: claim C20; figures 28, 30."""

from ...report import ImageGrid
from .. import axes
from ..claims.claim import Finding, Threshold, claim, statistic
from ..claims.comparisons import largest, positive
from ..claims.evidence import Evidence, MissingError, Number, mean
from ..figures import Curves, Drawing, Line, about, closed_forms, sigma_label
from ..pictures import jacobian_pictures
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.jacobians import STEERS, jacobian_task

_MAPS = (0, 2, 4, 6, 10)  # which of the eleven levels that are looked at
_STEERED = [2, 5, 10]  # σ = 22.8, 1.98 and 0.002, as in the paper's Fig. 30
_SUBSPACE = 5  # dimensions of the subspace that controls are drawn for, or the next below
_PRINCIPAL = 10.0  # the noise level from which Jacobians are said to follow the principal components
_SHOWS = about(28, "C20")

_OVERLAP = Threshold("our choice: four fifths reads as the same subspace in Fig. 28", above=0.8, possible=(0.0, 1.0))


@claim(
    "C20",
    "The Jacobian's singular vectors match the principal components at high noise and adapt to the image at low noise.",
)
def c20(evidence: Evidence) -> Finding:
    """Overlap of the Jacobian's leading singular subspace with the principal one at σ ≥ 10, and its fall below."""
    overlap = evidence.where(study="jacobian", **axes.JACOBIAN_OVERLAP.tags, denoiser="network")

    def mean_overlap(records: Evidence, *, high: bool) -> Number:
        levels = {sigma: group for sigma, group in records.by("sigma").items() if (sigma >= _PRINCIPAL) == high}
        if not levels:
            raise MissingError(f"no record of jacobian_overlap at sigma {'≥' if high else '<'} {_PRINCIPAL:g}")
        return mean(mean(group.over("k").values()) for group in levels.values())

    def at_high_noise(records: Evidence) -> Number:
        return mean_overlap(records, high=True)

    def fall(records: Evidence) -> Number:
        return mean_overlap(records, high=True) - mean_overlap(records, high=False)

    return Finding(
        (
            statistic("overlap with principal components, σ ≥ 10", _OVERLAP, overlap, at_high_noise),
            statistic("its fall below σ = 10", positive("Fig. 28"), overlap, fall),
        )
    )


def parts(plan: Plan) -> list[Part]:
    """The largest size at every seed."""
    return [Part(f"seed {seed}", jacobian_task(plan, plan.model(plan.sizes[-1], seed))) for seed in range(plan.seeds)]


def shown_subspace(overlap: Evidence) -> int:
    """Dimensions of the subspace that is drawn where one is."""
    ks = sorted({record["k"] for record in overlap.where(denoiser="network").records})
    return max((k for k in ks if k <= _SUBSPACE), default=ks[0] if ks else 0)


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 28 and 30 of the paper."""
    overlap = findings.evidence.where(**axes.JACOBIAN_OVERLAP.tags)
    k, count = shown_subspace(overlap), largest(overlap.where(denoiser="network"), "count")
    key = f"seed {findings.plan.shown}"
    return [
        Curves(
            title="Overlap of the Jacobian's leading singular vectors with principal components",
            caption=f"‖UᵀU_data‖²/k of the k leading left singular vectors of ∇D(x_t; σ_t) along {count} sampling "
            "trajectories of the network trained on the most images, and as many principal components of its training "
            "images. Only subspaces that the eigenvalues of the images part from the rest are compared. Unrelated ones "
            f"would have k/{findings.plan.dim}.",
            **_SHOWS,
            of=axes.JACOBIAN_OVERLAP.against(_OVERLAP, "four fifths"),
            lines=(Line(lambda k: f"k = {k}", by="k", denoiser="network"),),
        ),
        Curves(
            title=f"Overlap of Jacobians with controls, k = {k}",
            caption="At the same x_t, the Jacobians of the Gaussian and, for small images, of the multi-delta denoiser "
            "of the training images. The Gaussian's is the same at all x: where its overlap falls, at the lowest "
            "noise, single precision is the reason. Where the multi-delta denoiser, which retrieves, follows the "
            "components too, doing so says nothing about generalising; where both controls do and the network does "
            "not, it is not a good denoiser there.",
            **_SHOWS,
            of=axes.JACOBIAN_OVERLAP.where(k=k),
            lines=(Line("network", denoiser="network"), *closed_forms("gaussian", "multidelta")),
        ),
        *jacobian_pictures(findings, key, _MAPS, "", **_SHOWS),
        Curves(
            title="How far a sample moves when its trajectory is moved",
            caption=f"Distance of samples over distance of states, ‖Δx₀‖/‖Δx_t‖, for steps x_t ± 3σ_t·v of {count} "
            "trajectories of the network, v the first singular vector of the Jacobian there or a random direction. "
            "Dashed: the same steps from the same x_t when the Gaussian goes on. A value of 1 means that the step is "
            "kept as it is; a step itself is the smaller the lower the noise.",
            **about(30, "C20"),
            of=axes.quantity("steering_response", "‖Δx₀‖/‖Δx_t‖", bounds=axes.POSITIVE),
            lines=[
                Line(f"{of}{words}", direction=direction, denoiser=name)
                for name, of in (("network", "network"), ("gaussian", "control: Gaussian"))
                for direction, words in (("first", ", first singular vector"), ("random", ", random direction"))
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
            f"{sigma_label(sigma)}, noise {noise + 1}"
            for sigma in sigmas[_STEERED]
            for noise in range(samples.shape[1])
        ),
        columns=tuple("not moved" if steer == "none" else steer for steer in STEERS),
        images=samples[_STEERED].reshape(-1, *samples.shape[2:]),
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
