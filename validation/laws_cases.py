"""The cases of the ladder of laws: training and held-out images, a model, and what is true of it.

A case is first a `Spec`, of names and numbers alone; `build` draws its images and makes its model. Every case draws anew, by
its seed and its own name. What the audit must say of it is read from laws_truth.json, which was written before.
"""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, interpolate, pad

import gausslens as gl
from gausslens.data import load_images
from gausslens.images import as_tensor, dequantize, quantize
from gausslens.noise import draw_order, generator

from laws import Deltas, Gaussians, Law, LocalMachine, PartialMemory, Product

TRUTH = json.loads(Path(__file__).with_name("laws_truth.json").read_text())
KINDS = tuple(TRUTH["kinds"])
SETS = ("digits", "fashion", "photos", "mixture")
_ANOTHER = {"digits": "fashion", "fashion": "digits", "photos": "fashion", "mixture": "digits"}
_SIDE = 8
_POOL = 4000  # images of the synthetic mixture, and dots
_MOST_OTHERS = 2000  # images behind a law
_PARTS = 4  # Gaussians of a fitted mixture
_CLASSES = 5  # of photos, by contrast


@dataclass(frozen=True)
class Spec:
    """Which case: its kind, set, seed and ratio, the name within the kind, and numbers that go with it."""

    kind: str
    set: str
    seed: int
    ratio: str
    name: str
    numbers: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """Names the case among all."""
        return " | ".join([self.kind, self.set, str(self.seed), self.ratio, self.name])

    def __getitem__(self, name: str) -> Any:
        return dict(self.numbers)[name]


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


@dataclass(frozen=True, eq=False)
class Images:
    """What a case is made of: training and held-out images, others, their classes, and two laws that saw only others."""

    train: Tensor
    held_out: Tensor
    others: Tensor
    train_labels: Tensor
    held_out_labels: Tensor
    other_labels: Tensor
    seed: int
    law: Law | None  # the images' own, where it is known

    def general(self, kind: str) -> Law:
        """P, by name: "gaussian" or "mixture"."""
        if kind == "mixture" and self.law is not None:
            return self.law
        return Gaussians.fit(self.others[:_MOST_OTHERS], 1 if kind == "gaussian" else _PARTS, seed=self.seed)


def specs(part: str, *, kinds: Any = KINDS, sets: Any = None, seeds: Any = None) -> Iterator[Spec]:
    """The cases of a part, "tuning" or "scoring": of these kinds, sets and seeds, or of all."""
    chosen = TRUTH["parts"][part]
    for kind in kinds:
        for name in (name for name in chosen["sets"] if sets is None or name in sets):
            for seed in TRUTH["seeds_of"].get(kind, {}).get(part, chosen["seeds"]):
                if seeds is None or seed in seeds:
                    for ratio, case, numbers in _NAMES[kind](TRUTH["kinds"][kind]):
                        yield Spec(kind, name, seed, ratio, case, tuple(numbers.items()))


def build(spec: Spec, photos: str | None = None) -> Case:
    """The case that a spec names.

    Args:
        spec: which.
        photos: a source of photographs to take patches from; by default they are made up.

    Returns:
        The case.
    """
    return _BUILDERS[spec.kind](spec, TRUTH["kinds"][spec.kind], photos)


# Names and numbers of the cases of each kind.

_Named = Iterator[tuple[str, str, dict[str, Any]]]


def _names_of_partial(truth: dict[str, Any]) -> _Named:
    for i, ratio in enumerate(truth["ratios"]):
        for j, memorised in enumerate(truth["memorised"]):
            for k, share in enumerate(truth["shares"]):
                general = ("gaussian", "mixture")[(i + j + k) % 2]
                numbers = {"memorised": memorised, "share": share, "general": general}
                yield ratio, f"m={memorised} share={share:g} {general}", numbers


def _names_of_repeated(truth: dict[str, Any]) -> _Named:
    for k, share in enumerate(truth["shares"]):
        general = ("gaussian", "mixture")[k % 2]
        yield truth["ratio"], f"share={share:g} {general}", {"share": share, "general": general}


