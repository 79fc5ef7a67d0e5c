"""A probe of a denoiser while it is trained: a few fixed noisy images, and what the references answer there.

The answers of the Gaussian and the multi-delta denoiser of the training images are computed once, at the noise levels
at which the two differ most. A look at the network measures its distance to both, counts the copies among a few samples,
and computes from its losses

    gap = held-out loss − training loss,   ρ = (gap_θ − gap_G)/(gap_M − gap_G),

which is 0 for the Gaussian and 1 for the multi-delta denoiser.
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
from ..denoisers.protocol import Denoiser, call, check_sigma_range, eval_mode, in_batches, placement
from ..errors import ConfigError, DataError, require
from ..images import (
    Bounds,
    check_labels,
    check_same_shape,
    dequantize,
    gather,
    known_classes,
    require_finite,
    select,
)
from ..measures.intervals import Estimate, mean_estimate, proportion_estimate, ratio_interval
from ..measures.originals import DUPLICATE_RMSE, Originals
from ..measures.sweep import NoisyInputs, squared_errors
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
class ProbeOptions:
    """How a network is probed; see `GeneralizationMonitor`."""

    count: int  # images of either set
    noises: int  # noises for each of them
    samples: int  # generated images
    steps: int  # noise levels that are sampled through
    seed: int  # fixes everything random

    def __post_init__(self) -> None:
        for name, least in (("count", 2), ("noises", 1), ("samples", 0), ("steps", 2)):
            value = getattr(self, name)
            require(value >= least, f"{name} must be at least {least}; got {value}.")


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
        classes = None if labels is None else check_labels(labels, len(known))
        together = None if groups is None else check_labels(groups, len(known), "groups")
        others = None
        if unseen is not None:
            check_same_shape(unseen, known, "held_out")
        if unseen is not None and classes is not None:
            advice = "held_out_labels must be given with labels: the denoiser needs those of held-out images too."
            require(held_out_labels is not None, advice, DataError)
            others = check_labels(held_out_labels, len(unseen), "held_out_labels")
            unseen, others = select(known_classes(others, classes), unseen, others)
            if not len(unseen):
                unseen, others = None, None
        return cls(known, unseen, classes, others, bounds, together)

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

    @property
    def memorized(self) -> Estimate | None:
        """The share of copies among the samples; None without samples."""
        return proportion_estimate(self.copies, self.samples) if self.samples else None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "ProbeResult":
        """A result as `dataclasses.asdict` and JSON leave it."""
        found = {name: Estimate(**part) if isinstance(part, dict) else part for name, part in value.items()}
        return cls(**found | {"gaussian_by_image": tuple(value["gaussian_by_image"])})


class _Inputs(NoisyInputs):
    """Some images under fixed noise: `noisy` at each noise level and `clean`, once it is known where to look."""

    noisy: list[tuple[float, Tensor]]
    clean: Tensor

    def __init__(self, images: Tensor, labels: Tensor | None, name: str, options: ProbeOptions) -> None:
        stream, count = f"monitor {name}", options.count * options.noises
        order = draw_order(options.seed, len(images), stream=stream)[: options.count]
        classes = None if labels is None else labels[order.to(labels.device)]
        super().__init__(images[order.to(images.device)], classes, count, options.seed, stream=stream)

    def place(self, sigmas: Float[Tensor, "s"], device: torch.device, most: int | None = None) -> None:
        """Make all inputs, or the first ones, at these noise levels and on this device."""
        count = self.count if most is None else min(most, self.count)
        self.noisy = [(sigma, self.at(sigma, 0, count).float().to(device)) for sigma in sigmas.tolist()]
        self.clean = dequantize(self._images[self._unit.to(self._images.device)]).to(device)

    def answer(self, denoiser: Denoiser, sigma: float, x: Tensor) -> Float[Tensor, "n *shape"]:
        """The denoiser's answers to the first inputs at one noise level."""
        _, dtype = placement(denoiser, x)

        def work(start: int, stop: int) -> Tensor:
            return call(denoiser, x[start:stop].to(dtype), sigma, self.labels(start, stop))

        return torch.cat(list(in_batches(work, len(x)))).float()

    def answers(self, denoiser: Denoiser) -> Float[Tensor, "s n *shape"]:
        return torch.stack([self.answer(denoiser, sigma, x) for sigma, x in self.noisy])

    def losses(self, answers: Float[Tensor, "s n *shape"]) -> Float[Tensor, "u"]:
        """The denoising loss by image, a mean over levels and noises."""
        return self.by_image(_errors(answers, self.clean))

    def by_image(self, errors: Float[Tensor, "s n"]) -> Float[Tensor, "u"]:
        return self.averages(errors.mean(0).double().cpu())


