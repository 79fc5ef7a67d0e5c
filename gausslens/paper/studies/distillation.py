"""Is its closest linear map the Gaussian's?

At each noise level, the affine map closest to a network is found by least squares and compared with the Wiener filter of
the training images: weights, singular vectors and values, outputs.

Much of the agreement is almost automatic. For any distribution of images, the best affine fit of the exact posterior mean,
on noisy images of that distribution, is the Wiener filter, even if the denoiser only retrieves training images. So look at
the controls first, and at held-out images: there, a network that memorises need not be near its Gaussian. The last figure
checks the theorem behind this on the moments of these images.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...noise import karras_sigmas
from ...report import Axis, CurveFigure, ImageGrid, Series
from .. import axes
from ..claims.claim import HIGH_NOISE, LOW_NOISE, Found, Threshold, bound, claim, control, statistic, unit_words
from ..claims.comparisons import ends, first_minus_last, in_pixels, largest, positive
from ..claims.evidence import Evidence, Measure, MissingError, Number, mean, mean_at
from ..figures import Curves, Drawing, Line, about, images_label, sigma_label
from ..pictures import close_up_grid, close_ups, correlation_maps
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import describe_images
from ..tasks.distillation import adam_distillation_task, distillation_task, some_levels
from ..tasks.theorem import check_theorem

SHOWN_SIGMA = karras_sigmas(10)[4].item()
"""The level, near σ = 4, at which outputs are shown."""

_ERROR = axes.quantity("weight_error", "weight error ‖W − W_G‖/‖W_G‖", log=True)
_RESIDUALS = axes.quantity("theorem_residual", "relative distance", log=True)
_ASYMMETRY = axes.quantity("asymmetry", "‖W − Wᵀ‖/‖W‖", bounds=axes.POSITIVE)
_SUBSPACE = 10  # dimensions of the subspace whose overlap is drawn
_SPECTRA = (42.4, 9.72, 4.07, 0.47)  # noise levels, or those nearest to them, at which singular values are drawn
_LEAST_GAIN = 1e-5  # of the largest; what is below is not drawn
_ROW = 5  # singular vectors side by side
_ON = {"held_out": "held-out images", "train": "training images", "surrogate": "Gaussian surrogates"}
_IMAGES = {on: _ON[on] for on in ("held_out", "train")}  # the images on which multi-delta is measured
_OF_TRAIN = "gaussian of train"
_CALLS = 10  # for each dimension: with fewer, the fit's own error hides what is compared
_INNER_LEVELS = (0.01, 60.0)  # the paper excepts its largest and its smallest level, 80 and 0.002
_AUTOMATIC = (
    "almost automatic: on noisy images of its own data, the best affine fit of any good denoiser is the Gaussian; "
    "compare the controls"
)

_GAP = Threshold("the paper, Fig. 2", below=0.05, possible=axes.POSITIVE)
_WEIGHT_ERROR = Threshold("the paper, Fig. 4", below=0.2)
_ALIGNED = Threshold("our choice: four fifths of what two halves of the images agree on", above=0.8)
_TRAIN = Threshold("our choice: the error that a fit must be able to detect", below=0.1)
_RESIDUAL = Threshold("our choice: rounding in float64, with a margin", below=1e-10)

THEOREM = Curves(
    **about("The theorem, on these images", "C21"),
    caption="Relative distance to the Wiener filter, √(E‖D − D_G‖²/E‖D_G‖²) over noisy images, computed from the mean "
    "and the covariance of these images after averaging them down to at most 64 dimensions. Two affine maps are "
    "compared with it: the one that minimises the denoising loss, found by solving its normal equations, and the one "
    "at which gradient descent from zero ends. Noise levels that need more than double precision or 20,000 steps are "
    "left out.",
    of=_RESIDUALS.against(_RESIDUAL, "limit of C21"),
    lines=(Line(str, by="kind"),),
)
"""The figure of claim C21, also of the study of autoencoders."""


@claim("C6", "The linear fit of a generalising network is close to the Gaussian denoiser.", _AUTOMATIC)
def c6(evidence: Evidence) -> Found:
    """max RMSE(L, G) over all σ, L the unshrunk fit; on held-out images, at the largest N."""
    fits = evidence.where(study="distillation", quantity="rmse", denoiser="linear", reference="gaussian", shrunk=False)
    fits = fits.where(n=largest(fits))
    of_network, worst = fits.where(of=(None, "network")), in_pixels(Evidence.greatest, evidence)
    judged, surrogate = (of_network.where(on=on) for on in ("held_out", "surrogate"))
    memory = fits.where(on="held_out", of="multidelta")
    yield statistic(f"largest RMSE(L, G), unshrunk{unit_words(evidence)}", _GAP, judged, worst)
    yield from control("the same for the multi-delta denoiser", memory, worst, axes.POSITIVE)
    yield from control("the same on Gaussian surrogates", surrogate, worst, axes.POSITIVE)


@claim("C8", "The matrix of the linear fit is close to the Gaussian's.", _AUTOMATIC)
def c8(evidence: Evidence) -> Found:
    """max over σ, the largest and the smallest excepted, of weight error − its floor; on held-out images, at the largest N.

    Errors are against the Gaussian of the training images, of fits without shrinkage with enough calls (`count`).
    """
    judged, others = _judged_and_controls(evidence)

    def worst(records: Evidence) -> Number:
        return max(_excess(records, evidence).values())

    yield statistic("largest weight error minus its floor", _WEIGHT_ERROR, judged, worst)
    for name, records in others.items():
        yield from control(name, records, worst)


@claim("C9", "The leading singular vectors of the linear fit are the principal components.", _AUTOMATIC)
def c9(evidence: Evidence) -> Found:
    """(overlap − chance)/(ceiling − chance), mean over k, the lowest over σ ≥ 0.1; on held-out images, at the largest N.

    Leading subspaces are cut where the Gaussian's gains differ (`separated`), and where they pass ½ (`passed`). At low noise
    the first hundreds of gains are all nearly 1, and the subspace of all gains above ½ is what a denoiser keeps.
    """
    judged, others = _judged_and_controls(evidence)
    del others["the same for the multi-delta denoiser, training images"]

    def worst(records: Evidence) -> Number:
        shares = [share for level in records.at(LOW_NOISE).by("sigma").values() for share in _aligned(level)]
        if not shares:
            raise MissingError("no subspace whose ceiling is above chance")
        return min(shares)

    yield statistic("lowest overlap, as a share of the ceiling", _ALIGNED, judged, worst)
    for name, records in others.items():
        yield from control(name, records, worst)


def _judged_and_controls(evidence: Evidence) -> tuple[Evidence, dict[str, Evidence]]:
    """The maps that are judged, at the largest N, and their controls."""
    studied = evidence.where(study="distillation")
    studied = studied.where(n=largest(studied))
    network, memory = (studied.where(denoiser=name) for name in ("network", "multidelta"))
    return network.where(on="held_out"), {
        "the same on training images": network.where(on="train"),
        "the same for the multi-delta denoiser": memory.where(on="held_out"),
        "the same for the multi-delta denoiser, training images": memory.where(on="train"),
        "the same on Gaussian surrogates": network.where(on="surrogate"),
    }


@claim("C10", "Linear and Gaussian denoisers describe a memorising network less well than a generalising one.")
def c10(evidence: Evidence) -> Found:
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
            raise MissingError(
                f"errors of {_TRAIN.level:g} cannot be detected by a fit whose own error is {floor.value:.2g}"
            )
        return mean(_excess(small, evidence).values())

    yield statistic("weight error, memorising minus generalising", positive("Fig. 5"), held_out, weight())
    yield statistic("FVU, memorising minus generalising", positive("Fig. 5"), held_out, unexplained)
    yield statistic("weight error on training images, memorising", _TRAIN, train, orthogonality)
    # W_G of few images has a low rank, from which every denoiser is far at low noise.
    name = "weight error against the Gaussian of held-out images, memorising minus generalising"
    yield from control(name, held_out, weight("gaussian of held_out"))


@claim("C21", "The best linear denoiser is the Wiener filter, and gradient descent finds it.")
def c21(evidence: Evidence) -> Found:
    """The largest of the theorem's residuals, in any study; this is algebra, so it needs neither images nor seeds."""
    yield bound("largest relative residual", _RESIDUAL, evidence.where(**_RESIDUALS.tags))


