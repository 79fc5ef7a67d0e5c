"""The way from pixels to latents and back, for models that denoise latents: x0 = (encoder(image) − shift)·scale.

An encoder with a posterior answers with its mean, so that an image has one latent. Scale and shift are what the
autoencoder's config says diffusion models were trained with.
"""

from typing import Any

import torch
from torch import Tensor

from ..denoisers.protocol import in_batches
from ..errors import CheckpointError, DataError
from ..images import dequantize, gather, quantize

_BATCH = 16  # encoders run at the resolution of the pixels, where images are large


class LatentSpace:
    """Images to the latents of a diffusers `AutoencoderKL` or `VQModel`, and back.

    Args:
        autoencoder: the model, in eval mode, on its device.
        shape: of the latents, (c, h, w), that the denoiser takes; None if it takes any.

    Raises:
        CheckpointError: if it is another kind of autoencoder, or its latents are not what the denoiser takes.
    """

    def __init__(self, autoencoder: Any, shape: tuple[int, int, int] | None) -> None:
        name = type(autoencoder).__name__
        if name not in ("AutoencoderKL", "VQModel"):
            raise CheckpointError(f"expected an AutoencoderKL or a VQModel for the latents; got {name}.")
        self.autoencoder, self.shape = autoencoder, shape
        settings = autoencoder.config
        shift, spread = settings.get("latents_mean"), settings.get("latents_std")
        self.shift = _per_channel(settings.get("shift_factor") or 0.0 if shift is None else shift)
        self.scale = settings.get("scaling_factor", 1.0) / _per_channel(1.0 if spread is None else spread)
        channels = settings.get("vq_embed_dim") or settings.latent_channels
        if shape is not None and shape[0] != channels:
            raise CheckpointError(f"the network denoises {shape[0]} channels, and its {name} has {channels}.")
        for values in (self.shift, self.scale):
            if len(values) not in (1, channels) or not values.isfinite().all() or not self.scale.all():
                raise CheckpointError(
                    f"expected a finite shift and scale for all latents of {name} or for each of their {channels} channels; "
                    f"got {values.flatten().tolist()!s:.80}."
                )

    def encode(self, images: Any) -> Tensor:
        """The latents of images."""
        pixels = gather(images)
        channels = self.autoencoder.config.in_channels
        if pixels.shape[1] != channels:
            raise DataError(
                f"expected images with {channels} channels for this autoencoder; got shape {tuple(pixels.shape)}. "
                "Convert them, as grey images to RGB with images.expand(-1, 3, -1, -1)."
            )
        with torch.no_grad():
            batches = in_batches(
                lambda start, stop: self._latents(dequantize(pixels[start:stop].to(self._device))).cpu(),
                *(len(pixels), _BATCH),
            )
            latents = torch.cat([(batch - self.shift) * self.scale for batch in batches])
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
        with torch.no_grad():
            batches = in_batches(
                lambda start, stop: quantize(self.autoencoder.decode(raw[start:stop].to(self._device)).sample).cpu(),
                *(len(raw), _BATCH),
            )
            return torch.cat(list(batches))

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.autoencoder.parameters()).device
        return device

    def _latents(self, x0: Tensor) -> Tensor:
        answer = self.autoencoder.encode(x0)
        latents: Tensor = answer.latents if hasattr(answer, "latents") else answer.latent_dist.mode()
        return latents.float()


def _per_channel(values: Any) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)
