"""Distillation, the affine map closest to a network: claims C6, C8, C9, C10; figures 4, 5, 14, 22.

On noisy images of its own data, the closest affine map of any good denoiser is the Gaussian denoiser, whatever else it does
with them. So every number stands beside that of the multi-delta denoiser, which only retrieves training images, and of
Gaussian surrogates; memorising and generalising part on held-out images.
"""

from typing import Any

import numpy as np

from ...noise import karras_sigmas
from ...report import Axis, CurveFigure, ImageGrid, Series
from .. import axes
from ..claims.claim import (
    HIGH_NOISE,
    LOW_NOISE,
    POSITIVE,
    Finding,
    Threshold,
    claim,
    control,
    controls,
    statistic,
    unit_words,
)
from ..claims.comparisons import ends, first_minus_last, in_pixels, largest, positive
from ..claims.evidence import Evidence, Measure, MissingError, Number, greatest, least, mean, mean_at
from ..figures import Curves, Drawing, Line, about, images_label, sigma_label
from ..pictures import close_up_grid, close_ups, correlation_maps
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task
from ..tasks.distillation import adam_distillation_task, distillation_task, is_large
from ..tasks.theorem import theorem_task
from .theorem import THEOREM, c21

SHOWN_SIGMA = karras_sigmas(10)[4].item()
"""The level, near σ = 4, at which outputs are shown."""

_ERROR = axes.quantity("weight_error", "weight error ‖W − W_G‖/‖W_G‖", log=True)
_ASYMMETRY = axes.quantity("asymmetry", "‖W − Wᵀ‖/‖W‖", bounds=axes.POSITIVE)
_SUBSPACE = 10  # dimensions of the subspace whose overlap is drawn
_SPECTRA = (42.4, 9.72, 4.07, 0.47)  # noise levels, or those nearest to them, at which singular values are drawn
_LEAST_GAIN = 1e-5  # of the largest; what is below is not drawn
_ROW = 5  # singular vectors side by side
_ON = {"held_out": "held-out images", "train": "training images", "surrogate": "Gaussian surrogates"}
_IMAGES = {on: _ON[on] for on in ("held_out", "train")}  # what a denoiser that retrieves has to do with
_OF_TRAIN = "gaussian of train"
_CALLS = 10  # for each dimension: with fewer, the fit's own error hides what is compared
_INNER_LEVELS = (0.01, 60.0)  # the paper excepts its largest and its smallest level, 80 and 0.002
_AUTOMATIC = (
    "almost automatic: the best affine fit of any good denoiser, on noisy images of its own data, is the Gaussian one; "
    "compare the controls"
)

_GAP = Threshold("the paper, Fig. 2", below=0.05, possible=POSITIVE)
_WEIGHT_ERROR = Threshold("the paper, Fig. 4", below=0.2)
_ALIGNED = Threshold("our choice: four fifths of what two halves of the images agree on", above=0.8)
_TRAIN = Threshold("our choice: the perturbation that a fit must be able to see", below=0.1)


@claim("C6", "The linear fit of a generalising network is close to the Gaussian denoiser.")
def c6(evidence: Evidence) -> Finding:
    """max RMSE(L, G) over all σ, L the unshrunk fit; on held-out images, at the largest N."""
    fits = evidence.where(study="distillation", quantity="rmse", denoiser="linear", reference="gaussian", shrunk=False)
    fits = fits.where(n=largest(fits))
    of_network, worst = fits.where(of=(None, "network")), in_pixels(Evidence.greatest, evidence)
    said = f"largest RMSE(L, G), unshrunk{unit_words(evidence)}"
    beside = {
        "the same for the multi-delta denoiser": fits.where(on="held_out", of="multidelta"),
        "the same on Gaussian surrogates": of_network.where(on="surrogate"),
    }
    judged = statistic(said, _GAP, of_network.where(on="held_out"), worst)
    return Finding((judged,), controls(worst, beside, POSITIVE), _AUTOMATIC)


@claim("C8", "The matrix of the linear fit is close to the Gaussian's.")
def c8(evidence: Evidence) -> Finding:
    """max over σ, the largest and the smallest excepted, of weight error − its floor; on held-out images, at the largest N.

    Errors are against the Gaussian of the training images, of fits without shrinkage with enough calls (`count`).
    """
    judged, beside = _judged_and_beside(evidence)

    def worst(records: Evidence) -> Number:
        return greatest(_excess(records, evidence).values())

    found = statistic("largest weight error minus its floor", _WEIGHT_ERROR, judged, worst)
    return Finding((found,), controls(worst, beside), _AUTOMATIC)


