"""`gausslens measure`: what it records, that it goes on where it stopped, and what it says when it cannot."""

import json
import math
import shutil

import pytest
import torch
from tiny_command import command, train_tiny

from gausslens import (
    GaussianDenoiser,
    Moments,
    MultiDeltaDenoiser,
    Run,
    TrainConfig,
    gap,
    linearity,
    load_denoiser,
    train,
)
from gausslens.data import Splits, load_images
from gausslens.evaluation.config import MEASURES
from gausslens.evaluation.evaluators import TAKE

FAST = ("--sigmas", "20,1,0.1", "--count", "10", "--samples", "24", "--steps", "4", "--calls", "300", "--cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_tiny(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def measured(trained):
    """The run with the records of all measures."""
    from gausslens.cli import main as cli

    assert cli.main(["measure", str(trained), *FAST]) == 0
    (folder,) = trained.parent.glob("measure-digits-*")
    return Run.open(folder)


def chosen(run, quantity, **tags):
    found = [record for record in run.records() if {"quantity": quantity, **tags}.items() <= record.items()]
    assert found, (quantity, tags)
    return found


def test_every_measure_has_records(measured):
    assert tuple(TAKE) == MEASURES
    taken = {record["measure"] for record in measured.records()}
    assert taken == set(MEASURES)
    assert all(record["value"] is None or math.isfinite(record["value"]) for record in measured.records())
    assert {record["on"] for record in chosen(measured, "linearity_cosine")} == {"train", "held_out", "surrogate"}
    assert {r["sigma"] for r in chosen(measured, "rmse")} == {20.0, 1.0, 0.1}


def test_records_are_the_numbers_of_the_public_functions(measured, trained):
    digits = load_images("digits")
    splits = Splits(len(digits))
    train, held_out = (torch.from_numpy(digits.images[part]) for part in (splits.subset(200), splits.held_out))
    network = load_denoiser(trained)
    sigmas = [20.0, 1.0, 0.1]
    curve = linearity(network, held_out, sigmas, affine=True, count=10)
    found = chosen(measured, "linearity_cosine", affine=True, on="held_out", denoiser="network")
    assert [r["value"] for r in found] == pytest.approx(curve.values.tolist(), abs=1e-6)
    assert [r["low"] for r in found] == pytest.approx(curve.low.tolist(), abs=1e-5)
    references = {"gaussian": GaussianDenoiser(Moments.fit(train)), "multidelta": MultiDeltaDenoiser(train)}
    for name, reference in references.items():
        curve = gap(network, reference, train, sigmas, count=10)
        found = chosen(measured, "rmse", on="train", denoiser="network", reference=name)
        assert [r["value"] for r in found] == pytest.approx(curve.values.tolist(), abs=1e-5)
        assert {r["count"] for r in found} == {10}


def test_controls_are_what_theory_says(measured):
    for record in chosen(measured, "linearity_cosine", affine=True, denoiser="gaussian"):
        assert record["value"] == pytest.approx(1, abs=1e-5)
    (copies,) = chosen(measured, "memorized_fraction", denoiser="multidelta")
    (copied,) = chosen(measured, "gl", denoiser="multidelta")
    assert copies["value"] == 1
    assert copied["value"] < 0.01
    for record in chosen(measured, "fvu", on="train"):
        assert 0 <= record["value"] <= 1
    assert all(record["value"] == 0 for record in chosen(measured, "duplicates"))
    same = chosen(measured, "agreement_correlation", noise="same", reference="gaussian")[0]["value"]
    assert same > chosen(measured, "agreement_correlation", noise="shuffled", reference="gaussian")[0]["value"]


def test_a_table_and_where_the_records_are(measured, trained, capsys, monkeypatch):
    monkeypatch.setattr("gausslens.evaluation.measure.MeasureContext", None)  # all is there; nothing may be computed
    code, out, err = command(capsys, "measure", trained, *FAST)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "least affine linearity"
    assert "[" in lines[1]
    assert lines[-2] == "held-out images that repeat a training image: 0 exact, 0 near, of 359"
    assert lines[-1] == f"{len(measured.records())} records of {trained} are in {measured.path}/records.jsonl"


def test_what_was_interrupted_is_taken_again_and_the_rest_is_not(measured, trained, tmp_path, capsys, monkeypatch):
    runs = shutil.copytree(trained.parent, tmp_path / "runs")
    path = runs / measured.path.name / "records.jsonl"
    records = measured.records()
    half = [r for r in records if r["measure"] != "gap"] + [r for r in records if r["measure"] == "gap"][:5]
    path.write_text("".join(json.dumps(record) + "\n" for record in half) + '{"quantity": "cut sh')
    for name in MEASURES:
        if name != "gap":
            monkeypatch.setitem(TAKE, name, None)
    assert command(capsys, "measure", runs / trained.name, *FAST)[0] == 0

    def numbers(records):
        return sorted(json.dumps(record) for record in records if record["quantity"] != "seconds")

    assert numbers(Run.open(path.parent).records()) == numbers(records)


def test_only_some_and_other_options_are_other_results(trained, tmp_path, capsys):
    words = ("measure", trained, "--only", "identity_gap,duplicates", "--out", tmp_path, *FAST)
    assert command(capsys, *words)[0] == 0
    assert command(capsys, *words, "--seed", "1")[0] == 0
    runs = [Run.open(path) for path in tmp_path.iterdir()]
    assert len(runs) == 2
    assert all({r["measure"] for r in run.records()} == {"identity_gap", "duplicates"} for run in runs)


def test_fewer_images_than_asked_for_are_told(trained, tmp_path, capsys):
    words = ("measure", trained, "--only", "gap", "--out", tmp_path, *FAST, "--sigmas", "1", "--count")
    assert command(capsys, *words, 200)[2] == ""
    _, _, err = command(capsys, *words, 300)
    assert err.startswith("There are fewer images than --count 300: 200 (200). Each image is used with several draws")
    (run,) = [run for run in map(Run.open, tmp_path.iterdir()) if run.settings["count"] == 300]
    assert {record["count"] for record in chosen(run, "rmse", on="train")} == {200}
    assert {record["count"] for record in chosen(run, "rmse", on="held_out")} == {300}
    assert not (run.path / "snapshots").exists()


def test_labels_are_given_to_everyone(tmp_path, capsys):
    run = train_tiny(tmp_path, "--labels")
    code, _, err = command(capsys, "measure", run, *FAST, "--sigmas", "1")
    assert (code, err) == (0, "")
    (folder,) = tmp_path.glob("measure-*")
    measured = Run.open(folder)
    assert {record["on"] for record in chosen(measured, "rmse")} == {"train", "held_out"}
    assert chosen(measured, "memorized_fraction", denoiser="multidelta")[0]["value"] == 1


def test_a_network_of_one_noise_level_is_measured_there(tmp_path, capsys):
    run = train_tiny(tmp_path, "--sigma", "0.5", "--held-out", "0")
    words = ("measure", run, "--count", 10, "--calls", 300, "--cpu")
    assert command(capsys, *words)[0] == 0
    (folder,) = tmp_path.glob("measure-*")
    assert {record["sigma"] for record in Run.open(folder).records() if "sigma" in record} == {0.5}
    code, _, err = command(capsys, *words, "--sigmas", "1")
    assert code == 2
    assert "trained for sigma = 0.5 alone" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--only", "beauty"], "only must be among duplicates, "),
        (["--sigmas", "1,-2"], "sigmas must be above 0 and finite"),
        (["--kimg", "7"], "has no snapshot at 7 kimg"),
        (["--data", "fashion"], "of other content"),
        (["--samples", "1"], "samples must be an integer of at least 2; got 1."),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, trained, tmp_path, capsys):
    code, out, err = command(capsys, "measure", trained, "--out", tmp_path, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_dry_run_prints_the_options_with_what_follows_from_the_run(trained, tmp_path, capsys):
    words = ("measure", trained, "--only", "identity_gap", "--out", tmp_path, "--cpu")
    code, out, err = command(capsys, *words, "--dry-run")
    resolved = json.loads(out)
    assert (code, resolved["only"], resolved["kimg"], resolved["data"]) == (0, ["identity_gap"], 1.6, "digits")
    assert (len(resolved["sigmas"]), resolved["sigmas"][0], resolved["calls"]) == (10, 80, 640)
    assert not list(tmp_path.iterdir())
    command(capsys, *words)
    (folder,) = tmp_path.iterdir()
    assert err == f"The records would be in {folder}/records.jsonl\n"
    taken = {record["sigma"] for record in Run.open(folder).records() if "sigma" in record}
    assert sorted(taken, reverse=True) == pytest.approx(resolved["sigmas"])


@pytest.mark.parametrize("words", [("--data", "nowhere"), ("--data", "fashion"), ("--kimg", "7")])
def test_a_dry_run_refuses_what_is_not_there_as_measuring_does(words, trained, tmp_path, capsys):
    words = ("measure", trained, *words, "--out", tmp_path, "--cpu")
    told = command(capsys, *words, "--dry-run")
    assert told[0] == 2
    assert told == command(capsys, *words)


def test_a_run_on_mirror_images_has_no_copy_test_and_all_references(tmp_path, capsys):
    run = train(
        TrainConfig("digits", split="s1:24", width=8, kimg=0.2, batch=32, flip=True, cpu=True, out=str(tmp_path))
    )
    assert command(capsys, "measure", run.path, *FAST, "--only", "gap,memorization")[0] == 0
    (folder,) = tmp_path.glob("measure-*")
    records = Run.open(folder).records()
    found = {record["quantity"] for record in records}
    assert "memorized_fraction" in found
    assert "copy_test_p" not in found
    assert any(record.get("reference") == "gaussian_full" for record in records)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*held-out images are of classes:UserWarning")
def test_classes_without_a_training_image_are_left_out(tmp_path, capsys):
    run = train(
        TrainConfig("digits", split="s1:6", width=8, kimg=0.2, batch=32, labels=True, cpu=True, out=str(tmp_path))
    )
    assert command(capsys, "measure", run.path, *FAST, "--only", "gap")[0] == 0
    audited = ("--samples", "20", "--count", "10", "--noises", "2", "--sigmas", "4,1,0.3", "--cpu", "--out", tmp_path)
    assert command(capsys, "audit", run.path, *audited)[0] == 0
