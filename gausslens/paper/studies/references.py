"""Distance of a network to Gaussian, linear and multi-delta denoisers: claims C5, C7; figures 2, 3, 25, 27."""

import math

import numpy as np

from ...report import NoiseSlider
from .. import axes
from ..architectures import PUBLISHED
from ..claims.claim import (
    HIGH_NOISE,
    LOW_NOISE,
    POSITIVE,
    Finding,
    Statistic,
    Threshold,
    claim,
    control,
    statistic,
    unit_words,
)
from ..claims.comparisons import in_pixels, largest
from ..claims.evidence import Evidence, Number, greatest, mean_at
from ..claims.window import window
from ..figures import Curves, Drawing, Line, about, known_pixel_scale, sigma_label
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task
from ..tasks.denoised_outputs import COUNTERPARTS, LABELS, denoised_outputs_task, trajectory_grid, trajectory_task
from ..tasks.explained_variance import explained_variance_task, gaussian_variance_task
from ..tasks.finetune_probe import finetune_task

_SLIDER_PIXELS = 1_100_000  # of all pictures behind the slider, which keeps it small on the page
_DISTANCES = (
    Line("network to Gaussian", denoiser="network", reference="gaussian"),
    Line("network to linear", denoiser="network", reference="linear"),
    Line("network to multi-delta", denoiser="network", reference="multidelta"),
    Line("network to Gaussian of all images", denoiser="network", reference="gaussian_full"),
    Line("linear to Gaussian", dashed=True, denoiser="linear", reference="gaussian"),
    Line("control: multi-delta to Gaussian", denoiser="multidelta", reference="gaussian"),
)
_INPUTS = (
    ("held-out images", "held_out", False),
    ("training images", "train", True),
    ("control: draws of the Gaussian", "surrogate", True),
)

_GAP = Threshold("the paper, Fig. 2", below=0.05, possible=POSITIVE)
_RATIO = Threshold("our choice: closer to the Gaussian than to the training images", below=0.0)
_LINEAR = Threshold("our choice: 20 % reads as equal in Fig. 2", above=-math.log(1.2), below=math.log(1.2))
_MUCH_CLOSER = math.log(0.5)  # mean log ratio below which a note says so


@claim("C5", "At high and low noise, a generalising network is close to its linear fit.")
def c5(evidence: Evidence) -> Finding:
    """max RMSE(L, θ) over σ ≥ 20 and σ ≤ 0.1, L the unshrunk fit; on held-out images, at the largest N."""
    gaps = evidence.where(study="references", **axes.RMSE.tags, denoiser="network", reference="linear", shrunk=False)
    gaps, unit = gaps.where(n=largest(gaps)), unit_words(evidence)

    def worst(records: Evidence) -> Number:
        return greatest([*records.at(HIGH_NOISE).curve().values(), *records.at(0.0, LOW_NOISE).curve().values()])

    between, largest_gap = gaps.at(LOW_NOISE, HIGH_NOISE), in_pixels(Evidence.greatest, evidence)
    return Finding(
        (statistic(f"largest RMSE(L, θ) at σ ≥ 20 and σ ≤ 0.1{unit}", _GAP, gaps, in_pixels(worst, evidence)),),
        control(f"largest RMSE(L, θ) between{unit}", between, largest_gap, POSITIVE),
    )


@claim(
    "C7", "At intermediate noise, a generalising network is closer to the Gaussian than to the multi-delta denoiser."
)
def c7(evidence: Evidence) -> Finding:
    """mean log RMSE(G, θ)/RMSE(M, θ) over the window, and mean log RMSE(L, θ)/RMSE(G, θ) there, L the unshrunk fit.

    On held-out images, at the largest N. The distance of the multi-delta denoiser to the Gaussian fixes the window.
    """
    gaps = evidence.where(study="references", **axes.RMSE.tags)
    gaps = gaps.where(n=largest(gaps))

    def log_gap(records: Evidence, reference: str) -> Number:
        """Mean log RMSE to a reference over the window."""
        sigmas = window(records.where(denoiser="multidelta", reference="gaussian").curve())
        # A fit shrunk toward the Gaussian assumes what is to be shown.
        shrunk = False if reference == "linear" else None
        curve = records.where(denoiser="network", reference=reference, shrunk=shrunk).curve()
        return mean_at({sigma: number.log() for sigma, number in curve.items()}, sigmas)

    def mean_log(words: str, threshold: Threshold, above: str, below: str) -> Statistic:
        name = f"mean log {words} in the window"
        return statistic(name, threshold, gaps, lambda r: log_gap(r, above) - log_gap(r, below))

    closer = mean_log("RMSE(G, θ)/RMSE(M, θ)", _RATIO, "gaussian", "multidelta")
    alike = mean_log("RMSE(L, θ)/RMSE(G, θ)", _LINEAR, "linear", "gaussian")
    much = closer.high is not None and closer.high < _MUCH_CLOSER
    return Finding((closer, alike), note="much closer: by more than a factor of 2" if much else None)


