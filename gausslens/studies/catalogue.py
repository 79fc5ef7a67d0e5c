"""All studies by name, in the order they are done."""

from importlib import import_module

from .config import STUDIES
from .study import Study


def find_study(name: str) -> Study:
    """The study of this name, from the file of that name."""
    study: Study = import_module(f".{name}", __package__).STUDY
    return study


def all_studies() -> list[Study]:
    """Every study."""
    return [find_study(name) for name in STUDIES]
