"""Products of queries and weights with a tile of images, as fast as the hardware multiplies and accurate to float32.

uint8 pixels are whole numbers of 8 bits, which lets integer and half-precision units multiply them without loss:

- x·y: each row of x is written as s(q₀ + q₁/254 + q₂/254²) with whole numbers |q| ≤ 127, which leaves an error of 6e-8 of
  the row's largest entry; the products of whole numbers are exact. On GPUs, and on CPUs with integer dot products.
- Σ w y: weights in [0, 1] are the sum of two half-precision numbers, 22 bits. On GPUs.

Otherwise x·y is a float32 product on a GPU, and all is float64 on a CPU, where float32 is hardly faster and sums of equal
numbers drift by ε·t.
"""

from collections.abc import Iterator
from functools import cache

import torch
from torch import Tensor

from .._typing import Float, Int
from ..images import dequantize
from .fused import BASE, LIFT, centred_half, combine_digits, fused, in_two_halves

# A long sum of similar images drifts by ε·t on a GPU, whose matrix units round toward zero: add sums of this many instead.
_SHORT_SUM = 2048
# Float64 numbers converted at a time (32 MiB).
_PART_NUMBERS = 1 << 22
_BASE = 254.0
# 127·128 times this many is the largest sum of products that 32 bits hold.
_MOST_PRODUCTS = 132_104
# Lifts weights out of the subnormal numbers of half precision, whose largest number is 65504.
_LIFT = 32768.0


class ImageTile:
    """Some images, on the device of the queries.

    Args:
        stored: the images as rows, uint8 or float, (t, d).
        dtype: the dtype of the queries, float32 or float64, in which uint8 images are defined.
        differentiable: whether derivatives must pass through the products, which whole numbers have none of.

    Attributes:
        has_fast_logits: whether `logits` is much faster than a float64 product here.
        rounding: the typical error of a product in units of ε‖x‖‖y‖. Measured on CIFAR-10 where many images share the
            weight: .02 to .03 in float32, half of that in whole numbers, which have a margin of 4 here. Float32 has one
            of 16, since its error is larger on flat images, and alike on copies of one image.
    """

    def __init__(self, stored: Tensor, dtype: torch.dtype, *, differentiable: bool = False) -> None:
        self.stored = stored
        self._dtype = dtype
        self._differentiable = differentiable
        self._is_bytes = stored.dtype == torch.uint8
        in_float32 = self._is_bytes and dtype == torch.float32 and not differentiable
        fits = stored.shape[1] <= _MOST_PRODUCTS
        # A GPU's integer and half-precision units ask for sizes in eights.
        self._on_gpu_units = in_float32 and fits and stored.is_cuda and stored.shape[0] % 8 == stored.shape[1] % 8 == 0
        self._whole_numbers = self._on_gpu_units or (
            in_float32 and fits and stored.device.type == "cpu" and _cpu_multiplies_int8()
        )
        self.has_fast_logits = self._whole_numbers or stored.is_cuda
        self._converted: Tensor | None = None
        self.rounding = 1 / 16 if self._whole_numbers else 1 / 2

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

    def logits(
        self,
        x: Float[Tensor, "b d"],
        inverse: Float[Tensor, "b 1"],
        level: Float[Tensor, "b 1"],
        half_squares: Float[Tensor, "t"],
    ) -> Float[Tensor, "b t"]:
        """(x·y − ½‖y‖²)/σ² − level for all rows and images, in float32, with inverse = 1/σ²."""
        scaled = x * inverse
        # A GPU's integer product wants more than 16 rows, and there are three for each.
        if self._whole_numbers and len(x) > 5:
            # p/127.5 − 1 = ((p − 128) + ½)/127.5
            offset = scaled.sum(1, keepdim=True) / 255 - level
            return _whole_number_logits(scaled / 127.5, self._pixels(), offset, -inverse, half_squares)
        if self._whole_numbers:
            products = torch.addmm(-level, scaled, dequantize(self.stored).T)
        else:
            products = torch.addmm(-level, scaled / 127.5 if self._is_bytes else scaled, self._pixels().T)
        return products.addr_(-inverse[:, 0], half_squares)

    def weighted_sum(self, weights: Float[Tensor, "b t"]) -> Float[Tensor, "b d"]:
        """Σ_i w_i y_i for weights in [0, 1]."""
        if self._on_gpu_units:
            return (_half_precision_sums(weights, self.stored) + weights.sum(1, keepdim=True) / 2) / 127.5
        sums = weights.new_zeros(len(weights), self.stored.shape[1], dtype=torch.float64)
        for some, values in self.parts():
            sums.addmm_(weights[:, some].double(), values)
        return sums

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


@cache
def _cpu_multiplies_int8() -> bool:
    """Whether integer products are fast on this CPU, not merely possible."""
    known = getattr(torch.cpu, "_is_vnni_supported", None)
    return bool(known is not None and known())


def _whole_number_logits(
    x: Float[Tensor, "b d"],
    pixels: Tensor,
    offset: Float[Tensor, "b 1"],
    slope: Float[Tensor, "b 1"],
    intercepts: Float[Tensor, "t"],
) -> Float[Tensor, "b t"]:
    """x @ pixelsᵀ + offset + slope·intercepts for int8 pixels (t, d), by three exact products of whole numbers."""
    scale = x.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
    digits, rest = [], x.double() / scale
    for _ in range(3):
        digit = rest.round()
        digits.append(digit.to(torch.int8))
        rest = (rest - digit) * BASE
    whole = torch._int_mm(torch.cat(digits), pixels.T).view(3, len(x), -1)
    logits: Tensor = fused(combine_digits, whole, scale, offset, slope, intercepts)
    return logits


def _half_precision_sums(weights: Float[Tensor, "b t"], stored: Tensor) -> Float[Tensor, "b d"]:
    """Σ_i w_i (p_i − 128) for weights in [0, 1] and uint8 pixels p (t, d), by two half-precision products."""
    # Short sums of one length need one product; a divisor of t leaves no rest.
    step = next((k for k in range(_SHORT_SUM, _SHORT_SUM // 4, -8) if len(stored) % k == 0), _SHORT_SUM)
    whole = len(stored) // step * step
    sums = weights.new_zeros(len(weights), stored.shape[1], dtype=torch.float32)
    for start, stop, length in ((0, whole, step), (whole, len(stored), len(stored) - whole)):
        if start < stop:
            factor = fused(in_two_halves, weights[:, start:stop]).flatten(0, 1).unflatten(1, (-1, length)).movedim(1, 0)
            pixels = fused(centred_half, stored[start:stop]).unflatten(0, (-1, length))
            short_sums = torch.bmm(factor, pixels, out_dtype=torch.float32)
            sums += short_sums.unflatten(1, (2, -1)).sum((0, 1))
    return sums / LIFT
