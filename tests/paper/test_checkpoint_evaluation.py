"""What is seen of a snapshot: the same numbers as the measures give, and samples with their nearest training images."""

import pytest
import torch

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, gap, karras_sigmas, load_denoiser
from gausslens.evaluation.model_tasks import run_of
from gausslens.evaluation.references import load_run_images
from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import TaskStore
from gausslens.paper.config import StudyConfig
from gausslens.paper.run import plan_study
from gausslens.paper.tasks.one_model import checkpoint_task

TIME = 0.5


@pytest.fixture(name="looks", scope="module")
def look_both_ways(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    plan = plan_study(StudyConfig("digits", kimg=2.0, early=TIME, width=8, count=12, samples=8, cpu=True))
    model = plan.model(plan.sizes[0], 0)
    tasks = [checkpoint_task(plan, model, TIME), plan.sampled(model, kimg=TIME), model]
    outcome = run_tasks(tasks, folder, on="here")
    assert not outcome.failed, outcome.failed
    return [TaskStore(folder).result(task) for task in tasks]


def test_gaps_are_those_of_the_snapshot_on_held_out_images(looks):
    seen, _, model = looks
    run = run_of(model)
    images, network = load_run_images(run), load_denoiser(run, kimg=TIME)
    references = {
        "gaussian": GaussianDenoiser(Moments.fit(images.train)),
        "multidelta": MultiDeltaDenoiser(images.train),
        "gaussian_full": GaussianDenoiser(Moments.fit(images.available)),
    }
    gaps = [record for record in seen.records if record["quantity"] == "rmse"]
    assert len(gaps) == 30
    for name, reference in references.items():
        curve = gap(network, reference, images.held_out, karras_sigmas(10), count=12, dtype=torch.float32)
        found = {record["sigma"]: record for record in gaps if record["reference"] == name}
        assert [found[sigma]["value"] for sigma in curve.sigmas.tolist()] == pytest.approx(
            curve.values.tolist(), rel=1e-4
        )
        for record in found.values():
            assert (record["n"], record["kimg"], record["on"], record["denoiser"]) == (10, TIME, "held_out", "network")


def test_copies_are_counted_as_for_the_finished_model(looks):
    seen, sampled, _ = looks
    counted = [record for record in seen.records if record["quantity"] != "rmse"]
    assert counted == [record for record in sampled.records if record["denoiser"] == "network"]
    assert {record["quantity"] for record in counted} >= {"gl", "relative_gl", "memorized_fraction"}


def test_samples_are_those_of_the_snapshot(looks):
    seen, sampled, _ = looks
    for name in ("network", "nearest"):
        assert torch.equal(seen.arrays[name], sampled.arrays[name])
