"""Group normalisation per channel is torch's, in value and gradient, and stays channels last."""

import pytest
import torch

from gausslens.nn.normalization import GroupNorm


@pytest.mark.parametrize(("groups", "channels"), [(1, 8), (2, 8), (8, 8)])
def test_per_channel_is_the_usual_normalisation(groups, channels):
    norm = GroupNorm(groups, channels, eps=1e-6).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x = (3 * torch.randn(4, channels, 5, 6, dtype=torch.float64) + 2).requires_grad_()
    results = []
    for normalize in (norm.per_channel, norm.forward):
        y = normalize(x)
        inputs = (x, norm.weight, norm.bias)
        results.append((y, *torch.autograd.grad((y * y.detach().roll(1)).sum(), inputs)))
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def test_small_dtypes_give_float32_and_the_layout_stays():
    x = torch.randn(2, 8, 4, 4, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    y = GroupNorm(2, 8).per_channel(x)
    assert y.dtype == torch.float32
    assert y.is_contiguous(memory_format=torch.channels_last)


def test_constant_channels_do_not_divide_by_zero():
    assert GroupNorm(2, 8).per_channel(torch.full((1, 8, 4, 4), 7.0)).isfinite().all()


@pytest.mark.parametrize("mean", [1.0, 100.0, 1e4, 1e5])
def test_values_and_gradients_stay_right_where_the_mean_is_far_above_the_spread(mean):
    norm = GroupNorm(4, 16, eps=1e-6)
    x = torch.randn(2, 16, 8, 8) + mean
    upstream = torch.randn_like(x)
    found = []
    for normalize, given in ((norm.per_channel, x), (norm.double().forward, x.double())):
        norm.to(given.dtype)
        leaf = given.clone().requires_grad_()
        y = normalize(leaf)
        found.append((y.detach().double(), torch.autograd.grad((y * upstream).sum(), leaf)[0].double()))
    for ours, exact in zip(*found, strict=True):
        assert (ours - exact).norm() / exact.norm() < 3e-7 * mean + 1e-6


def test_a_group_that_is_constant_but_for_a_few_roundings_is_normalised_by_them():
    norm = GroupNorm(2, 8, eps=1e-6)
    x = (10 * (1 + 1e-3 * torch.randn(1, 8, 16, 16, generator=torch.Generator().manual_seed(0)))).bfloat16()
    assert x.unique().numel() < 5
    with torch.no_grad():
        found, exact = norm.per_channel(x), norm.double()(x.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("way", ["forward", "per_channel"])
def test_an_offset_is_added_before(way):
    norm = GroupNorm(2, 8).double()
    given = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 8, 5, 6), (4, 8))]
    x, offset = given
    upstream = torch.randn_like(x)
    found, expected = (
        (y, *torch.autograd.grad(y, given, upstream))
        for y in (getattr(norm, way)(x, offset), torch.nn.GroupNorm.forward(norm, x + offset[:, :, None, None]))
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
