"""The verbs of the command line, one a file: what can be asked of it, and the function that does it.

Each file has a frozen dataclass of options, whose fields without a default are given by position, and a function
`run(options, how)`. Nothing heavy is imported before that function runs.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from ..store.run import Run


@dataclass(frozen=True)
class GlobalOptions:
    """How to go about it."""

    dry_run: bool = False
    """Print what would be done, with all options resolved, and stop."""
    quiet: bool = False
    """Show no progress bar; an audit then prints nothing but its JSON, if that is asked for."""
    debug: bool = False
    """Show the traceback of an error."""


def open_training_run(path: str, kimg: float | None) -> tuple["Run", float]:
    """The training run and the snapshot that a user names."""
    from ..store.run import Run

    try:
        run = Run.open(path)
        _ = run.config, run.manifest, run.snapshot_path(kimg)  # each says what is wrong with the folder
    except CheckpointError as error:
        raise ConfigError(str(error)) from None
    return run, run.snapshots[-1] if kimg is None else kimg
