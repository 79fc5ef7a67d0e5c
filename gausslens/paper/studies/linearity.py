"""How linear are denoisers? By number of images, by weights of the superposition, on pure noise, and badly parametrised."""

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...experiments.task import Task
from ...report import Axis, CurveFigure, Figure, Series
from ..claims.evidence import Evidence, Number, greatest, least, mean
from ..figures import NOISE, line, lines, non_empty_figures, non_empty_series
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.linearity_weights import vary_weights
from ..tasks.trajectories import trajectory_grid, trajectory_task

# Trained on noise levels of its own, so those of the plan do not apply.
_BASELINE: dict[str, Any] = {"preconditioning": "ve", "level_mean": None, "level_spread": None}
_NOISES = (0, 1)  # whose trajectories are shown
_AXES = {
    "cosine": Axis("linearity, cosine", bounds=(0.0, 1.0)),
    "nmse": Axis("error of linearity, ratio of norms", bounds=(0.0, math.inf)),
}


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


def draw(findings: Findings) -> list[Figure]:
    """Figs. 1, 10, 11 and 13 of the paper."""
    return non_empty_figures(*_of_sizes(findings), *_of_weights(findings), *_of_baseline(findings))


def _of_sizes(findings: Findings) -> Iterator[Figure]:
    """Figs. 1 and 13."""
    plan = findings.plan
    known = _bounded(findings.evidence.where(alpha=None, preconditioning=(None, "edm")))
    held_out = known.where(on="held_out")
    read = (
        f"Mean over {plan.count} pairs of noisy held-out images. Each line is of networks trained on one number of images, "
        f"dashed for at most {plan.few:,}; the controls are known in closed form, of most images."
    )
    for title, metric, affine, redraws, claims, caption in (
        (
            *("Linearity over noise levels, by number of images", "cosine", False, (1, 13), ("C1", "C14")),
            "Cosine between D(αx₁ + βx₂) and αD(x₁) + βD(x₂), with α = β = 1/√2; 1 for a linear map. Look whether the lines "
            "rise with N. The Gaussian, an affine map, is below 1 as well, because α + β is not 1.",
        ),
        (
            *("Affine linearity, by number of images", "cosine", True, (1, 13), ("C1", "C14")),
            "The same with the mean image as the origin of inputs and its denoised form as that of outputs: 1 for every "
            "affine map, so for the Gaussian. The claim is judged by this one.",
        ),
        (
            *("Error of linearity, by number of images", "nmse", False, (13,), ("C2",)),
            "‖D(αx₁ + βx₂) − (αD(x₁) + βD(x₂))‖ over ‖D(αx₁ + βx₂)‖; 0 for a linear map. At high noise all denoisers return "
            "nearly one image, so that it is large for all.",
        ),
        (
            *("Error of affine linearity, by number of images", "nmse", True, (13,), ("C2",)),
            "The same with the mean image as the origin: 0 for every affine map, so for the Gaussian. Not drawn is the "
            "multi-delta denoiser, which may retrieve one image for a mixture and for the mean, and then has no bound.",
        ),
    ):
        scores = held_out.where(quantity=f"linearity_{metric}", affine=affine)
        yield _figure(findings, title, f"{caption} {read}", redraws, claims, _by_size(plan, scores), y=_AXES[metric])
    for title, metric, worst, claims in (
        ("Least linearity over all noise levels, against number of images", "cosine", least, ("C1", "C14")),
        ("Largest error of linearity over all noise levels, against number of images", "nmse", greatest, ("C2",)),
    ):
        yield _figure(
            *(findings, title),
            "The worst noise level of each line above, with the interval there. In the affine form, affine maps score "
            f"{'1' if metric == 'cosine' else '0'}. Controls: the multi-delta and the Gaussian denoiser of the same images, "
            "and the network on draws of the Gaussian. Look whether the network becomes more linear with N, and whether the "
            "multi-delta denoiser does so too: it only retrieves; what it shares with the network is no sign of novelty.",
            *((1, 13) if metric == "cosine" else (13,), claims),
            _worst(known.where(quantity=f"linearity_{metric}"), worst),
            x=Axis("training images N", log=True),
            y=_AXES[metric],
        )


