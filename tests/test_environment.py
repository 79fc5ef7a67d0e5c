"""What is installed and pinned: exact versions, for everything, and nothing for a GPU that is not there."""

import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = dict(line.split("==") for line in LINES if line and not line.startswith("#"))
REQUIREMENTS = [
    Requirement(text)
    for text in (
        *PROJECT["dependencies"],
        *(text for extra in PROJECT["optional-dependencies"].values() for text in extra),
    )
]

# torchvision replaces torch, or fails to import, beside a CPU build; the others are gigabytes that a CPU cannot use.
UNWANTED = re.compile(r"nvidia-.*|cuda-.*|triton|pytorch-triton.*|.*-cu1\d+|torchvision")


def test_unwanted_names_are_recognised():
    for name in ("nvidia-cublas", "nvidia-nccl-cu13", "cuda-bindings", "triton", "cupy-cu12", "torchvision"):
        assert UNWANTED.fullmatch(name)
    for name in PINS:
        assert not UNWANTED.fullmatch(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with a GPU may use it")
def test_no_cuda_package_and_no_torchvision_is_installed():
    installed = {canonicalize_name(distribution.name) for distribution in metadata.distributions()}
    assert sorted(name for name in installed if UNWANTED.fullmatch(name)) == []


def test_nothing_asks_for_torchvision():
    assert "torchvision" not in {requirement.name for requirement in REQUIREMENTS}


def test_requirements_are_floors_that_the_pins_satisfy():
    for requirement in REQUIREMENTS:
        assert [clause.operator for clause in requirement.specifier] == [">="], requirement
        assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)]), requirement


def test_pins_are_canonical_and_torch_has_no_local_label():
    assert all(name == canonicalize_name(name) for name in PINS)
    assert PINS["torch"] == "2.13.0"
    assert not [pin for pin in PINS.values() if "+" in pin]


def test_everything_that_gets_installed_is_pinned():
    """Follows the requirements of `.[test,dev]` through the installed packages; of those not installed, one level."""
    unpinned, seen, waiting = set(), set(), [(requirement, "") for requirement in REQUIREMENTS]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in seen or (requirement.marker and not requirement.marker.evaluate({"extra": extra})):
            continue
        seen.add(name)
        if name not in PINS:
            unpinned.add(name)
        try:
            needed = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        waiting += [(Requirement(text), extra) for text in needed for extra in ("", *requirement.extras)]
    assert unpinned == set()


def test_the_citation_is_of_this_version():
    version = metadata.version("gausslens")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
