"""The training stream is a function of the seed and the count of images."""

import pytest
import torch

from gausslens import TrainConfig
from gausslens.images import dequantize
from gausslens.noise import draw_noise, draw_order
from gausslens.training import batches
from gausslens.training.batches import BatchStream, TrainingData

IMAGES = torch.randint(0, 256, (30, 2, 4, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(30) % 7
TRAIN = torch.tensor([4, 9, 1, 28, 17, 3, 12, 22, 0, 7, 15])
DATA = TrainingData(IMAGES, LABELS, TRAIN, held_out=torch.tensor([2, 5]))
CPU = torch.device("cpu")


def stream(process=0, processes=1, **options):
    config = TrainConfig("digits", batch=6, seed=3, **options).resolve((2, 4, 6))
    return BatchStream(DATA, config, CPU, process=process, processes=processes)


def everything(made):
    """All fields of some batches, each joined."""
    made = list(made)
    fields = ("x0", "sigma", "eps", "labels", "augment")
    columns = ([getattr(batch, field) for batch in made] for field in fields)
    return [torch.cat(column) for column in columns if column[0] is not None]


def test_image_k_is_what_the_seed_and_k_say():
    x0, sigma, eps, labels = everything(stream(level_mean=-1.0, level_spread=0.5).batches(0, 10))
    k = torch.arange(60)
    order = torch.stack([draw_order(3, 11, stream=f"epoch {epoch}") for epoch in range(6)]).flatten()[:60]
    assert torch.equal(x0, dequantize(IMAGES[TRAIN[order]]))
    assert torch.equal(labels, LABELS[TRAIN[order]])
    assert torch.equal(eps, draw_noise(3, k, (2, 4, 6), stream="training noise"))
    normals = draw_noise(3, k, (), stream="training levels")
    torch.testing.assert_close(sigma.log(), -1.0 + 0.5 * normals)


def test_every_epoch_has_every_image_once():
    _, _, _, labels = everything(stream().batches(0, 11))
    for epoch in labels.split(11):
        assert epoch.sort().values.tolist() == LABELS[TRAIN].sort().values.tolist()


@pytest.mark.parametrize("options", [{}, {"augment": 0.4}, {"flip": True}])
def test_it_does_not_matter_where_one_begins_or_how_many_share(options, monkeypatch):
    whole = everything(stream(**options).batches(0, 12))
    later = everything(stream(**options).batches(5, 12))
    monkeypatch.setattr(batches, "_CHUNK_NUMBERS", 1)
    parts = [list(stream(process, 3, **options).batches(0, 12)) for process in range(3)]
    shared = everything([batch for step in zip(*parts, strict=True) for batch in step])
    for all_of, some, put_together in zip(whole, later, shared, strict=True):
        assert torch.equal(all_of[30:], some)
        assert torch.equal(all_of, put_together)


def test_images_that_do_not_fit_on_the_device_are_the_same(monkeypatch):
    resident = everything(stream(flip=True).batches(0, 9))
    monkeypatch.setattr(batches, "_RESIDENT_BYTES", 0)
    fetched = everything(stream(flip=True).batches(0, 9))
    assert all(torch.equal(one, other) for one, other in zip(resident, fetched, strict=True))


def test_flipping_doubles_the_images():
    x0 = everything(stream(flip=True).batches(0, 11))[0]
    both = torch.cat([dequantize(IMAGES[TRAIN]), dequantize(IMAGES[TRAIN]).flip(3)])
    for epoch in x0.split(22):
        seen = {tuple(image.flatten().tolist()) for image in epoch}
        assert seen == {tuple(image.flatten().tolist()) for image in both}


def test_the_noise_levels_of_a_step_can_be_asked_for():
    made = list(stream().batches(0, 4))
    assert torch.equal(stream().noise_levels(3), made[3].sigma)


@pytest.mark.parametrize("depth", [0, 1, 3, 20])
def test_working_ahead_keeps_the_order_and_the_errors(depth):
    assert list(batches._ahead(lambda n: n * n, range(10), depth)) == [n * n for n in range(10)]

    def fail(n):
        if n == 4:
            raise ValueError("four")
        return n

    with pytest.raises(ValueError, match="four"):
        list(batches._ahead(fail, range(10), depth))
