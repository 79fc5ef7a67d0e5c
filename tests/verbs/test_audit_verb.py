"""`gausslens audit` on a run, on somebody else's module, stopped in the middle, and as a check that fails."""

import json
import sys

import numpy as np
import pytest
import torch

from gausslens import TrainConfig, cli, train
from gausslens.auditing import running, stages
from gausslens.auditing.auditee import load_auditee
from gausslens.auditing.config import AuditConfig
from gausslens.data import load_images
from gausslens.runs import Run

FAST = ("--samples", "60", "--count", "20", "--noises", "2", "--sigmas", "4,1,0.3", "--cpu", "--quiet")


@pytest.fixture(scope="module", name="trained")
def train_a_little(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return train(TrainConfig("digits", split="s1:12", width=8, kimg=1.0, batch=64, cpu=True, out=str(out))).path


def command(capsys, *words):
    try:
        code = cli.main([str(word) for word in words])
    except SystemExit as left:  # usage
        code = left.code
    told = capsys.readouterr()
    return code, told.out, told.err


def stop(*args, **kwargs):
    raise KeyboardInterrupt


def test_a_run_knows_its_images_and_a_second_audit_measures_nothing(trained, tmp_path, capsys, monkeypatch):
    code, out, _ = command(capsys, "audit", trained, *FAST, "--out", tmp_path)
    assert code == 0
    assert "12 training and 359 held-out images" in out
    (folder,) = tmp_path.glob("audit-digits-*")
    assert "The samples most like one training image" in (folder / "report.html").read_text()
    monkeypatch.setattr(running, "STAGES", dict.fromkeys(stages.STAGES, stop))
    monkeypatch.setattr(running, "take_copies", stop)
    monkeypatch.setattr(running, "generate_samples", stop)
    assert command(capsys, "audit", trained, *FAST, "--out", tmp_path)[:2] == (0, out)


def test_what_was_interrupted_is_done_again_and_the_rest_is_not(trained, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setitem(running.STAGES, "distances", stop)
        assert command(capsys, "audit", trained, *FAST, "--out", tmp_path)[0] == 130
    (folder,) = tmp_path.glob("audit-digits-*")
    first = Run.open(folder).records()
    assert {record["stage"] for record in first} == {"duplicates", "losses", "foreignness"}
    with open(folder / "records.jsonl", "a") as file:
        file.write('{"stage": "distances", "quantity": "distance_gaussian", "value": 1.0, "sigma": 4.0}\n')
    monkeypatch.setitem(running.STAGES, "losses", stop)  # it is finished
    assert command(capsys, "audit", trained, *FAST, "--out", tmp_path)[0] == 0
    records = Run.open(folder).records()
    assert records[: len(first)] == first
    assert len([r for r in records if r["quantity"] == "distance_gaussian"]) == 3


def test_samples_are_the_same_in_one_piece_or_several(trained, monkeypatch):
    config = running.AuditConfig(str(trained), samples=30, cpu=True)
    who = running.load_auditee(config, device=torch.device("cpu"))
    whole = stages.generate_samples(who, 0, 30)
    parts = torch.cat([stages.generate_samples(who, 0, 11), stages.generate_samples(who, 11, 30)])
    assert (whole.int() - parts.int()).abs().max() <= 1  # rounding


def test_a_module_of_ones_own_and_a_verdict_as_exit_code(tmp_path, capsys, monkeypatch):
    (tmp_path / "copier_module.py").write_text(
        "import gausslens\nfrom gausslens.data import load_images\nimport torch\n"
        "def model():\n"
        "    images = torch.as_tensor(load_images('digits').images[:60])\n"
        "    return gausslens.MultiDeltaDenoiser(images)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    pixels = load_images("digits").images
    np.savez(tmp_path / "all.npz", images=pixels[:300])
    words = (
        "audit",
        "copier_module:model",
        "--train",
        tmp_path / "all.npz",
        "--unseen",
        "240",
        *FAST,
        "--out",
        tmp_path,
    )
    code, out, err = command(capsys, *words, "--json", "--fail-on", "memorizing")
    assert (code, err) == (3, "")
    told = json.loads(out)
    assert (told["verdict"], told["n_train"], told["n_held_out"]) == ("memorizing", 60, 240)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("{run}", "--held-out", "digits"), "--held-out and --unseen go with --train"),
        (("{run}", "--size", "8"), "--size, --range and --skip-broken go with --train"),
        (("{run}", "--features", "efficientnet-lite0", "--samples", "0"), "--features must be left out"),
        (("{run}", "--features", "nothing.onnx"), "there is no file nothing.onnx"),
        (("{run}", "--train", "digits", "--held-out", "digits"), "1,797 of these 1,797 are among the training images"),
        (("{run}", "--train", "digits", "--unseen", "1"), "at least 2 held-out images"),
        (("{run}", "--train", "digits", "--held-out", "digits", "--unseen", "3"), "not by both"),
        (("{run}", "--train", "fashion"), "the model takes images of shape (1, 8, 8)"),
        (("nowhere",), "nowhere"),
        (("{run}", "--train", "digits", "--unseen", "1797"), "leave too few"),
    ],
)
def test_errors_are_one_readable_line(trained, tmp_path, capsys, words, told):
    chosen = [word.format(run=trained) for word in words]
    code, _, err = command(capsys, "audit", *chosen, "--out", tmp_path)
    assert code == 2
    assert told in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.glob("audit-*"))  # said before anything is measured