def _names_of_null(truth: dict[str, Any]) -> _Named:
    for ratio in truth["posterior"]["verdicts"]:
        for general in truth["posterior"]["models"]:
            yield ratio, f"posterior {general}", {"group": "posterior", "model": general}
    for degraded in truth["degraded"]["models"]:
        yield truth["degraded"]["ratio"], degraded, {"group": "degraded", "model": degraded}
    for ratio in truth["own"]["ratios"]:
        yield ratio, "own gaussian", {"group": "own", "model": "all"}
    few = ":".join(str(size) for size in truth["own"]["few"])
    yield few, "own gaussian of few", {"group": "own", "model": "few"}
    for law in truth["coinciding"]["laws"]:
        yield truth["coinciding"]["ratio"], law, {"group": "coinciding", "model": law}


def _names_of_shifts(truth: dict[str, Any]) -> _Named:
    for change in truth["changes"]:
        for model in truth["models"]:
            yield truth["ratio"], f"{change}: {model}", {"change": change, "model": model}


def _names_of_parts(truth: dict[str, Any]) -> _Named:
    for ratio in truth["ratios"]:
        for law in truth["laws"]:
            yield ratio, law, {"law": law}


def _names_of_local(truth: dict[str, Any]) -> _Named:
    for window in truth["windows"]:
        yield truth["ratio"], f"windows of {window}x{window}", {"window": window}


def _names_of_conditional(truth: dict[str, Any]) -> _Named:
    for ratio in truth["ratios"]:
        yield ratio, "a rare class memorised", {}


def _names_of_exchangeable(truth: dict[str, Any]) -> _Named:
    for ratio in truth["ratios"]:
        for model in truth["models"]:
            yield ratio, model, {"model": model}


def _names_of_grouped(truth: dict[str, Any]) -> _Named:
    yield truth["ratio"], "ten groups memorised", {}


_NAMES = {kind: globals()[f"_names_of_{kind}"] for kind in KINDS}


# The cases themselves.


