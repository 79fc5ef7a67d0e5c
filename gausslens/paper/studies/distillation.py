"""Which affine map is closest to a network? Distilled maps of generalising and memorising networks beside the Gaussian's.

On noisy images of its own data, the closest affine map of any good denoiser is the Gaussian denoiser, whatever else it does
with them. So every number stands beside that of the multi-delta denoiser, which only retrieves training images, and of
Gaussian surrogates; memorising and generalising part on held-out images.
"""

import math
from typing import Any

from ...report import Axis, Figure
from .. import axes
from ..claims.evidence import Evidence, MissingError, Number, greatest, least, mean, mean_at
from ..claims.findings import Finding, bound, claim, control, controls, pixel_scale, statistic, unit_words
from ..claims.inference import Real
from ..claims.thresholds import HIGH_NOISE, LOW_NOISE, POSITIVE, SIGN, Threshold
from ..figures import Curves, Line, Tags, about, level, sigma_label
from ..figures import controls as control_lines
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
_OF_TRAIN = "gaussian of train"
_CALLS = 10  # for each dimension: with fewer, the fit's own error hides what is compared
# The paper excepts its largest and its smallest level, 80 and 0.002.
_LEAST_SIGMA, _GREATEST_SIGMA = 0.01, 60.0
_AUTOMATIC = (
    "almost automatic: the best affine fit of any good denoiser, on noisy images of its own data, is the Gaussian one; "
    "compare the controls"
)

_GAP = Threshold("the paper, Fig. 2", below=0.05, possible=POSITIVE)
_WEIGHT_ERROR = Threshold("the paper, Fig. 4", below=0.2)
_ALIGNED = Threshold("our choice: four fifths of what two halves of the images agree on", above=0.8)
_HELD_OUT = Threshold(SIGN + " in Fig. 5", above=0.0)
_TRAIN = Threshold("our choice: the perturbation that a fit must be able to see", below=0.1)
RESIDUAL = Threshold("our choice: rounding in float64, with a margin", below=1e-10)


@claim("C6", "The linear fit of a generalising network is close to the Gaussian denoiser.")
def c6(evidence: Evidence) -> Finding:
    """max RMSE(L, G) over all σ, L the unshrunk fit; on held-out images, at the largest N."""
    fits = evidence.where(study="distillation", quantity="rmse", denoiser="linear", reference="gaussian", shrunk=False)

    def worst(records: Evidence) -> Number:
        return records.where(n=max(fits.by("n"))).greatest() / pixel_scale(evidence)

    said = f"largest RMSE(L, G), unshrunk{unit_words(evidence)}"
    judged = statistic(said, _GAP, fits.where(on="held_out", of=(None, "network")), worst)
    beside = {
        "the same for the multi-delta denoiser": fits.where(on="held_out", of="multidelta"),
        "the same on Gaussian surrogates": fits.where(on="surrogate", of=(None, "network")),
    }
    return Finding((judged,), controls(worst, beside, POSITIVE), _AUTOMATIC)


@claim("C8", "The matrix of the linear fit is close to the Gaussian's.")
def c8(evidence: Evidence) -> Finding:
    """max over σ, the largest and the smallest excepted, of weight error − its floor; on held-out images, at the largest N.

    Errors are against the Gaussian of the training images, of fits without shrinkage with enough calls (`count`).
    """
    studied = evidence.where(study="distillation")

    def worst(records: Evidence) -> Number:
        return greatest(_excess(records.where(n=max(studied.by("n"))), evidence).values())

    named = _kinds(studied)
    judged = statistic("largest weight error minus its floor", _WEIGHT_ERROR, named.pop(""), worst)
    return Finding((judged,), controls(worst, named), _AUTOMATIC)


@claim("C9", "The leading singular vectors of the linear fit are the principal components.")
def c9(evidence: Evidence) -> Finding:
    """(overlap − chance)/(ceiling − chance), mean over k, the least over σ ≥ 0.1; on held-out images, at the largest N.

    Leading subspaces are cut where the Gaussian's gains are apart (`separated`), and where they pass ½ (`passed`): at low
    noise the first hundreds are all nearly 1, and what a denoiser keeps is told from what it removes by the subspace of
    all that pass.
    """
    studied = evidence.where(study="distillation").at(LOW_NOISE)

    def worst(records: Evidence) -> Number:
        levels = records.where(n=max(studied.by("n"))).by("sigma").values()
        shares = [share for share in map(_aligned, levels) if share is not None]
        if not shares:
            raise MissingError("no subspace whose ceiling is above chance")
        return least(shares)

    named = _kinds(studied)
    del named["the same for the multi-delta denoiser, training images"]
    judged = statistic("least overlap, as a share of the ceiling", _ALIGNED, named.pop(""), worst)
    return Finding((judged,), controls(worst, named), _AUTOMATIC)


