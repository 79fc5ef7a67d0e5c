"""`gausslens audit` on a run, on somebody else's module, stopped in the middle, and as a check that fails."""

import json
import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from gausslens import TrainConfig, train
from gausslens.auditing import audit as running
from gausslens.auditing import page as pages_of_audits
from gausslens.auditing import steps as stages
from gausslens.auditing.config import AuditConfig
from gausslens.auditing.inputs import load_context
from gausslens.auditing.verdict import Verdict
from gausslens.cli import main as cli
from gausslens.data import load_images
from gausslens.report import Page
from gausslens.store.run import Run

FAST = ("--samples", "60", "--count", "20", "--noises", "2", "--sigmas", "4,1,0.3", "--cpu")


@pytest.fixture(scope="module", name="trained")
def train_a_little(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return train(TrainConfig("digits", split="s1:12", width=8, kimg=1.0, batch=64, cpu=True, out=str(out))).path


TO_GAUSSIAN = {"quantity": "rmse", "denoiser": "network", "reference": "gaussian"}


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


@pytest.mark.slow
def test_what_was_interrupted_is_done_again_and_the_rest_is_not(trained, tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setitem(running.STAGES, "distances", stop)
        assert command(capsys, "audit", trained, *FAST, "--out", tmp_path)[0] == 130
    (folder,) = tmp_path.glob("audit-digits-*")
    first = Run.open(folder).records()
    assert {record["stage"] for record in first} == {"premises", "losses", "foreignness"}
    with open(folder / "records.jsonl", "a") as file:
        file.write(json.dumps({"stage": "distances", **TO_GAUSSIAN, "value": 1.0, "sigma": 4.0}) + "\n")
    monkeypatch.setitem(running.STAGES, "losses", stop)  # it is finished
    assert command(capsys, "audit", trained, *FAST, "--out", tmp_path)[0] == 0
    records = Run.open(folder).records()
    assert records[: len(first)] == first
    assert len([record for record in records if TO_GAUSSIAN.items() <= record.items()]) == 3


def test_samples_are_the_same_in_one_piece_or_several(trained):
    config = running.AuditConfig(str(trained), samples=30, cpu=True)
    context = load_context(config, device=torch.device("cpu"))
    whole = running.generate_samples(context, 0, 30)
    parts = torch.cat([running.generate_samples(context, 0, 11), running.generate_samples(context, 11, 30)])
    assert (whole.int() - parts.int()).abs().max() <= 1  # rounding


def copier_of(images, module, count):
    """Write a module that knows the first images of a source by heart."""
    module.write_text(
        "import gausslens, torch\nfrom gausslens.data import load_images\n"
        "def model():\n"
        f"    images = load_images({str(images)!r}).images[:{count}]\n"
        "    return gausslens.MultiDeltaDenoiser(torch.as_tensor(images))\n"
    )


@pytest.fixture(scope="module", name="copier")
def audit_a_copier_of_ones_own(tmp_path_factory):
    """The words of an audit that is done: a module of ones own, a set in a file, a folder for runs."""
    folder = tmp_path_factory.mktemp("copier")
    copier_of(folder / "all.npz", folder / "copier_module.py", 60)
    # In an order of their own: the first digits are by other hands than the next.
    np.savez(folder / "all.npz", images=np.random.default_rng(0).permutation(load_images("digits").images)[:300])
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        sets = ("--train", folder / "all.npz", "--unseen", "240")
        words = ("audit", "copier_module:model", *sets, *FAST, "--out", folder / "runs")
        assert cli.main([str(word) for word in words]) == 0
        yield words


def test_json_is_all_that_is_printed_and_names_the_page_beside_which_one_is(copier, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(capsys, *copier, "--json", "--quiet")
    told = json.loads(out)
    assert (code, err) == (0, "")
    assert (told["verdict"], told["n_train"], told["n_held_out"]) == ("memorizing", 60, 240)
    assert not os.path.isabs(told["page"])
    assert (tmp_path / told["page"]).resolve() == next(copier[-1].glob("audit-*")) / "report.html"
    assert (tmp_path / told["page"]).is_file()
    assert told["headline"].startswith("Memorizing: ")
    assert {"copying", "membership", "advice", "records"} < set(told)


def test_quiet_prints_nothing_and_does_all_else(copier, capsys):
    page = next(copier[-1].glob("audit-*")) / "report.html"
    page.unlink()
    assert command(capsys, *copier, "--quiet", "--fail-on", "memorizing") == (3, "", "")
    assert page.is_file()
    assert "Memorizing" in command(capsys, *copier)[1]


MEMORIZING, PARTLY = ("memorizing", False), ("partly memorizing", False)
GENERALIZING, LEAKING, UNKNOWN = ("generalizing", False), ("generalizing", True), ("cannot tell", None)


@pytest.mark.parametrize(
    ("limits", "fail"),
    [
        ("memorizing", {MEMORIZING}),
        ("memorising", {MEMORIZING}),
        ("partly-memorizing", {MEMORIZING, PARTLY}),
        ("partly-memorising", {MEMORIZING, PARTLY}),
        ("in-transition", {MEMORIZING, PARTLY}),
        ("membership", {LEAKING}),
        ("cannot-tell", {UNKNOWN}),
        ("memorizing membership", {MEMORIZING, LEAKING}),
        ("partly-memorizing,cannot-tell", {MEMORIZING, PARTLY, UNKNOWN}),
        ("memorizing partly-memorizing membership cannot-tell", {MEMORIZING, PARTLY, LEAKING, UNKNOWN}),
    ],
)
def test_a_verdict_is_an_exit_code_where_it_is_asked_for(copier, capsys, monkeypatch, limits, fail):
    monkeypatch.setattr(pages_of_audits, "make_page", lambda *args: Page("a page", "nothing"))
    for verdict, leaks in (MEMORIZING, PARTLY, GENERALIZING, LEAKING, UNKNOWN):
        judged = Verdict(verdict, ("a reason.",), leaks)
        monkeypatch.setattr(running, "judge", lambda evidence, judged=judged: judged)
        code, out, _ = command(capsys, *copier, "--fail-on", *limits.split())
        assert code == (3 if (verdict, leaks) in fail else 0)
        assert verdict.capitalize() in out


def test_a_copier_fails_on_what_it_is_and_on_nothing_else(copier, capsys):
    assert command(capsys, *copier, "--fail-on", "cannot-tell")[0] == 0
    assert command(capsys, *copier, "--fail-on", "membership")[0] == 3


@pytest.mark.slow
def test_file_names_tell_which_images_belong_together(tmp_path, capsys, monkeypatch):
    """Fifteen patients of four slices each, one of whom stands in both folders; the model knows the slices by heart."""
    pixels = load_images("digits").images[:, 0]
    noise = np.random.default_rng(0)
    for folder, patients in (("known", range(15)), ("new", range(14, 30))):
        (tmp_path / folder).mkdir()
        for patient in patients:
            for part in range(4):
                slice_of = np.clip(pixels[patient] + noise.normal(0, 8, (8, 8)), 0, 255).astype(np.uint8)
                Image.fromarray(slice_of).save(tmp_path / folder / f"patient{patient:02}-{part}.png")
    copier_of(tmp_path / "known", tmp_path / "scan_copier.py", 60)
    monkeypatch.chdir(tmp_path)
    words = ("audit", "scan_copier:model", "--train", "known", "--held-out", "new", *FAST, "--json", "--out", "runs")
    told = {}
    for spec in (("--groups", "patient([0-9]+)"), ("--samples", "0")):
        code, out, err = command(capsys, *words, *spec)
        assert (code, err) == (0, "")
        told[spec[0]] = json.loads(out)
        told[spec[0]]["found"] = {record["quantity"]: record["value"] for record in told[spec[0]]["records"]}
    grouped, alone = told["--groups"], told["--samples"]
    assert (grouped["verdict"], grouped["found"]["originals"], grouped["found"]["overlap"]) == ("memorizing", 15, 4)
    patients = [original["image"] // 4 for original in grouped["copying"]["originals"]]
    assert len(set(patients)) == len(patients) > 5
    assert alone["found"]["overlap"] == 0
    assert "--groups" in alone["membership"]["refused"]
    code, _, err = command(capsys, *words, "--groups", "scanner([0-9]+)")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "scanner" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("{run}", "--held-out", "digits"),
            "--held-out, --unseen, --size, --range, --skip-broken and --groups need --train",
        ),
        (("{run}", "--size", "8"), "--skip-broken and --groups need --train"),
        (("{run}", "--features", "efficientnet-lite0", "--samples", "0"), "--features must be left out"),
        (("{run}", "--features", "nothing.onnx"), "there is no file nothing.onnx"),
        (("{run}", "--train", "digits", "--held-out", "digits"), "these 1,797 are the training images"),
        (("{run}", "--train", "digits", "--unseen", "1"), "at least 2 held-out images"),
        (("{run}", "--train", "digits", "--held-out", "digits", "--unseen", "3"), "not by both"),
        (("{run}", "--train", "fashion"), "the model takes images of shape (1, 8, 8)"),
        (("nowhere",), "nowhere"),
        (("{run}", "--train", "digits", "--unseen", "1797"), "leave too few"),
        (("{run}", "--groups", "p([0-9]+)"), "--groups need --train"),
        (
            ("{run}", "--fail-on", "memorized"),
            "--fail-on must be among memorizing, partly-memorizing, membership, cannot-tell",
        ),
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


@pytest.mark.slow
@pytest.mark.usefixtures("module_here")
def test_a_function_that_takes_labels_is_given_them(tmp_path, capsys):
    digits = load_images("digits")
    words = ("audit", "odd_models:conditional", *FAST, "--out", tmp_path, "--train")
    np.savez(tmp_path / "told.npz", images=digits.images[:100], labels=digits.labels[:100])
    assert command(capsys, *words, tmp_path / "told.npz", "--unseen", "40")[0] == 0
    np.savez(tmp_path / "plain.npz", images=digits.images[:50])
    code, _, err = command(capsys, *words, tmp_path / "plain.npz")
    assert code == 2
    assert "the model takes labels" in err


@pytest.mark.slow
@pytest.mark.usefixtures("module_here")
def test_other_weights_out_of_sight_are_another_audit(tmp_path, capsys):
    folders = []
    np.savez(tmp_path / "few.npz", images=load_images("digits").images[:100])
    for level in ("0.1", "0.1", "0.2"):
        (tmp_path / "weights.txt").write_text(level)
        words = ("audit", "odd_models:made", "--train", "few.npz", "--unseen", "40", *FAST, "--out", tmp_path / "runs")
        folders.append(command(capsys, *words)[1].splitlines()[-1])
    assert folders[0] == folders[1] != folders[2]


@pytest.mark.slow
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
    assert "gave other outputs" in err


@pytest.mark.usefixtures("module_here")
def test_other_labels_are_another_audit(tmp_path):
    pixels, names = load_images("digits").images[:60], set()
    for labels in (np.arange(60) % 10, np.arange(60) % 10, np.arange(60) % 5):
        np.savez(tmp_path / "told.npz", images=pixels, labels=labels)
        config = AuditConfig("odd_models:conditional", train=str(tmp_path / "told.npz"))
        names.add(running.identity(load_context(config, device=torch.device("cpu"))))
    assert len(names) == 2


def test_a_run_on_mirror_images_is_audited_on_its_images_with_mirrored_references(tmp_path):
    config = TrainConfig("digits", split="s1:12", width=8, kimg=0.1, batch=32, flip=True, cpu=True, out=str(tmp_path))
    context = load_context(AuditConfig(str(train(config).path)), device=torch.device("cpu"))
    assert context.config.augment == "flip"
    assert (len(context.images.train), len(context.reference_images.train)) == (12, 24)


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


@pytest.mark.slow
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
