"""The products behind the multi-delta denoiser, each against float64."""

import math

import pytest
import torch

from gausslens._kernels import fused, tiles
from gausslens._kernels.tiles import Queries
from gausslens.images import dequantize

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def _pixels(t=64, d=48, device="cpu"):
    return torch.randint(0, 256, (t, d), generator=torch.Generator().manual_seed(0), dtype=torch.uint8).to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("rows", [1, 5, 6, 33])
def test_logits_match_float64(device, scale, rows):
    stored = _pixels(device=device)
    x = scale * torch.randn(rows, 48, device=device)
    variance = torch.rand(rows, 1, device=device, dtype=torch.float64) + 0.5
    anchor = torch.rand(48, device=device) - 0.5
    level = (x.double() @ anchor.double() - anchor.double().square().sum() / 2)[:, None] / variance
    y = dequantize(stored, torch.float64)
    half_squares = y.square().sum(1) / 2
    expected = (x.double() @ y.T - half_squares) / variance - level
    queries = Queries(x, variance[:, 0].sqrt(), anchor, half_squares.max().mul(2).sqrt())
    logits, top = tiles.ImageTile(stored, torch.float32).logits(queries, half_squares)
    magnitude = (x.double().norm(dim=1, keepdim=True) * y.norm(dim=1) + half_squares) / variance + level.abs()
    in_whole_numbers = device == "cpu" or rows > 5
    assert ((logits - expected).abs() / magnitude).max() < (
        3e-7 if not in_whole_numbers else 1e-9 if device == "cpu" else 1e-7
    )
    assert torch.equal(top, logits.amax(1, keepdim=True))


def test_whole_numbers_and_floats_agree_on_any_cpu(monkeypatch):
    stored, x = _pixels(), torch.randn(9, 48)
    queries = Queries(x, torch.ones(9), torch.zeros(48), torch.tensor(7.0))
    results = []
    for multiplies in (True, False):
        monkeypatch.setattr(tiles, "_cpu_multiplies_int8", lambda multiplies=multiplies: multiplies)
        results.append(tiles.ImageTile(stored, torch.float32).logits(queries, torch.zeros(64).double())[0])
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=0)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("t", [8, 64, 3000, 4096])
def test_softmax_sums_match_float64(device, t):
    stored = _pixels(t=t, device=device)
    logits = 6 * torch.rand(7, t, device=device, dtype=torch.float64).log()
    top = logits.amax(1, keepdim=True)
    weights = (logits - top).exp()
    expected = weights @ dequantize(stored, torch.float64)
    sums, weighted = tiles.ImageTile(stored, torch.float32).softmax_sums(logits, top)
    tolerance = 1e-7 if device == "cpu" else 5e-6
    assert (sums[:, 0] - weights.sum(1)).abs().max() < tolerance * float(weights.sum(1).max())
    assert (weighted - expected).abs().max() < tolerance * float(weights.sum(1).max())


def test_two_halves_hold_22_bits():
    logits = -torch.rand(4, 1000, dtype=torch.float64)
    high, low, sums = fused.weigh_in_halves(logits, torch.zeros(4, 1, dtype=torch.float64))
    weights = logits.exp()
    assert (((high.double() + low.double()) / fused.LIFT - weights).abs() <= 2.0**-21 * weights).all()
    assert (low != 0).any()
    torch.testing.assert_close(sums[:, 0].double(), weights.sum(1), rtol=1e-6, atol=0)


def test_digits_spell_the_number():
    rows = torch.randn(3, 50) * torch.tensor([[1e-3], [1.0], [1e4]])
    whole, scale = fused.split_digits(rows, 4)
    spelled = sum(digit.double() / 254**k for k, digit in enumerate(whole)) * scale
    assert ((spelled - rows).abs() <= 127 * scale * 254.0**-4).all()