def _kinds(studied: Evidence) -> dict[str, Evidence]:
    """What is judged, and the controls beside it."""
    kinds = {
        "": ("held_out", "network"),
        "the same on training images": ("train", "network"),
        "the same for the multi-delta denoiser": ("held_out", "multidelta"),
        "the same for the multi-delta denoiser, training images": ("train", "multidelta"),
        "the same on Gaussian surrogates": ("surrogate", "network"),
    }
    return {name: studied.where(on=on, denoiser=denoiser) for name, (on, denoiser) in kinds.items()}


@claim("C10", "A memorising network is described less well by linear and Gaussian denoisers.")
def c10(evidence: Evidence) -> Finding:
    """Weight error and FVU, smallest minus largest N, mean over 0.1 ≤ σ ≤ 20, held-out; the former on training images."""
    studied = evidence.where(study="distillation", denoiser="network").at(LOW_NOISE, HIGH_NOISE)
    held_out, train = studied.where(on="held_out"), studied.where(on="train")

    def ends(records: Evidence) -> tuple[Evidence, Evidence]:
        found = studied.by("n")
        if len(found) < 2:
            raise MissingError("a memorising and a generalising model are needed, 1 size found")
        return records.where(n=min(found)), records.where(n=max(found))

    def weight(records: Evidence, reference: str = _OF_TRAIN) -> Number:
        small, large = (mean(_excess(end, evidence, reference).values()) for end in ends(records))
        return small - large

    def unexplained(records: Evidence) -> Number:
        small, large = (end.where(quantity="fvu").mean() for end in ends(records))
        return small - large

    def orthogonality(records: Evidence) -> Number:
        small, _ = ends(records)
        floor = small.where(quantity="weight_error_floor").mean()
        if floor.value > _TRAIN.level:
            raise MissingError(f"errors of {_TRAIN.level:g} cannot be seen by a fit whose own is {floor.value:.2g}")
        return mean(_excess(small, evidence).values())

    return Finding(
        (
            statistic("weight error, memorising minus generalising", _HELD_OUT, held_out, weight),
            statistic("FVU, memorising minus generalising", _HELD_OUT, held_out, unexplained),
            statistic("weight error on training images, memorising", _TRAIN, train, orthogonality),
        ),
        # W_G of few images has a low rank, from which every denoiser is far at low noise.
        control(
            "weight error against the Gaussian of held-out images, memorising minus generalising",
            *(held_out, lambda r: weight(r, "gaussian of held_out")),
        ),
    )


def _excess(records: Evidence, evidence: Evidence, reference: str = _OF_TRAIN) -> dict[Real, Number]:
    """Weight error minus its floor at each noise level."""
    dim = evidence.where(quantity="dim").one().value
    errors = records.where(quantity="weight_error", reference=reference).at(_LEAST_SIGMA, _GREATEST_SIGMA)
    curve = errors.curve()
    floor = records.where(quantity="weight_error_floor").curve()
    for number in curve.values():
        if number.count is None or number.count < _CALLS * dim:
            raise MissingError(f"{_CALLS * dim:.0f} calls are needed for an unshrunk fit, {number.count} were made")
    return {sigma: number - mean_at(floor, [sigma]) for sigma, number in curve.items()}


def _aligned(records: Evidence) -> Number | None:
    """How far between chance and ceiling at one noise level, mean over subspaces where they differ; None without any."""
    cuts = Evidence(r for r in records.records if r.get("separated") is not False or r.get("passed"))
    found = [cuts.where(quantity=quantity) for quantity in ("overlap", "overlap_chance", "overlap_ceiling")]
    if not all(map(len, found)):
        return None
    overlap, chance, ceiling = (one.over("k") for one in found)
    shares = [
        (overlap[k] - chance[k]) / (ceiling[k] - chance[k])
        for k in overlap
        if k in chance and k in ceiling and ceiling[k].value - chance[k].value > 0.1
    ]
    return mean(shares) if shares else None


@claim("C21", "The best linear denoiser is the Wiener filter, and gradient descent finds it.")
def c21(evidence: Evidence) -> Finding:
    """The theorem's residuals, in any study: algebra, so neither images nor seeds count."""
    return Finding((bound("largest relative residual", RESIDUAL, evidence.where(quantity="theorem_residual")),))


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