@pytest.mark.parametrize(
    "words",
    [
        ("nowhere",),
        ("{run}", "--train", "nowhere"),
        ("{run}", "--train", "digits", "--held-out", "nowhere"),
        ("{run}", "--kimg", "33"),
        ("{run}", "--sigmas", "1000"),
    ],
)
def test_a_dry_run_refuses_what_is_not_there_as_an_audit_does(words, trained, tmp_path, capsys):
    words = ("audit", *(word.format(run=trained) for word in words), "--out", tmp_path, "--cpu")
    told = command(capsys, *words, "--dry-run")
    assert (told[0], told[1], told[2].count("\n")) == (2, "", 1)
    assert told == command(capsys, *words)


def test_a_dry_run_prints_the_options_with_what_follows_from_the_model(trained, tmp_path, capsys):
    code, out, err = command(capsys, "audit", trained, "--out", tmp_path, "--cpu", "--dry-run")
    resolved = json.loads(out)
    assert (code, err) == (0, "There are 12 training and 359 held-out images.\n")
    assert (resolved["kimg"], resolved["train"], resolved["samples"]) == (1.0, "digits", 2000)
    assert (len(resolved["sigmas"]), resolved["sigmas"][0]) == (10, 80)
    assert not list(tmp_path.iterdir())


MODULE = """\
import pathlib
import torch
def conditional(x, sigma, labels):
    return 0 * x + (labels / 10).reshape(-1, 1, 1, 1) - 0.5
def of_colours(x, sigma):
    return torch.nn.functional.conv2d(x, torch.zeros(3, 3, 1, 1))
def careless(x, sigma):
    raise ValueError("one\\ntwo.")
def of_sixteen(x):
    return torch.nn.functional.linear(x.flatten(1), torch.zeros(4, 3 * 16 * 16))
def made():
    level = float(pathlib.Path("weights.txt").read_text())
    return lambda x, sigma: 0 * x + level
"""


@pytest.fixture(name="module_here")
def write_a_module(tmp_path, monkeypatch):
    (tmp_path / "odd_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("odd_models", None)


@pytest.mark.usefixtures("module_here")
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("of_colours", "fails on noisy images of shape (1, 8, 8): RuntimeError"),
        ("careless", "ValueError: one two. It must take D(x, sigma)"),
    ],
)
def test_a_model_that_fails_is_one_readable_line(tmp_path, capsys, name, told):
    code, _, err = command(capsys, "audit", f"odd_models:{name}", "--train", "digits", *FAST, "--out", tmp_path)
    assert (code, len(err.splitlines())) == (2, 1)
    assert told in err


@pytest.mark.usefixtures("module_here")
def test_a_function_that_takes_labels_is_given_them(tmp_path, capsys):
    words = ("audit", "odd_models:conditional", *FAST, "--out", tmp_path, "--train")
    assert command(capsys, *words, "digits", "--unseen", "300")[0] == 0
    np.savez(tmp_path / "plain.npz", images=load_images("digits").images[:50])
    code, _, err = command(capsys, *words, tmp_path / "plain.npz")
    assert code == 2
    assert "the model takes labels" in err


@pytest.mark.slow
@pytest.mark.usefixtures("module_here")
def test_other_weights_out_of_sight_are_another_audit(tmp_path, capsys):
    folders = []
    for level in ("0.1", "0.1", "0.2"):
        (tmp_path / "weights.txt").write_text(level)
        words = ("audit", "odd_models:made", "--train", "digits", "--unseen", "300", *FAST, "--out", tmp_path / "runs")
        folders.append(command(capsys, *words)[1].splitlines()[-1])
    assert folders[0] == folders[1] != folders[2]


