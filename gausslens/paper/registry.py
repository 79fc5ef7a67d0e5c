"""All studies by name, in the order they are done: one file each."""

from importlib import import_module

from .config import STUDIES
from .study import Study


def find_study(name: str) -> Study:
    """The study of this name."""
    study: Study = import_module(f".studies.{name}", __package__).STUDY
    return study


def all_studies() -> list[Study]:
    """Every study."""
    return [find_study(name) for name in STUDIES]
