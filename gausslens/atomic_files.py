"""Tensors and text on disk, written whole or not at all.

A file is written under a temporary name in its folder and renamed when complete. So a reader never sees half a file, and
a crash never leaves one. Tensors are stored as safetensors. The `kind` in the metadata distinguishes files of different
contents.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from .errors import CheckpointError, require, reraise_as


def save_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], *, kind: str, **metadata: Any) -> None:
    """Write tensors and JSON metadata to `path`, atomically."""
    target = Path(path)
    header = {"kind": kind, "metadata": json.dumps(metadata)}
    stored = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    with atomic_replace(target) as temporary:
        save_file(stored, temporary, metadata=header)


def save_text(path: str | os.PathLike[str], text: str) -> None:
    """Write text to `path`, atomically; raises `CheckpointError` if the file cannot be written."""
    with atomic_replace(Path(path)) as temporary:
        temporary.write_text(text, encoding="utf-8")


def load_tensors(path: str | os.PathLike[str], *, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what `save_tensors` wrote: the tensors, on the CPU, and the metadata."""
    if not Path(path).is_file():
        raise CheckpointError(f"expected a safetensors file with {kind} at {path}; there is no such file.")
    errors = (SafetensorError, OSError, KeyError, json.JSONDecodeError, RecursionError)
    advice = "It may be truncated or of another format. Write it again."
    with reraise_as(CheckpointError, f"{path} is not a readable safetensors file", advice, errors):
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            held = header.get("kind", "no kind, so another program wrote it")
            ours = f"expected a file of kind {kind!r} at {path}; this one has {held[:80]!r}"
            require(held == kind, f"{ours}. Name a file that gausslens wrote.", CheckpointError)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (a safetensors handle, not a dict)
        return tensors, json.loads(header["metadata"])


@contextmanager
def atomic_replace(target: Path) -> Iterator[Path]:
    """A temporary file that replaces `target` on success and is removed on failure."""
    temporary = target.with_name(f".{target.name}.{uuid4().hex}.partial")
    advice, errors = "Check that the folder exists and has room.", (OSError, SafetensorError)
    try:
        with reraise_as(CheckpointError, f"could not write {target}", advice, errors):
            temporary.touch(exist_ok=False)
            mode = temporary.stat().st_mode
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            temporary.chmod(mode)  # safetensors makes private files; a result is as readable as any other file
            os.replace(temporary, target)
    finally:
        with suppress(OSError):  # a failure here would hide the first error
            temporary.unlink(missing_ok=True)
