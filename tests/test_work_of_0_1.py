"""Work that 0.1 did opens, goes on and reports: nothing that it finished is computed again.

`fixtures/0.1/README.md` says what the work is and how it was made. Everything here goes through `python -m gausslens`
and public names, so that it holds wherever the code lives.
"""

import json
import runpy
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import gausslens
from gausslens.store.records import with_current_names

FIXTURE = Path(__file__).parent / "fixtures" / "0.1"
EXPECTED = json.loads((FIXTURE / "expected.json").read_text())
COMMANDS, FOLDERS = EXPECTED["commands"], EXPECTED["folders"]
RUNS = Path("runs")
NOTES = {"config.json", "manifest.json", "provenance.json"}  # which a session may add to
PAGE = "report.html"
CLOSE = 1e-3  # relative: trained for fifty steps on another machine


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A copy of the work, as the current folder."""
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(FIXTURE, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")


@pytest.fixture
def do(capsys, monkeypatch):
    """A function that runs a command, sees that it succeeds and begins no other run, and returns what it prints."""

    def run(*words):
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["gausslens", *words])
        with pytest.raises(SystemExit) as end:
            runpy.run_module("gausslens", run_name="__main__")
        output = capsys.readouterr()
        assert end.value.code == 0, output.err
        assert {folder.name for folder in RUNS.iterdir()} == {"cells", *FOLDERS.values()}
        return output.out

    return run


def run_of(name):
    return gausslens.Run.open(RUNS / FOLDERS[name])


def files_of(folder, *, but=NOTES):
    """Content and time of the files in a folder, but for those of some names."""
    paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file() and path.name not in but]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def finished_tasks():
    return {path.parent.name for path in RUNS.glob("cells/*/done.json")}


def check_kept(before):
    """Every file of 0.1 is as it was, not even written again."""
    assert before
    now = files_of(RUNS, but=())
    changed = [path for path, (content, time) in before.items() if now.get(path) != (content, time)]
    assert changed == []


def mean_squares(run):
    """As the fixture's script computes it."""
    images = torch.from_numpy(np.load("images.npy")[:3]).float() / 127.5 - 1
    network = gausslens.load_denoiser(run.path, device="cpu")
    sigmas = (10.0, 1.0, 0.1)
    return {str(sigma): float(network(images, torch.full((3,), sigma)).square().mean()) for sigma in sigmas}


def check_close(numbers, known):
    """Numbers by name are those of 0.1, up to rounding; None is one that could not be told."""
    assert numbers.keys() == known.keys()
    for name, value in known.items():
        assert numbers[name] == (value if value is None else pytest.approx(value, rel=CLOSE)), name


def check_verdicts(text, expected):
    """The verdicts that `report --json` prints are those of 0.1, and their numbers."""
    claims = {claim["claim"]: claim for claim in json.loads(text)["claims"]}
    for name, known in expected.items():
        assert claims[name]["verdict"] == known["verdict"], name
        numbers = {number: claims[name]["statistic"][number] for number in ("value", "low", "high")}
        check_close(numbers, {number: known[number] for number in numbers})


@pytest.mark.parametrize("name", FOLDERS)
def test_every_folder_opens(name, work):
    run = run_of(name)
    assert run.verb == ("train" if name == "resume" else name)
    assert run.identity == EXPECTED["identities"][name]
    assert run.settings
    assert {session["gausslens"] for session in run.provenance["sessions"]} == {EXPECTED["gausslens"]}
    assert bool(run.records()) == (name != "study")  # a study's are collected from its tasks
    assert all({"quantity", "value"} <= record.keys() for record in run.records())


def test_a_trained_network_answers_as_it_did(work):
    run = run_of("train")
    assert (run.config.split, run.config.kimg, run.snapshots, run.is_finished) == ("64", 60.0, [60.0], True)
    assert mean_squares(run) == pytest.approx(EXPECTED["network"]["train"], rel=CLOSE)


@pytest.mark.parametrize("name", ["train", "measure"])
def test_finished_work_is_found(name, work, do):
    before = files_of(RUNS)
    do(*COMMANDS[name])
    check_kept(before)
    assert len(run_of(name).provenance["sessions"]) == 1  # nothing was to be done


def test_a_trained_network_is_found_when_its_images_have_moved(work, do):
    Path("elsewhere").mkdir()
    Path("images.npy").rename("elsewhere/images.npy")
    before = files_of(RUNS)
    do(*(word.replace("images.npy", "elsewhere/images.npy") for word in COMMANDS["train"]))
    do(*COMMANDS["measure"], "--data", "elsewhere/images.npy")
    check_kept(before)


