"""Who is audited: a model, the images it was trained on, others that it has not seen, and the references beside it."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..acceleration import hastened
from ..data.loading import load_images
from ..errors import CheckpointError, ConfigError, DataError
from ..images import Bounds, as_tensor, content_hash
from ..measuring.references import RunImages, gaussian_denoiser, load_run_images, multidelta_denoiser
from ..measuring.remembering import Remembering
from ..noise import as_sigmas, karras_sigmas
from ..runs import Run
from ..zoo.loading import load_model
from ..zoo.model import Model
from .config import AuditConfig

_LEVELS = 10
_LEAST, _MOST = 0.002, 80.0
_SMALL_DIM = 1024
_SAMPLES_GPU, _SAMPLES_SMALL, _SAMPLES_LARGE = 10_000, 2_000, 256


@dataclass(frozen=True, eq=False)
class Auditee:
    """A model with its images; what is made of them is made when first used.

    Attributes:
        model: from the zoo, on the device to work on.
        images: those trained on, and those held out, which may be none; as the model takes them.
        config: what to measure, and how.
        pictures: the same as uint8 pixels, training and held-out, where the model takes something else; else None.
    """

    model: Model
    images: RunImages
    config: AuditConfig
    pictures: tuple[Tensor, Tensor] | None = None

    @property
    def network(self) -> nn.Module:
        """The model's denoiser."""
        return self.model.denoiser

    @cached_property
    def device(self) -> torch.device:
        """Where the model is."""
        tensors = [*self.network.parameters(), *self.network.buffers()]
        return tensors[0].device if tensors else torch.device("cpu")

    @property
    def bounds(self) -> Bounds:
        """The range of clean images; None for latents."""
        return self.model.bounds

    @property
    def dim(self) -> int:
        """Numbers in one image."""
        return self.images.train[0].numel()

    @property
    def held_out(self) -> Tensor | None:
        """The held-out images, or None if there are too few to mean anything."""
        return self.images.held_out if len(self.images.held_out) > 1 else None

    @property
    def labels(self) -> dict[str, Any]:
        """Labels of both sets, as measures take them."""
        unseen = None if self.held_out is None else self.images.held_out_labels
        return {"labels": self.images.train_labels, "held_out_labels": unseen}

    @cached_property
    def references(self) -> RunImages:
        """The images that references are made of: those trained on, mirrored ones too if it was trained on them."""
        if self.config.augment is None:
            return self.images
        images, labels = self.images, self.images.train_labels
        train = torch.cat([images.train, images.train.flip(-1)])
        doubled = None if labels is None else labels.repeat(2)
        return RunImages(train, train, images.held_out, doubled, images.held_out_labels, images.name)

    @cached_property
    def denoisers(self) -> dict[str, nn.Module]:
        """The network, and the Gaussian and multi-delta denoisers of its training images."""
        made = {
            "gaussian": gaussian_denoiser(self.references, device=self.device),
            "multidelta": multidelta_denoiser(self.references),
        }
        placed = {name: denoiser.to(self.device, torch.float32) for name, denoiser in made.items()}
        return {"network": self.network, **placed}

    @cached_property
    def remembering(self) -> dict[str, nn.Module]:
        """The same, each of which computes an answer once."""
        return {name: Remembering(denoiser) for name, denoiser in self.denoisers.items()}

    @cached_property
    def fast_network(self) -> nn.Module:
        """The model's denoiser for calls that are many and need few digits."""
        return hastened(self.network, self.device)

    @cached_property
    def sigmas(self) -> Tensor:
        """The noise levels, descending, all within the model's range.

        Raises:
            ConfigError: if one that was asked for is not.
        """
        low, high = self.sigma_range
        if self.config.sigmas:
            outside = [sigma for sigma in self.config.sigmas if not low <= sigma <= high]
            if outside:
                raise ConfigError(f"sigmas must lie in {low:.4g} to {high:.4g} for this model; got {outside}.")
            return as_sigmas(sorted(set(self.config.sigmas), reverse=True))
        return karras_sigmas(_LEVELS, low, high)

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The least and the greatest noise level that is looked at, and sampled with."""
        low, high = self.model.sigma_range
        return max(_LEAST, low), min(_MOST, high)

    @property
    def sample_count(self) -> int:
        """How many images to generate."""
        if self.config.samples is not None:
            return self.config.samples
        if self.device.type != "cpu":
            return _SAMPLES_GPU
        return _SAMPLES_SMALL if self.dim <= _SMALL_DIM else _SAMPLES_LARGE

    @cached_property
    def identity(self) -> str:
        """Names model and images."""
        named = self.model.identity or self.model.source
        parts = [named, content_hash(self.images.train), content_hash(self.images.held_out)]
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


def load_auditee(config: AuditConfig, *, device: torch.device, progress: bool = False) -> Auditee:
    """Load the model and its images, and see that they fit each other.

    Args:
        config: which.
        device: where to work.
        progress: show progress bars.

    Returns:
        Both.

    Raises:
        ConfigError: if the images are not named.
        DataError: if they cannot be read, or do not fit the model.
        CheckpointError: if the model cannot be read.
    """
    model = load_model(config.model, device=device)
    images = _own_images(config, progress=progress) if config.train is None else _named_images(config, model, progress)
    return fit(model, images, config)


def fit(model: Model, images: RunImages, config: AuditConfig) -> Auditee:
    """A model and images that fit each other; pixels become latents for a model of latents.

    Args:
        model: the model.
        images: its images, as pixels.
        config: what to measure, and how.

    Returns:
        The auditee.

    Raises:
        DataError: if shapes or labels do not fit.
    """
    pictures = None
    if model.encode is not None:
        pictures = images.train, images.held_out
        train, held_out = (model.encode(part) if len(part) else part for part in pictures)
        images = RunImages(train, train, held_out, images.train_labels, images.held_out_labels, images.name)
    if model.shape is not None and images.shape != model.shape:
        hint = f" Say --size {model.shape[-1]} if that is how it was trained." if model.encode is None else ""
        raise DataError(
            f"the model takes images of shape {model.shape}; those of {images.name} have {images.shape}.{hint}"
        )
    if model.classes and images.train_labels is None:
        raise DataError(f"the model has {model.classes} classes, and the images of {images.name} have no labels.")
    if len(images.train) < 4:
        raise DataError(f"an audit needs at least 4 training images; {images.name} has {len(images.train)}.")
    return Auditee(model, images, config, pictures)


def _own_images(config: AuditConfig, *, progress: bool) -> RunImages:
    """The images of a run of ours."""
    path = Path(config.model)
    folder = path.parent.parent if path.is_file() else path  # of a snapshot: runs/train-…/snapshots/….safetensors
    try:
        run = Run.open(folder)
        _ = run.config
    except CheckpointError:
        raise ConfigError(
            f"{config.model} does not say what it was trained on; name the images with --train."
        ) from None
    return load_run_images(run, progress=progress)


def _named_images(config: AuditConfig, model: Model, progress: bool) -> RunImages:
    how: dict[str, Any] = {"size": config.size, "value_range": config.value_range, "skip_broken": config.skip_broken}
    assert config.train is not None
    known = load_images(config.train, **how, progress=progress)
    train, labels = as_tensor(known.images), None
    if model.classes and known.labels is not None:
        labels = as_tensor(known.labels)
    held_out, held_out_labels = train[:0], None if labels is None else labels[:0]
    if config.unseen is not None:
        if config.unseen >= len(train) - 3:
            raise DataError(f"{config.train} has {len(train)} images; {config.unseen} unseen ones leave too few.")
        held_out, train = train[-config.unseen :], train[: -config.unseen]
        if labels is not None:
            held_out_labels, labels = labels[-config.unseen :], labels[: -config.unseen]
    elif config.held_out is not None:
        unseen = load_images(config.held_out, **how, progress=progress)
        held_out = as_tensor(unseen.images)
        if held_out.shape[1:] != train.shape[1:]:
            raise DataError(
                f"held-out images must have the shape of the training images, {tuple(train.shape[1:])}; got "
                f"{tuple(held_out.shape[1:])}. Say --size to make them equal."
            )
        if labels is not None:
            if unseen.labels is None:
                raise DataError(f"the training images have labels and those of {config.held_out} have none.")
            held_out_labels = as_tensor(unseen.labels)
    return RunImages(train, train, held_out, labels, held_out_labels, known.name)
