"""Group normalisation that keeps the channels-last layout.

    y = (x − m)/√(v + ε)·weight + bias,   m and v the mean and variance over a group of channels and all pixels.

torch's own, compiled, copies channels-last activations to channels-first and back, a sixth of a training step on a GPU.
Here the moments are taken per channel, which reads memory in order, and then averaged over each group. What a compiler would
fuse costs a pass through memory each where nothing is compiled; there the passes are as few as single operations allow.
"""

import torch
from torch import Tensor, nn


class GroupNorm(nn.GroupNorm):
    """`torch.nn.GroupNorm`, computed per channel in float32 on a GPU.

    There the result is float32 even for a smaller x, but for calls that take no derivatives: these keep the dtype of x.
    """

    def forward(self, x: Tensor, offset: Tensor | None = None) -> Tensor:
        """Normalise x, or x plus an offset for every channel.

        Args:
            x: (b, c, h, w).
            offset: (b, c), or None.

        Returns:
            The result, (b, c, h, w).
        """
        if x.is_cuda and not torch.is_grad_enabled() and not torch.compiler.is_compiling():
            return self.in_few_passes(x, offset)
        moved = x if offset is None else x + offset[:, :, None, None].to(x.dtype)
        return self.per_channel(moved) if x.is_cuda else super().forward(moved)

    def per_channel(self, x: Tensor) -> Tensor:
        """The same by v = E[x²] − m², for any device; float32 loses digits only where |m| is far above √v."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale, shift = self._affine(wide.mean((2, 3)), wide.square().mean((2, 3)))
        return wide * scale[:, :, None, None] + shift[:, :, None, None]

    def in_few_passes(self, x: Tensor, offset: Tensor | None = None) -> Tensor:
        """The same in three passes over x and with nothing of its size in float32, for x in the channels-last layout."""
        kind = torch.promote_types(x.dtype, torch.float32)
        mean = x.mean((2, 3), dtype=kind)
        power = torch.linalg.vector_norm(x, dim=(2, 3), dtype=kind).square() / x[0, 0].numel()
        if offset is None:
            scale, shift = self._affine(mean, power)
        else:  # moments of x + a, and (x + a)·scale + shift, without adding
            scale, shift = self._affine(mean + offset, power + (2 * mean + offset) * offset)
            shift = shift + offset * scale
        # Computed in float32 and rounded when it is written.
        return torch.addcmul(shift[:, :, None, None], x, scale[:, :, None, None], out=torch.empty_like(x))

    def _affine(self, mean: Tensor, power: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and shift of every channel, (b, c), from the channels' means of x and x²."""
        centre = self._over_groups(mean)
        variance = (self._over_groups(power) - centre.square()).clamp_min(0)
        scale = (variance + self.eps).rsqrt() * self.weight
        return scale, self.bias - centre * scale

    def _over_groups(self, per_channel: Tensor) -> Tensor:
        """Every channel's average over its group; (b, c) to (b, c)."""
        grouped = per_channel.unflatten(1, (self.num_groups, -1))
        averages: Tensor = grouped.mean(2, keepdim=True)
        return averages.expand_as(grouped).flatten(1)
