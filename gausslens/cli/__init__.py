"""The commands of the command line, one per file, and what they share.

The file of a command has a docstring, which is the head of its help; a frozen dataclass `Options`, whose fields without a
default are given by position; and a function `run(options, how)`. Nothing heavy is imported before that function runs.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from ..store.run import Run


@dataclass(frozen=True)
class GlobalOptions:
    """The options that every command takes."""

    dry_run: bool = False
    """Check everything, print the resolved options, and stop."""
    quiet: bool = False
    """Show no progress bars; `audit` also prints no summary."""
    debug: bool = False
    """Show the traceback of an error."""

    @property
    def progress(self) -> bool:
        """Whether to show progress bars."""
        return sys.stderr.isatty() and not self.quiet


@contextmanager
def bad_input() -> Iterator[None]:
    """Report files that cannot be read as bad input (exit code 2): the user named them."""
    try:
        yield
    except CheckpointError as error:
        raise ConfigError(str(error)) from None


def open_training_run(path: str, kimg: float | None) -> tuple["Run", float]:
    """The training run and the snapshot that a user names."""
    from ..store.run import Run

    with bad_input():
        run = Run.open(path)
        _ = run.config, run.manifest, run.snapshot_path(kimg)  # each says what is wrong with the folder
    return run, run.snapshots[-1] if kimg is None else kimg


def print_options(options: Any, note: str = "", **more: Any) -> None:
    """Print the result of a dry run: the options as JSON, and a note on stderr."""
    print(json.dumps({**asdict(options), **more}, indent=2))
    if note:
        print(note, file=sys.stderr)