@claim("C9", "The leading singular vectors of the linear fit are the principal components.")
def c9(evidence: Evidence) -> Finding:
    """(overlap − chance)/(ceiling − chance), mean over k, the lowest over σ ≥ 0.1; on held-out images, at the largest N.

    Leading subspaces are cut where the Gaussian's gains are apart (`separated`), and where they pass ½ (`passed`): at low
    noise the first hundreds are all nearly 1, and what a denoiser keeps is told from what it removes by the subspace of
    all that pass.
    """
    judged, beside = _judged_and_beside(evidence)
    del beside["the same for the multi-delta denoiser, training images"]

    def worst(records: Evidence) -> Number:
        shares = [share for level in records.at(LOW_NOISE).by("sigma").values() for share in _aligned(level)]
        if not shares:
            raise MissingError("no subspace whose ceiling is above chance")
        return least(shares)

    found = statistic("lowest overlap, as a share of the ceiling", _ALIGNED, judged, worst)
    return Finding((found,), controls(worst, beside), _AUTOMATIC)


def _judged_and_beside(evidence: Evidence) -> tuple[Evidence, dict[str, Evidence]]:
    """The maps that are judged, at the largest N, and the controls beside them."""
    studied = evidence.where(study="distillation")
    found = {
        name: studied.where(n=largest(studied), on=on, denoiser=denoiser)
        for name, on, denoiser in (
            ("judged", "held_out", "network"),
            ("the same on training images", "train", "network"),
            ("the same for the multi-delta denoiser", "held_out", "multidelta"),
            ("the same for the multi-delta denoiser, training images", "train", "multidelta"),
            ("the same on Gaussian surrogates", "surrogate", "network"),
        )
    }
    return found.pop("judged"), found


@claim("C10", "Linear and Gaussian denoisers describe a memorising network less well than a generalising one.")
def c10(evidence: Evidence) -> Finding:
    """Weight error and FVU, smallest minus largest N, mean over 0.1 ≤ σ ≤ 20, held-out; the former on training images."""
    studied = evidence.where(study="distillation", denoiser="network").at(LOW_NOISE, HIGH_NOISE)
    held_out, train = studied.where(on="held_out"), studied.where(on="train")

    def weight(reference: str = _OF_TRAIN) -> Measure:
        return first_minus_last("n", lambda r: mean(_excess(r, evidence, reference).values()), studied)

    unexplained = first_minus_last("n", lambda r: r.where(quantity="fvu").mean(), studied)

    def orthogonality(records: Evidence) -> Number:
        small, _ = ends(records, "n", studied)
        floor = small.where(quantity="weight_error_floor").mean()
        if floor.value > _TRAIN.level:
            raise MissingError(f"errors of {_TRAIN.level:g} cannot be seen by a fit whose own is {floor.value:.2g}")
        return mean(_excess(small, evidence).values())

    # W_G of few images has a low rank, from which every denoiser is far at low noise.
    beside = "weight error against the Gaussian of held-out images, memorising minus generalising"
    return Finding(
        (
            statistic("weight error, memorising minus generalising", positive("Fig. 5"), held_out, weight()),
            statistic("FVU, memorising minus generalising", positive("Fig. 5"), held_out, unexplained),
            statistic("weight error on training images, memorising", _TRAIN, train, orthogonality),
        ),
        control(beside, held_out, weight("gaussian of held_out")),
    )


def _excess(records: Evidence, evidence: Evidence, reference: str = _OF_TRAIN) -> dict[float, Number]:
    """Weight error minus its floor at each noise level."""
    dim = evidence.where(quantity="dim").one().value
    curve = records.where(**_ERROR.tags, reference=reference).at(*_INNER_LEVELS).curve()
    floor = records.where(quantity="weight_error_floor").curve()
    for number in curve.values():
        if number.count is None or number.count < _CALLS * dim:
            raise MissingError(f"{_CALLS * dim:.0f} calls are needed for an unshrunk fit, {number.count} were made")
    return {sigma: number - mean_at(floor, [sigma]) for sigma, number in curve.items()}


