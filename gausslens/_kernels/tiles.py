"""Products of queries and weights with a tile of images, as fast as the hardware multiplies them and accurate enough.

uint8 pixels are whole numbers of 8 bits, which lets integer and half-precision units multiply them without loss:

- x·y: each row of x is written as s(q₀ + q₁/254 + q₂/254² + …) with whole numbers |q| ≤ 127, whose products are exact.
  Three digits on a GPU leave an error of 6e-8 of the row's largest entry, four on a CPU with integer dot products 2e-10.
- Σ w y: the same on a CPU; on a GPU weights in [0, 1] are the sum of two half-precision numbers, 22 bits.

Otherwise x·y is a float32 product on a GPU, and all is float64 on a CPU, where float32 is hardly faster and sums of
equal numbers drift by ε·t. Logits are float64 in any case: they are differences of numbers far larger.
"""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._typing import Float, Int
from ..images import dequantize
from .fused import BASE, LIFT, center_in_half, combine_digits, describe_queries, fused, split_digits, weigh_in_halves

# Digits of 8 bits, of which four hold 31 bits of a number. A GPU's answers are promised to fewer.
_DIGITS = {"cpu": 4, "cuda": 3}
# A long sum of similar images drifts by ε·t on a GPU, whose matrix units round toward zero: add sums of this many instead.
_SHORT_SUM = 2048
_SHORT_SUMS_AT_ONCE = 13
# Float64 numbers converted at a time: as many as a CPU's cache holds (8 MiB), and more on a GPU.
_PART_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 22}
# 127·128 times this many is the largest sum of products that 32 bits hold.
_MOST_PRODUCTS = 132_104


# The logits of all queries and all images of a tile, in float64, and the largest of each query.
Logits: TypeAlias = tuple[Float[Tensor, "b t"], Float[Tensor, "b 1"]]


def kind_of(tensor: Tensor) -> str:
    """The key of limits that depend on the device: "cuda" for a GPU whose units are known, "cpu" for everything else."""
    return "cuda" if tensor.is_cuda else "cpu"


class Digits:
    """Rows of numbers as s(q₀ + q₁/254 + q₂/254² + …) with int8 digits |q| ≤ 127, (k, b, n), to multiply bytes exactly."""

    def __init__(self, rows: Float[Tensor, "b n"]) -> None:
        self.whole, self.scale = fused(split_digits, rows, _DIGITS[kind_of(rows)])

    def products(self, pixels: Tensor) -> Tensor:
        """q @ pixels of each digit, for int8 pixels (n, t): int32, (k, b, t)."""
        products: Tensor = torch._int_mm(self.whole.flatten(0, 1), pixels)
        return products.view(len(self.whole), -1, pixels.shape[1])

    def times(self, pixels: Tensor) -> Float[Tensor, "b t"]:
        """rows @ pixels in float64, for int8 pixels (n, t)."""
        products = self.products(pixels)
        total = products[-1].double()
        for more_significant in reversed(products[:-1]):
            total.div_(BASE).add_(more_significant)
        return total.mul_(self.scale)


class Constants(NamedTuple):
    """What the fast logits of queries need and all images share, in float64, (b, 1)."""

    row_sums: Tensor  # Σ_j x_j
    level: Tensor  # the anchor's logit (x·a − ½‖a‖²)/σ²
    scale: Tensor  # ε√(‖x‖²+‖y‖²)‖y‖/σ² for the largest ‖y‖, by which the rounding of float32 logits is measured


