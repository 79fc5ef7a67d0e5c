"""Linearity of denoisers: claims C1, C2, C3, C4; figures 1, 10, 11, 13.

By number of training images, by weights of the superposition, on pure noise, and with a poorly chosen parametrisation.
"""

from collections.abc import Iterator
from typing import Any

from .. import axes
from ..claims.claim import CORRELATION, HIGH_NOISE, Finding, Threshold, claim, control, of_the_papers_images, statistic
from ..claims.comparisons import each, largest, minus, negative, positive, smallest, trend
from ..claims.evidence import Evidence
from ..figures import CONTROLS, Curves, Drawing, Line, about, closed_forms, images_label
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.denoised_outputs import trajectory_grid, trajectory_task
from ..tasks.linearity_weights import vary_weights

# Trained on noise levels of its own, so those of the plan do not apply.
_BASELINE: dict[str, Any] = {"preconditioning": "ve", "level_mean": None, "level_spread": None}
_BASELINES = ("none", "ve", "vp")
_EQUAL_WEIGHTS = axes.Tags(alpha=None, preconditioning=(None, "edm"))  # of networks that are well parametrised
_GENERALIZING = Threshold("the paper, Figs. 1 and 10", above=0.96, possible=CORRELATION)
_MEMORIZING = Threshold("the paper, Fig. 1", below=0.87, possible=CORRELATION)


@claim("C1", "Denoisers become more linear with more training images.")
def c1(evidence: Evidence) -> Finding:
    """Slope on log N of the lowest affine linearity over σ; for the paper's images, the lowest raw one at both ends."""
    found = evidence.where(study="linearity", **axes.LINEARITY.tags, **_EQUAL_WEIGHTS)
    affine, raw = (found.where(denoiser="network", affine=affine) for affine in (True, False))
    slope = trend("n", Evidence.least, affine)
    judged = [statistic("slope of the minimum affine linearity on log N", positive("Fig. 1"), affine, slope)]
    if of_the_papers_images(raw):
        for which, n, threshold in (("largest", largest(raw), _GENERALIZING), ("smallest", smallest(raw), _MEMORIZING)):
            at_end = raw.where(n=n)
            judged.append(statistic(f"minimum linearity at the {which} N", threshold, at_end, Evidence.least))
    beside = control("slope of the minimum raw linearity", raw, trend("n", Evidence.least, raw))
    memory = found.where(denoiser="multidelta", affine=True)
    return Finding(tuple(judged), beside + control("slope for multi-delta denoisers", memory, slope))


@claim("C2", "Linearity rises with the number of images also by a second measure and in other architectures.")
def c2(evidence: Evidence) -> Finding:
    """The slopes of the lowest cosine and of the largest relative error, affine, for each architecture.

    In the studies `linearity` and `networks`.
    """
    found = evidence.where(study=("linearity", "networks"), denoiser="network", affine=True, **_EQUAL_WEIGHTS)
    cosine, error = (found.where(**quantity.tags) for quantity in (axes.LINEARITY, axes.LINEARITY_ERROR))
    names = cosine.names("network")
    judged = []
    for name in names if len(names) > 1 else [*names, "a second architecture"]:
        for words, threshold, studied, worst in (
            ("minimum cosine", positive("Fig. 13"), cosine, Evidence.least),
            ("largest NMSE", negative("Fig. 13; a larger error is less linear"), error, Evidence.greatest),
        ):
            own = studied.where(network=name)
            judged.append(statistic(f"slope of the {words} on log N, {name}", threshold, own, trend("n", worst, own)))
    return Finding(tuple(judged))


@claim("C3", "Linearity is lowest when the two inputs are mixed with equal weights.")
def c3(evidence: Evidence) -> Finding:
    """LS(α² = ½) − LS(α), paired, mean over σ, for each other α; on held-out images, at the largest N."""
    paired = evidence.where(study="linearity", quantity="linearity_difference", denoiser="network", on="held_out")
    paired = paired.where(n=largest(paired))
    by_alpha = {f" at α = {alpha:.3g}": records for alpha, records in paired.by("alpha").items()} if len(paired) else {}
    words = "linearity at equal weights minus linearity"
    return Finding(each(words, negative("Fig. 10"), by_alpha or {"": paired}, Evidence.mean))


