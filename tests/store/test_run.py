"""A run's directory: what it holds, what it refuses, and what survives a sudden end."""

import dataclasses
import subprocess
import sys

import pytest
import torch

from gausslens import CheckpointError, Run, TrainConfig, load_denoiser
from gausslens.atomic_files import save_tensors
from gausslens.store.weights import build_denoiser, describe_denoiser

CONFIG = TrainConfig("digits", kimg=2.0, width=8, multipliers=(1,), snapshots=(1,)).resolve((1, 8, 8))
DESCRIPTION = describe_denoiser(CONFIG, (1, 8, 8), 0, 0)


@pytest.fixture
def run(tmp_path):
    return Run.create(tmp_path, "train", "my digits/é", "0123abcd", dataclasses.asdict(CONFIG))


def keep(run, kimg):
    """A snapshot whose raw and averaged weights differ."""
    raw, ema = build_denoiser(DESCRIPTION), build_denoiser(DESCRIPTION)
    run.save_snapshot(kimg, raw.state_dict(), ema.state_dict(), DESCRIPTION)
    return raw, ema


def test_the_directory_says_what_it_is(run, tmp_path):
    assert run.path == tmp_path / "train-my-digits-0123abcd"
    again = Run.open(run.path)
    assert (again.verb, again.identity, again.config) == ("train", "0123abcd", CONFIG)
    assert again.records() == again.snapshots == again.provenance["sessions"] == []
    assert not again.is_finished
    assert repr(run.path.name)[1:-1] in repr(again)


def test_creating_again_finds_the_run_and_leaves_its_config(run, tmp_path):
    longer = dataclasses.asdict(dataclasses.replace(CONFIG, kimg=9.0))
    assert Run.create(tmp_path, "train", "my digits/é", "0123abcd", longer).config.kimg == 2.0
    run.save_config(longer)
    assert run.config.kimg == 9.0
    assert run.identity == "0123abcd"


def test_snapshots_are_kept_by_kimg_with_both_weights(run):
    kept = {kimg: keep(run, kimg) for kimg in (10, 0.5, 2)}
    assert run.snapshots == [0.5, 2.0, 10.0]
    assert run.is_finished
    assert (run.path / "snapshots" / "kimg-000010.safetensors").is_file()
    for kimg, (raw, ema) in kept.items():
        for expected, found in ((raw, run.weights(kimg, ema=False)), (ema, run.weights(kimg))):
            assert found.keys() == expected.state_dict().keys()
            assert all(torch.equal(tensor, found[name]) for name, tensor in expected.state_dict().items())
    last = run.weights()
    assert all(torch.equal(tensor, last[name]) for name, tensor in kept[10][1].state_dict().items())


def test_a_denoiser_is_loaded_from_a_run_its_path_or_a_snapshot(run):
    raw, ema = keep(run, 1)
    keep(run, 2)
    x, sigma = torch.randn(3, 1, 8, 8), torch.tensor([0.1, 1.0, 10.0])
    loaded = load_denoiser(run, kimg=1)
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert torch.equal(loaded(x, sigma), ema.eval()(x, sigma))
    assert torch.equal(load_denoiser(str(run.path), kimg=1, ema=False)(x, sigma), raw.eval()(x, sigma))
    for name in ("moved.safetensors", "renamed"):
        alone = run.path.parent / name
        alone.write_bytes(run.snapshot_path(1).read_bytes())
        assert torch.equal(load_denoiser(alone)(x, sigma), ema(x, sigma))


def test_missing_snapshots_are_named(run):
    with pytest.raises(CheckpointError, match="no snapshot yet"):
        load_denoiser(run)
    keep(run, 1)
    with pytest.raises(CheckpointError, match="no snapshot at 3 kimg; it has 1"):
        run.weights(3)


def test_a_run_of_something_else_has_no_denoiser(tmp_path):
    studied = Run.create(tmp_path, "study", "digits", "0123abcd", {})
    with pytest.raises(CheckpointError, match=r"expected a training run at .*; this is a run of 'study'"):
        load_denoiser(studied.path)


def test_records_come_back_in_order(run):
    records = [{"quantity": "loss", "value": 0.1 + k, "kimg": float(k)} for k in range(4)]
    run.append(records[:1])
    run.append(records[1:])
    assert run.records() == records
    run.drop_records_after(2)
    assert run.records() == records[:3]


def test_a_record_cut_short_is_dropped_and_does_no_harm(run):
    run.append([{"value": 1}, {"value": 2}])
    path = run.path / "records.jsonl"
    path.write_bytes(path.read_bytes()[:-3])
    assert run.records() == [{"value": 1}]
    run.append([{"value": 3}])
    assert run.records() == [{"value": 1}, {"value": 3}]


def test_records_that_are_not_numbers_are_refused(run):
    with pytest.raises(ValueError, match="JSON"):
        run.append([{"value": float("nan")}])
    (run.path / "records.jsonl").write_text('{"value": 1}\nnonsense\n')
    with pytest.raises(CheckpointError, match="not a record"):
        run.records()


