"""Data sets of the hub, with a stand-in for the package that reads them."""

import sys
from types import ModuleType

import numpy as np
import pytest
from PIL import Image as Pillow

from gausslens.data import load_groups, load_images
from gausslens.errors import ConfigError, DataError, MissingExtraError

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), dtype=np.uint8)


class Image:
    pass


class ClassLabel:
    pass


class Value:
    pass


class Dataset:
    def __init__(self, rows, features, fingerprint="f"):
        self.rows, self.features, self._fingerprint = rows, features, fingerprint

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, key):
        if isinstance(key, str):
            return [row[key] for row in self.rows]
        row = self.rows[key]
        if isinstance(row["img"], Exception):
            raise row["img"]
        return row


ROWS = [
    {"id": n, "img": Pillow.fromarray(image), "coarse": 7, "label": n % 2, "note": "a"}
    for n, image in enumerate(PIXELS)
]
FEATURES = {"id": Value(), "img": Image(), "coarse": ClassLabel(), "label": ClassLabel(), "note": Value()}


@pytest.fixture
def calls(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))
    seen = []
    module = ModuleType("datasets")

    def load_dataset(name, split):
        seen.append((name, split))
        if split not in ("train", "test", "train[:50%]"):
            raise ValueError(f"Unknown split {split!r}")
        rows = ROWS if split == "train" else ROWS[:2]
        return Dataset(rows, FEATURES, fingerprint=f"{name}{split}")

    def load_from_disk(path):
        seen.append(path)
        one = Dataset(ROWS[:3], FEATURES)
        return {"train": one, "test": Dataset(ROWS[3:], FEATURES, "g")} if path.endswith("dict") else one

    module.load_dataset, module.load_from_disk = load_dataset, load_from_disk
    monkeypatch.setitem(sys.modules, "datasets", module)
    return seen


def test_a_name_is_its_training_split_with_images_and_labels(calls):
    loaded = load_images("hf:some/thing")
    assert calls == [("some/thing", "train")]
    assert np.array_equal(loaded.images, PIXELS.transpose(0, 3, 1, 2))
    assert loaded.labels.tolist() == [0, 1, 0, 1]
    assert (loaded.name, loaded.source) == ("some-thing", "hf:some/thing")


def test_a_split_is_named_after_a_colon(calls):
    assert len(load_images("hf:some/thing:test")) == 2
    assert len(load_images("hf:some/thing:train[:50%]")) == 2
    assert calls == [("some/thing", "test"), ("some/thing", "train[:50%]")]


def test_saved_folders_are_opened_from_disk(calls, tmp_path):
    for name in ("one", "dict"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ("dataset_dict.json" if name == "dict" else "dataset_info.json")).write_text("{}")
    assert len(load_images(f"hf:{tmp_path / 'one'}")) == 3
    assert len(load_images(f"hf:{tmp_path / 'dict'}")) == 3
    assert np.array_equal(load_images(f"hf:{tmp_path / 'dict'}:test").images, PIXELS[3:].transpose(0, 3, 1, 2))
    with pytest.raises(DataError, match="validation"):
        load_images(f"hf:{tmp_path / 'dict'}:validation")


def test_a_folder_that_was_not_saved_by_the_hub_leaves_a_name_its_meaning(calls, tmp_path, monkeypatch):
    (tmp_path / "thing").mkdir()
    monkeypatch.chdir(tmp_path)
    load_images("hf:thing")
    assert calls == [("thing", "train")]


def test_other_columns_of_labels_serve_if_there_is_no_label(calls, monkeypatch):
    features = dict(FEATURES)
    del features["label"]
    monkeypatch.setitem(sys.modules["datasets"].__dict__, "load_dataset", lambda name, split: Dataset(ROWS, features))
    assert load_images("hf:coarse").labels.tolist() == [7] * 4
    del features["coarse"]
    monkeypatch.setitem(
        sys.modules["datasets"].__dict__, "load_dataset", lambda name, split: Dataset(ROWS, features, "other")
    )
    assert load_images("hf:none").labels is None


def test_an_image_that_cannot_be_decoded_is_broken(calls, monkeypatch):
    rows = [*ROWS[:2], {"img": OSError("cannot identify image file"), "label": 1, "coarse": 0}, ROWS[3]]
    monkeypatch.setitem(sys.modules["datasets"].__dict__, "load_dataset", lambda name, split: Dataset(rows, FEATURES))
    with pytest.raises(DataError, match=r"img\[2\]: cannot identify"):
        load_images("hf:broken")
    loaded = load_images("hf:broken", skip_broken=True)
    assert loaded.skipped == ("img[2]",)
    assert loaded.labels.tolist() == [0, 1, 1]


def test_groups_are_one_row_for_each_image_and_none_for_broken_ones(calls, monkeypatch, tmp_path):
    rows = [*ROWS[:2], {"img": OSError("cannot identify image file"), "label": 1, "coarse": 0}, ROWS[3]]
    monkeypatch.setitem(sys.modules["datasets"].__dict__, "load_dataset", lambda name, split: Dataset(rows, FEATURES))
    (tmp_path / "a.csv").write_text("image,who\n0,x\n1,y\n2,z\n3,x\n")
    assert load_groups("hf:broken", f"{tmp_path / 'a.csv'}:who", skip_broken=True).tolist() == [0, 1, 0]
    with pytest.raises(ConfigError, match="no file names"):
        load_groups("hf:broken", "img", skip_broken=True)


def test_failures_of_the_hub_are_explained(calls, monkeypatch):
    with pytest.raises(DataError, match=r"could not load hf:some/thing:nope: ValueError: Unknown split 'nope'\."):
        load_images("hf:some/thing:nope")
    features = {"text": Value()}
    monkeypatch.setitem(sys.modules["datasets"].__dict__, "load_dataset", lambda name, split: Dataset(ROWS, features))
    with pytest.raises(DataError, match="expected a column of images"):
        load_images("hf:text")


def test_without_the_package_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gausslens\[hf\]'"):
        load_images("hf:some/thing")
