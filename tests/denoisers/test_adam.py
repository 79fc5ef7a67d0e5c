"""The published recipe: what it is fed, where it starts and where it goes."""

import pytest
import torch

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, distill, karras_sigmas
from gausslens.denoisers.fitting import published_learning_rate

SHAPE = (1, 2, 3)
DIM = 6


def images_of(n):
    return torch.rand(n, *SHAPE, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1


class Recorder:
    """A denoiser that keeps its inputs."""

    def __init__(self):
        self.inputs = []

    def __call__(self, x, sigma):
        self.inputs.append(x.clone())
        return 0.5 * x


def test_the_learning_rates_are_the_published_ones():
    rates = [published_learning_rate(sigma) for sigma in karras_sigmas(10).tolist()]
    assert rates == [5e-5] * 5 + [5e-4] * 2 + [5e-3] + [5e-2] * 2


def test_training_starts_at_zero():
    """With hardly a step made, the weight error is that of W = 0."""
    images = images_of(20)
    linear = distill(MultiDeltaDenoiser(images), images, 0.5, method="adam", calls=20, learning_rate=1e-12)
    record = linear.history[0][0]
    assert record["weight_error"] == pytest.approx(1, abs=1e-9)
    assert float(linear.weight(0.5).norm()) < 1e-9
    assert float(linear.bias(0.5).norm()) < 1e-9


def test_the_first_step_is_that_of_adam_on_inputs_divided_by_the_root_of_the_dimension():
    """Adam's first step is the learning rate times the sign of the gradient, of which W = weight/√d has 1/√d."""
    recorder = Recorder()
    linear = distill(recorder, images_of(50), 0.5, method="adam", calls=50, learning_rate=1e-3)
    x = recorder.inputs[0].flatten(1)  # all images, in one batch; later calls judge the fit
    target = 0.5 * x
    gradient = -(target.T @ x)
    assert torch.allclose(linear.weight(0.5), -1e-3 * gradient.sign() / DIM**0.5, rtol=1e-4)
    assert torch.allclose(linear.bias(0.5), 1e-3 * target.sum(0).sign(), rtol=1e-4)
    assert linear.history[0][0]["loss"] == pytest.approx(float(target.square().mean()))


def test_the_history_has_a_record_an_epoch():
    images = images_of(10)
    linear = distill(MultiDeltaDenoiser(images), images, [0.5, 0.1], method="adam", calls=65)
    assert linear.calls == 70  # whole epochs
    assert len(linear.history) == 2
    for level in linear.history:
        assert [record["epoch"] for record in level] == list(range(1, 8))
        assert all(set(record) == {"epoch", "loss", "weight_error", "asymmetry"} for record in level)
    assert linear.history[0] != linear.history[1]


def test_by_default_there_are_a_hundred_epochs():
    images = images_of(5)
    linear = distill(MultiDeltaDenoiser(images), images, 0.5, method="adam")
    assert len(linear.history[0]) == 100
    assert linear.calls == 500


def test_images_come_in_order_in_batches_of_256_with_fresh_noise():
    images, sigma, recorder = images_of(300), 1e-4, Recorder()
    distill(recorder, images, sigma, method="adam", calls=600, batch_size=7)
    assert [len(x) for x in recorder.inputs[:4]] == [256, 44, 256, 44]
    epochs = torch.cat(recorder.inputs[:4]).reshape(2, 300, *SHAPE)
    assert torch.allclose(epochs, images.expand(2, *images.shape), atol=6 * sigma)
    first, second = (epochs - images) / sigma
    assert abs(float((first * second).mean())) < 0.1
    assert float(first.std()) == pytest.approx(1, abs=0.05)


def test_it_is_judged_on_noise_it_was_not_trained_on():
    image, recorder = images_of(1), Recorder()
    distill(recorder, image, 0.5, method="adam", calls=50)
    inputs = torch.cat(recorder.inputs)
    assert len(inputs) == 50 + 10
    assert len(inputs.flatten(1).unique(dim=0)) == 60


@pytest.mark.slow
def test_it_converges_toward_the_closed_form_and_becomes_symmetric():
    images = images_of(256)
    memory = MultiDeltaDenoiser(images)
    closed = distill(memory, images, 0.5, calls=20_000, batch_size=2000)
    linear = distill(memory, images, 0.5, method="adam", calls=256 * 300, learning_rate=1e-2)
    history = linear.history[0]
    distance = (linear.weight(0.5) - closed.weight(0.5)).norm() / closed.weight(0.5).norm()
    assert float(distance) < 0.05
    assert float((linear.bias(0.5) - closed.bias(0.5)).norm()) < 0.02
    assert history[-1]["weight_error"] < 0.06 < 0.5 < history[0]["weight_error"]
    assert history[-1]["asymmetry"] < 0.05 < 0.3 * history[0]["asymmetry"]
    assert history[-1]["loss"] < history[0]["loss"]
    assert float(linear.fvu) == pytest.approx(float(closed.fvu), rel=0.1)


def test_it_reports_its_map_as_both_fits_without_floors():
    images = images_of(30)
    gaussian = GaussianDenoiser(Moments.fit(images))
    linear = distill(gaussian, images, 0.5, method="adam", calls=60, train=images[:20], held_out=images[20:])
    basis = torch.eye(DIM, dtype=torch.float64).reshape(DIM, *SHAPE)
    applied = linear(basis, 0.5).flatten(1)
    assert torch.allclose(applied, linear.weight(0.5).T + linear.bias(0.5))
    assert bool(linear.fvu_floor.isnan().all())
    assert bool(linear.weight_error_floor.isnan().all())
    assert not linear.shrinkage.any()
    for name, part in (("distillation", images), ("train", images[:20]), ("held_out", images[20:])):
        reference = GaussianDenoiser(Moments.fit(part)).weight(0.5)
        expected = float((linear.weight(0.5) - reference).norm() / reference.norm())
        assert float(linear.weight_error[name]) == pytest.approx(expected)
    assert linear.history[0][-1]["weight_error"] == pytest.approx(float(linear.weight_error["distillation"]))


def test_half_precision_denoisers_are_distilled_in_float32():
    images = images_of(30)
    gaussian = GaussianDenoiser(Moments.fit(images)).to(torch.bfloat16)
    linear = distill(gaussian, images, 0.5, method="adam", calls=60)
    assert linear.weight(0.5).dtype == torch.float32