def test_what_is_no_run_is_refused(tmp_path, run):
    with pytest.raises(CheckpointError, match="there is no such directory"):
        Run.open(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        Run.open(tmp_path)
    for text, message in (
        ("{", "cannot be read"),
        ("[]", "expected a JSON object in .*; got list"),
        ("{}", "not written by gausslens"),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(CheckpointError, match=message):
            Run.open(tmp_path)
    run.save_json("config.json", {"verb": "train", "identity": "ffff0000", "config": {}})
    with pytest.raises(CheckpointError, match="holds the run ffff0000, not 0123abcd"):
        Run.create(tmp_path, "train", "my digits/é", "0123abcd", {})


def test_a_run_of_another_verb_or_version_has_no_train_config(tmp_path, run):
    with pytest.raises(CheckpointError, match="a run of 'measure'"):
        Run.create(tmp_path, "measure", "digits", "0", {"count": 3}).config  # noqa: B018
    run.save_config({**run.settings, "warp": 9})
    with pytest.raises(CheckpointError, match="does not know: warp"):
        run.config  # noqa: B018


def test_a_file_that_is_no_snapshot_is_refused(run, tmp_path):
    for name, told in (("a.safetensors", "not a readable safetensors file"), ("file", "This file is none of these")):
        (tmp_path / name).write_bytes(b"\0" * 100)
        with pytest.raises(CheckpointError, match=told):
            load_denoiser(tmp_path / name)
    keep(run, 1)
    data = run.snapshot_path(1).read_bytes()
    run.snapshot_path(1).write_bytes(data[:-100])
    with pytest.raises(CheckpointError, match="truncated"):
        load_denoiser(run)


@pytest.mark.parametrize("settings", [[1], "digits", {}, {"data": "digits", "kimg": []}])
def test_a_run_whose_config_is_none_has_no_train_config(run, settings):
    run.save_json("config.json", {"verb": "train", "identity": "0123abcd", "config": settings})
    with pytest.raises(CheckpointError, match=r"config\.json"):
        _ = run.config


def lying(**changed):
    return {**DESCRIPTION, "network": {**DESCRIPTION["network"], **changed}}


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (None, "do not fit"),
        ([], "do not fit"),
        ({}, "do not fit"),
        ({"network": "unet"}, "do not fit"),
        ({**DESCRIPTION, "sigma_data": "half"}, "do not fit"),
        (lying(name="resnet"), "network must be one of"),
        (lying(colour=1), "colour"),
        (lying(width="8"), "do not fit"),
        (lying(width=16), r"expected network\.\S+ of shape \(.*\); got \("),
        (lying(width=10**6), r"of shape \(.*1000000.*\); got \("),
        (lying(shape=(1, 10**6, 10**6)), "do not fit"),
        (lying(blocks=10**9), "more blocks than there are tensors"),
        (lying(multipliers=[1] * 10**6), "more blocks than there are tensors"),
        (lying(multipliers=[10**6]), "do not fit"),
        (lying(classes=10**9), "do not fit"),
        ({**DESCRIPTION, "network": {"name": "linear", "shape": (1, 2**14, 2**14)}}, "do not fit"),
    ],
)
def test_a_snapshot_whose_description_lies_is_refused_at_no_cost(tmp_path, description, message):
    weights = {f"ema.{name}": value for name, value in build_denoiser(DESCRIPTION).state_dict().items()}
    save_tensors(tmp_path / "lying.safetensors", weights, kind="gausslens snapshot", denoiser=description)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_denoiser(tmp_path / "lying.safetensors")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_weights_that_do_not_fit_are_named(run):
    weights = build_denoiser(DESCRIPTION).state_dict()
    name = next(iter(weights))
    for changed, message in (
        ({other: value for other, value in weights.items() if other != name}, f"expected {name} .* got none at all"),
        ({**weights, "other": torch.zeros(3)}, r"expected other of shape none at all; got \(3,\)"),
        ({}, "more blocks than there are tensors, 0"),
    ):
        run.save_snapshot(1, {}, changed, DESCRIPTION)
        with pytest.raises(CheckpointError, match=message) as caught:
            load_denoiser(run)
        assert "\n" not in str(caught.value)


def test_metadata_without_end_is_refused(run, tmp_path):
    from safetensors.torch import save_file

    header = {"kind": "gausslens snapshot", "metadata": "[" * 200_000}
    save_file({}, tmp_path / "deep.safetensors", metadata=header)
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        load_denoiser(tmp_path / "deep.safetensors")
    (run.path / "config.json").write_text("[" * 200_000)
    with pytest.raises(CheckpointError, match=r"config\.json cannot be read"):
        load_denoiser(run.path)


def test_other_files_among_the_snapshots_are_passed_over(run):
    keep(run, 1)
    for name in ("best", "1.2.3", "nan"):
        (run.path / "snapshots" / f"kimg-{name}.safetensors").touch()
    assert run.snapshots == [1.0]


def test_one_process_writes_at_a_time(run):
    program = f"from gausslens import Run\nwith Run.open({str(run.path)!r}).locked(): print('in')"
    with (
        run.locked(),
        pytest.raises(CheckpointError, match="another process is writing"),
        run.locked(),
    ):
        pass
    with run.locked():
        answer = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
        )
        assert "another process is writing" in answer.stderr
        assert answer.stdout == ""
    with run.locked():
        pass


def test_what_a_killed_process_left_half_written_is_removed(run):
    leftovers = [
        run.path / ".state.safetensors.1f.partial",
        run.path / "snapshots" / ".kimg-000001.safetensors.2e.partial",
    ]
    for leftover in leftovers:
        leftover.parent.mkdir(exist_ok=True)
        leftover.touch()
    assert run.snapshots == []
    with run.locked():
        assert not any(leftover.exists() for leftover in leftovers)
