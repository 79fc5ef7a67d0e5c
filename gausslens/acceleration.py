"""How a network is made fast: its arithmetic, memory layout and compilation.

On a GPU: bf16 autocast (weights, optimiser and preconditioning stay float32), channels last, and each residual block
compiled on its own, so that blocks of one shape are compiled once. On a CPU the network runs as it is.
"""

import contextlib

import torch
from torch import nn

from .config import TrainConfig
from .denoisers.preconditioned import Preconditioned
from .nn.blocks import ResidualBlock
from .nn.unet import HalvedConv, Output

# What is compiled on its own.
_REGIONS = (ResidualBlock, HalvedConv, Output)
# Shapes that one of them may be compiled for: torch would give up after 8.
_SHAPES = 64


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
        torch.backends.cudnn.benchmark = True
    compiled = device.type == "cuda" if compile is None else compile
    regions = [module for module in denoiser.modules() if isinstance(module, _REGIONS)] if compiled else []
    if regions:
        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _SHAPES)
    for region in regions:
        nn.Module.compile(region, dynamic=False)
    return bool(regions)
