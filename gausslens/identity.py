"""Identities: the same work has the same digits in every process and on every machine."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any


def identity_of(*parts: Any, digits: int = 8) -> str:
    """The first hexadecimal digits of a hash of values that JSON can hold."""
    text = json.dumps(parts[0] if len(parts) == 1 else parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def semantic_fields(config: Any, runtime_options: Collection[str]) -> dict[str, Any]:
    """The fields of a config, or of a mapping, that change results: all except the runtime options."""
    values = config if isinstance(config, Mapping) else asdict(config)
    return {name: value for name, value in values.items() if name not in runtime_options}