def test_training_goes_on_to_the_end_that_it_would_have_had(work, do):
    before, kept = files_of(RUNS / FOLDERS["resume"] / "snapshots"), run_of("resume").records()
    do(*COMMANDS["resume"])
    run = run_of("resume")
    check_kept(before)
    assert run.is_finished
    assert run.snapshots == [0.8, 1.6]
    assert run.records()[: len(kept)] == kept
    sessions = run.provenance["sessions"]
    assert [session["first_step"] for session in sessions] == [0, EXPECTED["stopped_at_step"]]
    repeatable = {record["quantity"] for record in EXPECTED["losses"]}
    losses = [record for record in run.records() if record["quantity"] in repeatable]
    assert len(losses) == len(EXPECTED["losses"])
    for record, unbroken in zip(losses, EXPECTED["losses"], strict=True):
        assert record.pop("value") == pytest.approx(unbroken["value"], rel=CLOSE)
        assert unbroken.items() >= record.items()
    assert mean_squares(run) == pytest.approx(EXPECTED["network"]["resume"], rel=CLOSE)


def test_measuring_adds_a_measure_to_those_that_are_there(work, do):
    before = run_of("measure").records()
    words = [*COMMANDS["measure"]]
    words[words.index("--only") + 1] += ",identity_gap"
    do(*words)
    run = run_of("measure")
    assert run.records()[: len(before)] == before
    assert {record["measure"] for record in run.records()[len(before) :]} == {"identity_gap"}
    assert len(run.provenance["sessions"]) == 2


def test_an_audit_is_found_and_its_page_is_written(work, do):
    before = files_of(RUNS)
    found = json.loads(do(*COMMANDS["audit"], "--json"))
    check_kept(before)
    assert {name: found[name] for name in EXPECTED["audit"]} == EXPECTED["audit"]
    assert "Partly memorizing" in (RUNS / FOLDERS["audit"] / PAGE).read_text()


def test_an_audit_that_was_stopped_goes_on(work, do):
    path = RUNS / FOLDERS["audit"] / "records.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    left = [record for record in records if record["stage"] != records[-1]["stage"]]
    assert 0 < len(left) < len(records)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in left))
    samples = files_of(path.parent, but={*NOTES, path.name})
    found = json.loads(do(*COMMANDS["audit"], "--json"))
    check_kept(samples)
    assert run_of("audit").records()[: len(left)] == [with_current_names(record) for record in left]
    assert found["copying"] == EXPECTED["audit"]["copying"]
    assert found["verdict"] == EXPECTED["audit"]["verdict"]


def test_an_answer_to_how_many_is_found(work, do):
    before, tasks = files_of(RUNS / "cells"), finished_tasks()
    known = json.loads((FIXTURE / "runs" / FOLDERS["how-many"] / "answer.json").read_text())
    do(*COMMANDS["how-many"])
    check_kept(before)
    assert finished_tasks() == tasks
    answer = json.loads((run_of("how-many").path / "answer.json").read_text())
    check_close(answer["images_needed"], known["images_needed"])
    for network in known["networks"]:
        network["memorized_fraction"] = network.pop("memorised_fraction")
    assert answer["networks"] == known["networks"]
    assert (run_of("how-many").path / PAGE).exists()


def test_a_study_does_what_is_missing_and_nothing_else(work, do):
    before, tasks = files_of(RUNS / "cells"), finished_tasks()
    do(*COMMANDS["study"])
    check_kept(before)
    assert finished_tasks() - tasks == {EXPECTED["missing"]}
    assert {path.name for path in RUNS.glob("cells/*")} == finished_tasks()
    check_verdicts(do("report", "runs", "--json"), EXPECTED["verdicts"]["after"])


def test_a_study_is_reported_from_what_is_there(work, do):
    before, tasks = files_of(RUNS / "cells"), finished_tasks()
    check_verdicts(do("report", "runs", "--json"), EXPECTED["verdicts"]["before"])
    do("report", "runs")
    check_kept(before)
    assert finished_tasks() == tasks
    page = (run_of("study").path / PAGE).read_text()
    judged = [claim for claim, known in EXPECTED["verdicts"]["before"].items() if known["value"] is not None]
    assert judged
    assert all(claim in page for claim in judged)
