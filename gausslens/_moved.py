"""The module names of version 0.1. Importing one warns and gives the module of today.

The finder comes first: otherwise modules inside a moved package would be imported twice, under two names.
"""

import sys
import warnings
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED = {
    "gausslens.monitoring_lightning": "gausslens.monitor.lightning",
    "gausslens.studies": "gausslens.paper",
    "gausslens.studies.claims": "gausslens.paper.claims",
    "gausslens.zoo.schedules": "gausslens.denoisers.schedules",
}


class MovedFinder(MetaPathFinder, Loader):
    """Finds modules that have moved."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of a module that has moved."""
        return ModuleSpec(name, self, is_package=True) if name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Put the module of today in its place."""
        old, new = module.__name__, MOVED[module.__name__]
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=2)
        sys.modules[old] = import_module(new)


sys.meta_path.insert(0, MovedFinder())
