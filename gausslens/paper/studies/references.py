"""How close is the network to known denoisers?

The network trained on the most images is compared with three reference denoisers. The Gaussian denoiser knows only the mean
and the covariance of its training images. The linear denoiser is the affine map closest to the network at each noise level.
The multi-delta denoiser retrieves training images.

Agreement at the ends says little: at high noise all of them return nearly the mean image, and at low noise a network
returns nearly its input. The informative levels lie between, where the Gaussian and the multi-delta denoiser differ.
"""

import math
from collections.abc import Iterator

import numpy as np

from ...report import Axis, NoiseSlider
from .. import axes
from ..architectures import PUBLISHED
from ..claims.claim import HIGH_NOISE, LOW_NOISE, Found, Statistic, Threshold, claim, control, statistic, unit_words
from ..claims.comparisons import in_pixels, largest, window
from ..claims.evidence import Evidence, Number, mean_at
from ..figures import Curves, Drawing, Line, about, sigma_label
from ..pictures import sample_grid, trajectory_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import describe_images
from ..tasks.denoised_outputs import COUNTERPARTS, LABELS, denoised_outputs_task, trajectory_task
from ..tasks.one_model import EXPLAINED, explained_variance_task, finetune_task, gaussian_variance_task

_SLIDER_PIXELS = 1_100_000  # of all pictures of the slider, so that the page stays small
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

_GAP = Threshold("the paper, Fig. 2", below=0.05, possible=axes.POSITIVE)
_RATIO = Threshold("our choice: closer to the Gaussian than to the training images", below=0.0)
_LINEAR = Threshold("our choice: curves 20 % apart look equal in Fig. 2", above=-math.log(1.2), below=math.log(1.2))
_MUCH_CLOSER = math.log(0.5)  # mean log ratio below which a note says so


@claim("C5", "At high and low noise, a generalising network is close to its linear fit.")
def c5(evidence: Evidence) -> Found:
    """max RMSE(L, θ) over σ ≥ 20 and σ ≤ 0.1, L the unshrunk fit; on held-out images, at the largest N."""
    gaps = evidence.where(study="references", **axes.RMSE.tags, denoiser="network", reference="linear", shrunk=False)
    gaps, unit = gaps.where(n=largest(gaps)), unit_words(evidence)

    def worst(records: Evidence) -> Number:
        return max([*records.at(HIGH_NOISE).over("sigma").values(), *records.at(0.0, LOW_NOISE).over("sigma").values()])

    yield statistic(f"largest RMSE(L, θ) at σ ≥ 20 and σ ≤ 0.1{unit}", _GAP, gaps, in_pixels(worst, evidence))
    between, largest_gap = gaps.at(LOW_NOISE, HIGH_NOISE), in_pixels(Evidence.greatest, evidence)
    yield from control(f"largest RMSE(L, θ) between{unit}", between, largest_gap, axes.POSITIVE)


@claim("C7", "At intermediate noise, a generalising network is closer to the Gaussian than to multi-delta.")
def c7(evidence: Evidence) -> Found:
    """mean log RMSE(G, θ)/RMSE(M, θ) over the window, and mean log RMSE(L, θ)/RMSE(G, θ) there, L the unshrunk fit.

    On held-out images, at the largest N. The distance of the multi-delta denoiser to the Gaussian fixes the window.
    """
    gaps = evidence.where(study="references", **axes.RMSE.tags)
    gaps = gaps.where(n=largest(gaps))

    def log_gap(records: Evidence, reference: str) -> Number:
        """Mean log RMSE to a reference over the window."""
        sigmas = window(records.where(denoiser="multidelta", reference="gaussian").over("sigma"))
        # A fit that is shrunk toward the Gaussian assumes the claim.
        shrunk = False if reference == "linear" else None
        curve = records.where(denoiser="network", reference=reference, shrunk=shrunk).over("sigma")
        return mean_at({sigma: number.log() for sigma, number in curve.items()}, sigmas)

    def mean_log(words: str, threshold: Threshold, above: str, below: str) -> Statistic:
        name = f"mean log {words} in the window"
        return statistic(name, threshold, gaps, lambda r: log_gap(r, above) - log_gap(r, below))

    closer = mean_log("RMSE(G, θ)/RMSE(M, θ)", _RATIO, "gaussian", "multidelta")
    yield closer
    yield mean_log("RMSE(L, θ)/RMSE(G, θ)", _LINEAR, "linear", "gaussian")
    if closer.high is not None and closer.high < _MUCH_CLOSER:
        yield "much closer: by more than a factor of 2"


