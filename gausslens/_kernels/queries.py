"""Noisy images as queries of the softmax, and their digits for exact products with bytes."""

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .._typing import Float
from .fused import BASE, describe_queries, fused, split_digits

# Digits of 8 bits, of which four hold 31 bits of a number. A GPU's answers are promised to fewer.
_DIGITS = {"cpu": 4, "cuda": 3}


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
        """Computed once, when first needed. No derivative of the answer passes through what all images share."""
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
