"""How linear are denoisers? By number of images, by weights of the superposition, on pure noise, and badly parametrised."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from ...experiments.task import Task
from ...report import Axis, Figure
from .. import axes
from ..axes import Along
from ..claims.evidence import Evidence, Measure, Number, mean_at, slope_over
from ..claims.findings import Finding, Statistic, claim, control, of_the_papers_images, statistic
from ..claims.inference import Real
from ..claims.thresholds import CORRELATION, HIGH_NOISE, SIGN, Threshold
from ..figures import CONTROLS, Curves, Line, Tags, about, controls, images_label
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.linearity_weights import vary_weights
from ..tasks.trajectories import trajectory_grid, trajectory_task

# Trained on noise levels of its own, so those of the plan do not apply.
_BASELINE: dict[str, Any] = {"preconditioning": "ve", "level_mean": None, "level_spread": None}
_BASELINES = ("none", "ve", "vp")
_EDM = (None, "edm")
_NOISES = (0, 1)  # whose trajectories are shown
_AXES = {
    "cosine": Axis("linearity, cosine", bounds=(0.0, 1.0)),
    "nmse": Axis("error of linearity, ratio of norms", bounds=(0.0, math.inf)),
}

_SLOPE = Threshold(SIGN + " in Fig. 1", above=0.0)
_GENERALIZING = Threshold("the paper, Figs. 1 and 10", above=0.96, possible=CORRELATION)
_MEMORIZING = Threshold("the paper, Fig. 1", below=0.87, possible=CORRELATION)
_COSINE = Threshold(SIGN + " in Fig. 13", above=0.0)
_NMSE = Threshold(SIGN + " in Fig. 13; a larger error is less linear", below=0.0)
_EQUAL = Threshold(SIGN + " in Fig. 10", below=0.0)
_PARAMETRIZED = Threshold(SIGN + " in Fig. 11", above=0.0)


def _linearity(
    evidence: Evidence, metric: str, study: str | tuple[str, ...] = "linearity", denoiser: str = "network"
) -> Evidence:
    """On held-out images, with α² = ½, of networks that are not badly parametrised."""
    tags = Tags(on="held_out", alpha=None, preconditioning=_EDM)
    return evidence.where(study=study, quantity=f"linearity_{metric}", denoiser=denoiser, **tags)


@claim("C1", "Denoisers become more linear with more training images.")
def c1(evidence: Evidence) -> Finding:
    """Slope on log N of the least affine linearity over σ; for the paper's images, the least raw one at both ends."""
    cosine = _linearity(evidence, "cosine")
    memory = _linearity(evidence, "cosine", denoiser="multidelta")

    def trend(records: Evidence, *, affine: bool = True) -> Number:
        return slope_over(records.where(affine=affine), "n", Evidence.least, cosine.where(affine=affine))

    def least_at(records: Evidence, end: Callable[[Any], Real]) -> Number:
        return records.where(affine=False, n=end(cosine.by("n"))).least()

    judged = [statistic("slope of the least affine linearity on log N", _SLOPE, cosine, trend)]
    if of_the_papers_images(cosine):
        largest, smallest = "least linearity at the largest N", "least linearity at the smallest N"
        judged.append(statistic(largest, _GENERALIZING, cosine, lambda r: least_at(r, max)))
        judged.append(statistic(smallest, _MEMORIZING, cosine, lambda r: least_at(r, min)))
    raw = control("slope of the least raw linearity", cosine, lambda r: trend(r, affine=False))
    return Finding(tuple(judged), raw + control("slope for multi-delta denoisers", memory, trend))


