"""What makes NCSN++, DDPM++ and ADM of the common U-Net.

References: Song et al. (2021), arXiv:2011.13456, App. H; Dhariwal, Nichol (2021), arXiv:2105.05233; Karras et al.
(2022), arXiv:2206.00364, App. F.6, whose variants of the three these are.
"""

import math
from dataclasses import replace

from .blocks import BlockStyle
from .unet import Architecture

_SONG = BlockStyle(
    adaptive=False,
    smooth=True,
    residual_scale=math.sqrt(0.5),
    epsilon=1e-6,
    head_channels=None,
    project_resampled=True,
    xavier=True,
    last_gain=1e-5,
    attention_gain=math.sqrt(0.2),
)
NCSNPP = Architecture(
    style=_SONG,
    features="fourier",
    late_labels=False,
    residual_encoder=True,
    attention_everywhere=False,
    widened_stem=False,
)
DDPMPP = Architecture(
    style=replace(_SONG, smooth=False),
    features="sin_cos",
    late_labels=False,
    residual_encoder=False,
    attention_everywhere=False,
    widened_stem=False,
)
ADM = Architecture(
    style=BlockStyle(
        adaptive=True,
        smooth=False,
        residual_scale=1.0,
        epsilon=1e-5,
        head_channels=64,
        project_resampled=False,
        xavier=False,
        last_gain=0.0,
        attention_gain=1.0,
    ),
    features="cos_sin",
    late_labels=True,
    residual_encoder=False,
    attention_everywhere=True,
    widened_stem=True,
)
