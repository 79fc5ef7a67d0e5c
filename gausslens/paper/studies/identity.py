"""Does it do nothing where there is no noise? The gap between a denoiser's output and its noisy input."""

import math

from ...report import Axis, Figure
from .. import axes
from ..architectures import PUBLISHED, model_of
from ..claims.evidence import Evidence, Number, mean_at
from ..claims.findings import Finding, Statistic, claim, controls, statistic
from ..claims.thresholds import LOW_NOISE, Threshold
from ..figures import Curves, Line, about
from ..figures import controls as control_lines
from ..plan import Plan
from ..study import Findings, Part, Study

_ZOOM = 2.0  # the noise level up to which is zoomed in
_DIFFERENCE = Threshold("our choice: 2 % of an image's norm is not seen", above=-0.02, below=0.02)


@claim("C19", "At low noise, the network returns its input, as the Wiener filter does.")
def c19(evidence: Evidence) -> Finding:
    """Identity gap (NMSE) of a network minus that of the Wiener filter, mean over σ ≤ 0.1; for each architecture.

    On held-out images, at the largest N.
    """
    gaps = evidence.where(study="identity", quantity="identity_nmse", on="held_out").at(0.0, LOW_NOISE)
    names: list[str | None] = [*gaps.names("network")] or [None]

    def difference(records: Evidence) -> Number:
        records = records.where(n=max(gaps.by("n")))
        network = records.where(denoiser="network")
        return network.mean() - mean_at(records.where(denoiser="gaussian").curve(), [*network.curve()])

    def compare(name: str | None) -> Statistic:
        words = f", {name}" if len(names) > 1 else ""
        said = f"identity gap minus the Wiener filter's, σ ≤ 0.1{words}"
        return statistic(said, _DIFFERENCE, gaps.where(network=name), difference)

    beside = {f"identity gap, {name}": gaps.where(denoiser=name) for name in ("network", "gaussian")}
    return Finding(tuple(compare(name) for name in names), controls(Evidence.mean, beside))


def parts(plan: Plan) -> list[Part]:
    """The largest size at every seed: the plan's own network first, then the published architectures."""
    own = plan.training["network"]
    return [
        Part(f"{name}, seed {seed}", plan.measured(model_of(plan, name, plan.sizes[-1], seed), "identity_gap"))
        for name in (own, *(name for name in PUBLISHED if name != own))
        for seed in range(plan.seeds)
    ]


def figures(findings: Findings) -> list[Curves | Figure | None]:
    """Fig. 15 of the paper."""
    own = findings.plan.training["network"]
    nmse = findings.evidence.where(on="held_out", quantity="identity_nmse")
    count = max((record["count"] for record in nmse.records), default=0)
    whose = (
        f"of {count} noisy held-out images: networks of several architectures on the most images, and as controls the "
        f"Gaussian and the multi-delta denoiser of the {own}'s training images. Any good denoiser does nothing where "
        "there is no noise; the multi-delta denoiser, which answers with training images, does not."
    )
    low = f"The levels up to σ = {_ZOOM:g}"
    claimed = f"The claim is about σ ≤ {LOW_NOISE:g}: look whether the networks are as near 0 as the Gaussian is."
    cosine = Axis("cosine", bounds=(-1.0, 1.0))
    names = sorted(findings.evidence.names("network"), key=lambda name: (name != own, name))
    return [
        Curves(
            title=title,
            caption=caption,
            **about(15, "C19"),
            x=x,
            y=y,
            where={"on": "held_out", "quantity": f"identity_{metric}"},
            at=(0.0, _ZOOM) if x == axes.LOW_SIGMA else (-math.inf, math.inf),
            lines=(
                *(Line(name, network=name, denoiser="network") for name in names),
                *control_lines("gaussian", "multidelta", network=own),
            ),
        )
        for title, caption, metric, x, y in (
            (
                "Distance of outputs from inputs",
                f"Mean of ‖D(x) − x‖/‖D(x)‖ {whose}",
                *("nmse", axes.SIGMA, Axis("NMSE", log=True)),
            ),
            (
                "Distance of outputs from inputs at low noise",
                f"{low}. {claimed}",
                *("nmse", axes.LOW_SIGMA, Axis("NMSE", bounds=(0.0, math.inf))),
            ),
            (
                "Direction of outputs and inputs",
                f"Mean cosine between D(x) and x {whose}",
                "cosine",
                axes.SIGMA,
                cosine,
            ),
            ("Directions at low noise", f"{low} of the figure before.", "cosine", axes.LOW_SIGMA, cosine),
        )
    ]


STUDY = Study(
    name="identity",
    title="Does it do nothing without noise?",
    question="Where there is hardly any noise, the best output is the input. A network that does so is linear, and "
    "near its Gaussian and its linear map, for that reason alone: agreement at the lowest noise is no evidence of "
    "anything else.",
    figures=(15,),
    parts=parts,
    drawings=figures,
    judges=(c19,),
)
