"""Agreement of two models' samples: the numbers are those of the measure, and the tags those of both models."""

import pytest
import torch

from gausslens.experiments.graph import run_tasks
from gausslens.experiments.task import Task, TaskContext, TaskStore, task
from gausslens.generation import generate
from gausslens.measures.agreement import agreement
from gausslens.paper.tasks.agreement import compare_samples

DENOISERS = ("network", "multidelta", "gaussian")


@task("pretend_samples", version=1)
def pretend_samples(context: TaskContext):
    """Samples of a model that nobody trained."""
    seed = context.options["seed"]
    generator = torch.Generator().manual_seed(seed)
    images = {name: torch.randint(256, (9, 1, 8, 8), generator=generator).byte() for name in DENOISERS}
    if context.options.get("untrained"):
        images["network"] = generate(lambda x, sigma: x * 0.25 / (0.25 + sigma[:, None, None, None] ** 2), (1, 8, 8), 9)
    context.save_arrays(**images)
    yield {"quantity": "gl", "value": 1.0, "n": 16, "seed": seed, "network": "unet", "kimg": 4.0 + seed}


@pytest.fixture(name="pair", scope="module")
def compare_a_pair(tmp_path_factory):
    return compared(tmp_path_factory.mktemp("cells"))


def compared(folder, **options):
    sides = tuple(Task(pretend_samples, {"seed": seed, **options}) for seed in (0, 1))
    pair = Task(compare_samples, {}, sides)
    outcome = run_tasks([pair], folder, on="here")
    assert not outcome.failed, outcome.failed
    store = TaskStore(folder)
    return [store.result(side).arrays for side in sides], store.result(pair).records


def test_the_numbers_are_those_of_the_measure(pair):
    (first, second), records = pair
    found = {(r["denoiser"], r["noise"], r["quantity"]): r for r in records}
    copies = first["multidelta"], second["multidelta"]
    expected = agreement(first["network"], second["network"], multi_delta=copies)
    for noise, likeness in (
        ("same", expected.same_noise),
        ("shuffled", expected.shuffled),
        ("excess", expected.excess),
    ):
        for name in ("rmse", "nmse", "correlation", "ssim"):
            record = found["network", noise, f"agreement_{name}"]
            estimate = getattr(likeness, name)
            assert (record["value"], record["low"], record["high"]) == (estimate.value, estimate.low, estimate.high)
            assert record["count"] == 9
    excess = found["network", "same", "agreement_correlation"]["value"]
    excess -= found["multidelta", "same", "agreement_correlation"]["value"]
    assert found["network", "excess", "agreement_correlation"]["value"] == pytest.approx(excess)
    layout = agreement(first["gaussian"], second["gaussian"]).same_noise.correlation.value
    assert found["gaussian", "same", "agreement_correlation"]["value"] == layout


def test_networks_that_have_learned_nothing_agree_and_the_control_says_why(tmp_path):
    for untrained, expected in ((True, 1.0), (False, 0.0)):
        _, records = compared(tmp_path / str(untrained), untrained=untrained)
        network = [r for r in records if (r["quantity"], r["denoiser"]) == ("agreement_correlation", "network")]
        found = {r["noise"]: r["value"] for r in network}
        assert found["itself"] == pytest.approx(expected, abs=0.15 if expected == 0 else 0.02)
        assert found["shuffled"] < 0.2
        assert (found["same"] > 0.9) == untrained


def test_records_say_what_the_models_have_in_common(pair):
    _, records = pair
    assert compare_samples.task.version == 1
    for record in records:
        assert (record["n"], record["network"]) == (16, "unet")
        assert not {"kimg", "seed"} & set(record)  # these differ
