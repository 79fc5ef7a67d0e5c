"""Folders of diffusers with networks that are made in no time."""

import json

import torch

SIZE = 8


def tiny_unet(**options):
    import diffusers

    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        **{
            "sample_size": SIZE,
            "in_channels": 3,
            "out_channels": 3,
            "block_out_channels": (8, 8),
            "layers_per_block": 1,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
            "norm_num_groups": 4,
            **options,
        }
    )
    return unet.eval().requires_grad_(False)


def save(folder, unet, scheduler, **parts):
    unet.save_pretrained(folder / "unet")
    scheduler.save_pretrained(folder / "scheduler")
    for name, part in parts.items():
        part.save_pretrained(folder / name)
    return folder


def noisy(sigma, b=3, channels=3):
    return torch.randn(b, channels, SIZE, SIZE) * (1 + sigma**2) ** 0.5


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
