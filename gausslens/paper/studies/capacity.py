"""Width of networks trained on few images: claims C12, C13; figures 7, 16, 17, 18, 20."""

from typing import Any

from .. import axes
from ..claims.claim import HIGH_NOISE, LOW_NOISE, Finding, Threshold, claim, statistic
from ..claims.comparisons import ends, first_minus_last, negative, positive, smallest, trend
from ..claims.evidence import Evidence, Number, mean_at
from ..claims.window import InWindow, gaps_of
from ..figures import Curves, Drawing, Line, about, closed_forms, images_label, trainings_behind
from ..pictures import HIGH, MIDDLE, beside_nearest, close_up_grid, close_ups, sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.checkpoint_evaluation import checkpoint_task, sample_count

_channels = "{} channels".format
_REFERENCE: dict[str, Any] = {"role": "reference"}
_SHOWS = about(7, 20, "C11")

_BY_WIDTH = Threshold("our choice: 10 % reads as equal in Fig. 16", above=-0.1, below=0.1)


@claim("C12", "At high noise, narrow networks are far from the Gaussian until they are trained for longer.")
def c12(evidence: Evidence) -> Finding:
    """Slope of RMSE(θ, G) on log width at σ ≥ 20 after the shortest training, and how much longer training adds to it."""
    high = gaps_of(evidence, "capacity").where(denoiser="network", reference="gaussian").at(HIGH_NOISE)
    by_width = trend("width", Evidence.mean, high)

    def after_shortest(records: Evidence) -> Number:
        return by_width(records.where(kimg=min(high.by("kimg"))))

    def longer_adds(records: Evidence) -> Number:
        return first_minus_last("kimg", by_width, high)(records) * -1

    return Finding(
        (
            statistic("slope of RMSE(θ, G) on log width, σ ≥ 20", negative("Fig. 7"), high, after_shortest),
            statistic("what longer training adds to the slope", positive("Fig. 17"), high, longer_adds),
        )
    )


@claim("C13", "At the lowest noise level, the distance to the Gaussian depends on the number of images, not on width.")
def c13(evidence: Evidence) -> Finding:
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
    return Finding(
        (
            statistic("log RMSE(θ, G) at the lowest σ, smallest minus largest N", positive("Fig. 16"), size, log_falls),
            statistic("RMSE(θ, G) at the lowest σ, narrowest over widest, minus 1", _BY_WIDTH, capacity, of_width),
        )
    )


