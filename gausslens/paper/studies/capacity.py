"""How wide? Models of few images with fewer and fewer channels, after a short and after the full training."""

from typing import Any

from ...report import Axis, Figure
from .. import axes
from ..claims.evidence import Evidence, MissingError, Number, mean_at, slope_over
from ..claims.findings import Finding, claim, statistic
from ..claims.inference import Real
from ..claims.thresholds import HIGH_NOISE, LOW_NOISE, SIGN, Threshold
from ..claims.window import InWindow, gaps_of
from ..figures import Curves, Line, Tags, about, controls, images_label, trainings_behind
from ..pictures import HIGH, MIDDLE, close_up_grid, close_ups, sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.checkpoint_evaluation import checkpoint_task, sample_count

_LOW = 1.0  # the noise levels up to which the paper's Fig. 16 zooms in
_REFERENCE: dict[str, Any] = {"role": "reference"}
_SHOWS = about(7, 20, "C11")

_WIDTH = Threshold(SIGN + " in Fig. 7", below=0.0)
_TRAINING = Threshold(SIGN + " in Fig. 17", above=0.0)
_BY_SIZE = Threshold(SIGN + " in Fig. 16", above=0.0)
_BY_WIDTH = Threshold("our choice: 10 % reads as equal in Fig. 16", above=-0.1, below=0.1)


@claim("C12", "At high noise, narrow networks are far from the Gaussian until they are trained for longer.")
def c12(evidence: Evidence) -> Finding:
    """Slope of RMSE(θ, G) on log width at σ ≥ 20 after the shortest training, and how much longer training adds to it."""
    high = gaps_of(evidence, "capacity").where(denoiser="network", reference="gaussian").at(HIGH_NOISE)

    def trend(records: Evidence, kimg: Real) -> Number:
        return slope_over(records.where(kimg=kimg), "width", Evidence.mean, high)

    def removed(records: Evidence) -> Number:
        lengths = [*high.by("kimg")]
        if len(lengths) < 2:
            raise MissingError("two lengths of training are needed, 1 found")
        return trend(records, lengths[-1]) - trend(records, lengths[0])

    def after_shortest(records: Evidence) -> Number:
        return trend(records, min(high.by("kimg")))

    return Finding(
        (
            statistic("slope of RMSE(θ, G) on log width, σ ≥ 20", _WIDTH, high, after_shortest),
            statistic("what longer training adds to the slope", _TRAINING, high, removed),
        )
    )


@claim("C13", "At the least noise, the distance to the Gaussian depends on the number of images, not on width.")
def c13(evidence: Evidence) -> Finding:
    """At the smallest σ ≤ 0.1: log RMSE(θ, G) at the smallest minus at the largest N; narrowest over widest minus 1.

    The first in the study `size`, the second in the study `capacity`.
    """
    size, capacity = (
        gaps_of(evidence, study).where(denoiser="network", reference="gaussian").at(0.0, LOW_NOISE)
        for study in ("size", "capacity")
    )

    def ends(records: Evidence, studied: Evidence, tag: str) -> tuple[Number, Number]:
        values = [*studied.by(tag)]
        if len(values) < 2:
            raise MissingError(f"two values of {tag} are needed, 1 found")
        lowest = records.where(sigma=min(studied.by("sigma")))
        first, last = (lowest.where(**{tag: value}).one() for value in (values[0], values[-1]))
        return first, last

    def of_size(records: Evidence) -> Number:
        small, large = ends(records, size, "n")
        return small.log() - large.log()

    def of_width(records: Evidence) -> Number:
        narrow, wide = ends(records, capacity, "width")
        return narrow / wide - Number(1.0)

    return Finding(
        (
            statistic("log RMSE(θ, G) at the least σ, smallest minus largest N", _BY_SIZE, size, of_size),
            statistic("RMSE(θ, G) at the least σ, narrowest over widest, minus 1", _BY_WIDTH, capacity, of_width),
        )
    )


