"""Length of training, from the start to memorising: claim C11; figures 8, 17, 18, 21."""

import math

from ...measures.memorization import MEMORIZED
from .. import axes
from ..claims.claim import PAPER_GENERALIZATION, Finding, Threshold, claim, control, statistic
from ..claims.comparisons import first_minus_last, negative, positive
from ..claims.evidence import Evidence, MissingError, Number, least
from ..claims.window import InWindow
from ..critical_points import closest, format_closest, format_onset, memorizing_from
from ..figures import Curves, Drawing, Line, about, closed_forms, images_label, trainings_behind
from ..pictures import HIGH, MIDDLE, beside_nearest, close_up_grid, close_ups, sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.checkpoint_evaluation import checkpoint_task, sample_count

_RISE = Threshold("our choice: a rise without memorising occurs at large N as well", above=0.0)
_SHOWS = about(8, 21, "C11")
_time = "{:,g} thousand".format


@claim(
    "C11",
    "Networks approach the Gaussian denoiser with more images, with less width, and briefly before they memorise.",
)
def c11(evidence: Evidence) -> Finding:
    """Slopes of RMSE(θ, G) on log N and log width; its late rise in time, small minus large N; its minimum in time.

    In the windows of the studies `size`, `capacity` and `time`, which multi-delta denoisers fix; against the Gaussian of
    each model's own images, and as a control against that of all. Copies are those of the smallest n in time. The last is
    the log of the time of memorising over the time of the minimum, each known to a step between snapshots.
    """
    size, width, time = (InWindow(evidence, study) for study in ("size", "capacity", "time"))
    full = InWindow(evidence, "size", reference="gaussian_full")
    gaps_in_time = time.studied.where(quantity="rmse")

    def rise(records: Evidence) -> Number:
        gaps = [*time.over(records, "kimg").values()]
        return gaps[-1] - least(gaps)

    def lead(records: Evidence) -> Number:
        small = records.where(n=min(gaps_in_time.by("n")))
        gaps = {kimg: gap for kimg, gap in time.over(small, "kimg").items() if kimg > 0}
        copies = small.where(quantity="memorized_fraction").over("kimg")
        memorizing = [kimg for kimg, fraction in copies.items() if fraction.value > MEMORIZED and kimg > 0]
        if not memorizing or len(gaps) < 2:
            raise MissingError(f"no snapshot with a memorised fraction above {MEMORIZED} after others")
        lowest = min(gaps, key=lambda kimg: gaps[kimg].value)
        step = math.log(max(gaps) / min(gaps)) / (len(gaps) - 1)
        error = step / math.sqrt(12)  # of a uniform law one step wide
        return Number(math.log(memorizing[0] / lowest), error, error, gaps[lowest].count)

    extra_rise = first_minus_last("n", rise, gaps_in_time)
    by_size, by_width = size.studied, width.studied
    return Finding(
        (
            statistic("slope of RMSE(θ, G) on log N", negative("Fig. 6"), by_size, lambda r: size.slope(r, "n")),
            statistic(
                "slope of RMSE(θ, G) on log width", positive("Fig. 7"), by_width, lambda r: width.slope(r, "width")
            ),
            statistic("late rise in time, smallest minus largest N", _RISE, time.studied, extra_rise),
            statistic("log time from the minimum to memorising", positive("Fig. 8"), time.studied, lead),
        ),
        control("slope on log N against the Gaussian of all data", full.studied, lambda r: full.slope(r, "n")),
    )


