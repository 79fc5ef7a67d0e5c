"""The scripts behind docs/reproduce.md: what travels between machines, and what stays published."""

import importlib.util
import json
import math
import shutil
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from gausslens.atomic_files import load_tensors, save_tensors
from gausslens.experiments.archive import TaskArchive
from gausslens.experiments.task import ARRAYS
from gausslens.paper.claims import judge
from gausslens.paper.claims.evidence import Evidence
from gausslens.paper.config import STUDIES, StudyConfig
from gausslens.paper.registry import find_study
from gausslens.paper.run import findings_of, open_study, plan_study, tasks_of
from gausslens.paper.studies.distillation import SHOWN_SIGMA
from gausslens.paper.tasks.denoised_outputs import denoised_outputs_task
from gausslens.report import ImageGrid, NoiseSlider
from gausslens.report.drawings import draw_svg
from gausslens.store.run import Run

sys.path += [str(Path(__file__).parents[1] / "commands")]
from copy_finished import MOST_IMAGES
from small_studies import findings_in, small_plan
from tables import by_size, claims, figures, longer_training, scale

COMMANDS = Path(__file__).resolve().parents[1] / "commands"
RESULTS = COMMANDS.parent / "results"
SAMPLES = ("network", "gaussian", "multidelta", "nearest")