def parts(plan: Plan) -> list[Part]:
    """Every width at every seed: at the end and after a short training; beside them a model of most images, and pictures."""
    seeds = range(plan.sweep_seeds)
    models = {(width, seed): plan.model(plan.few, seed, width=width) for width in plan.widths for seed in seeds}
    found = []
    for (width, seed), model in models.items():
        found.append(Part(f"measures of {width}, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(f"{width}, seed {seed}, short", checkpoint_task(plan, model, plan.short)))
        found.append(Part(f"{width}, seed {seed}", plan.sampled(model)))
    for seed in seeds:
        model = plan.model(plan.sizes[-1], seed)
        found.append(Part(f"reference, seed {seed}", plan.measured(model, "gap", "linearity"), _REFERENCE))
    found.append(Part("reference", plan.sampled(plan.model(plan.sizes[-1], plan.shown)), _REFERENCE))
    for width in plan.widths:
        found += close_ups(plan, models[width, plan.shown], _channels(width), controls=width == plan.width)
    for n in plan.sizes:
        found += close_ups(plan, plan.model(n, plan.shown), images_label(n), controls=True)[:1]
    return found


def figures(findings: Findings) -> list[Curves | Figure | None]:
    """Figs. 7, 16, 17, 18 and 20 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    few, many = plan.few, plan.sizes[-1]
    on = f"on {plan.count} noisy held-out images, {trainings_behind(evidence)}"
    own, full = (InWindow(evidence, "capacity", reference=name) for name in ("gaussian", "gaussian_full"))
    gaps = Tags(quantity="rmse", on="held_out")
    of_own = Tags(**gaps, reference="gaussian")
    by_width = Line(_channels, by="width", denoiser="network", role=None, kimg=plan.kimg)
    lengths = [
        Line(f"{kimg:,g} thousand images", denoiser="network", role=None, kimg=kimg) for kimg in (plan.short, plan.kimg)
    ]
    memory = controls("multidelta", role=None)
    key = _channels(plan.width)
    gaussian, retrieval = (("Gaussian", key, "gaussian"), ("multi-delta", key, "multidelta"))
    networks = [(_channels(width), _channels(width), "network") for width in plan.widths]
    return [
        Curves(
            title=f"Distance to the Gaussian denoiser, by width, N = {few:,}",
            caption=f"RMSE between a network and the Gaussian denoiser of its {few:,} training images, {on}. Dashed: a "
            f"network of {many:,} images against the Gaussian of its own, and, a control, the multi-delta denoiser of "
            "the few images. Look for narrow networks closer to the Gaussian at intermediate noise, and farther from "
            "it at high noise.",
            **about(7, 20, "C11", "C12"),
            where=of_own,
            lines=(by_width,),
            beside=(Line(f"{key}, N = {many:,}", dashed=True, denoiser="network", **_REFERENCE), *memory),
        ),
        Curves(
            title="Distance to the Gaussian denoiser at low noise, by width",
            caption="At the least noise a network does nothing, and the Gaussian of fewer images than pixels cannot. "
            "Look whether what is left between them is the same for all widths. The dashed control retrieves training "
            "images.",
            **about(16, "C13"),
            x=axes.LOW_SIGMA,
            where=of_own,
            at=(0.0, _LOW),
            lines=(by_width,),
            beside=memory,
        ),
        Curves(
            title="Distance in the window, by width",
            caption="Mean RMSE over the window of noise levels where the multi-delta and the Gaussian denoiser differ "
            f"most, {on}: to the Gaussian of the model's {few:,} images, and to that of all images that could have "
            "been trained on. The dashed control is the multi-delta denoiser of the few images, which no width changes.",
            **_SHOWS,
            x=axes.WIDTH,
            y=axes.MEAN_RMSE,
            where=Tags(**gaps, role=None, kimg=plan.kimg),
            lines=(
                Line("to the Gaussian of its images", denoiser="network", reference="gaussian", number=own.mean),
                Line("to the Gaussian of all images", denoiser="network", reference="gaussian_full", number=full.mean),
                *controls(
                    "multidelta",
                    called=", to the Gaussian of its images",
                    reference="gaussian",
                    number=lambda records: mean_at(records.curve(), own.sigmas),
                ),
            ),
        ),
        Curves(
            title="Distance at high noise, by width and length of training",
            caption=f"Mean RMSE to the Gaussian over the noise levels σ ≥ {HIGH_NOISE:g}, {on}, after {plan.short:,g} "
            f"and after {plan.kimg:,g} thousand images. Look whether narrow networks are farther off, and whether "
            "longer training takes that away. Where the dashed control, the multi-delta denoiser, is nearer to the "
            "Gaussian than networks are, their distance is not memory.",
            **about(7, 20, "C12"),
            x=axes.WIDTH,
            y=axes.MEAN_RMSE,
            where=of_own,
            at=(HIGH_NOISE, float("inf")),
            number=Evidence.mean,
            lines=lengths,
            beside=memory,
        ),
        Curves(
            title="Copies among samples, by width",
            caption="Share of samples whose nearest training image is less than a third as far as the second nearest: "
            f"of {sample_count(plan)} after {plan.short:,g} and of {plan.samples} after {plan.kimg:,g} thousand "
            f"images. Controls: samples of the multi-delta and the Gaussian denoiser of the {few:,} images.",
            **_SHOWS,
            x=axes.WIDTH,
            y=axes.COPIES,
            where=Tags(quantity="memorized_fraction", role=None),
            lines=(*lengths, *controls()),
            levels=(axes.MEMORIZING,),
        ),
        Curves(
            title="Linearity, by width",
            caption="How linear the networks are: cosine of D(αx₁ + βx₂) and αD(x₁) + βD(x₂), both around the mean "
            f"image's output, {on}; 1 for an affine map. Controls: the multi-delta and the Gaussian denoiser of the "
            f"{few:,} images.",
            y=Axis("linearity, affine", "cosine", bounds=(0.0, 1.0)),
            where=Tags(quantity="linearity_cosine", on="held_out", affine=True, role=None, kimg=plan.kimg),
            lines=(Line(_channels, by="width", denoiser="network"), *controls(width=plan.width)),
        ),
        _samples(findings),
        close_up_grid(
            findings,
            [
                (f"{label}, {images_label(n)}", images_label(n), name)
                for n in plan.sizes
                for label, name in (("Gaussian", "gaussian"), ("multi-delta", "multidelta"), ("network", "network"))
            ],
            HIGH,
            title=f"Outputs at σ = {HIGH:g}, by number of images",
            caption="What the Gaussian and the multi-delta denoiser and a network of the same training images make of "
            "noisy held-out images y. Inputs are shown scaled down. Look whether the three are alike for every number "
            "of images.",
            **about(17, "C12"),
        ),
        close_up_grid(
            findings,
            [gaussian, retrieval, *networks],
            HIGH,
            title=f"Outputs at σ = {HIGH:g}, by width",
            caption=f"What networks of {few:,} images make of noisy held-out images y, below what the Gaussian and the "
            "multi-delta denoiser of the same images make of them. Inputs are shown scaled down. Look how wide a "
            "network must be until its outputs are those of the Gaussian.",
            **about(17, "C12"),
        ),
        close_up_grid(
            findings,
            [gaussian, *networks, retrieval],
            MIDDLE,
            noise=True,
            title=f"Outputs at σ = {MIDDLE:g}, by width",
            caption=f"The same at σ = {MIDDLE:g}, of pure noise ε and of noisy held-out images y. Look whether narrow "
            "networks' outputs are those of the Gaussian, and wide ones' those of the multi-delta denoiser, training "
            "images.",
            **about(18, "C11"),
        ),
    ]


def _samples(findings: Findings) -> Figure | None:
    plan = findings.plan
    keys = {width: f"{width}, seed {plan.shown}" for width in plan.widths}
    rows = [("Gaussian", keys[plan.width], "gaussian")]
    for width, key in keys.items():
        rows += [(_channels(width), key, "network"), ("nearest training image", key, "nearest")]
    rows.append(("multi-delta", keys[plan.width], "multidelta"))
    rows.append((f"{_channels(plan.width)}, {images_label(plan.sizes[-1])}", "reference", "network"))
    return sample_grid(
        findings,
        rows,
        title=f"Samples by width, N = {plan.few:,}",
        caption=f"Samples of networks of {plan.few:,} images with their nearest training images, between those of the "
        "Gaussian and of the multi-delta denoiser of the same images; at the bottom those of a network of "
        f"{plan.sizes[-1]:,} images. All from the same noises. Look whether narrow networks make images like the "
        "Gaussian's, and wide ones copies.",
        **_SHOWS,
    )


def _channels(width: int) -> str:
    return f"{width} channels"


STUDY = Study(
    name="capacity",
    title="How wide?",
    question="Models of fewer and fewer channels are trained on the same few images. The paper says that a narrow "
    "model, which cannot store its images, stays closer to the Gaussian denoiser at intermediate noise, as a wide one "
    "does on many images; and that it is farther from it at high noise, until it is trained for long enough.\n\nAt the "
    "least noise the distance depends on the images alone: a Gaussian of fewer images than pixels knows nothing of the "
    "directions in which they do not vary.",
    figures=(7, 16, 17, 18, 20),
    parts=parts,
    drawings=figures,
    judges=(c12, c13),
    informs=("C11",),
)