def figures(findings: Findings) -> list[Curves | Figure | None]:
    """Figs. 4, 5, 14 and 22 of the paper, and the theorem."""
    return [
        *_weights(findings),
        *_subspaces(findings),
        *_regimes(findings.plan),
        *draw_pictures(findings),
        Curves(
            title="The theorem",
            caption="Relative distance to the Wiener filter, √(E‖D − D_G‖²/E‖D_G‖²) over noisy images, of the affine "
            "map that minimises the denoising loss, from its normal equations, and of where gradient descent from zero "
            "ends; for the moments of these images, shrunk to at most 64 dimensions. Left out are levels at which "
            "gradient descent would take more than 20,000 steps.",
            **about("C21"),
            y=Axis("relative distance", log=True),
            where=Tags(quantity="theorem_residual"),
            lines=(Line(str, by="kind"),),
            levels=(level(RESIDUAL, "bound"),),
        ),
    ]


def _weights(findings: Findings) -> list[Curves]:
    plan = findings.plan
    by_adam = findings.evidence.where(method="adam", quantity="weight_error")
    last = [group.records[-1]["epoch"] for group in by_adam.by("sigma").values()] if len(by_adam) else [0]
    images = by_adam.records[0]["count"] if len(by_adam) else 0
    closed, held_out = Tags(method=None, n=plan.sizes[-1]), Tags(on="held_out", denoiser="network")
    own = Tags(**closed, **held_out, seed=plan.seed(plan.shown))
    return [
        Curves(
            title="How far the matrix of the linear map is from the Gaussian's",
            caption="The affine map closest to a network on the most training images, by least squares without "
            "shrinkage from ten calls for each dimension, against the Wiener filter W_G of the training images. A fit "
            "of finitely many calls has about the floor as its error where the network is the Wiener filter, and C8 "
            "judges what is above it. The multi-delta denoiser only retrieves training images, and must be near W_G on "
            "them all the same: a small error there says little about how a denoiser works. Where a network's error is "
            "far above the floor and the control's is not, the network is not a good denoiser at that level.",
            **about(4, "C8"),
            y=_ERROR,
            where=closed,
            lines=(
                *_by_images("network, ", quantity="weight_error", reference=_OF_TRAIN),
                Line("floor of the fit", dashed=True, quantity="weight_error_floor", **held_out),
            ),
            levels=(level(_WEIGHT_ERROR, "the paper's bound"),),
        ),
        Curves(
            title="Weight error while Adam learns the map",
            caption=f"The paper's way to distil, {max(last)} epochs over {images} held-out images in batches of 256, "
            "fresh noise in each, from W = 0; against the Gaussian of the same images. The step size at each noise "
            "level is such that the largest weight of the Gaussian could be reached three times over. Network on the "
            "most images, one training.",
            **about(4, 22, "C8"),
            y=_ERROR,
            x=axes.EPOCH,
            where=Tags(method="adam", quantity="weight_error"),
            lines=(Line(sigma_label, by="sigma"),),
        ),
        Curves(
            title="Where Adam ends, and least squares",
            caption="The last epoch of the figure before, and the closed form of the same network on the same images, "
            "with the floor of the latter. Where Adam has not converged, its distance from the Gaussian is its own, "
            "not the network's.",
            **about(22, "C8"),
            y=_ERROR,
            lines=(Line("Adam, last epoch", method="adam", quantity="weight_error", epoch=max(last)),),
            beside=(
                Line("least squares", quantity="weight_error", reference="gaussian of held_out", **own),
                Line("floor of least squares", dashed=True, quantity="weight_error_floor", **own),
            ),
        ),
    ]


def _subspaces(findings: Findings) -> list[Curves]:
    large, small = (Tags(method=None, n=findings.plan.sizes[place]) for place in (-1, 0))
    overlap = findings.evidence.where(**large, quantity="overlap")
    k = max((r["k"] for r in overlap.records if r["k"] <= _SUBSPACE), default=0)
    held_out = Tags(on="held_out", denoiser="network")
    return [
        Curves(
            title=f"Overlap of the {k} leading singular vectors with the principal components",
            caption="‖U_WᵀU‖²/k of subspaces, which near-equal eigenvalues do not disturb within them; 1 if they are "
            "the same. The ceiling is what two halves of the training images agree on, chance what unrelated subspaces "
            "do. At the lowest noise all gains of the Gaussian are nearly 1 and no subspace leads.",
            **about(4, "C9"),
            y=axes.OVERLAP,
            where=Tags(**large, k=k),
            lines=(
                *_by_images("network, ", quantity="overlap"),
                *(Line(name, dashed=True, quantity=f"overlap_{name}", **held_out) for name in ("ceiling", "chance")),
            ),
        ),
        Curves(
            title="How symmetric the matrix is",
            caption="The Wiener filter is symmetric. A least-squares fit of finitely many calls is not, quite: compare "
            "the surrogates.",
            **about(14, "C9"),
            y=_ASYMMETRY,
            where=Tags(quantity="asymmetry"),
            lines=(
                *_by_images("most images, ", **large),
                *(Line(f"fewest images, {on}", on=tag, denoiser="network", **small) for tag, on in _IMAGES.items()),
            ),
        ),
        Curves(
            title="How symmetric the matrix becomes while Adam learns it",
            caption="As in the figure of the weight error by epoch. It starts at W = 0; a matrix of independent "
            "entries has √2.",
            **about(14, "C9"),
            x=axes.EPOCH,
            y=_ASYMMETRY,
            where=Tags(method="adam", quantity="asymmetry"),
            lines=(Line(sigma_label, by="sigma"),),
        ),
    ]


