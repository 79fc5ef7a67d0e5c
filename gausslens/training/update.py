"""One update of the weights (noise, network, loss, gradient, Adam), recorded and replayed on one GPU, and their average.

Python takes its time to ask for the kernels of forty blocks, forward and back: 191 ms for NCSN++ of width 128, whose
kernels an H200 runs in 181 ms. Replayed, a step costs what its kernels cost.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from .._kernels.cuda_graphs import Recorder
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from .batches import Batch
from .objective import weighted_errors

M = TypeVar("M", bound=nn.Module)

# Steps that compile, choose algorithms and make the optimiser's state, none of which can be recorded.
_WARM_UP = 3
# Largest half-life of the average, as a share of the images so far.
_SHARE = 0.05


def make_adam(denoiser: Preconditioned, device: torch.device) -> torch.optim.Adam:
    """Adam over the denoiser's weights, whose learning rate is a tensor on a GPU, where a recording reads it.

    Its state is made here, not in the first step: there it would lie scattered over the memory of activations, none of
    which could be given back to a recording.
    """
    on_gpu = device.type == "cuda"
    rate = torch.zeros((), device=device) if on_gpu else 0.0
    adam = torch.optim.Adam(denoiser.parameters(), lr=rate, fused=True, capturable=on_gpu)
    for weight in denoiser.parameters():
        moments = {name: torch.zeros_like(weight.detach()) for name in ("exp_avg", "exp_avg_sq")}
        adam.state[weight] = {"step": torch.zeros((), device=device), **moments}
    return adam


class WeightUpdate:
    """Callable that takes one step of Adam on the weights of a denoiser.

    `accelerator` wraps the denoiser for several processes, with which steps cannot be recorded. `arithmetic` is the context
    to call it in.
    """

    def __init__(
        self,
        config: TrainConfig,
        denoiser: Preconditioned,
        accelerator: Any,
        arithmetic: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self.config, self.denoiser, self.arithmetic = config, denoiser, arithmetic
        self.adam = make_adam(denoiser, accelerator.device)
        self.model, self.backward = accelerator.prepare(denoiser), accelerator.backward
        recordable = accelerator.device.type == "cuda" and accelerator.num_processes == 1
        self.recorder = Recorder(warm_up=_WARM_UP, enabled=recordable)

    def __call__(self, batch: Batch, learning_rate: float) -> Tensor:
        """Take a step; returns the loss."""
        for group in self.adam.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        return self.recorder(self._step, *batch)

    @property
    def state(self) -> dict[str, Tensor]:
        """What Adam remembers of every weight: the tensors themselves, by the names they are saved under."""
        weights = self.denoiser.named_parameters()
        return {f"adam.{key}.{name}": kept for name, weight in weights for key, kept in self.adam.state[weight].items()}

    def _step(self, x0: Tensor, sigma: Tensor, eps: Tensor, labels: Tensor | None, augment: Tensor | None) -> Tensor:
        with self.arithmetic():
            denoised = self.model(x0 + sigma[:, None, None, None] * eps, sigma, labels, augment)
        loss = weighted_errors(self.config, self.denoiser, denoised, x0, sigma).mean()
        self.backward(loss)
        self.adam.step()
        self.adam.zero_grad()
        return loss.detach()


class WeightAverage(Generic[M]):
    """A copy `module` of a module, in eval mode, whose parameters follow the module's on average; buffers are copied.

        θ̄ ← β·θ̄ + (1 − β)·θ,   β = 2^(−batch/h),   h = min(ema_kimg·1000, 5 % of the images so far).

    The half-life h grows with the run, and the first step copies the weights: a short run's average is of its own late
    weights, never of the initial ones.
    """

    def __init__(self, module: M, half_life: float) -> None:
        self.module: M = copy.deepcopy(module).eval().requires_grad_(False)
        self.half_life = half_life
        self._followed, self._average = list(module.parameters()), list(self.module.parameters())
        self._buffers = list(zip(self.module.buffers(), module.buffers(), strict=True))

    @torch.no_grad()
    def update(self, images: int, batch: int) -> None:
        """Take in the weights after a step; both are counts of images."""
        half_life = min(self.half_life, _SHARE * images)
        decay = 0.5 ** (batch / half_life) if images > batch and half_life > 0 else 0.0
        get_ema_multi_avg_fn(decay)(self._average, self._followed, None)
        for copied, buffer in self._buffers:
            copied.copy_(buffer)