@claim("C2", "Linearity rises with the number of images also by a second measure and in other architectures.")
def c2(evidence: Evidence) -> Finding:
    """The slopes of the least cosine and of the largest relative error, affine, for each architecture.

    In the studies `linearity` and `networks`.
    """
    cosine, nmse = (_linearity(evidence, metric, ("linearity", "networks")) for metric in ("cosine", "nmse"))

    def trend(network: str, words: str, threshold: Threshold, studied: Evidence, worst: Measure) -> Statistic:
        def measure(records: Evidence) -> Number:
            tags = {"affine": True, "network": network}
            return slope_over(records.where(**tags), "n", worst, studied.where(**tags))

        return statistic(f"slope of the {words} on log N, {network}", threshold, studied, measure)

    names = cosine.names("network")
    judged = [
        trend(network, *how)
        for network in (names if len(names) > 1 else [*names, "a second architecture"])
        for how in (
            ("least cosine", _COSINE, cosine, Evidence.least),
            ("largest NMSE", _NMSE, nmse, Evidence.greatest),
        )
    ]
    return Finding(tuple(judged))


@claim("C3", "Equal weights are the hardest test of linearity.")
def c3(evidence: Evidence) -> Finding:
    """LS(α² = ½) − LS(α), paired, mean over σ, for each other α; on held-out images, at the largest N."""
    paired = evidence.where(study="linearity", quantity="linearity_difference", denoiser="network", on="held_out")
    alphas = sorted({record["alpha"] for record in paired.records if record.get("alpha") is not None})

    def difference(alpha: Real | None) -> Statistic:
        name = "linearity at equal weights minus linearity" + ("" if alpha is None else f" at α = {alpha:.3g}")
        return statistic(name, _EQUAL, paired, lambda r: r.where(n=max(paired.by("n")), alpha=alpha).mean())

    return Finding(tuple(difference(alpha) for alpha in alphas or [None]))


@claim("C4", "A badly parametrised network is less linear at high noise.")
def c4(evidence: Evidence) -> Finding:
    """LS of the EDM parametrisation minus LS of the baseline, raw, mean over σ ≥ 20; at the baseline's largest N."""
    cosine = evidence.where(
        study="linearity", quantity="linearity_cosine", denoiser="network", on="held_out", alpha=None
    )

    def advantage(records: Evidence, *, affine: bool = False) -> Number:
        n = max(cosine.where(preconditioning=_BASELINES).by("n"))
        high = records.where(affine=affine).at(HIGH_NOISE)
        baseline, edm = (high.where(preconditioning=kinds, n=n) for kinds in (_BASELINES, "edm"))
        levels = [*baseline.curve()]
        return mean_at(edm.curve(), levels) - baseline.mean()

    return Finding(
        (statistic("linearity of EDM minus baseline, σ ≥ 20", _PARAMETRIZED, cosine, advantage),),
        control("the same, affine", cosine, lambda r: advantage(r, affine=True)),
    )


def parts(plan: Plan) -> list[Part]:
    """Every size at every seed, the ends first; at the largest the weights vary, and a baseline stands beside."""
    largest, seeds = plan.sizes[-1], range(plan.seeds)
    order = sorted(plan.sizes, key=lambda n: (n not in (plan.sizes[0], largest), n))
    found = [
        Part(f"measures of {n}, seed {seed}", plan.measured(plan.model(n, seed), "gap", "linearity"))
        for n in order
        for seed in range(plan.sweep_seeds)
    ]
    for seed in seeds:
        work = plan.on_model(vary_weights, plan.model(largest, seed))
        found.append(Part(f"weights, seed {seed}", work))
        found.append(Part(f"baseline, seed {seed}", plan.measured(_baseline(plan, seed), "linearity")))
    found.append(Part("trajectories", trajectory_task(plan, plan.model(largest, plan.shown))))
    found.append(
        Part("baseline's trajectories", trajectory_task(plan, _baseline(plan, plan.shown), denoisers=("network",)))
    )
    return found


def _baseline(plan: Plan, seed: int) -> Task:
    return plan.model(plan.sizes[-1], seed, **_BASELINE)


def figures(findings: Findings) -> Iterator[Curves | Figure | None]:
    """Figs. 1, 10, 11 and 13 of the paper."""
    yield from _of_sizes(findings.plan)
    yield from _of_weights(findings.plan)
    yield from _of_baseline(findings)


