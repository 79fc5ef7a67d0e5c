"""Models that are Python objects: modules and functions D(x, σ), given or named as `package.module:object`.

The object is an `nn.Module`, a function D(x, sigma) or D(x, sigma, labels), a `Model`, or a factory without arguments
that makes one of these. Naming an object runs the code of its module, as any import does.
"""

import hashlib
import inspect
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..denoisers.protocol import range_of
from ..errors import CheckpointError, reraise_as
from ..store.artifact import expect
from .model import Model, declared_shape, fingerprint

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_ANYTHING = (Exception, SystemExit)  # of what other people's code raises

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FunctionDenoiser(nn.Module):
    """A function D(x, σ) or D(x, σ, labels) as a module without weights."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor, sigma: Any, *labels: Any) -> Any:
        """D(x, σ), whatever the function answers; who calls a denoiser checks it."""
        return self.function(x, sigma, *labels)


def is_object_name(text: str) -> bool:
    """Whether a text has the form `package.module:object`."""
    return _NAME.fullmatch(text) is not None


def load_object(name: str, *, device: torch.device | str | None = None) -> Model:
    """The model that `package.module:object` names; modules in the current directory are found, too."""
    module_name, _, path = name.partition(":")
    with _current_directory_importable():
        advice = "Run from the folder that holds it, or install it."
        with reraise_as(CheckpointError, f"could not load {name}", advice, _ANYTHING):
            module = import_module(module_name)
            found = reduce(getattr, path.split("."), module)
        file = getattr(module, "__file__", None)
        code = hashlib.sha256(Path(file).read_bytes()).hexdigest() if file and Path(file).is_file() else ""
        model = as_model(found, source=name, device=device, code=code)
    for parameter in model.denoiser.parameters():  # one by one: modules of TorchScript cannot be asked as a whole
        parameter.requires_grad_(False)
    model.denoiser.eval()
    return model


def as_model(found: Any, *, source: str = "", device: torch.device | str | None = None, code: str = "") -> Model:
    """A module, a function, a `Model` or a factory of one as a model."""
    name = source or getattr(found, "__qualname__", type(found).__name__)
    if _is_factory(found):
        with reraise_as(CheckpointError, f"the factory {name} failed", caught=_ANYTHING):
            found = found()
    if isinstance(found, Model):
        return replace(found, denoiser=_as_module(found.denoiser, name).to(device), source=found.source or name)
    denoiser = _as_module(found, name)
    with reraise_as(CheckpointError, f"the noise levels of {name} are not known"):
        sigma_range = range_of(denoiser)
    # The network inside a Preconditioned, or inside what `from_eps` makes, says more.
    shape, classes = declared_shape(getattr(denoiser, "network", denoiser))
    settings = {key: getattr(denoiser, key, None) for key in ("kind", "sigma_data", "target", "schedule")}
    advice = "Load them where the module is made."  # tensors of the meta device, of lazy modules, … have no values
    with reraise_as(CheckpointError, f"the weights of {name} cannot be read", advice):
        tensors = denoiser.state_dict()
        identity = fingerprint(tensors, structure=repr(denoiser), name=name if code else "", code=code, **settings)
    return Model(
        denoiser.to(device),
        shape,
        classes=classes,
        source=name,
        identity=identity if tensors or code else "",  # functions cannot be distinguished
        sigma_range=sigma_range,
    )


def takes_labels(model: Model) -> bool:
    """Whether a model is conditional: it has classes, or its function cannot do without a third argument."""
    parts = [model.denoiser, getattr(model.denoiser, "network", None)]  # which `from_eps` and the like put inside
    functions = [one.function if isinstance(one, FunctionDenoiser) else getattr(one, "forward", one) for one in parts]
    required = [sum(kind in _POSITIONAL for kind in _required_kinds(function) or []) for function in functions]
    return model.classes > 0 or max(required) > 2


def _as_module(found: Any, name: str) -> nn.Module:
    expected = "a denoiser D(x, sigma), a module, a function or a factory of one"
    expect(callable(found), f"expected {expected}, at {name}; got {type(found).__name__}.")
    return found if isinstance(found, nn.Module) else FunctionDenoiser(found)


def _is_factory(found: Any) -> bool:
    """Whether something is called without arguments, rather than with x and σ."""
    if isinstance(found, type | nn.Module | Model) or not callable(found):
        return isinstance(found, type)
    kinds = _required_kinds(found)
    return kinds is not None and all(kind is inspect.Parameter.VAR_KEYWORD for kind in kinds)


def _required_kinds(function: Any) -> list[Any] | None:
    """The kinds of the parameters without a default; None if there is nothing to call, or a compiled function."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [one.kind for one in parameters if one.default is one.empty]


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    """As `python -m` has it, and a command does not."""
    here = str(Path.cwd())
    added = here not in sys.path and "" not in sys.path
    if added:
        sys.path.insert(0, here)
    try:
        yield
    finally:
        if added and here in sys.path:  # the object's own code may have changed the path
            sys.path.remove(here)
