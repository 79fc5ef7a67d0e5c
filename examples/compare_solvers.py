"""How far each ODE solver stays from the exact flow of a Gaussian, by number of denoiser calls."""

import torch

from gausslens import GaussianDenoiser, Moments, sample

torch.manual_seed(0)
smooth = torch.randn(500, 3, 8, 8, dtype=torch.float64).cumsum(2).cumsum(3)
images = smooth / smooth.abs().max()
denoiser = GaussianDenoiser(Moments.fit(images))
latents = torch.randn(64, 3, 8, 8, dtype=torch.float64)
exact = denoiser.flow(80.0 * latents, 80.0, 0.0)

print(f"{'solver':<10}{'levels':>8}{'calls':>8}{'error':>10}")
for solver, calls_per_level in (("euler", 1), ("heun", 2), ("dpmpp_2m", 1)):
    for levels in (10, 18, 40):
        samples = sample(denoiser, latents, steps=levels, solver=solver)
        error = float((samples - exact).norm() / exact.norm())
        calls = calls_per_level * (levels - 1) + 1
        print(f"{solver:<10}{levels:>8}{calls:>8}{error:>10.2%}")
