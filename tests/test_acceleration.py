"""Precision, layout and compilation, as far as a CPU shows them."""

import pytest
import torch

from gausslens import Preconditioned, TrainConfig
from gausslens.acceleration import arithmetic, chosen_precision, prepare_network
from gausslens.nn import build_network

CPU = torch.device("cpu")


@pytest.mark.parametrize(("asked", "meant"), [("auto", "float32"), ("float32", "float32"), ("bf16", "bf16")])
def test_precision_on_a_cpu(asked, meant):
    assert chosen_precision(TrainConfig("digits", precision=asked), CPU) == meant


def test_bf16_is_for_the_products_alone():
    layer, x = torch.nn.Linear(4, 4), torch.rand(2, 4)
    with arithmetic("bf16", CPU):
        assert layer(x).dtype == torch.bfloat16
        assert (x + x).dtype == torch.float32
    with arithmetic("float32", CPU):
        assert layer(x).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("compile", [None, False, True])
def test_preparing_keeps_the_names_of_the_weights(compile):
    denoiser = Preconditioned(build_network("ncsnpp", (1, 8, 8), width=4, multipliers=(1, 1), blocks=1))
    names = list(denoiser.state_dict())
    assert prepare_network(denoiser, CPU, compile=compile) == bool(compile)
    assert list(denoiser.state_dict()) == names
