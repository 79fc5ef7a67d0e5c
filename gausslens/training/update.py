"""One update of the weights: noise, network, loss, gradient, Adam; on one GPU recorded once and replayed.

Python takes its time to ask for the kernels of forty blocks, forward and back: 191 ms for NCSN++ of width 128, whose
kernels an H200 runs in 181 ms. Replayed, a step costs what its kernels cost.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from .._kernels.cuda_graphs import Recorder
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from .batches import Batch
from .objective import weighted_errors

# Steps that compile, choose algorithms and make the optimiser's state, none of which can be recorded.
_WARM_UP = 3


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
        self.recorder = Recorder(self._step, warm_up=_WARM_UP, enabled=recordable)

    def __call__(self, batch: Batch, learning_rate: float) -> Tensor:
        """Take a step; returns the loss."""
        for group in self.adam.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        return self.recorder(*batch)

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
