"""The pickles of torch modules, read as data by `safe_pickle`: tensors, and instances with a class and a state.

Modules that bring their source along, as NVlabs' do, are read like any other; the source is a string that is not read.
"""

import io
import math
import mmap
import os
import struct
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..errors import CheckpointError
from ..safe_pickle import ARRAYS, Budget, Functions, Instance, Machine, Name, instance_makers, kind_of, safe_load
from ..store.artifact import expect

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
    expect(Path(path).is_file(), f"expected a pickle at {path}; there is no such file.")
    try:
        size = os.path.getsize(path)
        expect(size, "it is empty")
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
    expect(type(meta) is dict and meta.get("type") == "class", "it has a persistent object that is not of a class")
    name, state = meta.get("class_name"), meta.get("state")
    is_whole = type(name) is str and type(state) is dict
    expect(is_whole, "it has a persistent object without the name of its class or without state")
    return Instance(name, state=state)


def _parameter(data: Any, requires_grad: Any = False, hooks: Any = None) -> Tensor:
    expect(isinstance(data, Tensor), f"it has a parameter made of {kind_of(data)}")
    return cast("Tensor", data)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *rest: Any) -> Tensor:
    """A view of a storage; it has no more elements than the storage, and none outside."""
    expect(isinstance(storage, Tensor) and storage.ndim == 1, f"it has a tensor stored in {kind_of(storage)}")
    fit = type(size) is tuple and type(stride) is tuple and len(size) == len(stride) <= 8
    expect(fit, "it has a tensor whose size and stride do not fit together")
    are_whole = all(type(number) is int and 0 <= number < 2**48 for number in (offset, *size, *stride))
    expect(are_whole, "it has a tensor whose offset, size or stride is not a whole number")
    count, last = math.prod(size), offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    fits = count == 0 or (count <= len(storage) and last < len(storage))
    expect(fits, f"it has a tensor of size {size} at {offset} in a storage of {len(storage)} elements")
    return cast("Tensor", storage.as_strided(size, stride, offset))


def _storage(budget: Budget, content: Any) -> Tensor:
    """A single storage as torch writes it: five pickles, then a count, then raw memory."""
    expect(type(content) is bytes, f"it has a storage made of {kind_of(content)}")
    budget.spend_bytes(len(content))
    stream = io.BytesIO(content)
    magic, protocol, system = (Machine(stream, {}, budget).run() for _ in range(3))
    opens = (magic, protocol) == (_MAGIC, _PROTOCOL) and type(system) is dict and system.get("little_endian") is True
    expect(opens, "it has a storage that does not open as torch's little-endian ones do")
    described = Machine(stream, instance_makers(*_DTYPES), budget, _shape_of_storage).run()
    Machine(stream, {}, budget).run()  # the list of the storages that follow
    expect(isinstance(described, Tensor), f"it has a storage described by {kind_of(described)}")
    start, count = stream.tell() + 8, len(described)
    fits = content[start - 8 : start] == struct.pack("<q", count) and len(content) == start + described.nbytes
    expect(fits, f"it has a storage of {count} elements in {max(len(content) - start, 0)} bytes")
    tensor = torch.empty_like(described, device="cpu")  # memory of torch's own, aligned as its kernels like it
    if count:
        tensor.view(torch.uint8).numpy()[:] = np.frombuffer(content, np.uint8, offset=start)
    return tensor


def _shape_of_storage(identity: Any) -> Tensor:
    """What a storage holds, without memory, by the identity that torch writes in its place."""
    is_storage = type(identity) is tuple and len(identity) in (5, 6) and identity[0] == "storage"
    expect(is_storage, "it has a persistent identity that is not a storage's")
    kind, count, view = identity[1], identity[4], identity[5:]
    is_known = type(kind) is Name and type(count) is int and 0 <= count < 2**48 and view in ((), (None,))
    expect(is_known, "it has a storage without a type and a number of elements")
    return torch.empty(count, dtype=_DTYPES[kind.text], device="meta")
