"""The interface of `distill`: sources, seeds, batches, labels, and what it refuses."""

import pytest
import torch
from torch import nn

from gausslens import (
    ConfigError,
    DataError,
    GaussianDenoiser,
    LinearDenoiser,
    Moments,
    PerClassDenoiser,
    distill,
)

SHAPE = (1, 2, 4)
DIM = 8
SIGMAS = (1.0, 0.3)


def images_of(n, seed=0):
    return torch.rand(n, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def bytes_of(n, seed=0):
    return torch.randint(0, 256, (n, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def bent(x, sigma, labels=None):
    """A denoiser that is not affine, and not the posterior mean of anything."""
    shift = 0 if labels is None else labels.to(x).reshape(-1, 1, 1, 1)
    return torch.tanh(x.flip(3) + shift) + 0.3 * x**2 / (1 + sigma.reshape(-1, 1, 1, 1) ** 2)


def numbers(linear):
    """Everything that was estimated, in one vector."""
    parts = [linear.fvu, linear.fvu_floor, linear.weight_error_floor, linear.shrinkage, *linear.weight_error.values()]
    parts += [linear.weight(sigma).flatten() for sigma in SIGMAS]
    return torch.cat([part.double() for part in parts])


# --- what the numbers depend on ----------------------------------------------------------------------------------------


def test_batch_size_changes_nothing():
    images = images_of(30)
    whole, small, odd = (distill(bent, images, SIGMAS, calls=201, batch_size=size) for size in (None, 1, 17))
    assert torch.allclose(numbers(whole), numbers(small), rtol=1e-9)
    assert torch.allclose(numbers(whole), numbers(odd), rtol=1e-9)


def test_the_seed_fixes_everything():
    images = images_of(30)
    first, again, other = (distill(bent, images, SIGMAS, calls=200, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(numbers(first), numbers(again))
    assert not torch.allclose(numbers(first), numbers(other), rtol=1e-3)
    # One image has no order, so here it is the noise that differs.
    first, other = (distill(bent, images[:1], SIGMAS, calls=200, seed=seed) for seed in (1, 2))
    assert not torch.allclose(first.weight(0.3), other.weight(0.3), rtol=1e-3)


def test_the_global_generator_is_neither_read_nor_moved():
    images = images_of(30)
    torch.manual_seed(0)
    first = distill(bent, images, SIGMAS, calls=200)
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert torch.equal(numbers(first), numbers(distill(bent, images, SIGMAS, calls=200)))
    assert torch.equal(state, torch.get_rng_state())


def test_levels_share_their_noise():
    """So that curves over noise levels are smooth: a level's fit does not depend on which others there are."""
    images = images_of(30)
    both, one = distill(bent, images, SIGMAS, calls=200), distill(bent, images, SIGMAS[1], calls=200)
    assert torch.allclose(both.weight(SIGMAS[1]), one.weight(SIGMAS[1]), rtol=1e-12)
    assert both.fvu[1] == one.fvu[0]


def test_noise_comes_in_pairs_and_every_call_is_counted():
    images, sigma, inputs = images_of(7), 1e-3, []

    def recorder(x, level):
        inputs.append(x.clone())
        return x

    linear = distill(recorder, images, sigma, calls=41)
    x = torch.cat(inputs)
    assert len(x) == linear.calls == 41
    nearest = (x[:, None] - images).flatten(2).norm(dim=2).argmin(1)
    eps = (x - images[nearest]) / sigma
    # 20 of the 41 have their opposite, on the same image.
    opposite = ((eps[:, None] + eps).flatten(2).norm(dim=2) < 1e-6) & (nearest[:, None] == nearest)
    assert int(opposite.sum()) == 40
    assert set(nearest.bincount().tolist()) == {5, 6}  # each image equally often, as far as 41 allows
    assert float(eps.std()) == pytest.approx(1, abs=0.15)


def test_by_default_there_are_ten_calls_a_dimension():
    assert distill(bent, images_of(10), 0.5).calls == 10 * DIM
    assert distill(bent, images_of(10)[..., :1], 0.5).calls == 64


def test_uint8_images_are_the_same_as_their_floats():
    pixels, held_out = bytes_of(30), bytes_of(10, seed=1)
    stored = distill(bent, pixels, SIGMAS, held_out=held_out, calls=200, dtype=torch.float64)
    floats = distill(bent, pixels.double() / 127.5 - 1, SIGMAS, held_out=held_out.double() / 127.5 - 1, calls=200)
    assert torch.allclose(numbers(stored), numbers(floats), rtol=1e-9)
    assert torch.allclose(stored.fvu_held_out, floats.fvu_held_out, rtol=1e-9)


def test_any_source_of_images_will_do():
    images = images_of(30)
    expected = numbers(distill(bent, images, SIGMAS, calls=200))
    for source in (images.numpy(), list(images.split(8)), [(image, 0) for image in images]):
        assert torch.allclose(numbers(distill(bent, source, SIGMAS, calls=200)), expected, rtol=1e-9)


def test_float32_denoisers_are_fitted_to_float32_accuracy():
    images = images_of(30)
    single, double = (distill(bent, images.to(dtype), SIGMAS, calls=400) for dtype in (torch.float32, torch.float64))
    for sigma in SIGMAS:
        assert single.weight(sigma).dtype == torch.float32
        difference = single.weight(sigma) - double.weight(sigma)
        assert float(difference.norm() / double.weight(sigma).norm()) < 1e-5
    assert torch.allclose(single.fvu, double.fvu, rtol=1e-4)


def test_an_affine_map_in_float32_is_recovered_to_float32_accuracy():
    weight = torch.randn(DIM, DIM, generator=torch.Generator().manual_seed(3))
    layer = nn.Linear(DIM, DIM)
    layer.weight.data.copy_(weight)

    class Affine(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, sigma):
            return self.layer(x.flatten(1)).reshape(x.shape)

    linear = distill(Affine(), images_of(30), 0.1, calls=400)  # float64 images, called in the layer's float32
    assert float((linear.weight(0.1) - weight).norm() / weight.norm()) < 1e-5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", [{}, {"full": False}, {"method": "adam"}])
def test_on_a_gpu_the_numbers_are_the_same(tmp_path, options):
    images, held_out = images_of(30), images_of(10, 1)
    there, here = (
        distill(
            bent, images, SIGMAS, train=Moments.fit(held_out), held_out=held_out, calls=200, device=device, **options
        )
        for device in ("cuda", "cpu")
    )
    for name in ("fvu", "shrinkage", "fvu_held_out"):
        assert torch.allclose(getattr(there, name), getattr(here, name), rtol=1e-6)
    for sigma in SIGMAS:
        assert torch.allclose(there.weight(sigma).cpu(), here.weight(sigma), rtol=1e-6)
        assert torch.allclose(there(images.cuda(), sigma).cpu(), here(images, sigma), rtol=1e-6)
    there.save(tmp_path / "linear.safetensors")
    assert torch.equal(LinearDenoiser.load(tmp_path / "linear.safetensors").bias(1.0), there.bias(1.0).cpu())


# --- references --------------------------------------------------------------------------------------------------------


def test_weights_are_compared_with_the_gaussian_of_each_set():
    images, train, held_out = (images_of(n, seed) for n, seed in ((30, 0), (20, 1), (25, 2)))
    linear = distill(bent, images, SIGMAS, train=train, held_out=held_out, calls=200)
    assert list(linear.weight_error) == ["distillation", "train", "held_out"]
    for name, part in (("distillation", images), ("train", train), ("held_out", held_out)):
        gaussian = GaussianDenoiser(Moments.fit(part))
        for i, sigma in enumerate(SIGMAS):
            expected = (linear.weight(sigma) - gaussian.weight(sigma)).norm() / gaussian.weight(sigma).norm()
            assert float(linear.weight_error[name][i]) == pytest.approx(float(expected), rel=1e-10)


def test_training_images_may_be_given_by_their_moments():
    images, train = images_of(30), images_of(20, 1)
    of_images, of_moments = (distill(bent, images, SIGMAS, train=t, calls=200) for t in (train, Moments.fit(train)))
    assert torch.allclose(of_images.weight_error["train"], of_moments.weight_error["train"])


def test_without_further_images_there_is_one_reference():
    linear = distill(bent, images_of(30), SIGMAS, calls=200)
    assert list(linear.weight_error) == ["distillation"]
    assert linear.fvu_held_out is None
    assert linear.history == []


# --- labels ------------------------------------------------------------------------------------------------------------


def test_with_labels_each_class_has_a_fit_of_its_own():
    images, labels = images_of(40), torch.arange(40) % 3 * 2
    linear = distill(bent, images, SIGMAS, labels=labels, calls=100)
    assert isinstance(linear, PerClassDenoiser)
    x = images_of(6, 5)
    for label in (0, 2, 4):
        alone = distill(
            lambda x, sigma, label=label: bent(x, sigma, torch.full((len(x),), label)),
            images[labels == label],
            SIGMAS,
            calls=100,
        )
        assert isinstance(alone, LinearDenoiser)
        assert torch.allclose(linear(x, 0.3, torch.full((6,), label)), alone(x, 0.3), rtol=1e-10)


def test_with_labels_references_are_by_class():
    images, labels = images_of(40), torch.arange(40) % 2
    train, held_out = images_of(30, 1), images_of(20, 2)
    moments = Moments.per_class(train, torch.arange(30) % 2)
    parts = {0: held_out[:10], 1: held_out[10:]}
    linear = distill(bent, images, SIGMAS, labels=labels, calls=100, train=moments, held_out=parts)
    for label in (0, 1):
        alone = distill(
            lambda x, sigma, label=label: bent(x, sigma, torch.full((len(x),), label)),
            images[label::2],
            SIGMAS,
            calls=100,
            train=train[label::2],
            held_out=parts[label],
        )
        fit = linear.denoisers[str(label)]
        for name in ("train", "held_out"):
            assert torch.allclose(fit.weight_error[name], alone.weight_error[name], rtol=1e-10)
        assert torch.allclose(fit.fvu_held_out, alone.fvu_held_out, rtol=1e-10)


@pytest.mark.parametrize("train", [images_of(10), {0: images_of(10)}], ids=["images", "a class missing"])
def test_with_labels_references_without_classes_are_refused(train):
    def unreachable(x, sigma, labels):
        raise AssertionError

    with pytest.raises(ConfigError, match="train must be a dict with images or moments for each label"):
        distill(unreachable, images_of(10), SIGMAS, labels=torch.arange(10) % 2, train=train, calls=50)


@pytest.mark.parametrize("labels", [torch.zeros(9, dtype=torch.long), torch.zeros(10), torch.zeros(10, 2).long()])
def test_labels_that_do_not_match_are_refused(labels):
    with pytest.raises(DataError, match="labels must be 10 integers"):
        distill(bent, images_of(10), SIGMAS, labels=labels)


# --- manners -----------------------------------------------------------------------------------------------------------


class Moody(nn.Module):
    """A network with a mode; in train mode it answers noise."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.modes = []

    def forward(self, x, sigma, labels=None):
        self.modes.append((self.training, torch.is_grad_enabled(), x.dtype, tuple(sigma.shape)))
        return self.scale * x + (torch.randn_like(x) if self.training else 0)


@pytest.mark.parametrize("method", ["closed_form", "adam"])
@pytest.mark.parametrize("labels", [None, torch.arange(20) % 2])
def test_the_denoiser_is_called_by_the_house_rules_and_left_as_it_was(method, labels):
    network = Moody().train()
    distill(network, images_of(20), 0.5, calls=40, method=method, labels=labels, batch_size=10)
    assert network.training
    assert network.scale.grad is None
    assert {mode[:3] for mode in network.modes} == {(False, False, torch.float32)}
    assert all(len(mode[3]) == 1 for mode in network.modes)


def test_a_failure_leaves_the_mode_as_it_was():
    network = Moody().train()
    network.scale.data.fill_(float("nan"))
    with pytest.raises(DataError):
        distill(network, images_of(20), 0.5, calls=40)
    assert network.training


@pytest.mark.parametrize("method", ["closed_form", "adam"])
def test_answers_that_are_not_finite_name_the_level(method):
    def broken(x, sigma):
        return torch.where(sigma.reshape(-1, 1, 1, 1) < 0.5, float("nan"), x)

    with pytest.raises(DataError, match=r"at sigma = 0.3 must be finite; \d+ of \d+ values are NaN"):
        distill(broken, images_of(20), SIGMAS, calls=40, method=method)


def test_answers_of_another_shape_are_refused():
    with pytest.raises(DataError, match="must return a tensor of its input's shape"):
        distill(lambda x, sigma: x.flatten(1), images_of(20), 0.5, calls=40)


def test_held_out_answers_are_checked_too():
    def broken_on_bright(x, sigma):
        return torch.where(x.mean((1, 2, 3), keepdim=True) > 0.9, float("inf"), x)

    with pytest.raises(DataError, match=r"returns at sigma = 0\.01 must be finite"):
        distill(broken_on_bright, images_of(20), 0.01, held_out=torch.ones(5, *SHAPE).double(), calls=40)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "sgd"}, "method must be one of closed_form, adam; got .sgd."),
        ({"calls": 3}, "calls, .* at least 4; got 3"),
        ({"calls": 0}, "calls, .* at least 4; got 0"),
        ({"learning_rate": 0.1}, 'is only for method="adam"'),
        ({"method": "adam", "learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"method": "adam", "learning_rate": float("nan")}, "learning_rate must be above 0"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        distill(bent, images_of(10), SIGMAS, **options)


@pytest.mark.parametrize("sigmas", [0.0, [1.0, -1.0], [], float("nan")])
def test_levels_out_of_range_are_refused(sigmas):
    with pytest.raises(ConfigError, match=r"noise level|sigmas"):
        distill(bent, images_of(10), sigmas)


@pytest.mark.parametrize("name", ["train", "held_out"])
def test_references_of_another_shape_are_refused_before_any_call(name):
    def unreachable(x, sigma):
        raise AssertionError

    with pytest.raises(DataError, match=rf"{name} images must have the shape \(1, 2, 4\) of images; got \(1, 4, 4\)"):
        distill(unreachable, images_of(10), SIGMAS, **{name: torch.zeros(5, 1, 4, 4)})


@pytest.mark.parametrize("images", [images_of(5) * 3, images_of(5)[0, 0], images_of(5)[:0], images_of(5) / 0])
def test_unusable_images_are_refused(images):
    with pytest.raises(DataError, match="images"):
        distill(bent, images, SIGMAS)


def test_other_units_need_no_bounds():
    images = 100 * images_of(20) + 1000
    linear = distill(GaussianDenoiser(Moments.fit(images, bounds=None)), images, 50.0, calls=200, bounds=None)
    assert float(linear.weight_error["distillation"]) < 1e-9
    vectors = images.flatten(1)
    linear = distill(GaussianDenoiser(Moments.fit(vectors, bounds=None)), vectors, 50.0, calls=200, bounds=None)
    assert linear.shape == (DIM,)


@pytest.mark.parametrize("calls", [4, 5, 6, 7])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_fewest_calls_and_images(calls, n):
    images = images_of(n)
    linear = distill(bent, images, 0.5, calls=calls)
    assert linear(images, 0.5).isfinite().all()
    assert linear.fvu.isfinite().all()


def test_a_bar_can_be_shown(capsys):
    distill(bent, images_of(10), SIGMAS, calls=50, progress=True)
    assert "distill" in capsys.readouterr().err


def test_noise_below_the_rounding_of_its_dtype_is_named():
    images = torch.full((50, 1, 2, 2), 0.5)
    with pytest.raises(DataError, match="below the rounding of their dtype"):
        distill(lambda x, sigma: x, images, 1e-4, calls=80, dtype=torch.bfloat16)
