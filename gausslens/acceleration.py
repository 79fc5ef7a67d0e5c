"""How a network is made fast: its arithmetic, memory layout and compilation.

On a GPU: bf16 autocast (weights, optimiser and preconditioning stay float32), channels last, and each residual block
compiled on its own, which takes seconds where the whole network takes minutes. On a CPU the network runs as it is.
"""

import contextlib

import torch
from torch import nn

from .config import TrainConfig
from .denoisers.preconditioned import Preconditioned
from .nn.blocks import ResidualBlock


def chosen_precision(config: TrainConfig, device: torch.device) -> str:
    """What the config's precision means on a device: "bf16" or "float32"."""
    if config.precision != "auto":
        return config.precision
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def arithmetic(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """The context to call the network in."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


def prepare_network(denoiser: Preconditioned, device: torch.device, *, compile: bool | None) -> bool:
    """Put a denoiser on its device in the layout that suits it, and compile its blocks.

    Args:
        denoiser: changed in place; the names of its weights stay.
        device: where it will run.
        compile: whether to compile; None is on a GPU only.

    Returns:
        Whether blocks are compiled.
    """
    denoiser.to(device)
    if device.type == "cuda":
        denoiser.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    compiled = device.type == "cuda" if compile is None else compile
    blocks = [module for module in denoiser.modules() if isinstance(module, ResidualBlock)] if compiled else []
    for block in blocks:
        nn.Module.compile(block)
    return bool(blocks)
