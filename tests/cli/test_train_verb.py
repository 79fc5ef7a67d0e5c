"""`gausslens train`: what it prints, resolves, refuses and continues."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from tiny_command import TINY, command

from gausslens import Run, train
from gausslens.config import TrainConfig
from gausslens.errors import DataError
from gausslens.evaluation.references import load_run_images


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))


def test_it_trains_and_says_where_and_what_next(tmp_path, capsys):
    words = ("train", "digits", "--split", "200", *TINY, "--out", tmp_path, "--cpu", "--snapshots", "0.8")
    code, out, err = command(capsys, *words)
    (folder,) = tmp_path.glob("train-*")
    assert (code, err) == (0, "Duplicates: none of 359 held-out images repeats one of 200 training images.\n")
    first, last = out.splitlines()
    assert first.startswith("denoising loss ")
    assert last == f"Trained for 1.6 kimg in {folder}. Next: gausslens sample {folder}"
    run = Run.open(folder)
    assert (run.snapshots, run.config.multipliers, run.config.width) == ([0.8, 1.6], (1,), 8)
    assert run.manifest["duplicates"].startswith("none of 359")
    assert command(capsys, *words)[1] == out


def test_options_become_the_config(tmp_path, capsys):
    np.save(tmp_path / "grey.npy", np.linspace(-2, 2, 50 * 64, dtype=np.float32).reshape(50, 1, 8, 8))
    code, out, _ = command(
        *(capsys, "train", tmp_path / "grey.npy", "--dry-run", "--range", "-2", "2", "--multipliers", "1", "2"),
        *("--snapshots", "1,2", "--learning-rate", "1e-3", "--flip", "--held-out", "7"),
    )
    resolved = json.loads(out)
    assert code == 0
    assert (resolved["value_range"], resolved["multipliers"], resolved["snapshots"]) == ([-2, 2], [1, 2], [1, 2])
    assert (resolved["learning_rate"], resolved["flip"], resolved["held_out"]) == (1e-3, True, 7)
    assert None not in (resolved["batch"], resolved["width"], resolved["kimg"])
    assert not (tmp_path / "runs").exists()
    plain = json.loads(command(capsys, "train", "digits", "--dry-run")[1])
    assert TrainConfig(**plain).split == "all"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "no such source: 'nowhere'"),
        (["digits", "--split", "2000"], "a subset can have 1 … 1438 images here"),
        (["digits", "--split", "half"], "no such split: 'half'"),
        (["digits", "--held-out", "1797"], "--held-out must leave something to train on"),
        (["digits", "--tracker", "paper"], "tracker must be one of"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, tmp_path, capsys):
    code, out, err = command(capsys, "train", *words, "--out", tmp_path / "runs", "--cpu")
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--split", "2000"),
        ("--split", "half"),
        ("--split", "held-out"),
        ("--size", "33", "--network", "ncsnpp"),
        ("--batch", "5000", "--kimg", "1"),
        ("--tracker", "paper"),
    ],
)
def test_a_dry_run_refuses_what_training_refuses(words, tmp_path, capsys):
    words = ("train", "digits", *words, "--out", tmp_path / "runs", "--cpu")
    code, out, err = command(capsys, *words, "--dry-run")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert command(capsys, *words) == (code, out, err)
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_names_the_folder_that_training_makes(tmp_path, capsys):
    words = ("train", "digits", "--split", "200", "--labels", *TINY, "--out", tmp_path / "runs", "--cpu")
    _, _, err = command(capsys, *words, "--dry-run")
    assert not (tmp_path / "runs").exists()
    command(capsys, *words)
    (folder,) = (tmp_path / "runs").iterdir()
    assert err == f"The run would be in {folder}\n"


def test_missing_labels_say_where_labels_come_from(tmp_path, capsys):
    np.save(tmp_path / "grey.npy", np.zeros((50, 1, 8, 8), np.uint8))
    code, _, err = command(capsys, "train", tmp_path / "grey.npy", "--labels", "--out", tmp_path / "runs", "--cpu")
    assert code == 2
    assert "--labels needs labelled images" in err
    assert "each subfolder is a class" in err


def test_a_file_in_the_way_is_exit_code_1(tmp_path, capsys):
    (tmp_path / "runs").write_text("")
    code, _, err = command(capsys, "train", "digits", "--out", tmp_path / "runs", "--cpu")
    assert (code, err.count("\n")) == (1, 1)
    assert "could not make the directory" in err


def test_duplicates_are_reported_once_and_kept(tmp_path, capsys, monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (60, 1, 8, 8), np.uint8)
    images[30:] = images[:30]
    np.save(tmp_path / "twice.npy", images)
    words = ("train", tmp_path / "twice.npy", *TINY, "--out", tmp_path / "runs", "--cpu")
    _, _, err = command(capsys, *words)
    assert "held-out images repeat one of 48 training images" in err
    monkeypatch.setattr("gausslens.training.train.find_duplicates", None)
    assert command(capsys, *words)[2] == err
    monkeypatch.setattr("gausslens.training.train._SEARCHED_PIXELS", 10)
    assert "not looked for" in command(capsys, *words, "--seed", "1")[2]


LONG = [sys.executable, "-m", "gausslens", "train", "digits", "--cpu", "--batch", "32", "--width", "8", "--kimg", "15"]


def started(folder, *words):
    return subprocess.Popen(
        [*LONG, "--out", str(folder), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for_snapshots(folder, process, count):
    while len(list(folder.glob("*/snapshots/kimg-*.safetensors"))) < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """The weights of the same training in one go."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole")
    return train(TrainConfig("digits", cpu=True, batch=32, width=8, kimg=15, out=str(folder))).weights()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_stopped_and_started_again_it_ends_with_the_same_weights(number, code, tmp_path, never_stopped):
    words = ("--snapshots", "3,6,9,12")  # the state is saved at each
    process = started(tmp_path / "stopped", *words)
    wait_for_snapshots(tmp_path / "stopped", process, 2)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    if number != signal.SIGKILL:
        assert re.fullmatch(r"\ngausslens: stopped at \S+ of 15 kimg; the same command continues from there\.\n", err)
    again = started(tmp_path / "stopped", *words)
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    stopped = Run.open(out.split()[-1])
    sessions = stopped.provenance["sessions"]
    assert (len(sessions), sessions[-1]["last_step"]) == (2, 469)
    assert sessions[-1]["first_step"] >= 94  # the state of the first snapshot, or a later one
    assert all(torch.equal(never_stopped[name], tensor) for name, tensor in stopped.weights().items())