def parts(plan: Plan) -> list[Part]:
    """Every width at every seed: at the end and after a short training; beside them a model of most images, and pictures."""
    seeds, most = range(plan.sweep_seeds), plan.sizes[-1]
    models = {(width, seed): plan.model(plan.few, seed, width=width) for width in plan.widths for seed in seeds}
    found = []
    for (width, seed), model in models.items():
        found.append(Part(f"measures of {width}, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(f"{width}, seed {seed}, short", checkpoint_task(plan, model, plan.short)))
        found.append(Part(f"{width}, seed {seed}", plan.sampled(model)))
    for seed in seeds:
        measured = plan.measured(plan.model(most, seed), "gap", "linearity")
        found.append(Part(f"reference, seed {seed}", measured, _REFERENCE))
    found.append(Part("reference", plan.sampled(plan.model(most, plan.shown)), _REFERENCE))
    all_three = ("network", "gaussian", "multidelta")
    for width in plan.widths:
        denoisers = all_three if width == plan.width else ("network",)
        found += close_ups(plan, models[width, plan.shown], _channels(width), denoisers=denoisers)
    for n in plan.sizes:
        model = plan.model(n, plan.shown)
        found += close_ups(plan, model, images_label(n), inputs=("images",), denoisers=all_three)
    return found


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 7, 16, 17, 18 and 20 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    few, many = plan.few, plan.sizes[-1]
    on = f"on {plan.count} noisy held-out images, {trainings_behind(evidence)}"
    own, full = (InWindow(evidence, "capacity", reference=name) for name in ("gaussian", "gaussian_full"))
    by_width = Line(_channels, by="width", denoiser="network", role=None, kimg=plan.kimg)
    lengths = [
        Line(f"{kimg:,g} thousand images", denoiser="network", role=None, kimg=kimg) for kimg in (plan.short, plan.kimg)
    ]
    memory = closed_forms("multidelta", role=None)
    to_own = axes.RMSE.where(reference="gaussian")
    key = _channels(plan.width)
    sampled = {_channels(width): f"{width}, seed {plan.shown}" for width in plan.widths}
    gaussian, retrieval = ("Gaussian", key, "gaussian"), ("multi-delta", key, "multidelta")
    networks = [(_channels(width), _channels(width), "network") for width in plan.widths]
    return [
        Curves(
            title=f"Distance to the Gaussian denoiser, by width, N = {few:,}",
            caption=f"RMSE between a network and the Gaussian denoiser of its {few:,} training images, {on}. Controls: a "
            f"network trained on {many:,} images, and the multi-delta denoiser of the few images. The claim is that "
            "narrow networks are closer to the Gaussian at intermediate noise, and farther from it at high noise.",
            **about(7, 20, "C11", "C12"),
            of=to_own,
            lines=(by_width, Line(f"control: {key}, N = {many:,}", denoiser="network", **_REFERENCE), *memory),
        ),
        Curves(
            title="Distance to the Gaussian denoiser at low noise, by width",
            caption="At the lowest noise a network does nothing, and the Gaussian of fewer images than pixels cannot. "
            "The claim is that the distance left is the same for all widths. The control retrieves training images.",
            **about(16, "C13"),
            of=to_own.by(axes.LOW_SIGMA).at(0.0, 1.0),
            lines=(by_width, *memory),
        ),
        Curves(
            title="Distance in the window, by width",
            caption="Mean RMSE over the window of noise levels where the multi-delta and the Gaussian denoiser differ "
            f"most, {on}. The control is the multi-delta denoiser of the {few:,} images, which no width changes.",
            **_SHOWS,
            of=axes.MEAN_RMSE.by(axes.WIDTH).where(role=None, kimg=plan.kimg),
            lines=(
                Line("to the Gaussian of its images", denoiser="network", reference="gaussian", number=own.mean),
                Line("to the Gaussian of all images", denoiser="network", reference="gaussian_full", number=full.mean),
                *closed_forms(
                    "multidelta",
                    called=", to the Gaussian of its images",
                    reference="gaussian",
                    number=lambda records: mean_at(records.curve(), own.sigmas),
                ),
            ),
        ),
        Curves(
            title="Distance at high noise, by width and length of training",
            caption=f"Mean RMSE to the Gaussian over the noise levels σ ≥ {HIGH_NOISE:g}, {on}. The claim is that narrow "
            "networks are farther off, and that longer training takes this away. Where the control, the multi-delta "
            "denoiser, is nearer to the Gaussian than networks are, their distance is not memory.",
            **about(7, 20, "C12"),
            of=axes.MEAN_RMSE.by(axes.WIDTH).where(reference="gaussian").at(HIGH_NOISE),
            number=Evidence.mean,
            lines=(*lengths, *memory),
        ),
        Curves(
            title="Copies among samples, by width",
            caption="Share of samples whose nearest training image is less than a third as far as the second nearest: "
            f"of {sample_count(plan)} after {plan.short:,g} and of {plan.samples} after {plan.kimg:,g} thousand images. "
            f"Controls: samples of the multi-delta and the Gaussian denoiser of the {few:,} images.",
            **_SHOWS,
            of=axes.COPIES.by(axes.WIDTH).where(role=None),
            lines=(*lengths, *closed_forms()),
        ),
        Curves(
            title="Linearity, by width",
            caption="Cosine of D(αx₁ + βx₂) and αD(x₁) + βD(x₂), both around the mean image's output, "
            f"{on}; 1 for an affine map. Controls: the closed-form denoisers of the {few:,} images.",
            of=axes.LINEARITY.where(affine=True),
            lines=(by_width, *closed_forms(width=plan.width, role=None, kimg=plan.kimg)),
        ),
        sample_grid(
            findings,
            [*beside_nearest(sampled, sampled[key]), (f"{key}, {images_label(many)}", "reference", "network")],
            title=f"Samples by width, N = {few:,}",
            caption=f"Samples of networks trained on {few:,} images with their nearest training images, between those of "
            "the Gaussian and of the multi-delta denoiser of the same images; last, of a network trained on "
            f"{many:,} images. All from the same initial noise. The claim is that narrow networks make images like the "
            "Gaussian's, and wide ones copies.",
            **_SHOWS,
        ),
        close_up_grid(
            findings,
            [
                (f"{label}, {images_label(n)}", images_label(n), name)
                for n in plan.sizes
                for label, name in (("Gaussian", "gaussian"), ("multi-delta", "multidelta"), ("network", "network"))
            ],
            HIGH,
            title=f"Outputs at σ = {HIGH:g}, by number of images",
            caption="What the Gaussian, the multi-delta denoiser and a network of the same training images make of "
            "noisy held-out images y, shown scaled down. For every number of images the three should be alike.",
            **about(17, "C12"),
        ),
        close_up_grid(
            findings,
            [gaussian, retrieval, *networks],
            HIGH,
            title=f"Outputs at σ = {HIGH:g}, by width",
            caption=f"What networks trained on {few:,} images make of noisy held-out images y, below the closed-form "
            "denoisers of the same images. The rows show how wide a network must be to return what the Gaussian returns.",
            **about(17, "C12"),
        ),
        close_up_grid(
            findings,
            [gaussian, *networks, retrieval],
            MIDDLE,
            noise=True,
            title=f"Outputs at σ = {MIDDLE:g}, by width",
            caption="The same at lower noise, of pure noise ε and of noisy held-out images y. The claim is that narrow "
            "networks return what the Gaussian returns, and wide ones training images, as multi-delta does.",
            **about(18, "C11"),
        ),
    ]


STUDY = Study(
    name="capacity",
    title="How wide?",
    question="Networks of fewer and fewer channels are trained on the same few images. The paper says that a narrow "
    "network, which cannot store its images, stays closer to the Gaussian denoiser at intermediate noise, as a wide one "
    "does on many images; and that it is farther from it at high noise, until it is trained for long enough.\n\nAt the "
    "lowest noise the distance depends on the images alone: a Gaussian of fewer images than pixels knows nothing of the "
    "directions in which they do not vary.",
    figures=(7, 16, 17, 18, 20),
    parts=parts,
    drawings=figures,
    judges=(c12, c13),
    informs=("C11",),
)
