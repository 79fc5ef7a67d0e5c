"""Who is audited: a model, the images it was trained on, others that it has not seen, and the references beside it."""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..data.groups import with_shared_groups
from ..data.loading import ImageSet, load_images
from ..denoisers.protocol import call, eval_mode, placement
from ..errors import CheckpointError, ConfigError, DataError, GausslensError, one_line
from ..evaluation.cached_denoiser import CachedDenoiser
from ..evaluation.references import RunImages, gaussian_denoiser, load_run_images, multidelta_denoiser
from ..images import Bounds, as_bytes, as_tensor, content_hash, dequantize, keep_known_classes
from ..measures.neighbors import duplicates
from ..measures.originals import DUPLICATE_RMSE
from ..nn.acceleration import for_inference
from ..noise import as_sigmas, draw_noise, karras_sigmas
from ..store.run import Run
from ..zoo.loading import load_model
from ..zoo.model import Model
from ..zoo.objects import takes_labels
from .config import AuditConfig
from .embedding import FeatureNetwork, load_features

_LEVELS = 10
_LEAST, _MOST = 0.002, 80.0
_SMALL_DIM = 1024
_FEWEST_TRAIN, _FEWEST_HELD_OUT = 4, 2
_TRIED = 2  # images, to see whether a model takes them
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

    @cached_property
    def network(self) -> nn.Module:
        """The model's denoiser, which takes and gives float32 whatever it computes in."""
        dtype = placement(self.model.denoiser, torch.zeros(1))[1]
        return self.model.denoiser if dtype == torch.float32 else _Converted(self.model.denoiser, dtype)

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

    @cached_property
    def pool(self) -> Tensor:
        """Training images, then held-out ones, on the CPU."""
        return torch.cat([as_tensor(part).cpu() for part in (self.images.train, self.images.held_out)])

    @cached_property
    def repeats(self) -> Tensor:
        """Pairs (i, j) of images of the pool of which j repeats i, the first that it repeats, (p, 2)."""
        return duplicates(self.pool, tolerance=self.duplicate_rmse * self.dim**0.5, device=self.device)

    @property
    def train_repeats(self) -> Tensor:
        """Those of training images alone."""
        return self.repeats[self.repeats[:, 1] < len(self.images.train)]

    @cached_property
    def overlap(self) -> Tensor:
        """Which held-out images repeat a training image or share a group with one, (m,)."""
        images, n_train = self.images, len(self.images.train)
        shared = self.repeats[(self.repeats[:, 0] < n_train) & (self.repeats[:, 1] >= n_train)]
        overlap = torch.zeros(len(images.held_out), dtype=torch.bool)
        overlap[shared[:, 1] - n_train] = True
        if images.train_groups is not None and images.held_out_groups is not None:
            overlap |= torch.isin(images.held_out_groups.cpu(), images.train_groups.cpu())
        return overlap

    @cached_property
    def _new(self) -> Tensor:
        return (~self.overlap).nonzero()[:, 0]

    @cached_property
    def held_out(self) -> Tensor | None:
        """The held-out images that the model has not seen, or None if they are fewer than two."""
        if len(self._new) < _FEWEST_HELD_OUT:
            return None
        known = as_tensor(self.images.held_out)
        return known if len(self._new) == len(known) else known[self._new.to(known.device)]

    @property
    def held_out_labels(self) -> Tensor | None:
        """Their labels, or None."""
        labels = self.images.held_out_labels
        return None if labels is None or self.held_out is None else labels[self._new.to(labels.device)]

    @property
    def labels(self) -> dict[str, Any]:
        """Labels of both sets, as measures take them."""
        return {"labels": self.images.train_labels, "held_out_labels": self.held_out_labels}

    @property
    def groups(self) -> dict[str, Any]:
        """Groups of both sets, as measures take them."""
        groups = self.images.held_out_groups
        unseen = None if groups is None or self.held_out is None else groups[self._new]
        return {"groups": self.images.train_groups, "held_out_groups": unseen}

    @property
    def classes(self) -> Tensor | None:
        """The classes of the training images, in turn those of the samples; None for a model without labels."""
        return None if self.images.train_labels is None else self.images.train_labels.unique().cpu()

    @property
    def duplicate_rmse(self) -> float:
        """Root mean square difference up to which two images are the same."""
        return DUPLICATE_RMSE if self.bounds is not None else 0.0

    @cached_property
    def references(self) -> RunImages:
        """The images that references are made of: those trained on, mirrored ones too if it was trained on them."""
        if self.config.augment is None:
            return self.images
        images, labels = self.images, self.images.train_labels
        train = torch.cat([images.train, images.train.flip(-1)])
        doubled = None if labels is None else labels.repeat(2)
        return replace(images, train=train, available=train, train_labels=doubled)

    @cached_property
    def denoisers(self) -> dict[str, nn.Module]:
        """The network, and the Gaussian and multi-delta denoisers of its training images."""
        made = {
            "gaussian": gaussian_denoiser(self.references, device=self.device, bounds=self.bounds),
            "multidelta": multidelta_denoiser(self.references, bounds=self.bounds),
        }
        placed = {name: denoiser.to(self.device, torch.float32) for name, denoiser in made.items()}
        return {"network": self.network, **placed}

    @cached_property
    def remembering(self) -> dict[str, nn.Module]:
        """The same, each of which computes an answer once."""
        return {name: CachedDenoiser(denoiser) for name, denoiser in self.denoisers.items()}

    @cached_property
    def fast_network(self) -> nn.Module:
        """The model's denoiser for calls that are many and need few digits."""
        return for_inference(self.network, self.device)

    @cached_property
    def features(self) -> FeatureNetwork | None:
        """The feature network to compare samples with, or None."""
        return None if self.config.features is None else load_features(self.config.features, device=self.device)

    @cached_property
    def sigmas(self) -> Tensor:
        """The noise levels, descending, all within the model's range."""
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

    @cached_property
    def first_answers(self) -> Tensor:
        """What the model makes of its first training images with noise."""
        few = slice(_TRIED)
        clean, labels = dequantize(as_tensor(self.images.train)[few].cpu()), self.images.train_labels
        sigma = float(self.sigmas[len(self.sigmas) // 2])
        x = clean + sigma * draw_noise(0, torch.arange(len(clean)), self.images.shape, stream="first answers")
        try:
            with eval_mode(self.network):
                return call(self.network, x.to(self.device), sigma, None if labels is None else labels[few])
        except GausslensError:
            raise
        except Exception as error:  # whatever the model's own code raises
            raise CheckpointError(
                f"the model {self.model.source} fails on noisy images of shape {self.images.shape}"
                f"{'' if labels is None else ' with labels'}: {one_line(error)}. It must take "
                f"D(x, sigma{'' if labels is None else ', labels'}), x of that shape."
            ) from error

    @property
    def is_run(self) -> bool:
        """Whether the model is of a run that `gausslens train` made."""
        return _training_run(self.config.model) is not None

    @property
    def sample_count(self) -> int:
        """How many images to generate."""
        if self.config.samples is not None:
            return self.config.samples
        if self.device.type != "cpu":
            return _SAMPLES_GPU
        return _SAMPLES_SMALL if self.dim <= _SMALL_DIM else _SAMPLES_LARGE

    @property
    def resolved(self) -> AuditConfig:
        """The config with every choice left open made: snapshot, images, noise levels and samples."""
        config, run = self.config, _training_run(self.config.model)
        if run is not None and config.kimg is None and Path(config.model).is_dir():
            config = replace(config, kimg=run.snapshots[-1])
        if run is not None and config.train is None:
            how = {name: getattr(run.config, name) for name in ("size", "value_range", "skip_broken")}
            config = replace(config, train=run.config.data, **how)
        return replace(config, sigmas=tuple(self.sigmas.tolist()), samples=self.sample_count)

    @cached_property
    def identity(self) -> str:
        """Names model and images."""
        named = self.model.identity or self.model.source
        parts = [named, content_hash(self.images.train), content_hash(self.images.held_out)]
        images = self.images
        tags = (images.train_labels, images.held_out_labels, images.train_groups, images.held_out_groups)
        parts += [hashlib.sha256(some.cpu().numpy().tobytes()).hexdigest() for some in tags if some is not None]
        if self.config.features is not None and Path(self.config.features).is_file():
            parts.append(hashlib.sha256(Path(self.config.features).read_bytes()).hexdigest())
        if not self.network.state_dict():  # its weights, if any, are out of sight: only its answers can tell
            parts.append(content_hash(self.first_answers.cpu()))
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


class _Converted(nn.Module):
    """A denoiser of another precision, for callers who have float32."""

    def __init__(self, denoiser: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.denoiser, self.dtype = denoiser, dtype

    def forward(self, x: Tensor, sigma: Tensor, *labels: Tensor) -> Tensor:
        answer: Tensor = self.denoiser(x.to(self.dtype), sigma.to(self.dtype), *labels)
        return answer.to(x.dtype)


def load_auditee(config: AuditConfig, *, device: torch.device, progress: bool = False, trial: bool = False) -> Auditee:
    """Load the model and its images, and see that they fit each other."""
    model = load_model(config.model, kimg=config.kimg, device=device)
    check_levels(config.model)
    if config.train is not None:
        return fit(model, _named_images(config, model, progress), config, trial=trial)
    images, mirrored = _own_images(config, progress=progress)
    return fit(model, images, replace(config, augment="flip") if mirrored else config, trial=trial)


def fit(model: Model, images: RunImages, config: AuditConfig, *, trial: bool = False) -> Auditee:
    """A model and images that fit each other; pixels become latents for a model of latents."""
    if images.train_labels is not None and images.held_out_labels is not None:
        unseen, classes = keep_known_classes(as_tensor(images.held_out), images.held_out_labels, images.train_labels)
        left = len(unseen) if len(unseen) >= _FEWEST_HELD_OUT or len(unseen) == len(images.held_out) else 0
        kept = torch.isin(images.held_out_labels, images.train_labels) if images.held_out_groups is not None else None
        groups = None if kept is None or images.held_out_groups is None else images.held_out_groups[kept][:left]
        images = replace(images, held_out=unseen[:left], held_out_labels=classes[:left], held_out_groups=groups)
    _check_sets(images)
    if config.features is not None and model.bounds is None:
        raise ConfigError("features must be left out: the samples of this model are no pictures.")
    pictures = None
    if model.encode is not None:
        pictures = images.train, images.held_out
        taken = slice(_TRIED if trial else None)
        train, held_out = (model.encode(part[taken]) if len(part) else part for part in pictures)
        images = replace(images, train=train, available=train, held_out=held_out)
    if model.shape is not None and images.shape != model.shape:
        hint = f" Say --size {model.shape[-1]} if that is how it was trained." if model.encode is None else ""
        if images.shape[0] != model.shape[0]:
            hint = f" Name images with {model.shape[0]} channels, as it was trained on."
        raise DataError(
            f"the model takes images of shape {model.shape}; those of {images.name} have {images.shape}.{hint}"
        )
    if takes_labels(model) and images.train_labels is None:
        wanted = f"has {model.classes} classes" if model.classes else "takes labels"
        raise DataError(
            f"the model {wanted}, and there are no labels for the training images, {images.name}. In a folder, each "
            "subfolder is a class; an .npz has them under `labels`."
        )
    for labels in (images.train_labels, images.held_out_labels):
        if model.classes and labels is not None and len(labels) and int(labels.max()) >= model.classes:
            raise DataError(
                f"the model has {model.classes} classes, 0 to {model.classes - 1}; the labels of {images.name} go up to "
                f"{int(labels.max())}."
            )
    who = Auditee(model, images, config, pictures)
    _ = who.first_answers  # what does not work is said before anything is measured
    if who.features is not None:
        who.features.embed(as_tensor(images.train)[:_TRIED], bounds=None)
    return who


def check_levels(source: Any) -> None:
    """See that a model, if it is of a run of ours, was trained for more than one noise level."""
    run = _training_run(source)
    if run is not None and run.config.sigma is not None:
        raise ConfigError(
            f"{run.path} was trained for sigma = {run.config.sigma:g} alone; an audit needs a network for all noise levels. "
            "`gausslens measure` takes it."
        )


def _training_run(source: Any) -> Run | None:
    """The run of ours that a model is of, or None."""
    if isinstance(source, Run):
        return source
    if not isinstance(source, str | os.PathLike):
        return None
    path = Path(source)
    try:
        run = Run.open(path.parent.parent if path.is_file() else path)  # runs/train-…/snapshots/….safetensors
        _ = run.config
    except CheckpointError:
        return None
    return run


def _check_sets(images: RunImages) -> None:
    """See that there are enough images to compare, and that the held-out ones are held out."""
    # Equal images alone, which hashes find in a fraction of a second where the search for near ones takes many.
    seen = {_fingerprint(image) for image in as_tensor(images.train).cpu()}
    if len(seen) < _FEWEST_TRAIN:
        same = "" if len(seen) == len(images.train) else f" different ones, the rest of {len(images.train)} are repeats"
        raise DataError(
            f"an audit needs at least {_FEWEST_TRAIN} training images; {images.name} has {len(seen)}{same}."
        )
    if 0 < len(images.held_out) < _FEWEST_HELD_OUT:
        raise DataError(f"an audit needs at least {_FEWEST_HELD_OUT} held-out images, or none; got 1.")
    if len(images.held_out) == len(images.train) and content_hash(images.held_out) == content_hash(images.train):
        raise DataError(
            f"held-out images must be new to the model; these {len(images.held_out):,} are the training images. Name "
            "others, or none."
        )


def _own_images(config: AuditConfig, *, progress: bool) -> tuple[RunImages, bool]:
    """The images of a run of ours, and whether it was trained on their mirror images, too."""
    run = _training_run(config.model)
    if run is None:
        raise ConfigError(f"{config.model} does not say what it was trained on; name the images with --train.")
    images = load_run_images(run, progress=progress)
    if not run.config.flip:
        return images, False
    # Mirror images are references. They are not audited: no held-out image is mirrored, so the sets would not be alike.
    half = len(images.train) // 2
    labels = None if images.train_labels is None else images.train_labels[:half]
    groups = None if images.train_groups is None else images.train_groups[:half]
    return replace(images, train=images.train[:half], train_labels=labels, train_groups=groups), True


def _named_images(config: AuditConfig, model: Model, progress: bool) -> RunImages:
    how: dict[str, Any] = {"size": config.size, "value_range": config.value_range, "skip_broken": config.skip_broken}
    assert config.train is not None
    named = [config.train] if config.held_out is None else [config.train, config.held_out]
    sets = with_shared_groups([load_images(source, **how, progress=progress) for source in named], config.groups)
    known, conditional = sets[0], takes_labels(model)
    images, labels, groups = _tensors(known, conditional)
    nothing = slice(0, 0)
    unseen = images[nothing], _part(labels, nothing), _part(groups, nothing)
    if config.unseen is not None:
        if config.unseen >= len(images) - 3:
            raise DataError(f"{config.train} has {len(images)} images; {config.unseen} unseen ones leave too few.")
        before, after = slice(None, -config.unseen), slice(-config.unseen, None)
        unseen = images[after], _part(labels, after), _part(groups, after)
        images, labels, groups = images[before], _part(labels, before), _part(groups, before)
    elif config.held_out is not None:
        unseen = _tensors(sets[1], conditional)
        if unseen[0].shape[1:] != images.shape[1:]:
            same_channels = unseen[0].shape[1] == images.shape[1]
            raise DataError(
                f"held-out images must have the shape of the training images, {tuple(images.shape[1:])}; got "
                f"{tuple(unseen[0].shape[1:])}. "
                + ("Say --size to make them equal." if same_channels else "Convert one of the sets.")
            )
        if labels is not None and unseen[1] is None:
            raise DataError(f"the training images have labels and those of {config.held_out} have none.")
    return RunImages(images, images, unseen[0], labels, unseen[1], known.name, groups, unseen[2])


def _tensors(images: ImageSet, conditional: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Images, labels for a model that takes them, and groups."""
    labels = as_tensor(images.labels) if conditional and images.labels is not None else None
    return as_tensor(images.images), labels, None if images.groups is None else as_tensor(images.groups)


def _part(tags: Tensor | None, rows: slice) -> Tensor | None:
    return None if tags is None else tags[rows]


def _fingerprint(image: Tensor) -> int:
    """A hash of an image's numbers, of any dtype."""
    return hash(as_bytes(image).numpy().tobytes())
