"""References for a trained network: the images of its run, and the denoisers that follow from them.

They are made of exactly the images the network was trained on, with mirror images if it was trained on those; a source whose
content has changed is refused. For a network with labels they are per class.
"""

import os
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..config import RunOptions
from ..data.arrays import expect
from ..data.groups import with_groups
from ..data.loading import load_images
from ..data.splits import Splits
from ..denoisers.composite import PerClassDenoiser
from ..denoisers.distillation import distill
from ..denoisers.gaussian import GaussianDenoiser
from ..denoisers.linear import LinearDenoiser
from ..denoisers.moments import Moments
from ..denoisers.multidelta import MultiDeltaDenoiser
from ..denoisers.preconditioned import Preconditioned
from ..errors import ConfigError, DataError
from ..images import Bounds, as_tensor, content_hash, known_classes, select
from ..noise import karras_sigmas
from ..store.run import Run

# A study compares many models in one process, each with the Gaussian of its own images and with that of all images.
_MOMENTS_KEPT = 2
_moments: OrderedDict[tuple[object, ...], Moments] = OrderedDict()


@dataclass(frozen=True, eq=False)
class RunImages:
    """The images of a training run, uint8 (…, c, h, w). Labels and groups are integers, one for each image, or None."""

    train: Tensor  # the images that the network was trained on
    available: Tensor  # all images of the source but the held-out ones; the training images are a part of them
    held_out: Tensor  # images that no training set of the source contains; there may be none
    train_labels: Tensor | None  # for a network with labels
    held_out_labels: Tensor | None
    name: str  # of the source
    train_groups: Tensor | None = None  # which images belong together, numbered over both sets
    held_out_groups: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image, (c, h, w)."""
        return tuple(self.train.shape[1:])


def load_run_images(run: Run, *, data: str | os.PathLike[str] | None = None, progress: bool = False) -> RunImages:
    """The images of a training run; raises if its source has changed."""
    config, manifest = run.config, run.manifest
    images = load_images(data or config.data, **config.reading, progress=progress)
    advice = "Restore them, or say where they are now with --data."
    held = f"{images.source} holds {len(images)} of other content"
    same = images.content_hash == manifest["content_hash"]
    expect(same, f"expected the {manifest['count']} images that {run.path} was trained on; {held}. {advice}")
    held = f"those of {images.source} are others"
    same = not config.labels or manifest.get("labels_hash", images.labels_hash) == images.labels_hash
    expect(same, f"expected the labels that {run.path} was trained with; {held}. {advice}")
    try:
        images = with_groups(images, config.groups)
    except (ConfigError, DataError) as error:
        raise DataError(f"the groups that {run.path} was trained with cannot be read again: {error}") from None
    expect(
        images.groups_hash == manifest.get("groups_hash"),
        f"expected the groups that {run.path} was trained with; {config.groups} now gives other groups, and "
        "would hold out other images. Restore the earlier groups, or train again.",
    )
    splits = Splits(len(images), held_out=config.held_out, seed=config.split_seed, groups=images.groups)
    chosen, everything, rest = (as_tensor(splits.named(name)) for name in (config.split, "all", "held-out"))
    pixels = as_tensor(images.images)
    train = pixels[chosen]
    available = train if len(chosen) == len(everything) else pixels[everything]
    if config.flip:
        train, available = (torch.cat([part, part.flip(3)]) for part in (train, available))
        chosen = chosen.repeat(2)
    labels = as_tensor(images.labels) if config.labels and images.labels is not None else None
    groups = None if images.groups is None else as_tensor(images.groups)
    if labels is not None:
        rest = rest[known_classes(labels[rest], labels[chosen])]
    train_labels, train_groups = select(chosen, labels, groups)
    held_out, *of_held_out = select(rest, pixels, labels, groups)
    return RunImages(
        train, available, held_out, train_labels, of_held_out[0], images.name, train_groups, of_held_out[1]
    )


def moments_of(images: Tensor, *, device: torch.device | None = None, bounds: Bounds = (-1.0, 1.0)) -> Moments:
    """`Moments.fit`, of which the last few are kept: the spectrum of 7,000 faces takes a minute on two cores."""
    key = (content_hash(images), str(device or images.device), bounds)
    known = _moments.pop(key, None) or Moments.fit(images, device=device, bounds=bounds)
    _moments[key] = known
    if len(_moments) > _MOMENTS_KEPT:
        _moments.popitem(last=False)
    return known


def gaussian_denoiser(
    images: RunImages, *, device: torch.device | None = None, bounds: Bounds = (-1.0, 1.0)
) -> GaussianDenoiser | PerClassDenoiser:
    """The Wiener filter of the training images' mean and covariance, or of each class's."""
    if images.train_labels is None:
        return GaussianDenoiser(moments_of(images.train, device=device, bounds=bounds))
    return GaussianDenoiser.per_class(images.train, images.train_labels, device=device, bounds=bounds)


def multidelta_denoiser(images: RunImages, *, bounds: Bounds = (-1.0, 1.0)) -> MultiDeltaDenoiser | PerClassDenoiser:
    """The exact posterior mean over the training images, or over each class's; `bounds` is None for latents."""
    if images.train_labels is None:
        return MultiDeltaDenoiser(images.train, bounds=bounds, resident=True)
    return MultiDeltaDenoiser.per_class(images.train, images.train_labels, bounds=bounds, resident=True)


def linear_denoiser(
    run: Run, denoiser: Preconditioned, images: RunImages, options: RunOptions, *, progress: bool = False
) -> nn.Module:
    """The affine map closest to a run's network at each level of `karras_sigmas(options.steps)`, kept in the run."""
    folder = run.path / "linear"
    folder.mkdir(exist_ok=True)
    stem, labels = f"kimg-{options.kimg:g}-{options.weights}-{options.steps}", images.train_labels
    endings = {None: ""} if labels is None else {label: f"-class-{label}" for label in labels.unique().tolist()}
    paths = {label: folder / f"{stem}{ending}.safetensors" for label, ending in endings.items()}
    if not all(path.exists() for path in paths.values()):
        found: Any = distill(denoiser, images.train, karras_sigmas(options.steps), labels=labels, progress=progress)
        for label, path in paths.items():
            (found if label is None else found[label]).save(path)
    fits: dict[Any, nn.Module] = {label: LinearDenoiser.load(path) for label, path in paths.items()}
    return (fits[None] if labels is None else PerClassDenoiser(fits)).to(next(denoiser.parameters()).device)
