"""A look at a denoiser while it is trained: a few fixed noisy images, and what the references answer there, kept.

The Gaussian and the multi-delta denoiser of the training images do not change while a network learns, so their answers on
fixed inputs are computed once. A look then costs the network's own calls: some noisy training and held-out images at the
noise levels at which the two references differ most, and a few samples. Of these it makes

    gap = held-out loss − training loss,   ρ = (gap_θ − gap_G)/(gap_M − gap_G),

0 for the Gaussian and 1 for the multi-delta denoiser; the distance of the network to both; and the number of copies among
the samples, which are others at every look, so that copies of several looks may be added up.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Float, Sigmas
from ..denoisers.gaussian import GaussianDenoiser
from ..denoisers.moments import Moments
from ..denoisers.multidelta import MultiDeltaDenoiser
from ..denoisers.protocol import Denoiser, call, eval_mode, in_batches, placement
from ..errors import ConfigError, DataError
from ..images import dequantize
from ..measures.intervals import Estimate, mean_estimate, ratio_interval
from ..measures.originals import DUPLICATE_RMSE, Originals
from ..measures.sweep import NoisyInputs
from ..measures.two_sample import quotient_estimate
from ..noise import as_sigmas, draw_noise, draw_order, karras_sigmas
from ..sampling import sample
from .probe_images import ProbeImages

_SEARCHED = (20.0, 0.05, 12)  # noise levels, from and to and how many, among which those that tell most are chosen
_SAMPLED = (80.0, 0.002)  # noise levels that are sampled through, from and to
_ROUNDING = 1e-6  # of the ends of a denoiser's range, which may have been float32
_LEVELS = 3
_SEARCH_INPUTS = 16
_WINDOW = 0.5  # of the largest distance between the references
_RANK = 1024  # principal components of images with more pixels than can be decomposed in seconds
_DENSE_DIM = 4096
_CHANCE_IMAGES = 256  # held-out images that say how often one seems to be a copy that is none


@dataclass(frozen=True)
class ProbeResult:
    """What was seen of a network at one moment; distances and losses are means over a few noise levels.

    Attributes:
        step: when.
        rho: position ρ of the gap between held-out and training loss, from the Gaussian's (0) to the multi-delta's (1); None
            without held-out images, or if these references cannot be told apart.
        gaussian: RMSE to the Gaussian denoiser, on held-out images if there are such.
        multidelta: RMSE to the multi-delta denoiser, likewise.
        loss_train: mean squared error per pixel on training images.
        loss_held_out: the same on held-out images; None without them.
        copies: copies of training images among the samples.
        samples: how many samples were made.
        gaussian_by_image: the distance to the Gaussian by image, for comparison with other looks.
        seconds: how long it took.
    """

    step: float | int
    rho: Estimate | None
    gaussian: Estimate
    multidelta: Estimate
    loss_train: Estimate
    loss_held_out: Estimate | None
    copies: int
    samples: int
    gaussian_by_image: tuple[float, ...]
    seconds: float = 0.0

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ProbeResult":
        """A look as `dataclasses.asdict` and JSON leave it."""
        names = ("rho", "gaussian", "multidelta", "loss_train", "loss_held_out")
        found = {name: None if value[name] is None else Estimate(**value[name]) for name in names}
        return cls(**{**value, **found, "gaussian_by_image": tuple(value["gaussian_by_image"])})


class _Inputs:
    """Some images under fixed noise at some levels, with the references' answers."""

    def __init__(self, images: Tensor, labels: Tensor | None, count: int, noises: int, seed: int, name: str) -> None:
        order = draw_order(seed, len(images), stream=f"monitor {name}")[:count]
        chosen = images[order.to(images.device)]
        self.labels_of_images = None if labels is None else labels[order.to(labels.device)]
        self.noisy = NoisyInputs(chosen, self.labels_of_images, count * noises, seed, stream=f"monitor {name}")
        self.clean = dequantize(chosen[torch.arange(self.noisy.count).to(chosen.device) % len(chosen)])
        self.labels = self.noisy.labels(0, self.noisy.count)

    def at(self, sigma: float, count: int | None = None) -> Tensor:
        return self.noisy.at(sigma, 0, count or self.noisy.count).float()

    def by_image(self, values: Float[Tensor, "n"]) -> Float[Tensor, "u"]:
        return self.noisy.averages(values.double().cpu())


