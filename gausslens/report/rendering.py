"""A page as one HTML file that holds all it needs. It opens from disk and loads nothing.

The template escapes all texts. Plots are the drawings of the SVG files. Images are PNG. On a page that would be larger than
15 MB they become JPEG, and their pixels are not offered as CSV.
"""

import math
from functools import partial
from importlib.resources import files

from ..config import Images
from ..errors import ConfigError
from .drawings import draw
from .figures import CurveFigure, Figure, ImageGrid, Real
from .pages import Page, redact
from .pictures import data_uri, image_uri
from .spreadsheets import as_csv

LARGEST = 15_000_000  # bytes
_QUALITIES = (None, 85, 50)  # of JPEG; None is PNG


def render(page: Page, *, images: Images = "shown") -> str:
    """The page as HTML."""
    shown = redact(page, images)
    for quality in _QUALITIES:
        text = _filled(shown, images, quality).encode("utf-8", "replace").decode()  # file names may hold anything
        if len(text.encode()) < LARGEST:
            return text
    raise ConfigError(
        f"a page must stay below {LARGEST / 1e6:.0f} MB; {page.title!r} has {len(text) / 1e6:.1f} MB with compressed "
        "images. Show fewer or smaller images, or leave them out (--no-images)."
    )


def _filled(page: Page, images: Images, quality: int | None) -> str:
    from jinja2 import Environment, PackageLoader
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("gausslens", "report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": _number, "slug": anchor}
    numbers = {id(figure): number for number, figure in enumerate(page.figures, 1)}
    return environment.get_template("page.html").render(
        page=page,
        notice=notice(page, images),
        compressed=bool(page.pictured) and quality is not None,
        number_of=lambda figure: numbers[id(figure)],
        zip=partial(zip, strict=True),
        kind=lambda figure: type(figure).__name__,
        csv_uri=lambda figure: _csv_uri(figure, exact=quality is None),
        uri=lambda image: image_uri(image, quality),
        plot=lambda figure: Markup(draw(figure).document()),  # type: ignore[union-attr]
        plots=any(isinstance(figure, CurveFigure) for figure in page.figures),
        style=Markup(files(__package__).joinpath("style.css").read_text(encoding="utf-8")),
        script=Markup(files(__package__).joinpath("page.js").read_text(encoding="utf-8")),
    )


def notice(page: Page, images: Images) -> str:
    """What the top of the page says about the images in it."""
    if images == "none":
        return "This page embeds no images: neither images of the data nor images made by models."
    if not page.pictured:
        return "This page embeds no images."
    count = sum(math.prod(figure.places) for figure in page.pictured)
    if images == "blurred":
        return f"This page embeds {count:,} images, all blurred beyond recovery. It embeds no training image unchanged."
    if any(figure.training for figure in page.pictured):
        return f"Some of the {count:,} images on this page are training images, or copies of them made by models."
    return f"This page embeds {count:,} images; none of them is a training image."


def anchor(text: str) -> str:
    """A text as the name of a file or of a place on the page: lower-case letters and digits, with hyphens between words."""
    letters = "".join(letter if letter.isascii() and letter.isalnum() else " " for letter in text.lower())
    return "-".join(letters.split()) or "untitled"


def _csv_uri(figure: Figure, *, exact: bool) -> str | None:
    """The numbers of a figure as a data URI; those of images only if the page holds them exactly."""
    text = as_csv(figure) if exact or not isinstance(figure, ImageGrid) else None
    return None if text is None else data_uri(text.encode(), "text/csv;charset=utf-8")


def _number(value: Real | None) -> str:
    return "–" if value is None else f"{value:.3g}".replace("-", "−")
