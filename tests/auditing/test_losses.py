import pytest
import torch
from known_models import GaussianLaw, mixed, references

from gausslens import GaussianDenoiser, Moments
from gausslens.auditing.baseline import Baseline, shrunk_filter
from gausslens.auditing.losses import measure_losses
from gausslens.auditing.pool import Pool
from gausslens.data import load_images
from gausslens.errors import DataError
from gausslens.images import dequantize
from gausslens.measures.two_sample import difference_estimate
from gausslens.noise import draw_noise, draw_order

SIGMAS = (0.5, 0.2, 0.1)


def gap(losses, name):
    return difference_estimate(losses.train[name][0], losses.held_out[name][0])


@pytest.fixture(scope="module")
def law():
    return GaussianLaw()


@pytest.fixture(scope="module")
def losses(law):
    torch.set_num_threads(1)
    train, held_out = law.draw(40, 1), law.draw(120, 2)
    known = references(train)
    models = {f"{w:g}": mixed(known["multidelta"], law, w) for w in (0.0, 0.25, 0.5, 1.0)}
    halfway = mixed(known["multidelta"], known["gaussian"], 0.5)
    return measure_losses({**models, "halfway": halfway, **known}, Pool(train, held_out), SIGMAS, noises=8)


def test_losses_are_mean_squared_errors(law):
    train, held_out = law.draw(5, 1), law.draw(6, 2)
    known = references(train)

    def identity(x, sigma):
        return x

    eps = draw_noise(4, torch.arange(15), (1, 6, 6), stream="train losses").double()
    found = measure_losses({"identity": identity, **known}, Pool(train, held_out), 0.7, noises=3, seed=4)
    expected = (0.7 * eps).square().mean((1, 2, 3)).reshape(5, 3).mean(1)
    assert torch.allclose(found.train["identity"][0], expected, rtol=1e-5)
    assert found.held_out["identity"].shape == (1, 6)


def test_position_of_the_references_is_exact(losses):
    for name, value in (("gaussian", 0.0), ("multidelta", 1.0)):
        for found in losses.position(name):
            assert (found.value, found.low, found.high) == pytest.approx((value,) * 3, abs=1e-9)
    for name, value in (("baseline", 0.0), ("multidelta", 1.0)):
        assert [found.value for found in losses.position(name, "baseline")] == pytest.approx([value] * 3, abs=1e-9)


def test_position_of_a_mixture_lies_between(losses):
    halfway = losses.position("halfway")
    assert all(found.low > 0.1 and found.high < 0.9 for found in halfway)
    rising = [losses.position(name, "baseline")[1].value for name in ("0", "0.25", "0.5", "1")]
    assert rising == sorted(rising)
    assert abs(rising[0]) < 0.05


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
def test_retrieval_is_the_weight_of_the_memorizer(losses, weight):
    for found in losses.retrieval(f"{weight:g}")[1:]:
        assert found.value == pytest.approx(weight, abs=0.06)
        assert found.low - 0.02 <= weight <= found.high + 0.02


def test_position_is_none_where_the_references_cannot_be_told_apart(law):
    train, held_out = law.draw(40, 1), law.draw(60, 2)
    found = measure_losses(references(train), Pool(train, held_out), [200.0, 0.3], noises=2)
    assert found.position("gaussian")[0] is None
    assert found.position("gaussian")[1] is not None


def test_wiener_filter_of_few_images_knows_them_without_copying():
    digits = dequantize(torch.as_tensor(load_images("digits").images.copy()))
    digits = digits[draw_order(0, len(digits))]  # they are sorted by writer
    train, held_out = digits[:64], digits[1000:1200]
    found = measure_losses(references(train), Pool(train, held_out), [0.5, 0.2], noises=8)
    assert max(auc.value for auc in found.auc("gaussian")) > 0.85
    assert float(found.p_values("gaussian").max()) < 0.001
    assert max(position.value for position in found.position("gaussian", "baseline")) < 0.5


def test_baseline_is_alike_on_both_sets(law):
    gaps = []
    for seed in range(12):
        train, held_out = law.draw(30, 10 + seed), law.draw(90, 50 + seed)
        found = measure_losses(references(train), Pool(train, held_out), 0.5, noises=4, seed=seed)
        gaps.append(gap(found, "baseline").value / found.loss("baseline")[0].value)
        assert gap(found, "gaussian").low > 0
    assert abs(sum(gaps) / 12) < 0.03


