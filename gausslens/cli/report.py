"""Judge the paper's claims from the records of finished studies, and write their pages again.

Nothing is trained or measured. If a folder contains the folders of several studies, all of them are judged together.
Repetitions of a study (`study --repetition`) count as one study.

Examples:
  gausslens report runs
  gausslens report runs/study-digits-1a2b3c4d --svg
  gausslens report runs/study-scans-5e6f7a8b --blur --page scans.html
  gausslens report runs --json > verdicts.json
  gausslens report results/cifar10
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import PageOptions
from ..errors import ConfigError, GausslensError
from . import GlobalOptions, bad_input

if TYPE_CHECKING:
    from ..store.run import Run

_NAMED = 5  # folders that an error suggests, at most


@dataclass(frozen=True)
class Options(PageOptions):
    """The options of `gausslens report`."""

    runs: tuple[Path, ...]
    """Folders of studies, or folders that hold such folders."""
    json: bool = False
    """Print the verdicts as JSON, and write no page."""
    page: str | None = None
    """The HTML file to write, for a single study. Default: report.html in the study's folder."""
    svg: bool = False
    """Also write every figure as an SVG file."""


def run(options: Options, how: GlobalOptions) -> None:
    """Judge the claims, print the verdicts and write the pages."""
    from ..paper.claims import as_json, as_table, judge
    from ..paper.run import collect, write_report

    runs = [run for path in options.runs for run in _studies(path)]
    if options.page is not None and len(runs) > 1:
        raise ConfigError(f"--page is for one study; there are {len(runs)}: {_listed(runs)}. Name one of them.")
    if how.dry_run:
        print(f"would judge the records of {_listed(runs)}")
        return
    verdicts = judge(collect(runs))
    if options.json:
        print(as_json(verdicts))
        return
    print(as_table(verdicts))
    target = None if options.page is None else Path(options.page)
    for run in runs:
        try:
            page, _ = write_report(run, images=options.images, svg=options.svg, page=target)
        except GausslensError as error:  # the table stands without the page
            if target is not None:
                raise
            print(f"gausslens: {error}", file=sys.stderr)
        else:
            print(f"wrote {page}")


def _studies(path: Path) -> "list[Run]":
    """The study in a folder, or those in the folders that it holds."""
    from ..experiments.archive import is_archive
    from ..store.run import Run

    inside = sorted(folder for folder in path.glob("*/") if folder.name.startswith("study-") or is_archive(folder))
    if not inside and not (path / "config.json").exists():
        near = _reportable(path) or _reportable(path.parent)
        more = f" and {len(near) - _NAMED} more" if len(near) > _NAMED else ""
        got = "it is neither" if path.exists() else "there is no such folder"
        hint = f"There are {', '.join(map(str, near[:_NAMED]))}{more}." if near else "`gausslens study` makes one."
        raise ConfigError(f"expected the folder of a study, or one that holds some, at {path}; {got}. {hint}")
    with bad_input():
        found = [Run.open(folder) for folder in inside] or [Run.open(path)]
        others = [run for run in found if run.verb != "study"]
    if others:
        raise ConfigError(f"expected a study at {others[0].path}; this is a run of `gausslens {others[0].verb}`.")
    return found


def _reportable(folder: Path) -> list[Path]:
    """The folders inside a folder that can be reported: studies, and folders that hold some."""
    marks = ("study-*/config.json", "*/tasks.json")
    studies = {found.parent for mark in marks for found in folder.glob(mark)}
    return sorted(studies | {found.parent.parent for mark in marks for found in folder.glob(f"*/{mark}")})


def _listed(runs: "list[Run]") -> str:
    return ", ".join(str(run.path) for run in runs)