class Probe:
    """Fixed inputs with the references' answers, from which any denoiser of the same images can be looked at.

    Args:
        watched: the images.
        sigmas: the noise levels; None is three of those at which the references differ most.
        count: training images, and held-out images, to look with.
        noises: noises for each of them.
        samples: images to generate at each look; 0 for a denoiser that cannot be sampled.
        steps: noise levels to sample through.
        seed: of everything random.
        device: where the denoiser is.
        sigma_range: the least and the greatest noise level that the denoiser can be called with. No other is used.

    Raises:
        ConfigError: if a noise level of `sigmas` is outside of that range, or the range leaves nothing to sample through.
        DataError: if there are fewer than two training images.
    """

    def __init__(
        self,
        watched: ProbeImages,
        *,
        sigmas: Sigmas | None,
        count: int,
        noises: int,
        samples: int,
        steps: int,
        seed: int,
        device: torch.device,
        sigma_range: tuple[float, float] = (0.0, math.inf),
    ) -> None:
        if len(watched.train) < 2:
            raise DataError(f"a monitor needs two training images or more; got {len(watched.train)}.")
        self.watched, self.samples, self.steps, self.seed, self.device = watched, samples, steps, seed, device
        self.sigma_range = sigma_range
        asked = None if sigmas is None else _within(sigmas, sigma_range)
        self._grid = self._sampled_through() if samples else None
        self.train = _Inputs(watched.train, watched.labels, count, noises, seed, "train")
        self.held_out = None
        if watched.held_out is not None and len(watched.held_out) > 1:
            self.held_out = _Inputs(watched.held_out, watched.held_out_labels, count, noises, seed, "held out")
        references = _references(watched, device)
        with eval_mode(*references):
            self.sigmas = self._window(references) if asked is None else asked
            self.inputs = [self.train] if self.held_out is None else [self.train, self.held_out]
            self._noisy = [[each.at(sigma).to(device) for sigma in self.sigmas.tolist()] for each in self.inputs]
            answers = [self._answers(reference) for reference in references]
        self._clean = [each.clean.to(device) for each in self.inputs]
        self.gaussian, self.multidelta = (of_reference[-1] for of_reference in answers)
        self._losses = [self._losses_of(of_reference) for of_reference in answers]
        self.copies_by_chance: tuple[int, int] | None = None
        if watched.held_out is not None and samples:
            order = draw_order(seed, len(watched.held_out), stream="monitor chance")[:_CHANCE_IMAGES]
            self.copies_by_chance = self._copies(watched.held_out[order.to(watched.held_out.device)], known=False)

    @property
    def calls(self) -> int:
        """Images that a look calls the denoiser on."""
        return sum(each.noisy.count for each in self.inputs) * len(self.sigmas) + self.samples * self.steps

    def try_out(self, denoiser: Denoiser, count: int) -> None:
        """Call the denoiser on so many images, at most, to see how long that takes."""
        with eval_mode(denoiser):
            self._call(denoiser, self.train, self._noisy[0][0][:count], self.sigmas[0].item())

    def look(self, denoiser: Denoiser, step: float | int, number: int) -> ProbeResult:
        """Look at a denoiser."""
        with eval_mode(denoiser):
            answers = self._answers(denoiser)
        for of_each in answers:
            _check_finite(of_each, f"the denoiser's answers at step {step:g}", "Training has diverged")
        losses = self._losses_of(answers)
        seen = self.inputs[-1]
        to_gaussian, to_multidelta = (
            seen.by_image(_rmse(answers[-1], reference)) for reference in (self.gaussian, self.multidelta)
        )
        copies = 0
        if self.samples:
            made = self.sampled(denoiser, number)
            _check_finite(made, f"the denoiser's samples at step {step:g}", "If it cannot be sampled, say samples=0")
            copies = self._copies(made)[0]
        return ProbeResult(
            step=step,
            rho=None if self.held_out is None else position(losses, self._losses[0], self._losses[1]),
            gaussian=mean_estimate(to_gaussian),
            multidelta=mean_estimate(to_multidelta),
            loss_train=mean_estimate(losses[0]),
            loss_held_out=mean_estimate(losses[1]) if self.held_out is not None else None,
            copies=copies,
            samples=self.samples,
            gaussian_by_image=tuple(float(f"{value:.6g}") for value in to_gaussian.tolist()),
        )

    def relative_losses(self, denoiser: Denoiser) -> list[Estimate]:
        """A denoiser's losses in units of the Gaussian's, on training images and, if there are such, on held-out ones."""
        with eval_mode(denoiser):
            losses = self._losses_of(self._answers(denoiser))
        found = [ratio_interval(own, of_gaussian) for own, of_gaussian in zip(losses, self._losses[0], strict=True)]
        return [Estimate(float(value), float(low), float(high), len(units)) for value, low, high, units in found]

    def _call(self, denoiser: Denoiser, inputs: _Inputs, x: Tensor, sigma: float) -> Tensor:
        labels, (_, dtype) = inputs.labels, placement(denoiser, x, self.device)

        def work(start: int, stop: int) -> Tensor:
            return call(denoiser, x[start:stop].to(dtype), sigma, None if labels is None else labels[start:stop])

        return torch.cat(list(in_batches(work, len(x)))).float()

    def _answers(self, denoiser: Denoiser) -> list[Tensor]:
        """The denoiser's answers to each set of inputs, (s, n, *shape)."""
        return [
            torch.stack([self._call(denoiser, each, x, s) for x, s in zip(noisy, self.sigmas.tolist(), strict=True)])
            for each, noisy in zip(self.inputs, self._noisy, strict=True)
        ]

    def _losses_of(self, answers: list[Tensor]) -> list[Tensor]:
        """The mean squared error by image, of each set of inputs."""
        return [
            each.by_image((of_each - clean).square().flatten(2).mean((0, 2)))
            for each, of_each, clean in zip(self.inputs, answers, self._clean, strict=True)
        ]

    def _window(self, references: tuple[nn.Module, nn.Module]) -> Float[Tensor, "s"]:
        """Noise levels at which the references differ most on noisy training images, at most three.

        With little noise they do not, unlike on held-out images: there is nothing to recover, and no network to be told
        apart from another.
        """
        least, most = self.sigma_range
        high, low = (min(max(level, least), most) for level in _SEARCHED[:2])
        n = _SEARCHED[2] if low < high else 1
        levels = torch.logspace(math.log10(high), math.log10(low), n, dtype=torch.float64).clamp(least, most)
        inputs = self.train
        count = min(_SEARCH_INPUTS, inputs.noisy.count)
        x = torch.cat([inputs.at(sigma, count) for sigma in levels.tolist()]).to(self.device)
        sigma = levels.repeat_interleave(count).to(x)
        told = () if inputs.labels is None else (inputs.labels[:count].repeat(n).to(self.device),)
        a, b = (reference(x, sigma, *told) for reference in references)
        apart = _rmse(a[None], b[None]).reshape(n, count).mean(1).cpu()
        within = levels[apart >= _WINDOW * apart.max()]  # all of them where training images do not differ
        if len(within) <= _LEVELS:
            return within
        return within[torch.linspace(0, len(within) - 1, _LEVELS).round().long()]

    def _sampled_through(self) -> Float[Tensor, "s"]:
        """The sampler's noise levels, within the denoiser's range."""
        least, most = self.sigma_range
        high, low = min(_SAMPLED[0], most), max(_SAMPLED[1], least)
        if not low < high:
            raise ConfigError(
                f"samples are made at noise levels from {_SAMPLED[0]:g} to {_SAMPLED[1]:g}; the denoiser's range, "
                f"{least:.4g} to {most:.4g}, has none of them. Say samples=0."
            )
        return karras_sigmas(self.steps, low, high)

    def sampled(self, denoiser: Denoiser, number: int) -> Tensor:
        """The samples of one look, (samples, *shape), within the bounds of the images."""
        first = number * self.samples
        shape = tuple(self.watched.train.shape[1:])
        latents = draw_noise(self.seed, torch.arange(first, first + self.samples), shape, stream="monitor latents")
        labels = self.watched.labels
        if labels is not None:
            order = draw_order(self.seed + number, len(labels), stream="monitor labels")
            labels = labels[order[torch.arange(self.samples) % len(order)]]
        made = sample(
            denoiser,
            latents,
            sigmas=self._grid,
            solver="dpmpp_2m",
            labels=labels,
            device=self.device,
        )
        bounds = self.watched.bounds
        return made.float() if bounds is None else made.float().clamp(*bounds)

    @cached_property
    def _originals(self) -> Originals:
        rmse = 0.0 if self.watched.bounds is None else DUPLICATE_RMSE
        return Originals.of(self.watched.train, self.watched.groups, rmse=rmse, device=self.device)

    def _copies(self, images: Tensor, *, known: bool = True) -> tuple[int, int]:
        """How many images are copies of training images, and of how many; repetitions are left out unless `known`."""
        found = self._originals.nearest(images)
        tolerance = 0.0 if self.watched.bounds is None else DUPLICATE_RMSE * math.sqrt(images[0].numel())
        counted = torch.full_like(found.first, known, dtype=torch.bool) | (found.first > tolerance)
        return int(found.copied[counted].sum()), max(int(counted.sum()), 1)


