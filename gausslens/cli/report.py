"""`gausslens report`: the verdicts on the claims, and the page, from records that are there already."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckpointError, ConfigError, GausslensError
from . import GlobalOptions

if TYPE_CHECKING:
    from ..report import Images
    from ..store.run import Run

DESCRIPTION = """\
Judge the paper's claims from the records of studies that were done, and write their pages again. Nothing is trained or
measured. A folder that holds the folders of studies stands for all of them; they are judged together, repetitions of one
study as one.

examples:
  gausslens report runs
  gausslens report runs/study-digits-1a2b3c4d --svg
  gausslens report runs/study-scans-5e6f7a8b --blur --page scans.html
  gausslens report runs --json > verdicts.json
  gausslens report results/cifar10"""

_NAMED = 5  # folders that could be meant, at most


@dataclass(frozen=True)
class Options:
    """What to report on, and how."""

    runs: tuple[Path, ...]
    """Folders of studies, or folders that hold them."""
    json: bool = False
    """Print the verdicts as JSON, and write no page."""
    page: str | None = None
    """The HTML file to write; by default report.html in the study's folder."""
    svg: bool = False
    """Also write every figure as an SVG file."""
    no_images: bool = False
    """Embed no images in the page, for private data."""
    blur: bool = False
    """Blur the images in the page beyond recovery."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ConfigError("expected the folder of a study, or one that holds some, such as runs; got none.")
        if self.no_images and self.blur:
            raise ConfigError("images can be left out (--no-images) or blurred (--blur), not both.")


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
    images: Images = "none" if options.no_images else "blurred" if options.blur else "shown"
    for run in runs:
        try:
            page, _ = write_report(
                run, images=images, svg=options.svg, page=Path(options.page) if options.page else None
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
    try:
        found = [Run.open(folder) for folder in inside] or [Run.open(path)]
        others = [run for run in found if run.verb != "study"]
    except CheckpointError as error:
        raise ConfigError(f"{error} `gausslens study` makes one.") from None
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
