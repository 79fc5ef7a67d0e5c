"""The images of the ladder of laws: drawn from a set by a case's seed and name, and changed as the case asks.

A set is digits, fashion, photos (8×8 patches of photographs, or of made-up ones) or a synthetic mixture of six Gaussians.
"""

import io
from dataclasses import dataclass
from functools import lru_cache

import torch
from ladder_cases import load_pixels
from laws import Gaussians, Law
from laws_specs import TRUTH, Spec
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad

from gausslens.data import load_images
from gausslens.images import as_tensor, dequantize, quantize
from gausslens.noise import draw_order, generator

POOL = 4000  # images of the synthetic mixture, and dots
MOST_OTHERS = 2000  # images behind a law
_ANOTHER = {"digits": "fashion", "fashion": "digits", "photos": "fashion", "mixture": "digits"}
_SIDE = 8
_PARTS = 4  # Gaussians of a fitted mixture
_CLASSES = 5  # of photos, by contrast


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
        return Gaussians.fit(self.others[:MOST_OTHERS], 1 if kind == "gaussian" else _PARTS, seed=self.seed)


def draw_images(
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
        rows, part = law.draw_parts(POOL, generator(seed, "laws pool"))
        return quantize(rows.reshape(-1, *law.shape)), part, law
    if name == "photos":
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


def another_source(spec: Spec, shape: tuple[int, ...], n: int, photos: str | None) -> Tensor:
    """Images of another source in this shape."""
    pixels = dequantize(_pool(_ANOTHER[spec.set], spec.seed, photos)[0])
    chosen = pixels[draw_order(spec.seed, len(pixels), stream=spec.key)[:n]]
    resized = interpolate(chosen, size=shape[1:], mode="bilinear", antialias=True, align_corners=False)
    return quantize(resized.expand(-1, shape[0], -1, -1))


def film(spec: Spec, frames: int, photos: str | None) -> tuple[Images, Tensor, Tensor, tuple[Tensor, Tensor]]:
    """Frames of as many base images as fill both sets: slightly brighter or darker, with a little noise."""
    n_groups = [size // frames for size in TRUTH["ratios"][spec.ratio]]
    images = draw_images(spec, photos, sizes=(n_groups[0], n_groups[1]))
    random = generator(spec.seed, spec.key)

    def filmed(base: Tensor) -> Tensor:
        pixels = dequantize(base).repeat_interleave(frames, 0)
        light = 1 + 0.03 * torch.randn(len(pixels), 1, 1, 1, generator=random)
        return quantize(pixels * light + 0.02 * torch.randn(pixels.shape, generator=random))

    groups = [torch.arange(n).repeat_interleave(frames) for n in n_groups]
    return images, filmed(images.train), filmed(images.held_out), (groups[0], groups[1] + n_groups[0])


def dots(n: int, shape: tuple[int, ...], seed: int) -> Tensor:
    """Blurred dots: place, width and brightness are all that differs."""
    random = generator(seed, "laws dots")
    y, x, width, light = torch.rand(4, n, 1, 1, generator=random)
    side = shape[-1]
    i = torch.arange(side, dtype=torch.float32)
    away = (i[:, None] - y * (side - 1)).square() + (i - x * (side - 1)).square()
    dots = (0.8 + 1.2 * light) * torch.exp(-away / (2 * (side / 8 * (0.8 + 0.8 * width)).square())) - 1
    return quantize(dots[:, None].expand(-1, *shape))


def degraded(pixels: Tensor, how: str, seed: int) -> Tensor:
    if how == "blurred":
        return _blurred(pixels)
    if how == "noisy":
        return pixels + 0.2 * torch.randn(pixels.shape, generator=generator(seed, "laws noisy"))
    if how == "faded":
        return 0.5 * pixels
    even = len(pixels) // 2 * 2
    return (pixels[:even:2] + pixels[1:even:2]) / 2


def changed(held_out: Tensor, change: str, seed: int) -> Tensor:
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


def windows_of(name: str, shape: tuple[int, ...]) -> list[Tensor]:
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
