"""Which affine map is closest to a network? Distilled maps of generalising and memorising networks beside the Gaussian's.

On noisy images of its own data, the closest affine map of any good denoiser is the Gaussian denoiser, whatever else it does
with them. So every number stands beside that of the multi-delta denoiser, which only retrieves training images, and of
Gaussian surrogates; memorising and generalising part on held-out images.
"""

import math

from ...report import Axis, CurveFigure, Figure, Series, Threshold
from ..claims.evidence import Evidence
from ..claims.thresholds import THRESHOLDS
from ..figures import NOISE, OVERLAP, RMSE, line, lines, non_empty_figures, non_empty_series
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task
from ..tasks.denoised_outputs import denoised_outputs_task
from ..tasks.distillation import adam_distillation_task, distillation_task, is_large
from ..tasks.theorem import theorem_task
from .distillation_pictures import SHOWN_SIGMA, draw_pictures, outputs_key

_ERROR = Axis("weight error ‖W − W_G‖/‖W_G‖", log=True)
_ASYMMETRY = Axis("‖W − Wᵀ‖/‖W‖", bounds=(0.0, math.inf))
_SUBSPACE = 10  # dimensions of the subspace whose overlap is drawn
_PICTURES = 3  # of either kind of input
_ON = {"held_out": "held-out images", "train": "training images", "surrogate": "Gaussian surrogates"}
_IMAGES = {on: _ON[on] for on in ("held_out", "train")}  # what a denoiser that retrieves has to do with


def parts(plan: Plan) -> list[Part]:
    """The theorem, then the largest and the smallest size at every seed, then pictures of all sizes."""
    found = [Part("theorem", theorem_task(plan)), Part("images", dataset_stats_task(plan))]
    on = ("held_out",) if is_large(plan) else tuple(_ON)
    for n, images in ((plan.sizes[-1], on), (plan.sizes[0], on[:2])):
        for seed in range(plan.seeds):
            # The multi-delta denoiser is the same for all seeds.
            denoisers = ("network", "multidelta") if seed == 0 else ("network",)
            task = distillation_task(plan, plan.model(n, seed), denoisers=denoisers, images=images)
            found.append(Part(f"distilled {n}, seed {seed}", task))
    found.append(Part("adam", adam_distillation_task(plan, plan.model(plan.sizes[-1], plan.shown))))
    for n in reversed(plan.sizes):
        for inputs in ("noise", "images"):
            task = denoised_outputs_task(
                *(plan, plan.model(n, plan.shown)),
                denoisers=("network", "gaussian"),
                sigmas=(SHOWN_SIGMA,),
                inputs=inputs,
                pictures=_PICTURES,
            )
            found.append(Part(outputs_key(n, inputs), task))
    return found


def draw(findings: Findings) -> list[Figure]:
    """Figs. 4, 5, 14 and 22 of the paper, and the theorem."""
    evidence, plan = findings.evidence, findings.plan
    closed = evidence.where(method=None)
    large, small = (closed.where(n=n) for n in (plan.sizes[-1], plan.sizes[0]))
    adam = evidence.where(method="adam")
    return non_empty_figures(
        *_weights(findings, large, adam),
        *_subspaces(findings, large, small, adam),
        *_regimes(findings, large, small),
        *draw_pictures(findings),
        _theorem(findings),
    )


def _weights(findings: Findings, large: Evidence, adam: Evidence) -> list[Figure]:
    errors = large.where(quantity="weight_error", reference="gaussian of train")
    floor = large.where(quantity="weight_error_floor", on="held_out", denoiser="network")
    by_adam = adam.where(quantity="weight_error")
    last = [group.records[-1]["epoch"] for group in by_adam.by("sigma").values()] if len(by_adam) else [0]
    images = by_adam.records[0]["count"] if len(by_adam) else 0
    own = findings.plan.seed(findings.plan.shown)
    beside = large.where(quantity="weight_error", reference="gaussian of held_out", on="held_out", denoiser="network")
    return [
        CurveFigure(
            title="How far the matrix of the linear map is from the Gaussian's",
            caption="The affine map closest to a network on the most training images, by least squares without "
            "shrinkage from ten calls for each dimension, against the Wiener filter W_G of the training images. A fit "
            "of finitely many calls has about the floor as its error where the network is the Wiener filter, and C8 judges "
            "what is above it. The multi-delta denoiser only retrieves training "
            "images, and must be near W_G on them all the same: a small error there says little about how a denoiser "
            "works. Where a network's error is far above the floor and the control's is not, the network is not a good "
            "denoiser at that level.",
            redraws=(4,),
            claims=("C8",),
            command=findings.command,
            x=NOISE,
            y=_ERROR,
            series=_by_images(errors, "network, ") + non_empty_series(line("floor of the fit", floor, dashed=True)),
            thresholds=(Threshold(THRESHOLDS["C8 error"].below or 0.0, "the paper's bound"),),
        ),
        CurveFigure(
            title="Weight error while Adam learns the map",
            caption=f"The paper's way to distil, {max(last)} epochs over {images} held-out images in batches of 256, "
            "fresh noise in each, from W = 0; against the Gaussian of the same images. The step size at each noise "
            "level is such that the largest weight of the Gaussian could be reached three times over. Network on the "
            "most images, one training.",
            redraws=(4, 22),
            claims=("C8",),
            command=findings.command,
            x=Axis("epoch"),
            y=_ERROR,
            series=lines(by_adam, "sigma", lambda sigma: f"σ = {sigma:.3g}", x="epoch"),
        ),
        CurveFigure(
            title="Where Adam ends, and least squares",
            caption="The last epoch of the figure before, and the closed form of the same network on the same images, "
            "with the floor of the latter. Where Adam has not converged, its distance from the Gaussian is its own, "
            "not the network's.",
            redraws=(22,),
            claims=("C8",),
            command=findings.command,
            x=NOISE,
            y=_ERROR,
            series=non_empty_series(
                line("Adam, last epoch", by_adam.where(epoch=max(last))),
                line("least squares", beside.where(seed=own)),
                line("floor of least squares", floor.where(seed=own), dashed=True),
            )
            if len(by_adam)
            else (),
        ),
    ]


