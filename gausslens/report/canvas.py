"""A drawing in SVG: lines, texts and pictures, as the text of a file that needs no other."""

from collections.abc import Iterable, Mapping
from xml.sax.saxutils import escape, quoteattr

FONT = 12.0
INK = "#222222"
FAINT = "#DDDDDD"
GREY = "#555555"
# The colours of Okabe and Ito differ for every kind of colour blindness. Yellow is left out: it cannot be read on white.
# Each line also has a mark. Dashes are left to carry a meaning.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKS = ("circle", "square", "diamond", "cross", "triangle-up")  # coprime to the number of colours

_LETTER = 0.56  # the mean width of a letter of the font, in its size
_MORE_IF_WIDE = 0.2  # for capitals and signs


def text_width(text: str, size: float = FONT) -> float:
    """The approximate width of a text, since the font is not known."""
    wide = sum(letter.isupper() or letter in "+=−–%" for letter in text)
    return size * (_LETTER * len(text) + _MORE_IF_WIDE * wide)


def look(index: int) -> tuple[str, str]:
    """Colour and mark of the line with this index; the first 35 all differ."""
    return COLOURS[index % len(COLOURS)], MARKS[index % len(MARKS)]


class Canvas:
    """Collects elements in the order in which they are painted."""

    def __init__(self) -> None:
        self.width, self.height = 0.0, 0.0
        self._elements: list[str] = []

    def add(self, element: str, content: str | None = None, /, **attributes: float | str) -> None:
        """An element with a text; underscores in the names of its attributes stand for hyphens."""
        self._elements.append(_element(element, None if content is None else _escaped(content), attributes))

    def line(self, x1: float, y1: float, x2: float, y2: float, **attributes: float | str) -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, **attributes)

    def polyline(self, points: Iterable[tuple[float, float]], **attributes: float | str) -> None:
        """A line through points."""
        self.add("polyline", points=_joined(points), fill="none", **attributes)

    def polygon(self, points: Iterable[tuple[float, float]], **attributes: float | str) -> None:
        """A filled shape with these corners."""
        self.add("polygon", points=_joined(points), stroke="none", **attributes)

    def text(self, x: float, y: float, text: str, *, size: float = FONT, **attributes: float | str) -> None:
        """A text whose baseline starts at (x, y), or as `text_anchor` says."""
        self.add("text", text, x=x, y=y, font_size=size, **({"fill": INK} | attributes))

    def picture(self, x: float, y: float, width: float, height: float, uri: str, label: str) -> None:
        """A picture from a data URI, without smoothing of its pixels."""
        # Programs that came before SVG 2 know the URI only by its name with a prefix.
        attributes: dict[str, float | str] = {"x": x, "y": y, "width": width, "height": height}
        attributes |= {"preserveAspectRatio": "none", "style": "image-rendering: pixelated", "xlink:href": uri}
        self._elements.append(_element("image", _element("title", _escaped(label), {}), attributes))

    def nest(self, drawing: str, y: float) -> None:
        """Another drawing, given as the text of an SVG file, at this height."""
        self._elements.append(drawing.replace("<svg ", f'<svg y="{_written(y)}" ', 1).rstrip())

    def mark(self, x: float, y: float, shape: str, colour: str, **attributes: str) -> None:
        """A mark of one of the shapes `MARKS`, about 7 wide."""
        corners = {
            "square": ((-3, -3), (3, -3), (3, 3), (-3, 3)),
            "diamond": ((0, -4.2), (4.2, 0), (0, 4.2), (-4.2, 0)),
            "triangle-up": ((0, -4), (4, 3), (-4, 3)),
            "cross": (
                *((-1.2, -4), (1.2, -4), (1.2, -1.2), (4, -1.2), (4, 1.2), (1.2, 1.2)),
                *((1.2, 4), (-1.2, 4), (-1.2, 1.2), (-4, 1.2), (-4, -1.2), (-1.2, -1.2)),
            ),
        }
        if shape in corners:
            self.polygon(((x + dx, y + dy) for dx, dy in corners[shape]), fill=colour, **attributes)
        else:
            self.add("circle", cx=x, cy=y, r=3.4, fill=colour, **attributes)

    def document(self, title: str = "", description: str = "") -> str:
        """The whole file. On a page it has no title and no description, since the page shows them next to it."""
        width, height = _written(self.width), _written(self.height)
        head = (
            '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            'font-family="Helvetica, Arial, sans-serif" role="img">'
        )
        words = {"title": title, "desc": description}
        texts = [_element(name, _escaped(text), {}) for name, text in words.items() if text]
        paper = _element("rect", None, {"width": width, "height": height, "fill": "#FFFFFF"})
        return "\n".join((head, *texts, paper, *self._elements, "</svg>\n"))


def _element(name: str, inside: str | None, attributes: Mapping[str, float | str]) -> str:
    written = "".join(f" {key.replace('_', '-')}={quoteattr(_written(value))}" for key, value in attributes.items())
    return f"<{name}{written}/>" if inside is None else f"<{name}{written}>{inside}</{name}>"


def _escaped(text: str) -> str:
    return escape(_printable(text))


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_written(x)},{_written(y)}" for x, y in points)


def _written(value: float | str) -> str:
    return _printable(value) if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")


def _printable(text: str) -> str:
    # XML has no way to write most control characters.
    return "".join(letter for letter in text if letter >= " " or letter in "\t\n")
