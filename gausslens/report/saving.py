"""Reports on disk: the page, its figures as SVG files, and several figures in one SVG file for a README or a talk."""

import os
from pathlib import Path

from ..config import Images
from ..errors import CheckpointError, DataError
from .canvas import Canvas, text_width
from .drawings import draw, draw_svg
from .figures import Figure
from .pages import Page, redact
from .rendering import anchor, render

_TITLE, _MARGIN, _GAP = 15.0, 10.0, 18.0


def render_svgs(page: Page, *, images: Images = "shown") -> dict[str, str]:
    """Every figure as an SVG file of its own."""
    numbered = enumerate(redact(page, images).figures, 1)
    drawn = {f"{number:02d}-{anchor(figure.title)}.svg": draw_svg(figure) for number, figure in numbered}
    return {name: text for name, text in drawn.items() if text is not None}


def save_report(path: str | os.PathLike[str], page: Page, *, images: Images = "shown", svg: bool = False) -> list[Path]:
    """Write the page, and with `svg` also its figures, into a folder of the same name next to it."""
    target = Path(path)
    files = {target: render(page, images=images)}
    if svg:
        files |= {target.with_suffix("") / name: text for name, text in render_svgs(page, images=images).items()}
    for file, text in files.items():
        _save(file, text)
    return list(files)


def save_svg(path: str | os.PathLike[str], *figures: Figure) -> Path:
    """Write figures into one SVG file, each below its title.

    Args:
        path: the file, which is replaced if it exists. Its folder is made.
        *figures: curves, heat-maps or image grids, from top to bottom.

    Returns:
        The path.

    Raises:
        DataError: if there is no figure, or a figure without a drawing: a table, or images that are withheld.
        CheckpointError: if the file cannot be written.
    """
    canvas = Canvas()
    for figure in figures:
        drawing = draw(figure)
        if drawing is None:
            raise DataError(f"the figure {figure.title!r} has no drawing: it is a table, or its images are withheld.")
        top = canvas.height + (_GAP if canvas.height else 0)
        canvas.text(_MARGIN, top + _MARGIN + _TITLE, figure.title, size=_TITLE, font_weight="bold")
        canvas.nest(drawing.document(figure.title, figure.reading), top + 2 * _MARGIN + _TITLE)
        canvas.width = max(canvas.width, drawing.width, 2 * _MARGIN + text_width(figure.title, _TITLE))
        canvas.height = top + 2 * _MARGIN + _TITLE + drawing.height
    if not figures:
        raise DataError("an SVG file needs at least one figure; got none.")
    title, description = "; ".join(figure.title for figure in figures), " ".join(figure.reading for figure in figures)
    return _save(Path(path), canvas.document(title, description))


def _save(path: Path, text: str) -> Path:
    from ..atomic_files import save_text  # brings torch, which drawing does without

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"could not make the folder {path.parent}: {error}. Choose another.") from error
    save_text(path, text)
    return path
