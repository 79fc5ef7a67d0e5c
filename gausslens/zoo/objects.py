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
from ..errors import CheckpointError, ConfigError, one_line
from .model import Model, declared_shape, fingerprint

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class FunctionDenoiser(nn.Module):
    """A function D(x, σ) or D(x, σ, labels) as a module without weights.

    Args:
        function: the denoiser.
    """

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
        try:
            module = import_module(module_name)
        except (Exception, SystemExit) as error:  # whatever the module's own code raises
            raise CheckpointError(
                f"could not import {module_name} of {name}: {one_line(error)}. "
                "Run from the folder that holds it, or install it."
            ) from error
        try:
            found = reduce(getattr, path.split("."), module)
        except AttributeError:
            raise CheckpointError(f"expected {path} in the module {module_name}; it has no such name.") from None
        except Exception as error:  # of a property, or of a module that imports its names when they are asked for
            raise CheckpointError(f"could not get {path} of the module {module_name}: {one_line(error)}.") from error
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
        try:
            found = found()
        except (Exception, SystemExit) as error:  # whatever the factory's own code raises
            raise CheckpointError(f"the factory {name} failed: {one_line(error)}.") from error
    if isinstance(found, Model):
        return replace(found, denoiser=_as_module(found.denoiser, name).to(device), source=found.source or name)
    denoiser = _as_module(found, name)
    shape, classes = declared_shape(
        getattr(denoiser, "network", denoiser)
    )  # of a Preconditioned, or of `from_eps` and its kin
    settings = {key: getattr(denoiser, key, None) for key in ("kind", "sigma_data", "target", "schedule")}
    try:
        tensors = denoiser.state_dict()
        identity = fingerprint(tensors, structure=repr(denoiser), name=name if code else "", code=code, **settings)
    except Exception as error:  # tensors of the meta device, of lazy modules, … have no values
        raise CheckpointError(
            f"the weights of {name} cannot be read: {one_line(error)}. Load them where the module is made."
        ) from error
    return Model(
        denoiser.to(device),
        shape,
        classes=classes,
        source=name,
        identity=identity if tensors or code else "",  # nothing to tell this function from another
        sigma_range=_range_of(denoiser, name),
    )


def _range_of(denoiser: nn.Module, name: str) -> tuple[float, float]:
    """The noise levels that a module says it was made for; all, if it says nothing."""
    try:
        return range_of(denoiser)
    except ConfigError as error:
        raise CheckpointError(f"{name}: {error}") from None


def takes_labels(model: Model) -> bool:
    """Whether a model is conditional: it has classes, or its function cannot do without a third argument."""
    if model.classes:
        return True
    parts = [model.denoiser, getattr(model.denoiser, "network", None)]  # of `from_eps` and its kin
    for part in parts:
        function: Any = part.function if isinstance(part, FunctionDenoiser) else getattr(part, "forward", part)
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError):  # nothing to call, or compiled functions, which may not say
            continue
        if sum(one.default is one.empty and one.kind in _POSITIONAL for one in parameters) > 2:
            return True
    return False


def _as_module(found: Any, name: str) -> nn.Module:
    if isinstance(found, nn.Module):
        return found
    if not callable(found):
        raise CheckpointError(
            f"expected a denoiser D(x, sigma), a module, a function or a factory of one, at {name}; "
            f"got {type(found).__name__}."
        )
    return FunctionDenoiser(found)


def _is_factory(found: Any) -> bool:
    """Whether something is called without arguments, rather than with x and σ."""
    if isinstance(found, type):
        return True
    if isinstance(found, nn.Module | Model) or not callable(found):
        return False
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # compiled functions may not say
        return False
    return not any(
        parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters
    )


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
        if added and here in sys.path:
            sys.path.remove(here)
