"""Two exact denoisers, one that memorises its training images and one that knows their law, told apart by new images."""

import torch

import gausslens as gl

torch.manual_seed(0)
fields = torch.randn(19, 8, 8, dtype=torch.float64).cumsum(1).cumsum(2).flatten(1) / 130
centres, factor = fields[:3] * 1.5, fields[3:]  # the law: three Gaussians that share one covariance
covariance = factor.T @ factor + 1e-4 * torch.eye(64)


def draw(n):
    spread = torch.randn(n, 64, dtype=torch.float64) @ torch.linalg.cholesky(covariance).T
    return (centres[torch.randint(3, (n,))] + spread).reshape(n, 1, 8, 8)


def generalising(x, sigma):  # the posterior mean of the law
    centred = x.flatten(1)[:, None] - centres
    whitened = torch.linalg.solve(covariance + sigma[0] ** 2 * torch.eye(64), centred, left=False)
    probability = (-(whitened * centred).sum(2) / 2).softmax(1)
    return (probability[..., None] * (centres + whitened @ covariance)).sum(1).reshape(x.shape)


train, held_out, sigma = draw(100), draw(4000), 0.1
gaussian, memorising = gl.GaussianDenoiser(gl.Moments.fit(train)), gl.MultiDeltaDenoiser(train)
columns = ("linearity", "to Gaussian", "to multi-delta", "FVU", "weight error", "its floor")
print(f"{'denoiser':14}{'images':8}" + "".join(f"{column:>16}" for column in columns))
for name, model in (("memorising", memorising), ("generalising", generalising)):
    for kind, images in (("training", train), ("held-out", held_out)):
        curves = [gl.linearity(model, images, sigma, affine=True)]
        curves += [gl.gap(reference, model, images, sigma) for reference in (gaussian, memorising)]
        fit = gl.distill(model, images, sigma, calls=20_000)
        row = [curve.values for curve in curves] + [fit.fvu, fit.weight_error["distillation"], fit.weight_error_floor]
        print(f"{name:14}{kind:8}" + "".join(f"{value.item():16.3f}" for value in row))
