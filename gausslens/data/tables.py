"""One column of a CSV, with a text for each image.

The CSV has a header; a .tsv is separated by tabs. If it has a column of file names, every image needs exactly one row,
which is looked for in this order:

    1. the image's whole name, relative to the source: p1/007.png
    2. a longer end of its path: data/p1/007.png for the image p1/007.png of the folder data
    3. its name without folders, 007.png, if no other image and no other row has it

The ending (.png) may be missing, and rows that fit no image are ignored. Without a column of file names, the CSV needs one
row for each image, in their order.
"""

import csv
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigError, DataError
from .pictures import is_picture

FILE_COLUMNS = ("file", "filename", "file_name", "path", "image", "name")
"""Names of the column of file names, in upper or lower case; the first one present is used if none is given."""

_MOST_BYTES = 100_000_000
_LONGEST_FIELD = 1 << 17
_NAMED = 3
_COLUMNS_NAMED = 12
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
    columns = (match[2] or "").split(":")
    if not all(columns) or len(columns) > 2:
        raise ConfigError(f"expected FILE.csv:COLUMN or FILE.csv:COLUMN:FILECOLUMN; got {text!r}.")
    return Column(Path(match[1]).expanduser(), columns[0], columns[1] if len(columns) == 2 else None)


def read_column(
    column: Column, names: Sequence[str] | None, places: Sequence[int], count: int, folder: str
) -> list[str]:
    """The text of each image."""
    if column.files is not None and names is None:
        raise ConfigError(
            f"{column.path.name}:{column.name}:{column.files} names a column of file names; {folder} has no files. Leave "
            "that column out, and give one row for each image, in their order."
        )
    values, files = _read(column, by_name=names is not None)
    if names is not None and files is not None:
        return [values[row] for row in _match(files, names, folder, column.path.name)]
    if len(values) != count:
        by_name = f", or a column of file names ({', '.join(FILE_COLUMNS)})" if names is not None else ""
        raise DataError(
            f"{column.path}: expected one row for each of the {count} images, in their order{by_name}; it has "
            f"{len(values)} rows."
        )
    return [values[place] for place in places]


def some(names: Sequence[str]) -> str:
    """A few of many names."""
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")


def _read(column: Column, *, by_name: bool) -> tuple[list[str], list[str] | None]:
    """The column's texts, and the file names beside them if there are any and they are wanted."""
    path, values, files = column.path, [], []
    with _explained(path):
        if not path.is_file():
            raise DataError(f"there is no file {path}. Expected a CSV with a header.")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise DataError(
                f"{path} has {size / 1e6:,.0f} MB; expected {_MOST_BYTES / 1e6:,.0f} at most. Keep the columns needed."
            )
        with open(path, encoding="utf-8-sig", newline="") as file:
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
            header = [cell.strip() for cell in next(reader, [])]
            value_at = _index(header, column.name, path)
            file_at = _file_index(header, column) if by_name else None
            for row in filter(None, reader):
                if len(row) <= max(value_at, file_at or 0):
                    raise DataError(
                        f"{path}, line {reader.line_num}: expected {len(header)} cells as in the header; got {len(row)}."
                    )
                values.append(row[value_at].strip())
                if file_at is not None:
                    files.append(row[file_at])
    return values, files if file_at is not None else None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Inside, cells have a greatest length, and a table that cannot be read is a DataError."""
    before = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"could not read {path}: {reason}. Expected a CSV with a header, in UTF-8.") from None
    finally:
        csv.field_size_limit(before)


def _index(header: list[str], name: str, path: Path) -> int:
    if header.count(name) == 1:
        return header.index(name)
    more = ", …" if len(header) > _COLUMNS_NAMED else ""
    listed = ", ".join(header[:_COLUMNS_NAMED]) + more
    raise ConfigError(f"{path}: expected one column {name!r} in the header; its columns are {listed or 'none'}.")


def _file_index(header: list[str], column: Column) -> int | None:
    """Which column holds file names, as given or by its name."""
    if column.files is not None:
        return _index(header, column.files, column.path)
    lowered = ["" if name == column.name else name.lower() for name in header]
    return next((lowered.index(name) for name in FILE_COLUMNS if name in lowered), None)


def _match(files: Sequence[str], names: Sequence[str], folder: str, table: str) -> list[int]:
    """The row of each image, by the rules of the module."""
    files, names = [_plain(file) for file in files], [_plain(name) for name in names]
    rows: dict[str, list[int]] = {}
    for row, file in enumerate(files):
        rows.setdefault(file, []).append(row)
    found = [_first(rows, _endings(folder, name)) for name in names]
    # Where folders tell images apart, the row of another folder's 007.png is not this one's.
    by_path = any("/" in files[match[0]] for match in found if match)
    bases: dict[str, list[int]] = {}
    for row, file in enumerate(files):
        if not (by_path and "/" in file):
            bases.setdefault(_base(file), []).append(row)
    alone = _unique(map(_base, names)), _unique(_stem(_base(name)) for name in names)
    for index, name in enumerate(names):
        if not found[index]:
            forms = _base(name), _stem(_base(name))
            found[index] = _first(bases, [form for form, only in zip(forms, alone, strict=True) if form in only])
    missing = [name for name, match in zip(names, found, strict=True) if not match]
    repeated = [name for name, match in zip(names, found, strict=True) if len(match) > 1]
    for listed, trouble in ((missing, "no row"), (repeated, "more than one row")):
        if listed:
            raise DataError(
                f"{len(listed)} of {len(names)} images have {trouble} in {table}, such as {some(listed)}; its files are "
                f"called {some(files) or 'nothing'}. Give every image one row, or name the column of file names: "
                f"{table}:COLUMN:FILECOLUMN."
            )
    return [match[0] for match in found]


def _plain(name: str) -> str:
    """A name with forward slashes and composed characters, whichever system wrote it."""
    return unicodedata.normalize("NFC", name.strip().replace("\\", "/")).removeprefix("./")


def _endings(folder: str, name: str) -> Iterator[str]:
    """Names of an image, by which a row may call it."""
    yield from (name, _stem(name))
    for part in reversed(_plain(folder).split("/")):
        name = f"{part}/{name}"
        yield from (name, _stem(name))


def _stem(name: str) -> str:
    return name.rpartition(".")[0] if is_picture(name.rpartition("/")[2]) else name


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _first(rows: dict[str, list[int]], forms: Iterable[str]) -> list[int]:
    return next((rows[form] for form in forms if form in rows), [])


def _unique(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count == 1}
