"""A page: a summary with the claims, then one section for each study, finished or not; and what of it may be told.

`redact` makes the page that may be shown from the page as it was made. It is the only way to a rendered report, and it
goes through every text and every picture that a page holds: absolute paths become names, since a path tells who works
where; and pictures stay, are blurred beyond recovery, or go.
"""

import re
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from ..config import Images
from .figures import Figure, ImageGrid, Table
from .pictures import blur


@dataclass(frozen=True)
class Section:
    """One study on the page."""

    title: str  # its heading
    text: str = ""  # what it asks and finds; paragraphs are parted by empty lines
    figures: tuple[Figure, ...] = ()  # what it shows
    finished: bool = True  # whether the study is; if not, the section says so and shows what there is


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str  # its heading
    summary: str  # what was found, first of all; paragraphs are parted by empty lines
    claims: Table | None = None  # the claims with their verdicts; None while there are none
    sections: tuple[Section, ...] = ()  # the studies
    made_by: str = ""  # the program and version, and other provenance, for the foot of the page

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections in their order."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def pictured(self) -> list[ImageGrid]:
        """The figures that embed images."""
        return [figure for figure in self.figures if isinstance(figure, ImageGrid) and figure.images is not None]


def redact(page: Page, images: Images = "shown") -> Page:
    """The page with names for absolute paths and, as asked, images blurred or withheld."""
    told: Page = _told(page, images)
    return told


# A slash after "<" begins a path only if another follows: "</b>" is none.
_START = r"""(?<![^\s"'`(\[{=,;:<>|])"""
_PATHS = re.compile(
    rf"""{_START}(?:
        (?P<quote>["'`])(?P<quoted>(?:file:/{{0,2}}|~|\.\.|[A-Za-z]:)?[/\\][^"'`\n]*)(?P=quote)
      | (?:(?<!<)|(?=/[^/\s>]+/))(?:file://|~[\w.-]*|(?:\.\.(?=/))|)(?:/(?:\\.|[^\s/"'`()\[\]{{}}<>|,;:\\])+)+/?
      | (?:[A-Za-z]:|\\(?=\\))(?:[\\/](?:[^\s\\/"'`()\[\]{{}}<>|,;:])+)+[\\/]?
    )""",
    re.VERBOSE,
)


def without_paths(text: str) -> str:
    r"""The text with every absolute path replaced by its last part.

    Also paths from a home or a parent folder, of Windows, and of file: addresses. A path with spaces is recognised in
    quotes or with backslashes before them.

    Examples:
        >>> without_paths("trained on /home/ada/scans, 1/N of it; see https://arxiv.org/abs/2410.24060")
        'trained on scans, 1/N of it; see https://arxiv.org/abs/2410.24060'
    """

    def name(match: re.Match[str]) -> str:
        quote = match["quote"] or ""
        path = match["quoted"] or match[0]
        return quote + re.split(r"/|\\(?! )", path.rstrip("/\\"))[-1] + quote

    return _PATHS.sub(name, text)


def _told(part: Any, images: Images) -> Any:
    if isinstance(part, str):
        return without_paths(part)
    if isinstance(part, tuple | list):
        return type(part)(_told(item, images) for item in part)
    if is_dataclass(part) and not isinstance(part, type):
        changes = {field.name: _told(getattr(part, field.name), images) for field in fields(part)}
        if isinstance(part, ImageGrid) and part.images is not None and images != "shown":
            changes["images"] = blur(part.images) if images == "blurred" else None
        return replace(part, **changes)
    return part
