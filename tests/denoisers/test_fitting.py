"""What a distillation finds: exact maps exactly, posterior means at their Wiener filter, and honest errors.

The law is a mixture of Gaussians, whose posterior mean (a denoiser that generalises perfectly) is known. The multi-delta
denoiser of a few draws from it memorises perfectly.
"""

import math

import pytest
import torch

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, distill

D = 16
SHAPE = (1, 4, 4)
SIGMAS = (1.0, 0.5, 0.1)


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Mixture:
    """Three Gaussians of equal weight, with different covariances of falling spectra."""

    def __init__(self, seed, spread=0.3):
        self.means = spread * normal(3, D, seed=seed)
        self.factors = 0.2 * normal(3, D, D, seed=seed + 1) * torch.linspace(2, 0.2, D, dtype=torch.float64)
        self.covariances = self.factors @ self.factors.mT

    def draw(self, n, seed):
        which = torch.randint(0, 3, (n,), generator=torch.Generator().manual_seed(seed))
        points = self.means[which] + (self.factors[which] @ normal(n, D, 1, seed=seed + 1))[..., 0]
        return points.reshape(n, *SHAPE)

    def posterior_mean(self, x, sigma):
        noisy = self.covariances + sigma[0] ** 2 * torch.eye(D, dtype=x.dtype)
        centred = x.flatten(1)[:, None] - self.means
        solved = torch.linalg.solve(noisy, centred[..., None])[..., 0]
        logits = -(centred * solved).sum(2) / 2 - torch.logdet(noisy) / 2
        means = self.means + (self.covariances @ solved[..., None])[..., 0]
        return (logits.softmax(1)[..., None] * means).sum(1).reshape(x.shape)

    def wiener(self, sigma):
        """The matrix of the best affine denoiser of the law itself."""
        centred = self.means - self.means.mean(0)
        covariance = self.covariances.mean(0) + centred.T @ centred / 3
        return covariance @ torch.linalg.inv(covariance + sigma**2 * torch.eye(D, dtype=torch.float64))


def distance(a, b):
    return float((a - b).norm() / b.norm())


def explicit_fvu(denoiser, linear, images, sigma, count=200_000):
    """Monte Carlo, with noise of its own."""
    clean = images[torch.randint(len(images), (count,), generator=torch.Generator().manual_seed(99))]
    x = clean + sigma * normal(count, *SHAPE, seed=98)
    level = torch.full((count,), sigma, dtype=torch.float64)
    target, fitted = denoiser(x, level), linear(x, level)
    return float((target - fitted).square().sum() / (target - target.mean(0)).square().sum())


def turned(x, sigma):
    """A denoiser that no Gaussian is near to, so that shrinking does not pay."""
    rotation = torch.linalg.qr(normal(D, D, seed=6)).Q
    return (torch.tanh(2 * x.flatten(1)) @ rotation.T).reshape(x.shape)


# --- exact maps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.002, 0.1, 1.0, 80.0])
@pytest.mark.parametrize("n", [1, 5, 300])
def test_an_affine_denoiser_is_recovered_exactly(n, sigma):
    weight, bias = normal(D, D, seed=1), normal(D, seed=2)
    images = Mixture(3).draw(n, 4)

    def affine(x, sigma):
        return (x.flatten(1) @ weight.T + bias).reshape(x.shape)

    linear = distill(affine, images, sigma, calls=400, bounds=None)
    # Inputs of variance 1 along the data and σ² elsewhere have a condition of 1/σ²: that many digits are lost, no more.
    tolerance = 1e-10 if sigma >= 0.1 else 1e-8
    assert distance(linear.weight(sigma), weight) < tolerance
    assert distance(linear.bias(sigma), bias) < tolerance
    assert float(linear.fvu) < 1e-9
    if n > 1:  # one image has W_G = 0, to which nothing is relative
        assert float(linear.weight_error_floor) < tolerance


