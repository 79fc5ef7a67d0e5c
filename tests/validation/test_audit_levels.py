"""The simulation of levels and coverage: what it draws, how it counts, and a sample of what it finds."""

import io
import json
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image

from gausslens.auditing.controls import ONCE, fisher_p
from gausslens.auditing.families import PLAIN
from gausslens.measures.intervals import Estimate
from gausslens.measures.two_sample import auc_estimate
from gausslens.noise import generator

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))

import audit_levels
import levels_images
import repeated_images
from levels_copies import look
from levels_losses import LOSS_LAWS, holds
from levels_tables import clopper_pearson, mark


def test_limits_of_a_share_are_clopper_and_pearsons():
    assert clopper_pearson(0, 100) == pytest.approx((0, 1 - 0.025 ** (1 / 100)))
    assert clopper_pearson(100, 100) == pytest.approx((0.025 ** (1 / 100), 1))
    assert clopper_pearson(8, 200) == pytest.approx((0.0174, 0.0773), abs=1e-4)


def test_marks_name_the_bad_side_alone():
    assert [mark(hits, 200, 0.05) for hits in (0, 10, 20, 60)] == ["", "", "above", "ABOVE"]
    assert [mark(hits, 200, 0.95, at_least=True) for hits in (200, 190, 180, 100)] == [
        "",
        "",
        "below",
        "BELOW",
    ]


@pytest.mark.parametrize("law", levels_images.LAWS)
def test_sets_are_apart_and_of_the_sizes_asked_for(law):
    drawn = levels_images.draw(law, (50, 20), generator(0, "test levels"))
    assert [len(part) for part in (drawn.train, drawn.held_out, drawn.samples)] == [50, 20, levels_images.SAMPLES]
    assert drawn.train.dtype == torch.uint8
    assert drawn.train.shape[1:] == (1, 8, 8)


def test_groups_are_never_in_both_sets():
    drawn = levels_images.draw_groups("dots", (20, 10), generator(0, "test levels"), uneven=True)
    known, new = (part.unique() for part in drawn.groups)
    assert (len(known), len(new)) == (20, 10)
    assert not bool(torch.isin(known, new).any())
    assert len(drawn.groups[0]) == len(drawn.train)
    assert bool((torch.bincount(drawn.groups[0]) >= 2).all())


@pytest.mark.parametrize("law", LOSS_LAWS, ids=str)
def test_loss_laws_have_the_mean_and_the_auc_they_claim(law):
    losses = [law.draw(100_000, generator(0, "test levels", part)) for part in (0, 1)]
    assert float(losses[0].mean()) == pytest.approx(law.mean, rel=0.03)
    for auc in (0.5, 0.9):
        factor = law.factor(auc)
        assert law.auc(factor) == pytest.approx(auc)
        assert auc_estimate(factor * losses[0], losses[1]).value == pytest.approx(auc, abs=0.005)
        limit = losses[1].quantile(0.01)
        recognised = float((factor * losses[0] < limit).double().mean())
        assert recognised == pytest.approx(law.recognised(factor, 0.01), abs=0.015)


def test_an_interval_that_was_not_given_claims_nothing():
    assert holds(None, 0.5)
    assert holds(Estimate(0.4, 0.3, 0.5, 10), 0.5)
    assert not holds(Estimate(0.4, 0.3, 0.5, 10), 0.51)


@pytest.mark.parametrize("law", ["dots", "icons"])
def test_fishers_test_against_held_out_images_is_of_its_level(law):
    """Chance copies are frequent in both; 200 trials have at most 2 % rejections at 1 % with probability .95."""
    p_values = []
    for trial in range(200):
        drawn = levels_images.draw(law, (60, 60), generator(0, f"test levels {law}", trial))
        counts = [copied_of(queries, drawn.train) for queries in (drawn.samples, drawn.held_out)]
        p_values.append(fisher_p(*counts[0], *counts[1]))
    assert sum(p <= 0.01 for p in p_values) <= 6
    assert len(set(p_values)) > 50  # it was a test of something


def copied_of(queries, train):
    known = train.unique(dim=0).flatten(1).float()
    nearest = torch.cdist(queries.flatten(1).float(), known).topk(2, largest=False).values
    copied = nearest[:, 0] < nearest[:, 1] / 3
    return int(copied.sum()), len(copied)


@pytest.mark.parametrize("law", ["dots", "icons"])
def test_the_audits_comparison_is_of_its_level(law):
    p_values, alarms = [], 0
    for trial in range(16):
        found = look(levels_images.draw(law, (200, 200), generator(1, f"test levels {law}", trial)))
        alarms += found.exist
        one = found.find(PLAIN, ONCE)
        p_values += [] if one is None else [one.p_value]
    assert alarms == 0
    assert sum(p <= 0.01 for p in p_values) <= 2


@pytest.mark.parametrize("name", audit_levels.SECTIONS)
@pytest.mark.slow
def test_every_table_is_made(name):
    lines = list(audit_levels.SECTIONS[name](0.02, 3))
    assert any("[" in line or "mean" in line for line in lines)


def pictures(n, seed=0):
    return torch.randint(0, 256, (n, 1, 4, 4), generator=generator(seed, "test repeated"), dtype=torch.uint8)


def test_twenty_images_stand_again_and_again():
    setup = repeated_images.repeated(pictures(900), 10_000)
    standing = torch.bincount(setup.original)
    assert len(setup.held_out) == 300
    assert standing[:20].tolist() == [30] * 20
    assert set(standing[20:].tolist()) == {1}
    where = (setup.original == 3).nonzero()[:, 0]
    assert bool((setup.train[where] == setup.train[where[0]]).all())


def test_a_rare_class_is_as_rare_among_held_out_images():
    labels = torch.arange(2000) % 4
    setup = repeated_images.rare(pictures(2000), labels, 600)
    known, unseen = (int((part == setup.rare).sum()) / len(part) for part in setup.labels)
    assert (setup.rare, int((setup.labels[0] == 3).sum())) == (3, 20)
    assert unseen == pytest.approx(known, rel=0.05)


def test_copies_are_counted_by_original():
    setup = repeated_images.repeated(pictures(300), 200)
    samples = torch.cat([setup.train[:3], pictures(2, seed=1)])
    assert repeated_images.copies(samples, setup).tolist() == [*setup.original[:3].tolist(), -1, -1]


def test_sheets_are_read_in_order(tmp_path):
    cells = torch.randint(0, 256, (6, 4, 4, 3), generator=generator(2, "test sheets"), dtype=torch.uint8)
    with zipfile.ZipFile(tmp_path / "sheets.zip", "w") as archive:
        archive.writestr("meta.json", json.dumps({"n": 6, "tile": 2, "size": 4}))
        archive.writestr("labels.u8", bytes(range(6)))
        for sheet in range(2):
            four = torch.zeros(4, 4, 4, 3, dtype=torch.uint8)
            part = cells[4 * sheet : 4 * sheet + 4]
            four[: len(part)] = part
            grid = four.reshape(2, 2, 4, 4, 3).permute(0, 2, 1, 3, 4).reshape(8, 8, 3)
            written = io.BytesIO()
            Image.fromarray(grid.numpy()).save(written, "PNG")
            archive.writestr(f"{sheet:04d}.png", written.getvalue())
    images, labels = repeated_images.read(str(tmp_path / "sheets.zip"), None, tmp_path)
    assert torch.equal(images.permute(0, 2, 3, 1), cells[labels])