def parts(plan: Plan) -> Iterator[Part]:
    """The model on most images at every seed: its measures, and its trajectories with those of its references."""
    yield Part("images", plan.on_images(describe_images))
    published = plan.training["network"] in PUBLISHED
    for seed in range(plan.seeds):
        model = plan.model(plan.sizes[-1], seed)
        yield Part(f"measures, seed {seed}", plan.measured(model, "gap", "linearity"))
        yield Part(f"linear, seed {seed}", plan.measured(model, "linear_gap"))
        yield Part(f"trajectories, seed {seed}", trajectory_task(plan, model))
        if published:
            yield Part(f"explained variance, seed {seed}", explained_variance_task(plan, model))
    own, pictures = plan.model(plan.sizes[-1], plan.shown), max(2, min(6, _SLIDER_PIXELS // (50 * plan.dim)))
    yield Part("outputs", denoised_outputs_task(plan, own, pictures=pictures))
    yield Part("refined", finetune_task(plan, own))
    if published:
        yield Part("explained variance of the Gaussian", gaussian_variance_task(plan))


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 2, 3, 25 and 27 of the paper."""
    plan = findings.plan
    held_out = f"{plan.count} noisy held-out images"
    on = f"on {held_out}; the network was trained on {plan.sizes[-1]:,} of all {plan.available:,} images"
    paths = [(LABELS[name], f"trajectories, seed {plan.shown}", name) for name in COUNTERPARTS]
    yield Curves(
        **about("Distance of the network to its reference denoisers", 2, 27, "C5", "C6", "C7"),
        caption=f"RMSE between two denoisers, {on}. The claim is that the network is closer to the Gaussian than to "
        "multi-delta at the noise levels where these two are far apart, which the line “control: multi-delta to "
        "Gaussian” shows. The linear denoiser is the least-squares fit on training images, without shrinkage, which is "
        "near the Gaussian for almost any well-trained network (it is not drawn for images of very many pixels).",
        of=axes.RMSE.against(_GAP, "limit of C5, for high and low noise", findings.evidence),
        lines=_DISTANCES,
    )
    yield Curves(
        **about("Relative distance of the network to its reference denoisers", 27, "C5", "C7"),
        caption=f"‖a − b‖/‖a‖ for the outputs of two denoisers, named “a to b”, {on}. This error gives more weight to "
        "high noise, where outputs are near the mean image.",
        of=axes.quantity("nmse", "NMSE, a ratio of norms", bounds=axes.POSITIVE, on="held_out"),
        lines=_DISTANCES,
    )
    yield Curves(
        **about("Distance to the Gaussian on other inputs", 2, "C7"),
        caption="RMSE between the network and the Gaussian denoiser on noisy held-out images, noisy training images "
        "and noisy draws from the Gaussian. The draws are the control: for them, the Gaussian denoiser is exact.",
        of=axes.RMSE.where(denoiser="network", reference="gaussian"),
        lines=[Line(label, on=name, dashed=dashed) for label, name, dashed in _INPUTS],
    )
    yield Curves(
        **about("A little more training at one noise level", 27, "C5", "C6"),
        caption=f"RMSE between one network and the Gaussian denoiser at one noise level, on {held_out}, while training "
        "continues at that level alone. A fast fall means that the network was undertrained there, because training "
        "rarely draws such high noise levels. The control is an intermediate level, which training draws often.",
        of=axes.RMSE._replace(tags={"quantity": "refined_rmse"}).by(
            axes.Along(Axis("images trained further"), "further")
        ),
        lines=(Line(sigma_label, by="sigma", dashed=lambda sigma: sigma < HIGH_NOISE),),
    )
    yield Curves(
        **about("How much of the network its references explain", "C7"),
        caption="Share of the variance of the network's outputs that the Gaussian and the multi-delta denoiser of its "
        f"training images explain, on {held_out} and on training images (dashed). On noisy training images multi-delta "
        "returns the clean image itself, so it explains more of a network that denoises better, even if that network "
        "does not memorise. Control: the share of the Gaussian denoiser's variance that multi-delta explains.",
        of=axes.quantity(EXPLAINED, "explained variance"),
        lines=(
            *(
                Line(f"{LABELS[name]}, {words}", dashed=dashed, denoiser="network", reference=name, on=on)
                for words, on, dashed in _INPUTS
                for name in ("gaussian", "multidelta")
            ),
            Line("control: multi-delta of the Gaussian", denoiser="gaussian", on="train"),
        ),
    )
    yield trajectory_grid(
        findings,
        paths,
        noises=(0, 1, 2),
        **about("Trajectories from the same initial noise", 2, 25, "C7"),
        caption="Output D(x_t; σ_t) of each denoiser along its own trajectory, with Euler's method on ten levels as in "
        "the paper. The claim is that the network's rows share their layout with the Gaussian and the linear rows. "
        "Images are clipped to [−1, 1]; the paper scales each to its own range.",
    )
    yield sample_grid(
        findings,
        paths,
        pick=lambda levels: levels[:, -1],
        **about("Samples from the same initial noise", 3, 25, "C7"),
        caption="The last images of the trajectories. The claim is that the network's samples resemble those of the "
        "Gaussian and of the linear denoiser. The multi-delta denoiser's samples are training images.",
    )
    yield Curves(
        **about("Agreement along trajectories", 3, 25, "C7"),
        caption="Correlation of the network's D(x_t; σ_t) with that of each reference from the same noise, over "
        f"{plan.count} initial noises. At the lowest σ the images are samples. Dashed, as a control: the correlation "
        "of outputs from different noises, which shows how similar any two images are.",
        of=axes.AGREEMENT._replace(tags={"quantity": "trajectory_correlation"}),
        lines=[
            Line(f"{words}{LABELS[name]}", dashed=noise == "shuffled", reference=name, noise=noise)
            for noise, words in (("same", "network and "), ("shuffled", "different noise: network and "))
            for name in COUNTERPARTS[1:]
        ],
    )
    names = ("inputs", "network", "linear", "gaussian", "multidelta")
    found = {LABELS.get(name, "input"): findings.array("outputs", name) for name in names}
    there = {label: pictures for label, pictures in found.items() if pictures is not None}
    if there:
        images = np.stack([*there.values()], axis=2)
        yield NoiseSlider(
            **about("Held-out images, denoised", "C5", "C7"),
            caption="Noisy held-out images, and what each denoiser returns at the noise level of the slider. Outputs "
            "are clipped to [−1, 1]. Inputs are divided by 1 + 2σ first, so that they are visible at high noise.",
            sigmas=findings.array("outputs", "sigmas").tolist(),
            rows=tuple(f"image {index + 1}" for index in range(images.shape[1])),
            columns=tuple(there),
            images=images,
        )


STUDY = Study("references", __doc__, parts, drawings, figures=(2, 3, 25, 27), judges=(c5, c7), informs=("C6",))