def test_the_gaussian_denoiser_has_no_error():
    images = Mixture(3).draw(200, 4)
    gaussian = GaussianDenoiser(Moments.fit(images, bounds=None))
    linear = distill(gaussian, images, SIGMAS, held_out=images, calls=500, bounds=None)
    for name in ("distillation", "held_out"):
        assert float(linear.weight_error[name].max()) < 1e-10
    for fraction in (linear.fvu, linear.fvu_floor, linear.fvu_held_out):
        assert float(fraction.max()) < 1e-12
    for sigma in SIGMAS:
        assert distance(linear.bias(sigma), gaussian.bias(sigma)) < 1e-10


def test_a_perturbation_of_a_tenth_is_recovered():
    images = Mixture(3).draw(200, 4)
    gaussian = GaussianDenoiser(Moments.fit(images, bounds=None))
    direction = normal(D, D, seed=5)
    perturbation = 0.1 * direction / direction.norm()

    def perturbed(x, sigma):
        extra = gaussian.weight(float(sigma[0])).norm() * x.flatten(1) @ perturbation.T
        return gaussian(x, sigma) + extra.reshape(x.shape)

    linear = distill(perturbed, images, SIGMAS, calls=500, bounds=None)
    assert torch.allclose(linear.weight_error["distillation"], torch.tensor(0.1, dtype=torch.float64), rtol=1e-9)


def test_a_perturbation_of_a_nonlinear_denoiser_is_recovered_above_its_floor():
    """The floor adds in squares: weight_error² − floor² is the square of what is truly there."""
    images = Mixture(3).draw(40, 4)
    memory, gaussian = MultiDeltaDenoiser(images, bounds=None), GaussianDenoiser(Moments.fit(images, bounds=None))
    direction = normal(D, D, seed=5)

    def perturbed(x, sigma):
        size = 0.1 * gaussian.weight(float(sigma[0])).norm() / direction.norm()
        return memory(x, sigma) + (size * x.flatten(1) @ direction.T).reshape(x.shape)

    excess = []
    for seed in range(8):
        linear = distill(perturbed, images, 0.5, calls=1000, seed=seed, bounds=None)
        excess.append(float(linear.weight_error["distillation"] ** 2 - linear.weight_error_floor**2))
        assert float(linear.weight_error_floor) > 0.03  # so that leaving it out would show
    assert math.sqrt(sum(excess) / len(excess)) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("value", [0.3, 0.0])
def test_a_constant_denoiser_is_explained_by_the_bias(value):
    images = Mixture(3).draw(30, 4)
    linear = distill(lambda x, sigma: torch.full_like(x, value), images, 0.5, held_out=images, calls=200, bounds=None)
    assert float(linear.fvu) == float(linear.fvu_floor) == float(linear.fvu_held_out) == 0
    assert torch.allclose(linear.bias(0.5), torch.full((D,), value, dtype=torch.float64))
    assert not linear.weight(0.5).any()


# --- orthogonality -----------------------------------------------------------------------------------------------------


def check_orthogonality(seed):
    law = Mixture(seed, spread=0.3 + 0.1 * (seed % 3))
    train, held_out = law.draw(40, seed + 10), law.draw(4000, seed + 20)
    memory = MultiDeltaDenoiser(train, bounds=None)
    powers = torch.arange(9, 18, dtype=torch.float64)
    errors = torch.stack(
        [
            distill(memory, train, SIGMAS, calls=2 ** int(p), seed=seed, bounds=None, batch_size=4096).weight_error[
                "distillation"
            ]
            for p in powers
        ]
    )
    centred = powers - powers.mean()
    slopes = (centred[:, None] * errors.log2()).sum(0) / centred.square().sum()
    assert bool(((slopes > -0.6) & (slopes < -0.4)).all()), slopes
    assert float(errors[-1].max()) < 0.02
    elsewhere = distill(memory, held_out, SIGMAS, train=train, calls=2**14, bounds=None, batch_size=4096)
    assert float(elsewhere.weight_error["train"].min()) > 0.2
    assert float(elsewhere.weight_error["distillation"].min()) > 0.2


