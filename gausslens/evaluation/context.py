"""The context of an evaluation: a network, its images and its reference denoisers.

Three denoisers are measured: the network, and as controls the Gaussian and the multi-delta denoiser of its training images.
`MeasureContext` adds three sets of images to measure on: training images, held-out images, and surrogates drawn from the
Gaussian with the training images' mean and covariance, for which the Gaussian denoiser is exact.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from ..config import TrainConfig
from ..denoisers.distillation import distill
from ..denoisers.gaussian import GaussianDenoiser
from ..denoisers.linear import LinearDenoiser
from ..denoisers.moments import Moments
from ..denoisers.protocol import Denoiser, placement
from ..generation import generate
from ..images import Bounds
from ..measures.curve import Curve
from ..nn.acceleration import for_inference
from ..noise import as_sigmas, draw_noise, karras_sigmas
from ..store.run import Run, load_trained
from .cached_denoiser import CachedDenoiser
from .config import MeasureConfig
from .references import RunImages, gaussian_denoiser, moments_of, multidelta_denoiser

_LEVELS = 10
_SURROGATES = 1000
_CONTROL_BATCH = 1024  # the multi-delta denoiser is several times faster on many inputs at a time
# Dimensions up to which networks are distilled by default, with ten calls each: everywhere, and on a GPU with much memory.
_DISTILLED_DIM, _DISTILLED_DIM_GPU = 3072, 12_288
_MATRICES = 40  # float64 matrices that a fit and its maps at ten levels may need at a time


@dataclass(frozen=True, eq=False)
class Inputs:
    """One set of images to measure on."""

    name: str  # "train", "held_out" or "surrogate"
    images: Tensor  # (n, c, h, w)
    labels: Tensor | None = None  # (n,)
    bounds: Bounds = (-1.0, 1.0)


class EvaluationContext:
    """A network, on the device to work on, with its images and reference denoisers, which are made on first use.

    `bounds` is the range of clean images, and None for latents.
    """

    def __init__(self, network: nn.Module, images: RunImages, *, bounds: Bounds = (-1.0, 1.0)) -> None:
        self.network, self.images, self.bounds = network, images, bounds

    @cached_property
    def device(self) -> torch.device:
        """Where the network is."""
        return placement(self.network, torch.zeros(1))[0]

    @property
    def dim(self) -> int:
        """Numbers in one image."""
        return self.images.train[0].numel()

    @property
    def reference_images(self) -> RunImages:
        """The images that the references are made of."""
        return self.images

    @cached_property
    def moments(self) -> Moments:
        """Mean and covariance of the training images."""
        return moments_of(self.reference_images.train, device=self.device, bounds=self.bounds)

    @cached_property
    def references(self) -> dict[str, nn.Module]:
        """The closed-form denoisers of the training images, by name; of each class for a network with labels."""
        images = self.reference_images
        made = {
            "gaussian": gaussian_denoiser(images, device=self.device, bounds=self.bounds),
            "multidelta": multidelta_denoiser(images, bounds=self.bounds),
        }
        return {name: denoiser.to(self.device, torch.float32) for name, denoiser in made.items()}

    @property
    def denoisers(self) -> dict[str, nn.Module]:
        """The network and its references, by name."""
        return {"network": self.network, **self.references}

    @cached_property
    def cached_denoisers(self) -> dict[str, nn.Module]:
        """The same, with their answers cached."""
        return {name: CachedDenoiser(denoiser) for name, denoiser in self.denoisers.items()}

    @cached_property
    def fast_network(self) -> nn.Module:
        """The network for many calls that need few digits."""
        return for_inference(self.network, self.device)


class MeasureContext(EvaluationContext):
    """A network of a training run, as `gausslens measure` and studies measure it.

    `training` is the config of its run. Distilled maps are kept in `folder`, which several processes may share.
    """

    def __init__(
        self, network: nn.Module, training: TrainConfig, images: RunImages, config: MeasureConfig, folder: Path
    ) -> None:
        super().__init__(network, images)
        self.training, self.config, self.folder = training, config, folder
        self._last_linear: dict[Path, LinearDenoiser] = {}

    @classmethod
    def of_run(
        cls, run: Run, images: RunImages, config: MeasureConfig, folder: Path, device: torch.device
    ) -> "MeasureContext":
        """The network of a run, after the training and with the weights that the config asks for."""
        network = load_trained(run, kimg=config.kimg, ema=config.weights == "ema", device=device)
        return cls(network, run.config, images, config, folder)

    @cached_property
    def sigmas(self) -> Tensor:
        """The noise levels, descending: those of the config, else the one the network was trained for, else ten."""
        if self.config.sigmas:
            return as_sigmas(sorted(self.config.sigmas, reverse=True))
        return karras_sigmas(_LEVELS) if self.training.sigma is None else as_sigmas(self.training.sigma)

    @cached_property
    def inputs(self) -> dict[str, Inputs]:
        """The sets of images to measure on, by name; surrogates only for a network without labels."""
        images = self.images
        sets = [Inputs("train", images.train, images.train_labels)]
        if len(images.held_out) > 1:
            sets.append(Inputs("held_out", images.held_out, images.held_out_labels))
        if images.train_labels is None:
            sets.append(Inputs("surrogate", self._surrogates(), bounds=None))
        return {inputs.name: inputs for inputs in sets}

    def curve(self, measure: Callable[..., Curve], inputs: Inputs, /, *denoisers: Denoiser, **options: Any) -> Curve:
        """The curve of a measure of one or two denoisers on a set of images, with the config's levels, count and seed."""
        how = {"sigmas": self.sigmas, "count": self.config.count, "seed": self.config.seed, "device": self.device}
        how |= {"labels": inputs.labels, "bounds": inputs.bounds}
        return measure(*denoisers, inputs.images, **{**how, **options})

    @cached_property
    def full_gaussian(self) -> dict[str, nn.Module]:
        """`gaussian_full`, of all images that could have been trained on; empty where all were, or with labels."""
        if self.images.train_labels is not None or len(self.images.train) >= len(self.images.available):
            return {}
        moments = moments_of(self.images.available, device=self.device)
        return {"gaussian_full": GaussianDenoiser(moments).to(self.device, torch.float32)}

    @property
    def calls(self) -> int | None:
        """Network calls for each distilled level, or None where nothing is distilled."""
        if self.images.train_labels is not None:
            return None
        return self.config.calls or (max(10 * self.dim, 64) if self.dim <= self._distilled_dim else None)

    @property
    def _distilled_dim(self) -> int:
        memory = torch.cuda.get_device_properties(self.device).total_memory if self.device.type == "cuda" else 0
        return max(_DISTILLED_DIM, min(math.isqrt(memory // (8 * _MATRICES)), _DISTILLED_DIM_GPU))

    def linear(self, name: str, inputs: Inputs) -> LinearDenoiser:
        """A denoiser distilled on a set of images, kept in the folder."""
        path = self.folder / f"distilled-{name}-{inputs.name}.safetensors"
        unseen = self.images.held_out
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):  # another process may be distilling it
            if not path.exists():
                distill(
                    self.fast_network if name == "network" else self.references[name],
                    inputs.images,
                    self.sigmas,
                    train=self.moments,
                    held_out=unseen if len(unseen) > 1 and inputs.name != "held_out" else None,
                    calls=self.calls,
                    seed=self.config.seed,
                    full=True if self.dim <= self._distilled_dim else None,
                    bounds=inputs.bounds,
                    device=self.device,
                    dtype=torch.float32,
                    batch_size=_CONTROL_BATCH if name in self.references else None,
                ).save(path)
        if path not in self._last_linear:
            self._last_linear.clear()  # the maps of ten levels at 12,288 dimensions are 12 GB: one set at a time
            self._last_linear[path] = LinearDenoiser.load(path).to(self.device)
        return self._last_linear[path]

    @cached_property
    def samples(self) -> dict[str, Tensor]:
        """Images of each denoiser from the same noise, uint8, by name; none for a network of one noise level."""
        return {} if self.training.sigma is not None else {name: self.sampled(name) for name in self.denoisers}

    def sampled(self, name: str) -> Tensor:
        """Images of one of the denoisers, uint8, from the same noise for all."""
        return generate(
            *(self.denoisers[name], self.images.shape, self.config.samples),
            steps=self.config.steps,
            seed=self.config.seed,
            labels=None if self.images.train_labels is None else self.images.train_labels.unique(),
            device=self.device,
            dtype=torch.float32,
        )

    def _surrogates(self) -> Tensor:
        """Draws from the Gaussian of the training images, μ + U √λ z, as many as there are held out."""
        n = min(max(len(self.images.held_out), self.config.count), _SURROGATES)
        moments = self.moments
        z = draw_noise(self.config.seed, torch.arange(n), (len(moments.eigvals),), stream="surrogates").to(moments.mean)
        rows = moments.mean.reshape(1, -1) + (z * moments.eigvals.clamp_min(0).sqrt()) @ moments.eigvecs.T
        return rows.reshape(n, *self.images.shape).float().cpu()