@claim("C4", "A network with a poorly chosen parametrisation is less linear at high noise.")
def c4(evidence: Evidence) -> Finding:
    """LS of the EDM parametrisation minus LS of the baseline, raw, mean over σ ≥ 20; at the baseline's largest N."""
    cosine = evidence.where(study="linearity", **axes.LINEARITY.tags, denoiser="network", alpha=None).at(HIGH_NOISE)
    cosine = cosine.where(n=largest(cosine.where(preconditioning=_BASELINES)))
    advantage = minus({"preconditioning": "edm"}, {"preconditioning": _BASELINES})
    raw, affine = (cosine.where(affine=affine) for affine in (False, True))
    return Finding(
        (statistic("linearity of EDM minus baseline, σ ≥ 20", positive("Fig. 11"), raw, advantage),),
        control("the same, affine", affine, advantage),
    )


def parts(plan: Plan) -> list[Part]:
    """Every size at every seed, the ends first; at the largest the weights vary, and a baseline stands beside."""
    most = plan.sizes[-1]
    models = [plan.model(most, seed) for seed in range(plan.seeds)]
    baselines = [plan.model(most, seed, **_BASELINE) for seed in range(plan.seeds)]
    found = [
        Part(f"measures of {n}, seed {seed}", plan.measured(plan.model(n, seed), "gap", "linearity"))
        for n in sorted(plan.sizes, key=lambda n: (n not in (plan.sizes[0], most), n))
        for seed in range(plan.sweep_seeds)
    ]
    for seed, (model, baseline) in enumerate(zip(models, baselines, strict=True)):
        found.append(Part(f"weights, seed {seed}", plan.on_model(vary_weights, model)))
        found.append(Part(f"baseline, seed {seed}", plan.measured(baseline, "linearity")))
    followed = trajectory_task(plan, baselines[plan.shown], denoisers=("network",))
    return [
        *found,
        Part("trajectories", trajectory_task(plan, models[plan.shown])),
        Part("baseline's trajectories", followed),
    ]


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 1, 10, 11 and 13 of the paper."""
    return [*_by_size(findings.plan), *_by_weight(findings.plan), *_of_baseline(findings)]


def _by_size(plan: Plan) -> Iterator[Curves]:
    """Figs. 1 and 13."""
    read = (
        f"Mean over {plan.count} pairs of noisy held-out images. Each line is of networks trained on one number of "
        f"images, dashed for at most {plan.few:,}; the controls are known in closed form, for the most images."
    )
    of_cosine, of_error = about(1, 13, "C1", "C14"), about(13, "C2")
    for title, shown, affine, shows, caption in (
        (
            *("Linearity over noise levels, by number of images", axes.LINEARITY, False, of_cosine),
            "Cosine between D(αx₁ + βx₂) and αD(x₁) + βD(x₂), with α = β = 1/√2; 1 for a linear map. The claim is that "
            "lines rise with N. The Gaussian, an affine map, is below 1 as well, because α + β is not 1.",
        ),
        (
            *("Affine linearity, by number of images", axes.LINEARITY, True, of_cosine),
            "The same with the mean image as the origin of inputs and its denoised form as that of outputs: 1 for "
            "every affine map, so for the Gaussian. This form judges the claim.",
        ),
        (
            *("Error of linearity, by number of images", axes.LINEARITY_ERROR, False, of_error),
            "‖D(αx₁ + βx₂) − (αD(x₁) + βD(x₂))‖ over ‖D(αx₁ + βx₂)‖; 0 for a linear map. At high noise all denoisers "
            "return nearly one image, so the error is large for all.",
        ),
        (
            *("Error of affine linearity, by number of images", axes.LINEARITY_ERROR, True, of_error),
            "The same with the mean image as the origin: 0 for every affine map, so for the Gaussian. Not drawn is the "
            "multi-delta denoiser, which may retrieve one image for a mixture and for the mean, and then has no bound.",
        ),
    ):
        bounded = ("gaussian",) if affine and shown is axes.LINEARITY_ERROR else CONTROLS
        yield Curves(
            title=title,
            caption=f"{caption} {read}",
            **shows,
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
            title=f"{title} over noise levels, by number of images",
            caption="The worst noise level of each line above, with the interval there. In the affine form, affine "
            f"maps score {best}. Controls: the closed-form denoisers of the same images, and the network on draws of the "
            "Gaussian. The claim is that the network becomes more linear with N. What the multi-delta denoiser, which "
            "only retrieves, shares with it is no sign of novelty.",
            **shows,
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
                title=f"{word} by weight of the superposition, on {words}",
                caption=f"Of the network trained on {most:,} images, over {plan.count} pairs of {inputs}, with weights α "
                "and β = √(1 − α²). The claim is that equal weights are the hardest test at every noise level. Controls, "
                "on images only: the closed-form denoisers at equal weights.",
                **about(10, "C3"),
                of=shown.where(on=on, affine=False),
                lines=(
                    Line(lambda alpha: f"α² = {alpha**2:.2f}", by="alpha", denoiser="network"),
                    *closed_forms(n=most, **_EQUAL_WEIGHTS),
                ),
            )
    difference = axes.quantity("linearity_difference", "difference of cosines", on="held_out")
    yield Curves(
        title="What equal weights cost",
        caption="Cosine at equal weights minus that at weight α, pair by pair, mean over the noise levels: below 0 "
        "where equal weights are harder. The Gaussian is affine: for it the difference comes from α + β ≠ 1 alone.",
        **about(10, "C3"),
        of=difference.by(axes.along("alpha", "weight α")),
        number=Evidence.mean,
        lines=(
            Line("network, held-out images", denoiser="network"),
            Line("network, pure noise", denoiser="network", on="noise"),
            *closed_forms(called=", held-out images"),
        ),
    )


def _of_baseline(findings: Findings) -> Iterator[Drawing]:
    """Fig. 11; without the baseline, the others alone would be no comparison."""
    plan, most = findings.plan, findings.plan.sizes[-1]
    trained = (
        f"Both networks have one architecture and saw {most:,} images for as long. The baseline is parametrised as the "
        "first variance-exploding models were: its input is not scaled, so it grows with σ, and the network predicts noise."
    )
    if len(findings.evidence.where(preconditioning="ve")):
        yield Curves(
            title="A poorly parametrised network",
            caption=f"Cosine linearity of the EDM parametrisation and of a baseline, on {plan.count} pairs of noisy "
            f"held-out images. {trained} The claim is about σ ≥ 20, where the mean image makes up most of the raw score. "
            "Dashed: affine linearity, which may order the two otherwise, and the Gaussian as a control.",
            **about(11, "C4"),
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
            title="Trajectories of a poorly parametrised network",
            caption="D(x_t; σ_t) from the same initial noise, with Euler's method on ten levels as in the paper. "
            f"{trained} All images are clipped to [−1, 1]; the paper scales each to its own range.",
            **about(11, "C4"),
        )


STUDY = Study(
    name="linearity",
    title="How linear are denoisers?",
    question="A linear denoiser maps a superposition of two noisy images to the superposition of their denoised "
    "images. How far networks are from that is measured at every noise level, for networks trained on more and more "
    "images.\n\nAn affine map is not linear: its raw score is below 1, and at high noise the score is that of the mean "
    "image. The affine form moves the origin to the mean image and is 1 for every affine map.",
    figures=(1, 10, 11, 13),
    parts=parts,
    drawings=figures,
    judges=(c1, c2, c3, c4),
    informs=("C14",),
)