def _of_weights(findings: Findings) -> Iterator[Figure]:
    """Fig. 10."""
    varied = Evidence(record for record in findings.evidence.records if record.get("alpha") is not None)
    network = varied.where(denoiser="network", affine=False)
    equal = findings.evidence.where(affine=False, alpha=None, n=findings.plan.sizes[-1], preconditioning=(None, "edm"))
    for metric, word in (("cosine", "Linearity"), ("nmse", "Error of linearity")):
        for on, told in (("held_out", "held-out images"), ("noise", "pure noise")):
            inputs = "noisy held-out images" if on == "held_out" else "inputs of noise alone, x = σ·eps"
            yield _figure(
                *(findings, f"{word} by weight of the superposition, on {told}"),
                f"Of the network on {findings.plan.sizes[-1]:,} images, over {findings.plan.count} pairs of {inputs}, with "
                "weights α and β = √(1 − α²). Look whether equal weights are the hardest test at every noise level."
                + (
                    " Controls: the multi-delta and the Gaussian denoiser at equal weights." if on == "held_out" else ""
                ),
                *((10,), ("C3",)),
                _by_weight(network, equal, f"linearity_{metric}", on),
                y=_AXES[metric],
            )
    paired = varied.where(quantity="linearity_difference")
    yield _figure(
        *(findings, "What equal weights cost"),
        "Cosine at equal weights minus that at weight α, pair by pair, mean over the noise levels: below 0 where equal "
        "weights are harder. The Gaussian is affine: for it the difference comes from α + β ≠ 1 alone.",
        *((10,), ("C3",)),
        non_empty_series(
            *(
                line(name, paired.where(denoiser=denoiser, on=on), x="alpha", dashed=dashed, number=_mean_over_levels)
                for name, denoiser, on, dashed in (
                    ("network, held-out images", "network", "held_out", False),
                    ("network, pure noise", "network", "noise", False),
                    ("control: multi-delta, held-out images", "multidelta", "held_out", True),
                    ("control: Gaussian, held-out images", "gaussian", "held_out", True),
                )
            )
        ),
        x=Axis("weight α"),
        y=Axis("difference of cosines"),
    )


def _by_weight(network: Evidence, equal: Evidence, quantity: str, on: str) -> tuple[Series, ...]:
    """A line for each weight, and controls at equal weights where there are such."""
    of_network = lines(network.where(quantity=quantity, on=on), "alpha", _weight)
    controls = (
        line(f"control: {name}", equal.where(quantity=quantity, on=on, denoiser=denoiser), dashed=True)
        for name, denoiser in (("multi-delta", "multidelta"), ("Gaussian", "gaussian"))
    )
    return of_network + non_empty_series(*controls) if of_network else ()


def _of_baseline(findings: Findings) -> Iterator[Figure | None]:
    """Fig. 11."""
    largest = findings.plan.sizes[-1]
    scores = findings.evidence.where(quantity="linearity_cosine", on="held_out", alpha=None, n=largest)
    edm, baseline = scores.where(preconditioning="edm"), scores.where(preconditioning=_BASELINE["preconditioning"])
    trained = (
        f"Both networks have one architecture and saw {largest:,} images for as long. The baseline is parametrised as the "
        "first variance-exploding models were: its input is not scaled, so it grows with σ, and the network predicts noise."
    )
    yield _figure(
        *(findings, "A badly parametrised network"),
        f"Cosine linearity of the EDM parametrisation and of a baseline, on {findings.plan.count} pairs of noisy held-out "
        f"images. {trained} Look at σ ≥ 20, where the mean image makes up most of the raw score. Dashed: affine linearity, "
        "which may order the two otherwise, and the Gaussian as a control.",
        *((11,), ("C4",)),
        non_empty_series(
            line("EDM", edm.where(denoiser="network", affine=False)),
            line("baseline", baseline.where(denoiser="network", affine=False)),
            line("EDM, affine", edm.where(denoiser="network", affine=True), dashed=True),
            line("baseline, affine", baseline.where(denoiser="network", affine=True), dashed=True),
            line("control: Gaussian", edm.where(denoiser="gaussian", affine=False), dashed=True),
        )
        if len(baseline)
        else (),
        y=_AXES["cosine"],
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
        caption=f"D(x_t; σ_t) from the same noises, with Euler's method on ten levels as in the paper. {trained} All images "
        "are clipped to [−1, 1]; the paper scales each to its own range.",
        redraws=(11,),
        claims=("C4",),
    )