def parts(plan: Plan) -> list[Part]:
    """The model on most images at every seed: measured, and followed from noise beside its counterparts."""
    found, published = [Part("images", dataset_stats_task(plan))], plan.training["network"] in PUBLISHED
    for seed in range(plan.seeds):
        model = plan.model(plan.sizes[-1], seed)
        found.append(Part(f"measures, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(f"linear, seed {seed}", plan.measured(model, "linear_gap")))
        found.append(Part(f"trajectories, seed {seed}", trajectory_task(plan, model)))
        if published:
            found.append(Part(f"explained variance, seed {seed}", explained_variance_task(plan, model)))
    pictures = max(2, min(6, _SLIDER_PIXELS // (50 * plan.dim)))
    own = plan.model(plan.sizes[-1], plan.shown)
    found.append(Part("outputs", denoised_outputs_task(plan, own, pictures=pictures)))
    found.append(Part("refined", finetune_task(plan, own)))
    if published:
        found.append(Part("explained variance of the Gaussian", gaussian_variance_task(plan)))
    return found


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 2, 3, 25 and 27 of the paper."""
    plan = findings.plan
    on = f"on {plan.count} noisy held-out images; the network was trained on {plan.sizes[-1]:,}"
    all_images = "is" if plan.sizes[-1] == plan.available else "stands beside"
    scale = known_pixel_scale(findings.evidence)
    paths = [(LABELS[name], f"trajectories, seed {plan.shown}", name) for name in COUNTERPARTS]
    return [
        Curves(
            title="Distance of the network to its counterparts",
            caption=f"RMSE between two denoisers, {on}. Dashed: from the linear to the Gaussian one and, a control, from "
            "the multi-delta to the Gaussian one, which says where the two can be told apart. The claim is that the "
            "network is closer to the Gaussian there. The linear denoiser is the least-squares fit on training images, "
            "without shrinkage, and left out for very many pixels; it is almost automatically near the Gaussian where the "
            f"network is well trained. The Gaussian of all images that could have been trained on {all_images} that of "
            "the training images.",
            **about(2, 27, "C5", "C6", "C7"),
            of=axes.RMSE.against(_GAP, "limit of C5, for high and low noise", scale),
            lines=_DISTANCES,
        ),
        Curves(
            title="Relative distance of the network to its counterparts",
            caption=f"‖a − b‖/‖a‖ of two denoisers' outputs, from a to b, {on}. It weighs high noise more, where "
            "outputs are near the mean image.",
            **about(27, "C5", "C7"),
            of=axes.quantity("nmse", "NMSE, a ratio of norms", bounds=axes.POSITIVE, on="held_out"),
            lines=_DISTANCES,
        ),
        Curves(
            title="Distance to the Gaussian on other inputs",
            caption="RMSE between network and Gaussian denoiser on noisy held-out images, on noisy training images and, as "
            "a control, on noisy draws of the Gaussian itself, for which the Gaussian denoiser is the exact answer.",
            **about(2, "C7"),
            of=axes.RMSE.where(denoiser="network", reference="gaussian"),
            lines=[Line(label, on=name, dashed=dashed) for label, name, dashed in _INPUTS],
        ),
        Curves(
            title="A little more training at one noise level",
            caption=f"RMSE between the network and the Gaussian denoiser at one noise level, on {plan.count} noisy "
            "held-out images, while the network is trained further at that level alone. Where it falls at once, the "
            "network was far from the Gaussian for want of training: few levels so high are drawn. Control: a level in "
            "the middle, which is drawn often. One training.",
            **about(27, "C5", "C6"),
            of=axes.RMSE._replace(tags={"quantity": "refined_rmse"}).by(
                axes.along("further", "images trained further")
            ),
            lines=(Line(sigma_label, by="sigma", dashed=lambda sigma: sigma < HIGH_NOISE),),
        ),
        Curves(
            title="How much of the network its references explain",
            caption="Share of the variance of the network's outputs that the Gaussian and the multi-delta denoiser of "
            f"its training images explain, on {plan.count} noisy held-out images and on training images (dashed), where "
            "multi-delta has seen the answer. Control: what multi-delta explains of the Gaussian denoiser itself. Of a "
            "network that denoises better, it explains more on training images.",
            **about("C7"),
            of=axes.quantity("explained_variance", "explained variance"),
            lines=(
                *(
                    Line(f"{LABELS[name]}, {words}", dashed=dashed, denoiser="network", reference=name, on=on)
                    for words, on, dashed in _INPUTS
                    for name in ("gaussian", "multidelta")
                ),
                Line("control: multi-delta of the Gaussian", denoiser="gaussian", on="train"),
            ),
        ),
        trajectory_grid(
            findings,
            paths,
            noises=(0, 1, 2),
            title="From one noise, level by level",
            caption="What each denoiser makes of the noisy image it has reached, D(x_t; σ_t), on its own way from the "
            "same initial noise: Euler's method on ten levels, as in the paper. Images are clipped to [−1, 1]; the paper "
            "scales each to its own range. The claim is that the network's rows share their layout with the Gaussian's "
            "and the linear ones.",
            **about(2, 25, "C7"),
        ),
        sample_grid(
            findings,
            paths,
            pick=lambda levels: levels[:, -1],
            title="Samples from the same initial noise",
            caption="Where the trajectories end. Samples of the multi-delta denoiser are training images. The claim is "
            "that those of the network resemble the Gaussian's and the linear one's.",
            **about(3, 25, "C7"),
        ),
        Curves(
            title="Likeness along the way",
            caption="Correlation of the network's D(x_t; σ_t) with that of each counterpart from the same noise, over "
            f"{plan.count} initial noises; at the lowest σ these are the samples. Dashed: from different noise, which "
            "shows how alike any two images are.",
            **about(3, 25, "C7"),
            of=axes.AGREEMENT._replace(tags={"quantity": "trajectory_correlation"}),
            lines=[
                Line(f"{words}{LABELS[name]}", dashed=noise == "shuffled", reference=name, noise=noise)
                for noise, words in (("same", "network and "), ("shuffled", "different noise: network and "))
                for name in COUNTERPARTS[1:]
            ],
        ),
        _slider(findings),
    ]


def _slider(findings: Findings) -> Drawing:
    names = ("inputs", "network", "linear", "gaussian", "multidelta")
    found = {LABELS.get(name, "input"): findings.array("outputs", name) for name in names}
    there = {label: pictures for label, pictures in found.items() if pictures is not None}
    if not there:
        return None
    images = np.stack([*there.values()], axis=2)
    return NoiseSlider(
        title="Held-out images, denoised",
        caption="Noisy held-out images, and what each denoiser returns at the noise level that the slider is at. Outputs "
        "are clipped to [−1, 1]; inputs are divided by 1 + 2σ first, so that something is left to see at high noise.",
        **about("C5", "C7"),
        sigmas=findings.array("outputs", "sigmas").tolist(),
        rows=tuple(f"image {index + 1}" for index in range(images.shape[1])),
        columns=tuple(there),
        images=images,
    )


STUDY = Study(
    name="references",
    title="What is the network like?",
    question="The network trained on the most images is held against three denoisers that are known in closed form or "
    "by a fit: the Gaussian, which knows the mean and covariance of its training images and nothing else; the linear "
    "one, the affine map closest to the network at each noise level; and multi-delta, which retrieves training "
    "images.\n\nAt high noise all of them return nearly the mean image, and at low noise a network returns nearly its "
    "input: agreement there says little. The levels between tell, where the Gaussian and the multi-delta denoiser differ.",
    figures=(2, 3, 25, 27),
    parts=parts,
    drawings=figures,
    judges=(c5, c7),
    informs=("C6",),
)
