"""The noise level, the class and the augmentation of an image as one vector.

    features = Fourier or positional features of the noise,  + A·augment,  [+ L·one_hot(label)·√classes]
    embedding = silu(W₂ silu(W₁ features + b₁) + b₂  [+ L·one_hot(label)])

The bracketed terms are the two ways in which published networks use the class: NCSN++ and DDPM++ the first, ADM the second.
"""

import math
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..errors import require

Features: TypeAlias = Literal["fourier", "sin_cos", "cos_sin"]


class NoiseEmbedding(nn.Module):
    """Embeds c_noise(σ) and, where the network takes them, labels and augmentation inputs, in 4·width channels.

    The features "fourier" are cos, sin(2πf·noise) of `width` frequencies f ~ N(0, 16²), drawn once. "sin_cos" and
    "cos_sin" are sines and cosines of width/2 frequencies from 1 down, in that order: the last frequency is 1/10,000
    for "sin_cos" (DDPM++) and one step short of that for "cos_sin" (ADM). Late labels join the embedding and not the
    features.
    """

    frequencies: Tensor

    def __init__(
        self, width: int, features: Features, *, classes: int = 0, augment_inputs: int = 0, late_labels: bool = False
    ) -> None:
        super().__init__()
        is_even = width >= 2 and width % 2 == 0
        require(is_even, f"width must be even and at least 2, for pairs of sines and cosines; got {width}.")
        self.width, self.features, self.classes, self.late_labels = width, features, classes, late_labels
        self.channels = 4 * width
        n_features = 2 * width if features == "fourier" else width
        if features == "fourier":
            self.register_buffer("frequencies", 16 * torch.randn(width))
        self.first = nn.Linear(n_features, self.channels)
        self.second = nn.Linear(self.channels, self.channels)
        self.augment = nn.Linear(augment_inputs, n_features, bias=False) if augment_inputs else None
        self.label: nn.Linear | None = None
        if classes:
            self.label = nn.Linear(classes, self.channels if late_labels else n_features, bias=not late_labels)
            if late_labels:
                nn.init.normal_(self.label.weight)  # a table of embeddings, one column a class

    def forward(self, noise: Tensor, labels: Tensor | None = None, augment: Tensor | None = None) -> Tensor:
        """Embed."""
        check_conditions(labels, augment, self.classes, takes_augment=self.augment is not None)
        hidden, late = self._features(noise), None
        if augment is not None and self.augment is not None:
            hidden = hidden + self.augment(augment.to(hidden.dtype))
        if labels is not None and self.label is not None:
            one_hot = (labels[:, None] == torch.arange(self.classes, device=labels.device)).to(hidden.dtype)
            late = self.label(one_hot) if self.late_labels else None
            hidden = hidden if self.late_labels else hidden + self.label(one_hot * math.sqrt(self.classes))
        hidden = self.second(F.silu(self.first(hidden)))
        return F.silu(hidden if late is None else hidden + late)

    def _features(self, noise: Tensor) -> Tensor:
        if self.features == "fourier":
            angles = noise[:, None] * (2 * math.pi * self.frequencies)
            return torch.cat([angles.cos(), angles.sin()], 1)
        half, sines_first = self.width // 2, self.features == "sin_cos"
        last = max(half - 1, 1) if sines_first else half
        angles = noise[:, None] * 1e-4 ** (torch.arange(half, dtype=noise.dtype, device=noise.device) / last)
        halves = [angles.cos(), angles.sin()]
        return torch.cat(halves[::-1] if sines_first else halves, 1)


def check_conditions(
    labels: Tensor | None, augment: Tensor | None, classes: int = 0, *, takes_augment: bool = False
) -> None:
    """Raise unless labels and augmentation inputs arrive at the networks that take them, and nowhere else."""
    require(labels is None or classes, "this network takes no labels; leave them out, or build it with classes.")
    require(
        labels is not None or not classes, f"this network has {classes} classes; pass integer labels, one per image."
    )
    require(
        augment is None or takes_augment, "this network takes no augmentation inputs; build it with augment_inputs."
    )