def _excess(records: Evidence, evidence: Evidence, reference: str = _OF_TRAIN) -> dict[float, Number]:
    """Weight error minus its floor at each noise level."""
    dim = evidence.where(quantity="dim").one().value
    curve = records.where(**_ERROR.tags, reference=reference).at(*_INNER_LEVELS).over("sigma")
    floor = records.where(quantity="weight_error_floor").over("sigma")
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


def parts(plan: Plan) -> Iterator[Part]:
    """The theorem, then the largest and the smallest size at every seed, then pictures of all sizes."""
    yield Part("theorem", plan.on_images(check_theorem, split=False, cost=2.0))
    yield Part("images", plan.on_images(describe_images))
    on = tuple(_ON) if some_levels(plan) is None else ("held_out",)
    for n, images in ((plan.sizes[-1], on), (plan.sizes[0], on[:2])):
        for seed in range(plan.seeds):
            # The multi-delta denoiser is the same for all seeds.
            denoisers = ("network", "multidelta") if seed == 0 else ("network",)
            task = distillation_task(plan, plan.model(n, seed), denoisers=denoisers, images=images)
            yield Part(f"distilled {n}, seed {seed}", task)
    yield Part("adam", adam_distillation_task(plan, plan.model(plan.sizes[-1], plan.shown)))
    how: dict[str, Any] = {"denoisers": ("network", "gaussian"), "sigmas": (SHOWN_SIGMA,), "pictures": 3}
    for n in reversed(plan.sizes):
        yield from close_ups(plan, plan.model(n, plan.shown), images_label(n), **how)


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 4, 5, 14 and 22 of the paper, and the theorem."""
    yield from _maps(findings)
    yield from _regimes(findings.plan)
    yield from _pictures(findings)
    yield THEOREM


def _maps(findings: Findings) -> Iterator[Curves]:
    """Figs. 4, 14 and 22: the map of the network trained on the most images."""
    plan, evidence = findings.plan, findings.evidence
    large, small = (axes.Tags(method=None, n=n) for n in (plan.sizes[-1], plan.sizes[0]))
    held_out = axes.Tags(on="held_out", denoiser="network")
    own = axes.Tags(**large, **held_out, seed=plan.seed(plan.shown))
    by_adam = evidence.where(method="adam", **_ERROR.tags)
    epochs = largest(by_adam, "epoch")
    ks = [record["k"] for record in evidence.where(**large, quantity="overlap").records]
    k = max((k for k in ks if k <= _SUBSPACE), default=0)
    yield Curves(
        **about("How far the matrix of the linear map is from the Gaussian's", 4, "C8"),
        caption="Distance between the matrix W of the affine map closest to a network trained on the most images and "
        "the Wiener filter W_G of its training images. The map is fitted by least squares without shrinkage to ten "
        "network evaluations per dimension; the floor is the error of such a fit of the Wiener filter itself, and C8 "
        "judges the error above it. Control: the multi-delta denoiser, which only retrieves training images and must "
        "be near W_G on them; where the network's error is far above the floor and the control's is not, the network "
        "is not a good denoiser.",
        of=_ERROR.where(**large).against(_WEIGHT_ERROR, "the paper's bound"),
        lines=(
            *_by_images("network", reference=_OF_TRAIN),
            *_retrieval("control: multi-delta", reference=_OF_TRAIN),
            Line("floor of the fit", dashed=True, quantity="weight_error_floor", **held_out),
        ),
    )
    yield Curves(
        **about("Weight error while Adam learns the map", 4, 22, "C8"),
        caption=f"Distance from W to the Gaussian of the same images, while Adam learns W as in the paper: {epochs} "
        f"epochs over {largest(by_adam, 'count')} held-out images, for one network trained on the most images. "
        "Training starts at W = 0, in batches of 256 with fresh noise in each. At each noise level, Adam's step size "
        "is such that all its steps together can move a weight by three times the Gaussian's largest weight.",
        of=_ERROR.by(axes.EPOCH).where(method="adam"),
        lines=(Line(sigma_label, by="sigma"),),
    )
    yield Curves(
        **about("Where Adam ends, and least squares", 22, "C8"),
        caption="Weight error after the last epoch of the previous figure, and that of the least-squares fit to the "
        "same network on the same images, with the floor of that fit. Where Adam has not converged, the distance says "
        "nothing about the network.",
        of=_ERROR,
        lines=(
            Line("Adam, last epoch", method="adam", epoch=epochs),
            Line("least squares", reference="gaussian of held_out", **own),
            Line("floor of least squares", dashed=True, quantity="weight_error_floor", **own),
        )
        if len(by_adam)
        else (),
    )
    yield Curves(
        **about(f"Overlap of the {k} leading singular vectors with the principal components", 4, "C9"),
        caption="‖U_WᵀU‖²/k of the two subspaces, which is 1 if they are the same, whatever the order of near-equal "
        "eigenvalues within them. The ceiling is the overlap between the principal components of two halves of the "
        "training images, and chance is the overlap of unrelated subspaces. At the lowest noise all gains of the "
        "Gaussian are nearly 1, and no subspace leads.",
        of=axes.quantity("overlap", "overlap", bounds=axes.SHARE).where(**large, k=k),
        lines=(
            *_by_images("network"),
            *_retrieval("control: multi-delta"),
            Line("ceiling", dashed=True, quantity="overlap_ceiling", **held_out),
            Line("chance", dashed=True, quantity="overlap_chance", **held_out),
        ),
    )
    yield Curves(
        **about("How symmetric the matrix is", 14, "C9"),
        caption="‖W − Wᵀ‖/‖W‖, which is 0 for a symmetric matrix such as the Wiener filter. A least-squares fit to "
        "finitely many network evaluations is not quite symmetric. The line on Gaussian surrogates, which are random "
        "draws from the Gaussian with the training images' mean and covariance, indicates by how much.",
        of=_ASYMMETRY,
        lines=(
            *_by_images("most images", **large),
            *_retrieval("control: multi-delta", **large),
            *_by_images("fewest images", _IMAGES, **small),
        ),
    )
    yield Curves(
        **about("How symmetric the matrix becomes while Adam learns it", 14, "C9"),
        caption="‖W − Wᵀ‖/‖W‖ in the same run as the figure “Weight error while Adam learns the map”, which starts at "
        "W = 0. A matrix of independent random entries would have √2.",
        of=_ASYMMETRY.by(axes.EPOCH).where(method="adam"),
        lines=(Line(sigma_label, by="sigma"),),
    )


def _regimes(plan: Plan) -> Iterator[Curves]:
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
    lines = "for the network trained on the most images (solid) and on the fewest (dashed)"
    control_of_both = "Control, drawn if a linear map was fitted to it: the multi-delta denoiser of the fewest images."

    def of_both_sizes(images: dict[str, str]) -> list[Line]:
        return [
            *_by_images(images_label(most), images, n=most),
            *_by_images(images_label(fewest), images, n=fewest, dashed=True),
            *_retrieval(memory, n=fewest),
        ]

    for also, on, caption in (
        ("", "held_out", "L was fitted on the held-out images that it is measured on here, with different noise."),
        (
            *(" on training images", "train"),
            "On training images L is near G even for a denoiser that memorises; the previous figure, on held-out "
            "images, distinguishes memorising from generalising.",
        ),
    ):
        yield Curves(
            **about(f"Linear, Gaussian and network{also}: most and fewest images", 5, "C6", "C10"),
            caption="RMSE between G (Gaussian of the training images), L (unshrunk linear map) and θ (network), "
            f"{lines}. {caption} {control_of_both}",
            of=axes.RMSE.where(method=None, on=on),
            lines=(*pairs, Line(memory.replace("control:", "control: L–G of"), n=fewest, of="multidelta", **linear)),
        )
    yield Curves(
        **about("Linear map against Gaussian, by images", 5, "C6"),
        caption="RMSE between the unshrunk linear map of the network and the Gaussian of the most images, on three "
        "kinds of inputs. Control, drawn if it was fitted: the linear map of the multi-delta denoiser.",
        of=axes.RMSE.where(method=None, n=most, **linear, shrunk=False),
        lines=(*_by_images("of the network", tag="of"), *_retrieval("control: multi-delta", tag="of")),
    )
    yield Curves(
        **about("What no affine map explains", 5, "C10"),
        caption="Fraction of the variance of outputs that the closest affine map leaves unexplained on new noise, "
        f"{lines}. {control_of_both}",
        of=axes.quantity("fvu", "FVU", bounds=axes.POSITIVE, method=None),
        lines=of_both_sizes(_ON),
    )
    yield Curves(
        **about("Weight error: most and fewest images", 5, "C10"),
        caption=f"Distance of the linear map's matrix from the Wiener filter of the training images, {lines}. A "
        "network that retrieves its training images has a small error on noisy training images, as an exact posterior "
        f"mean must, and may have a large one on held-out images. {control_of_both}",
        of=_ERROR.where(method=None, reference=_OF_TRAIN),
        lines=of_both_sizes(_IMAGES),
    )


def _by_images(
    name: str, images: dict[str, str] = _ON, *, denoiser: str = "network", tag: str = "denoiser", **tags: Any
) -> list[Line]:
    """A line for each set of images."""
    return [Line(f"{name}, {words}", **{**tags, "on": on, tag: denoiser}) for on, words in images.items()]


def _retrieval(name: str, **tags: Any) -> list[Line]:
    """The same for the multi-delta denoiser, which retrieves training images, so that surrogates mean nothing to it."""
    return _by_images(name, _IMAGES, denoiser="multidelta", **tags)


def _pictures(findings: Findings) -> Iterator[Drawing]:
    """Figs. 4, 5 and 14: singular vectors and values, and outputs."""
    plan = findings.plan
    key = f"distilled {plan.sizes[-1]}, seed {plan.shown}"
    sizes = [images_label(n) for n in reversed(plan.sizes)]
    yield correlation_maps(
        findings,
        key,
        "of the unshrunk linear map of the network trained on the most images, distilled on held-out images, and of as "
        "many principal components of the training images (the columns of U_data).",
        **about("Singular vectors of the linear map against principal components", 4, "C9"),
    )
    values, gains, sigmas = (findings.array(key, name) for name in ("singular_values", "gains", "sigmas"))
    if values is not None:
        series, index = [], np.arange(1, values.shape[1] + 1)
        for place in dict.fromkeys(int(np.abs(np.log(sigmas / sigma)).argmin()) for sigma in _SPECTRA):
            name, gain = sigma_label(float(sigmas[place])), gains[place]
            visible = np.where(gain > _LEAST_GAIN * gain.max(), gain, np.nan)
            series.append(Series(f"linear, {name}", index, values[place], markers=False))
            series.append(Series(f"Gaussian, {name}", index, visible, dashed=True, markers=False))
        yield CurveFigure(
            **about("Singular values of the linear map and of the Gaussian", 14, "C9"),
            caption="Singular values of the same linear map (one training run, held-out images), and the gains "
            "λ/(λ+σ²) of the Wiener filter (dashed; those below 1e-5 of the largest are not drawn).",
            x=Axis("index", log=True),
            y=Axis("singular value", log=True),
            series=tuple(series),
        )
    vectors, components = findings.array(key, "vectors"), findings.array(key, "components")
    if vectors is not None:
        width = min(_ROW, len(vectors))
        rows = {
            f"{name}, {start + 1} to {start + width}": images[start : start + width]
            for start in range(0, len(vectors) - width + 1, width)
            for name, images in (("linear", vectors), ("Gaussian", components))
        }
        yield ImageGrid(
            **about("Singular vectors of the linear map and of the Gaussian, as images", 14, "C9"),
            caption=f"The first {len(rows) // 2 * width} left singular vectors, at {sigma_label(SHOWN_SIGMA)}, of the "
            "linear map of the network trained on the most images, and below them the principal components of its "
            "training images. Zero is grey. Vectors of near-equal singular values are defined only up to rotation.",
            rows=tuple(rows),
            columns=tuple(f"place {place + 1}" for place in range(width)),
            images=np.stack([*rows.values()]),
            training=False,
        )
    yield close_up_grid(
        findings,
        [(f"Gaussian, {sizes[0]}", sizes[0], "gaussian"), *((f"network, {n}", n, "network") for n in sizes)],
        SHOWN_SIGMA,
        noise=True,
        sigmas=(SHOWN_SIGMA,),
        **about(f"Outputs at {sigma_label(SHOWN_SIGMA)}, by number of training images", 5, "C10"),
        caption="Outputs of the Gaussian of the most images and of networks trained on more or fewer images, for pure "
        "noise ε and for noisy held-out images y. A network that memorises returns something like a training image "
        "even for pure noise. Inputs are shown with less contrast.",
    )


STUDY = Study("distillation", __doc__, parts, drawings, figures=(4, 5, 14, 22), judges=(c6, c8, c9, c10, c21))
