"""The expected time of training and calling a network, before anything has run.

    seconds ≈ steps · overhead + arithmetic / speed

The network's arithmetic is counted on a meta device, without computing. Speeds are rough; the engine corrects them by how
long finished tasks really took.
"""

from functools import cache
from typing import Any

import torch

from ..config import TrainConfig
from ..nn import build_network
from ..store.weights import describe_denoiser

# Of one CPU thread and of a large GPU, on small and on large networks: arithmetic per second, seconds per step.
_CPU_SPEED, _CPU_OVERHEAD = 2.5e10, 4e-3
_GPU_SPEED, _GPU_OVERHEAD = 1.0e14, 2e-2
_TRAINING = 3  # a step's arithmetic, in units of a call's
_CALL_IMAGES = 256  # images of one call, when measuring
_STARTING = 1.0  # seconds before a model's work begins


def seconds_to_train(config: TrainConfig, shape: tuple[int, int, int], *, cpu: bool) -> float:
    """Expected seconds of a training run."""
    resolved = config.resolve(shape)
    steps = resolved.steps
    return _STARTING + _seconds(config, shape, steps, _TRAINING * steps * resolved.recipe.batch, cpu=cpu)


def seconds_to_call(config: TrainConfig, shape: tuple[int, int, int], calls: int, *, cpu: bool) -> float:
    """Expected seconds of calling a network on `calls` images; `config` is of its training."""
    return _STARTING / 2 + _seconds(config, shape, calls / _CALL_IMAGES, calls, cpu=cpu)


def _seconds(config: TrainConfig, shape: tuple[int, int, int], steps: float | int, images: int, *, cpu: bool) -> float:
    """Of so many calls of a network, on so many images in all."""
    gpu = torch.cuda.is_available() and not cpu
    speed, overhead = (_GPU_SPEED, _GPU_OVERHEAD) if gpu else (_CPU_SPEED, _CPU_OVERHEAD)
    network = describe_denoiser(config, shape, classes=0, augment_inputs=0)["network"]
    return steps * overhead + images * _count(shape, tuple(network.items())) / speed


@cache
def _count(shape: tuple[int, int, int], network: tuple[tuple[str, Any], ...]) -> float:
    """Multiplications and additions of a call on one image."""
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        built = build_network(**dict(network)).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            built(torch.zeros(2, *shape), torch.zeros(2))
    return float(counter.get_total_flops()) / 2
