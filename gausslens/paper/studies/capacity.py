"""How wide? Models of few images with fewer and fewer channels, after a short and after the full training."""

from ...measures.memorization import MEMORIZED
from ...report import Axis, CurveFigure, Figure, ImageGrid, Series, Threshold
from ..claims.evidence import Evidence, MissingError, Number, mean, mean_at
from ..claims.thresholds import HIGH_NOISE
from ..claims.window import InWindow, gaps_of
from ..figures import (
    COPIES,
    MEAN_RMSE,
    NOISE,
    RMSE,
    line,
    lines,
    non_empty_figures,
    non_empty_series,
    sample_grid,
    trainings_behind,
)
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.checkpoint_evaluation import checkpoint_task, sample_count
from .output_grids import HIGH, MIDDLE, close_up_grid, close_ups

_SHOWN = 10  # samples of each model
_LOW = 1.0  # the noise levels up to which the paper's Fig. 16 zooms in
_REFERENCE = {"role": "reference"}
_WIDTH = Axis("width", "channels", log=True)
_MEMORY = "control: multi-delta"


def parts(plan: Plan) -> list[Part]:
    """Every width at every seed: at the end and after a short training; beside them a model of most images, and pictures."""
    models = {(width, seed): plan.model(plan.few, seed, width=width) for width in plan.widths for seed in _seeds(plan)}
    found = []
    for (width, seed), model in models.items():
        found.append(Part(f"measures of {width}, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(f"{width}, seed {seed}, short", checkpoint_task(plan, model, plan.short)))
        found.append(Part(f"{width}, seed {seed}", plan.sampled(model)))
    for seed in _seeds(plan):
        model = plan.model(plan.sizes[-1], seed)
        found.append(Part(f"reference, seed {seed}", plan.measured(model, "gap", "linearity"), _REFERENCE))
    found.append(Part("reference", plan.sampled(plan.model(plan.sizes[-1], plan.shown)), _REFERENCE))
    for width in plan.widths:
        found += close_ups(plan, models[width, plan.shown], _channels(width), controls=width == plan.width)
    for n in plan.sizes:
        found += close_ups(plan, plan.model(n, plan.shown), _images(n), controls=True)[:1]
    return found


def draw(findings: Findings) -> list[Figure]:
    """Figs. 7, 16, 17, 18 and 20 of the paper."""
    plan, command, evidence = findings.plan, findings.command, findings.evidence
    few, many = plan.few, plan.sizes[-1]
    on = f"on {plan.count} noisy held-out images, {trainings_behind(evidence)}"
    gaps = evidence.where(quantity="rmse", on="held_out", denoiser="network", reference="gaussian")
    of_few = gaps.where(role=None, kimg=plan.kimg)
    memory = gaps_of(evidence, "capacity").where(denoiser="multidelta", reference="gaussian")
    beside = non_empty_series(
        line(f"{_channels(plan.width)}, N = {many:,}", gaps.where(**_REFERENCE), dashed=True),
        line(_MEMORY, memory, dashed=True),
    )
    low_noise = lines(of_few.at(0.0, _LOW), "width", _channels)
    high_noise = non_empty_series(
        *(
            line(f"{kimg:,g} thousand images", records, x="width", number=_mean_over_noise)
            for kimg in (plan.short, plan.kimg)
            if len(records := gaps.where(role=None, kimg=kimg).at(HIGH_NOISE))
        )
    )
    by_width = lines(of_few, "width", _channels)
    linear = evidence.where(quantity="linearity_cosine", on="held_out", affine=True, role=None, kimg=plan.kimg)
    figures: list[Figure | None] = [
        CurveFigure(
            title=f"Distance to the Gaussian denoiser, by width, N = {few:,}",
            caption=f"RMSE between a network and the Gaussian denoiser of its {few:,} training images, {on}. Dashed: a "
            f"network of {many:,} images against the Gaussian of its own, and, a control, the multi-delta denoiser of "
            "the few images. Look for narrow networks closer to the Gaussian at intermediate noise, and farther from it "
            "at high noise.",
            redraws=(7, 20),
            claims=("C11", "C12"),
            command=command,
            x=NOISE,
            y=RMSE,
            series=by_width + beside if by_width else (),
        ),
        CurveFigure(
            title="Distance to the Gaussian denoiser at low noise, by width",
            caption="At the least noise a network does nothing, and the Gaussian of fewer images than pixels cannot. "
            "Look whether what is left between them is the same for all widths. The dashed control retrieves training "
            "images.",
            redraws=(16,),
            claims=("C13",),
            command=command,
            x=Axis(NOISE.label, NOISE.unit),
            y=RMSE,
            series=low_noise + non_empty_series(line(_MEMORY, memory.at(0.0, _LOW), dashed=True)) if low_noise else (),
        ),
        CurveFigure(
            title="Distance in the window, by width",
            caption="Mean RMSE over the window of noise levels where the multi-delta and the Gaussian denoiser differ "
            f"most, {on}: to the Gaussian of the model's {few:,} images, and to that of all images that could have been "
            "trained on. The dashed control is the multi-delta denoiser of the few images, which no width changes.",
            redraws=(7, 20),
            claims=("C11",),
            command=command,
            x=_WIDTH,
            y=MEAN_RMSE,
            series=_in_window(evidence.where(kimg=plan.kimg, role=None)),
        ),
        CurveFigure(
            title="Distance at high noise, by width and length of training",
            caption=f"Mean RMSE to the Gaussian over the noise levels σ ≥ {HIGH_NOISE:g}, {on}, after {plan.short:,g} "
            f"and after {plan.kimg:,g} thousand images. Look whether narrow networks are farther off, and whether longer "
            "training takes that away. Where the dashed control, the multi-delta denoiser, is nearer to the Gaussian than "
            "networks are, their distance is not memory.",
            redraws=(7, 20),
            claims=("C12",),
            command=command,
            x=_WIDTH,
            y=MEAN_RMSE,
            series=high_noise
            + non_empty_series(line(_MEMORY, memory.at(HIGH_NOISE), x="width", dashed=True, number=_mean_over_noise))
            if high_noise
            else (),
        ),
        CurveFigure(
            title="Copies among samples, by width",
            caption="Share of samples whose nearest training image is less than a third as far as the second nearest: of "
            f"{sample_count(plan)} after {plan.short:,g} and of {plan.samples} after {plan.kimg:,g} thousand images. "
            f"Controls: samples of the multi-delta and the Gaussian denoiser of the {few:,} images.",
            redraws=(7, 20),
            claims=("C11",),
            command=command,
            x=_WIDTH,
            y=COPIES,
            series=_copies(evidence.where(quantity="memorized_fraction", role=None), plan),
            thresholds=(Threshold(MEMORIZED, "memorising"),),
        ),
        CurveFigure(
            title="Linearity, by width",
            caption="How linear the networks are: cosine of D(αx₁ + βx₂) and αD(x₁) + βD(x₂), both around the mean "
            f"image's output, {on}; 1 for an affine map. Controls: the multi-delta and the Gaussian denoiser of the "
            f"{few:,} images.",
            command=command,
            x=NOISE,
            y=Axis("linearity, affine", "cosine", bounds=(0.0, 1.0)),
            series=lines(linear.where(denoiser="network"), "width", _channels)
            + non_empty_series(
                *(
                    line(f"control: {name}", linear.where(denoiser=denoiser, width=plan.width), dashed=True)
                    for name, denoiser in (("multi-delta", "multidelta"), ("Gaussian", "gaussian"))
                )
            ),
        ),
        _samples(findings),
        close_up_grid(
            findings,
            [row for n in plan.sizes for row in _of_size(n)],
            HIGH,
            title=f"Outputs at σ = {HIGH:g}, by number of images",
            caption="What the Gaussian and the multi-delta denoiser and a network of the same training images make of "
            "noisy held-out images y. Inputs are shown scaled down. Look whether the three are alike for every number "
            "of images.",
            redraws=(17,),
            claims=("C12",),
        ),
        close_up_grid(
            findings,
            [*_closed_form(plan), *_networks(plan)],
            HIGH,
            title=f"Outputs at σ = {HIGH:g}, by width",
            caption=f"What networks of {few:,} images make of noisy held-out images y, below what the Gaussian and the "
            "multi-delta denoiser of the same images make of them. Inputs are shown scaled down. Look how wide a "
            "network must be until its outputs are those of the Gaussian.",
            redraws=(17,),
            claims=("C12",),
        ),
        close_up_grid(
            findings,
            [_closed_form(plan)[0], *_networks(plan), _closed_form(plan)[1]],
            MIDDLE,
            noise=True,
            title=f"Outputs at σ = {MIDDLE:g}, by width",
            caption=f"The same at σ = {MIDDLE:g}, of pure noise ε and of noisy held-out images y. Look whether narrow "
            "networks' outputs are those of the Gaussian, and wide ones' those of the multi-delta denoiser, training "
            "images.",
            redraws=(18,),
            claims=("C11",),
        ),
    ]
    return non_empty_figures(*figures)


def _in_window(evidence: Evidence) -> tuple[Series, ...]:
    gaps = evidence.where(quantity="rmse", on="held_out")
    names = {"gaussian": "to the Gaussian of its images", "gaussian_full": "to the Gaussian of all images"}
    window = {reference: InWindow(evidence, "capacity", reference=reference) for reference in names}
    network = gaps.where(denoiser="network")
    try:
        return non_empty_series(
            *(
                line(name, network.where(reference=reference), x="width", number=window[reference].mean)
                for reference, name in names.items()
            ),
            line(
                f"{_MEMORY}, to the Gaussian of its images",
                gaps.where(denoiser="multidelta", reference="gaussian"),
                x="width",
                dashed=True,
                number=lambda records: mean_at(records.curve(), window["gaussian"].sigmas),
            ),
        )
    except MissingError:  # of what fixes the window
        return ()


def _mean_over_noise(records: Evidence) -> Number:
    return mean(records.curve().values())


def _copies(copies: Evidence, plan: Plan) -> tuple[Series, ...]:
    of_network = copies.where(denoiser="network")
    return non_empty_series(
        *(
            line(f"{kimg:,g} thousand images", of_network.where(kimg=kimg), x="width")
            for kimg in (plan.short, plan.kimg)
        ),
        line(_MEMORY, copies.where(denoiser="multidelta"), x="width", dashed=True),
        line("control: Gaussian", copies.where(denoiser="gaussian"), x="width", dashed=True),
    )


def _samples(findings: Findings) -> ImageGrid | None:
    plan = findings.plan
    own = f"{plan.width}, seed {plan.shown}"
    rows = [("Gaussian", own, "gaussian")]
    for width in plan.widths:
        key = f"{width}, seed {plan.shown}"
        rows += [(_channels(width), key, "network"), ("nearest training image", key, "nearest")]
    rows.append(("multi-delta", own, "multidelta"))
    rows.append((f"{_channels(plan.width)}, {_images(plan.sizes[-1])}", "reference", "network"))
    return sample_grid(
        findings,
        rows,
        columns=_SHOWN,
        title=f"Samples by width, N = {plan.few:,}",
        caption=f"Samples of networks of {plan.few:,} images with their nearest training images, between those of the "
        "Gaussian and of the multi-delta denoiser of the same images; at the bottom those of a network of "
        f"{plan.sizes[-1]:,} images. All from the same noises. Look whether narrow networks make images like the "
        "Gaussian's, and wide ones copies.",
        redraws=(7, 20),
        claims=("C11",),
    )


def _of_size(n: int) -> list[tuple[str, str, str]]:
    names = (("Gaussian", "gaussian"), ("multi-delta", "multidelta"), ("network", "network"))
    return [(f"{label}, {_images(n)}", _images(n), name) for label, name in names]


def _closed_form(plan: Plan) -> list[tuple[str, str, str]]:
    key = _channels(plan.width)
    return [("Gaussian", key, "gaussian"), ("multi-delta", key, "multidelta")]


def _networks(plan: Plan) -> list[tuple[str, str, str]]:
    return [(_channels(width), _channels(width), "network") for width in plan.widths]


def _seeds(plan: Plan) -> range:
    return range(plan.sweep_seeds)


def _channels(width: int) -> str:
    return f"{width} channels"


def _images(n: int) -> str:
    return f"N = {n:,}"


STUDY = Study(
    name="capacity",
    title="How wide?",
    question="Models of fewer and fewer channels are trained on the same few images. The paper says that a narrow "
    "model, which cannot store its images, stays closer to the Gaussian denoiser at intermediate noise, as a wide one "
    "does on many images; and that it is farther from it at high noise, until it is trained for long enough.\n\nAt the "
    "least noise the distance depends on the images alone: a Gaussian of fewer images than pixels knows nothing of the "
    "directions in which they do not vary.",
    figures=(7, 16, 17, 18, 20),
    claims=("C11", "C12", "C13"),
    parts=parts,
    draw=draw,
)
