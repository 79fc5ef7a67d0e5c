"""What is the network like? Its distance to Gaussian, linear and multi-delta denoisers, and what all make of one noise."""

import math

import numpy as np

from ...report import Axis, CurveFigure, Figure, ImageGrid, NoiseSlider, Series, Threshold
from ..architectures import PUBLISHED
from ..claims.evidence import Evidence, MissingError
from ..claims.findings import pixel_scale
from ..claims.thresholds import THRESHOLDS
from ..figures import CORRELATION, NOISE, RMSE, line, lines, non_empty_figures, non_empty_series
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task
from ..tasks.denoised_outputs import denoised_outputs_task
from ..tasks.explained_variance import QUANTITY as EXPLAINED
from ..tasks.explained_variance import explained_variance_task, gaussian_variance_task
from ..tasks.finetune_probe import QUANTITY as REFINED
from ..tasks.finetune_probe import finetune_task
from ..tasks.reference_denoisers import COUNTERPARTS, LABELS
from ..tasks.trajectories import trajectory_grid, trajectory_task

_NOISES = (0, 1, 2)  # whose trajectories are shown
_SLIDER_PIXELS = 1_100_000  # of all pictures behind the slider, which keeps it small on the page
_HIGH = 20.0  # noise levels from which on training is scarce
_PAIRS = (
    ("network to Gaussian", "network", "gaussian", False),
    ("network to linear", "network", "linear", False),
    ("network to multi-delta", "network", "multidelta", False),
    ("network to Gaussian of all images", "network", "gaussian_full", False),
    ("linear to Gaussian", "linear", "gaussian", True),
    ("control: multi-delta to Gaussian", "multidelta", "gaussian", True),
)
_INPUTS = (
    ("held-out images", "held_out", False),
    ("training images", "train", True),
    ("control: draws of the Gaussian", "surrogate", True),
)


