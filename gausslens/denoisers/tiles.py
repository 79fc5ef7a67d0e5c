"""Products of queries and weights with a tile of images, as fast as the hardware multiplies and accurate to float32.

uint8 pixels enter as p − 128 on a GPU and p − 127.5 on a CPU, which need few bits; the scale 1/127.5 is put on the small
factor. That lets a GPU use its integer and half-precision units without losing accuracy:

- x·y: each row of x is written as s(q₀ + q₁/254 + q₂/254²) with whole numbers |q| ≤ 127, which leaves an error of 6e-8 of
  the row's largest entry; the products of whole numbers are exact.
- Σ w y: weights in [0, 1] are the sum of two half-precision numbers, 22 bits.

A CPU adds up Σ w y in float64, which costs it less than float32 sums short enough not to drift.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from .._typing import Float, Int
from ..images import dequantize

# A long float32 sum of similar images drifts: by ε√t on a CPU, and by ε·t on a GPU, whose matrix units round toward zero.
# Add sums of this many images instead.
_SHORT_SUM = 256
_SHORT_MATRIX_SUM = 1024
# Float64 numbers converted at a time (32 MiB).
_PART_NUMBERS = 1 << 22
_BASE = 254
# Lifts weights out of the subnormal numbers of half precision, whose largest number is 65504.
_LIFT = 32768


class ImageTile:
    """Some images, on the device of the queries.

    Args:
        stored: the images as rows, uint8 or float, (t, d).
        dtype: the dtype of the queries, float32 or float64, in which uint8 images are defined.
        differentiable: whether derivatives must pass through the products, which whole numbers have none of.

    Attributes:
        rounding: the typical error of a float32 product in units of ε‖x‖‖y‖. Measured on CIFAR-10 where many images
            share the weight: .02 to .03 on a CPU, half of that in whole numbers; both with a margin of 4.
    """

    def __init__(self, stored: Tensor, dtype: torch.dtype, *, differentiable: bool = False) -> None:
        self.stored = stored
        self._dtype = dtype
        self._differentiable = differentiable
        self._is_bytes = stored.dtype == torch.uint8
        # What the integer product of whole matrices asks for: sizes in eights.
        self._whole_numbers = (
            self._is_bytes
            and stored.is_cuda
            and dtype == torch.float32
            and not differentiable
            and stored.shape[0] % 8 == 0
            and stored.shape[1] % 8 == 0
        )
        self._converted: Tensor | None = None
        self.rounding = 1 / 16 if self._whole_numbers else 1 / 8

    def at(self, columns: Int[Tensor, "k"]) -> "ImageTile":
        """Only some of the images."""
        part = ImageTile(self.stored[columns], self._dtype, differentiable=self._differentiable)
        if self._converted is not None and part._whole_numbers == self._whole_numbers:
            part._converted = self._converted[columns]
        return part

    def values(self, columns: Int[Tensor, "k"] | slice) -> Float[Tensor, "k d"]:
        """Some of the images in float64; uint8 ones as they are defined, dequantised in the dtype of the queries."""
        some = self.stored[columns]
        return dequantize(some, self._dtype).double() if self._is_bytes else some.double()

    def parts(self) -> Iterator[tuple[slice, Float[Tensor, "k d"]]]:
        """All images in float64, as many at a time as memory for them is cheap.

        Yields:
            Which images, and their values.
        """
        step = max(1, _PART_NUMBERS // self.stored.shape[1])
        for start in range(0, len(self.stored), step):
            some = slice(start, start + step)
            yield some, self.values(some)

    def products(self, x: Float[Tensor, "b d"], offset: Float[Tensor, "b 1"]) -> Float[Tensor, "b t"]:
        """x·y + offset for all rows and images, in float32."""
        # The integer product wants more than 16 rows, and there are three for each.
        if self._whole_numbers and len(x) > 5:
            # p/127.5 − 1 = ((p − 128) + ½)/127.5
            return _whole_number_products(x / 127.5, self._pixels(), offset + x.sum(1, keepdim=True) / 255)
        if self._whole_numbers:
            return torch.addmm(offset, x, dequantize(self.stored).T)
        return torch.addmm(offset, x / 127.5 if self._is_bytes else x, self._pixels().T)

    def weighted_sum(self, weights: Float[Tensor, "b t"]) -> Float[Tensor, "b d"]:
        """Σ_i w_i y_i for weights in [0, 1]."""
        if self._whole_numbers:
            sums = _half_precision_products(weights, self._pixels())
            return (sums + weights.sum(1, keepdim=True) / 2) / 127.5
        pixels = self._pixels()
        sums = weights.new_zeros(len(weights), pixels.shape[1], dtype=torch.float64)
        for some_weights, some_pixels in zip(weights.split(_SHORT_SUM, 1), pixels.split(_SHORT_SUM), strict=True):
            sums += some_weights.to(pixels.dtype) @ some_pixels
        return sums / 127.5 if self._is_bytes else sums

    def _pixels(self) -> Tensor:
        """The images as factors of a product: p − 128 as int8, p − 127.5 as float, or float images as they are."""
        if self._converted is None:
            if self._whole_numbers:
                self._converted = (self.stored ^ 128).view(torch.int8)
            elif self._is_bytes:
                middle = torch.tensor(127.5, dtype=self._dtype, device=self.stored.device)
                self._converted = torch.sub(self.stored, middle)
            else:
                self._converted = self.stored.to(self._dtype)
        return self._converted


def _whole_number_products(
    x: Float[Tensor, "b d"], pixels: Tensor, offset: Float[Tensor, "b 1"]
) -> Float[Tensor, "b t"]:
    """x @ pixelsᵀ + offset for int8 pixels (t, d), by three exact products of whole numbers."""
    scale = x.abs().amax(1, keepdim=True).double().clamp_min(torch.finfo(torch.float32).tiny) / 127
    digits, rest = [], x.double() / scale
    for _ in range(3):
        digit = rest.round()
        digits.append(digit.to(torch.int8))
        rest = (rest - digit) * _BASE
    whole = torch._int_mm(torch.cat(digits), pixels.T).view(3, len(x), -1)
    total = torch.add(whole[1], whole[2].float(), alpha=1 / _BASE)
    total = torch.add(whole[0], total, alpha=1 / _BASE)
    return torch.addcmul(offset, total, scale.float(), out=total)


def _half_precision_products(weights: Float[Tensor, "b t"], pixels: Tensor) -> Float[Tensor, "b d"]:
    """weights @ pixels for weights in [0, 1] and int8 pixels (t, d), by two half-precision products."""
    sums = weights.new_zeros(len(weights), pixels.shape[1], dtype=torch.float32)
    whole = len(pixels) // _SHORT_MATRIX_SUM * _SHORT_MATRIX_SUM
    for start, stop, step in ((0, whole, _SHORT_MATRIX_SUM), (whole, len(pixels), len(pixels) - whole)):
        if start == stop:
            continue
        lifted = weights[:, start:stop].float() * _LIFT
        parts = lifted.new_empty(2, *lifted.shape, dtype=torch.float16)
        parts[0] = lifted
        parts[1] = lifted.sub_(parts[0])
        factor = parts.flatten(0, 1).unflatten(1, (-1, step)).movedim(1, 0)
        short_sums = torch.bmm(
            factor, pixels[start:stop].to(torch.float16).unflatten(0, (-1, step)), out_dtype=torch.float32
        )
        sums += short_sums.unflatten(1, (2, -1)).sum((0, 1))
    return sums / _LIFT