def _load(name):
    spec = importlib.util.spec_from_file_location(f"command_{name}", COMMANDS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _finish(folder, name, value, **told):
    task = folder / "cells" / name
    task.mkdir(parents=True)
    (task / "records.jsonl").write_text(json.dumps({"quantity": "sum", "value": value}) + "\n")
    (task / "done.json").write_text(json.dumps({"options": {}, "seconds": 1.0, **told}))
    (task / "weights.safetensors").write_bytes(b"large")


def test_a_parcel_holds_what_is_new_and_no_weights(tmp_path):
    runs, published = tmp_path / "runs", tmp_path / "results"
    for folder in (runs, published):
        _finish(folder, "old-0a1b", 1, partial=True)
    _finish(runs, "new-2c3d", 2)
    _finish(runs, "others-4e5f", 3)
    parcel = tmp_path / "parcel.tar"
    _load("reproduce").pack(runs, published, parcel, {"old-0a1b", "new-2c3d"})
    with tarfile.open(parcel) as archive:
        assert sorted(archive.getnames()) == ["cells/new-2c3d/done.json", "cells/new-2c3d/records.jsonl"]


@pytest.mark.parametrize("images", [MOST_IMAGES, 40])
def test_a_parcel_holds_as_many_images_as_are_asked_for(images, tmp_path):
    runs, parcel = tmp_path / "runs", tmp_path / "parcel.tar"
    _finish(runs, "samples-0a1b", 1)
    samples = {"network": torch.zeros(40, 1, 8, 8, dtype=torch.uint8)}
    save_tensors(runs / "cells" / "samples-0a1b" / "arrays.safetensors", samples, kind=ARRAYS)
    _load("reproduce").pack(runs, tmp_path / "results", parcel, {"samples-0a1b"}, images)
    with tarfile.open(parcel) as archive:
        archive.extractall(tmp_path / "here", filter="data")
    brought, _ = load_tensors(tmp_path / "here" / "cells" / "samples-0a1b" / "arrays.safetensors", kind=ARRAYS)
    assert len(brought["network"]) == images


@pytest.mark.parametrize("shown", [0, 1, 2])
def test_seed_by_seed_everything_is_done_once(shown):
    plan = plan_study(StudyConfig("digits", only=("distillation", "capacity", "strong"), shown=shown))
    plan = replace(plan, sweep_seeds=plan.seeds)
    by_seed = [{task.identity for task in _load("reproduce").tasks_of_seed(plan, seed)} for seed in range(3)]
    assert set().union(*by_seed) == {task.identity for task in tasks_of(plan)}
    assert sum(map(len, by_seed)) == len(set().union(*by_seed))
    pictures = denoised_outputs_task(
        plan, plan.model(plan.sizes[-1], shown), denoisers=("network", "gaussian"), sigmas=(SHOWN_SIGMA,), pictures=3
    )
    assert [pictures.identity in tasks for tasks in by_seed] == [seed == shown for seed in range(3)]


@pytest.mark.parametrize("grid", ["cifar10", "celeba64"])
def test_the_options_of_a_grid_are_those_of_a_study(grid, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce.py", grid, "--print"])
    _load("reproduce").main()
    told = capsys.readouterr().out
    assert "--network ncsnpp" in told
    assert "--full" in told


def test_a_trend_is_followed_to_the_length_of_published_trainings():
    """RMSE = a + b·log₂ kimg of three trainings, and a level at which it falls below zero on the way."""
    plan = replace(small_plan("time", seeds=3), name="cifar10", kimg=512.0)
    tags = {"study": "time", "on": "held_out", "denoiser": "network", "reference": "gaussian", "n": plan.sizes[-1]}
    growths, records = (0.002, 0.003, 0.004), []
    for seed, growth in enumerate(growths):
        for sigma, sign in ((1.5, 1), (4.0, -6)):
            own = {**tags, "seed": seed, "sigma": sigma}
            records.append({**own, "quantity": "ev", "kimg": 512.0, "value": 0.95})
            for kimg in plan.times:
                value = 0.09 + sign * growth * math.log2(kimg / 512) + (kimg < 64)  # what is early does not count
                records.append({**own, "quantity": "rmse", "kimg": kimg, "value": value})
    *_, growing, falling, end = longer_training(plan, Evidence(records))
    assert end == ""
    ends = [1 - 0.05 * ((0.09 + growth * math.log2(200_000 / 512)) / 0.09) ** 2 for growth in growths]
    step = "0.0030 [0.0005, 0.0055]"
    assert growing.startswith(f"| 1.5 | 0.950 | {step} | {step} | {step} | {sum(ends) / 3:.3f} [")
    assert growing.endswith("| 0.923 at 1 and 0.913 at 2 |")
    assert "| -0.0180 [" in falling
    assert falling.endswith("| no line: it ends below 0 | 0.942 at 5 |")
    *_, alone, _, _ = longer_training(plan, Evidence(records).where(seed=1))
    assert alone.startswith(f"| 1.5 | 0.950 | 0.0030 | 0.0030 | 0.0030 | {ends[1]:.3f} | ")
    seldom = [record for record in records if record["kimg"] != 256.0]
    assert not any(list(longer_training(plan, Evidence(fewer))) for fewer in (seldom, []))


def _sampled(plan, folder, value=None):
    """A study of samples of models that were never trained, as a parcel brings it: without weights."""
    shutil.rmtree(folder, ignore_errors=True)
    run = open_study(plan, folder)
    for number, part in enumerate(find_study("size").parts(plan)):
        if part.key.startswith("samples of"):
            _finish(folder, part.task.name, value or number, partial=True)
            draws = torch.Generator().manual_seed(value or number)
            samples = {
                name: torch.randint(1, 256, (40, 1, 8, 8), dtype=torch.uint8, generator=draws) for name in SAMPLES
            }
            save_tensors(folder / "cells" / part.task.name / "arrays.safetensors", samples, kind=ARRAYS)
    return run


def test_an_archive_draws_the_figures_of_the_tasks_and_holds_only_the_images_that_they_show(tmp_path):
    publish, plan = _load("publish"), small_plan("size", seeds=1)
    results = tmp_path / "results"
    run = _sampled(plan, tmp_path / "runs")
    for _ in range(2):  # again, nothing changes
        publish.add_to_archive(run, results)
        drawn = [find_study("size").draw(found) for study in (run, Run.open(results)) for found in findings_of(study)]
        (before,), (after,) = drawn
        assert draw_svg(before) == draw_svg(after)
    archive = TaskArchive(results)
    assert archive.names()
    for name in archive.names():
        shown = archive.find(name).arrays
        assert {key: len(array) for key, array in shown.items()} == dict.fromkeys(
            ("network", "gaussian", "nearest"), MOST_IMAGES
        )
        assert [bool(image.any()) for image in shown["network"]] == [index < 10 for index in range(MOST_IMAGES)]


def test_pictures_of_a_model_that_was_trained_again_do_not_replace_those_that_were_measured(tmp_path):
    publish, plan = _load("publish"), small_plan("size", seeds=1)
    shown = []
    for value in (1, 2):
        publish.add_to_archive(_sampled(plan, tmp_path / "runs", value), tmp_path / "results")
        archive = TaskArchive(tmp_path / "results")
        shown += [[archive.find(name).arrays["network"].tolist() for name in archive.names()]]
    assert shown[0] == shown[1]


def test_a_machine_that_was_asked_for_less_takes_nothing_from_what_is_published(tmp_path, monkeypatch):
    """Its tasks of the other studies are published as well."""
    publish, plan = _load("publish"), small_plan("size", seeds=1)
    runs, results, docs = tmp_path / "runs", tmp_path / "results", tmp_path / "docs"
    docs.mkdir()
    (docs / "reproduce.md").write_text("\n".join(["Text before.", publish.BEGIN, publish.END, "Text after."]))
    monkeypatch.setattr(publish, "RESULTS", results)
    monkeypatch.setattr(publish, "DOCS", docs)
    publish.add_to_archive(
        open_study(replace(plan, studies=("size", "time")), tmp_path / "others"), results / plan.name
    )
    run, task = open_study(plan, runs), [*find_study("time").parts(plan)][-1].task
    _finish(runs, task.name, 1)
    monkeypatch.setattr(sys, "argv", ["publish", str(run.path)])
    publish.main()
    assert TaskArchive(results / plan.name).is_done(task)
    assert "| time" in (docs / "tables" / f"{plan.name}.md").read_text()
    before, *table, after = (docs / "reproduce.md").read_text().splitlines()
    assert (before, after) == ("Text before.", "Text after.")
    assert any(line.startswith("| **C1**") for line in table)


def test_few_studies_are_told_with_their_own_claims_and_figures(tmp_path):
    def told(*studies):
        plan = replace(small_plan("time"), studies=studies)
        found = [findings_in(plan, name, tmp_path) for name in studies]
        lines = [*claims(plan, judge([])), *figures(plan, found, Evidence([]), [])]
        return [
            line.split("|")[1].split()[0].strip("*") for line in lines if line.startswith(("| **C", "| 8 ", "| 9 "))
        ]

    assert told("time", "capacity") == ["C11", "C12", "C13", "8"]
    assert told(*STUDIES) == [*(f"C{number}" for number in range(1, 22)), "8", "9"]


def test_figures_are_said_to_be_of_what_there_is():
    """Of the widths, sizes and pairs that are planned."""
    plan = small_plan("capacity")

    def told(study, *records):
        return scale(plan, Evidence(records), study, 9)

    widths = [{"n": plan.few, "width": width} for width in (16, 4)]
    assert told("capacity", *widths, {"n": plan.few + 1, "width": 8}) == f"N = {plan.few}, widths 4, 16"
    assert told("time", {"n": 300}, {"n": 20}, {"n": 20}).startswith("N = 20 and 300, ")
    both = f"{plan.sizes[0]} + {plan.sizes[0]}"
    assert told("strong", {"role": "early", "noise": "same"}) == f"{both} after {plan.early:g} thousand images"
    assert scale(plan, Evidence([{"method": "adam", "epoch": 7}]), "distillation", 4).endswith("; Adam, 7 epochs")


def test_numbers_are_told_size_by_size():
    plan, records = small_plan("size"), []
    for n, level in ((10, 0.8), (40, 0.9), (160, 0.95)):
        for seed in (0, 1):
            tags = {"n": n, "seed": seed, "denoiser": "network", "count": 100}
            for sigma in (1.0, 4.0):
                curve = {**tags, "study": "linearity", "quantity": "linearity_cosine", "on": "held_out", "sigma": sigma}
                for affine in (True, False):
                    value = level + 0.02 * seed + 0.01 * (sigma > 1) + 0.03 * (not affine)
                    records.append({**curve, "affine": affine, "value": value})
                records.append({**curve, "affine": True, "alpha": 0.9, "value": 0.1})  # not of equal weights
            for quantity, value in (("gl", level / 2), ("relative_gl", level), ("memorized_fraction", 0.01 * seed)):
                records.append(
                    {**tags, "study": "size", "quantity": quantity, "value": value + 0.02 * seed * (value < 0.5)}
                )
    *_, smallest, _, largest, end = by_size(plan, Evidence(records))
    assert end == ""
    assert smallest.startswith("| 10 | 2 | 0.810 [0.683, 0.937] | 0.840 [0.713, 0.967] | 0.410 [")
    assert largest.startswith("| 160 | 2 | 0.960 [0.833, 1.000] | 0.990 [0.863, 1.000] | 0.485 [")
    assert not list(by_size(plan, Evidence(records).where(n=(10, 40))))


def test_an_open_verdict_says_why():
    tags = {"study": "time", "n": 20, "seed": 0}
    (verdict,) = (verdict for verdict in judge([{"quantity": "loss", "value": 1.0, **tags}]) if verdict.claim == "C16")
    known = replace(verdict, reason="3 seeds needed", statistics=(replace(verdict.statistic, value=1.0),))
    plan = replace(small_plan("strong"), studies=("strong",))
    assert any(line.endswith("| **not enough evidence**: 3 seeds needed |") for line in claims(plan, [known]))
    assert not any("3 seeds" in line for line in claims(plan, [replace(known, statistics=verdict.statistics)]))


def test_a_task_knows_the_networks_and_training_sets_that_it_needs():
    of_models = _load("reproduce").of_models
    plan = small_plan("networks")
    pair = next(part.task for part in find_study("networks").parts(plan) if part.key == "ncsnpp and adm, seed 0")
    assert of_models(pair, "network") == {"ncsnpp", "adm"}
    assert of_models(pair, "width") == {"16"}
    assert len(of_models(pair, "split")) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "study", sorted(path.parent for path in RESULTS.glob("*/tasks.json")), ids=lambda path: path.name
)
def test_what_is_published_follows_from_its_records(study, tmp_path, monkeypatch):
    """Writing the documents again changes neither tables nor verdicts nor figures."""
    publish = _load("publish")
    results, docs, published = tmp_path / "results", tmp_path / "docs", COMMANDS.parent / "docs"
    shutil.copytree(RESULTS, results)
    docs.mkdir()
    shutil.copy(published / "reproduce.md", docs)
    monkeypatch.setattr(publish, "RESULTS", results)
    monkeypatch.setattr(publish, "DOCS", docs)
    monkeypatch.setattr(sys, "argv", ["publish", str(results / study.name)])
    publish.main()
    written = {str(path.relative_to(docs)) for path in docs.rglob("*") if path.is_file()}
    drawn = {f"figures/{shown}.svg" for shown in publish.KEY_FIGURES.get(study.name, {}).values()}
    assert written == {"reproduce.md", f"tables/{study.name}.md", *drawn}
    assert all((docs / path).read_text() == (published / path).read_text() for path in written)
    assert (results / study.name / "verdicts.jsonl").read_text() == (study / "verdicts.jsonl").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "study", sorted(path.parent for path in RESULTS.glob("*/tasks.json")), ids=lambda path: path.name
)
def test_figures_show_only_images_that_are_published(study):
    """Others are black in an archive."""
    grids = [
        figure.images
        for found in findings_of(Run.open(study))
        for figure in find_study(found.study).draw(found)
        if isinstance(figure, ImageGrid | NoiseSlider)
    ]
    assert grids
    for images in grids:
        assert images.any(axis=(-3, -2, -1)).all()
