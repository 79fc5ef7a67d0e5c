"""How long?

A network that is large enough to memorise is measured while it trains, once on few images and once on all. The paper says
that on few images it first comes closer to the Gaussian denoiser, and makes images like the Gaussian's. Later it departs
from the Gaussian, and copies.

Read two figures together: the distance to the Gaussian and the share of copies, both against the length of training. A
distance that falls and rises again is no sign of copying by itself: compare it with that of the network trained on many
images, and with the share of copies.
"""

import math
from collections.abc import Iterator

from ...measures.memorization import MEMORIZED
from .. import axes
from ..claims.claim import PAPER_GENERALIZATION, Found, Threshold, claim, control, statistic
from ..claims.comparisons import InWindow, first_minus_last, negative, positive
from ..claims.evidence import Evidence, MissingError, Number
from ..critical_points import closest, format_closest, format_onset, memorizing_from
from ..figures import COPIED, Curves, Drawing, Line, about, closed_forms, images_label, trainings_behind
from ..pictures import close_ups, close_ups_of_few, samples_of_few
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.one_model import checkpoint_task, sample_count

_RISE = Threshold("our choice: without memorising, the distance also rises at large N", above=0.0)
_SHOWS = (8, 21, "C11")
_time = "{:,g} thousand".format


@claim(
    "C11", "Networks are closer to the Gaussian with more images, with less width, and for a time before they memorise."
)
def c11(evidence: Evidence) -> Found:
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
        return gaps[-1] - min(gaps)

    def lead(records: Evidence) -> Number:
        small = records.where(n=min(gaps_in_time.by("n")))
        gaps = {kimg: gap for kimg, gap in time.over(small, "kimg").items() if kimg > 0}
        copies = small.where(quantity="memorized_fraction").over("kimg")
        memorizing = [kimg for kimg, fraction in copies.items() if fraction.value > MEMORIZED and kimg > 0]
        if not memorizing or len(gaps) < 2:
            raise MissingError(f"no snapshot with a memorised fraction above {MEMORIZED} after others")
        lowest = min(gaps, key=lambda kimg: gaps[kimg].value)
        step = math.log(max(gaps) / min(gaps)) / (len(gaps) - 1)
        error = step / math.sqrt(12)  # of a uniform distribution one step wide
        return Number(math.log(memorizing[0] / lowest), error, error, gaps[lowest].count)

    on_width, extra_rise = "slope of RMSE(θ, G) on log width", first_minus_last("n", rise, gaps_in_time)
    yield statistic("slope of RMSE(θ, G) on log N", negative("Fig. 6"), size.studied, lambda r: size.slope(r, "n"))
    yield statistic(on_width, positive("Fig. 7"), width.studied, lambda r: width.slope(r, "width"))
    yield statistic("late rise in time, smallest minus largest N", _RISE, time.studied, extra_rise)
    yield statistic("log time from the minimum to memorising", positive("Fig. 8"), time.studied, lead)
    yield from control("slope on log N against the Gaussian of all data", full.studied, lambda r: full.slope(r, "n"))


