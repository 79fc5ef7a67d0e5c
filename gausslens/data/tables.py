"""One column of a CSV or TSV, with a text for each image.

With a column of file names, every image needs exactly one row. A row may give the image's name relative to the source
(p1/007.png), a longer end of its path (data/p1/007.png), or the name without folders if no other image and no other row
has it; the ending may be missing, and rows of other images are ignored. Without such a column, there is one row for each
image, in their order.
"""

import csv
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import DataError, require, reraise_as
from .arrays import expect
from .image_files import is_image

FILE_COLUMNS = ("file", "filename", "file_name", "path", "image", "name")
"""Names of the column of file names, in upper or lower case; the first one present is used if none is given."""

_MOST_BYTES = 100_000_000
_LONGEST_FIELD = 1 << 17
_TABLE = re.compile(r"(.+?\.(?:csv|tsv))(?::(.*))?", re.IGNORECASE | re.DOTALL)


class Column(NamedTuple):
    """A CSV, one of its columns, and its column of file names if that was given."""

    path: Path
    name: str
    files: str | None


def parse_column(text: str) -> Column | None:
    """`FILE.csv:COLUMN` or `FILE.csv:COLUMN:FILECOLUMN`; None for a text that names no CSV.

    >>> parse_column("scans.csv:patient").name, parse_column("([a-z]+)_") is None
    ('patient', True)
    """
    match = _TABLE.fullmatch(text)
    if match is None:
        return None
    name, *files = (match[2] or "").split(":")
    fits = name and all(files) and len(files) <= 1
    require(fits, f"expected FILE.csv:COLUMN or FILE.csv:COLUMN:FILECOLUMN; got {text!r}.")
    return Column(Path(match[1]).expanduser(), name, files[0] if files else None)


def read_column(
    column: Column, names: Sequence[str] | None, places: Sequence[int], count: int, folder: str
) -> list[str]:
    """The text of each image, given their file names, or their places among the `count` images of the source."""
    spec = f"{column.path.name}:{column.name}:{column.files}"
    advice = "Leave that column out, and give one row for each image, in their order."
    has_use = column.files is None or names is not None
    require(has_use, f"{spec} names a column of file names; {folder} has no files. {advice}")
    values, files = _read(column, by_name=names is not None)
    if names is not None and files is not None:
        return [values[row] for row in _match(files, names, folder, column.path.name)]
    by_name = f", or a column of file names ({', '.join(FILE_COLUMNS)})" if names is not None else ""
    expected = f"one row for each of the {count} images, in their order{by_name}"
    expect(len(values) == count, f"{column.path}: expected {expected}; it has {len(values)} rows.")
    return [values[place] for place in places]


def list_some(names: Sequence[str], most: int = 3) -> str:
    """A few of many names."""
    return ", ".join([*names[:most], *["…"] * (len(names) > most)])


def _read(column: Column, *, by_name: bool) -> tuple[list[str], list[str] | None]:
    """The texts of the column, and the file name in each row if `by_name` and there are file names."""
    path, values, files = column.path, [], []
    lines = _read_lines(path)
    header = [cell.strip() for cell in next(lines, (0, []))[1]]
    value_at, file_at = _index(header, column.name, path), None
    if by_name and column.files is not None:
        file_at = _index(header, column.files, path)
    elif by_name:
        lowered = ["" if name == column.name else name.lower() for name in header]
        file_at = next((lowered.index(name) for name in FILE_COLUMNS if name in lowered), None)
    for number, row in lines:
        if len(row) <= max(value_at, file_at or 0):
            raise DataError(f"{path}, line {number}: expected {len(header)} cells as in the header; got {len(row)}.")
        values.append(row[value_at].strip())
        files.append(row[file_at or 0])
    return values, None if file_at is None else files


def _read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of a table of bounded size, with cells of bounded length; if it cannot be read, that is a DataError."""
    expect(path.is_file(), f"there is no file {path}. Expected a CSV with a header.")
    size, most = (n_bytes / 1e6 for n_bytes in (path.stat().st_size, _MOST_BYTES))
    expect(size <= most, f"{path} has {size:,.0f} MB; expected {most:,.0f} at most. Keep the columns needed.")
    before, delimiter = csv.field_size_limit(_LONGEST_FIELD), "\t" if path.suffix.lower() == ".tsv" else ","
    try:
        with (
            reraise_as(DataError, f"could not read {path}", "Expected a CSV with a header, in UTF-8."),
            open(path, encoding="utf-8-sig", newline="") as file,
        ):
            reader = csv.reader(file, delimiter=delimiter, skipinitialspace=True)
            for row in filter(None, reader):
                yield reader.line_num, row
    finally:
        csv.field_size_limit(before)


def _index(header: list[str], name: str, path: Path) -> int:
    listed = list_some(header, most=12) or "none"
    require(header.count(name) == 1, f"{path}: expected one column {name!r} in the header; its columns are {listed}.")
    return header.index(name)


def _match(files: Sequence[str], names: Sequence[str], folder: str, table: str) -> list[int]:
    """The row of each image, by the rules of the module."""
    files, names = [_plain(file) for file in files], [_plain(name) for name in names]
    rows = _rows(files)
    found = [_first(rows, _longer_names(folder, name)) for name in names]
    # If rows name folders, a row for 007.png in one folder does not belong to 007.png in another.
    by_path = any("/" in files[match[0]] for match in found if match)
    rows = _rows(["" if by_path and "/" in file else _base(file) for file in files])
    short = [(_base(name), _stem(_base(name))) for name in names]
    uses = [Counter(base for base, _ in short), Counter(stem for _, stem in short)]
    for index, of_image in enumerate(short):
        alone = [name for name, counts in zip(of_image, uses, strict=True) if counts[name] == 1]
        found[index] = found[index] or _first(rows, alone)
    lacking = [name for name, match in zip(names, found, strict=True) if not match]
    doubled = [name for name, match in zip(names, found, strict=True) if len(match) > 1]
    for trouble, listed in (("no row", lacking), ("more than one row", doubled)):
        expect(
            not listed,
            f"{len(listed)} of {len(names)} images have {trouble} in {table}, such as {list_some(listed)}; its "
            f"files are called {list_some(files) or 'nothing'}. Give every image one row, or name the column "
            f"of file names: {table}:COLUMN:FILECOLUMN.",
        )
    return [match[0] for match in found]


def _rows(names: Iterable[str]) -> dict[str, list[int]]:
    """The rows of each name."""
    rows = defaultdict(list)
    for row, name in enumerate(names):
        rows[name].append(row)
    return rows


def _first(rows: dict[str, list[int]], names: Iterable[str]) -> list[int]:
    return next((rows[name] for name in names if name in rows), [])


def _longer_names(folder: str, name: str) -> Iterator[str]:
    """Names of an image, by which a row may call it."""
    yield from (name, _stem(name))
    for part in reversed(_plain(folder).split("/")):
        name = f"{part}/{name}"
        yield from (name, _stem(name))


def _plain(name: str) -> str:
    """A name with forward slashes and composed characters, whichever system wrote it."""
    return unicodedata.normalize("NFC", name.strip().replace("\\", "/")).removeprefix("./")


def _stem(name: str) -> str:
    return name.rpartition(".")[0] if is_image(_base(name)) else name


def _base(name: str) -> str:
    return name.rpartition("/")[2]
