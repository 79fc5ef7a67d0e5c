"""A probe of a denoiser while it is trained: a few fixed noisy images, and what the references answer there.

The answers of the Gaussian and the multi-delta denoiser of the training images are computed once, at the noise levels
at which the two differ most. A look at the network makes of its answers there

    gap = held-out loss − training loss,   ρ = (gap_θ − gap_G)/(gap_M − gap_G),

0 for the Gaussian and 1 for the multi-delta denoiser, the network's distance to both, and the copies among a few
samples.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Float, Images, Sigmas
from ..denoisers.gaussian import GaussianDenoiser
from ..denoisers.moments import Moments
from ..denoisers.multidelta import MultiDeltaDenoiser
from ..denoisers.protocol import Denoiser, call, eval_mode, in_batches, placement
from ..errors import ConfigError, DataError
from ..images import Bounds, check_labels, dequantize, gather, keep_known_classes, require_finite
from ..measures.intervals import Estimate, mean_estimate, ratio_interval
from ..measures.loss import squared_errors
from ..measures.originals import DUPLICATE_RMSE, Originals
from ..measures.sweep import NoisyInputs
from ..measures.two_sample import quotient_estimate
from ..noise import as_sigmas, draw_noise, draw_order, karras_sigmas
from ..sampling import sample

_SEARCHED = (20.0, 0.05, 12)  # noise levels, from and to and how many, among which those that tell most are chosen
_SAMPLED = (80.0, 0.002)  # noise levels that are sampled through, from and to
_ROUNDING = 1e-6  # of the ends of a denoiser's range, which may have been float32
_LEVELS = 3
_SEARCH_INPUTS = 16
_WINDOW = 0.5  # of the largest distance between the references
_RANK = 1024  # principal components of images with more pixels than can be decomposed in seconds
_DENSE_DIM = 4096
_CHANCE_IMAGES = 256  # held-out images that say how often one seems to be a copy that is none
_SPEED = {"cpu": 1e10, "cuda": 1e12}  # arithmetic per second, to guess what preparing takes


@dataclass(frozen=True)
class ProbeImages:
    """The images that a network is probed with."""

    train: Tensor  # what it is trained on, (n, *shape)
    held_out: Tensor | None  # what it never sees, (m, *shape)
    labels: Tensor | None  # of the training images, (n,), for a conditional denoiser
    held_out_labels: Tensor | None  # of the held-out images, (m,)
    bounds: Bounds  # admissible values of float images
    groups: Tensor | None = None  # which training images belong together, (n,); copies of a group are of one original

    @classmethod
    def of(
        cls, train: Images, held_out: Images | None, labels: Any, held_out_labels: Any, groups: Any, bounds: Bounds
    ) -> "ProbeImages":
        """Images and labels of any source, checked to fit; held-out images of unknown classes are left out."""
        known = gather(train, bounds=bounds, name="train")
        unseen = None if held_out is None else gather(held_out, bounds=bounds, name="held_out")
        if unseen is not None and unseen.shape[1:] != known.shape[1:]:
            raise DataError(
                f"held_out must have the shape of the training images, {tuple(known.shape[1:])}; "
                f"got {tuple(unseen.shape[1:])}."
            )
        if labels is not None and unseen is not None and held_out_labels is None:
            raise DataError(
                "held_out_labels must be given with labels: the denoiser needs those of held-out images too."
            )
        of_known = None if labels is None else check_labels(labels, len(known))
        of_unseen = None
        if of_known is not None and unseen is not None:
            of_unseen = check_labels(held_out_labels, len(unseen), "held_out_labels")
            unseen, of_unseen = keep_known_classes(unseen, of_unseen, of_known)
            if not len(unseen):
                unseen, of_unseen = None, None
        together = None if groups is None else check_labels(groups, len(known), "groups")
        return cls(known, unseen, of_known, of_unseen, bounds, together)

    def seconds_to_prepare(self, inputs: int) -> float:
        """Seconds that the references may take, guessed from the arithmetic of moments and distances on so many inputs."""
        n, dim = len(self.train), self.train[0].numel()
        arithmetic = 2 * n * dim * (min(n, dim) + 6 * inputs) + 10 * min(n, dim) ** 3
        return 0.05 + float(arithmetic) / _SPEED["cuda" if torch.cuda.is_available() else "cpu"]


@dataclass(frozen=True)
class ProbeResult:
    """What a probe measured at one moment; distances and losses are means over a few noise levels."""

    step: float | int
    rho: Estimate | None  # None without held-out images, or if the references cannot be told apart
    gaussian: Estimate  # RMSE to the Gaussian denoiser, on held-out images if there are such
    multidelta: Estimate  # RMSE to the multi-delta denoiser, likewise
    loss_train: Estimate  # mean squared error per pixel on training images
    loss_held_out: Estimate | None
    copies: int  # copies of training images among the samples, which are others every time
    samples: int
    gaussian_by_image: tuple[float, ...]  # the distance to the Gaussian, for comparison with other moments
    seconds: float = 0.0  # how long it took

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ProbeResult":
        """A result as `dataclasses.asdict` and JSON leave it."""
        found = {name: Estimate(**part) if isinstance(part, dict) else part for name, part in value.items()}
        return cls(**found | {"gaussian_by_image": tuple(value["gaussian_by_image"])})


class _Inputs:
    """Some images under fixed noise, and where they are probed: `noisy` at each noise level, and `clean`."""

    def __init__(self, images: Tensor, labels: Tensor | None, count: int, noises: int, seed: int, name: str) -> None:
        order = draw_order(seed, len(images), stream=f"monitor {name}")[:count].to(images.device)
        chosen, classes = images[order], None if labels is None else labels[order.to(labels.device)]
        self.count = count * noises
        self._inputs = NoisyInputs(chosen, classes, self.count, seed, stream=f"monitor {name}")
        self.labels = self._inputs.labels(0, self.count)
        self.clean = dequantize(chosen[torch.arange(self.count, device=chosen.device) % len(chosen)])
        self.noisy: list[Tensor] = []

    def place(self, sigmas: Float[Tensor, "s"], device: torch.device) -> None:
        self.noisy = [self.at(sigma, self.count).to(device) for sigma in sigmas.tolist()]
        self.clean = self.clean.to(device)

    def at(self, sigma: float, count: int) -> Tensor:
        return self._inputs.at(sigma, 0, count).float()

    def by_image(self, values: Float[Tensor, "n"]) -> Float[Tensor, "u"]:
        return self._inputs.averages(values.double().cpu())


class Probe:
    """Fixed inputs with the references' answers, with which any denoiser of the same images can be measured.

    The options are those of `GeneralizationMonitor`; only noise levels within `sigma_range` are used.
    """

    def __init__(
        self,
        images: ProbeImages,
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
        if len(images.train) < 2:
            raise DataError(f"a monitor needs two training images or more; got {len(images.train)}.")
        self.images, self.samples, self.seed, self.device, self.sigma_range = images, samples, seed, device, sigma_range
        asked = None if sigmas is None else _within(sigmas, sigma_range)
        self._grid = self._sampling_levels(steps) if samples else None
        self.inputs = [_Inputs(images.train, images.labels, count, noises, seed, "train")]
        unseen = images.held_out
        if unseen is not None and len(unseen) > 1:
            self.inputs.append(_Inputs(unseen, images.held_out_labels, count, noises, seed, "held out"))
        references = _references(images, device)
        with eval_mode(*references):
            self.sigmas = self._window(references) if asked is None else asked
            for inputs in self.inputs:
                inputs.place(self.sigmas, device)
            answers = [self._answers(reference) for reference in references]
        self._gaussian, self._multidelta = (of_reference[-1] for of_reference in answers)
        self._losses = [self._losses_of(of_reference) for of_reference in answers]
        self.calls = sum(each.count for each in self.inputs) * len(self.sigmas) + samples * steps
        """Images that a look calls the denoiser on."""
        self.copies_by_chance: tuple[int, int] | None = None
        if unseen is not None and samples:
            order = draw_order(seed, len(unseen), stream="monitor chance")[:_CHANCE_IMAGES]
            self.copies_by_chance = self._copies(unseen[order.to(unseen.device)], known=False)

    def try_out(self, denoiser: Denoiser, count: int) -> None:
        """Call the denoiser on so many images, at most, to see how long that takes."""
        with eval_mode(denoiser):
            self._call(denoiser, self.inputs[0], self.inputs[0].noisy[0][:count], self.sigmas[0].item())

    def look(self, denoiser: Denoiser, step: float | int, number: int) -> ProbeResult:
        """Measure a denoiser, with the samples of this number."""
        with eval_mode(denoiser):
            answers = self._answers(denoiser)
        for of_each in answers:
            require_finite(of_each, f"the denoiser's answers at step {step:g}", "Training has diverged.")
        losses = self._losses_of(answers)
        to_gaussian, to_multidelta = (
            self.inputs[-1].by_image(_errors(answers[-1], reference).sqrt().mean(0))
            for reference in (self._gaussian, self._multidelta)
        )
        copies = 0
        if self.samples:
            made = self.generate(denoiser, number)
            require_finite(made, f"the denoiser's samples at step {step:g}", "If it cannot be sampled, say samples=0.")
            copies = self._copies(made)[0]
        return ProbeResult(
            step=step,
            rho=position(losses, *self._losses) if len(losses) > 1 else None,
            gaussian=mean_estimate(to_gaussian),
            multidelta=mean_estimate(to_multidelta),
            loss_train=mean_estimate(losses[0]),
            loss_held_out=mean_estimate(losses[1]) if len(losses) > 1 else None,
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

    def generate(self, denoiser: Denoiser, number: int) -> Tensor:
        """The samples of this number, (samples, *shape), within the bounds of the images."""
        first, labels, bounds = number * self.samples, self.images.labels, self.images.bounds
        shape = tuple(self.images.train.shape[1:])
        latents = draw_noise(self.seed, torch.arange(first, first + self.samples), shape, stream="monitor latents")
        if labels is not None:
            order = draw_order(self.seed + number, len(labels), stream="monitor labels")
            labels = labels[order[torch.arange(self.samples) % len(order)]]
        made = sample(
            denoiser, latents, sigmas=self._grid, solver="dpmpp_2m", labels=labels, device=self.device
        ).float()
        return made if bounds is None else made.clamp(*bounds)

    def _call(self, denoiser: Denoiser, inputs: _Inputs, x: Tensor, sigma: float) -> Tensor:
        labels, (_, dtype) = inputs.labels, placement(denoiser, x, self.device)

        def work(start: int, stop: int) -> Tensor:
            return call(denoiser, x[start:stop].to(dtype), sigma, None if labels is None else labels[start:stop])

        return torch.cat(list(in_batches(work, len(x)))).float()

    def _answers(self, denoiser: Denoiser) -> list[Float[Tensor, "s n *shape"]]:
        levels = self.sigmas.tolist()
        return [
            torch.stack([self._call(denoiser, each, x, sigma) for x, sigma in zip(each.noisy, levels, strict=True)])
            for each in self.inputs
        ]

    def _losses_of(self, answers: list[Tensor]) -> list[Tensor]:
        """The denoising loss by image, of each set of inputs."""
        pairs = zip(self.inputs, answers, strict=True)
        return [each.by_image(_errors(of_each, each.clean).mean(0)) for each, of_each in pairs]

    def _window(self, references: tuple[nn.Module, nn.Module]) -> Float[Tensor, "s"]:
        """Noise levels at which the references differ most on noisy training images, at most three.

        With little noise they do not, unlike on held-out images: there is nothing to recover, and no network to be told
        apart from another.
        """
        least, most = self.sigma_range
        high, low = (min(max(level, least), most) for level in _SEARCHED[:2])
        n = _SEARCHED[2] if low < high else 1
        levels = torch.logspace(math.log10(high), math.log10(low), n, dtype=torch.float64).clamp(least, most)
        inputs, count = self.inputs[0], min(_SEARCH_INPUTS, self.inputs[0].count)
        x = torch.cat([inputs.at(sigma, count) for sigma in levels.tolist()]).to(self.device)
        labels = () if inputs.labels is None else (inputs.labels[:count].repeat(n).to(self.device),)
        a, b = (reference(x, levels.repeat_interleave(count).to(x), *labels) for reference in references)
        apart = squared_errors(a, b).sqrt().reshape(n, count).mean(1).cpu()
        within = levels[apart >= _WINDOW * apart.max()]  # all of them where training images do not differ
        if len(within) <= _LEVELS:
            return within
        return within[torch.linspace(0, len(within) - 1, _LEVELS).round().long()]

    def _sampling_levels(self, steps: int) -> Float[Tensor, "s"]:
        """The sampler's noise levels, within the denoiser's range."""
        least, most = self.sigma_range
        high, low = min(_SAMPLED[0], most), max(_SAMPLED[1], least)
        if not low < high:
            raise ConfigError(
                f"samples are made at noise levels from {_SAMPLED[0]:g} to {_SAMPLED[1]:g}; the denoiser's range, "
                f"{least:.4g} to {most:.4g}, has none of them. Say samples=0."
            )
        return karras_sigmas(steps, low, high)

    @cached_property
    def _originals(self) -> Originals:
        return Originals.of(self.images.train, self.images.groups, rmse=self._duplicate_rmse, device=self.device)

    @property
    def _duplicate_rmse(self) -> float:
        return 0.0 if self.images.bounds is None else DUPLICATE_RMSE

    def _copies(self, images: Tensor, *, known: bool = True) -> tuple[int, int]:
        """How many images are copies of training images, and of how many; repetitions are left out unless `known`."""
        found = self._originals.nearest(images)
        is_new = found.first > self._duplicate_rmse * math.sqrt(images[0].numel())
        counted = torch.ones_like(is_new) if known else is_new
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


def _references(images: ProbeImages, device: torch.device) -> tuple[nn.Module, nn.Module]:
    """The Gaussian and the multi-delta denoiser of the training images, or of each class's."""
    fitting: dict[str, Any] = {"device": device, "bounds": images.bounds, "across_ranks": False}  # one process probes
    holding: dict[str, Any] = {"bounds": images.bounds, "resident": True}
    gaussian: nn.Module
    multidelta: nn.Module
    if images.labels is None:
        rank = min(_RANK, len(images.train)) if images.train[0].numel() > _DENSE_DIM else None
        gaussian = GaussianDenoiser(Moments.fit(images.train, rank=rank, **fitting))
        multidelta = MultiDeltaDenoiser(images.train, **holding)
    else:
        gaussian = GaussianDenoiser.per_class(images.train, images.labels, **fitting)
        multidelta = MultiDeltaDenoiser.per_class(images.train, images.labels, **holding)
    return gaussian.to(device, torch.float32), multidelta.to(device, torch.float32)


def _errors(answers: Float[Tensor, "s n *shape"], targets: Tensor) -> Float[Tensor, "s n"]:
    """The squared error per pixel of answers at each level, to targets at each level or one for all."""
    pairs = zip(answers, targets.expand_as(answers), strict=True)
    return torch.stack([squared_errors(answer, target) for answer, target in pairs])
