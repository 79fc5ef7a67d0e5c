"""Does it do nothing where there is no noise? The gap between a denoiser's output and its noisy input."""

import math

from ...report import Axis, CurveFigure, Figure, Series
from ..architectures import PUBLISHED, model_of
from ..claims.evidence import Evidence
from ..claims.thresholds import LOW_NOISE
from ..figures import NOISE, line, non_empty_figures, non_empty_series
from ..plan import Plan
from ..study import Findings, Part, Study

_ZOOM = 2.0  # the noise level up to which is zoomed in


def parts(plan: Plan) -> list[Part]:
    """The largest size at every seed: the plan's own network first, then the published architectures."""
    own = plan.training["network"]
    return [
        Part(f"{name}, seed {seed}", plan.measured(model_of(plan, name, plan.sizes[-1], seed), "identity_gap"))
        for name in (own, *(name for name in PUBLISHED if name != own))
        for seed in range(plan.seeds)
    ]


def draw(findings: Findings) -> list[Figure]:
    """Fig. 15 of the paper."""
    held_out = findings.evidence.where(on="held_out")
    own = findings.plan.training["network"]
    nmse, cosine = (held_out.where(quantity=f"identity_{metric}") for metric in ("nmse", "cosine"))
    count = max((record["count"] for record in nmse.records), default=0)
    whose = (
        f"of {count} noisy held-out images: networks of several architectures on the most images, and as controls the "
        f"Gaussian and the multi-delta denoiser of the {own}'s training images. Any good denoiser does nothing where "
        "there is no noise; the multi-delta denoiser, which answers with training images, does not."
    )
    near = Axis("noise level σ", "pixel range [−1, 1]")
    return non_empty_figures(
        CurveFigure(
            title="Distance of outputs from inputs",
            caption=f"Mean of ‖D(x) − x‖/‖D(x)‖ {whose}",
            redraws=(15,),
            claims=("C19",),
            command=findings.command,
            x=NOISE,
            y=Axis("NMSE", log=True),
            series=_lines(nmse, own),
        ),
        CurveFigure(
            title="Distance of outputs from inputs at low noise",
            caption=f"The levels up to σ = {_ZOOM:g}. The claim is about σ ≤ {LOW_NOISE:g}: look whether the networks "
            "are as near 0 as the Gaussian is.",
            redraws=(15,),
            claims=("C19",),
            command=findings.command,
            x=near,
            y=Axis("NMSE", bounds=(0.0, math.inf)),
            series=_lines(nmse.at(0.0, _ZOOM), own),
        ),
        CurveFigure(
            title="Direction of outputs and inputs",
            caption=f"Mean cosine between D(x) and x {whose}",
            redraws=(15,),
            claims=("C19",),
            command=findings.command,
            x=NOISE,
            y=Axis("cosine", bounds=(-1.0, 1.0)),
            series=_lines(cosine, own),
        ),
        CurveFigure(
            title="Directions at low noise",
            caption=f"The levels up to σ = {_ZOOM:g} of the figure before.",
            redraws=(15,),
            claims=("C19",),
            command=findings.command,
            x=near,
            y=Axis("cosine", bounds=(-1.0, 1.0)),
            series=_lines(cosine.at(0.0, _ZOOM), own),
        ),
    )


def _lines(records: Evidence, own: str) -> tuple[Series, ...]:
    """A line for each architecture, and broken ones for the controls."""
    found = sorted({record["network"] for record in records.records}, key=lambda name: (name != own, name))
    networks = (line(name, records.where(network=name, denoiser="network")) for name in found)
    controls = (
        line(f"control: {words}", records.where(network=own, denoiser=name), dashed=True)
        for name, words in (("gaussian", "Gaussian"), ("multidelta", "multi-delta"))
    )
    return non_empty_series(*networks, *controls)


STUDY = Study(
    name="identity",
    title="Does it do nothing without noise?",
    question="Where there is hardly any noise, the best output is the input. A network that does so is linear, and "
    "near its Gaussian and its linear map, for that reason alone: agreement at the lowest noise is no evidence of "
    "anything else.",
    figures=(15,),
    claims=("C19",),
    parts=parts,
    draw=draw,
)
