"""How wide?

Networks with fewer and fewer channels are trained on the same few images. The paper says that a narrow network, which
cannot store its images, stays closer to the Gaussian denoiser at intermediate noise, as a wide one does on many images. At
high noise it is farther from the Gaussian, until it is trained for long enough.

At the lowest noise the distance depends on the images alone: a Gaussian of fewer images than pixels does not know the
directions in which its images do not vary.
"""

from collections.abc import Iterator
from typing import Any

from .. import axes
from ..claims.claim import HIGH_NOISE, LOW_NOISE, Found, Threshold, claim, statistic
from ..claims.comparisons import InWindow, ends, first_minus_last, gaps_of, negative, positive, smallest, trend
from ..claims.evidence import Evidence, Number
from ..figures import COPIED, Curves, Drawing, Line, about, closed_forms, images_label, trainings_behind
from ..pictures import HIGH, close_up_grid, close_ups, close_ups_of_few, samples_of_few
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.one_model import checkpoint_task, sample_count

_channels = "{} channels".format
_REFERENCE: dict[str, Any] = {"role": "reference"}
_SHOWS = (7, 20, "C11")

_BY_WIDTH = Threshold("our choice: curves 10 % apart look equal in Fig. 16", above=-0.1, below=0.1)


@claim("C12", "At high noise, narrow networks are far from the Gaussian until they are trained for longer.")
def c12(evidence: Evidence) -> Found:
    """Slope of RMSE(θ, G) on log width at σ ≥ 20 after the shortest training, and how much longer training adds to it."""
    high = gaps_of(evidence, "capacity").where(denoiser="network", reference="gaussian").at(HIGH_NOISE)
    by_width = trend("width", Evidence.mean, high)

    def after_shortest(records: Evidence) -> Number:
        return by_width(records.where(kimg=min(high.by("kimg"))))

    def longer_adds(records: Evidence) -> Number:
        return first_minus_last("kimg", by_width, high)(records) * -1

    yield statistic("slope of RMSE(θ, G) on log width, σ ≥ 20", negative("Fig. 7"), high, after_shortest)
    yield statistic("what longer training adds to the slope", positive("Fig. 17"), high, longer_adds)


@claim("C13", "At the lowest noise level, the distance to the Gaussian depends on the number of images, not on width.")
def c13(evidence: Evidence) -> Found:
    """At the smallest σ ≤ 0.1: log RMSE(θ, G) at the smallest minus at the largest N; narrowest over widest minus 1.

    The first in the study `size`, the second in the study `capacity`.
    """
    low = (
        gaps_of(evidence, study).where(denoiser="network", reference="gaussian").at(0.0, LOW_NOISE)
        for study in ("size", "capacity")
    )
    size, capacity = (gaps.where(sigma=smallest(gaps, "sigma")) for gaps in low)

    def of_width(records: Evidence) -> Number:
        narrow, wide = (end.one() for end in ends(records, "width", capacity))
        return narrow / wide - Number(1.0)

    log_falls = first_minus_last("n", lambda records: records.one().log(), size)
    yield statistic("log RMSE(θ, G) at the lowest σ, smallest minus largest N", positive("Fig. 16"), size, log_falls)
    yield statistic("RMSE(θ, G) at the lowest σ, narrowest over widest, minus 1", _BY_WIDTH, capacity, of_width)