def parts(plan: Plan) -> Iterator[Part]:
    """Both models at every seed: all measures of the end, then the snapshots; then pictures of the model on few images."""
    sizes = sorted({plan.few, plan.sizes[-1]})
    models = {(n, seed): plan.model(n, seed) for n in sizes for seed in range(plan.sweep_seeds)}
    for (n, seed), model in models.items():
        yield Part(f"measures of {n}, seed {seed}", plan.measured(model, "gap", "linearity"))
        yield Part(_samples_key(n, seed, plan.kimg), plan.sampled(model))
    for (n, seed), model in models.items():
        for kimg in plan.times[:-1]:
            yield Part(_samples_key(n, seed, kimg), checkpoint_task(plan, model, kimg))
    *snapshots, end = _pictured(plan)
    pictured = models[plan.few, plan.shown]
    for kimg in snapshots:
        yield from close_ups(plan, pictured, f"{kimg:g}", kimg=kimg)
    yield from close_ups(plan, pictured, f"{end:g}", denoisers=("network", "gaussian", "multidelta"))


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 8, 17, 18 and 21 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    few, many = sorted((plan.few, plan.sizes[-1]))
    on = f"on {plan.count} noisy held-out images, {trainings_behind(evidence)}"
    counted = f"{sample_count(plan)} from each snapshot and {plan.samples} from the end of training"
    of_samples = (
        Line(images_label, by="n", denoiser="network", n=(few, many)),
        *closed_forms(n=few, lasting=(plan.times[0], plan.times[-1])),
    )
    pictured = _pictured(plan)
    yield Curves(
        **about(f"Distance to the Gaussian denoiser as training goes on, N = {few:,}", *_SHOWS),
        caption=f"RMSE between a network and the Gaussian denoiser of its {few:,} training images, {on}, as training "
        "goes on. The claim is that curves first fall toward the Gaussian, and later rise toward multi-delta. "
        f"Controls: a network trained on {many:,} images to the end, and the multi-delta denoiser of the few images.",
        of=axes.RMSE.where(reference="gaussian"),
        lines=(
            Line(_time, by="kimg", denoiser="network", n=few, kimg=pictured),
            Line(f"control: N = {many:,}, the end", denoiser="network", n=many),
            *closed_forms("multidelta", n=few),
        ),
    )
    yield Curves(
        **about("Distance to the Gaussian denoiser against the length of training", *_SHOWS),
        caption="Mean RMSE over the window of noise levels where the multi-delta and the Gaussian denoiser differ "
        f"most, {on}.{format_closest(closest(evidence, few), few)} The control is the network trained on {many:,} "
        "images: only the part of a late rise that exceeds the control's is a sign of memorising.",
        of=axes.MEAN_RMSE.by(axes.TIME).where(denoiser="network"),
        number=InWindow(evidence, "time").mean,
        lines=(
            Line(images_label(few), n=few, reference="gaussian"),
            Line(f"N = {few:,}, to the Gaussian of all images", n=few, reference="gaussian_full"),
            Line(f"N = {many:,}, the control", dashed=True, n=many, reference="gaussian"),
        ),
    )
    yield Curves(
        **about("Copies among samples as training goes on", *_SHOWS),
        caption=f"Share of samples ({counted}) {COPIED}.{format_onset(memorizing_from(evidence, few))} Controls, which "
        f"do not change in time: samples of the closed-form denoisers of the {few:,} images.",
        of=axes.COPIES.by(axes.TIME),
        lines=of_samples,
    )
    yield Curves(
        **about("Novelty of samples as training goes on", 8, "C11"),
        caption=f"GL score of samples ({counted}): distance to the nearest training image, divided by the sample's "
        "norm. Samples of an undertrained network also score high, so look at the samples as well. The line at "
        f"{PAPER_GENERALIZATION} is the paper's rule, which no verdict uses.",
        of=axes.GL.by(axes.TIME),
        lines=of_samples,
    )
    yield samples_of_few(
        findings,
        {_time(kimg): _samples_key(few, plan.shown, kimg) for kimg in pictured},
        _samples_key(few, plan.shown, plan.kimg),
        (f"N = {many:,}, the end", _samples_key(many, plan.shown, plan.kimg), "network"),
        n=(few, many),
        claim="samples resemble the Gaussian's first, and are copies later",
        **about(f"Samples as training goes on, N = {few:,}", *_SHOWS),
    )
    yield from close_ups_of_few(
        findings,
        [(_time(kimg), f"{kimg:g}", "network") for kimg in pictured],
        f"{plan.kimg:g}",
        " as training goes on",
        high="The rows show how long a network must train to return what the Gaussian returns.",
        claim="outputs first resemble the Gaussian's, and later are training images, as those of multi-delta are",
        claims=(),
    )


def _pictured(plan: Plan) -> tuple[float, ...]:
    """Every second snapshot, counted from the end: as many curves as a reader can distinguish."""
    return plan.times[::-2][::-1]


def _samples_key(n: int, seed: int, kimg: float) -> str:
    return f"samples of {n}, seed {seed}, {kimg:g}"


STUDY = Study("time", __doc__, parts, drawings, figures=(8, 17, 18, 21), judges=(c11,))