def _of_sizes(plan: Plan) -> Iterator[Curves]:
    """Figs. 1 and 13."""
    read = (
        f"Mean over {plan.count} pairs of noisy held-out images. Each line is of networks trained on one number of "
        f"images, dashed for at most {plan.few:,}; the controls are known in closed form, of most images."
    )
    known = Tags(alpha=None, preconditioning=_EDM)
    for title, metric, affine, shows, caption in (
        (
            *("Linearity over noise levels, by number of images", "cosine", False, about(1, 13, "C1", "C14")),
            "Cosine between D(αx₁ + βx₂) and αD(x₁) + βD(x₂), with α = β = 1/√2; 1 for a linear map. Look whether the "
            "lines rise with N. The Gaussian, an affine map, is below 1 as well, because α + β is not 1.",
        ),
        (
            *("Affine linearity, by number of images", "cosine", True, about(1, 13, "C1", "C14")),
            "The same with the mean image as the origin of inputs and its denoised form as that of outputs: 1 for "
            "every affine map, so for the Gaussian. The claim is judged by this one.",
        ),
        (
            *("Error of linearity, by number of images", "nmse", False, about(13, "C2")),
            "‖D(αx₁ + βx₂) − (αD(x₁) + βD(x₂))‖ over ‖D(αx₁ + βx₂)‖; 0 for a linear map. At high noise all denoisers "
            "return nearly one image, so that it is large for all.",
        ),
        (
            *("Error of affine linearity, by number of images", "nmse", True, about(13, "C2")),
            "The same with the mean image as the origin: 0 for every affine map, so for the Gaussian. Not drawn is the "
            "multi-delta denoiser, which may retrieve one image for a mixture and for the mean, and then has no bound.",
        ),
    ):
        yield Curves(
            title=title,
            caption=f"{caption} {read}",
            **shows,
            y=_AXES[metric],
            where={**known, "quantity": f"linearity_{metric}", "affine": affine, "on": "held_out"},
            lines=(
                Line(images_label, by="n", dashed=lambda n: n <= plan.few, denoiser="network"),
                *controls(*(("gaussian",) if (metric, affine) == ("nmse", True) else CONTROLS), n=plan.sizes[-1]),
            ),
        )
    for title, metric, number, shows in (
        (
            "Least linearity over all noise levels, against number of images",
            "cosine",
            Evidence.least,
            about(1, 13, "C1", "C14"),
        ),
        (
            *("Largest error of linearity over all noise levels, against number of images", "nmse"),
            *(Evidence.greatest, about(13, "C2")),
        ),
    ):
        yield Curves(
            title=title,
            caption="The worst noise level of each line above, with the interval there. In the affine form, affine "
            f"maps score {'1' if metric == 'cosine' else '0'}. Controls: the multi-delta and the Gaussian denoiser of "
            "the same images, and the network on draws of the Gaussian. Look whether the network becomes more linear "
            "with N, and whether the multi-delta denoiser does so too: it only retrieves; what it shares with the "
            "network is no sign of novelty.",
            **shows,
            x=axes.SIZE,
            y=_AXES[metric],
            where={**known, "quantity": f"linearity_{metric}"},
            number=number,
            lines=(
                Line("network, affine", denoiser="network", on="held_out", affine=True),
                Line("network, raw", denoiser="network", on="held_out", affine=False),
                *(controls("multidelta", called=", affine", on="held_out", affine=True) if metric == "cosine" else ()),
                *controls("multidelta", called=", raw", on="held_out", affine=False),
                *controls("gaussian", called=", affine", on="held_out", affine=True),
                Line(
                    "control: network on draws of the Gaussian, affine",
                    denoiser="network",
                    on="surrogate",
                    affine=True,
                ),
            ),
        )


