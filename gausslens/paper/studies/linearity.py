"""How linear are denoisers?

A linear denoiser maps a superposition of two noisy images to the superposition of their denoised images. This study
measures how far networks are from linear at every noise level, for networks trained on more and more images.

Linearity is scored in two forms. The raw form is 1 for every linear map. An affine map scores below 1 in it, and at high
noise the score reflects the mean image, which all outputs are close to. The affine form moves the origin to the mean image
and is 1 for every affine map.
"""

from collections.abc import Iterator
from typing import Any

from ...report import Axis
from .. import axes
from ..claims.claim import HIGH_NOISE, Found, Threshold, claim, control, of_the_papers_images, statistic
from ..claims.comparisons import largest, minus, negative, positive, smallest, trend
from ..claims.evidence import Evidence
from ..figures import CONTROLS, Curves, Drawing, Line, about, closed_forms, images_label
from ..pictures import trajectory_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.denoised_outputs import trajectory_task
from ..tasks.one_model import vary_weights

# The baseline has its own noise levels of training, not those of the plan.
_BASELINE: dict[str, Any] = {"preconditioning": "ve", "level_mean": None, "level_spread": None}
_BASELINES = ("none", "ve", "vp")
_EQUAL_WEIGHTS = axes.Tags(alpha=None, preconditioning=(None, "edm"))  # of well-parametrised networks
_GENERALIZING = Threshold("the paper, Figs. 1 and 10", above=0.96, possible=axes.CORRELATION)
_MEMORIZING = Threshold("the paper, Fig. 1", below=0.87, possible=axes.CORRELATION)


@claim("C1", "Denoisers become more linear with more training images.")
def c1(evidence: Evidence) -> Found:
    """Slope on log N of the lowest affine linearity over σ; for the paper's images, the lowest raw one at both ends."""
    found = evidence.where(study="linearity", **axes.LINEARITY.tags, **_EQUAL_WEIGHTS)
    affine, raw = (found.where(denoiser="network", affine=affine) for affine in (True, False))
    slope = trend("n", Evidence.least, affine)
    yield statistic("slope of the minimum affine linearity on log N", positive("Fig. 1"), affine, slope)
    if of_the_papers_images(raw):
        for which, n, threshold in (("largest", largest(raw), _GENERALIZING), ("smallest", smallest(raw), _MEMORIZING)):
            yield statistic(f"minimum linearity at the {which} N", threshold, raw.where(n=n), Evidence.least)
    yield from control("slope of the minimum raw linearity", raw, trend("n", Evidence.least, raw))
    yield from control("slope for multi-delta denoisers", found.where(denoiser="multidelta", affine=True), slope)


@claim("C2", "Linearity also rises with the number of images by a second measure and for other architectures.")
def c2(evidence: Evidence) -> Found:
    """The slopes of the lowest cosine and of the largest relative error, affine, for each architecture.

    In the studies `linearity` and `networks`.
    """
    found = evidence.where(study=("linearity", "networks"), denoiser="network", affine=True, **_EQUAL_WEIGHTS)
    cosine, error = (found.where(**quantity.tags) for quantity in (axes.LINEARITY, axes.LINEARITY_ERROR))
    names = cosine.names("network")
    for name in names if len(names) > 1 else [*names, "a second architecture"]:
        for words, threshold, studied, worst in (
            ("minimum cosine", positive("Fig. 13"), cosine, Evidence.least),
            ("largest NMSE", negative("Fig. 13; a larger error is less linear"), error, Evidence.greatest),
        ):
            own = studied.where(network=name)
            yield statistic(f"slope of the {words} on log N, {name}", threshold, own, trend("n", worst, own))


@claim("C3", "Linearity is lowest when the two inputs are mixed with equal weights.")
def c3(evidence: Evidence) -> Found:
    """LS(α² = ½) − LS(α), paired, mean over σ, for each other α; on held-out images, at the largest N."""
    paired = evidence.where(study="linearity", quantity="linearity_difference", denoiser="network", on="held_out")
    paired = paired.where(n=largest(paired))
    for alpha, records in (paired.by("alpha") if len(paired) else {None: paired}).items():
        at_alpha = "" if alpha is None else f" at α = {alpha:.3g}"
        words = f"linearity at equal weights minus linearity{at_alpha}"
        yield statistic(words, negative("Fig. 10"), records, Evidence.mean)


