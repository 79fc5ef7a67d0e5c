"""Block shrinkage keeps what two halves agree on and drops what they do not."""

import torch

from gausslens.denoisers.regression import Affine, Sums, _membership, shrink_blocks

DIM = 24


def _sums(n, weight, noise, seed, scales):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, DIM, generator=generator, dtype=torch.float64) * scales
    target = x @ weight.T + 0.3 + noise * torch.randn(n, DIM, generator=generator, dtype=torch.float64)
    return Sums.of([(x, target)])


def _gaussian(seed=0):
    """A Wiener filter, its eigenvectors, and the standard deviations of noisy inputs along the axes' common basis."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64))[0]
    gains = torch.linspace(0.95, 0.05, DIM, dtype=torch.float64)
    return (basis * gains) @ basis.T, basis


def basis_of(toward):
    return torch.linalg.eigh(toward).eigenvectors.flip(1)


def _fits(first, second):
    return [(sums.least_squares(), sums) for sums in (first, second, first.merge(second))]


def test_agreeing_halves_are_left_alone():
    toward, _ = _gaussian()
    weight = toward + 0.1 * torch.randn(DIM, DIM, dtype=torch.float64)
    ones = torch.ones(DIM, dtype=torch.float64)
    fits = _fits(_sums(200, weight, 0.0, 1, ones), _sums(200, weight, 0.0, 2, ones))
    for shrunk in shrink_blocks(fits, toward, basis_of(toward))[0]:
        torch.testing.assert_close(shrunk.weight, weight, atol=1e-9, rtol=0)
        torch.testing.assert_close(shrunk.bias, torch.full_like(shrunk.bias, 0.3), atol=1e-9, rtol=0)


def test_noise_alone_is_shrunk_to_the_gaussian():
    toward, _ = _gaussian()
    ones = torch.ones(DIM, dtype=torch.float64)
    fits = _fits(_sums(100, toward, 1.0, 1, ones), _sums(100, toward, 1.0, 2, ones))
    shrunk, _ = shrink_blocks(fits, toward, basis_of(toward))
    before, after = (fits[2][0].weight - toward).norm(), (shrunk[2].weight - toward).norm()
    assert after < 0.5 * before


def test_factors_are_the_agreement_of_blocks_in_principal_coordinates():
    toward, basis = _gaussian()
    scales = torch.linspace(2.0, 0.5, DIM, dtype=torch.float64)
    fits = _fits(_sums(90, toward * 1.1, 0.5, 1, scales), _sums(90, toward * 1.1, 0.5, 2, scales))
    _, factors = shrink_blocks(fits, toward, basis_of(toward))
    sums = fits[2][1]
    deviations = torch.stack([basis[:, k] @ sums.xx @ basis[:, k] for k in range(DIM)]).div(sums.count).sqrt()
    entries = [basis.T @ (fit.weight - toward) @ basis * deviations for fit, _ in fits]
    rows, columns = slice(4, 6), slice(8, 12)  # one block: edges are 0, 2, 4, 6, 8, 12, …
    expected = (entries[0] * entries[1])[rows, columns].sum() / entries[2][rows, columns].square().sum()
    torch.testing.assert_close(factors[rows, columns], expected.clamp(0, 1).expand(2, 4))


def test_a_departure_in_few_coordinates_is_found_better_than_by_least_squares():
    toward, basis = _gaussian()
    departure = torch.zeros(DIM, DIM, dtype=torch.float64)
    departure[:4, :4] = 0.2
    weight = toward + basis @ departure @ basis.T
    ones = torch.ones(DIM, dtype=torch.float64)
    errors = []
    for seed in range(5):
        halves = _sums(150, weight, 1.0, 2 * seed, ones), _sums(150, weight, 1.0, 2 * seed + 1, ones)
        fits = _fits(*halves)
        shrunk, _ = shrink_blocks(fits, toward, basis_of(toward))
        errors.append(((shrunk[2].weight - weight).norm() / (fits[2][0].weight - weight).norm()).item())
    assert max(errors) < 0.75


def test_a_fit_equal_to_the_gaussian_stays_so():
    toward, _ = _gaussian()
    fit = Affine(toward, torch.zeros(DIM, dtype=torch.float64))
    sums = _sums(100, toward, 0.0, 1, torch.ones(DIM, dtype=torch.float64))
    shrunk, factors = shrink_blocks([(fit, sums)] * 3, toward, basis_of(toward))
    torch.testing.assert_close(shrunk[2].weight, toward)
    assert factors.isfinite().all()


def test_every_coordinate_is_in_one_block():
    for dim in (1, 2, 3, 7, 8, 9, 13, 192, 3072):
        membership = _membership(dim, torch.zeros(1, dtype=torch.float64))
        assert membership.shape[0] == dim
        torch.testing.assert_close(membership.sum(1), torch.ones(dim, dtype=torch.float64))
