"""How a network is made fast: its arithmetic, memory layout and compilation.

Everywhere: channels last. On a GPU: bf16 autocast (weights, optimiser and preconditioning stay float32) and, for work
that is long enough, each residual block compiled on its own, so that blocks of one shape are compiled once.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from .._kernels.cuda_graphs import Recorder
from .._typing import Sigma
from ..denoisers.preconditioned import Preconditioned
from ..denoisers.protocol import expand_sigma
from .unet import HalvedConv, Output, ResidualBlock

# What is compiled on its own.
_REGIONS = (ResidualBlock, HalvedConv, Output)
# Shapes that one of them may be compiled for: torch would give up after 8.
_SHAPES = 64
# Above so many operations, or reads, compiled code writes down what is used twice instead of computing it again. With the
# compiler's own 30 and 4 that is the derivative of SiLU, in float32: backward, a block's normalisation takes 12 passes over
# activations instead of 7 (benchmarks/normalization.py), and NCSN++ at 64×64 trains on 1,311 images per second, not 1,375.
WRITTEN_ABOVE = {"realize_opcount_threshold": 60, "realize_reads_threshold": 8}
# Calls that earn back the minutes of compiling. NCSN++ of width 128 at 64×64 trained on an H200 at 388 images per second as
# it is and at 1,340 compiled, which took 200 s: earned back after 110,000 images.
_CALLS_TO_COMPILE = 300_000
# Numbers in a batch up to which one thread of a CPU is the fastest: 1,024 images of 8×8 pixels.
_FEW_NUMBERS = 1 << 16
# Calls with inputs of one shape after which a recording pays.
_SEEN_BEFORE_RECORDING = 2


def resolve_precision(precision: str, device: torch.device) -> str:
    """The precision for a device, "bf16" or "float32", where "auto" is bf16 on GPUs that support it."""
    if precision != "auto":
        return precision
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "float32"


def arithmetic(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """The context to call the network in, "bf16" or "float32"."""
    return torch.autocast(device.type, torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()


def pays_to_compile(device: torch.device, calls: float | int) -> bool:
    """Whether so many calls are faster with minutes of compiling; training on one image counts as three calls."""
    return device.type == "cuda" and calls >= _CALLS_TO_COMPILE


def prepare_network(denoiser: Preconditioned, device: torch.device, *, compile: bool) -> bool:
    """Put a denoiser on its device in the layout that suits it, and compile its blocks."""
    denoiser.to(device)
    denoiser.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
    regions = [module for module in denoiser.modules() if isinstance(module, _REGIONS)] if compile else []
    if regions:
        from torch._inductor import config as compiler

        torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _SHAPES)
        for name, threshold in WRITTEN_ABOVE.items():
            setattr(compiler, name, threshold)
    for region in regions:
        nn.Module.compile(region, dynamic=False)
    return bool(regions)


@contextlib.contextmanager
def limit_threads(device: torch.device, numbers: int) -> Iterator[None]:
    """Inside, a CPU uses one thread if a step has few numbers, since threads would mostly wait for each other."""
    threads = torch.get_num_threads()
    if device.type == "cpu" and numbers <= _FEW_NUMBERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class FastDenoiser(nn.Module):
    """A trained denoiser for sampling: on a GPU in bf16, replayed and, with `compile`, compiled; elsewhere unchanged.

    The given denoiser is moved and changed in place. No derivatives are taken. For measuring, use the denoiser itself, in
    float32; for a fit to very many calls see `for_inference`.
    """

    def __init__(
        self, denoiser: Preconditioned, device: torch.device, precision: str = "auto", *, compile: bool = False
    ) -> None:
        super().__init__()
        self.denoiser = denoiser.eval()
        self.device, self.precision = device, resolve_precision(precision, device)
        prepare_network(denoiser, device, compile=compile)
        self.recorder = Recorder(warm_up=_SEEN_BEFORE_RECORDING, enabled=device.type == "cuda")

    @torch.no_grad()
    def forward(self, x: Tensor, sigma: Sigma, labels: Tensor | None = None) -> Tensor:
        """Estimate x0, as `Preconditioned` does."""
        return self.recorder(self._call, x, expand_sigma(sigma, x), labels)

    def _call(self, x: Tensor, sigma: Tensor, labels: Tensor | None) -> Tensor:
        with arithmetic(self.precision, self.device):
            denoised: Tensor = self.denoiser(x, sigma, labels)
        return denoised


def for_inference(denoiser: nn.Module, device: torch.device) -> nn.Module:
    """A denoiser for calls that are many and need few digits: samples, and fits that average over ten calls a dimension.

    With bf16 the network's part of D, c_out·F, has about eight significant bits.
    """
    ours = isinstance(denoiser, Preconditioned) and device.type == "cuda"
    return FastDenoiser(denoiser, device) if ours else denoiser  # type: ignore[arg-type]