class Probe:
    """Measures denoisers on fixed inputs, at `sigmas` or where the references differ most within `sigma_range`."""

    def __init__(
        self,
        images: ProbeImages,
        options: ProbeOptions,
        *,
        sigmas: Sigmas | None,
        device: torch.device,
        sigma_range: tuple[float, float] = (0.0, math.inf),
    ) -> None:
        n, unseen = len(images.train), images.held_out
        require(n >= 2, f"a monitor needs two training images or more; got {n}.", DataError)
        self.images, self.options, self.device, self.sigma_range = images, options, device, sigma_range
        self._duplicate_rmse = 0.0 if images.bounds is None else DUPLICATE_RMSE
        asked = None if sigmas is None else as_sigmas(sigmas)
        if asked is not None:
            check_sigma_range(
                asked, sigma_range, _ROUNDING, "Leave sigmas out, and the monitor chooses levels within it."
            )
        self._grid = self._sampling_levels() if options.samples else None
        self.inputs = [_Inputs(images.train, images.labels, "train", options)]
        if unseen is not None and len(unseen) > 1:
            self.inputs.append(_Inputs(unseen, images.held_out_labels, "held out", options))
        references = _references(images, device)
        with eval_mode(*references):
            self.sigmas = self._window(references) if asked is None else asked
            for inputs in self.inputs:
                inputs.place(self.sigmas, device)
            measured = [self._measure(reference) for reference in references]
        self._answers = [answers[-1] for answers, _ in measured]
        self._losses = [losses for _, losses in measured]
        self.calls = sum(each.count for each in self.inputs) * len(self.sigmas) + options.samples * options.steps
        """Images that a look calls the denoiser on."""
        self.copies_by_chance = None if unseen is None or not options.samples else self._count_by_chance(unseen)

    def try_out(self, denoiser: Denoiser, count: int) -> None:
        """Call the denoiser on so many images, at most, to see how long that takes."""
        with eval_mode(denoiser):
            sigma, x = self.inputs[0].noisy[0]
            self.inputs[0].answer(denoiser, sigma, x[:count])

    def look(self, denoiser: Denoiser, step: float | int, number: int) -> ProbeResult:
        """Measure a denoiser, with the samples of this number."""
        with eval_mode(denoiser):
            answers, losses = self._measure(denoiser)
        for of_each in answers:
            require_finite(of_each, f"the denoiser's answers at step {step:g}", "Training has diverged.")
        to_gaussian, to_multidelta = (
            self.inputs[-1].by_image(_errors(answers[-1], reference).sqrt()) for reference in self._answers
        )
        copies = 0
        if self.options.samples:
            made = self.generate(denoiser, number)
            require_finite(made, f"the denoiser's samples at step {step:g}", "If it cannot be sampled, set samples=0.")
            copies = self._count_copies(made)
        return ProbeResult(
            step=step,
            rho=position(losses, *self._losses) if len(losses) > 1 else None,
            gaussian=mean_estimate(to_gaussian),
            multidelta=mean_estimate(to_multidelta),
            loss_train=mean_estimate(losses[0]),
            loss_held_out=mean_estimate(losses[1]) if len(losses) > 1 else None,
            copies=copies,
            samples=self.options.samples,
            gaussian_by_image=tuple(float(f"{value:.6g}") for value in to_gaussian.tolist()),
        )

    def relative_losses(self, denoiser: Denoiser) -> list[Estimate]:
        """A denoiser's losses in units of the Gaussian's, on training images and, if there are such, on held-out ones."""
        with eval_mode(denoiser):
            _, losses = self._measure(denoiser)
        found = [ratio_interval(own, of_gaussian) for own, of_gaussian in zip(losses, self._losses[0], strict=True)]
        return [Estimate(float(value), float(low), float(high), len(units)) for value, low, high, units in found]

    def generate(self, denoiser: Denoiser, number: int) -> Tensor:
        """The samples of this number, (samples, *shape), within the bounds of the images."""
        labels, bounds, seed = self.images.labels, self.images.bounds, self.options.seed
        shape, indices = tuple(self.images.train.shape[1:]), torch.arange(self.options.samples)
        latents = draw_noise(seed, number * len(indices) + indices, shape, stream="monitor latents")
        if labels is not None:
            order = draw_order(seed + number, len(labels), stream="monitor labels")
            labels = labels[order[indices % len(order)]]
        how: dict[str, Any] = {"solver": "dpmpp_2m", "labels": labels, "device": self.device}
        made = sample(denoiser, latents, sigmas=self._grid, **how).float()
        return made if bounds is None else made.clamp(*bounds)

    def _measure(self, denoiser: Denoiser) -> tuple[list[Tensor], list[Tensor]]:
        """The denoiser's answers to each set of inputs, and its losses by image."""
        answers = [inputs.answers(denoiser) for inputs in self.inputs]
        return answers, [inputs.losses(of_each) for inputs, of_each in zip(self.inputs, answers, strict=True)]

    def _window(self, references: tuple[nn.Module, nn.Module]) -> Float[Tensor, "s"]:
        """Noise levels at which the references differ most on noisy training images, at most three.

        With little noise they agree on training images, though not on held-out ones: there is nothing to recover, and all
        networks are alike.
        """
        least, most = self.sigma_range
        high, low = (min(max(level, least), most) for level in _SEARCHED[:2])
        n = _SEARCHED[2] if low < high else 1
        levels = torch.logspace(math.log10(high), math.log10(low), n, dtype=torch.float64).clamp(least, most)
        self.inputs[0].place(levels, self.device, _SEARCH_INPUTS)
        one, other = (self.inputs[0].answers(reference) for reference in references)
        apart = _errors(one, other).sqrt().mean(1).cpu()
        within = levels[apart >= _WINDOW * apart.max()]  # all of them where training images do not differ
        if len(within) <= _LEVELS:
            return within
        return within[torch.linspace(0, len(within) - 1, _LEVELS).round().long()]

    def _sampling_levels(self) -> Float[Tensor, "s"]:
        """The sampler's noise levels, within the denoiser's range."""
        least, most = self.sigma_range
        high, low = min(_SAMPLED[0], most), max(_SAMPLED[1], least)
        if not low < high:
            raise ConfigError(
                f"samples are made at noise levels from {_SAMPLED[0]:g} to {_SAMPLED[1]:g}; the denoiser's range, "
                f"{least:.4g} to {most:.4g}, has none of them. Set samples=0."
            )
        return karras_sigmas(self.options.steps, low, high)

    @cached_property
    def _originals(self) -> Originals:
        return Originals.of(self.images.train, self.images.groups, rmse=self._duplicate_rmse, device=self.device)

    def _count_copies(self, images: Tensor) -> int:
        return int(self._originals.nearest(images).copied.sum())

    def _count_by_chance(self, held_out: Tensor) -> Estimate:
        """The share of copies by the rule among held-out images, without those that repeat a training image."""
        order = draw_order(self.options.seed, len(held_out), stream="monitor chance")[:_CHANCE_IMAGES]
        found = self._originals.nearest(held_out[order.to(held_out.device)])
        is_new = found.first > self._duplicate_rmse * math.sqrt(held_out[0].numel())
        return proportion_estimate(int(found.copied[is_new].sum()), max(int(is_new.sum()), 1))


def position(network: list[Tensor], gaussian: list[Tensor], multidelta: list[Tensor]) -> Estimate | None:
    """Where the gap between held-out and training loss lies, between the Gaussian's (0) and the multi-delta's (1)."""
    above, whole = ((losses[0] - gaussian[0], losses[1] - gaussian[1]) for losses in (network, multidelta))
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
