"""Figures in one SVG file that stands alone: each under its title, one below the other. For a README, a talk or a chat."""

import os
from pathlib import Path
from xml.etree import ElementTree

from ..errors import DataError
from .canvas import Canvas, text_width
from .drawings import draw_svg
from .figures import Figure

_TITLE, _MARGIN, _GAP = 15.0, 10.0, 18.0


def save_svg(path: str | os.PathLike[str], *figures: Figure) -> Path:
    """Write figures into one SVG file, each under its title.

    Args:
        path: the file; replaced if it is there. Its folder is made.
        *figures: curves, heat-maps or image grids, from top to bottom.

    Returns:
        The path.

    Raises:
        DataError: if there is no figure, or one that has no drawing: a table, or images that are withheld.
        CheckpointError: if the file cannot be written.
    """
    from ..atomic_files import save_text  # brings torch, which drawing does without

    canvas, width, top = Canvas(), 0.0, 0.0
    for figure in figures:
        text = draw_svg(figure)
        if text is None:
            raise DataError(f"the figure {figure.title!r} has no drawing: it is a table, or its images are withheld.")
        root = ElementTree.fromstring(text)
        canvas.text(_MARGIN, top + _MARGIN + _TITLE, figure.title, size=_TITLE, font_weight="bold")
        canvas.nest(text, top + 2 * _MARGIN + _TITLE)
        width = max(width, float(root.get("width", 0)), 2 * _MARGIN + text_width(figure.title, _TITLE))
        top += 2 * _MARGIN + _TITLE + float(root.get("height", 0)) + _GAP
    if not figures:
        raise DataError("an SVG file needs at least one figure; got none.")
    title = "; ".join(figure.title for figure in figures)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    save_text(target, canvas.document(width, top - _GAP, title, " ".join(figure.reading for figure in figures)))
    return target
