"""A manifest says which images were used, and nothing else changes it."""

import json

import numpy as np
import pytest
import torch

from gausslens.data import Splits, load_images, manifest
from gausslens.errors import ConfigError, DataError
from gausslens.images import content_hash


def test_a_manifest_records_what_was_used():
    digits = load_images("digits")
    splits = Splits(len(digits), seed=5)
    record = manifest(digits, splits, ["100", "s1:50"])
    assert record["content_hash"] == content_hash(torch.from_numpy(digits.images))
    assert (record["source"], record["count"], record["shape"], record["seed"]) == ("digits", 1797, [1, 8, 8], 5)
    assert list(record["splits"]) == ["100", "s1:50", "held-out"]
    for name, part in record["splits"].items():
        indices = splits.named(name)
        assert part["count"] == len(indices)
        assert part["content_hash"] == content_hash(torch.from_numpy(digits.images[indices]))
    hashes = [part["indices_hash"] for part in record["splits"].values()]
    assert len(set(hashes)) == 3
    assert record == manifest(digits, Splits(len(digits), seed=5), ["100", "s1:50"])
    assert record["splits"] != manifest(digits, Splits(len(digits), seed=6), ["100", "s1:50"])["splits"]


def test_without_a_held_out_part_there_is_none_to_record(tmp_path):
    digits = load_images("digits")
    assert list(manifest(digits, Splits(len(digits), held_out=0), ["all"])["splits"]) == ["all"]


def test_skipped_files_and_options_are_recorded(tmp_path):
    from PIL import Image

    (tmp_path / "set").mkdir()
    Image.new("L", (6, 8)).save(tmp_path / "set" / "a.png")
    (tmp_path / "set" / "b.png").write_bytes(b"")
    images = load_images(tmp_path / "set", size=4, skip_broken=True, cache=tmp_path / "cache")
    record = manifest(images, Splits(1, held_out=0))
    assert record["skipped"] == ["b.png"]
    assert record["options"] == {"size": 4, "value_range": None}


def test_json_can_hold_a_manifest(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((5, 4, 6), np.uint16))
    images = load_images(tmp_path / "a.npy", value_range=(0, 9), cache=tmp_path / "cache")
    record = manifest(images, Splits(5), ["2"])
    assert record["source"] == "a.npy"
    assert str(tmp_path) not in json.dumps(record)
    assert json.loads(json.dumps(record)) == record
    assert record["options"]["value_range"] == [0, 9]


def test_what_does_not_belong_is_refused():
    digits = load_images("digits")
    with pytest.raises(DataError, match=r"1797 images given; these are of 10\."):
        manifest(digits, Splits(10))
    with pytest.raises(ConfigError, match="9999"):
        manifest(digits, Splits(1797), ["9999"])
