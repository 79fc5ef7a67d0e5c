"""How long? One model of few images and one of many, from the start of training to its end."""

from ...measures.memorization import MEMORIZED
from ...report import CurveFigure, Figure, ImageGrid, Series, Threshold
from ..claims.evidence import Evidence, MissingError
from ..claims.thresholds import PAPER_GENERALIZATION
from ..claims.window import InWindow
from ..figures import (
    COPIES,
    GL,
    MEAN_RMSE,
    NOISE,
    RMSE,
    TRAINED,
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
from .critical_points import closest, format_onset, memorizing_from, told_closest
from .output_grids import HIGH, MIDDLE, close_up_grid, close_ups

_SHOWN = 10  # samples of each snapshot


def parts(plan: Plan) -> list[Part]:
    """Both models at every seed: the end with all measures, then their snapshots, then pictures of the small one."""
    models = {(n, seed): plan.model(n, seed) for n in _sizes(plan) for seed in range(plan.sweep_seeds)}
    found = []
    for (n, seed), model in models.items():
        found.append(Part(f"measures of {n}, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(_samples_key(plan, n, seed, plan.kimg), plan.sampled(model)))
    for (n, seed), model in models.items():
        found += [
            Part(_samples_key(plan, n, seed, kimg), checkpoint_task(plan, model, kimg)) for kimg in plan.times[:-1]
        ]
    for kimg in _pictured(plan):
        end = kimg == plan.kimg
        found += close_ups(plan, models[plan.few, plan.shown], f"{kimg:g}", kimg=None if end else kimg, controls=end)
    return found


def draw(findings: Findings) -> list[Figure]:
    """Figs. 8, 17, 18 and 21 of the paper."""
    plan, command, evidence = findings.plan, findings.command, findings.evidence
    few, many = _sizes(plan)[0], _sizes(plan)[-1]
    on = f"on {plan.count} noisy held-out images, {trainings_behind(evidence)}"
    counted = f"{sample_count(plan)} of a snapshot and {plan.samples} of the end"
    gaps = evidence.where(quantity="rmse", on="held_out", denoiser="network", reference="gaussian")
    of_few = lines(gaps.where(n=few, kimg=_pictured(plan)), "kimg", _time)
    control = evidence.where(quantity="rmse", on="held_out", denoiser="multidelta", reference="gaussian", n=few)
    figures: list[Figure | None] = [
        CurveFigure(
            title=f"Distance to the Gaussian denoiser as training goes on, N = {few:,}",
            caption=f"RMSE between a network and the Gaussian denoiser of its {few:,} training images, {on}, after more "
            f"and more training. Dashed: a network of {many:,} images at the end of training, against the Gaussian of "
            "its own images; and, a control, the multi-delta denoiser of the few images, which retrieves them. Look "
            "whether the curves fall toward the Gaussian first and rise toward the control later.",
            redraws=(8, 21),
            claims=("C11",),
            command=command,
            x=NOISE,
            y=RMSE,
            series=of_few
            + non_empty_series(
                line(f"N = {many:,}, the end", gaps.where(n=many), dashed=True),
                line("control: multi-delta", control, dashed=True),
            )
            if of_few
            else (),
        ),
        CurveFigure(
            title="Distance to the Gaussian denoiser against the length of training",
            caption="Mean RMSE over the window of noise levels where the multi-delta and the Gaussian denoiser differ "
            f"most, {on}.{told_closest(closest(evidence, few), few)} The control is the network of {many:,} images: "
            "where its distance rises late as well, a late rise alone is no sign of memorising; only what the few images "
            "add to it is.",
            redraws=(8, 21),
            claims=("C11",),
            command=command,
            x=TRAINED,
            y=MEAN_RMSE,
            series=_in_window(evidence, few, many),
        ),
        CurveFigure(
            title="Copies among samples as training goes on",
            caption=f"Share of samples, {counted}, whose nearest training image is less than a third as far as the "
            f"second nearest.{format_onset(memorizing_from(evidence, few))} Controls, which do not change in time: "
            f"samples of the Gaussian and the multi-delta denoiser of the {few:,} images.",
            redraws=(8, 21),
            claims=("C11",),
            command=command,
            x=TRAINED,
            y=COPIES,
            series=_of_samples(evidence.where(quantity="memorized_fraction"), plan),
            thresholds=(Threshold(MEMORIZED, "memorising"),),
        ),
        CurveFigure(
            title="Novelty of samples as training goes on",
            caption=f"GL score of samples, {counted}: the distance to the nearest training image, over the sample's "
            "norm. Samples that are not yet images are new as well, so the score says something only beside the samples "
            f"themselves. The paper's rule, {PAPER_GENERALIZATION}, is drawn and not judged.",
            redraws=(8,),
            claims=("C11",),
            command=command,
            x=TRAINED,
            y=GL,
            series=_of_samples(evidence.where(quantity="gl"), plan),
            thresholds=(Threshold(PAPER_GENERALIZATION, "the paper's rule"),),
        ),
        _samples(findings, few, many),
        close_up_grid(
            findings,
            [("Gaussian", f"{plan.kimg:g}", "gaussian"), ("multi-delta", f"{plan.kimg:g}", "multidelta"), *_rows(plan)],
            HIGH,
            title=f"Outputs at σ = {HIGH:g} as training goes on",
            caption=f"What a network of {few:,} images makes of noisy held-out images y, after more and more training, "
            "below what the Gaussian and the multi-delta denoiser of the same images make of them. Inputs are shown "
            "scaled down. Look how much training it takes until the network's outputs are those of the Gaussian.",
            redraws=(17,),
        ),
        close_up_grid(
            findings,
            [("Gaussian", f"{plan.kimg:g}", "gaussian"), *_rows(plan), ("multi-delta", f"{plan.kimg:g}", "multidelta")],
            MIDDLE,
            noise=True,
            title=f"Outputs at σ = {MIDDLE:g} as training goes on",
            caption=f"The same at σ = {MIDDLE:g}, of pure noise ε and of noisy held-out images y. Look whether outputs "
            "are those of the Gaussian first and those of the multi-delta denoiser, training images, later.",
            redraws=(18,),
            claims=("C11",),
        ),
    ]
    return non_empty_figures(*figures)


def _in_window(evidence: Evidence, few: int, many: int) -> tuple[Series, ...]:
    own, full = InWindow(evidence, "time"), InWindow(evidence, "time", reference="gaussian_full")
    gaps = evidence.where(quantity="rmse", on="held_out", denoiser="network")
    small = gaps.where(n=few)
    try:
        return non_empty_series(
            line(_images(few), small.where(reference="gaussian"), x="kimg", number=own.mean),
            line(
                f"N = {few:,}, to the Gaussian of all images",
                small.where(reference="gaussian_full"),
                x="kimg",
                number=full.mean,
            ),
            line(
                f"control: N = {many:,}",
                gaps.where(n=many, reference="gaussian"),
                x="kimg",
                number=own.mean,
                dashed=True,
            ),
        )
    except MissingError:  # the models' ends, which fix the window, are not there yet
        return ()


def _of_samples(records: Evidence, plan: Plan) -> tuple[Series, ...]:
    few, many = _sizes(plan)[0], _sizes(plan)[-1]
    return non_empty_series(
        line(_images(few), records.where(denoiser="network", n=few), x="kimg"),
        line(_images(many), records.where(denoiser="network", n=many), x="kimg"),
        _lasting("control: multi-delta", records.where(denoiser="multidelta", n=few), plan),
        _lasting("control: Gaussian", records.where(denoiser="gaussian", n=few), plan),
    )


def _lasting(name: str, records: Evidence, plan: Plan) -> Series:
    """A line for what does not change in time and is measured at the end alone."""
    end = line(name, records, x="kimg")
    ends = (plan.times[0], plan.times[-1]) if len(end.x) else ()
    _, y, low, high = ([*column] * len(ends) for column in end.columns)
    return Series(name, ends, y, low, high, dashed=True, markers=False)


def _samples(findings: Findings, few: int, many: int) -> ImageGrid | None:
    plan = findings.plan
    end = _samples_key(plan, few, plan.shown, plan.kimg)
    if all(findings.result(_samples_key(plan, few, plan.shown, kimg)) is None for kimg in _pictured(plan)):
        return None  # the others alone would not be what the title says
    rows = [("Gaussian", end, "gaussian")]
    for kimg in _pictured(plan):
        key = _samples_key(plan, few, plan.shown, kimg)
        rows += [(_time(kimg), key, "network"), ("nearest training image", key, "nearest")]
    rows.append(("multi-delta", end, "multidelta"))
    rows.append((f"N = {many:,}, the end", _samples_key(plan, many, plan.shown, plan.kimg), "network"))
    return sample_grid(
        findings,
        rows,
        columns=_SHOWN,
        title=f"Samples as training goes on, N = {few:,}",
        caption=f"Samples of a network of {few:,} images after more and more training, with their nearest training "
        "images, between those of the Gaussian and of the multi-delta denoiser of the same images; at the bottom those "
        f"of a network of {many:,} images. All from the same noises. Look whether samples resemble the Gaussian's "
        "first, and are copies later.",
        redraws=(8, 21),
        claims=("C11",),
    )


def _rows(plan: Plan) -> list[tuple[str, str, str]]:
    return [(_time(kimg), f"{kimg:g}", "network") for kimg in _pictured(plan)]


def _sizes(plan: Plan) -> tuple[int, ...]:
    return tuple(sorted({plan.few, plan.sizes[-1]}))


def _pictured(plan: Plan) -> tuple[float, ...]:
    """Every second snapshot, the end among them: as many as can be told apart."""
    return plan.times[::-2][::-1]


def _samples_key(plan: Plan, n: int, seed: int, kimg: float) -> str:
    return f"samples of {n}, seed {seed}, {kimg:g}"


def _time(kimg: float) -> str:
    return f"{kimg:,g} thousand"


def _images(n: int) -> str:
    return f"N = {n:,}"


STUDY = Study(
    name="time",
    title="How long?",
    question="A model that is large enough to memorise is looked at while it is trained: on few images, and beside it "
    "on all. The paper says that on few images it first comes closer to the Gaussian denoiser, and makes images like "
    "the Gaussian's; later it departs from it, and copies.\n\nRead the two curves against time together. A distance "
    "that falls and rises again is no sign of copying in itself: compare with the model of many images, and with the "
    "share of copies.",
    figures=(8, 17, 18, 21),
    claims=("C11",),
    parts=parts,
    draw=draw,
)
