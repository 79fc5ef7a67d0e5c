"""The verbs of the command line, one a file: what can be asked of it, and the function that does it.

Each file has a frozen dataclass of options, whose fields without a default are given by position, and a function
`perform(options, how)`. Nothing heavy is imported before that function runs.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Manner:
    """How to go about it."""

    dry_run: bool = False
    """Print the resolved options and stop."""
    quiet: bool = False
    """Show no progress bar."""
    debug: bool = False
    """Show the traceback of an error."""
