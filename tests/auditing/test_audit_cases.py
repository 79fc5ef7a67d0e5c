"""Audits of cases of which the truth is known: a few images memorised, sets that differ, groups, a rare class."""

import sys
from pathlib import Path

import pytest
import torch
from known_models import smooth_images

import gausslens
from gausslens import DataError, MultiDeltaDenoiser, PerClassDenoiser
from gausslens.auditing.config import AuditConfig
from gausslens.auditing.inputs import validate_inputs
from gausslens.auditing.page import make_page
from gausslens.auditing.summary import advice, headline
from gausslens.evaluation.references import RunImages
from gausslens.images import quantize
from gausslens.report import ImageGrid
from gausslens.zoo.model import Model

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))

from laws import Deltas, Gaussians, PartialMemory

HOW = {"samples": 120, "noises": 4, "count": 60, "sigmas": (4.0, 1.0, 0.3, 0.1)}
GROUPS = torch.arange(60).repeat_interleave(4)


@pytest.fixture(scope="module", name="law")
def law_of_other_images():
    return Gaussians.fit(smooth_images(3_000, 5))


@pytest.fixture(scope="module", name="frames")
def videos_of_four_frames():
    noise = 0.04 * torch.randn(60, 4, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    return (smooth_images(60, 9)[:, None] + noise).flatten(0, 1).clamp(-1, 1)


def test_five_memorised_images_among_many_are_named(law):
    pool = smooth_images(240, 7)
    model = PartialMemory(law, pool[:5], 0.3)
    found = gausslens.audit(model, pool[:120], pool[120:], **HOW)
    assert found.verdict.verdict == "partly memorizing"
    assert {record["image"] for record in found.find("copied_original")} == set(range(5))
    share = found.first("copied_share")
    assert share["low"] < 0.3 < share["high"]
    assert "copy 5 of the 120 training images" in headline(found)
    assert "Look at the named copies" in advice(found)
    assert found.verdict.leaks is False  # 5 of 120 are too few to lean toward all of them
    assert found.verdict.lean.high < 0.3


def test_memorised_images_that_stand_there_repeatedly_count_once_and_are_to_be_removed(law):
    pool = smooth_images(240, 8)
    train = torch.cat([pool[:5].repeat(10, 1, 1, 1), pool[5:75]])
    found = gausslens.audit(PartialMemory(law, pool[:5], 0.4), train, pool[120:], **HOW)
    assert found.verdict.verdict == "partly memorizing"
    assert found.first("originals")["value"] == 75
    assert {record["image"]: record["repeats"] for record in found.find("copied_original")} == dict.fromkeys(
        range(5), 10
    )
    assert "5 of the 5 copied images occur in the training set more than once, up to 10 times" in advice(found)
    assert {record["kind"] for record in found.find("smallest_count")} == {"spread", "concentrated", "repeated"}


@pytest.mark.parametrize("memorised", [0, 120])
def test_held_out_images_of_other_contrast_are_refused_and_copies_convict_nevertheless(law, memorised):
    pool = smooth_images(240, 7)
    model = MultiDeltaDenoiser(pool[:memorised]) if memorised else law
    found = gausslens.audit(model, pool[:120], 0.6 * pool[120:], **HOW)
    assert found.verdict.leaks is None
    assert found.first("refused")["value"] == "not exchangeable"
    assert any("contrast" in reason for reason in found.verdict.reasons)
    assert "whether it leaks membership cannot be judged" in headline(found)
    if memorised:
        assert found.verdict.verdict == "memorizing"
        assert found.first("copied_share")["low"] > 0.9
    else:
        assert found.verdict.verdict == "cannot tell"
        assert "contrast" in found.verdict.reasons[0]
        assert "same source" in advice(found)
        assert not found.find("copy")


def test_images_of_a_group_are_one_original_and_their_overlap_is_left_out(frames):
    """One video lies in both sets: its frames are no repeats, but they are not new to the model."""
    known, unseen = frames[:120], frames[116:]
    sets = {"groups": GROUPS[:120], "held_out_groups": GROUPS[116:]}
    found = gausslens.audit(MultiDeltaDenoiser(known), known, unseen, **sets, **HOW)
    assert found.verdict.verdict == "memorizing"
    assert (found.first("overlap")["value"], found.first("train_duplicates")["value"]) == (4, 0)
    assert found.first("originals")["value"] == 30
    named = found.find("copied_original")
    assert len({record["image"] // 4 for record in named}) == len(named) <= 30  # one name for a video
    assert all(record["repeats"] == 1 for record in named)
    for record in found.find("copy"):
        assert record["image"] // 4 == record["original"] // 4
    assert len({record["image"] for record in found.find("copy")}) > len(named)
    assert found.verdict.leaks is True
    # What is counted are videos, thirty of them new to the model.
    assert found.first("auc")["count"] <= 30 + 30


def test_without_its_groups_the_same_set_is_refused(frames):
    found = gausslens.audit(MultiDeltaDenoiser(frames[:120]), frames[:120], frames[120:], **{**HOW, "samples": 0})
    assert found.verdict.leaks is None
    assert "--groups" in found.first("refused")["reason"]


@pytest.mark.slow
def test_the_page_shows_one_copy_of_each_group(frames):
    pixels = quantize(frames)
    parts = pixels[:120], pixels[120:]
    model = Model(MultiDeltaDenoiser(pixels[:16]), (1, 6, 6), sigma_range=(0.002, 80.0))  # of four videos
    found = gausslens.audit(model, *parts, groups=GROUPS[:120], held_out_groups=GROUPS[120:], **HOW)
    images = RunImages(parts[0], parts[0], parts[1], None, None, "images", GROUPS[:120], GROUPS[120:])
    page = make_page(found, validate_inputs(model, images, AuditConfig("model", **HOW)), {}, "gausslens audit")
    grids = [figure for section in page.sections for figure in section.figures if isinstance(figure, ImageGrid)]
    (grid,) = [grid for grid in grids if grid.title == "Copies"]
    assert len(grid.columns) == len(found.find("copied_original")) == 4
    assert sum(int(told.split(" ×")[0]) for told in grid.columns) == len(found.find("copy")) > 100


@pytest.fixture(scope="module", name="classes")
def one_rare_class_memorised():
    """Four classes; of the last there are ten training images, and its denoiser knows them and nothing else."""
    pool, labels = smooth_images(240, 11), torch.arange(240) % 4
    rare, rest = (labels == 3).nonzero()[:, 0], (labels != 3).nonzero()[:, 0]
    train, held_out = torch.cat([rare[:10], rest[:110]]), torch.cat([rare[10:20], rest[110:]])
    denoisers = {label: Gaussians.fit(smooth_images(3_000, 20 + label)) for label in range(3)}
    model = PerClassDenoiser({**denoisers, 3: Deltas(pool[train[:10]])})
    return model, (pool[train], pool[held_out]), {"labels": labels[train], "held_out_labels": labels[held_out]}


def test_a_rare_class_that_is_memorised_is_named(classes):
    model, sets, labels = classes
    found = gausslens.audit(model, *sets, **labels, **HOW)
    assert found.verdict.verdict == "partly memorizing"
    (named,) = found.find("copied_class")
    assert (named["label"], named["count"]) == (3, 30)  # classes take turns among 120 samples
    assert named["low"] > 0.8
    assert {record["image"] for record in found.find("copied_original")} <= set(range(10))
    assert any("of class 3" in reason for reason in found.verdict.reasons)
    assert "copies of class 3" in str(found)


def test_a_model_that_says_how_many_classes_it_has_is_given_labels_below_that(classes):
    model, sets, labels = classes
    how = {**HOW, "samples": 0}
    found = gausslens.audit(Model(model, (1, 6, 6), classes=4), *sets, **labels, **how)
    assert found.find("position")
    with pytest.raises(DataError, match=r"3 classes, 0 to 2; .* go up to 3"):
        gausslens.audit(Model(model, (1, 6, 6), classes=3), *sets, **labels, **how)
    with pytest.raises(DataError, match="no labels for the training images"):
        gausslens.audit(Model(model, (1, 6, 6), classes=4), *sets, **how)


def test_held_out_images_of_classes_not_trained_on_are_left_out_with_their_groups(classes):
    model, (train, held_out), labels = classes
    strange = torch.cat([held_out, smooth_images(6, 30)])
    more = torch.cat([labels["held_out_labels"], torch.full((6,), 3)])
    few = labels["labels"] != 3
    groups = {"groups": torch.arange(int(few.sum())), "held_out_groups": 1_000 + torch.arange(len(strange))}
    told = {"labels": labels["labels"][few], "held_out_labels": more}
    with pytest.warns(UserWarning, match="16 of 86 held-out images are of classes without a training image"):
        found = gausslens.audit(model, train[few], strange, **told, **groups, **{**HOW, "samples": 0})
    assert found.n_held_out == int((labels["held_out_labels"] != 3).sum())
    assert found.first("overlap")["value"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "copied", "new"), [("top half", 0, 1), ("bottom half", 1, 0)])
def test_a_copied_half_is_named(name, copied, new):
    pool, halves = smooth_images(240, 13), (slice(0, 3), slice(3, 6))
    memory, law = Deltas(pool[:120, :, halves[copied]]), Gaussians.fit(smooth_images(3_000, 5)[:, :, halves[new]])

    def half_a_copier(x, sigma):
        parts = [law(x[:, :, halves[new]], sigma)]
        parts.insert(copied, memory(x[:, :, halves[copied]], sigma))
        return torch.cat(parts, 2)

    found = gausslens.audit(half_a_copier, pool[:120], pool[120:], **HOW)
    assert found.verdict.verdict == "partly memorizing"
    assert name in {record["window"] for record in found.find("copied_part")}
    assert not found.find("copy")
    assert f"samples copy parts of training images ({name}" in headline(found)
    for record in found.find("part_copy", family=name)[:20]:
        distances = (pool[:120] - found.samples[record["sample"]].float() / 127.5 + 1)[:, :, halves[copied]]
        assert int(distances.flatten(1).norm(dim=1).argmin()) == record["image"]