def test_digits_combine_to_the_logits_they_spell():
    x, pixels = torch.randn(6, 48), _pixels()
    whole, scale = fused.split_digits(x, 4)
    products = whole.int() @ (pixels.int() - 128).T.expand(4, -1, -1)
    y = pixels.double() / 127.5 - 1
    half_squares, row_sums = y.square().sum(1) / 2, x.double().sum(1, keepdim=True)
    variance, level = torch.rand(6, 1, dtype=torch.float64) + 0.1, torch.randn(6, 1, dtype=torch.float64)
    logits, top = fused.combine_digits(products, scale, row_sums, variance, level, half_squares)
    torch.testing.assert_close(logits, (x.double() @ y.T - half_squares) / variance - level, rtol=0, atol=1e-6)
    assert torch.equal(top, logits.amax(1, keepdim=True))


def test_queries_are_described():
    x, anchor = torch.randn(6, 48) + 3, torch.randn(48) + 3
    variance, largest = torch.rand(6, 1, dtype=torch.float64) + 0.1, torch.tensor(7.0, dtype=torch.float64)
    sums, level, scale = fused.describe_queries(x, variance, anchor, largest)
    torch.testing.assert_close(sums[:, 0], x.double().sum(1))
    torch.testing.assert_close(
        level, (x.double() @ anchor.double() - anchor.double().square().sum() / 2)[:, None] / variance
    )
    expected = 2.0**-23 * 7 * (x.double().square().sum(1, keepdim=True) + 49).sqrt() / variance
    torch.testing.assert_close(scale, expected)


def test_folding_tiles_is_the_softmax_over_both():
    logits, y = torch.randn(2, 5, 9, dtype=torch.float64) * 30, torch.randn(9, 4, dtype=torch.float64)
    tops = logits.amax(2, keepdim=True)
    weights = (logits - tops).exp()
    sums = [(weights[k] @ y, weights[k].sum(1, keepdim=True), tops[k]) for k in range(2)]
    weighted, total, top = fused.fold(*sums[0], *sums[1])
    expected = torch.cat(list(logits), 1).softmax(1) @ torch.cat([y, y])
    torch.testing.assert_close(weighted / total, expected)
    torch.testing.assert_close(top, torch.maximum(*tops))


def test_blocks_with_weights_that_may_be_seen_are_found():
    logits = torch.tensor([[0.0, -1.0, -5.0, -50.0]], dtype=torch.float64)
    top, scale = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), 1e-9, dtype=torch.float64)
    weights = logits.softmax(1)
    nothing = torch.zeros_like(top), torch.full_like(top, -math.inf)
    for least in (0.5, 0.01, 1e-5):
        margin = 1e-9 * least**0.5
        bound, blocks = fused.visible_blocks(logits, top, scale, margin, 10, 1, *nothing)
        assert torch.equal(blocks, weights > least)
        assert torch.equal(logits > bound, weights > least)
        _, blocks = fused.visible_blocks(logits, top, scale, margin, 10, 2, *nothing)
        assert torch.equal(blocks, (weights > least).unflatten(1, (2, 2)).any(2))
    _, blocks = fused.visible_blocks(logits, top, scale, 1e-10, 10, 1, torch.full_like(top, 1e6), top)
    assert not blocks.any()


def test_columns_with_something_above_are_found():
    logits = torch.tensor([[0.0, -9.0, -3.0], [0.0, -9.0, math.nan]])
    assert fused.some_above(logits, torch.tensor([[-1.0], [-1.0]])).tolist() == [True, False, True]


def test_a_function_that_does_not_compile_runs_as_written(monkeypatch):
    def broken(function):
        raise RuntimeError("no compiler")

    class OnGpu(torch.Tensor):
        is_cuda = True

    monkeypatch.setattr(fused, "_compiled", broken)
    monkeypatch.setattr(fused, "_LARGE", 0)
    monkeypatch.setattr(fused, "_UNCOMPILABLE", set())
    pixels = _pixels().as_subclass(OnGpu)
    for _ in range(2):
        torch.testing.assert_close(
            fused.fused(fused.center_in_half, pixels).float().as_subclass(torch.Tensor), _pixels().float() - 128
        )
    assert {fused.center_in_half} == fused._UNCOMPILABLE
