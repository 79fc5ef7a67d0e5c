"""Transformed copies: distances over what a shift leaves in the picture, against loops."""

import math

import pytest
import torch

from gausslens.errors import ConfigError
from gausslens.measures.neighbors import nearest
from gausslens.measures.transformations import Transformation, shifts_by, transformed_neighbors


def images(n, seed, height=5, width=7, channels=2):
    random = torch.Generator().manual_seed(seed)
    return torch.rand(n, channels, height, width, generator=random, dtype=torch.float64) * 2 - 1


def reference_distance(x, y, transformation):
    """√(d/d′)·‖x − Ty‖ over the pixels p with p − s inside the picture."""
    channels, height, width = y.shape
    total, left = 0.0, 0
    for row in range(height):
        for column in range(width):
            i, j = row - transformation.down, column - transformation.right
            if 0 <= i < height and 0 <= j < width:
                origin = width - 1 - j if transformation.mirrored else j
                total += float((x[:, row, column] - y[:, i, origin]).square().sum())
                left += channels
    return math.sqrt(total * y.numel() / left)


EVERY = [Transformation(), Transformation(mirrored=True), *shifts_by((1, 3))[::5], Transformation(True, -2, 1)]


def test_distances_follow_the_definition():
    samples, known = images(4, 0), images(3, 1)
    for transformation in EVERY:
        distances, indices, _ = transformed_neighbors(samples, known, 3, [transformation])
        for x, row, found in zip(samples, distances, indices, strict=True):
            expected = [reference_distance(x, known[i], transformation) for i in found.tolist()]
            torch.testing.assert_close(row, torch.tensor(expected, dtype=torch.float64))


@pytest.mark.parametrize("k", [1, 3, 9])
def test_neighbours_under_any_transformation_count_once_and_are_exact(k):
    samples, known = images(12, 2), images(9, 3)
    samples[0] = EVERY[5].apply(known[:1])[0]
    distances, indices, which = transformed_neighbors(samples, known, k, EVERY)
    table = torch.tensor([[[reference_distance(x, y, move) for move in EVERY] for y in known] for x in samples])
    expected, order = table.amin(2).sort(dim=1)
    torch.testing.assert_close(distances, expected[:, :k].double(), rtol=1e-6, atol=1e-6)
    assert torch.equal(indices, order[:, :k])
    rows = torch.arange(12)[:, None]
    assert torch.equal(which, table.argmin(2)[rows, order[:, :k]])
    assert float(distances[0, 0]) == 0.0
    assert int(which[0, 0]) == 5


def test_how_the_border_was_filled_does_not_matter():
    known = images(30, 4, 8, 8)
    for shift in shifts_by((1, 2), mirrored=True):
        filled = shift.apply(known)
        rolled = known.flip(-1).roll((shift.down, shift.right), (-2, -1))
        for samples in (filled, rolled):
            distances, indices, _ = transformed_neighbors(samples, known, 1, [shift])
            assert float(distances.max()) == 0.0
            assert indices[:, 0].tolist() == list(range(30))
        assert float((filled - rolled).abs().max()) > 0.1


def test_pixels_and_vectors_are_compared_as_they_are():
    pixels = torch.randint(0, 256, (40, 1, 4, 4), generator=torch.Generator().manual_seed(5)).to(torch.uint8)
    for samples, known in ((pixels[:10], pixels[10:]), (pixels[:10].flatten(1), pixels[10:].flatten(1))):
        distances, indices, which = transformed_neighbors(samples, known, 3, [Transformation()])
        assert torch.equal(distances, nearest(samples, known, 3)[0])
        assert torch.equal(indices, nearest(samples, known, 3)[1])
        assert int(which.abs().sum()) == 0


def test_names_and_bad_shifts():
    assert str(Transformation(True, -1, 2)) == "mirrored, shifted 1 up and 2 right"
    assert str(Transformation()) == "unchanged"
    assert len(shifts_by((1, 2))) == len(set(shifts_by((1, 2)))) == 24
    assert shifts_by(()) == []
    with pytest.raises(ConfigError, match="at least 1 pixel; got 0"):
        shifts_by((0, 1))
    with pytest.raises(ConfigError, match="5 pixels; got a shift by 6"):
        transformed_neighbors(images(2, 6), images(2, 7), 1, [Transformation(down=6)])
    with pytest.raises(ConfigError, match="at least one transformation"):
        transformed_neighbors(images(2, 6), images(2, 7), 1, [])
