"""A page: a summary with the claims, then one section for each study, finished or not; and how private data is removed.

Every report goes through `redact` before it is rendered. `redact` visits every text and every picture of a page. It replaces
absolute paths with names, since a path reveals who works where. It keeps pictures, blurs them beyond recovery, or removes
them.
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
    text: str = ""  # what it asks and finds; paragraphs are separated by empty lines
    figures: tuple[Figure, ...] = ()  # its figures
    finished: bool = True  # whether the study is finished; if not, the section says so and shows what is done


@dataclass(frozen=True)
class Page:
    """A report."""

    title: str  # its heading
    summary: str  # the main findings; paragraphs are separated by empty lines
    claims: Table | None = None  # the claims with their verdicts; None if there are none
    sections: tuple[Section, ...] = ()  # the studies
    made_by: str = ""  # program, version and other provenance, for the foot of the page

    @property
    def figures(self) -> list[Figure]:
        """The figures of all sections in their order."""
        return [figure for section in self.sections for figure in section.figures]

    @property
    def pictured(self) -> list[ImageGrid]:
        """The figures that embed images."""
        return [figure for figure in self.figures if isinstance(figure, ImageGrid) and figure.images is not None]


# A slash after "<" begins a path only if another slash follows: "</b>" is not a path.
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

    This includes paths from a home or a parent folder, paths of Windows, and file: addresses. A path with spaces is
    recognised in quotes, or with backslashes before the spaces.

    Examples:
        >>> without_paths("trained on /home/ada/scans, 1/N of it; see https://arxiv.org/abs/2410.24060")
        'trained on scans, 1/N of it; see https://arxiv.org/abs/2410.24060'
    """

    def name(match: re.Match[str]) -> str:
        quote = match["quote"] or ""
        path = match["quoted"] or match[0]
        return quote + re.split(r"/|\\(?! )", path.rstrip("/\\"))[-1] + quote

    return _PATHS.sub(name, text)


def redact(part: Any, images: Images = "shown") -> Any:
    """A page, or a part of one, with names in place of absolute paths, and with images shown, blurred or removed."""
    if isinstance(part, str):
        return without_paths(part)
    if isinstance(part, tuple | list):
        return type(part)(redact(item, images) for item in part)
    if is_dataclass(part) and not isinstance(part, type):
        changes = {field.name: redact(getattr(part, field.name), images) for field in fields(part)}
        if isinstance(part, ImageGrid) and part.images is not None and images != "shown":
            changes["images"] = blur(part.images) if images == "blurred" else None
        return replace(part, **changes)
    return part
