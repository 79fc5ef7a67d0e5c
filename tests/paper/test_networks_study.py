"""The study of architectures: sizes that fit the images, layouts, and claims that find their numbers."""

import pytest
import torch
from small_studies import check_drawing, missing, run_small, small_plan

from gausslens.experiments.task import TaskStore
from gausslens.nn import build_network
from gausslens.paper.architectures import PUBLISHED, architecture
from gausslens.paper.tasks.agreement import lowpass


@pytest.fixture(name="findings", scope="module")
def run_the_study(tmp_path_factory):
    return run_small("networks", tmp_path_factory.mktemp("cells"), seeds=1, kimg=0.5)


@pytest.mark.slow
def test_no_claim_lacks_a_record(findings):
    found = missing(findings, "C2", "C18")
    assert set(found.values()) == {None}
    for first, second in (
        ("ncsnpp", "unet"),
        ("ncsnpp", "adm"),
        ("ncsnpp", "ddpmpp"),
        ("unet", "adm"),
        ("adm", "ddpmpp"),
    ):
        assert f"excess agreement, {first} and {second}" in found
    for name in (*PUBLISHED, "unet"):
        assert f"excess agreement with the Gaussian, blurred, {name}" in found
        assert f"slope of the largest NMSE on log N, {name}" in found


@pytest.mark.slow
def test_every_figure_is_drawn_and_none_from_nothing(findings, tmp_path):
    figures = check_drawing("networks", findings, tmp_path)
    grid = figures["Samples of several architectures from the same initial noise"]
    assert grid.rows[:4] == ("NCSN++ (VE)", "DDPM++ (VP)", "ADM", "small U-Net")
    pairs = figures["Agreement of architectures that share no training image"]
    assert list(pairs.series[0].x) == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_pairs_share_no_image_and_excess_is_over_the_multi_delta_pair(findings):
    alike = findings.evidence.where(quantity="agreement_correlation", network="ncsnpp", reference="adm")
    same, excess = (alike.where(denoiser="network", noise=noise).one().value for noise in ("same", "excess"))
    assert excess == pytest.approx(same - alike.where(denoiser="multidelta").one().value)
    (part,) = [part for part in findings.parts if part.key == "ncsnpp and adm, seed 0"]
    splits = [need.needs[0].options["config"]["split"] for need in part.task.needs]
    assert splits == ["s1:719", "s2:719"]


@pytest.mark.slow
def test_the_layout_control_is_the_multi_delta_denoiser_of_the_same_model(findings):
    (part,) = [part for part in findings.parts if part.key == "layouts of adm, seed 0"]
    arrays = TaskStore(findings.result(part.key).folder.parent).result(part.task.needs[0]).arrays
    flat = {name: lowpass(arrays[name]).flatten(1) for name in ("network", "gaussian", "multidelta")}

    def likeness(name):
        pairs = zip(flat[name], flat["gaussian"], strict=True)
        return torch.stack([torch.corrcoef(torch.stack(pair))[0, 1] for pair in pairs]).mean().item()

    records = findings.evidence.where(quantity="agreement_lowpass_correlation", network="adm", denoiser="network")
    assert records.where(noise="same").one().value == pytest.approx(likeness("network"))
    assert records.where(noise="excess").one().value == pytest.approx(likeness("network") - likeness("multidelta"))


def test_layouts_are_means_over_fields():
    images = torch.randint(0, 256, (3, 2, 8, 8), dtype=torch.uint8)
    fields = lowpass(images)
    assert fields.shape == (3, 2, 4, 4)
    expected = images[1, 1, 2:4, 6:8].double().mean() / 127.5 - 1
    assert fields[1, 1, 1, 3].item() == pytest.approx(expected.item())
    assert lowpass(images.repeat(1, 1, 4, 4)).shape == (3, 2, 8, 8)


@pytest.mark.parametrize("name", PUBLISHED)
def test_reduced_architectures_are_small_and_the_own_is_shared(name):
    plan = small_plan("networks")
    options = plan.model(64, 0, **architecture(plan, name)).options["config"]
    layout_of = {key: options[key] for key in ("width", "multipliers", "blocks", "attention")}
    network = build_network(name, plan.shape, **layout_of)
    assert sum(weight.numel() for weight in network.parameters()) < 500_000
    assert plan.model(64, 0, **architecture(plan, "unet")) == plan.model(64, 0)
    assert architecture(plan, "unet") == {}


@pytest.mark.parametrize(
    ("shape", "multipliers"), [((1, 28, 28), (1, 2)), ((3, 64, 64), (1, 2, 2)), ((3, 25, 40), (1,))]
)
def test_larger_images_keep_the_width_and_are_halved_as_often_as_they_can_be(shape, multipliers):
    from dataclasses import replace

    plan = small_plan("networks")
    training = {"network": "unet", "width": 24, "batch": 128, "learning_rate": 5e-3}
    for name, rate, batch in (("ddpmpp", 1e-3, 128), ("adm", 1e-4, 32)):
        other = replace(plan, shape=shape, training=training)
        options = other.model(64, 0, **architecture(other, name)).options["config"]
        assert (options["width"], tuple(options["multipliers"])) == (24, multipliers)
        assert (options["learning_rate"], options["batch"]) == (rate, batch)
