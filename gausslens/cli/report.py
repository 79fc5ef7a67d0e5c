"""`gausslens report`: the verdicts on the claims, and the page, from records that are there already."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import PageOptions
from ..errors import ConfigError, GausslensError
from . import GlobalOptions, bad_input

if TYPE_CHECKING:
    from ..store.run import Run

DESCRIPTION = """\
Judge the paper's claims from the records of finished studies, and write their pages again. Nothing is trained or
measured. A folder that holds the folders of studies stands for all of them. They are judged together, and repetitions
of a study count as one.

examples:
  gausslens report runs
  gausslens report runs/study-digits-1a2b3c4d --svg
  gausslens report runs/study-scans-5e6f7a8b --blur --page scans.html
  gausslens report runs --json > verdicts.json
  gausslens report results/cifar10"""

_NAMED = 5  # folders that could be meant, at most


@dataclass(frozen=True)
class Options(PageOptions):
    """What to report on, and how."""

    runs: tuple[Path, ...]
    """Folders of studies, or folders that hold them."""
    json: bool = False
    """Print the verdicts as JSON, and write no page."""
    page: str | None = None
    """The HTML file to write. Default: report.html in the study's folder."""
    svg: bool = False
    """Also write every figure as an SVG file."""


def run(options: Options, how: GlobalOptions) -> None:
    """Judge, print, and write pages."""
    from ..paper.claims import as_json, as_table, judge
    from ..paper.run import collect, write_report

    runs = [run for path in options.runs for run in _studies(path)]
    if options.page is not None and len(runs) > 1:
        raise ConfigError(
            f"--page names one page, and there are {len(runs)} studies: {_listed(runs)}. Name one of them."
        )
    if how.dry_run:
        print(f"would judge the records of {_listed(runs)}")
        return
    verdicts = judge(collect(runs))
    if options.json:
        print(as_json(verdicts))
        return
    print(as_table(verdicts))
    for run in runs:
        try:
            page, _ = write_report(
                run, images=options.images, svg=options.svg, page=Path(options.page) if options.page else None
            )
        except GausslensError as error:  # the table stands without the page
            if options.page is not None:
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
        raise ConfigError(
            f"expected the folder of a study, or one that holds some, at {path}; "
            f"{'it is neither' if path.exists() else 'there is no such folder'}. "
            + (f"There are {', '.join(map(str, near[:_NAMED]))}{more}." if near else "`gausslens study` makes one.")
        )
    with bad_input():
        found = [Run.open(folder) for folder in inside] or [Run.open(path)]
        others = [run for run in found if run.verb != "study"]
    if others:
        raise ConfigError(f"expected a study at {others[0].path}; this is a run of `gausslens {others[0].verb}`.")
    return found


def _reportable(folder: Path) -> list[Path]:
    """What is in a folder and can be reported: studies, and folders that hold some."""
    marks = ("study-*/config.json", "*/tasks.json")
    studies = {found.parent for mark in marks for found in folder.glob(mark)}
    return sorted(studies | {found.parent.parent for mark in marks for found in folder.glob(f"*/{mark}")})


def _listed(runs: "list[Run]") -> str:
    return ", ".join(str(run.path) for run in runs)
