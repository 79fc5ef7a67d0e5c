"""What a trained network is held up against: the images of its run, and the denoisers that follow from them.

References are made of exactly the images the network was trained on (mirror images too, if it was trained on those); a
source whose content has changed since is refused. For a network with labels they are per class.
"""

import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn

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
from ..images import Bounds, as_tensor, keep_known_classes
from ..noise import karras_sigmas
from ..store.run import Run

# A study measures many models in one process, all of them beside the Gaussian of all images and each beside its own.
_MOMENTS_KEPT = 2
_moments: OrderedDict[tuple[object, ...], Moments] = OrderedDict()


@dataclass(frozen=True, eq=False)
class RunImages:
    """The images of a training run.

    Attributes:
        train: what the network was trained on, uint8 (n, c, h, w).
        available: all of the source but what is held out, uint8 (m, c, h, w); what the training images are a part of.
        held_out: what no training set of the source touches, uint8 (m, c, h, w); m may be 0.
        train_labels: integers (n,) for a network with labels, else None.
        held_out_labels: integers (m,) for a network with labels, else None.
        name: of the source.
        train_groups: which of `train` belong together, (n,), numbers shared with `held_out_groups`, if the run has groups.
        held_out_groups: which of `held_out` do, (m,).
    """

    train: Tensor
    available: Tensor
    held_out: Tensor
    train_labels: Tensor | None
    held_out_labels: Tensor | None
    name: str
    train_groups: Tensor | None = None
    held_out_groups: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image, (c, h, w)."""
        return tuple(self.train.shape[1:])


def load_run_images(run: Run, *, data: str | os.PathLike[str] | None = None, progress: bool = False) -> RunImages:
    """The images that a run was trained on, and those held out from it."""
    config, manifest = run.config, run.manifest
    images = load_images(data or config.data, **config.reading, progress=progress)
    if images.content_hash != manifest["content_hash"]:
        raise DataError(
            f"expected the {manifest['count']} images that {run.path} was trained on; {images.source} holds "
            f"{len(images)} of other content. Restore them, or say where they are now with --data."
        )
    if config.labels and manifest.get("labels_hash", images.labels_hash) != images.labels_hash:
        raise DataError(
            f"expected the labels that {run.path} was trained with; those of {images.source} are others. Restore them, or "
            "say where they are now with --data."
        )
    try:
        images = with_groups(images, config.groups)
    except (ConfigError, DataError) as error:
        raise DataError(f"the groups that {run.path} was trained with cannot be read again: {error}") from None
    if images.groups_hash != manifest.get("groups_hash"):
        raise DataError(
            f"expected the groups that {run.path} was trained with; {config.groups} now gives other groups, and "
            "would hold out other images. Restore the earlier groups, or train again."
        )
    splits = Splits(len(images), held_out=config.held_out, seed=config.split_seed, groups=images.groups)
    chosen, rest = as_tensor(splits.named(config.split)), as_tensor(splits.held_out)
    pixels = as_tensor(images.images)
    labels = None if not config.labels or images.labels is None else as_tensor(images.labels)
    everything = as_tensor(splits.named("all"))
    train, train_labels = pixels[chosen], None if labels is None else labels[chosen]
    available = train if len(chosen) == len(everything) else pixels[everything]
    if config.flip:
        train, available = (torch.cat([part, part.flip(3)]) for part in (train, available))
        train_labels = None if train_labels is None else train_labels.repeat(2)
    held_out_labels = None
    if labels is not None and train_labels is not None:
        rest, held_out_labels = keep_known_classes(rest, labels[rest], train_labels)
    groups = None if images.groups is None else as_tensor(images.groups)
    return RunImages(
        train,
        available,
        pixels[rest],
        train_labels,
        held_out_labels,
        images.name,
        train_groups=None if groups is None else groups[chosen].repeat(2 if config.flip else 1),
        held_out_groups=None if groups is None else groups[rest],
    )


def moments_of(images: Tensor, *, device: torch.device | None = None, bounds: Bounds = (-1.0, 1.0)) -> Moments:
    """`Moments.fit`, of which the last few are kept: the spectrum of 7,000 faces takes a minute on two cores."""
    content = hashlib.blake2b(images.contiguous().cpu().view(torch.uint8).numpy().data).digest()
    key = (content, tuple(images.shape), images.dtype, str(device or images.device), bounds)
    known = _moments.pop(key, None) or Moments.fit(images, device=device, bounds=bounds)
    _moments[key] = known
    if len(_moments) > _MOMENTS_KEPT:
        _moments.popitem(last=False)
    return known


def gaussian_denoiser(
    images: RunImages,
    *,
    device: torch.device | None = None,
    moments: Moments | None = None,
    bounds: Bounds = (-1.0, 1.0),
) -> GaussianDenoiser | PerClassDenoiser:
    """The Wiener filter of the training images' mean and covariance, or of each class's."""
    if images.train_labels is None:
        return GaussianDenoiser(moments or moments_of(images.train, device=device, bounds=bounds))
    return GaussianDenoiser.per_class(images.train, images.train_labels, device=device, bounds=bounds)


def multidelta_denoiser(images: RunImages, *, bounds: Bounds = (-1.0, 1.0)) -> MultiDeltaDenoiser | PerClassDenoiser:
    """The exact posterior mean over the training images, or over each class's; `bounds` is None for latents."""
    if images.train_labels is None:
        return MultiDeltaDenoiser(images.train, bounds=bounds, resident=True)
    return MultiDeltaDenoiser.per_class(images.train, images.train_labels, bounds=bounds, resident=True)


def linear_denoiser(
    run: Run,
    denoiser: Preconditioned,
    images: RunImages,
    *,
    steps: int,
    kimg: float | int,
    ema: bool = True,
    progress: bool = False,
) -> nn.Module:
    """The affine map closest to a run's network at each level of `karras_sigmas(steps)`, kept in the run."""
    if run.config.sigma is not None:
        raise ConfigError(f"{run.path} was trained for sigma = {run.config.sigma:g} alone, and cannot be sampled.")
    device = next(denoiser.parameters()).device
    folder = run.path / "linear"
    folder.mkdir(exist_ok=True)
    stem = f"kimg-{kimg:g}-{'ema' if ema else 'raw'}-{steps}"
    sigmas = karras_sigmas(steps)
    if images.train_labels is None:
        path = folder / f"{stem}.safetensors"
        if not path.exists():
            distill(denoiser, images.train, sigmas, progress=progress).save(path)
        return LinearDenoiser.load(path).to(device)
    labels = images.train_labels.unique().tolist()
    paths = {label: folder / f"{stem}-class-{label}.safetensors" for label in labels}
    if not all(path.exists() for path in paths.values()):
        fits = distill(denoiser, images.train, sigmas, labels=images.train_labels, progress=progress)
        for label, path in paths.items():
            fit = fits[label]
            assert isinstance(fit, LinearDenoiser)
            fit.save(path)
    return PerClassDenoiser({label: LinearDenoiser.load(path) for label, path in paths.items()}).to(device)
