"""Precision, layout and compilation, as far as a CPU shows them."""

import pytest
import torch

from gausslens import Preconditioned
from gausslens.nn import build_network
from gausslens.nn.acceleration import (
    FastDenoiser,
    arithmetic,
    limit_threads,
    pays_to_compile,
    prepare_network,
    resolve_precision,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize(("asked", "meant"), [("auto", "float32"), ("float32", "float32"), ("bf16", "bf16")])
def test_precision_on_a_cpu(asked, meant):
    assert resolve_precision(asked, CPU) == meant


def test_bf16_is_for_the_products_alone():
    layer, x = torch.nn.Linear(4, 4), torch.rand(2, 4)
    with arithmetic("bf16", CPU):
        assert layer(x).dtype == torch.bfloat16
        assert (x + x).dtype == torch.float32
    with arithmetic("float32", CPU):
        assert layer(x).dtype == torch.float32


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # the compiler's own
@pytest.mark.parametrize("compile", [False, True])
def test_preparing_keeps_the_names_of_the_weights(compile):
    denoiser = Preconditioned(build_network("ncsnpp", (1, 8, 8), width=4, multipliers=(1, 1), blocks=1))
    names = list(denoiser.state_dict())
    assert prepare_network(denoiser, CPU, compile=compile) == compile
    assert list(denoiser.state_dict()) == names
    filters = [weight for weight in denoiser.parameters() if weight.ndim == 4 and min(weight.shape[1:]) > 1]
    assert filters
    assert all(weight.is_contiguous(memory_format=torch.channels_last) for weight in filters)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_fast_denoiser_is_the_denoiser(precision):
    network = build_network("ncsnpp", (1, 8, 8), width=4, multipliers=(1, 1), blocks=1)
    torch.nn.init.normal_(network.output.conv.weight)  # it begins near zero
    denoiser = Preconditioned(network).eval()
    x, sigma = torch.randn(5, 1, 8, 8), torch.rand(5) + 0.1
    expected = denoiser(x, sigma).detach()
    fast = FastDenoiser(denoiser, CPU, precision)(x, sigma)
    assert not fast.requires_grad
    tolerance = 1e-6 if precision == "float32" else 0.05
    assert (fast - expected).norm() < tolerance * expected.norm()
    assert precision == "float32" or not torch.equal(fast, expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_replayed_calls_on_a_gpu_are_the_same_calls():
    device = torch.device("cuda")
    network = build_network("ncsnpp", (3, 16, 16), width=16, multipliers=(1, 1), blocks=1)
    torch.nn.init.normal_(network.output.conv.weight)
    fast = FastDenoiser(Preconditioned(network), device, "float32")
    for seed in range(6):
        torch.manual_seed(seed)
        x, sigma = torch.randn(5, 3, 16, 16, device=device), torch.rand(5, device=device) + 0.1
        expected = fast.denoiser(x, sigma)
        torch.testing.assert_close(fast(x, sigma), expected, rtol=1e-3, atol=1e-3)
    assert fast.recorder.replay is not None
    assert fast(x[:2], 0.5).shape == (2, 3, 16, 16)


@pytest.mark.parametrize(("numbers", "threads"), [(256 * 64, 1), (128 * 784, 2)])
def test_small_steps_use_one_thread(numbers, threads):
    torch.set_num_threads(2)
    with limit_threads(CPU, numbers):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_compiling_is_for_long_work_on_a_gpu():
    gpu = torch.device("cuda")
    assert pays_to_compile(gpu, 1e6)
    assert not pays_to_compile(gpu, 1000)
    assert not pays_to_compile(CPU, 1e9)