@pytest.fixture(name="video")
def make_video(tmp_path):
    """Sixty frames of twelve scenes, of three classes, and a table of them; the source, and its groups."""
    scenes = np.repeat(np.arange(12), 5)
    frames = np.random.default_rng(0).integers(0, 256, (60, 1, 8, 8), np.uint8)
    np.savez(tmp_path / "video.npz", images=frames, labels=scenes % 3)
    (tmp_path / "scenes.csv").write_text("scene\n" + "".join(f"scene {scene}\n" for scene in scenes))
    return tmp_path / "video.npz", f"{tmp_path / 'scenes.csv'}:scene"


def test_groups_are_trained_on_or_held_out(video, tmp_path, capsys):
    source, spec = video
    words = ("train", source, "--groups", spec, *TINY, "--out", tmp_path / "runs", "--cpu", "--flip", "--labels")
    _, resolved, announced = command(capsys, *words, "--dry-run")
    code, _, err = command(capsys, *words)
    (folder,) = (tmp_path / "runs").glob("train-*")
    assert announced == f"The run would be in {folder}\n"
    assert (code, err.splitlines()[0]) == (0, "Groups: 9 trained on, 3 held out.")
    assert json.loads(resolved)["held_out"] == 15
    run = Run.open(folder)
    images, frames = load_run_images(run), np.load(source)["images"]
    assert (images.train_groups.dtype, len(images.train_groups)) == (torch.int64, 2 * 45)
    for group in range(12):
        chosen = images.train_groups == group, images.held_out_groups == group
        assert (chosen[0].sum(), chosen[1].sum()) in ((10, 0), (0, 5))
        parts = torch.cat([images.train[chosen[0]], images.held_out[chosen[1]]])
        expected = {frame.tobytes() for frame in frames[5 * group : 5 * group + 5]}
        assert expected <= {part.numpy().tobytes() for part in parts}
    assert run.manifest["splits"]["all"]["groups"] == 9