def parts(plan: Plan) -> list[Part]:
    """Both models at every seed: the end with all measures, then their snapshots, then pictures of the small one."""
    sizes = sorted({plan.few, plan.sizes[-1]})
    models = {(n, seed): plan.model(n, seed) for n in sizes for seed in range(plan.sweep_seeds)}
    found = []
    for (n, seed), model in models.items():
        found.append(Part(f"measures of {n}, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(_samples_key(n, seed, plan.kimg), plan.sampled(model)))
    for (n, seed), model in models.items():
        found += [Part(_samples_key(n, seed, kimg), checkpoint_task(plan, model, kimg)) for kimg in plan.times[:-1]]
    *snapshots, end = _pictured(plan)
    pictured = models[plan.few, plan.shown]
    for kimg in snapshots:
        found += close_ups(plan, pictured, f"{kimg:g}", kimg=kimg)
    return [*found, *close_ups(plan, pictured, f"{end:g}", denoisers=("network", "gaussian", "multidelta"))]


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 8, 17, 18 and 21 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    few, many = sorted((plan.few, plan.sizes[-1]))
    on = f"on {plan.count} noisy held-out images, {trainings_behind(evidence)}"
    counted = f"{sample_count(plan)} of a snapshot and {plan.samples} of the end"
    own, full = (InWindow(evidence, "time", reference=name) for name in ("gaussian", "gaussian_full"))
    of_samples = (
        *(Line(images_label(n), denoiser="network", n=n) for n in dict.fromkeys((few, many))),
        *closed_forms(n=few, lasting=(plan.times[0], plan.times[-1])),
    )
    pictured, end = _pictured(plan), f"{plan.kimg:g}"
    gaussian, memory = ("Gaussian", end, "gaussian"), ("multi-delta", end, "multidelta")
    networks = [(_time(kimg), f"{kimg:g}", "network") for kimg in pictured]
    sampled = {_time(kimg): _samples_key(few, plan.shown, kimg) for kimg in pictured}
    return [
        Curves(
            title=f"Distance to the Gaussian denoiser as training goes on, N = {few:,}",
            caption=f"RMSE between a network and the Gaussian denoiser of its {few:,} training images, {on}, after "
            f"more and more training. Controls: a network trained on {many:,} images, at the end, and the multi-delta "
            "denoiser of the few images, which retrieves them. The claim is that curves fall toward the Gaussian first "
            "and rise toward multi-delta later.",
            **_SHOWS,
            of=axes.RMSE.where(reference="gaussian"),
            lines=(
                Line(_time, by="kimg", denoiser="network", n=few, kimg=pictured),
                Line(f"control: N = {many:,}, the end", denoiser="network", n=many),
                *closed_forms("multidelta", n=few),
            ),
        ),
        Curves(
            title="Distance to the Gaussian denoiser against the length of training",
            caption="Mean RMSE over the window of noise levels where the multi-delta and the Gaussian denoiser differ "
            f"most, {on}.{format_closest(closest(evidence, few), few)} The control is the network trained on {many:,} "
            "images: a late rise is a sign of memorising only as far as it exceeds the control's.",
            **_SHOWS,
            of=axes.MEAN_RMSE.by(axes.TIME).where(denoiser="network"),
            lines=(
                Line(images_label(few), n=few, reference="gaussian", number=own.mean),
                Line(f"N = {few:,}, to the Gaussian of all images", n=few, reference="gaussian_full", number=full.mean),
                Line(f"N = {many:,}, the control", dashed=True, n=many, reference="gaussian", number=own.mean),
            ),
        ),
        Curves(
            title="Copies among samples as training goes on",
            caption=f"Share of samples, {counted}, whose nearest training image is less than a third as far as the "
            f"second nearest.{format_onset(memorizing_from(evidence, few))} Controls, which do not change in time: "
            f"samples of the Gaussian and the multi-delta denoiser of the {few:,} images.",
            **_SHOWS,
            of=axes.COPIES.by(axes.TIME),
            lines=of_samples,
        ),
        Curves(
            title="Novelty of samples as training goes on",
            caption=f"GL score of samples, {counted}: the distance to the nearest training image, over the sample's "
            "norm. Samples that are not yet images are new as well, so the score says something only beside the "
            f"samples themselves. The paper's rule, {PAPER_GENERALIZATION}, is drawn and not judged.",
            **about(8, "C11"),
            of=axes.GL.by(axes.TIME),
            lines=of_samples,
        ),
        sample_grid(
            findings,
            [
                *beside_nearest(sampled, _samples_key(few, plan.shown, plan.kimg)),
                (f"N = {many:,}, the end", _samples_key(many, plan.shown, plan.kimg), "network"),
            ],
            title=f"Samples as training goes on, N = {few:,}",
            caption=f"Samples of a network trained on {few:,} images with their nearest training images, between those of "
            f"the Gaussian and of the multi-delta denoiser of the same images; last, of a network trained on {many:,} "
            "images. All from the same initial noise. The claim is that samples resemble the Gaussian's first, and are "
            "copies later.",
            **_SHOWS,
        )
        if any(findings.result(key) for key in sampled.values())
        else None,  # the others alone would not be what the title says
        close_up_grid(
            findings,
            [gaussian, memory, *networks],
            HIGH,
            title=f"Outputs at σ = {HIGH:g} as training goes on",
            caption=f"What a network trained on {few:,} images makes of noisy held-out images y, shown scaled down, after "
            "more and more training, below the closed-form denoisers of the same images. The rows show how much "
            "training it takes until the outputs are those of the Gaussian.",
            **about(17),
        ),
        close_up_grid(
            findings,
            [gaussian, *networks, memory],
            MIDDLE,
            noise=True,
            title=f"Outputs at σ = {MIDDLE:g} as training goes on",
            caption="The same at lower noise, of pure noise ε and of noisy held-out images y. The claim is that outputs "
            "are those of the Gaussian first, and training images, like those of multi-delta, later.",
            **about(18, "C11"),
        ),
    ]


def _pictured(plan: Plan) -> tuple[float, ...]:
    """Every second snapshot, the end among them: as many as can be told apart."""
    return plan.times[::-2][::-1]


def _samples_key(n: int, seed: int, kimg: float) -> str:
    return f"samples of {n}, seed {seed}, {kimg:g}"


STUDY = Study(
    name="time",
    title="How long?",
    question="A network that is large enough to memorise is looked at while it is trained: on few images, and beside it "
    "on all. The paper says that on few images it first comes closer to the Gaussian denoiser, and makes images like "
    "the Gaussian's; later it departs from it, and copies.\n\nRead the two curves against time together. A distance "
    "that falls and rises again is no sign of copying in itself: compare with the network trained on many images, and "
    "with the share of copies.",
    figures=(8, 17, 18, 21),
    parts=parts,
    drawings=figures,
    judges=(c11,),
)