@pytest.mark.slow
def test_a_memorising_denoiser_distils_to_the_wiener_filter_on_its_own_points_and_only_there():
    check_orthogonality(0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_orthogonality_for_other_laws_and_seeds(seed):
    check_orthogonality(seed)


def test_a_generalising_denoiser_distils_to_the_wiener_filter_of_the_law():
    law = Mixture(1)
    train, held_out = law.draw(40, 2), law.draw(20_000, 3)
    linear = distill(law.posterior_mean, held_out, SIGMAS, train=train, calls=2**15, bounds=None, batch_size=4096)
    for i, sigma in enumerate(SIGMAS):
        assert distance(linear.weight(sigma), law.wiener(sigma)) < 0.03
        assert float(linear.weight_error["distillation"][i]) < 0.03
    assert float(linear.weight_error["train"][:2].min()) > 0.2  # 40 points are not the law
    # Distilled on the 40 points it is still nearer to the law than the memorising denoiser is, which has their filter.
    generalises = distill(law.posterior_mean, train, SIGMAS, held_out=held_out, calls=2**13, bounds=None)
    memorises = distill(
        MultiDeltaDenoiser(train, bounds=None), train, SIGMAS, held_out=held_out, calls=2**13, bounds=None
    )
    apart = {name: generalises.weight_error[name] / memorises.weight_error[name] for name in memorises.weight_error}
    assert float(apart["distillation"][:2].min()) > 4
    assert float(apart["held_out"][:2].max()) < 1
    assert bool((memorises.fvu_held_out > 3 * generalises.fvu_held_out).all())


# --- floors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 40, 41])
def test_the_floor_of_the_weight_error_is_what_a_posterior_mean_shows(n):
    """Both for odd and even numbers of images: the halves must see the same images, or their difference never ends."""
    images = Mixture(2).draw(n, 5)
    memory = MultiDeltaDenoiser(images, bounds=None)
    fits = [distill(memory, images, 0.5, calls=1500, seed=seed, bounds=None) for seed in range(6)]
    if n == 1:
        assert all(bool(fit.weight_error["distillation"].isnan()) for fit in fits)  # relative to W_G = 0
        return
    error = torch.cat([fit.weight_error["distillation"] for fit in fits]).square().mean().sqrt()
    floor = torch.cat([fit.weight_error_floor for fit in fits]).square().mean().sqrt()
    assert float(floor / error) == pytest.approx(1, abs=0.15)


def test_the_floors_shrink_with_the_calls():
    """Squares of floors are variances: like 1/calls. Shrinkage changes with the calls too, hence the wide band of FVU."""
    law = Mixture(2)
    images = law.draw(50, 5)
    few, many = (
        [distill(law.posterior_mean, images, 0.5, calls=calls, seed=seed, bounds=None) for seed in range(4)]
        for calls in (500, 8000)
    )

    def ratio(name, power):
        means = [torch.cat([getattr(fit, name) for fit in fits]).pow(power).mean() for fits in (few, many)]
        return float(means[0] / means[1])

    assert 16 * 0.7 < ratio("weight_error_floor", 2) < 16 * 1.6
    assert 4 < ratio("fvu_floor", 1) < 40


@pytest.mark.parametrize("calls", [20, 160, 1000])
@pytest.mark.parametrize("sigma", [0.1, 1.0])
def test_fvu_is_the_error_of_the_prediction_fit_on_fresh_noise(calls, sigma):
    images = Mixture(4).draw(40, 5)
    memory = MultiDeltaDenoiser(images, bounds=None)
    fits = [distill(memory, images, sigma, calls=calls, seed=seed, bounds=None) for seed in range(12)]
    reported = torch.cat([fit.fvu for fit in fits]).mean()
    actual = sum(explicit_fvu(memory, fit, images, sigma, count=4000) for fit in fits) / len(fits)
    assert float(reported) == pytest.approx(actual, rel=0.12 if calls >= 160 else 0.3)


@pytest.mark.parametrize("calls", [200, 400])
def test_the_floor_of_fvu_is_what_more_calls_would_remove(calls):
    images, sigma = Mixture(4).draw(40, 5), 0.5
    limit = distill(turned, images, sigma, calls=2**15, bounds=None, batch_size=4096)
    x = images.repeat(100, 1, 1, 1) + sigma * normal(4000, *SHAPE, seed=98)
    target, best = turned(x, sigma), limit(x, sigma)
    variance = (target - target.mean(0)).square().sum()
    reported, actual = [], []
    for seed in range(12):
        linear = distill(turned, images, sigma, calls=calls, seed=seed, bounds=None)
        reported.append((float(linear.fvu), float(linear.fvu_floor)))
        errors = [(linear(x, sigma) - other).square().sum() / variance for other in (target, best)]
        actual.append((float(errors[0]), float(errors[1])))
    (fvu, floor), (error, excess) = (torch.tensor(pairs).mean(0).tolist() for pairs in (reported, actual))
    assert fvu == pytest.approx(error, rel=0.02)
    assert floor == pytest.approx(excess, rel=0.2)


def test_fvu_less_its_floor_is_what_no_affine_map_explains():
    images = Mixture(4).draw(40, 5)
    memory = MultiDeltaDenoiser(images, bounds=None)
    limit = explicit_fvu(memory, distill(memory, images, 0.5, calls=2**15, bounds=None, batch_size=4096), images, 0.5)
    many = distill(memory, images, 0.5, calls=2**13, bounds=None)
    assert float(many.fvu - many.fvu_floor) == pytest.approx(limit, rel=0.03)


def test_the_fvu_of_held_out_images_is_a_direct_measurement():
    law = Mixture(4)
    images, held_out = law.draw(40, 5), law.draw(400, 6)
    memory = MultiDeltaDenoiser(images, bounds=None)
    linear = distill(memory, images, SIGMAS, held_out=held_out, calls=4000, bounds=None)
    for i, sigma in enumerate(SIGMAS):
        actual = explicit_fvu(memory, linear, held_out, sigma, count=40_000)
        assert float(linear.fvu_held_out[i]) == pytest.approx(actual, rel=0.05)


# --- shrinkage ---------------------------------------------------------------------------------------------------------


def test_with_few_calls_the_prediction_fit_predicts_better_than_the_unshrunk_one():
    law = Mixture(4)
    images = law.draw(500, 5)
    for seed in range(3):
        linear = distill(law.posterior_mean, images, 0.5, calls=2 * D + 2, seed=seed, bounds=None)
        predicted = explicit_fvu(law.posterior_mean, linear, images, 0.5, count=2000)
        assert predicted < 0.5 * explicit_fvu(law.posterior_mean, linear.unshrunk, images, 0.5, count=2000)
        assert 0 < float(linear.shrinkage) < 1


def test_shrinkage_is_strong_where_the_gaussian_is_right_and_weak_where_it_is_wrong():
    images = Mixture(4).draw(40, 5)
    right = distill(MultiDeltaDenoiser(images, bounds=None), images, 0.5, calls=400, bounds=None)
    wrong = distill(turned, images, 0.5, calls=400, bounds=None)
    assert float(right.shrinkage) > 0.5
    assert float(wrong.shrinkage) < 0.05


def test_fewer_calls_than_dimensions_still_predict():
    law = Mixture(4)
    images = law.draw(500, 5)
    linear = distill(law.posterior_mean, images, 0.5, calls=10, bounds=None)
    gaussian = GaussianDenoiser(Moments.fit(images, bounds=None))
    assert bool(linear.weight_error["distillation"].isnan())
    assert bool(linear.weight_error_floor.isnan())
    predicted = explicit_fvu(law.posterior_mean, linear, images, 0.5, count=2000)
    assert predicted < 1.5 * explicit_fvu(law.posterior_mean, gaussian, images, 0.5, count=2000)


@pytest.mark.parametrize("n", [1, 3, 500])
def test_the_unshrunk_fit_needs_a_pair_of_calls_for_each_dimension(n):
    """With few images, d + 2 calls in ± pairs would span only about d/2 directions."""
    images = Mixture(4).draw(n, 5)
    weight = normal(D, D, seed=1)

    def linear_map(x, sigma):
        return (x.flatten(1) @ weight.T).reshape(x.shape)

    enough = distill(linear_map, images, 0.5, calls=2 * D + 2, bounds=None)
    assert distance(enough.weight(0.5), weight) < 1e-8
    assert bool(enough.weight_error_floor.isnan())
    if n > 1:
        assert float(distill(linear_map, images, 0.5, calls=4 * D + 4, bounds=None).weight_error_floor) < 1e-8
    few = distill(linear_map, images, 0.5, calls=2 * D + 1, bounds=None)
    assert bool(few.weight_error["distillation"].isnan())