def _of_weights(plan: Plan) -> Iterator[Curves]:
    """Fig. 10."""
    largest = plan.sizes[-1]
    for metric, word in (("cosine", "Linearity"), ("nmse", "Error of linearity")):
        for on, words, inputs, also in (
            (
                *("held_out", "held-out images", "noisy held-out images"),
                " Controls: the multi-delta and the Gaussian denoiser at equal weights.",
            ),
            ("noise", "pure noise", "inputs of noise alone, x = σ·eps", ""),
        ):
            yield Curves(
                title=f"{word} by weight of the superposition, on {words}",
                caption=f"Of the network on {largest:,} images, over {plan.count} pairs of {inputs}, with weights α "
                "and β = √(1 − α²). Look whether equal weights are the hardest test at every noise level." + also,
                **about(10, "C3"),
                y=_AXES[metric],
                where={"quantity": f"linearity_{metric}", "on": on, "affine": False},
                lines=(Line(lambda alpha: f"α² = {alpha**2:.2f}", by="alpha", denoiser="network"),),
                beside=controls(alpha=None, n=largest, preconditioning=_EDM),
            )
    yield Curves(
        title="What equal weights cost",
        caption="Cosine at equal weights minus that at weight α, pair by pair, mean over the noise levels: below 0 "
        "where equal weights are harder. The Gaussian is affine: for it the difference comes from α + β ≠ 1 alone.",
        **about(10, "C3"),
        x=Along("alpha", Axis("weight α")),
        y=Axis("difference of cosines"),
        where=Tags(quantity="linearity_difference"),
        number=Evidence.mean,
        lines=(
            Line("network, held-out images", denoiser="network", on="held_out"),
            Line("network, pure noise", denoiser="network", on="noise"),
            *controls(called=", held-out images", on="held_out"),
        ),
    )


def _of_baseline(findings: Findings) -> Iterator[Curves | Figure | None]:
    """Fig. 11."""
    plan, largest = findings.plan, findings.plan.sizes[-1]
    scores = Tags(quantity="linearity_cosine", on="held_out", alpha=None, n=largest)
    edm, baseline = (Tags(denoiser="network", preconditioning=kind) for kind in ("edm", "ve"))
    trained = (
        f"Both networks have one architecture and saw {largest:,} images for as long. The baseline is parametrised as the "
        "first variance-exploding models were: its input is not scaled, so it grows with σ, and the network predicts noise."
    )
    yield Curves(
        title="A badly parametrised network",
        caption=f"Cosine linearity of the EDM parametrisation and of a baseline, on {plan.count} pairs of noisy "
        f"held-out images. {trained} Look at σ ≥ 20, where the mean image makes up most of the raw score. Dashed: "
        "affine linearity, which may order the two otherwise, and the Gaussian as a control.",
        **about(11, "C4"),
        y=_AXES["cosine"],
        where=scores,
        lines=(
            Line("EDM", affine=False, **edm),
            Line("baseline", affine=False, **baseline),
            Line("EDM, affine", dashed=True, affine=True, **edm),
            Line("baseline, affine", dashed=True, affine=True, **baseline),
            *controls("gaussian", affine=False, preconditioning="edm"),
        )
        if len(findings.evidence.where(**scores, **baseline))
        else (),
    )
    if findings.result("baseline's trajectories") is None:  # the others alone would be no comparison
        return
    yield trajectory_grid(
        findings,
        [
            ("EDM", "trajectories", "network"),
            ("baseline", "baseline's trajectories", "network"),
            ("Gaussian", "trajectories", "gaussian"),
            ("linear, of EDM", "trajectories", "linear"),
        ],
        noises=_NOISES,
        title="Trajectories of a badly parametrised network",
        caption=f"D(x_t; σ_t) from the same noises, with Euler's method on ten levels as in the paper. {trained} All "
        "images are clipped to [−1, 1]; the paper scales each to its own range.",
        **about(11, "C4"),
    )


STUDY = Study(
    name="linearity",
    title="How linear are denoisers?",
    question="A linear denoiser maps a superposition of two noisy images to the superposition of their denoised "
    "images. How far networks are from that is measured at every noise level, for networks on more and more "
    "images.\n\nAn affine map is not linear: its raw score is below 1, and at high noise the score is that of the mean "
    "image. The affine form moves the origin to the mean image and is 1 for every affine map.",
    figures=(1, 10, 11, 13),
    parts=parts,
    drawings=figures,
    judges=(c1, c2, c3, c4),
    informs=("C14",),
)
