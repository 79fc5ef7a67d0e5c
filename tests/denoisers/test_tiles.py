"""The products behind the multi-delta denoiser, each against float64."""

from functools import partial

import pytest
import torch

from gausslens.denoisers import fused, tiles
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
    level = torch.randn(rows, 1, device=device)
    y = dequantize(stored, torch.float64)
    half_squares = y.square().sum(1) / 2
    expected = (x.double() @ y.T - half_squares) / variance - level.double()
    digits = partial(tiles.Digits, x, tiles.CPU_DIGITS)
    logits = tiles.ImageTile(stored, torch.float32).logits(x, digits, variance, level, half_squares)
    magnitude = (x.double().norm(dim=1, keepdim=True) * y.norm(dim=1) + half_squares) / variance + level.abs()
    assert ((logits - expected).abs() / magnitude).max() < 3e-7
    if logits.dtype == torch.float64:
        assert ((logits - expected).abs() / magnitude).max() < 1e-9


def test_whole_numbers_and_floats_agree_on_any_cpu(monkeypatch):
    stored, x = _pixels(), torch.randn(9, 48)
    digits = partial(tiles.Digits, x, tiles.CPU_DIGITS)
    arguments = digits, torch.ones(9, 1).double(), torch.zeros(9, 1), torch.zeros(64).double()
    results = []
    for multiplies in (True, False):
        monkeypatch.setattr(tiles, "_cpu_multiplies_int8", lambda multiplies=multiplies: multiplies)
        results.append(tiles.ImageTile(stored, torch.float32).logits(x, *arguments))
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=0, check_dtype=False)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("t", [8, 64, 3000, 4096])
def test_weighted_sums_match_float64(device, t):
    stored = _pixels(t=t, device=device)
    weights = torch.rand(7, t, device=device) ** 6
    expected = weights.double() @ dequantize(stored, torch.float64)
    sums = tiles.ImageTile(stored, torch.float32).weighted_sum(weights)
    tolerance = 1e-7 if device == "cpu" else 5e-6
    assert (sums - expected).abs().max() < tolerance * float(weights.sum(1).max())


def test_two_halves_hold_22_bits():
    numbers = torch.rand(1000)
    halves = fused.in_two_halves(numbers).double().sum(0) / fused.LIFT
    assert ((halves - numbers.double()).abs() <= 2.0**-21 * numbers).all()
    assert (fused.in_two_halves(numbers)[1] != 0).any()


def test_digits_combine_to_the_number_they_spell():
    whole = torch.randint(-(10**6), 10**6, (3, 4, 5))
    scale, offset, slope = torch.rand(3, 4, 1).unbind(0)
    intercepts = torch.rand(5)
    combined = fused.combine_digits(whole, scale, offset, slope, intercepts)
    spelled = (whole[0] + whole[1] / 254 + whole[2] / 254**2).double()
    torch.testing.assert_close(
        combined.double(), spelled * scale + offset + slope * intercepts, rtol=1e-5, atol=0.1, check_dtype=False
    )


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
            fused.fused(fused.centred_half, pixels).float().as_subclass(torch.Tensor), _pixels().float() - 128
        )
    assert {fused.centred_half} == fused._UNCOMPILABLE