def test_draws_do_not_depend_on_batch_size(law):
    train, held_out = law.draw(9, 1), law.draw(8, 2)
    known = references(train)
    whole, parts = (
        measure_losses(known, Pool(train, held_out), SIGMAS, noises=3, batch_size=size) for size in (None, 5)
    )
    assert torch.allclose(whole.held_out["multidelta"], parts.held_out["multidelta"], rtol=1e-9)
    assert torch.allclose(whole.pull["gaussian"], parts.pull["gaussian"], rtol=1e-6, atol=1e-12)


def test_labels_reach_the_denoisers(law):
    train, held_out = law.draw(10, 1), law.draw(10, 2)
    labels = torch.arange(10) % 2
    seen = []

    def conditional(x, sigma, classes):
        seen.append(classes.clone())
        return x * 0 + classes.reshape(-1, 1, 1, 1)

    both = {"network": conditional}
    both |= {name: (lambda x, s, c, d=d: d(x, s)) for name, d in references(train).items()}
    pool = Pool(train, held_out, labels=labels, held_out_labels=labels)
    found = measure_losses(both, pool, 0.5, noises=2, seed=3)
    assert torch.cat(seen).bincount().tolist() == [20, 20]
    assert found.train["network"].shape == (1, 10)


def test_without_held_out_images_there_are_no_gaps(law):
    train = law.draw(10, 1)
    found = measure_losses(references(train), Pool(train), 0.5, noises=2)
    assert not found.calibrated
    assert found.loss("gaussian", "train")[0].count == 10
    assert found.held_out["gaussian"].shape == (1, 0)


def test_a_denoiser_that_is_not_finite_is_named(law):
    train, held_out = law.draw(10, 1), law.draw(10, 2)
    both = {"network": lambda x, s: torch.where(s[:, None, None, None] < 0.3, torch.nan, x), **references(train)}
    with pytest.raises(DataError, match=r"network must return finite values; at sigma = 0\.2 some"):
        measure_losses(both, Pool(train, held_out), SIGMAS)


def test_shrunk_filter_is_better_on_new_images_than_the_sample_covariance(law):
    few, new = law.draw(20, 1).float(), law.draw(300, 2).float()
    x = new + 0.1 * torch.randn(new.shape, generator=torch.Generator().manual_seed(0))
    shrunk, plain = shrunk_filter(few), GaussianDenoiser(Moments.fit(few, bounds=None)).float()
    errors = [(denoiser(x, 0.1) - new).square().mean() for denoiser in (shrunk, plain)]
    assert errors[0] < 0.6 * errors[1]


def test_shrinkage_agrees_with_the_double_sum():
    images = torch.randn(12, 1, 3, 3, generator=torch.Generator().manual_seed(0)).double() * torch.arange(
        1, 10
    ).reshape(1, 3, 3)
    rows = images.flatten(1) - images.flatten(1).mean(0)
    cov = rows.T @ rows / 12
    even = cov.trace() / 9
    error = sum((torch.outer(row, row) - cov).square().sum() for row in rows) / 144
    alpha = min(1.0, float(error / (cov - even * torch.eye(9)).square().sum()))
    expected = (1 - alpha) * cov + alpha * even * torch.eye(9)
    found = shrunk_filter(images)
    rebuilt = (found.eigvecs * (found.eigvals - found.floor)) @ found.eigvecs.T + found.floor * torch.eye(9)
    assert torch.allclose(rebuilt.double(), expected, rtol=1e-4, atol=1e-4)


def test_baseline_denoises_an_image_by_the_other_half(law):
    halves = law.draw(20, 1).float(), law.draw(20, 2).float()
    baseline = Baseline(*halves)
    x = law.draw(2, 3).float()
    found = baseline(x, 0.3, torch.tensor([True, False]))
    assert torch.allclose(found[0], shrunk_filter(halves[1])(x, 0.3)[0], atol=1e-6)
    assert torch.allclose(found[1], shrunk_filter(halves[0])(x, 0.3)[1], atol=1e-6)