def _figure(
    findings: Findings,
    title: str,
    caption: str,
    redraws: tuple[int, ...],
    claims: tuple[str, ...],
    series: tuple[Series, ...],
    *,
    x: Axis = NOISE,
    y: Axis,
) -> CurveFigure:
    return CurveFigure(
        title=title, caption=caption, redraws=redraws, claims=claims, command=findings.command, x=x, y=y, series=series
    )


def _by_size(plan: Plan, scores: Evidence) -> tuple[Series, ...]:
    """A line for each number of images, and the controls of most."""
    of_network = lines(scores.where(denoiser="network"), "n", _images, dashed=lambda n: n <= plan.few)
    controls = (
        line(f"control: {name}", scores.where(denoiser=denoiser, n=plan.sizes[-1]), dashed=True)
        for name, denoiser in (("multi-delta", "multidelta"), ("Gaussian", "gaussian"))
    )
    return of_network + non_empty_series(*controls)


def _worst(scores: Evidence, worst: Callable[[Iterable[Number]], Number]) -> tuple[Series, ...]:
    """Against the number of images, the worst over noise levels."""

    def over_levels(records: Evidence) -> Number:
        return worst(records.curve().values())

    return non_empty_series(
        *(
            line(
                name,
                scores.where(denoiser=denoiser, on=on, affine=affine),
                x="n",
                dashed=dashed,
                number=over_levels,
            )
            for name, denoiser, on, affine, dashed in (
                ("network, affine", "network", "held_out", True, False),
                ("network, raw", "network", "held_out", False, False),
                ("control: multi-delta, affine", "multidelta", "held_out", True, True),
                ("control: multi-delta, raw", "multidelta", "held_out", False, True),
                ("control: Gaussian, affine", "gaussian", "held_out", True, True),
                ("control: network on draws of the Gaussian, affine", "network", "surrogate", True, True),
            )
        )
    )


def _bounded(scores: Evidence) -> Evidence:
    """All but the relative errors that can be divided by nothing."""
    unbounded = ("linearity_nmse", "multidelta", True)
    tags = ("quantity", "denoiser", "affine")
    return Evidence(record for record in scores.records if tuple(map(record.get, tags)) != unbounded)


def _mean_over_levels(records: Evidence) -> Number:
    return mean(records.curve().values())


def _baseline(plan: Plan, seed: int) -> Task:
    return plan.model(plan.sizes[-1], seed, **_BASELINE)


def _images(n: int) -> str:
    return f"N = {n:,}"


def _weight(alpha: float) -> str:
    return f"α² = {alpha**2:.2f}"


STUDY = Study(
    name="linearity",
    title="How linear are denoisers?",
    question="A linear denoiser maps a superposition of two noisy images to the superposition of their denoised images. How "
    "far networks are from that is measured at every noise level, for networks on more and more images.\n\n"
    "An affine map is not linear: its raw score is below 1, and at high noise the score is that of the mean image. The "
    "affine form moves the origin to the mean image and is 1 for every affine map.",
    figures=(1, 10, 11, 13),
    claims=("C1", "C2", "C3", "C4", "C14"),
    parts=parts,
    draw=draw,
)
