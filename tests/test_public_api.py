"""What is public is exactly this list."""

import ast
import inspect
import pkgutil
from pathlib import Path

import pytest

import gausslens

PUBLIC = [
    "CheckpointError",
    "ConfigError",
    "Curve",
    "DataError",
    "Denoiser",
    "Estimate",
    "GaussianDenoiser",
    "GausslensError",
    "GeneralizationMonitor",
    "LinearDenoiser",
    "MissingExtraError",
    "Moments",
    "MultiDeltaDenoiser",
    "PerClassDenoiser",
    "Preconditioned",
    "Run",
    "Step",
    "TrainConfig",
    "__version__",
    "agreement",
    "alignment",
    "audit",
    "distill",
    "from_eps",
    "from_flow",
    "from_v",
    "from_x0",
    "gap",
    "identity_gap",
    "jacobian_spectrum",
    "karras_sigmas",
    "linearity",
    "load_denoiser",
    "memorization",
    "sample",
    "train",
]
OBJECTS = [name for name in PUBLIC if name != "__version__"]


def test_the_public_names_are_these():
    assert sorted(gausslens.__all__) == PUBLIC
    assert dir(gausslens) == PUBLIC


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_object_is_itself_and_documented(name):
    thing = getattr(gausslens, name)
    assert thing.__name__ == name
    assert thing.__doc__
    assert thing.__doc__.splitlines()[0].endswith(".")


@pytest.mark.parametrize("name", OBJECTS)
def test_every_public_method_is_documented(name):
    thing = getattr(gausslens, name)
    if inspect.isclass(thing):
        members = {key: member for key, member in vars(thing).items() if not key.startswith("_")}
        undocumented = [
            key
            for key, member in members.items()
            if (callable(member) or isinstance(member, property | classmethod | staticmethod)) and not member.__doc__
        ]
        # `forward` is what the class is: its docstring is the class's.
        assert set(undocumented) <= {"forward"}


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'gausslens' has no attribute 'linearty'"):
        gausslens.linearty  # noqa: B018


def test_no_module_stands_where_something_public_of_its_name_does():
    assert {info.name for info in pkgutil.iter_modules(gausslens.__path__)}.isdisjoint(PUBLIC)


def test_the_version_is_a_release():
    assert all(part.isdigit() for part in gausslens.__version__.split("."))


def test_type_checkers_are_told_the_same_names_from_the_same_homes():
    stub = ast.parse(Path(gausslens.__file__).with_suffix(".pyi").read_text())
    told = {alias.asname: node.module for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert told == gausslens._HOME
