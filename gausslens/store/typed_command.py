"""Commands as they are typed, so that a reader of a page can make the same."""

import shlex
from dataclasses import MISSING, fields
from typing import Any

_NO_NUMBERS = {  # what to work on, where, and what to write
    *("data", "model", "only", "on", "workers", "budget", "cpu", "out"),
    *("svg", "no_images", "blur", "json", "fail_on"),
}


def option_name(field: str) -> str:
    """How the option of a config's field is called."""
    return "range" if field == "value_range" else field.replace("_", "-")


def typed_options(config: Any) -> str:
    """The options of a config that decide a number and differ from their defaults, as they are typed.

    >>> from gausslens.paper.config import StudyConfig
    >>> typed_options(StudyConfig("digits", sizes=(10, 100), full=True, value_range=(0.0, 1.0)))
    '--range 0.0 1.0 --full --sizes 10,100'
    """
    typed = []
    for field in fields(config):
        value, name = getattr(config, field.name), option_name(field.name)
        if field.name in _NO_NUMBERS or (field.default is not MISSING and value == field.default):
            continue
        if value is True:
            typed.append(f"--{name}")
        elif name == "range":
            typed.append(f"--{name} {' '.join(map(str, value))}")
        else:
            text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
            typed.append(f"--{name} {shlex.quote(text)}")
    return " ".join(typed)


def typed_command(verb: str, subject: str, options: str) -> str:
    """A whole command; what it is about is quoted where that is needed."""
    return f"gausslens {verb} {shlex.quote(subject)} {options}".rstrip()
