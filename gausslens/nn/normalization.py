"""Group normalisation that keeps the channels-last layout.

    y = (x − m)/√(v + ε)·weight + bias,   m and v the mean and variance over a group of channels and all pixels.

torch's own, compiled, copies channels-last activations to channels-first and back, a sixth of a training step on a GPU.
Here the moments are taken per channel, which reads memory in order, and then averaged over each group. Where nothing is
compiled and no derivative is taken, `kernels` pass through memory as rarely as compiled ones.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .._kernels import group_norm as kernels


class GroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm`, computed per channel in float32 on a GPU.

    There the result is float32 even for a narrower x, except in calls without derivatives, which keep the dtype of x.
    """

    def forward(self, x: Tensor, offset: Tensor | None = None, *, activate: bool = False) -> Tensor:
        """Normalise x, or x plus an offset for every channel."""
        if kernels.usable(x):
            return kernels.normalize(x, self.weight, self.bias, self.num_groups, self.eps, offset, activate=activate)
        if x.is_cuda:
            y = self.per_channel(x, offset)
        else:
            y = super().forward(x if offset is None else x + offset[:, :, None, None].to(x.dtype))
        return F.silu(y, inplace=not torch.is_grad_enabled()) if activate else y

    def per_channel(self, x: Tensor, offset: Tensor | None = None) -> Tensor:
        """The same from moments of channels, for any device, also where |m| is far above √v.

        Moments are of distances from the first pixel, in one pass: v = E[(x − x₀)²] − E[x − x₀]² is exact to n·ε for n
        pixels even if x₀ is far from all others, and otherwise about as exact as torch's. E[x²] − m² would lose all
        digits once m²/v is above 1/ε, and its derivative sooner; for a group of bf16 numbers that are equal up to a few
        roundings it would be twice too large.

        Offset and bias are added for every image and channel: the derivative by a bias that is added to pixels takes a
        pass over all of them of its own.
        """
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        first = wide[:, :, :1, :1].detach()  # the result does not depend on what distances are from
        distance = wide - first
        shift = distance.mean((2, 3))
        variance = distance.square().mean((2, 3)) - shift.square()
        origin = first[:, :, 0, 0] if offset is None else first[:, :, 0, 0] + offset
        mean = origin + shift
        centre = self._over_groups(mean)
        spread = self._over_groups(variance + (mean - centre).square())
        scale = (spread.clamp_min(0) + self.eps).rsqrt() * self.weight
        return distance * scale[:, :, None, None] + (self.bias + (origin - centre) * scale)[:, :, None, None]

    def _over_groups(self, per_channel: Tensor) -> Tensor:
        """Every channel's average over its group; (b, c) to (b, c)."""
        grouped = per_channel.unflatten(1, (self.num_groups, -1))
        return grouped.mean(2, keepdim=True).expand_as(grouped).flatten(1)
