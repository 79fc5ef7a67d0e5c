import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from gausslens._kernels import group_norm as kernels
from gausslens._kernels import triton_programs as programs
from gausslens.nn import build_network
from gausslens.nn.normalization import GroupNorm
from gausslens.nn.resampling import blur

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
SHAPES = [(2, 24, 5, 7, 2), (3, 384, 4, 4, 32), (2, 512, 32, 32, 32), (1, 2, 4, 4, 1), (2, 12, 3, 3, 3)]


def activations(*shape, dtype=torch.float32):
    return (3 * torch.randn(shape, device="cuda") + 2).to(dtype).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["moments", "affine", "apply_affine", "add_scaled"])
def test_programs_see_the_names_of_their_module(name):
    program = getattr(programs, name)
    assert getattr(program, "fn", program).__globals__ is vars(programs)


def test_nothing_on_a_cpu_is_for_them():
    with torch.no_grad():
        assert not kernels.usable(torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last))


@needs_gpu
@pytest.mark.filterwarnings(
    "ignore:.*torch.jit.script:DeprecationWarning"
)  # torch's own, for its rules of forward mode
def test_derivatives_doubles_and_other_layouts_are_not_for_them():
    x = activations(2, 4, 6, 6)
    assert not kernels.usable(x)  # derivatives are taken
    with torch.no_grad(), forward_ad.dual_level():
        assert kernels.usable(x)
        assert not kernels.usable(x.double())
        assert not kernels.usable(x.contiguous())
        assert not kernels.usable(x[:0])
        assert not kernels.usable(forward_ad.make_dual(x, x))


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("activate", [False, True])
@torch.no_grad()
def test_normalising_is_what_it_is_in_float64(dtype, shape, moved, activate):
    *shape, groups = shape
    x = activations(*shape, dtype=dtype)
    norm = GroupNorm(groups, shape[1]).cuda()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    offset = torch.randn(shape[:2], device="cuda") if moved else None
    assert kernels.usable(x)
    y = norm(x, offset, activate=activate)
    wide = x.double() if offset is None else x.double() + offset.double()[:, :, None, None]
    expected = F.group_norm(wide, groups, norm.weight.double(), norm.bias.double(), norm.eps)
    expected = F.silu(expected) if activate else expected
    assert (y.dtype, y.stride()) == (dtype, x.stride())
    tolerance = {torch.float32: 3e-5, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype]
    torch.testing.assert_close(y.double(), expected, rtol=tolerance, atol=tolerance)


@needs_gpu
@torch.no_grad()
def test_joining_and_blurring_are_what_they_are_on_a_cpu():
    p, q = activations(3, 20, 10, 6), activations(3, 20, 10, 6)
    bias = torch.randn(20, device="cuda")
    torch.testing.assert_close(kernels.add_scaled(p, q, bias, 0.7), 0.7 * (p + q) + bias[:, None, None])
    for padding in (0, 1):
        torch.testing.assert_close(blur(p, padding=padding).cpu(), blur(p.cpu(), padding=padding), rtol=1e-4, atol=1e-4)


@needs_gpu
@pytest.mark.parametrize("name", ["ncsnpp", "ddpmpp", "adm"])
def test_a_network_without_derivatives_is_the_network_with_them(name):
    torch.manual_seed(0)
    network = build_network(name, (3, 32, 32), width=32).cuda().to(memory_format=torch.channels_last).eval()
    for parameter in network.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    x, noise = torch.randn(4, 3, 32, 32, device="cuda"), torch.randn(4, device="cuda")
    with torch.backends.cudnn.flags(allow_tf32=False):
        expected = network(x, noise).detach()
        with torch.no_grad():
            found = network(x, noise)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
