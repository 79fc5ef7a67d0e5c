"""JSON files of others, which may hold anything."""

import json
from pathlib import Path
from typing import Any

from ..errors import CheckpointError


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"expected a JSON object in {path}; got {type(value).__name__}.")
    return value