def _partial(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    images = _images(spec, photos)
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
    images, m, repeats = _images(spec, photos), truth["memorised"], truth["repeats"]
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
    images = _images(spec, photos)
    if spec["group"] == "degraded":
        degraded = _degraded(dequantize(images.others[:_MOST_OTHERS]), model, spec.seed)
        return Case(images.train, images.held_out, Gaussians.fit(degraded), verdicts=tuple(group["verdicts"]))
    if spec["group"] == "own":
        own = gl.GaussianDenoiser(gl.Moments.fit(images.train))
        verdicts = group["verdicts"]["few" if model == "few" else spec.ratio]
        return Case(images.train, images.held_out, own, verdicts=tuple(verdicts))
    return Case(images.train, images.held_out, images.general(model), verdicts=tuple(group["verdicts"][spec.ratio]))


def _coinciding(spec: Spec, photos: str | None) -> tuple[Tensor, Tensor, Law]:
    """Training and held-out images and a model of one law, of which images are drawn again and again."""
    images, law = _images(spec, photos), spec["model"]
    n_train, n_held_out = len(images.train), len(images.held_out)
    random = generator(spec.seed, "laws coinciding")
    if law == "icons":
        model: Law = Deltas(images.others[:60])
    elif law == "many icons":
        model = Deltas(images.others[:1000], 1 / torch.arange(1, len(images.others[:1000]) + 1))
    elif law == "dots":
        model = Deltas(_dots(_POOL, tuple(images.train.shape[1:]), spec.seed))
    else:
        greys = torch.linspace(-1, 0.6, 12)[:, None, None, None].expand(-1, *images.train.shape[1:])
        model = PartialMemory(images.general("gaussian"), quantize(greys), 0.4)
    rows = model.draw_rows(n_train + n_held_out, random)
    drawn = quantize(rows.reshape(-1, *images.train.shape[1:]))
    return drawn[:n_train], drawn[n_train:], model


def _shifts(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    change, model = spec["change"], spec["model"]
    images = _images(spec, photos, lower_classes=change == "other classes")
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
        denoiser = Deltas(_another(spec, tuple(images.train.shape[1:]), len(images.train), photos))
    return Case(
        images.train,
        _changed(images.held_out, change, spec.seed),
        denoiser,
        verdicts=tuple(truth["verdicts"][model]),
        originals=originals,
        refused=change in truth["refused"],
    )


def _parts(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    images, name = _images(spec, photos), spec["law"]
    shape = tuple(images.train.shape[1:])
    windows, rows = _windows(name, shape), dequantize(images.train, torch.float64).flatten(1)
    laws: list[Law] = [Deltas(rows[:, window]) for window in windows]
    if name == "upper half copied":
        laws[1] = images.general("gaussian").restricted(windows[1])
    return Case(
        images.train, images.held_out, Product(shape, windows, laws), verdicts=tuple(truth["verdicts"]), parts=True
    )


def _local(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    images = _images(spec, photos)
    machine = LocalMachine(images.train, spec["window"])
    return Case(images.train, images.held_out, machine, verdicts=tuple(truth["verdicts"]), neither=True)


def _conditional(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    sizes = TRUTH["ratios"][spec.ratio]
    images = _images(spec, photos, sizes=(0, 0))
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
        denoisers[label] = Gaussians.fit(pixels[of_rest[labels[of_rest] == label]][:_MOST_OTHERS])
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
        images = _images(spec, photos)
        train, held_out, groups = images.train, images.held_out, None
    else:
        images, train, held_out, groups = _videos(spec, truth["frames"], photos)
    law = images.general("gaussian")
    return Case(train, held_out, law, groups=groups, samples=truth["samples"], verdicts=tuple(truth["verdicts"]))


def _grouped(spec: Spec, truth: dict[str, Any], photos: str | None) -> Case:
    frames, m = truth["frames"], truth["memorised"]
    images, train, held_out, groups = _videos(spec, frames, photos)
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


# Images.


def _images(
    spec: Spec, photos: str | None, *, lower_classes: bool = False, sizes: tuple[int, int] | None = None
) -> Images:
    """Images of the spec's set, drawn by its seed and name; with `lower_classes`, of these all but those held out."""
    n_train, n_held_out = sizes or TRUTH["ratios"].get(spec.ratio) or tuple(int(n) for n in spec.ratio.split(":"))
    pixels, labels, law = _pool(spec.set, spec.seed, photos)
    order = draw_order(spec.seed, len(pixels), stream=spec.key)
    if lower_classes:
        middle = labels.unique().median()
        # The law of lower classes alone is not the law of all.
        held, order, law = order[labels[order] > middle], order[labels[order] <= middle], None
        held_out, train, others = held[:n_held_out], order[:n_train], order[n_train:]
    else:
        train, held_out, others = order.tensor_split([n_train, n_train + n_held_out])
    parts = (train, held_out, others)
    return Images(*(pixels[part] for part in parts), *(labels[part] for part in parts), spec.seed, law)


@lru_cache(maxsize=8)
def _pool(name: str, seed: int, photos: str | None) -> tuple[Tensor, Tensor, Law | None]:
    """All images of a set as uint8, their classes, and their law where it is known."""
    if name == "mixture":
        law = _synthetic(seed)
        rows, part = law.draw_parts(_POOL, generator(seed, "laws pool"))
        return quantize(rows.reshape(-1, *law.shape)), part, law
    if name == "photos":
        from ladder_cases import load_pixels

        pixels = quantize(load_pixels("photos", photos))
        contrast = dequantize(pixels).flatten(1).std(1)
        edges = contrast.quantile(torch.linspace(0, 1, _CLASSES + 1)[1:-1])
        return pixels, torch.bucketize(contrast, edges), None
    loaded = load_images(name)
    pixels, labels = as_tensor(loaded.images), as_tensor(loaded.labels).long()
    return (quantize(avg_pool2d(dequantize(pixels), 2)) if name == "fashion" else pixels), labels, None


def _synthetic(seed: int) -> Gaussians:
    """Six Gaussians with spectra like those of images, in [-1, 1] but for a pixel in thousands."""
    random, dim, parts = generator(seed, "laws mixture"), _SIDE * _SIDE, 6
    spectrum = (torch.arange(dim, dtype=torch.float64) + 1) ** -1.2
    spectrum *= 0.04 * dim / spectrum.sum()
    covariances = []
    for _ in range(parts):
        basis = torch.linalg.qr(torch.randn(dim, dim, generator=random, dtype=torch.float64))[0]
        spread = torch.rand(dim, generator=random, dtype=torch.float64) + 0.5
        covariances.append((basis * (spectrum * spread)) @ basis.T)
    means = 0.2 * torch.randn(parts, dim, generator=random, dtype=torch.float64)
    shares = torch.rand(parts, generator=random, dtype=torch.float64) + 0.5
    return Gaussians(shares, means, torch.stack(covariances), (1, _SIDE, _SIDE))


def _another(spec: Spec, shape: tuple[int, ...], n: int, photos: str | None) -> Tensor:
    """Images of another source in this shape."""
    pixels = dequantize(_pool(_ANOTHER[spec.set], spec.seed, photos)[0])
    chosen = pixels[draw_order(spec.seed, len(pixels), stream=spec.key)[:n]]
    resized = interpolate(chosen, size=shape[1:], mode="bilinear", antialias=True, align_corners=False)
    return quantize(resized.expand(-1, shape[0], -1, -1))


def _videos(spec: Spec, frames: int, photos: str | None) -> tuple[Images, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Frames of as many base images as fill both sets: slightly brighter or darker, with a little noise."""
    n_groups = [size // frames for size in TRUTH["ratios"][spec.ratio]]
    images = _images(spec, photos, sizes=(n_groups[0], n_groups[1]))
    random = generator(spec.seed, spec.key)

    def filmed(base: Tensor) -> Tensor:
        pixels = dequantize(base).repeat_interleave(frames, 0)
        light = 1 + 0.03 * torch.randn(len(pixels), 1, 1, 1, generator=random)
        return quantize(pixels * light + 0.02 * torch.randn(pixels.shape, generator=random))

    groups = [torch.arange(n).repeat_interleave(frames) for n in n_groups]
    return images, filmed(images.train), filmed(images.held_out), (groups[0], groups[1] + n_groups[0])


def _dots(n: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """Blurred dots: place, width and brightness are all that differs."""
    random = generator(seed, "laws dots")
    y, x, width, light = torch.rand(4, n, 1, 1, generator=random)
    side = shape[-1]
    i = torch.arange(side, dtype=torch.float32)
    away = (i[:, None] - y * (side - 1)).square() + (i - x * (side - 1)).square()
    dots = (0.8 + 1.2 * light) * torch.exp(-away / (2 * (side / 8 * (0.8 + 0.8 * width)).square())) - 1
    return quantize(dots[:, None].expand(-1, *shape))


def _degraded(pixels: Tensor, how: str, seed: int) -> Tensor:
    if how == "blurred":
        return _blurred(pixels)
    if how == "noisy":
        return pixels + 0.2 * torch.randn(pixels.shape, generator=generator(seed, "laws noisy"))
    if how == "faded":
        return 0.5 * pixels
    even = len(pixels) // 2 * 2
    return (pixels[:even:2] + pixels[1:even:2]) / 2


def _changed(held_out: Tensor, change: str, seed: int) -> Tensor:
    if change in ("none", "other classes"):
        return held_out
    pixels = dequantize(held_out)
    if change == "contrast":
        return quantize(0.8 * pixels)
    if change == "blur":
        return quantize(_blurred(pixels))
    if change == "noise":
        return quantize(pixels + 0.1 * torch.randn(pixels.shape, generator=generator(seed, "laws shift")))
    if change == "compression":
        return torch.stack([_compressed(image) for image in held_out])
    side = pixels.shape[-1]
    kept = round(side * 6 / 8)
    first = (side - kept) // 2
    cut = pixels[:, :, first : first + kept, first : first + kept]
    return quantize(interpolate(cut, size=pixels.shape[2:], mode="bilinear", align_corners=False))


def _blurred(pixels: Tensor) -> Tensor:
    """The mean of each pixel and its neighbours to the right and below."""
    return avg_pool2d(pad(pixels, (0, 1, 0, 1), mode="replicate"), 2, stride=1)


def _compressed(image: Tensor) -> Tensor:
    array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).contiguous().numpy()
    file = io.BytesIO()
    Image.fromarray(array).save(file, "JPEG", quality=50)
    with Image.open(file) as opened:
        size = (opened.height, opened.width, -1)
        pixels = torch.frombuffer(bytearray(opened.tobytes()), dtype=torch.uint8).reshape(size)
    return pixels.permute(2, 0, 1)


def _windows(name: str, shape: tuple[int, ...]) -> list[Tensor]:
    """The places of each window's pixels, in a row of all channels."""
    place = torch.arange(shape[0] * shape[1] * shape[2]).reshape(shape)
    upper, lower = place.tensor_split(2, 1)
    if name in ("upper and lower halves", "upper half copied"):
        chosen = [upper, lower]
    elif name == "left and right halves":
        chosen = list(place.tensor_split(2, 2))
    else:
        chosen = [part for half in (upper, lower) for part in half.tensor_split(2, 2)]
    return [part.flatten() for part in chosen]
