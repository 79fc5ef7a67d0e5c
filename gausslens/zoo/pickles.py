"""The pickles of torch modules, read as data by `safe_pickle`: tensors, and instances with a class and a state.

Modules that bring their source along, as NVlabs' do, are read like any other; the source is a string nobody looks at.
"""

import io
import math
import mmap
import os
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from ..safe_pickle import ARRAYS, Budget, Functions, Instance, Machine, Name, instance_makers, kind_of, safe_load

_INSTRUCTIONS = 400_000  # published networks take up to a quarter of it
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # how torch opens a stream of storages

_DTYPES = {
    "torch.DoubleStorage": torch.float64,
    "torch.FloatStorage": torch.float32,
    "torch.HalfStorage": torch.float16,
    "torch.BFloat16Storage": torch.bfloat16,
    "torch.LongStorage": torch.int64,
    "torch.IntStorage": torch.int32,
    "torch.ShortStorage": torch.int16,
    "torch.CharStorage": torch.int8,
    "torch.ByteStorage": torch.uint8,
    "torch.BoolStorage": torch.bool,
}


def read_pickle(path: str | os.PathLike[str]) -> Any:
    """What the pickle of a torch module describes, as inert data."""
    if not Path(path).is_file():
        raise CheckpointError(f"expected a pickle at {path}; there is no such file.")
    try:
        size = os.path.getsize(path)
        if not size:
            raise ValueError("it is empty")
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return safe_load(content, size, _functions, instructions=_INSTRUCTIONS)
    # Arbitrary bytes can fail anywhere in the walk, in any way.
    except Exception as error:
        what = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(
            f"{path}: expected the pickle of a network, which is read without running it; {what[:300]}. Nothing in it "
            "was executed. Get the file again from where it was published, or save the network as safetensors."
        ) from None


def _functions(budget: Budget) -> Functions:
    """All that the pickles of torch modules may name."""
    modules = ("torch.nn.modules.container.ModuleDict", "torch.nn.modules.container.ModuleList")
    return {
        **ARRAYS,
        **instance_makers(*modules, "builtins.set", "__builtin__.set"),
        "torch_utils.persistence._reconstruct_persistent_obj": _persistent,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch._utils._rebuild_parameter": _parameter,
        "torch.storage._load_from_bytes": partial(_storage, budget),
        # Not `dict`, which would take keys of any kind.
        "collections.OrderedDict": lambda: {},
        "dnnlib.util.EasyDict": lambda: {},
    }


def _persistent(meta: Any) -> Instance:
    """An object that was written with its source: class and state are taken, the source is left alone."""
    if type(meta) is not dict or meta.get("type") != "class":
        raise ValueError("it has a persistent object that is not of a class")
    name, state = meta.get("class_name"), meta.get("state")
    if type(name) is not str or type(state) is not dict:
        raise ValueError("it has a persistent object without the name of its class or without state")
    return Instance(name, state=state)


def _parameter(data: Any, requires_grad: Any = False, hooks: Any = None) -> Tensor:
    if not isinstance(data, Tensor):
        raise ValueError(f"it has a parameter made of {kind_of(data)}")
    return data


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor:
    """A view of a storage; it has no more elements than the storage, and none outside."""
    if not isinstance(storage, Tensor) or storage.ndim != 1:
        raise ValueError(f"it has a tensor stored in {kind_of(storage)}")
    if type(size) is not tuple or type(stride) is not tuple or len(size) != len(stride) or len(size) > 8:
        raise ValueError("it has a tensor whose size and stride do not fit together")
    if not all(type(number) is int and 0 <= number < 2**48 for number in (offset, *size, *stride)):
        raise ValueError("it has a tensor whose offset, size or stride is not a whole number")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    if math.prod(size) > len(storage) or (math.prod(size) and last >= len(storage)):
        raise ValueError(f"it has a tensor of size {size} at {offset} in a storage of {len(storage)} elements")
    return storage.as_strided(size, stride, offset)


def _storage(budget: Budget, content: Any) -> Tensor:
    """A single storage as torch writes it: five pickles, then a count, then raw memory."""
    if type(content) is not bytes:
        raise ValueError(f"it has a storage made of {kind_of(content)}")
    budget.spend_bytes(len(content))
    stream = io.BytesIO(content)
    magic, protocol, system = (Machine(stream, {}, budget).run() for _ in range(3))
    if (magic, protocol) != (_MAGIC, _PROTOCOL) or type(system) is not dict or system.get("little_endian") is not True:
        raise ValueError("it has a storage that does not open as torch's little-endian ones do")
    elements = Machine(stream, instance_makers(*_DTYPES), budget, _elements).run()
    Machine(stream, {}, budget).run()  # the list of the storages that follow
    if type(elements) is not _Elements:
        raise ValueError(f"it has a storage described by {kind_of(elements)}")
    start, n_bytes = stream.tell() + 8, elements.count * elements.dtype.itemsize
    if content[start - 8 : start] != struct.pack("<q", elements.count) or len(content) != start + n_bytes:
        raise ValueError(f"it has a storage of {elements.count} elements in {max(len(content) - start, 0)} bytes")
    tensor = torch.empty(elements.count, dtype=elements.dtype)  # memory of torch's own, aligned as its kernels like it
    if elements.count:
        tensor.view(torch.uint8).numpy()[:] = np.frombuffer(content, np.uint8, offset=start)
    return tensor


@dataclass(frozen=True)
class _Elements:
    """What a storage holds."""

    dtype: torch.dtype
    count: int


def _elements(identity: Any) -> _Elements:
    """What a storage holds, by the identity that torch writes in its place."""
    if type(identity) is not tuple or len(identity) not in (5, 6) or identity[0] != "storage":
        raise ValueError("it has a persistent identity that is not a storage's")
    kind, count, view = identity[1], identity[4], identity[5:]
    if type(kind) is not Name or type(count) is not int or not 0 <= count < 2**48 or view not in ((), (None,)):
        raise ValueError("it has a storage without a type and a number of elements")
    return _Elements(_DTYPES[kind.text], count)