class Queries:
    """Noisy images x as rows, and what is needed for their logits.

    Logits are measured from that of an anchor a, a typical image, so that data with a large offset keep their digits:

        (x·y − ½‖y‖²)/σ² − (x·a − ½‖a‖²)/σ² = ((x−a)·(y−a) − ½‖y−a‖²)/σ²

    `rows` are x in float32 or float64, `variance` is σ² in float64, (b, 1).
    """

    def __init__(
        self,
        x: Float[Tensor, "b d"],
        sigma: Float[Tensor, "b"],
        anchor: Float[Tensor, "d"],
        largest_norm: Float[Tensor, ""],
    ) -> None:
        self.rows = x if x.dtype == torch.float64 else x.float()
        self.sigma, self.variance = sigma, sigma.double()[:, None].square()
        self.anchor, self._largest_norm = anchor.to(x.device), largest_norm.to(x.device)
        is_dual = any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in (x, sigma))
        self.differentiable = is_dual or (torch.is_grad_enabled() and (x.requires_grad or sigma.requires_grad))

    @cached_property
    @torch.no_grad()
    def constants(self) -> Constants:
        """Computed on first use, without derivatives: terms that all images share do not change the answer."""
        arguments = self.rows.detach(), self.variance.detach(), self.anchor, self._largest_norm
        return Constants(*fused(describe_queries, *arguments))

    @cached_property
    def shifted(self) -> Float[Tensor, "b d"]:
        """x − a in float64."""
        return self.rows.double() - self.anchor.double()

    @cached_property
    def digits(self) -> Digits:
        """The rows as digits for integer products."""
        return Digits(self.rows)


