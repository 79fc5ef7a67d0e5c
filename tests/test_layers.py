"""The layers of docs/architecture.md: a lower one never imports a higher one, and nothing imports in a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import gausslens

PACKAGE = Path(gausslens.__file__).parent

LAYERS = [
    {"errors", "_typing", "images", "noise", "precision", "progress", "atomic_files", "identity", "safe_pickle"}
    | {"_kernels", "denoisers", "sampling", "generation", "measures", "nn"},
    {"config", "store", "data", "zoo", "report"},
    {"experiments", "monitor", "training", "evaluation"},
    {"paper", "auditing", "sample_size"},
    {"cli", "__main__"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def modules():
    """The files of the package by the names of their modules."""
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if path.name == "__init__.py" else parts), path


FILES = dict(modules())


def imports(module):
    """The modules of the package that a module imports, at the top of the file or later; not those for types alone."""
    here = module.split(".") if FILES[module].name == "__init__.py" else module.split(".")[:-1]
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join([*here[: len(here) - node.level + 1], *([node.module] if node.module else [])])
            for name in (f"{base}.{alias.name}" for alias in node.names):
                yield name if name in FILES else base


GRAPH = {module: set(imports(module)) - {module, "gausslens"} for module in FILES}


def room(module):
    """The package, or the file directly below `gausslens`, that a module belongs to."""
    return module.split(".")[1]


def test_every_room_has_a_layer():
    assert {room(module) for module in FILES if module != "gausslens"} - {"_moved"} == set(RANK)


def test_no_lower_layer_imports_a_higher_one():
    pairs = [(module, other) for module, others in GRAPH.items() for other in others if module != "gausslens"]
    assert [pair for pair in pairs if RANK[room(pair[0])] < RANK[room(pair[1])]] == []


def test_nothing_imports_in_a_circle():
    TopologicalSorter(GRAPH).prepare()  # raises CycleError, which names the circle
    rooms = {}
    for module, others in GRAPH.items():
        if module != "gausslens":
            rooms.setdefault(room(module), set()).update({room(other) for other in others} - {room(module)})
    TopologicalSorter(rooms).prepare()
