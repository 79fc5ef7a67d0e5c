"""What an audit looks at: a model, the images it was trained on, others that it has not seen, and what follows."""

import hashlib
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from ..denoisers.protocol import call, check_sigma_range, eval_mode, placement
from ..errors import CheckpointError, GausslensError, reraise_as
from ..evaluation.context import EvaluationContext
from ..evaluation.references import RunImages
from ..images import content_hash, dequantize
from ..measures.originals import DUPLICATE_RMSE
from ..noise import as_sigmas, draw_noise, karras_sigmas
from ..zoo.model import Model
from .config import AuditConfig
from .features import FeatureNetwork, load_features
from .pool import Pool

_LEVELS = 10
_LEAST, _MOST = 0.002, 80.0
_SMALL_DIM = 1024
_FEW = 2  # images, to see whether a model takes them
_SAMPLES_GPU, _SAMPLES_SMALL, _SAMPLES_LARGE = 10_000, 2_000, 256


class AuditContext(EvaluationContext):
    """A model that is audited, on the device to work on, with its images as it takes them; held-out ones may be none.

    `pictures` are the training and held-out images as uint8 pixels where the model takes something else.
    """

    def __init__(
        self, model: Model, images: RunImages, config: AuditConfig, pictures: tuple[Tensor, Tensor] | None = None
    ) -> None:
        dtype = placement(model.denoiser, torch.zeros(1))[1]
        network = model.denoiser if dtype == torch.float32 else _Converted(model.denoiser, dtype)
        super().__init__(network, images, bounds=model.bounds)
        self.model, self.config, self.pictures = model, config, pictures

    @cached_property
    def pool(self) -> Pool:
        """Training and held-out images, with what repeats and where the sets overlap."""
        images = self.images
        return Pool(
            train=images.train,
            held_out=images.held_out if len(images.held_out) else None,
            labels=images.train_labels,
            held_out_labels=images.held_out_labels if len(images.held_out) else None,
            groups=images.train_groups,
            held_out_groups=images.held_out_groups,
            rmse=DUPLICATE_RMSE if self.bounds is not None else 0.0,
            device=self.device,
        )

    @property
    def classes(self) -> Tensor | None:
        """The classes of the training images, in turn those of the samples; None for a model without labels."""
        return None if self.images.train_labels is None else self.images.train_labels.unique().cpu()

    @cached_property
    def reference_images(self) -> RunImages:
        """The images that references are made of: those trained on, mirrored ones too if it was trained on them."""
        if self.config.augment is None:
            return self.images
        images, labels = self.images, self.images.train_labels
        train = torch.cat([images.train, images.train.flip(-1)])
        doubled = None if labels is None else labels.repeat(2)
        return replace(images, train=train, available=train, train_labels=doubled)

    @cached_property
    def features(self) -> FeatureNetwork | None:
        """The feature network to compare samples with, or None."""
        return None if self.config.features is None else load_features(self.config.features, device=self.device)

    @cached_property
    def sigmas(self) -> Tensor:
        """The noise levels, descending, all within the model's range."""
        if not self.config.sigmas:
            return karras_sigmas(_LEVELS, *self.sigma_range)
        asked = as_sigmas(sorted(set(self.config.sigmas), reverse=True))
        check_sigma_range(asked, self.sigma_range)
        return asked

    @property
    def sigma_range(self) -> tuple[float, float]:
        """The least and the greatest noise level of measurements and of sampling."""
        low, high = self.model.sigma_range
        return max(_LEAST, low), min(_MOST, high)

    @cached_property
    def first_answers(self) -> Tensor:
        """The model's outputs for its first training images with noise."""
        clean, labels = dequantize(self.images.train[:_FEW].cpu()), self.images.train_labels
        sigma = float(self.sigmas[len(self.sigmas) // 2])
        x = clean + sigma * draw_noise(0, torch.arange(len(clean)), self.images.shape, stream="first answers")
        what = f"the model {self.model.source} fails on noisy images of shape {self.images.shape}"
        advice = "It must take D(x, sigma), x of that shape."
        if labels is not None:
            what, advice = f"{what} with labels", "It must take D(x, sigma, labels), x of that shape."
        # Whatever the model's own code raises.
        with reraise_as(CheckpointError, what, advice, spared=(GausslensError,)), eval_mode(self.network):
            return call(self.network, x.to(self.device), sigma, None if labels is None else labels[:_FEW])

    @property
    def sample_count(self) -> int:
        """How many images to generate."""
        if self.config.samples is not None:
            return self.config.samples
        if self.device.type != "cpu":
            return _SAMPLES_GPU
        return _SAMPLES_SMALL if self.dim <= _SMALL_DIM else _SAMPLES_LARGE

    @cached_property
    def identity(self) -> str:
        """Names model and images."""
        images = self.images
        parts = [self.model.identity or self.model.source, content_hash(images.train), content_hash(images.held_out)]
        tags = (images.train_labels, images.held_out_labels, images.train_groups, images.held_out_groups)
        parts += [hashlib.sha256(some.cpu().numpy().tobytes()).hexdigest() for some in tags if some is not None]
        if self.config.features is not None and Path(self.config.features).is_file():
            parts.append(hashlib.sha256(Path(self.config.features).read_bytes()).hexdigest())
        if not self.network.state_dict():  # its weights, if any, cannot be read, so its outputs identify it
            parts.append(content_hash(self.first_answers.cpu()))
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


class _Converted(nn.Module):
    """A denoiser of another precision, for callers who have float32."""

    def __init__(self, denoiser: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.denoiser, self.dtype = denoiser, dtype

    def forward(self, x: Tensor, sigma: Tensor, *labels: Tensor) -> Tensor:
        answer: Tensor = self.denoiser(x.to(self.dtype), sigma.to(self.dtype), *labels)
        return answer.to(x.dtype)