def _within(sigmas: Sigmas, sigma_range: tuple[float, float]) -> Float[Tensor, "s"]:
    """Noise levels that were asked for; raises unless the denoiser can be called with all of them."""
    levels, (low, high) = as_sigmas(sigmas), sigma_range
    outside = levels[(levels < low * (1 - _ROUNDING)) | (levels > high * (1 + _ROUNDING))]
    if len(outside):
        raise ConfigError(
            f"sigmas must lie in the denoiser's range of noise levels, {low:.4g} to {high:.4g}; got {outside[0]:.4g}. "
            "Leave sigmas out, and the monitor chooses levels within it."
        )
    return levels


def position(network: list[Tensor], gaussian: list[Tensor], multidelta: list[Tensor]) -> Estimate | None:
    """Where the gap between held-out and training loss lies, between the Gaussian's (0) and the multi-delta's (1)."""
    above, whole = (
        (losses[0].double() - gaussian[0].double(), losses[1].double() - gaussian[1].double())
        for losses in (network, multidelta)
    )
    return quotient_estimate(above, whole)


def _references(watched: ProbeImages, device: torch.device) -> tuple[nn.Module, nn.Module]:
    """The Gaussian and the multi-delta denoiser of the training images, or of each class's."""
    dim = watched.train[0].numel()
    rank = min(_RANK, len(watched.train)) if dim > _DENSE_DIM else None
    fitting: dict[str, Any] = {"device": device, "bounds": watched.bounds, "across_ranks": False}  # one process looks
    holding: dict[str, Any] = {"bounds": watched.bounds, "resident": True}
    gaussian: nn.Module
    multidelta: nn.Module
    if watched.labels is None:
        gaussian = GaussianDenoiser(Moments.fit(watched.train, rank=rank, **fitting))
        multidelta = MultiDeltaDenoiser(watched.train, **holding)
    else:
        gaussian = GaussianDenoiser.per_class(watched.train, watched.labels, **fitting)
        multidelta = MultiDeltaDenoiser.per_class(watched.train, watched.labels, **holding)
    return gaussian.to(device, torch.float32), multidelta.to(device, torch.float32)


def _check_finite(values: Tensor, name: str, advice: str) -> None:
    """Raise if values are NaN or infinite: neighbours and means of such say nothing."""
    if not bool(values.isfinite().all()):
        raise DataError(f"{name} must be finite; some are NaN or infinite. {advice}.")


def _rmse(a: Float[Tensor, "s n *shape"], b: Float[Tensor, "s n *shape"]) -> Float[Tensor, "n"]:
    """The root mean square difference of each input, averaged over noise levels."""
    return (a - b).square().flatten(2).mean(2).sqrt().mean(0)
