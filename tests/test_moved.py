"""What version 0.1 documented can still be imported, and says where it is now."""

import sys
from importlib import import_module

import pytest

from gausslens._moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_a_module_that_has_moved_is_found_with_a_warning(old, monkeypatch):
    for name in MOVED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    parents = [name for name in MOVED if old.startswith(f"{name}.")]
    for name in parents:
        with pytest.warns(DeprecationWarning, match="is now"):
            import_module(name)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {MOVED[old]}"):
        found = import_module(old)
    assert found is import_module(MOVED[old])