def test_held_out_groups_are_those_of_the_classes_that_are_known(tmp_path):
    labels = np.repeat([0, 1, 2, 3], 10)
    images = np.random.default_rng(0).integers(0, 256, (40, 1, 8, 8), np.uint8)
    np.savez(tmp_path / "classes.npz", images=images, labels=labels)
    (tmp_path / "classes.csv").write_text("group\n" + "".join(f"{label}\n" for label in labels))
    options = {"cpu": True, "width": 8, "batch": 32, "kimg": 0.1, "held_out": 10, "out": str(tmp_path / "runs")}
    config = TrainConfig(str(tmp_path / "classes.npz"), groups=f"{tmp_path}/classes.csv:group", labels=True, **options)
    with pytest.warns(UserWarning, match="10 of 10 held-out images are of classes without a training image"):
        loaded = load_run_images(train(config))
    assert len(loaded.held_out) == len(loaded.held_out_groups) == 0
    assert set(loaded.train_groups.tolist()) == set(loaded.train_labels.tolist())


def test_a_run_is_known_by_its_groups_and_not_by_where_they_are_written(video, tmp_path, capsys):
    source, spec = video
    words = ("train", source, *TINY, "--out", tmp_path / "runs", "--cpu")
    assert command(capsys, *words, "--groups", spec)[0] == 0
    (folder,) = (tmp_path / "runs").glob("train-*")
    elsewhere = (tmp_path / "scenes.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(DataError, match=r"cannot be read again: there is no file .*scenes\.csv"):
        load_run_images(Run.open(folder))
    # The same parts by another name, of the table and of the groups.
    elsewhere.write_text(elsewhere.read_text().replace("scene ", "take ").replace("scene", "take"))
    assert command(capsys, *words, "--groups", f"{elsewhere}:take")[0] == 0
    assert list((tmp_path / "runs").glob("train-*")) == [folder]
    assert len(load_run_images(Run.open(folder)).held_out) == 15
    # Other parts are another run, and those of the first are missed.
    elsewhere.write_text(elsewhere.read_text().replace("take 7\n", "take 8\n"))
    with pytest.raises(
        DataError,
        match=r"expected the groups that .*train-video-.* was trained with; .*moved\.csv:take now gives other groups",
    ):
        load_run_images(Run.open(folder))
    _, _, err = command(capsys, *words, "--groups", f"{elsewhere}:take", "--dry-run")
    assert str(folder) not in err
    _, _, err = command(capsys, *words, "--dry-run")
    assert str(folder) not in err


def test_runs_from_before_groups_are_read(tmp_path, capsys):
    command(capsys, "train", "digits", "--split", "200", *TINY, "--out", tmp_path / "runs", "--cpu")
    (folder,) = (tmp_path / "runs").glob("train-*")
    run = Run.open(folder)
    settings, record = run.settings, run.manifest
    assert settings.pop("groups") is record.pop("groups_hash") is None
    run.save_config(settings)
    run.save_json("manifest.json", record)
    images = load_run_images(Run.open(folder))
    assert (len(images.train), images.train_groups, images.held_out_groups) == (200, None, None)
    assert run.config.groups is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("(p1", "--groups must be FILE.csv:COLUMN or a regular expression"),
        (r"(\d)", "one row for each image, in their order."),
        ("nowhere.csv:scene", "there is no file nowhere.csv"),
        ("", "--groups must be a text that is not empty"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_groups_that_cannot_be_read_are_one_line(groups, message, dry, tmp_path, capsys):
    words = ("train", "digits", "--groups", groups, "--out", tmp_path / "runs", "--cpu", *dry)
    code, out, err = command(capsys, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_help_tells_what_groups_are(capsys):
    _, out, _ = command(capsys, "train", "--help")
    assert "--groups" in out
    assert "FILE.csv:COLUMN" in out