def _subspaces(findings: Findings, large: Evidence, small: Evidence, adam: Evidence) -> list[Figure]:
    k = max((r["k"] for r in large.where(quantity="overlap").records if r["k"] <= _SUBSPACE), default=0)
    cut = large.where(k=k)
    held_out = cut.where(on="held_out", denoiser="network")
    asymmetry = {name: of_size.where(quantity="asymmetry") for name, of_size in (("large", large), ("small", small))}
    return [
        CurveFigure(
            title=f"Overlap of the {k} leading singular vectors with the principal components",
            caption="‖U_WᵀU‖²/k of subspaces, which near-equal eigenvalues do not disturb within them; 1 if they are "
            "the same. The ceiling is what two halves of the training images agree on, chance what unrelated subspaces "
            "do. At the lowest noise all gains of the Gaussian are nearly 1 and no subspace leads.",
            redraws=(4,),
            claims=("C9",),
            command=findings.command,
            x=NOISE,
            y=OVERLAP,
            series=_by_images(cut.where(quantity="overlap"), "network, ")
            + non_empty_series(
                line("ceiling", held_out.where(quantity="overlap_ceiling"), dashed=True),
                line("chance", held_out.where(quantity="overlap_chance"), dashed=True),
            ),
        ),
        CurveFigure(
            title="How symmetric the matrix is",
            caption="The Wiener filter is symmetric. A least-squares fit of finitely many calls is not, quite: compare "
            "the surrogates.",
            redraws=(14,),
            claims=("C9",),
            command=findings.command,
            x=NOISE,
            y=_ASYMMETRY,
            series=_by_images(asymmetry["large"], "most images, ")
            + non_empty_series(
                line("fewest images, held-out images", asymmetry["small"].where(on="held_out", denoiser="network")),
                line("fewest images, training images", asymmetry["small"].where(on="train", denoiser="network")),
            ),
        ),
        CurveFigure(
            title="How symmetric the matrix becomes while Adam learns it",
            caption="As in the figure of the weight error by epoch. It starts at W = 0; a matrix of independent "
            "entries has √2.",
            redraws=(14,),
            claims=("C9",),
            command=findings.command,
            x=Axis("epoch"),
            y=_ASYMMETRY,
            series=lines(adam.where(quantity="asymmetry"), "sigma", lambda sigma: f"σ = {sigma:.3g}", x="epoch"),
        ),
    ]


