"""Denoisers of one level each, as one."""

import pytest
import torch
from torch import nn

from gausslens import ConfigError, jacobian_spectrum
from gausslens.denoisers.composite import LevelwiseDenoiser


class Times(nn.Module):
    """D(x, σ) = a·x."""

    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(float(factor)))

    def forward(self, x, sigma):
        return self.factor * x


def test_each_image_meets_the_denoiser_of_its_level():
    both = LevelwiseDenoiser([Times(2), Times(3)], (80.0, 0.002))
    x = torch.randn(4, 1, 2, 2)
    torch.testing.assert_close(both(x, 0.002), 3 * x)
    torch.testing.assert_close(both(x, torch.tensor(80.0)), 2 * x)
    levels = torch.tensor([80.0, 0.002, 0.002, 80.0])
    torch.testing.assert_close(both(x, levels), torch.tensor([2, 3, 3, 2.0])[:, None, None, None] * x)


def test_derivatives_are_those_of_the_level():
    both = LevelwiseDenoiser([Times(2), Times(3)], (80.0, 0.002))
    spectrum = jacobian_spectrum(both, torch.randn(1, 1, 2, 2), 0.002, k=4, full=True)
    torch.testing.assert_close(spectrum.singular_values, torch.full((1, 4), 3.0, dtype=torch.float64))


def test_other_levels_are_refused():
    with pytest.raises(ConfigError, match=r"sigma = 80, 1; got 2\. Use one"):
        LevelwiseDenoiser([Times(2), Times(3)], (80.0, 1.0))(torch.ones(1, 1, 2, 2), 2.0)
    with pytest.raises(ConfigError, match="got 2 denoisers"):
        LevelwiseDenoiser([Times(2), Times(3)], (80.0,))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_levels_are_known_in_half_precision(dtype):
    denoiser = LevelwiseDenoiser([nn.Identity(), nn.Identity()], [1.3, 0.03])
    denoiser.denoisers[0].forward = denoiser.denoisers[1].forward = lambda x, sigma: x
    x = torch.ones(2, 1, 2, 2, dtype=dtype)
    assert denoiser(x, torch.tensor([1.3, 0.03], dtype=dtype)).shape == x.shape
