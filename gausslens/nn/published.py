"""What makes NCSN++, DDPM++ and ADM of the common U-Net.

References: Song et al. (2021), arXiv:2011.13456, App. H; Dhariwal, Nichol (2021), arXiv:2105.05233; Karras et al.
(2022), arXiv:2206.00364, App. F.6, whose variants of the three these are.
"""

import math
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from .embedding import Features
from .normalization import GroupNorm

Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


@dataclass(frozen=True)
class Architecture:
    """What differs between the published networks; the defaults are those of NCSN++."""

    features: Features = "fourier"  # of the noise level
    late_labels: bool = False  # classes join the embedding, or the features
    residual_encoder: bool = True  # the image joins the encoder at every level
    attention_everywhere: bool = False  # all decoder blocks at an attention resolution attend, or the last one alone
    widened_stem: bool = (
        False  # the first convolution is as wide as the first resolution's blocks, or has `width` channels
    )
    adaptive: bool = False  # the noise scales and shifts a block's second normalisation, or is added before it
    smooth: bool = True  # resampling uses the filter [1, 3, 3, 1], or [1, 1]
    residual_scale: float = math.sqrt(0.5)  # factor on the sum of a block's input and output
    epsilon: float = 1e-6  # of the normalisations
    head_channels: int | None = None  # channels of one attention head; None is a single head
    project_resampled: bool = True  # a block that resamples has a 1×1 convolution on its skip even if channels stay
    xavier: bool = True  # weights start as Xavier-uniform with zero biases, or as torch makes them
    last_gain: float = (
        1e-5  # factor on the initial weights of the last layer of every branch, so that blocks begin as skips
    )
    attention_gain: float = math.sqrt(0.2)  # factor on the initial weights that make queries, keys and values

    def initialize(self, layer: Layer, gain: float = 1.0) -> Layer:
        """The layer with this network's initial weights, times `gain`."""
        if self.xavier:
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(gain)
        return layer

    def norm(self, channels: int) -> GroupNorm:
        """Group normalisation with up to 32 groups of at least 4 channels."""
        return GroupNorm(largest_divisor(channels, min(32, channels // 4)), channels, eps=self.epsilon)


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not above `most`, at least 1."""
    return next((n for n in range(most, 1, -1) if number % n == 0), 1)


NCSNPP = Architecture()
DDPMPP = Architecture(features="sin_cos", residual_encoder=False, smooth=False)
ADM = Architecture(
    features="cos_sin",
    late_labels=True,
    residual_encoder=False,
    attention_everywhere=True,
    widened_stem=True,
    adaptive=True,
    smooth=False,
    residual_scale=1.0,
    epsilon=1e-5,
    head_channels=64,
    project_resampled=False,
    xavier=False,
    last_gain=0.0,
    attention_gain=1.0,
)
