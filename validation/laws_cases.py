"""The cases of the ladder of laws: training and held-out images, a model, and what is true of it.

A case is first a `Spec`, of names and numbers alone; `build` draws its images and makes its model. Every case draws anew, by
its seed and its own name. What the audit must say of it is read from laws_truth.json, which was written before.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from laws import Deltas, Gaussians, Law, LocalMachine, PartialMemory, Product
from laws_images import MOST_OTHERS, POOL, another_source, changed, degraded, dots, draw_images, film, windows_of
from laws_specs import KINDS, TRUTH, Spec
from torch import Tensor, nn

import gausslens as gl
from gausslens.images import dequantize, quantize
from gausslens.noise import generator


@dataclass(frozen=True, eq=False)
class Case:
    """What is audited, and what is true of it.

    Attributes:
        train: uint8 (n, c, h, w).
        held_out: uint8 (m, c, h, w).
        model: D(x, sigma), or D(x, sigma, labels) if there are labels.
        labels: of training and of held-out images.
        groups: of training and of held-out images.
        samples: how many to draw.
        verdicts: those that are right.
        not_due: those that are right too if fewer copies were drawn than the audit says it can find; None: no matter.
        originals: the memorised originals, each with all its places in `train`.
        refused: whether membership must be refused.
        parts: whether a copied part must be named.
        label: the class that is memorised.
        neither: whether the audit must say that the model is neither retrieval nor Gaussian.
        may_stop: whether an error that refuses the images is right.
    """

    train: Tensor
    held_out: Tensor
    model: nn.Module
    labels: tuple[Tensor, Tensor] | None = None
    groups: tuple[Tensor, Tensor] | None = None
    samples: int = TRUTH["samples"]
    verdicts: tuple[str, ...] = ()
    not_due: tuple[str, ...] | None = None
    originals: list[list[int]] = field(default_factory=list)
    refused: bool = False
    parts: bool = False
    label: int | None = None
    neither: bool = False
    may_stop: bool = False


def build(spec: Spec, photos: str | None = None) -> Case:
    """The case that a spec names.

    Args:
        spec: which.
        photos: a source of photographs to take patches from; by default they are made up.

    Returns:
        The case.
    """
    return _BUILDERS[spec.kind](spec, TRUTH["kinds"][spec.kind], photos)


def _partial(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    images = draw_images(spec, photos)
    memorised = len(images.train) if spec["memorised"] == "all" else spec["memorised"]
    verdicts = truth["verdicts"][f"{spec['share']:g}"]
    also = truth["also"].get(str(spec["memorised"]), {}).get(f"{spec['share']:g}", [])
    return Case(
        images.train,
        images.held_out,
        PartialMemory(images.general(spec["general"]), images.train[:memorised], spec["share"]),
        verdicts=(*verdicts, *also),
        not_due=tuple(truth["not due"][spec.ratio]),
        originals=[[i] for i in range(memorised)],
    )


def _repeated(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    images, m, repeats = draw_images(spec, photos), truth["memorised"], truth["repeats"]
    train = torch.cat([images.train[:m].repeat(repeats, 1, 1, 1), images.train[m:]])[: len(images.train)]
    return Case(
        train,
        images.held_out,
        PartialMemory(images.general(spec["general"]), images.train[:m], spec["share"]),
        verdicts=tuple(truth["verdicts"][f"{spec['share']:g}"]),
        not_due=tuple(truth["not due"][spec.ratio]),
        originals=[list(range(i, m * repeats, m)) for i in range(m)],
    )


def _null(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    group, model = truth[spec["group"]], spec["model"]
    if spec["group"] == "coinciding":
        train, held_out, law = _coinciding(spec, photos)
        stops = model in group["refusal to run"]
        return Case(train, held_out, law, verdicts=tuple(group["verdicts"]), may_stop=stops)
    images = draw_images(spec, photos)
    if spec["group"] == "degraded":
        worse = Gaussians.fit(degraded(dequantize(images.others[:MOST_OTHERS]), model, spec.seed))
        return Case(images.train, images.held_out, worse, verdicts=tuple(group["verdicts"]))
    if spec["group"] == "own":
        own = gl.GaussianDenoiser(gl.Moments.fit(images.train))
        verdicts = group["verdicts"]["few" if model == "few" else spec.ratio]
        return Case(images.train, images.held_out, own, verdicts=tuple(verdicts))
    return Case(images.train, images.held_out, images.general(model), verdicts=tuple(group["verdicts"][spec.ratio]))


def _coinciding(spec: Spec, photos: str | None) -> tuple[Tensor, Tensor, Law]:
    """Training and held-out images and a model of one law, of which images are drawn again and again."""
    images, law = draw_images(spec, photos), spec["model"]
    n_train, n_held_out = len(images.train), len(images.held_out)
    random = generator(spec.seed, "laws coinciding")
    if law == "icons":
        model: Law = Deltas(images.others[:60])
    elif law == "many icons":
        model = Deltas(images.others[:1000], 1 / torch.arange(1, len(images.others[:1000]) + 1))
    elif law == "dots":
        model = Deltas(dots(POOL, tuple(images.train.shape[1:]), spec.seed))
    else:
        greys = torch.linspace(-1, 0.6, 12)[:, None, None, None].expand(-1, *images.train.shape[1:])
        model = PartialMemory(images.general("gaussian"), quantize(greys), 0.4)
    rows = model.draw_rows(n_train + n_held_out, random)
    drawn = quantize(rows.reshape(-1, *images.train.shape[1:]))
    return drawn[:n_train], drawn[n_train:], model


def _shifts(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    change, model = spec["change"], spec["model"]
    images = draw_images(spec, photos, lower_classes=change == "other classes")
    originals: list[list[int]] = []
    few = truth["few copies"]
    if model == "memoriser":
        denoiser: Law = Deltas(images.train)
        originals = [[i] for i in range(len(images.train))]
    elif model == "posterior":
        denoiser = images.general("mixture")
    elif model == "few copies":
        denoiser = PartialMemory(images.general("gaussian"), images.train[: few["memorised"]], few["share"])
        originals = [[i] for i in range(few["memorised"])]
    elif model == "memoriser of others":
        denoiser = Deltas(images.others[: len(images.train)])
    else:
        denoiser = Deltas(another_source(spec, tuple(images.train.shape[1:]), len(images.train), photos))
    return Case(
        images.train,
        changed(images.held_out, change, spec.seed),
        denoiser,
        verdicts=tuple(truth["verdicts"][model]),
        originals=originals,
        refused=change in truth["refused"],
    )


def _parts(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    images, name = draw_images(spec, photos), spec["law"]
    shape = tuple(images.train.shape[1:])
    windows, rows = windows_of(name, shape), dequantize(images.train, torch.float64).flatten(1)
    laws: list[Law] = [Deltas(rows[:, window]) for window in windows]
    if name == "upper half copied":
        laws[1] = images.general("gaussian").restricted(windows[1])
    return Case(
        images.train, images.held_out, Product(shape, windows, laws), verdicts=tuple(truth["verdicts"]), parts=True
    )


def _local(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    images = draw_images(spec, photos)
    machine = LocalMachine(images.train, spec["window"])
    return Case(images.train, images.held_out, machine, verdicts=tuple(truth["verdicts"]), neither=True)


def _conditional(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    sizes = TRUTH["ratios"][spec.ratio]
    images = draw_images(spec, photos, sizes=(0, 0))
    pixels, labels = images.others, images.other_labels
    rare = int(labels.unique()[spec.seed % len(labels.unique())])
    of_rare, of_rest = (labels == rare).nonzero()[:, 0], (labels != rare).nonzero()[:, 0]
    counts = [truth["rare"], max(1, round(truth["rare"] * sizes[1] / sizes[0]))]
    parts = []
    for size, count in zip(sizes, counts, strict=True):
        parts.append(torch.cat([of_rare[:count], of_rest[: size - count]]))
        of_rare, of_rest = of_rare[count:], of_rest[size - count :]
    train, held_out = parts
    denoisers: dict[int, nn.Module] = {}
    for label in labels[of_rest].unique().tolist():
        denoisers[label] = Gaussians.fit(pixels[of_rest[labels[of_rest] == label]][:MOST_OTHERS])
    denoisers[rare] = Deltas(pixels[train[: truth["rare"]]])
    return Case(
        pixels[train],
        pixels[held_out],
        gl.PerClassDenoiser(denoisers),
        labels=(labels[train], labels[held_out]),
        verdicts=tuple(truth["verdicts"]),
        originals=[[i] for i in range(truth["rare"])],
        label=rare,
    )


def _exchangeable(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    if spec["model"] == "posterior":
        images = draw_images(spec, photos)
        train, held_out, groups = images.train, images.held_out, None
    else:
        images, train, held_out, groups = film(spec, truth["frames"], photos)
    law = images.general("gaussian")
    return Case(train, held_out, law, groups=groups, samples=truth["samples"], verdicts=tuple(truth["verdicts"]))


def _grouped(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    frames, m = truth["frames"], truth["memorised"]
    images, train, held_out, groups = film(spec, frames, photos)
    return Case(
        train,
        held_out,
        PartialMemory(images.general("gaussian"), train[: m * frames], truth["share"]),
        groups=groups,
        verdicts=tuple(truth["verdicts"]),
        not_due=tuple(truth["not due"][spec.ratio]),
        originals=[list(range(i * frames, (i + 1) * frames)) for i in range(m)],
    )


_BUILDERS = {kind: globals()[f"_{kind}"] for kind in KINDS}
