"""What computed a result: the version of the code, the software and the machine."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

from .. import __version__


def describe_machine(device: torch.device) -> dict[str, Any]:
    """The time, the software and the hardware, as JSON can hold it.

    `commit` is of the git tree that the code lies in; outside of one what the variable GAUSSLENS_COMMIT says, or None.
    """
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "gausslens": __version__,
        "commit": _commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "device": f"{device.type}: {name}",
        "cores": os.cpu_count(),
    }


def made_by(sessions: Sequence[Mapping[str, Any]]) -> str:
    """What made a page, in words: this version, and the last session with the devices of all."""
    devices = {"device": "; ".join(dict.fromkeys(session["device"] for session in sessions))}
    last = {**sessions[-1], **devices} if sessions else {}
    said = [f"{key} {value}" for key, value in last.items() if isinstance(value, str | int | float)]
    return f"gausslens {__version__}. {', '.join(said)}"


@cache
def _commit() -> str | None:
    root = Path(__file__).resolve().parents[2]
    if (root / ".git").exists():  # else installed, perhaps into a tree that is not ours
        command = ["git", "-C", str(root), "rev-parse", "HEAD"]
        with suppress(OSError, subprocess.SubprocessError):
            return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return os.environ.get("GAUSSLENS_COMMIT")