def parts(plan: Plan) -> Iterator[Part]:
    """Every width at every seed, at the end and after a short training; a reference on most images; and pictures."""
    seeds, most = range(plan.sweep_seeds), plan.sizes[-1]
    models = {(width, seed): plan.model(plan.few, seed, width=width) for width in plan.widths for seed in seeds}
    for (width, seed), model in models.items():
        yield Part(f"measures of {width}, seed {seed}", plan.measured(model, "gap", "linearity"))
        yield Part(f"{width}, seed {seed}, short", checkpoint_task(plan, model, plan.short))
        yield Part(f"{width}, seed {seed}", plan.sampled(model))
    for seed in seeds:
        yield Part(f"reference, seed {seed}", plan.measured(plan.model(most, seed), "gap", "linearity"), _REFERENCE)
    yield Part("reference", plan.sampled(plan.model(most, plan.shown)), _REFERENCE)
    all_three = ("network", "gaussian", "multidelta")
    for width in plan.widths:
        denoisers = all_three if width == plan.width else ("network",)
        yield from close_ups(plan, models[width, plan.shown], _channels(width), denoisers=denoisers)
    for n in plan.sizes:
        model = plan.model(n, plan.shown)
        yield from close_ups(plan, model, images_label(n), inputs=("images",), denoisers=all_three)


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 7, 16, 17, 18 and 20 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    few, many = plan.few, plan.sizes[-1]
    on = f"on {plan.count} noisy held-out images, {trainings_behind(evidence)}"
    by_width = Line(_channels, by="width", denoiser="network", role=None, kimg=plan.kimg)
    both, after = (plan.short, plan.kimg), "{:,g} thousand images".format
    by_length = Line(after, by="kimg", denoiser="network", role=None, kimg=both)
    memory = closed_forms("multidelta", role=None)
    to_own = axes.RMSE.where(reference="gaussian")
    key = _channels(plan.width)

    sampled = {_channels(width): f"{width}, seed {plan.shown}" for width in plan.widths}
    yield Curves(
        **about(f"Distance to the Gaussian denoiser, by width, N = {few:,}", 7, 20, "C11", "C12"),
        caption=f"RMSE between a network and the Gaussian denoiser of its {few:,} training images, {on}. The claim is "
        "that narrow networks are closer to the Gaussian at intermediate noise, and farther from it at high noise. "
        f"Controls: a network trained on {many:,} images, and the multi-delta denoiser of the few images.",
        of=to_own,
        lines=(by_width, Line(f"control: {key}, N = {many:,}", denoiser="network", **_REFERENCE), *memory),
    )
    yield Curves(
        **about("Distance to the Gaussian denoiser at low noise, by width", 16, "C13"),
        caption="At the lowest noise a network returns its input; the Gaussian of fewer images than pixels cannot. The "
        "claim is that this distance is the same for all widths. Control: multi-delta, which retrieves training "
        "images.",
        of=to_own.by(axes.LOW_SIGMA).at(0.0, 1.0),
        lines=(by_width, *memory),
    )
    yield Curves(
        **about("Distance in the window, by width", *_SHOWS),
        caption="Mean RMSE over the window of noise levels where the multi-delta and the Gaussian denoiser differ "
        f"most, {on}. Control: the multi-delta denoiser of the {few:,} images, which does not depend on width.",
        of=axes.MEAN_RMSE.by(axes.WIDTH).where(role=None, kimg=plan.kimg),
        number=InWindow(evidence, "capacity").mean,
        lines=(
            Line("to the Gaussian of its images", denoiser="network", reference="gaussian"),
            Line("to the Gaussian of all images", denoiser="network", reference="gaussian_full"),
            *closed_forms("multidelta", called=", to the Gaussian of its images", reference="gaussian"),
        ),
    )
    yield Curves(
        **about("Distance at high noise, by width and length of training", 7, 20, "C12"),
        caption=f"Mean RMSE to the Gaussian over the noise levels σ ≥ {HIGH_NOISE:g}, {on}. The claim is that narrow "
        "networks are farther away, and that longer training removes this difference. Control: the multi-delta "
        "denoiser; where it is closer to the Gaussian than the networks are, their distance is not due to memorising.",
        of=axes.MEAN_RMSE.by(axes.WIDTH).where(reference="gaussian").at(HIGH_NOISE),
        number=Evidence.mean,
        lines=(by_length, *memory),
    )
    yield Curves(
        **about("Copies among samples, by width", *_SHOWS),
        caption=f"Share of samples {COPIED}: of {sample_count(plan)} after {plan.short:,g} and of {plan.samples} after "
        f"{plan.kimg:,g} thousand images of training. Controls: the closed-form denoisers of the {few:,} images.",
        of=axes.COPIES.by(axes.WIDTH).where(role=None),
        lines=(by_length, *closed_forms()),
    )
    yield Curves(
        **about("Linearity, by width"),
        caption="Cosine of D(αx₁ + βx₂) and αD(x₁) + βD(x₂), with the mean image and its output as the origins (1 for "
        f"an affine map), {on}. Controls: the closed-form denoisers of the {few:,} images.",
        of=axes.LINEARITY.where(affine=True),
        lines=(by_width, *closed_forms(width=plan.width, role=None, kimg=plan.kimg)),
    )
    yield samples_of_few(
        findings,
        sampled,
        sampled[key],
        (f"{key}, {images_label(many)}", "reference", "network"),
        n=(few, many),
        claim="narrow networks make images like the Gaussian's, and wide ones copies",
        **about(f"Samples by width, N = {few:,}", *_SHOWS),
    )
    yield close_up_grid(
        findings,
        [
            (f"{label}, {images_label(n)}", images_label(n), name)
            for n in plan.sizes
            for label, name in (("Gaussian", "gaussian"), ("multi-delta", "multidelta"), ("network", "network"))
        ],
        HIGH,
        **about(f"Outputs at σ = {HIGH:g}, by number of images", 17, "C12"),
        caption="Outputs of the Gaussian, the multi-delta denoiser and a network of the same training images for noisy "
        "held-out images y, which are shown scaled down. For every number of images the three should look the same.",
    )
    yield from close_ups_of_few(
        findings,
        [(_channels(width), _channels(width), "network") for width in plan.widths],
        key,
        ", by width",
        high="The rows show how wide a network must be to return what the Gaussian returns.",
        claim="narrow networks return what the Gaussian returns, and wide ones return training images, as multi-delta does",
        claims=("C12",),
    )


STUDY = Study("capacity", __doc__, parts, drawings, figures=(7, 16, 17, 18, 20), judges=(c12, c13), informs=("C11",))