def parts(plan: Plan) -> list[Part]:
    """The model on most images at every seed: measured, and followed from noise beside its counterparts."""
    found = [Part("images", dataset_stats_task(plan))]
    for seed in range(plan.seeds):
        model = plan.model(plan.sizes[-1], seed)
        found.append(Part(f"measures, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(f"linear, seed {seed}", plan.measured(model, "linear_gap")))
        found.append(Part(f"trajectories, seed {seed}", trajectory_task(plan, model)))
        if plan.training["network"] in PUBLISHED:
            found.append(Part(f"explained variance, seed {seed}", explained_variance_task(plan, model)))
    pictures = max(2, min(6, _SLIDER_PIXELS // (50 * plan.dim)))
    own = plan.model(plan.sizes[-1], plan.shown)
    found.append(Part("outputs", denoised_outputs_task(plan, own, pictures=pictures)))
    found.append(Part("refined", finetune_task(plan, own)))
    if plan.training["network"] in PUBLISHED:
        found.append(Part("explained variance of the Gaussian", gaussian_variance_task(plan)))
    return found


def draw(findings: Findings) -> list[Figure]:
    """Figs. 2, 3, 25 and 27 of the paper."""
    plan, command = findings.plan, findings.command
    on = f"on {plan.count} noisy held-out images; the network was trained on {plan.sizes[-1]:,}"
    held_out = findings.evidence.where(on="held_out")
    known = (
        " The Gaussian of the training images is that of all images that could have been trained on."
        if plan.sizes[-1] == plan.available
        else " The Gaussian of all images that could have been trained on stands beside that of the training images."
    )
    figures: list[Figure | None] = [
        CurveFigure(
            title="Distance of the network to its counterparts",
            caption=f"RMSE between two denoisers, {on}. Solid: from the network to the Gaussian, the linear and the "
            "multi-delta denoiser. Dashed: from the linear to the Gaussian one and, a control, from the multi-delta to the "
            "Gaussian one, which says where the two can be told apart. Look whether the network is closer to the Gaussian "
            "there. The linear denoiser is the least-squares fit on training images, without shrinkage, and left out "
            "for very many pixels; that it is near the Gaussian is almost automatic where the network is well trained."
            + known,
            redraws=(2, 27),
            claims=("C5", "C6", "C7"),
            command=command,
            x=NOISE,
            y=RMSE,
            series=_distances(held_out.where(quantity="rmse")),
            thresholds=_limits(findings.evidence),
        ),
        CurveFigure(
            title="Relative distance of the network to its counterparts",
            caption=f"‖a − b‖/‖a‖ of two denoisers' outputs, from a to b, {on}. It weighs "
            "high noise more, where outputs are near the mean image.",
            redraws=(27,),
            claims=("C5", "C7"),
            command=command,
            x=NOISE,
            y=Axis("NMSE, a ratio of norms", bounds=(0.0, math.inf)),
            series=_distances(held_out.where(quantity="nmse")),
        ),
        CurveFigure(
            title="Distance to the Gaussian on other inputs",
            caption="RMSE between network and Gaussian denoiser on noisy held-out images, on noisy training images and, as "
            "a control, on noisy draws of the Gaussian itself, for which the Gaussian denoiser is the exact answer.",
            redraws=(2,),
            claims=("C7",),
            command=command,
            x=NOISE,
            y=RMSE,
            series=_on_inputs(findings.evidence.where(quantity="rmse", denoiser="network", reference="gaussian")),
        ),
        CurveFigure(
            title="A little more training at one noise level",
            caption=f"RMSE between the network and the Gaussian denoiser at one noise level, on {plan.count} noisy held-out "
            "images, while the network is trained further at that level alone, from where it ended. Where it falls at once, "
            "the network was far from the Gaussian for want of training: few levels so high are drawn. Control: a level in "
            "the middle, which is drawn often. One training.",
            redraws=(27,),
            claims=("C5", "C6"),
            command=command,
            x=Axis("images trained further"),
            y=RMSE,
            series=lines(
                findings.evidence.where(quantity=REFINED),
                "sigma",
                lambda sigma: f"σ = {sigma:.3g}",
                x="further",
                dashed=lambda sigma: sigma < _HIGH,
            ),
        ),
        CurveFigure(
            title="How much of the network its references explain",
            caption="Share of the variance of the network's outputs that the Gaussian and the multi-delta denoiser of its "
            f"training images explain, {on}, and on training images (dashed), where multi-delta has seen the answer. "
            "Control: what multi-delta explains of the Gaussian denoiser itself; of a network that denoises better, it "
            "explains more on training images, where it retrieves these.",
            claims=("C7",),
            command=command,
            x=NOISE,
            y=Axis("explained variance"),
            series=_explained(findings.evidence.where(quantity=EXPLAINED)),
        ),
        trajectory_grid(
            findings,
            [(LABELS[name], _trajectories(findings), name) for name in COUNTERPARTS],
            noises=_NOISES,
            title="From one noise, level by level",
            caption="What each denoiser makes of the noisy image it has reached, D(x_t; σ_t), on its own way from the same "
            "noise: Euler's method on ten levels, as in the paper. All images are clipped to [−1, 1], at every level; the "
            "paper scales each to its own range. Look which rows share their layout with the network's.",
            redraws=(2, 25),
            claims=("C7",),
        ),
        _samples(findings),
        CurveFigure(
            title="Likeness along the way",
            caption="Correlation of the network's D(x_t; σ_t) with that of each counterpart from the same noise, over "
            f"{plan.count} noises; at the least σ these are the samples. Dashed: from different noises, which shows how "
            "alike any two images are.",
            redraws=(3, 25),
            claims=("C7",),
            command=command,
            x=NOISE,
            y=CORRELATION,
            series=_likeness(findings.evidence.where(quantity="trajectory_correlation")),
        ),
        _slider(findings),
    ]
    return non_empty_figures(*figures)


def _distances(gaps: Evidence) -> tuple[Series, ...]:
    return non_empty_series(
        *(line(label, gaps.where(denoiser=a, reference=b), dashed=dashed) for label, a, b, dashed in _PAIRS),
    )


def _explained(shares: Evidence) -> tuple[Series, ...]:
    return non_empty_series(
        *(
            line(f"{LABELS[name]}, {words}", shares.where(denoiser="network", reference=name, on=on), dashed=dashed)
            for words, on, dashed in _INPUTS
            for name in ("gaussian", "multidelta")
        ),
        line("control: multi-delta of the Gaussian", shares.where(denoiser="gaussian", on="train"), dashed=True),
    )


def _on_inputs(gaps: Evidence) -> tuple[Series, ...]:
    return non_empty_series(*(line(label, gaps.where(on=name), dashed=dashed) for label, name, dashed in _INPUTS))


def _likeness(pairs: Evidence) -> tuple[Series, ...]:
    return non_empty_series(
        *(
            line(f"{words}{LABELS[name]}", pairs.where(reference=name, noise=noise), dashed=noise == "shuffled")
            for noise, words in (("same", "network and "), ("shuffled", "different noises: network and "))
            for name in COUNTERPARTS[1:]
        )
    )


def _limits(evidence: Evidence) -> tuple[Threshold, ...]:
    """The paper's 0.05, in the units of this data."""
    limit = THRESHOLDS["C5 gap"].below
    try:
        return (
            () if limit is None else (Threshold(limit * pixel_scale(evidence), "limit of C5, for high and low noise"),)
        )
    except MissingError:
        return ()


def _samples(findings: Findings) -> ImageGrid | None:
    found = {LABELS[name]: findings.array(_trajectories(findings), name) for name in COUNTERPARTS}
    there = {label: paths[:, -1] for label, paths in found.items() if paths is not None}
    if not there:
        return None
    images = np.stack([*there.values()])
    return ImageGrid(
        title="Samples from the same noises",
        caption="Where the trajectories end: Euler's method on ten levels, as in the paper, for all denoisers. Samples of "
        "the multi-delta denoiser are training images. Look whether those of the network resemble the Gaussian's and the "
        "linear one's.",
        redraws=(3, 25),
        claims=("C7",),
        command=findings.command,
        rows=tuple(there),
        columns=tuple(f"noise {index + 1}" for index in range(images.shape[1])),
        images=images,
    )


def _slider(findings: Findings) -> NoiseSlider | None:
    names = {
        "inputs": "input",
        "network": "network",
        "linear": "linear",
        "gaussian": "Gaussian",
        "multidelta": "multi-delta",
    }
    found = {label: findings.array("outputs", name) for name, label in names.items()}
    there = {label: pictures for label, pictures in found.items() if pictures is not None}
    if not there:
        return None
    images = np.stack([*there.values()], axis=2)
    return NoiseSlider(
        title="Held-out images, denoised",
        caption="Noisy held-out images, none of which the network was trained on, and what each denoiser returns at the "
        "noise level that the slider is at. Outputs are clipped to [−1, 1]; inputs are divided by 1 + 2σ first, so that "
        "something is left to see of them at high noise.",
        claims=("C5", "C7"),
        command=findings.command,
        sigmas=findings.array("outputs", "sigmas").tolist(),
        rows=tuple(f"image {index + 1}" for index in range(images.shape[1])),
        columns=tuple(there),
        images=images,
    )


def _trajectories(findings: Findings) -> str:
    """The part whose trajectories are shown."""
    return f"trajectories, seed {findings.plan.shown}"


STUDY = Study(
    name="references",
    title="What is the network like?",
    question="The network on most images is held against three denoisers that are known in closed form or by a fit: the "
    "Gaussian, which knows the mean and covariance of its training images and nothing else; the linear one, the affine map "
    "closest to the network at each noise level; and multi-delta, which retrieves training images.\n\n"
    "At high noise all of them return nearly the mean image, and at low noise a network returns nearly its input: agreement "
    "there says little. Look at the levels between, where the Gaussian and the multi-delta denoiser differ.",
    figures=(2, 3, 25, 27),
    claims=("C5", "C6", "C7"),
    parts=parts,
    draw=draw,
)
