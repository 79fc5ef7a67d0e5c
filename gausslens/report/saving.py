"""Reports on disk: the page, whole or not at all, and beside it the figures for papers."""

import os
from pathlib import Path

from ..errors import CheckpointError
from .drawings import draw_svg
from .pages import Images, Page, redact
from .rendering import anchor, render


def render_svgs(page: Page, *, images: Images = "shown") -> dict[str, str]:
    """Every figure as an SVG file of its own."""
    drawn = {
        f"{number:02d}-{anchor(figure.title)}.svg": draw_svg(figure)
        for number, figure in enumerate(redact(page, images).figures, 1)
    }
    return {name: text for name, text in drawn.items() if text is not None}


def save_report(path: str | os.PathLike[str], page: Page, *, images: Images = "shown", svg: bool = False) -> list[Path]:
    """Write the page and, if asked, its figures as SVG into a folder of the same name beside it."""
    from ..atomic_files import save_text  # brings torch, which drawing does without

    target = Path(path)
    files = {target: render(page, images=images)}
    if svg:
        files |= {target.with_suffix("") / name: text for name, text in render_svgs(page, images=images).items()}
    for file, text in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"could not make the folder {file.parent}: {error}. Choose another.") from error
        save_text(file, text)
    return list(files)
