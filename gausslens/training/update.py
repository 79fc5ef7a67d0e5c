"""One update of the weights: noise, network, loss, gradient, Adam; on one GPU recorded once and replayed.

Python takes its time to ask for the kernels of forty blocks, forward and back: 191 ms for NCSN++ of width 128, whose
kernels an H200 runs in 181 ms. Replayed, a step costs what its kernels cost.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from .._kernels.cuda_graphs import Replay, try_capture
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

    The model is the denoiser as it is called, which may be wrapped for several processes, with which steps cannot be
    recorded. `arithmetic` is the context to call it in.
    """

    def __init__(
        self,
        config: TrainConfig,
        denoiser: Preconditioned,
        model: Any,
        adam: torch.optim.Adam,
        backward: Callable[[Tensor], None],
        arithmetic: Callable[[], AbstractContextManager[object]],
        *,
        recordable: bool,
    ) -> None:
        self._config, self._denoiser, self._model, self._adam = config, denoiser, model, adam
        self._backward, self._arithmetic = backward, arithmetic
        self._to_record = _WARM_UP if recordable else None  # steps until recording, None for never
        self._replay: Replay | None = None

    def __call__(self, batch: Batch, learning_rate: float) -> Tensor:
        """Take a step; returns the loss."""
        for group in self._adam.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(learning_rate)
            else:
                group["lr"] = learning_rate
        parts = (batch.x0, batch.sigma, batch.eps, batch.labels, batch.augment)
        inputs = [part for part in parts if part is not None]
        if self._to_record == 0:
            self._replay, self._to_record = try_capture(self._step, *inputs), None
        elif self._to_record is not None:
            self._to_record -= 1
        return self._step(*inputs)[0] if self._replay is None else self._replay(*inputs)[0].clone()

    def _step(self, x0: Tensor, sigma: Tensor, eps: Tensor, *conditions: Tensor) -> tuple[Tensor]:
        remaining = list(conditions)
        labels = remaining.pop(0) if self._config.labels else None
        augment = remaining.pop(0) if self._config.augment else None
        with self._arithmetic():
            denoised = self._model(x0 + sigma[:, None, None, None] * eps, sigma, labels, augment)
        loss = weighted_errors(self._config, self._denoiser, denoised, x0, sigma).mean()
        self._backward(loss)
        self._adam.step()
        self._adam.zero_grad()
        return (loss.detach(),)
