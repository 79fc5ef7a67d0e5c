"""`gausslens study` and `gausslens report`: what is done once, what is added, what is said, and what is written."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from gausslens import Run
from gausslens.cli import main as cli
from gausslens.experiments.archive import open_tasks, save_archive
from gausslens.paper.config import StudyConfig
from gausslens.paper.run import open_study, plan_study

TINY = ("--sizes", "16,48", "--few", "16", "--width", "4", "--kimg", "0.3", "--early", "0.1", "--seeds", "1")
SIZE = ("study", "digits", *TINY, "--count", "8", "--samples", "12", "--only", "size", "--on", "here", "--cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("studies")
    assert cli.main([*SIZE, "--out", str(place)]) == 0
    return place


def the_run(folder):
    (found,) = folder.glob("study-digits-*")
    return Run.open(found)


def finished_at(folder):
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("cells/*/done.json")}


def test_it_leaves_records_and_a_page(folder):
    run = the_run(folder)
    records = run.records()
    assert {record["study"] for record in records} == {"size"}
    assert {record["data"] for record in records} == {"digits"}
    assert {record["n"] for record in records if record["quantity"] == "memorized_fraction"} == {16, 48}
    assert (run.path / "report.html").stat().st_size < 15e6
    assert run.verb == "study"
    assert len(run.provenance["sessions"]) >= 1


def test_the_page_names_no_folder_of_this_machine(folder):
    text = (the_run(folder).path / "report.html").read_text()
    assert str(folder) not in text
    assert os.path.expanduser("~") + "/" not in text


def test_a_second_run_computes_nothing(folder, capsys):
    before = finished_at(folder)
    assert cli.main([*SIZE, "--out", str(folder)]) == 0
    assert finished_at(folder) == before
    assert "report.html" in capsys.readouterr().out


@pytest.mark.slow
def test_a_changed_option_recomputes_only_what_depends_on_it(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    before = finished_at(copy)
    words = [word if word != "8" else "9" for word in SIZE]  # --count
    assert cli.main([*words, "--out", str(copy)]) == 0
    after = finished_at(copy)
    assert {name: after[name] for name in before} == before
    assert not [name for name in after.keys() - before.keys() if name.startswith("train_model")]


def test_dry_run_lists_tasks_with_their_cost_and_does_nothing(tmp_path, capsys):
    assert cli.main([*SIZE, "--out", str(tmp_path), "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert told.count("train_model-") == 2
    assert "split=s1:16" in told
    assert "minutes" in told.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_a_budget_does_the_first_and_says_what_it_left_out(tmp_path, capsys):
    assert cli.main([*SIZE, "--out", str(tmp_path), "--budget", "0.001"]) == 0
    told = capsys.readouterr().out
    assert "left out for lack of time" in told
    assert "--budget" in told
    assert (the_run(tmp_path).path / "report.html").exists()


def test_a_page_of_nothing_says_that_nothing_is_measured(tmp_path, capsys):
    run = open_study(plan_study(StudyConfig("digits", cpu=True)), tmp_path)
    assert cli.main(["report", str(run.path)]) == 0
    assert "none of them has been measured yet" in (run.path / "report.html").read_text()


def test_report_judges_again_from_records(folder, capsys):
    assert cli.main(["report", str(the_run(folder).path)]) == 0
    told = capsys.readouterr().out
    assert "Not measured: " in told
    assert "wrote" in told


def test_a_page_that_cannot_be_written_is_an_error_with_a_way_out(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["report", str(the_run(folder).path), "--page", str(tmp_path / "file" / "page.html")]) == 1
    assert "could not make the folder" in capsys.readouterr().err


def test_report_as_json_has_a_schema_and_every_claim(folder, capsys):
    assert cli.main(["report", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert [claim["claim"] for claim in told["claims"]] == [f"C{number}" for number in range(1, 22)]


def test_studies_of_one_data_set_with_other_plans_are_judged_apart(folder, tmp_path, capsys):
    """And repetitions of one plan together."""
    run = the_run(folder)
    settings = json.loads((run.path / "config.json").read_text())
    for name, changes in (("a", {}), ("b", {"repetition": 1}), ("c", {"kimg": 77.0})):
        copy = tmp_path / f"study-digits-{name}"
        copy.mkdir()
        (copy / "config.json").write_text(json.dumps({**settings, "config": {**settings["config"], **changes}}))
        records = [{**record, "seed": record.get("seed", 0) + 100 * (name == "b")} for record in run.records()]
        (copy / "records.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    seeds = {}
    for claim in json.loads(capsys.readouterr().out)["claims"]:
        most = max(statistic["seeds"] for statistic in claim["statistics"])
        seeds[claim["data"]] = max(most, seeds.get(claim["data"], 0))
    assert all(data.startswith("digits (") for data in seeds)
    once, twice = sorted(seeds.values())
    assert twice == 2 * once > 0


def test_report_on_something_else_says_what_it_is(tmp_path, capsys):
    run = Run.create(tmp_path, "audit", "digits", "0a1b2c3d", {})
    assert cli.main(["report", str(run.path)]) == 2
    assert "this is a run of `gausslens audit`" in capsys.readouterr().err


def test_report_on_a_folder_without_studies_names_those_near_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cifar", "faces"):
        Run.create(f"results/{name}", "study", name, "0a1b2c3d", {})
    Run.create("results/audits", "audit", "digits", "0a1b2c3d", {})

    def told(path):
        assert cli.main(["report", path]) == 2
        return capsys.readouterr().err

    expected = "gausslens: expected the folder of a study, or one that holds some, at"
    assert told("results") == f"{expected} results; it is neither. There are results/cifar, results/faces.\n"
    assert told("results/audits").endswith(
        "at results/audits; it is neither. There are results/cifar, results/faces.\n"
    )
    assert told("results/cifar/tasks").endswith("no such folder. There are results/cifar/study-cifar-0a1b2c3d.\n")
    for name in "abcd":
        Run.create(f"results/{name}", "study", name, "0a1b2c3d", {})
    assert told("results").endswith("results/cifar, results/d and 1 more.\n")
    assert told("results/audits/audit-digits-0a1b2c3d/x").endswith("no such folder. `gausslens study` makes one.\n")


@pytest.mark.slow
def test_a_published_study_is_reported_like_its_tasks(folder, tmp_path, capsys):
    run, published = the_run(folder), tmp_path / "results" / "digits"
    published.mkdir(parents=True)
    save_archive(open_tasks(folder), published)
    for name in ("config.json", "provenance.json"):
        shutil.copy(run.path / name, published)
    pages, judged = [], []
    for path in (run.path, published, published.parent):
        assert cli.main(["report", str(path), "--page", str(tmp_path / "page.html")]) == 0
        pages.append((tmp_path / "page.html").read_text())
        capsys.readouterr()
        assert cli.main(["report", str(path), "--json"]) == 0
        judged.append(capsys.readouterr().out)
    assert pages[0] == pages[1] == pages[2]
    assert judged[0] == judged[1] == judged[2]
    assert cli.main(["report", str(published)]) == 0
    assert (published / "report.html").read_text() == pages[0]
    assert cli.main(["report", str(tmp_path)]) == 2
    assert f"There are {published.parent}" in capsys.readouterr().err


def test_report_without_tasks_still_judges(folder, tmp_path, capsys):
    run = the_run(folder)
    alone = tmp_path / run.path.name
    alone.mkdir()
    for name in ("config.json", "records.jsonl"):
        (alone / name).write_bytes((run.path / name).read_bytes())
    assert cli.main(["report", str(alone)]) == 0
    told = capsys.readouterr()
    assert "are not beside it" in told.err
    assert "verdict" in told.out


@pytest.mark.parametrize("how", ["--no-images", "--blur"])
def test_images_are_withheld_on_request(folder, tmp_path, how):
    plain, page = tmp_path / "plain.html", tmp_path / "page.html"
    assert cli.main(["report", str(the_run(folder).path), "--page", str(plain)]) == 0
    assert cli.main(["report", str(the_run(folder).path), "--page", str(page), how]) == 0
    assert "on this page are training images" in plain.read_text()
    assert "on this page are training images" not in page.read_text()


def test_svg_files_stand_beside_the_page(folder, tmp_path):
    assert cli.main(["report", str(the_run(folder).path), "--page", str(tmp_path / "page.html"), "--svg"]) == 0
    assert len(list((tmp_path / "page").glob("*.svg"))) >= 5


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["study", "digits", "--only", "sise"], "only must be among"),
        (["study", "nowhere"], "nowhere"),
        (["report"], "olders of studies"),
        (["report", "nowhere"], "gausslens study"),
    ],
)
def test_mistakes_are_told_in_one_message(words, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = cli.main(words)
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert told in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_killed_at_any_moment_ends_with_the_same_records(folder, tmp_path):
    words = [*SIZE, "--out", str(tmp_path)]
    words[words.index("here")] = "pool"
    for seconds in (4, 7, 9):
        with subprocess.Popen(
            [sys.executable, "-m", "gausslens", *words], start_new_session=True, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(seconds)
            os.killpg(process.pid, signal.SIGKILL)
    assert subprocess.run([sys.executable, "-m", "gausslens", *words], check=True, capture_output=True).returncode == 0
    wanted, found = ([_plain(record) for record in the_run(place).records()] for place in (folder, tmp_path))
    assert found == wanted


def _plain(record):
    """Without what differs from run to run."""
    return {name: value for name, value in record.items() if record["quantity"] != "seconds" or name != "value"}
