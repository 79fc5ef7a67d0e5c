"""Every error this package raises on purpose.

    GausslensError
    ├── ConfigError        an invalid argument or option (also a ValueError)
    ├── DataError          images or labels that cannot be used (also a ValueError)
    ├── CheckpointError    a file that cannot be read, or is not the one expected (also a ValueError)
    ├── MissingExtraError  an optional package is not installed (also an ImportError)
    ├── OutOfMemoryError   not enough memory (also a MemoryError)
    └── DivergedError      training whose numbers are no longer finite (also an ArithmeticError)

Each message says what was expected, what arrived and what to do.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class GausslensError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigError(GausslensError, ValueError):
    """An invalid argument or option."""


class DataError(GausslensError, ValueError):
    """Images or labels that cannot be used."""


class CheckpointError(GausslensError, ValueError):
    """A file that cannot be read, or is not the one expected."""


class MissingExtraError(GausslensError, ImportError):
    """An optional package is not installed."""

    def __str__(self) -> str:  # ImportError shows its first message even after `args` have changed
        return str(self.args[0])


class OutOfMemoryError(GausslensError, MemoryError):
    """Not enough memory."""


class DivergedError(GausslensError, ArithmeticError):
    """Training whose numbers are no longer finite."""


def import_extra(package: str, need: str, install: str) -> Any:
    """Import an optional package; the error names what needs it and what to install."""
    try:
        return import_module(package)
    except ImportError:
        raise MissingExtraError(f"{need}, which is not installed: pip install {install}.") from None


def require(condition: object, message: str, error: type[GausslensError] = ConfigError) -> None:
    """Raise an error with this message unless a condition holds."""
    if not condition:
        raise error(message)


def check_choice(name: str, value: object, choices: Collection[object]) -> None:
    """Raise unless the value of argument `name` is one of `choices`."""
    require(value in choices, f"{name} must be one of {', '.join(map(str, choices))}; got {value!r}.")


def is_short_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; some of torch's are RuntimeErrors that only their words reveal."""
    words = ("out of memory", "can't allocate memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )


def one_line(error: BaseException) -> str:
    """The message of another library's error, in one line of limited length."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}".rstrip(".: ")


@contextmanager
def reraise_as(
    error: type[GausslensError],
    what: str,
    advice: str = "",
    caught: type[BaseException] | tuple[type[BaseException], ...] = Exception,
    spared: tuple[type[BaseException], ...] = (),
) -> Iterator[None]:
    """Inside, an error of other code becomes one of this package that says what failed, why, and what to do."""
    try:
        yield
    except (error, *spared):
        raise
    except caught as reason:
        raise error(f"{what}: {one_line(reason)}. {advice}".rstrip()) from reason