@claim("C4", "A network with a poorly chosen parametrisation is less linear at high noise.")
def c4(evidence: Evidence) -> Found:
    """LS of the EDM parametrisation minus LS of the baseline, raw, mean over σ ≥ 20; at the baseline's largest N."""
    cosine = evidence.where(study="linearity", **axes.LINEARITY.tags, denoiser="network", alpha=None).at(HIGH_NOISE)
    cosine = cosine.where(n=largest(cosine.where(preconditioning=_BASELINES)))
    advantage = minus({"preconditioning": "edm"}, {"preconditioning": _BASELINES})
    raw, affine = (cosine.where(affine=affine) for affine in (False, True))
    yield statistic("linearity of EDM minus baseline, σ ≥ 20", positive("Fig. 11"), raw, advantage)
    yield from control("the same, affine", affine, advantage)


def parts(plan: Plan) -> Iterator[Part]:
    """Every size at every seed, the smallest and the largest first; at the largest, other weights and a baseline."""
    most = plan.sizes[-1]
    for n in sorted(plan.sizes, key=lambda n: (n not in (plan.sizes[0], most), n)):
        for seed in range(plan.sweep_seeds):
            yield Part(f"measures of {n}, seed {seed}", plan.measured(plan.model(n, seed), "gap", "linearity"))
    for seed in range(plan.seeds):
        yield Part(f"weights, seed {seed}", plan.on_model(vary_weights, plan.model(most, seed)))
        yield Part(f"baseline, seed {seed}", plan.measured(plan.model(most, seed, **_BASELINE), "linearity"))
    baseline = plan.model(most, plan.shown, **_BASELINE)
    yield Part("trajectories", trajectory_task(plan, plan.model(most, plan.shown)))
    yield Part("baseline's trajectories", trajectory_task(plan, baseline, denoisers=("network",)))


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 1, 10, 11 and 13 of the paper."""
    yield from _by_size(findings.plan)
    yield from _by_weight(findings.plan)
    yield from _of_baseline(findings)


def _by_size(plan: Plan) -> Iterator[Curves]:
    """Figs. 1 and 13."""
    pairs = f"over {plan.count} pairs of noisy held-out images; networks on at most {plan.few:,} images are dashed"
    of_cosine, of_error = (1, 13, "C1", "C14"), (13, "C2")
    for title, shown, affine, shows, what, claimed in (
        (
            *("Linearity over noise levels, by number of images", axes.LINEARITY, False, of_cosine),
            "Cosine between D(αx₁ + βx₂) and αD(x₁) + βD(x₂) with α = β = 1/√2 (1 for a linear map)",
            "The claim is that lines rise with N. Controls: the closed-form denoisers of the most images; the Gaussian "
            "is affine and scores below 1, because α + β is not 1.",
        ),
        (
            *("Affine linearity, by number of images", axes.LINEARITY, True, of_cosine),
            "The same cosine, with the mean image and its output as the origins (1 for affine maps)",
            "The claim, which is judged by this form, is that lines rise with N. Controls: the closed-form denoisers "
            "of the most images, of which the Gaussian scores 1.",
        ),
        (
            *("Error of linearity, by number of images", axes.LINEARITY_ERROR, False, of_error),
            "‖D(αx₁ + βx₂) − (αD(x₁) + βD(x₂))‖ over ‖D(αx₁ + βx₂)‖ (0 for a linear map)",
            "At high noise the errors of all denoisers are large, because all outputs are nearly the mean image and α "
            "+ β is not 1. Controls: closed-form denoisers of the most images.",
        ),
        (
            *("Error of affine linearity, by number of images", axes.LINEARITY_ERROR, True, of_error),
            "The same error with the mean image as the origin (0 for affine maps)",
            "Control: the Gaussian of the most images. Multi-delta is not drawn: it may return the same training image "
            "for a mixture as for the mean image, and since the error is divided by the difference of these two "
            "outputs, it then has no bound.",
        ),
    ):
        bounded = ("gaussian",) if affine and shown is axes.LINEARITY_ERROR else CONTROLS
        yield Curves(
            **about(title, *shows),
            caption=f"{what}, mean {pairs}. {claimed}",
            of=shown.where(**_EQUAL_WEIGHTS, affine=affine),
            lines=(
                Line(images_label, by="n", dashed=lambda n: n <= plan.few, denoiser="network"),
                *closed_forms(*bounded, n=plan.sizes[-1]),
            ),
        )
    raw_memory = closed_forms("multidelta", called=", raw", affine=False)
    memory = [*closed_forms("multidelta", called=", affine", affine=True), *raw_memory]
    drawn = "control: network on draws of the Gaussian, affine"
    for title, shown, worst, retrieval, best, shows in (
        ("Minimum linearity", axes.LINEARITY, Evidence.least, memory, 1, of_cosine),
        ("Largest error of linearity", axes.LINEARITY_ERROR, Evidence.greatest, raw_memory, 0, of_error),
    ):
        yield Curves(
            **about(f"{title} over noise levels, by number of images", *shows),
            caption="The score at each denoiser's worst noise level, with its interval at that level; affine maps "
            f"score {best} in the affine form. The claim is that networks become more linear with N. Controls: the "
            "closed-form denoisers of the same images, and the network on draws of the Gaussian; multi-delta only "
            "retrieves, so a trend that it shares is no sign of novelty.",
            of=shown.by(axes.SIZE).where(**_EQUAL_WEIGHTS),
            number=worst,
            lines=(
                Line("network, affine", denoiser="network", affine=True),
                Line("network, raw", denoiser="network", affine=False),
                *retrieval,
                *closed_forms("gaussian", called=", affine", affine=True),
                Line(drawn, denoiser="network", on="surrogate", affine=True),
            ),
        )


def _by_weight(plan: Plan) -> Iterator[Curves]:
    """Fig. 10."""
    most = plan.sizes[-1]
    for shown, word in ((axes.LINEARITY, "Linearity"), (axes.LINEARITY_ERROR, "Error of linearity")):
        for on, words, inputs in (
            ("held_out", "held-out images", "noisy held-out images"),
            ("noise", "pure noise", "inputs of noise alone, x = σ·eps"),
        ):
            yield Curves(
                **about(f"{word} by weight of the superposition, on {words}", 10, "C3"),
                caption=f"{word} of the network trained on {most:,} images with weights α and β = √(1 − α²), over "
                f"{plan.count} pairs of {inputs}. The claim is that equal weights are the hardest test at every noise "
                "level. Controls, only in the figures on held-out images: the closed-form denoisers at equal weights.",
                of=shown.where(on=on, affine=False),
                lines=(
                    Line(lambda alpha: f"α² = {alpha**2:.2f}", by="alpha", denoiser="network"),
                    *closed_forms(n=most, **_EQUAL_WEIGHTS),
                ),
            )
    difference = axes.quantity("linearity_difference", "difference of cosines", on="held_out")
    yield Curves(
        **about("What equal weights cost", 10, "C3"),
        caption="Cosine at equal weights minus cosine at weight α of the same pair, mean over noise levels. Below 0, "
        "equal weights are harder. Controls: the closed-form denoisers; for the Gaussian, which is affine, the "
        "difference comes from α + β ≠ 1 alone.",
        of=difference.by(axes.Along(Axis("weight α"), "alpha")),
        number=Evidence.mean,
        lines=(
            Line("network, held-out images", denoiser="network"),
            Line("network, pure noise", denoiser="network", on="noise"),
            *closed_forms(called=", held-out images"),
        ),
    )


def _of_baseline(findings: Findings) -> Iterator[Drawing]:
    """Fig. 11; nothing without the baseline, since there would be no comparison."""
    plan, most = findings.plan, findings.plan.sizes[-1]
    baseline = (
        "The baseline has the same architecture and training, but the parametrisation of the first variance-exploding "
        "models: its input is not scaled, so it grows with σ, and the network predicts noise."
    )
    if len(findings.evidence.where(preconditioning="ve")):
        yield Curves(
            **about("A poorly parametrised network", 11, "C4"),
            caption=f"Cosine linearity of the EDM parametrisation and of a baseline, both trained on {most:,} images, "
            f"over {plan.count} pairs of noisy held-out images; dashed are the affine form, which may rank the two "
            f"differently, and the Gaussian as a control. {baseline} The claim is about σ ≥ 20, where the mean image "
            "makes up most of the raw score.",
            of=axes.LINEARITY.where(alpha=None, n=most),
            lines=(
                *(
                    Line(name + words, dashed=affine, denoiser="network", preconditioning=kind, affine=affine)
                    for affine, words in ((False, ""), (True, ", affine"))
                    for kind, name in (("edm", "EDM"), ("ve", "baseline"))
                ),
                *closed_forms("gaussian", affine=False, preconditioning="edm"),
            ),
        )
    if findings.result("baseline's trajectories") is not None:
        yield trajectory_grid(
            findings,
            [
                ("EDM", "trajectories", "network"),
                ("baseline", "baseline's trajectories", "network"),
                ("Gaussian", "trajectories", "gaussian"),
                ("linear, of EDM", "trajectories", "linear"),
            ],
            noises=(0, 1),
            **about("Trajectories of a poorly parametrised network", 11, "C4"),
            caption=f"D(x_t; σ_t) of networks trained on {most:,} images, from the same noise with Euler's method on "
            f"ten levels, as in the paper. {baseline} Images are clipped to [−1, 1]; the paper rescales each.",
        )


STUDY = Study("linearity", __doc__, parts, drawings, figures=(1, 10, 11, 13), judges=(c1, c2, c3, c4), informs=("C14",))