def _regimes(findings: Findings, large: Evidence, small: Evidence) -> list[Figure]:
    """Memorising against generalising."""
    most, fewest = (f"N = {findings.plan.sizes[place]:,}" for place in (-1, 0))
    sizes = {most: large, fewest: small}

    def gaps(on: str) -> tuple[Series, ...]:
        found = []
        for name, records in sizes.items():
            gap = records.where(quantity="rmse", on=on)
            for pair, tags in (
                ("G–θ", {"denoiser": "network", "reference": "gaussian"}),
                ("L–θ", {"denoiser": "network", "reference": "linear"}),
                ("L–G", {"denoiser": "linear", "reference": "gaussian", "of": "network"}),
            ):
                found.append(line(f"{pair}, {name}", gap.where(**tags), dashed=records is small))
        control = small.where(quantity="rmse", on=on, denoiser="linear", reference="gaussian", of="multidelta")
        return non_empty_series(*found, line(f"control: L–G of multi-delta, {fewest}", control, dashed=True))

    def retrieving(records: Evidence) -> list[Series]:
        """Of the denoiser that retrieves the fewest images, as control."""
        return [
            line(
                f"control: multi-delta, {fewest}, {words}",
                records.where(denoiser="multidelta", on=on),
                dashed=True,
            )
            for on, words in _IMAGES.items()
        ]

    fits = large.where(quantity="rmse", denoiser="linear", reference="gaussian", shrunk=False)
    unexplained = [
        line(f"{name}, {words}", records.where(quantity="fvu", denoiser="network", on=on), dashed=records is small)
        for name, records in sizes.items()
        for on, words in _ON.items()
    ] + retrieving(small.where(quantity="fvu"))
    matrices = [
        line(
            f"{name}, {words}",
            records.where(quantity="weight_error", reference="gaussian of train", denoiser="network", on=on),
            dashed=records is small,
        )
        for name, records in sizes.items()
        for on, words in _IMAGES.items()
    ] + retrieving(small.where(quantity="weight_error", reference="gaussian of train"))
    words = (
        "G, L and θ are the Gaussian of the training images, the unshrunk linear map and the network: of the most "
        "images, and (dashed) of the fewest, with L–G of the multi-delta denoiser of these as control where it "
        "was distilled, "
    )
    return [
        CurveFigure(
            title="Linear, Gaussian and network: most and fewest images",
            caption=words + "on held-out images, which the map was also distilled on, with other noise.",
            redraws=(5,),
            claims=("C6", "C10"),
            command=findings.command,
            x=NOISE,
            y=RMSE,
            series=gaps("held_out"),
        ),
        CurveFigure(
            title="Linear, Gaussian and network on training images: most and fewest images",
            caption=words
            + "on training images. Here L is near G for any good denoiser, also for one that memorises: what "
            "parts the two is the figure before.",
            redraws=(5,),
            claims=("C6", "C10"),
            command=findings.command,
            x=NOISE,
            y=RMSE,
            series=gaps("train"),
        ),
        CurveFigure(
            title="Linear map against Gaussian, by images",
            caption="RMSE between the unshrunk linear map and the Gaussian of the most images: of the network and, where "
            "it was distilled, of the multi-delta denoiser as a control, on the images named.",
            redraws=(5,),
            claims=("C6",),
            command=findings.command,
            x=NOISE,
            y=RMSE,
            series=_by_images(fits, "of the network, ", tag="of"),
        ),
        CurveFigure(
            title="What no affine map explains",
            caption="Fraction of the network's variance that its closest affine map leaves unexplained, on new noise: "
            "with the most images and (dashed) with the fewest, and, where it was distilled, of the multi-delta "
            "denoiser of the latter as control.",
            redraws=(5,),
            claims=("C10",),
            command=findings.command,
            x=NOISE,
            y=Axis("FVU", bounds=(0.0, math.inf)),
            series=non_empty_series(*unexplained),
        ),
        CurveFigure(
            title="Weight error: most and fewest images",
            caption="Distance of the linear map's matrix from the Wiener filter of the network's training images. A "
            "network that retrieves its training images has a small one on noisy training images, as an exact "
            "posterior mean must, and may have a large one on held-out images; so has, where it was distilled, the "
            "multi-delta denoiser of the fewest images, the control.",
            redraws=(5,),
            claims=("C10",),
            command=findings.command,
            x=NOISE,
            y=_ERROR,
            series=non_empty_series(*matrices),
        ),
    ]


def _theorem(findings: Findings) -> CurveFigure:
    residuals = findings.evidence.where(quantity="theorem_residual")
    return CurveFigure(
        title="The theorem",
        caption="Relative distance to the Wiener filter, √(E‖D − D_G‖²/E‖D_G‖²) over noisy images, of the affine map "
        "that minimises the denoising loss, from its normal equations, and of where gradient descent from zero ends; "
        "for the moments of these images, shrunk to at most 64 dimensions. Left out are levels at which gradient "
        "descent would take more than 20,000 steps.",
        claims=("C21",),
        command=findings.command,
        x=NOISE,
        y=Axis("relative distance", log=True),
        series=lines(residuals, "kind", str),
        thresholds=(Threshold(THRESHOLDS["C21 residual"].below or 0.0, "bound"),),
    )


def _by_images(records: Evidence, prefix: str, *, tag: str = "denoiser") -> tuple[Series, ...]:
    """A line for each set of images: the network's, and broken ones for the control that retrieves."""
    network = (line(prefix + words, records.where(on=on, **{tag: "network"})) for on, words in _ON.items())
    control = (
        line(f"control: multi-delta, {words}", records.where(on=on, **{tag: "multidelta"}), dashed=True)
        for on, words in _IMAGES.items()
    )
    return non_empty_series(*network, *control)


STUDY = Study(
    name="distillation",
    title="Is its closest linear map the Gaussian's?",
    question="At each noise level, the affine map that is closest to a network is found by least squares and put "
    "beside the Wiener filter of the training images: weights, singular vectors and values, outputs. \n\nMuch of this "
    "is almost automatic. For any law of images, the best affine fit of the exact posterior mean, on noisy images of "
    "that law, is the Wiener filter, also if the denoiser only retrieves training images. So look at the controls "
    "first, and at held-out images: there a network that memorises need not be near its Gaussian. Last, the theorem "
    "behind it is checked on the moments of these images.",
    figures=(4, 5, 14, 22),
    claims=("C6", "C8", "C9", "C10", "C21"),
    parts=parts,
    draw=draw,
)
