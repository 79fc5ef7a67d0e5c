"""Blocks compute their formula, start as skips and compile as one graph."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from gausslens.nn.resampling import downsample
from gausslens.nn.unet import ADM, NCSNPP, Attention, ResidualBlock

ADDED = replace(NCSNPP, last_gain=1.0)
ADAPTIVE = replace(ADM, last_gain=1.0)


def silu_norm(norm, x):
    return F.silu(F.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps))


def test_attention_mixes_pixels_by_softmax():
    """Against explicit loops over images and heads."""
    attention = Attention(8, replace(ADAPTIVE, head_channels=4)).double()
    x = torch.randn(2, 8, 3, 4, dtype=torch.float64)
    qkv = attention.qkv(attention.norm(x)).reshape(2, 3, 2, 4, 12)
    mixed = torch.empty(2, 2, 4, 12, dtype=torch.float64)
    for image in range(2):
        for head in range(2):
            query, key, value = qkv[image, :, head]
            weights = torch.softmax(query.T @ key / 2, dim=1)
            mixed[image, head] = value @ weights.T
    expected = x + attention.project(mixed.reshape(2, 8, 3, 4))
    assert attention.heads == 2
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_an_additive_block_is_its_formula():
    block = ResidualBlock(8, 12, 6, ADDED, resample="down").double()
    x, embedding = torch.randn(2, 8, 4, 4, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)
    hidden = block.first(downsample(silu_norm(block.norm_in, x), smooth=True))
    hidden = block.second(silu_norm(block.norm_mid, hidden + block.noise(embedding)[:, :, None, None]))
    expected = (block.skip(downsample(x, smooth=True)) + hidden) / 2**0.5
    torch.testing.assert_close(block(x, embedding), expected)
    assert block(x, embedding).shape == (2, 12, 2, 2)


def test_an_adaptive_block_is_its_formula():
    block = ResidualBlock(8, 8, 6, ADAPTIVE, resample="up").double()
    x, embedding = torch.randn(2, 8, 4, 4, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)
    doubled = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
    hidden = block.first(silu_norm(block.norm_in, doubled))
    scale, shift = block.noise(embedding)[:, :, None, None].split(8, dim=1)
    hidden = block.second(F.silu(block.norm_mid(hidden) * (scale + 1) + shift))
    torch.testing.assert_close(block(x, embedding), doubled + hidden)


@pytest.mark.parametrize("style", [NCSNPP, ADM])
def test_a_new_block_is_its_skip(style):
    block = ResidualBlock(8, 8, 6, style, attention=True)
    x = torch.randn(2, 8, 4, 4)
    torch.testing.assert_close(block(x, torch.randn(2, 6)), x * style.residual_scale**2, rtol=0, atol=1e-3)


def test_dropout_acts_in_training_alone():
    block = ResidualBlock(8, 8, 6, ADDED, dropout=0.5)
    x, embedding = torch.randn(2, 8, 4, 4), torch.randn(2, 6)
    assert not torch.equal(block(x, embedding), block(x, embedding))
    block.eval()
    assert torch.equal(block(x, embedding), block(x, embedding))


@pytest.mark.parametrize(("channels", "groups"), [(3, 1), (4, 1), (12, 3), (18, 3), (128, 32), (384, 32), (960, 32)])
def test_groups_divide_the_channels(channels, groups):
    assert NCSNPP.norm(channels).num_groups == groups


@pytest.mark.slow
@pytest.mark.parametrize("style", [ADDED, ADAPTIVE])
@pytest.mark.parametrize("resample", ["none", "down", "up"])
def test_a_block_is_one_graph(style, resample):
    block = ResidualBlock(8, 16, 6, style, resample=resample, attention=True)
    x, embedding = torch.randn(2, 8, 4, 4), torch.randn(2, 6)
    torch.compiler.reset()  # graphs of other cases count towards the limit of recompilations
    compiled = torch.compile(block, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, embedding), block(x, embedding))


@pytest.mark.parametrize("resample", ["none", "down", "up"])
def test_the_channels_last_layout_changes_no_value(resample):
    block = ResidualBlock(8, 16, 6, ADDED, resample=resample, attention=True).double()
    x, embedding = torch.randn(2, 8, 4, 4, dtype=torch.float64), torch.randn(2, 6, dtype=torch.float64)
    expected = block(x, embedding)
    block.to(memory_format=torch.channels_last)
    found = block(x.to(memory_format=torch.channels_last), embedding)
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