class ImageTile:
    """Some images as rows (t, d), uint8 or float, on the device of the queries.

    uint8 images are defined in the dtype of the queries. Integer and half-precision units, `whole_numbers`, have no
    derivatives. `has_fast_logits` is whether `logits` is much faster than a float64 product here. `rounding` is the
    typical error of x·y in `logits` in units of ε‖x‖‖y‖. Measured on CIFAR-10 where many images share the weight, it is
    .02 to .03 in float32 and half of that in whole numbers, which multiply p/127.5 − 1 and not that number rounded to
    float32. Both have a margin, float32 a larger one, since it errs more on flat images. Three digits err by 1.3/√d
    where a row's largest entry is four times a usual one.
    """

    def __init__(self, stored: Tensor, dtype: torch.dtype, *, whole_numbers: bool = True) -> None:
        self.stored = stored
        self._dtype = dtype
        self._is_bytes = stored.dtype == torch.uint8
        fits = max(stored.shape) <= _MOST_PRODUCTS
        allowed = whole_numbers and fits and self._is_bytes and dtype == torch.float32
        # A GPU's integer and half-precision units ask for sizes in eights.
        in_eights = stored.shape[0] % 8 == stored.shape[1] % 8 == 0
        self._on_gpu_units = allowed and stored.is_cuda and in_eights and _gpu_adds_halves_in_float32()
        self._on_cpu_units = allowed and stored.device.type == "cpu" and _cpu_multiplies_int8()
        self.has_fast_logits = self._on_cpu_units or stored.is_cuda
        digits_lost = 2 / stored.shape[1] ** 0.5 if self._on_gpu_units else 0.0
        self.rounding = max(1 / 16, digits_lost) if self._on_cpu_units or self._on_gpu_units else 1 / 2

    def at(self, columns: Int[Tensor, "k"]) -> "ImageTile":
        """Only some of the images."""
        return ImageTile(self.stored[columns], self._dtype, whole_numbers=self._on_cpu_units or self._on_gpu_units)

    def values(self, columns: Int[Tensor, "k"] | slice) -> Float[Tensor, "k d"]:
        """Some of the images in float64; uint8 ones as they are defined, dequantised in the dtype of the queries."""
        some = self.stored[columns]
        return dequantize(some, self._dtype).double() if self._is_bytes else some.double()

    def parts(self) -> Iterator[tuple[slice, Float[Tensor, "k d"]]]:
        """All images in float64, as many at a time as memory for them is cheap."""
        step = max(1, _PART_NUMBERS[kind_of(self.stored)] // self.stored.shape[1])
        for start in range(0, len(self.stored), step):
            some = slice(start, start + step)
            yield some, self.values(some)

    def logits(self, queries: Queries, half_squares: Float[Tensor, "t"]) -> Logits:
        """(x·y − ½‖y‖²)/σ² − level, as fast as the hardware can."""
        x, variance = queries.rows, queries.variance
        row_sums, level, _ = queries.constants
        # p/127.5 − 1 = ((p − 128) + ½)/127.5
        if self._on_cpu_units:
            products = queries.digits.times(self._pixels.T)
            offset = row_sums / (255 * variance) - level
            logits = products.div_(127.5 * variance).add_(offset).addr_(-1 / variance[:, 0], half_squares)
            return logits, logits.amax(1, keepdim=True)
        # The integer product wants more than 16 rows, and there are three for each.
        if self._on_gpu_units and len(x) > 5:
            products = queries.digits.products(self._pixels.T)
            arguments = queries.digits.scale, row_sums, variance, level, half_squares
            logits, top = fused(combine_digits, products, *arguments)
            return logits, top
        products = x @ dequantize(self.stored, self._dtype).T
        logits = (products.double() - half_squares) / variance - level
        return logits, logits.detach().amax(1, keepdim=True)

    def softmax_sums(
        self, logits: Float[Tensor, "b t"], top: Float[Tensor, "b 1"]
    ) -> tuple[Float[Tensor, "b 1"], Float[Tensor, "b d"]]:
        """Σ_i w_i and Σ_i w_i y_i for w = exp(logits − top), where no logit is above the top by more than rounding."""
        if self._on_gpu_units:
            *halves, sums = fused(weigh_in_halves, logits, top)
            return sums, (_half_precision_sums(halves, self.stored) + sums / 2) / 127.5
        weights = (logits - top).exp()
        sums = weights.sum(1, keepdim=True)
        if self._on_cpu_units:
            return sums, (Digits(weights).times(self._pixels) + sums / 2) / 127.5
        weighted = weights.new_zeros(len(weights), self.stored.shape[1])
        for some, values in self.parts():
            weighted.addmm_(weights[:, some], values)
        return sums, weighted

    @cached_property
    def _pixels(self) -> Tensor:
        """p − 128 as int8."""
        return (self.stored ^ 128).view(torch.int8)


@cache
def _cpu_multiplies_int8() -> bool:
    """Whether integer products are fast on this CPU, not merely possible."""
    return bool(getattr(torch.cpu, "_is_vnni_supported", lambda: False)())


@cache
def _gpu_adds_halves_in_float32() -> bool:
    """Whether this torch can be asked for products of half-precision numbers in float32."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= (2, 8)


def _half_precision_sums(halves: list[Tensor], stored: Tensor) -> Float[Tensor, "b d"]:
    """Σ_i w_i (p_i − 128) for LIFT·w as half-precision numbers to be added, each (b, t), and uint8 pixels p (t, d)."""
    # Short sums of one length need one product; a divisor of t leaves no rest.
    step = next((k for k in range(_SHORT_SUM, _SHORT_SUM // 4, -8) if len(stored) % k == 0), _SHORT_SUM)
    whole = len(stored) // step * step
    sums = torch.zeros(len(halves[0]), stored.shape[1], dtype=torch.float32, device=stored.device)
    # A few short sums at a time: their pixels in half precision, and they themselves, take memory.
    group = step * _SHORT_SUMS_AT_ONCE
    parts = [(start, min(start + group, whole), step) for start in range(0, whole, group)]
    for start, stop, length in [*parts, (whole, len(stored), len(stored) - whole)]:
        if start < stop:
            pixels = fused(center_in_half, stored[start:stop]).unflatten(0, (-1, length))
            for half in halves:
                factor = half[:, start:stop].unflatten(1, (-1, length)).movedim(1, 0)
                sums += torch.bmm(factor, pixels, out_dtype=torch.float32).sum(0)
    return sums / LIFT
