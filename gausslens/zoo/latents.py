"""The way from pixels to latents and back, for models that denoise latents: x0 = (encoder(image) − shift)·scale.

An encoder with a posterior answers with its mean, so that an image has one latent. Scale and shift are what the
autoencoder's config says diffusion models were trained with.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..denoisers.protocol import in_batches
from ..errors import DataError, require
from ..images import dequantize, gather, quantize
from .model import expect

_BATCH = 16  # encoders run at the resolution of the pixels, where images are large


class LatentSpace:
    """Images to the latents of a diffusers `AutoencoderKL` or `VQModel`, of this shape unless it is None, and back."""

    def __init__(self, autoencoder: Any, shape: tuple[int, int, int] | None) -> None:
        self.autoencoder, self.shape = autoencoder, shape
        settings, name = autoencoder.config, type(autoencoder).__name__
        shift, spread = settings.get("latents_mean"), settings.get("latents_std")
        self.shift = _per_channel(settings.get("shift_factor") or 0.0 if shift is None else shift)
        self.scale: Tensor = settings.get("scaling_factor", 1.0) / _per_channel(1.0 if spread is None else spread)
        channels = settings.get("vq_embed_dim") or settings.latent_channels
        expected = channels if shape is None else shape[0]
        expect(channels == expected, f"the network denoises {expected} channels, and its {name} has {channels}.")
        for values in (self.shift, self.scale):
            expect(
                len(values) in (1, channels) and values.isfinite().all() and self.scale.all(),
                f"expected a finite shift and scale for all latents of {name} or for each of their {channels} channels; "
                f"got {values.flatten().tolist()!s:.80}.",
            )

    def encode(self, images: Any) -> Tensor:
        """The latents of images."""
        pixels = gather(images)
        channels = self.autoencoder.config.in_channels
        require(
            pixels.shape[1] == channels,
            f"expected images with {channels} channels for this autoencoder; got shape {tuple(pixels.shape)}. "
            "Convert them, as grey images to RGB with images.expand(-1, 3, -1, -1).",
            DataError,
        )
        raw = self._in_batches(pixels, lambda batch: _raw_latents(self.autoencoder.encode(dequantize(batch))))
        latents = (raw - self.shift) * self.scale
        if self.shape is not None and tuple(latents.shape[1:]) != self.shape:
            factor = pixels.shape[3] // latents.shape[3]
            raise DataError(
                f"expected images whose latents have shape {self.shape}, which is {self.shape[1] * factor} by "
                f"{self.shape[2] * factor} pixels; got images of shape {tuple(pixels.shape)}. Resize them."
            )
        return latents

    def decode(self, latents: Tensor) -> Tensor:
        """The pictures of latents."""
        raw = latents.float().cpu() / self.scale + self.shift
        return self._in_batches(raw, lambda batch: quantize(self.autoencoder.decode(batch).sample))

    def _in_batches(self, values: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
        device: torch.device = next(self.autoencoder.parameters()).device
        with torch.no_grad():
            return torch.cat(
                [*in_batches(lambda start, stop: work(values[start:stop].to(device)).cpu(), len(values), _BATCH)]
            )


def _raw_latents(answer: Any) -> Tensor:
    latents: Tensor = answer.latents if hasattr(answer, "latents") else answer.latent_dist.mode()
    return latents.float()


def _per_channel(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)