def test_a_model_that_has_changed_is_no_audit_to_go_on_with(trained, tmp_path, capsys, monkeypatch):
    (tmp_path / "wrapped_run.py").write_text(
        "import torch\nfrom gausslens import load_denoiser\nfrom pathlib import Path\n"
        "class Wrapped(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        self.network, self.scale = load_denoiser({str(trained)!r}), float(Path('scale.txt').read_text())\n"
        "    def forward(self, x, sigma):\n"
        "        return self.scale * self.network(x, sigma)\n"
        "def make():\n"
        "    return Wrapped()\n"
    )
    monkeypatch.chdir(tmp_path)
    words = (
        "audit",
        "wrapped_run:make",
        "--train",
        "digits",
        "--unseen",
        "300",
        *FAST,
        "--samples",
        "0",
        "--out",
        "runs",
    )
    for scale, code in (("1", 0), ("1.001", 0), ("0.5", 2)):
        (tmp_path / "scale.txt").write_text(scale)
        found, _, err = command(capsys, *words)
        assert found == code, err
    assert "answers otherwise" in err


@pytest.mark.usefixtures("module_here")
def test_other_labels_are_another_audit(tmp_path):
    pixels, names = load_images("digits").images[:60], set()
    for labels in (np.arange(60) % 10, np.arange(60) % 10, np.arange(60) % 5):
        np.savez(tmp_path / "told.npz", images=pixels, labels=labels)
        config = AuditConfig("odd_models:conditional", train=str(tmp_path / "told.npz"))
        names.add(running.identity(load_auditee(config, device=torch.device("cpu"))))
    assert len(names) == 2


def test_a_run_on_mirror_images_is_audited_on_its_images_with_mirrored_references(tmp_path):
    config = TrainConfig("digits", split="s1:12", width=8, kimg=0.1, batch=32, flip=True, cpu=True, out=str(tmp_path))
    who = load_auditee(AuditConfig(str(train(config).path)), device=torch.device("cpu"))
    assert who.config.augment == "flip"
    assert (len(who.images.train), len(who.references.train)) == (12, 24)


def test_a_run_of_one_noise_level_is_refused(tmp_path, capsys):
    run = train(
        TrainConfig("digits", split="s1:12", width=8, kimg=0.2, batch=64, sigma=0.5, cpu=True, out=str(tmp_path))
    )
    for model in (run.path, *(run.path / "snapshots").iterdir()):
        code, _, err = command(capsys, "audit", model, "--train", "digits", "--unseen", "300", *FAST, "--out", tmp_path)
        assert code == 2
        assert "was trained for sigma = 0.5 alone" in err


def test_a_folder_that_cannot_be_written_is_no_bad_input(trained, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, _, err = command(capsys, "audit", trained, *FAST, "--out", tmp_path / "file")
    assert code == 1
    assert "file" in err


@pytest.mark.usefixtures("module_here")
def test_features_that_do_not_take_the_images_are_refused_before_anything_is_measured(trained, tmp_path, capsys):
    code, _, err = command(capsys, "audit", trained, *FAST, "--features", "odd_models:of_sixteen", "--out", tmp_path)
    assert code == 2
    assert "odd_models:of_sixteen fails on images of shape (3, 8, 8)" in err
    assert not list(tmp_path.glob("audit-*"))


def test_a_snapshot_of_a_run_is_audited(tmp_path, capsys):
    config = TrainConfig(
        "digits", split="s1:12", width=8, kimg=1.0, batch=64, snapshots=(0.5,), cpu=True, out=str(tmp_path)
    )
    run = train(config).path
    words = (*FAST, "--out", tmp_path)
    assert command(capsys, "audit", run, "--kimg", "0.5", *words)[0] == 0
    (folder,) = tmp_path.glob("audit-*")
    assert "--kimg 0.5" in (folder / "report.html").read_text()
    (snapshot,) = (run / "snapshots").glob("*0.5.safetensors")
    assert command(capsys, "audit", snapshot, *words)[0] == 0
    assert list(tmp_path.glob("audit-*")) == [folder]  # the same weights, so the same audit
    code, _, err = command(capsys, "audit", run, "--kimg", "0.7", *words)
    assert code == 2
    assert "0.5" in err
