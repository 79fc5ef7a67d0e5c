"""The pickles of torch modules, read as data: nothing that a file names is imported, called or created.

The names that such pickles contain are few, and each has a function here that makes inert data of what it is given: a
tensor of the bytes of its storage, an `Instance` of an object's class and state. Everything else is refused by name.
Modules that bring their source along, as NVlabs' do, are read like any other; the source is a string nobody looks at.

Work and memory are bounded: at most 400,000 instructions, and no more bytes copied than twice the file has.
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
from .instructions import Budget, Functions, Instance, Machine, Name, kind_of

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
    source = Path(path)
    if not source.is_file():
        raise CheckpointError(f"expected a pickle at {path}; there is no such file.")
    try:
        with open(source, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            if not size:
                raise ValueError("it is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _check_start(content[:4])
                budget = Budget(_INSTRUCTIONS, n_bytes=2 * size)  # twice: protocol 2 writes bytes as text
                described = Machine(content, _functions(budget), budget).run()
                if content.tell() < size:
                    raise ValueError(f"{size - content.tell():,} bytes follow its end")
                return described
    # Arbitrary bytes can fail anywhere in the walk, in any way.
    except Exception as error:
        what = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        raise CheckpointError(
            f"{path}: expected the pickle of a network, which is read without running it; {what[:300]}. Nothing in it "
            "was executed. Get the file again from where it was published, or save the network as safetensors."
        ) from None


def _check_start(start: bytes) -> None:
    if start == b"PK\x03\x04":
        raise ValueError("this is a zip archive, as torch.save writes it, not a plain pickle")
    if start[:1] != b"\x80":
        raise ValueError("it does not begin as pickles do since protocol 2")


def _functions(budget: Budget) -> Functions:
    """All that the pickles of torch modules may name."""
    instances = [f"torch.nn.modules.container.{name}" for name in ("ModuleDict", "ModuleList")]
    instances += ["numpy.dtype", "numpy.ndarray", "builtins.set", "__builtin__.set"]
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        instances += [f"{module}.scalar", f"{module}._reconstruct"]
    return {name: _Maker(name) for name in instances} | {
        "torch_utils.persistence._reconstruct_persistent_obj": _persistent,
        "torch._utils._rebuild_tensor_v2": _tensor,
        "torch._utils._rebuild_parameter": _parameter,
        "torch.storage._load_from_bytes": partial(_storage, budget),
        "collections.OrderedDict": _empty_dict,
        "dnnlib.util.EasyDict": _empty_dict,
        "_codecs.encode": partial(_encoded, budget),
    }


@dataclass(frozen=True)
class _Maker:
    """Makes an `Instance` of any arguments."""

    class_name: str

    def __call__(self, *arguments: Any) -> Instance:
        return Instance(self.class_name, arguments)


def _empty_dict() -> dict[str, Any]:
    return {}


def _encoded(budget: Budget, text: Any, encoding: Any) -> bytes:
    """Bytes, as protocol 2 writes them."""
    if type(text) is not str or encoding != "latin1":
        raise ValueError("it has bytes in an encoding that is not latin1")
    budget.spend_bytes(len(text))
    return text.encode("latin1")


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
    """The elements in a stream that torch writes for a single storage: five pickles, then a count, then raw memory."""
    if type(content) is not bytes:
        raise ValueError(f"it has a storage made of {kind_of(content)}")
    budget.spend_bytes(len(content))
    stream = io.BytesIO(content)
    magic, protocol, system = (Machine(stream, {}, budget).run() for _ in range(3))
    if (magic, protocol) != (_MAGIC, _PROTOCOL) or type(system) is not dict or system.get("little_endian") is not True:
        raise ValueError("it has a storage that does not open as torch's little-endian ones do")
    elements = Machine(stream, {name: _Maker(name) for name in _DTYPES}, budget, _Elements.told_by).run()
    Machine(stream, {}, budget).run()  # the list of the storages that follow
    if type(elements) is not _Elements:
        raise ValueError(f"it has a storage described by {kind_of(elements)}")
    start = stream.tell() + 8
    if content[start - 8 : start] != struct.pack("<q", elements.count) or len(content) != start + elements.n_bytes:
        raise ValueError(f"it has a storage of {elements.count} elements in {max(len(content) - start, 0)} bytes")
    tensor = torch.empty(elements.count, dtype=elements.dtype)  # memory of torch's own, aligned as its kernels like it
    if elements.count:
        tensor.view(torch.uint8).numpy()[:] = np.frombuffer(content, np.uint8, offset=start)
    return tensor


@dataclass(frozen=True)
class _Elements:
    """What a storage holds, by the identity that torch writes in its place."""

    dtype: torch.dtype
    count: int

    @classmethod
    def told_by(cls, identity: Any) -> "_Elements":
        if type(identity) is not tuple or len(identity) not in (5, 6) or identity[0] != "storage":
            raise ValueError("it has a persistent identity that is not a storage's")
        kind, count, view = identity[1], identity[4], identity[5:]
        if type(kind) is not Name or type(count) is not int or not 0 <= count < 2**48 or view not in ((), (None,)):
            raise ValueError("it has a storage without a type and a number of elements")
        return cls(_DTYPES[kind.text], count)

    @property
    def n_bytes(self) -> int:
        return self.count * self.dtype.itemsize