def _regimes(plan: Plan) -> list[Curves]:
    """Memorising against generalising."""
    most, fewest = ((f"N = {plan.sizes[place]:,}", plan.sizes[place], place == 0) for place in (-1, 0))
    linear = Tags(denoiser="linear", reference="gaussian")
    pairs = {
        "G–θ": Tags(denoiser="network", reference="gaussian"),
        "L–θ": Tags(denoiser="network", reference="linear"),
        "L–G": Tags(**linear, of="network"),
    }

    def of_both_sizes(on: dict[str, str]) -> list[Line]:
        """A line for the most and, broken, for the fewest images, and of the denoiser that retrieves the fewest."""
        return [
            *(
                Line(f"{name}, {words}", dashed=few, n=n, denoiser="network", on=tag)
                for name, n, few in (most, fewest)
                for tag, words in on.items()
            ),
            *(
                line
                for tag, words in _IMAGES.items()
                for line in control_lines("multidelta", called=f", {fewest[0]}, {words}", n=fewest[1], on=tag)
            ),
        ]

    words = (
        "G, L and θ are the Gaussian of the training images, the unshrunk linear map and the network: of the most "
        "images, and (dashed) of the fewest, with L–G of the multi-delta denoiser of these as control where it was "
        "distilled, "
    )
    return [
        *(
            Curves(
                title=f"Linear, Gaussian and network{also}: most and fewest images",
                caption=words + caption,
                **about(5, "C6", "C10"),
                where=Tags(method=None, quantity="rmse", on=on),
                lines=(
                    *(
                        Line(f"{pair}, {name}", dashed=few, n=n, **tags)
                        for name, n, few in (most, fewest)
                        for pair, tags in pairs.items()
                    ),
                    Line(f"control: L–G of multi-delta, {fewest[0]}", n=fewest[1], of="multidelta", **linear),
                ),
            )
            for also, on, caption in (
                ("", "held_out", "on held-out images, which the map was also distilled on, with other noise."),
                (
                    *(" on training images", "train"),
                    "on training images. Here L is near G for any good denoiser, also for one that memorises: what "
                    "parts the two is the figure before.",
                ),
            )
        ),
        Curves(
            title="Linear map against Gaussian, by images",
            caption="RMSE between the unshrunk linear map and the Gaussian of the most images: of the network and, "
            "where it was distilled, of the multi-delta denoiser as a control, on the images named.",
            **about(5, "C6"),
            where=Tags(method=None, n=most[1], quantity="rmse", **linear, shrunk=False),
            lines=_by_images("of the network, ", tag="of"),
        ),
        Curves(
            title="What no affine map explains",
            caption="Fraction of the network's variance that its closest affine map leaves unexplained, on new noise: "
            "with the most images and (dashed) with the fewest, and, where it was distilled, of the multi-delta "
            "denoiser of the latter as control.",
            **about(5, "C10"),
            y=Axis("FVU", bounds=(0.0, math.inf)),
            where=Tags(method=None, quantity="fvu"),
            lines=of_both_sizes(_ON),
        ),
        Curves(
            title="Weight error: most and fewest images",
            caption="Distance of the linear map's matrix from the Wiener filter of the network's training images. A "
            "network that retrieves its training images has a small one on noisy training images, as an exact "
            "posterior mean must, and may have a large one on held-out images; so has, where it was distilled, the "
            "multi-delta denoiser of the fewest images, the control.",
            **about(5, "C10"),
            y=_ERROR,
            where=Tags(method=None, quantity="weight_error", reference=_OF_TRAIN),
            lines=of_both_sizes(_IMAGES),
        ),
    ]


def _by_images(prefix: str, *, tag: str = "denoiser", **tags: Any) -> list[Line]:
    """A line for each set of images: the network's, and those of the control that retrieves."""
    kinds = ((prefix, "network", _ON), ("control: multi-delta, ", "multidelta", _IMAGES))
    return [
        Line(name + words, **Tags(**tags, on=on, **{tag: denoiser}))
        for name, denoiser, images in kinds
        for on, words in images.items()
    ]


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
    parts=parts,
    drawings=figures,
    judges=(c6, c8, c9, c10, c21),
)
