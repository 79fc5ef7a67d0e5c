"""Distillation: the affine map closest to a denoiser at each noise level, in closed form or by the published recipe.

    min_{W,b} E‖W x + b − D(x; σ)‖²,  x = x0 + σ·eps                                     Eq. (8)–(9) of arXiv:2410.24060

A trap decides how to read the result: for *any* data law, the best affine fit of its exact posterior mean on its own noisy
data is the Wiener filter of that law. So a fully memorising denoiser distilled on noisy training images gives W = W_G too;
memorising and generalising part only on held-out images. Compare `weight_error` beside its floor, and only with
enough calls (ten a dimension).

Half of the calls make one fit and the rest another: each judges the other's shrinkage, and their difference tells what
the finite number of calls costs. Noise comes in pairs ±eps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from .._typing import Float, Images, Int, Sigmas
from ..errors import ConfigError, DataError
from ..images import Bounds, check_labels, dequantize, gather
from ..noise import as_sigmas, draw_noise, draw_order, generator
from ..progress import track
from .adam import BATCH, EPOCHS, fit_adam, published_learning_rate
from .conditional import PerClassDenoiser
from .gaussian import GaussianDenoiser
from .linear import AffineMaps, LinearDenoiser
from .moments import Moments
from .protocol import Denoiser, call, evaluating, in_batches, placement
from .regression import Affine, Regression, choose_strength, mean_square_difference

# Above this dimension maps are stored as a Gaussian's matrix plus factors of this rank.
_FULL_DIM = 4096
_STORED_RANK = 256
_EVALUATION_CALLS = 4096


@dataclass(frozen=True)
class _Level:
    """What came out at one noise level."""

    unshrunk: Affine | None
    prediction: Affine
    fvu: float
    fvu_floor: float = float("nan")
    weight_error_floor: float = float("nan")
    shrinkage: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True)
class _Teacher:
    """A denoiser as a source of noisy inputs and its answers to them."""

    denoiser: Denoiser
    device: torch.device
    dtype: torch.dtype
    seed: int
    batch_size: int | None

    def answers(
        self,
        pixels: Tensor,
        image: Int[Tensor, "n"],
        noise: Int[Tensor, "n"],
        sign: Float[Tensor, "n"],
        sigma: float,
        stream: str,
    ) -> Iterator[tuple[Float[Tensor, "b d"], Float[Tensor, "b d"]]]:
        """Batches of x = x0 + σ·sign·eps and D(x), as rows."""
        shape = tuple(pixels.shape[1:])

        def work(start: int, stop: int) -> tuple[Tensor, Tensor]:
            eps = draw_noise(self.seed, noise[start:stop], shape, stream=stream)
            x0 = dequantize(pixels[image[start:stop]].to(self.device), self.dtype)
            signed = eps.to(self.device, self.dtype) * sign[start:stop].to(x0).reshape(-1, *[1] * len(shape))
            x = x0 + sigma * signed
            return x.flatten(1), call(self.denoiser, x, sigma).flatten(1)

        for x, denoised in in_batches(work, len(image), self.batch_size):
            if not bool(denoised.isfinite().all()):
                raise DataError(
                    f"the denoiser returned NaN or infinite values at sigma = {sigma:g}. Check its range of levels."
                )
            yield x, denoised


def distill(
    denoiser: Denoiser,
    images: Images,
    sigmas: Sigmas,
    *,
    train: Images | Moments | None = None,
    held_out: Images | None = None,
    method: Literal["closed_form", "adam"] = "closed_form",
    calls: int | None = None,
    seed: int = 0,
    labels: Any = None,
    full: bool | None = None,
    learning_rate: float | None = None,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> LinearDenoiser | PerClassDenoiser:
    """Fit an affine map to a denoiser at each noise level.

    Args:
        denoiser: the denoiser D to fit.
        images: the clean images of the inputs x = x0 + σ·eps. Which they are, training or held-out, decides what the fit
            can show; see the module.
        sigmas: the noise levels, each above 0.
        train: the denoiser's training images, or their moments: one more Gaussian to compare W with.
        held_out: images that no fit sees: one more Gaussian, and an `fvu_held_out`.
        method: "closed_form" (least squares in one pass), or "adam" (the published recipe, with a history).
        calls: network calls for each level; None is ten a dimension ("adam": 100 epochs). Recycles the images.
        seed: fixes noise and halves.
        labels: one integer per image, for a conditional denoiser; every class is then fitted on its own.
        full: store whole matrices also above d = 4096; None does so up to there.
        learning_rate: for "adam"; None takes the published one for each level.
        bounds: admissible float values; None for other units.
        device: where to call; None is the denoiser's.
        dtype: in which dtype to call; None is the denoiser's.
        batch_size: inputs per call; None is automatic.
        progress: show a progress bar.

    Returns:
        The linear denoiser; with labels, a `PerClassDenoiser` of one linear denoiser each.

    Raises:
        ConfigError: if an argument is out of its range.
        DataError: if images, labels or the denoiser's answers cannot be used.

    >>> import torch
    >>> images = torch.rand(64, 1, 2, 2).double() * 2 - 1
    >>> gaussian = GaussianDenoiser(Moments.fit(images))
    >>> linear = distill(gaussian, images, [0.5], calls=200)
    >>> bool(linear.weight_error["distillation"] < 1e-10)
    True
    """
    levels = as_sigmas(sigmas)
    if method not in ("closed_form", "adam"):
        raise ConfigError(f'method must be "closed_form" or "adam"; got {method!r}.')
    if calls is not None and calls < 4:
        raise ConfigError(f"calls, the network calls for each noise level, must be at least 4; got {calls}.")
    pixels = gather(images, bounds=bounds)
    if labels is not None:
        classes = check_labels(labels, len(pixels)).to(pixels.device)
        options = {"train": train, "held_out": held_out, "method": method, "calls": calls, "seed": seed, "full": full}
        options |= {"learning_rate": learning_rate, "bounds": bounds, "device": device, "dtype": dtype}
        options |= {"batch_size": batch_size, "progress": progress}
        return _distill_per_class(denoiser, pixels, classes, levels, options)

    place, kind = placement(denoiser, pixels, device, dtype)
    teacher = _Teacher(denoiser, place, kind, seed, batch_size)
    moments = {"distillation": Moments.fit(pixels, device=place, bounds=bounds)}
    held_out_pixels = None if held_out is None else gather(held_out, bounds=bounds, name="held_out")
    for name, source in (("train", train), ("held_out", held_out_pixels)):
        if source is not None:
            moments[name] = source if isinstance(source, Moments) else Moments.fit(source, device=place, bounds=bounds)
    gaussians = {name: GaussianDenoiser(moment).to(place) for name, moment in moments.items()}
    for name, gaussian in gaussians.items():
        if gaussian.shape != tuple(pixels.shape[1:]):
            raise DataError(
                f"{name} images must have the shape {tuple(pixels.shape[1:])} of images; got {gaussian.shape}."
            )

    dim = moments["distillation"].dim
    n_calls = calls or (EPOCHS * len(pixels) if method == "adam" else max(10 * dim, 64))
    full = dim <= _FULL_DIM if full is None else full
    storage = _Storage(gaussians["distillation"], full, kind)
    errors: dict[str, list[float]] = {name: [] for name in gaussians}
    outcomes, held_out_fvu = [], []
    with evaluating(denoiser):
        for sigma in track(levels.tolist(), total=len(levels), label="distill", enabled=progress):
            toward = gaussians["distillation"].weight(sigma)
            if method == "adam":
                level = _fit_by_adam(teacher, pixels, sigma, n_calls, toward, learning_rate)
            else:
                level = _fit_in_closed_form(teacher, pixels, sigma, n_calls, toward)
            for name, gaussian in gaussians.items():
                errors[name].append(_weight_error(level.unshrunk, gaussian.weight(sigma)))
            if held_out_pixels is not None:
                held_out_fvu.append(_unexplained(teacher, held_out_pixels, sigma, level.prediction, "held out"))
            storage.add(level, sigma)
            outcomes.append(level)

    def vector(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    return LinearDenoiser(
        levels,
        tuple(pixels.shape[1:]),
        storage.unshrunk(),
        storage.prediction(),
        calls=n_calls,
        fvu=vector([level.fvu for level in outcomes]),
        fvu_floor=vector([level.fvu_floor for level in outcomes]),
        fvu_held_out=vector(held_out_fvu) if held_out_fvu else None,
        weight_error={name: vector(values) for name, values in errors.items()},
        weight_error_floor=vector([level.weight_error_floor for level in outcomes]),
        shrinkage=vector([level.shrinkage for level in outcomes]),
        truncation=vector(storage.truncation),
        history=[level.history for level in outcomes] if method == "adam" else None,
    )


def _fit_in_closed_form(
    teacher: _Teacher, pixels: Tensor, sigma: float, calls: int, toward: Float[Tensor, "d d"]
) -> _Level:
    """Both fits at one level, from the sums of two halves."""
    pair = torch.arange(calls) // 2
    lap = pair // len(pixels)
    image = draw_order(teacher.seed, len(pixels))[pair % len(pixels)]
    origin = dequantize(pixels[:256].to(teacher.device), torch.float64).flatten(1).mean(0)
    halves = []
    for half in (0, 1):
        # The halves take turns lap by lap, so that images seen more than once are seen by both.
        own = ((pair + lap) % 2 == half).nonzero()[:, 0]
        regression = Regression(origin)
        for x, denoised in teacher.answers(pixels, image[own], pair[own], 1.0 - 2.0 * (own % 2), sigma, "distill"):
            regression.update(x, denoised)
        halves.append(regression)
    first, second = halves[0].compute(), halves[1].compute()
    halves[0].merge(halves[1])
    both = halves[0].compute()
    del halves

    strength = choose_strength(first, second, toward)
    ridge_fits = first.ridge(toward, strength), second.ridge(toward, strength)
    floor = mean_square_difference(*ridge_fits, both) / 4
    # Each half's fit, judged on the other half, carries twice the floor of the fit to both.
    across = (second.error(ridge_fits[0]) + first.error(ridge_fits[1])) / 2
    unshrunk, weight_error_floor = None, float("nan")
    dim = len(toward)
    if calls > dim + 1:
        unshrunk = both.least_squares()
    if min(first.count, second.count) > dim + 1:
        difference = first.least_squares().weight - second.least_squares().weight
        weight_error_floor = float(difference.norm() / 2 / toward.norm())
    variance = max(both.variance, torch.finfo(torch.float64).tiny)
    return _Level(
        unshrunk=unshrunk,
        prediction=both.ridge(toward, strength),
        fvu=max(across - floor, 0.0) / variance,
        fvu_floor=floor / variance,
        weight_error_floor=weight_error_floor,
        shrinkage=strength / (strength + float(both.xx.diagonal().mean())),
    )


def _fit_by_adam(
    teacher: _Teacher,
    pixels: Tensor,
    sigma: float,
    calls: int,
    toward: Float[Tensor, "d d"],
    learning_rate: float | None,
) -> _Level:
    """The published recipe at one level, in the dtype of the denoiser."""
    n = len(pixels)
    per_epoch = _Teacher(teacher.denoiser, teacher.device, teacher.dtype, teacher.seed, BATCH)
    epochs = (
        per_epoch.answers(pixels, torch.arange(n), torch.arange(n) + epoch * n, torch.ones(n), sigma, "distill")
        for epoch in range(-(-calls // n))
    )
    rate = published_learning_rate(sigma) if learning_rate is None else learning_rate
    fit, history = fit_adam(epochs, toward.to(teacher.dtype), rate)
    return _Level(fit, fit, _unexplained(teacher, pixels, sigma, fit, "fresh noise"), history=history)


def _unexplained(teacher: _Teacher, pixels: Tensor, sigma: float, fit: Affine, stream: str) -> float:
    """FVU = E‖D − Wx − b‖² / Var D on noise that no fit has seen."""
    count = max(len(pixels), min(_EVALUATION_CALLS, 10 * len(pixels)))
    index = torch.arange(min(count, _EVALUATION_CALLS))
    order = draw_order(teacher.seed, len(pixels), stream=stream)
    weight, bias = fit.weight.to(teacher.dtype), fit.bias.to(teacher.dtype)
    residual, denoised_rows = 0.0, []
    for x, denoised in teacher.answers(pixels, order[index % len(order)], index, torch.ones(len(index)), sigma, stream):
        residual += float((denoised - x @ weight.T - bias).double().square().sum())
        denoised_rows.append(denoised.double())
    rows = torch.cat(denoised_rows)
    return residual / max(float((rows - rows.mean(0)).square().sum()), torch.finfo(torch.float64).tiny)


def _weight_error(fit: Affine | None, reference: Float[Tensor, "d d"]) -> float:
    if fit is None:
        return float("nan")
    return float((fit.weight - reference.to(fit.weight.dtype)).norm() / reference.norm())


def _distill_per_class(
    denoiser: Denoiser, pixels: Tensor, classes: Int[Tensor, "n"], levels: Float[Tensor, "s"], options: dict[str, Any]
) -> PerClassDenoiser:
    """One linear denoiser for each class of a conditional denoiser."""
    fits = {}
    place, kind = placement(denoiser, pixels, options["device"], options["dtype"])
    options |= {"device": place, "dtype": kind}  # what is fitted below is a function, which has no device of its own
    with evaluating(denoiser):
        for label in classes.unique().tolist():
            fits[label] = distill(partial(_with_label, denoiser, label), pixels[classes == label], levels, **options)
    return PerClassDenoiser(fits)


def _with_label(denoiser: Denoiser, label: int, x: Tensor, sigma: Tensor) -> Tensor:
    return denoiser(x, sigma, torch.full((len(x),), label, device=x.device))


class _Storage:
    """Collects the maps of all levels in the form they are kept in: whole, or Gaussian plus low rank."""

    def __init__(self, gaussian: GaussianDenoiser, full: bool, dtype: torch.dtype) -> None:
        self._gaussian, self._full, self._dtype = gaussian, full, dtype
        self._maps: dict[str, list[dict[str, Tensor]]] = {"unshrunk": [], "prediction": []}
        self.truncation: list[float] = []

    def add(self, level: _Level, sigma: float) -> None:
        """Take in one level."""
        self.truncation.append(0.0)
        for name, fit in (("unshrunk", level.unshrunk), ("prediction", level.prediction)):
            if fit is None:
                continue
            if self._full:
                parts = {"weights": fit.weight, "biases": fit.bias}
            else:
                rest = fit.weight.double() - self._gaussian.weight(sigma)
                left, right = _low_rank(rest, _STORED_RANK)
                gains, floor_gain = self._gaussian.gains(sigma)
                parts = {"left": left, "right": right, "biases": fit.bias, "gains": gains, "floor_gains": floor_gain}
                if name == "unshrunk":
                    self.truncation[-1] = float((rest - left @ right.T).norm() / fit.weight.norm())
            self._maps[name].append({part: tensor.to(self._dtype) for part, tensor in parts.items()})

    def unshrunk(self) -> AffineMaps | None:
        """The least-squares maps, unless there were too few calls for them."""
        return self._stack("unshrunk") if self._maps["unshrunk"] else None

    def prediction(self) -> AffineMaps:
        """The shrunk maps."""
        return self._stack("prediction")

    def _stack(self, name: str) -> AffineMaps:
        maps = self._maps[name]
        buffers = {part: torch.stack([one[part] for one in maps]) for part in maps[0]}
        if not self._full:
            buffers["eigvecs"] = self._gaussian.eigvecs.to(self._dtype)
        return AffineMaps(buffers)


def _low_rank(matrix: Float[Tensor, "d d"], rank: int) -> tuple[Float[Tensor, "d q"], Float[Tensor, "d q"]]:
    """Factors of about the best approximation of given rank, by subspace iteration."""
    probes = torch.randn(len(matrix), rank, generator=generator(0, "low rank"), dtype=torch.float64)
    basis, _ = torch.linalg.qr(matrix @ probes.to(matrix))
    for _ in range(4):
        basis, _ = torch.linalg.qr(matrix @ (matrix.T @ basis))
    return basis, matrix.T @ basis
