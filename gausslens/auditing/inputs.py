"""The inputs of an audit: model and images are loaded, and validated before anything is measured."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..data.groups import with_shared_groups
from ..data.loading import ImageSet, load_images
from ..errors import CheckpointError, ConfigError, DataError
from ..evaluation.references import RunImages, load_run_images
from ..images import as_tensor, check_same_shape, content_hash, gather, known_classes, select
from ..measures.neighbors import first_equal
from ..store.run import Run
from ..zoo.loading import load_model
from ..zoo.model import Model
from ..zoo.python_objects import takes_labels
from .config import AuditConfig
from .context import AuditContext
from .pool import FEWEST_HELD_OUT

_FEWEST_TRAIN = 4
_FEW = 2  # images, to see whether a model takes them


def load_context(
    config: AuditConfig, *, device: torch.device, progress: bool = False, trial: bool = False
) -> AuditContext:
    """Load the model and its images, and see that they fit each other."""
    model = load_model(config.model, kimg=config.kimg, device=device)
    check_levels(config.model)
    if config.train is not None:
        return validate_inputs(model, _named_images(config, model, progress), config, trial=trial)
    images, mirrored = _own_images(config, progress=progress)
    return validate_inputs(model, images, replace(config, augment="flip") if mirrored else config, trial=trial)


def validate_inputs(model: Model, images: RunImages, config: AuditConfig, *, trial: bool = False) -> AuditContext:
    """A model and images that fit each other; pixels become latents for a model of latents."""
    images = _check_sets(images)
    if config.features is not None and model.bounds is None:
        raise ConfigError("features must be left out: the samples of this model are latents.")
    pictures = None
    if model.encode is not None:
        pictures = images.train, images.held_out
        taken = slice(_FEW if trial else None)
        train, held_out = (
            gather(model.encode(part[taken]), bounds=None, name="latents") if len(part) else part for part in pictures
        )
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
    context = AuditContext(model, images, config, pictures)
    _ = context.first_answers  # a model that fails does so before anything is measured
    if context.features is not None:
        context.features.embed(images.train[:_FEW])
    return context


def resolve(context: AuditContext) -> AuditConfig:
    """The config with every choice left open made: snapshot, images, noise levels and samples."""
    config, run = context.config, training_run(context.config.model)
    if run is not None and config.kimg is None and Path(config.model).is_dir():
        config = replace(config, kimg=run.snapshots[-1])
    if run is not None and config.train is None:
        config = replace(config, train=run.config.data, **run.config.reading)
    return replace(config, sigmas=tuple(context.sigmas.tolist()), samples=context.sample_count)


def check_levels(source: Any) -> None:
    """See that a model, if it is of a gausslens run, was trained for more than one noise level."""
    run = training_run(source)
    if run is not None and run.config.sigma is not None:
        raise ConfigError(
            f"{run.path} was trained for sigma = {run.config.sigma:g} alone; an audit needs a network for all noise levels. "
            "`gausslens measure` takes it."
        )


def training_run(source: Any) -> Run | None:
    """The run that a model is of, if `gausslens train` made it; else None."""
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


def _check_sets(images: RunImages) -> RunImages:
    """The images without held-out ones of classes not trained on; raises unless there are enough, and held out."""
    train, held_out = images.train, images.held_out
    check_same_shape(held_out, train, "held-out images", advice="Resize (--size) or convert one of the sets.")
    labels, known = images.held_out_labels, images.train_labels
    if known is not None and labels is None and len(held_out):
        raise DataError("the training images have labels and the held-out images have none.")
    if known is not None and labels is not None:
        rows = known_classes(labels, known)
        if len(rows) < len(held_out):
            rows = rows if len(rows) >= FEWEST_HELD_OUT else rows[:0]
            held_out, labels, groups = select(rows, held_out, labels, images.held_out_groups)
            images = replace(images, held_out=held_out, held_out_labels=labels, held_out_groups=groups)
    different = len(first_equal(train).unique())
    if different < _FEWEST_TRAIN:
        same = "" if different == len(train) else f" different ones, the rest of {len(train)} are repeats"
        raise DataError(
            f"an audit needs at least {_FEWEST_TRAIN} training images; {images.name} has {different}{same}."
        )
    if 0 < len(held_out) < FEWEST_HELD_OUT:
        raise DataError(f"an audit needs at least {FEWEST_HELD_OUT} held-out images, or none; got {len(held_out)}.")
    if len(held_out) == len(train) and content_hash(held_out) == content_hash(train):
        raise DataError(
            f"held-out images must be new to the model; these {len(train):,} are the training images. Name others, or none."
        )
    return images


def _own_images(config: AuditConfig, *, progress: bool) -> tuple[RunImages, bool]:
    """The images of a gausslens run, and whether it was trained on their mirror images, too."""
    run = training_run(config.model)
    if run is None:
        raise ConfigError(f"{config.model} does not say what it was trained on; name the images with --train.")
    images = load_run_images(run, progress=progress)
    if not run.config.flip:
        return images, False
    # Mirror images are references. They are not audited: no held-out image is mirrored, so the sets would differ.
    half = slice(len(images.train) // 2)
    train, labels, groups = select(half, images.train, images.train_labels, images.train_groups)
    return replace(images, train=train, train_labels=labels, train_groups=groups), True


def _named_images(config: AuditConfig, model: Model, progress: bool) -> RunImages:
    """The images that --train, --held-out and --unseen name."""
    named = [source for source in (config.train, config.held_out) if source is not None]
    sets = [load_images(source, **config.reading, progress=progress) for source in named]
    known, *others = with_shared_groups(sets, config.groups)
    split = len(known) - (config.unseen or 0)
    if config.unseen is not None and split <= 3:
        raise DataError(f"{config.train} has {len(known)} images; {config.unseen} unseen ones leave too few.")
    train, labels, groups = select(slice(split), *_columns(known, model))
    unseen = _columns(others[0], model) if others else select(slice(split, None), *_columns(known, model))
    held_out, held_out_labels, held_out_groups = unseen
    return RunImages(train, train, held_out, labels, held_out_labels, known.name, groups, held_out_groups)


def _columns(images: ImageSet, model: Model) -> list[Any]:
    """Images, labels for a model that takes them, and groups."""
    columns = images.images, images.labels if takes_labels(model) else None, images.groups
    return [None if column is None else as_tensor(column) for column in columns]
