"""Every example of the gallery runs, with less of everything where it trains, draws its picture, and shows what it says."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "examples"
EXAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))
SMALL = {
    "audit_your_network": {"steps": 150, "samples": 40},
    "distill_two_models": {"calls": (640, 10_240)},
    "linearity_of_exact_denoisers": {"levels": 8},
    "network_between_references": {"kimg": 4.0},
    "solver_order": {"levels": (20, 40)},
    "two_halves_agree": {"kimg": 4.0},
}


def solvers_have_their_order(errors):
    ratios = {solver: few / many for solver, (few, many) in errors.items()}
    assert 1.8 < ratios["euler"] < 2.3
    assert ratios["heun"] > 3.5
    assert ratios["dpmpp_2m"] > 3.5


def only_the_gaussian_is_affine(curves):
    least = [float(curve.values.min()) for curve in curves.values()]
    assert least[0] == pytest.approx(1)
    assert max(least[1:]) < 0.9


def new_images_tell_a_memory_from_the_law(fits):
    many = {name: few[-1] for name, few in fits.items()}
    error = {name: float(fit.weight_error["distillation"]) for name, fit in many.items()}
    floor = float(many["memory, its training images"].weight_error_floor)
    assert error["memory, its training images"] < 1.5 * floor
    assert error["memory, new images"] > 4 * floor
    assert error["law, new images"] < 0.05
    assert float(many["law, new images"].fvu) < 0.01 < float(many["memory, its training images"].fvu)


def the_planted_copies_are_those_that_are_found(fractions):
    assert [fraction.value for fraction in fractions] == pytest.approx([0, 0.02])


SHOWS = {
    "distill_two_models": new_images_tell_a_memory_from_the_law,
    "linearity_of_exact_denoisers": only_the_gaussian_is_affine,
    "planted_copies": the_planted_copies_are_those_that_are_found,
    "solver_order": solvers_have_their_order,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_draws_its_picture(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        found = runpy.run_path(str(FOLDER / f"{name}.py"))["main"](tmp_path / "picture.svg", **SMALL.get(name, {}))
    assert [path.name for path in tmp_path.iterdir()] == ["picture.svg"]
    drawn, kept = (
        ElementTree.parse(path).getroot() for path in (tmp_path / "picture.svg", FOLDER / f"pictures/{name}.svg")
    )
    assert {element.tag for element in drawn.iter()} == {element.tag for element in kept.iter()}
    if name in SHOWS:
        SHOWS[name](found)


def test_the_gallery_shows_every_example_and_its_picture():
    text = (FOLDER / "README.md").read_text("utf-8")
    assert 6 <= len(EXAMPLES) <= 8
    for name in EXAMPLES:
        assert text.count(f"({name}.py)") == 1
        assert text.count(f"(pictures/{name}.svg)") == 1
        assert len((FOLDER / f"{name}.py").read_text("utf-8").splitlines()) <= 60
        assert (FOLDER / f"pictures/{name}.svg").stat().st_size <= 60_000
    assert {path.stem for path in (FOLDER / "pictures").iterdir()} == set(EXAMPLES)