def _aligned(records: Evidence) -> list[Number]:
    """How far between chance and ceiling at one noise level, mean over subspaces where they differ; none without any."""
    cuts = Evidence(r for r in records.records if r.get("separated") is not False or r.get("passed"))
    found = [cuts.where(quantity=quantity) for quantity in ("overlap", "overlap_chance", "overlap_ceiling")]
    overlap, chance, ceiling = (one.over("k") if len(one) else {} for one in found)
    shares = [
        (overlap[k] - chance[k]) / (ceiling[k] - chance[k])
        for k in overlap
        if k in chance and k in ceiling and ceiling[k].value - chance[k].value > 0.1
    ]
    return [mean(shares)] if shares else []


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
        found += close_ups(
            plan,
            plan.model(n, plan.shown),
            images_label(n),
            denoisers=("network", "gaussian"),
            sigmas=(SHOWN_SIGMA,),
            pictures=3,
        )
    return found


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 4, 5, 14 and 22 of the paper, and the theorem."""
    return [*_maps(findings), *_regimes(findings.plan), *_pictures(findings), THEOREM]


def _maps(findings: Findings) -> list[Curves]:
    """Figs. 4, 14 and 22: the map of the network trained on the most images."""
    plan, evidence = findings.plan, findings.evidence
    large, small = (axes.Tags(method=None, n=n) for n in (plan.sizes[-1], plan.sizes[0]))
    held_out = axes.Tags(on="held_out", denoiser="network")
    own = axes.Tags(**large, **held_out, seed=plan.seed(plan.shown))
    by_adam = evidence.where(method="adam", **_ERROR.tags)
    epochs = largest(by_adam, "epoch")
    ks = [record["k"] for record in evidence.where(**large, quantity="overlap").records]
    k = max((k for k in ks if k <= _SUBSPACE), default=0)
    return [
        Curves(
            title="How far the matrix of the linear map is from the Gaussian's",
            caption="The affine map closest to a network trained on the most images, by least squares without shrinkage "
            "from ten calls for each dimension, against the Wiener filter W_G of the training images. The floor is the "
            "error of such a fit of the Wiener filter itself; C8 judges what is above it. A small error says little: the "
            "multi-delta denoiser, which only retrieves training images, must be near W_G on them as well. Where the "
            "network's error is far above the floor and the control's is not, the network is not a good denoiser.",
            **about(4, "C8"),
            of=_ERROR.where(**large).against(_WEIGHT_ERROR, "the paper's bound"),
            lines=(
                *_by_images("network", reference=_OF_TRAIN),
                *_retrieval("control: multi-delta", reference=_OF_TRAIN),
                Line("floor of the fit", dashed=True, quantity="weight_error_floor", **held_out),
            ),
        ),
        Curves(
            title="Weight error while Adam learns the map",
            caption=f"The paper's way to distil, {epochs} epochs over {largest(by_adam, 'count')} held-out images in "
            "batches of 256, fresh noise in each, from W = 0; against the Gaussian of the same images. The step size at "
            "each noise level is such that the largest weight of the Gaussian could be reached three times over. Network "
            "trained on the most images, one training.",
            **about(4, 22, "C8"),
            of=_ERROR.by(axes.EPOCH).where(method="adam"),
            lines=(Line(sigma_label, by="sigma"),),
        ),
        Curves(
            title="Where Adam ends, and least squares",
            caption="The last epoch of the figure before, and the closed form of the same network on the same images, "
            "with its floor. Where Adam has not converged, its distance from the Gaussian is its own, not the network's.",
            **about(22, "C8"),
            of=_ERROR,
            lines=(
                Line("Adam, last epoch", method="adam", epoch=epochs),
                Line("least squares", reference="gaussian of held_out", **own),
                Line("floor of least squares", dashed=True, quantity="weight_error_floor", **own),
            )
            if len(by_adam)
            else (),
        ),
        Curves(
            title=f"Overlap of the {k} leading singular vectors with the principal components",
            caption="‖U_WᵀU‖²/k of subspaces, which near-equal eigenvalues do not disturb within them; 1 if they are "
            "the same. The ceiling is what two halves of the training images agree on, chance what unrelated subspaces "
            "do. At the lowest noise all gains of the Gaussian are nearly 1 and no subspace leads.",
            **about(4, "C9"),
            of=axes.quantity("overlap", "overlap", bounds=axes.SHARE).where(**large, k=k),
            lines=(
                *_by_images("network"),
                *_retrieval("control: multi-delta"),
                Line("ceiling", dashed=True, quantity="overlap_ceiling", **held_out),
                Line("chance", dashed=True, quantity="overlap_chance", **held_out),
            ),
        ),
        Curves(
            title="How symmetric the matrix is",
            caption="0 for a symmetric matrix, as the Wiener filter is. A least-squares fit of finitely many calls "
            "is not quite symmetric: the surrogates show by how much.",
            **about(14, "C9"),
            of=_ASYMMETRY,
            lines=(
                *_by_images("most images", **large),
                *_retrieval("control: multi-delta", **large),
                *_by_images("fewest images", _IMAGES, **small),
            ),
        ),
        Curves(
            title="How symmetric the matrix becomes while Adam learns it",
            caption="As in the figure of the weight error by epoch. It starts at W = 0; a matrix of independent "
            "entries has √2.",
            **about(14, "C9"),
            of=_ASYMMETRY.by(axes.EPOCH).where(method="adam"),
            lines=(Line(sigma_label, by="sigma"),),
        ),
    ]


def _regimes(plan: Plan) -> list[Curves]:
    """Fig. 5: memorising against generalising."""
    most, fewest = plan.sizes[-1], plan.sizes[0]
    linear = axes.Tags(denoiser="linear", reference="gaussian")
    pairs = [
        Line(f"{pair}, {images_label(n)}", dashed=n == fewest, n=n, **tags)
        for n in (most, fewest)
        for pair, tags in (
            ("G–θ", axes.Tags(denoiser="network", reference="gaussian")),
            ("L–θ", axes.Tags(denoiser="network", reference="linear")),
            ("L–G", axes.Tags(**linear, of="network")),
        )
    ]
    memory = f"control: multi-delta, {images_label(fewest)}"
    distilled = (
        "Solid: the network trained on the most images; dashed: on the fewest. Control, where it was distilled: the "
        "multi-delta denoiser of the fewest."
    )

    def of_both_sizes(images: dict[str, str]) -> list[Line]:
        return [
            *_by_images(images_label(most), images, n=most),
            *_by_images(images_label(fewest), images, n=fewest, dashed=True),
            *_retrieval(memory, n=fewest),
        ]

    return [
        *(
            Curves(
                title=f"Linear, Gaussian and network{also}: most and fewest images",
                caption="RMSE between G, L and θ: the Gaussian of the training images, the unshrunk linear map and the "
                f"network. {distilled} {caption}",
                **about(5, "C6", "C10"),
                of=axes.RMSE.where(method=None, on=on),
                lines=(
                    *pairs,
                    Line(memory.replace("control:", "control: L–G of"), n=fewest, of="multidelta", **linear),
                ),
            )
            for also, on, caption in (
                ("", "held_out", "On held-out images, which the map was also distilled on, with other noise."),
                (
                    *(" on training images", "train"),
                    "On training images L is near G for any good denoiser, also for one that memorises: the figure "
                    "before separates the two.",
                ),
            )
        ),
        Curves(
            title="Linear map against Gaussian, by images",
            caption="RMSE between the unshrunk linear map and the Gaussian of the most images: of the network and, "
            "where it was distilled, of the multi-delta denoiser as a control, on the images named.",
            **about(5, "C6"),
            of=axes.RMSE.where(method=None, n=most, **linear, shrunk=False),
            lines=(*_by_images("of the network", tag="of"), *_retrieval("control: multi-delta", tag="of")),
        ),
        Curves(
            title="What no affine map explains",
            caption=f"Fraction of variance that the closest affine map leaves unexplained, on new noise. {distilled}",
            **about(5, "C10"),
            of=axes.quantity("fvu", "FVU", bounds=axes.POSITIVE, method=None),
            lines=of_both_sizes(_ON),
        ),
        Curves(
            title="Weight error: most and fewest images",
            caption=f"Distance of the linear map's matrix from the Wiener filter of the training images. {distilled} A "
            "network that retrieves its training images has a small one on noisy training images, as an exact posterior "
            "mean must, and may have a large one on held-out images.",
            **about(5, "C10"),
            of=_ERROR.where(method=None, reference=_OF_TRAIN),
            lines=of_both_sizes(_IMAGES),
        ),
    ]


def _by_images(
    name: str, images: dict[str, str] = _ON, *, denoiser: str = "network", tag: str = "denoiser", **tags: Any
) -> list[Line]:
    """A line for each set of images."""
    return [Line(f"{name}, {words}", **{**tags, "on": on, tag: denoiser}) for on, words in images.items()]


def _retrieval(name: str, **tags: Any) -> list[Line]:
    """The same of the denoiser that retrieves training images, which has nothing to do with surrogates."""
    return _by_images(name, _IMAGES, denoiser="multidelta", **tags)


def _pictures(findings: Findings) -> list[Drawing]:
    plan = findings.plan
    key = f"distilled {plan.sizes[-1]}, seed {plan.shown}"
    sizes = [images_label(n) for n in reversed(plan.sizes)]
    return [
        correlation_maps(
            findings,
            key,
            "of the unshrunk linear map of the network trained on the most images, distilled on held-out images, and "
            "the principal components of the training images. A diagonal means the same directions; blocks on it, the "
            "same subspaces of near-equal eigenvalues.",
            title="Singular vectors of the linear map against principal components",
            **about(4, "C9"),
        ),
        _spectra(findings, key),
        _vectors(findings, key),
        close_up_grid(
            findings,
            [(f"Gaussian, {sizes[0]}", sizes[0], "gaussian"), *((f"network, {n}", n, "network") for n in sizes)],
            SHOWN_SIGMA,
            noise=True,
            sigmas=(SHOWN_SIGMA,),
            title=f"Outputs at {sigma_label(SHOWN_SIGMA)}, by number of training images",
            caption="What the Gaussian of the most images and networks trained on more or fewer images make of noise "
            "alone, ε, and of noisy held-out images y. A network that memorises answers with something like a training "
            "image also where there is no image. Inputs are shown with less contrast.",
            **about(5, "C10"),
        ),
    ]


def _spectra(findings: Findings, key: str) -> Drawing:
    found, gains = findings.array(key, "singular_values"), findings.array(key, "gains")
    if found is None:
        return None
    sigmas, series = findings.array(key, "sigmas"), []
    index = np.arange(1, found.shape[1] + 1)
    for place in dict.fromkeys(int(np.abs(np.log(sigmas / sigma)).argmin()) for sigma in _SPECTRA):
        name, gain = sigma_label(float(sigmas[place])), gains[place]
        seen = np.where(gain > _LEAST_GAIN * gain.max(), gain, np.nan)
        series.append(Series(f"linear, {name}", index, found[place], markers=False))
        series.append(Series(f"Gaussian, {name}", index, seen, dashed=True, markers=False))
    return CurveFigure(
        title="Singular values of the linear map and of the Gaussian",
        caption="Of the same map, and the gains λ/(λ+σ²) of the Wiener filter (dashed), as long as they are more than "
        "1e-5 of the largest. One training, held-out images.",
        **about(14, "C9"),
        x=Axis("index", log=True),
        y=Axis("singular value", log=True),
        series=tuple(series),
    )


def _vectors(findings: Findings, key: str) -> Drawing:
    vectors, components = findings.array(key, "vectors"), findings.array(key, "components")
    if vectors is None:
        return None
    width = min(_ROW, len(vectors))
    rows = {
        f"{name}, {start + 1} to {start + width}": images[start : start + width]
        for start in range(0, len(vectors) - width + 1, width)
        for name, images in (("linear", vectors), ("Gaussian", components))
    }
    return ImageGrid(
        title="Singular vectors of the linear map and of the Gaussian, as images",
        caption=f"The first {len(rows) // 2 * width} at {sigma_label(SHOWN_SIGMA)}: left singular vectors of the linear "
        "map of the network trained on the most images, and below them the principal components of its training images. "
        "Zero is grey. Vectors of near-equal singular values are determined only up to rotation among themselves.",
        **about(14, "C9"),
        rows=tuple(rows),
        columns=tuple(f"place {place + 1}" for place in range(width)),
        images=np.stack([*rows.values()]),
        training=False,
    )


STUDY = Study(
    name="distillation",
    title="Is its closest linear map the Gaussian's?",
    question="At each noise level, the affine map that is closest to a network is found by least squares and put "
    "beside the Wiener filter of the training images: weights, singular vectors and values, outputs. \n\nMuch of this "
    "is almost automatic. For any law of images, the best affine fit of the exact posterior mean, on noisy images of "
    "that law, is the Wiener filter, also if the denoiser only retrieves training images. So the controls come first, "
    "and held-out images: there a network that memorises need not be near its Gaussian. Last, the theorem behind it is "
    "checked on the moments of these images.",
    figures=(4, 5, 14, 22),
    parts=parts,
    drawings=figures,
    judges=(c6, c8, c9, c10, c21),
)
