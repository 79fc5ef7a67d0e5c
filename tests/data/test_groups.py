"""Groups of images, from tables and from file names."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from gausslens.data import Splits, image_names, load_groups, load_images, manifest, tables
from gausslens.data.groups import count_groups, with_groups
from gausslens.errors import ConfigError, DataError

NAMES = ["p1/1.png", "p1/2.png", "p2/1.png", "p2/7.png", "p3/9.png"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))


def folder_of(path, names):
    for number, name in enumerate(names):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), number).save(path / name)
    return path


def zip_of(path, names):
    folder_of(path.with_suffix(""), names)
    with zipfile.ZipFile(path, "w") as archive:
        for name in reversed(names):
            archive.write(path.with_suffix("") / name, name)
    return path


@pytest.fixture(name="scans")
def make_scans(tmp_path):
    return folder_of(tmp_path / "scans", NAMES)


@pytest.fixture(name="table")
def make_table(tmp_path):
    """Writes lines and gives the path."""

    def write(*lines, name="scans.csv", encoding="utf-8"):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding=encoding)
        return tmp_path / name

    return write


def test_names_are_those_of_the_images_and_nothing_is_decoded(scans, tmp_path):
    (scans / "p1" / "1.png").write_bytes(b"")
    assert image_names(scans) == tuple(NAMES)
    assert image_names(zip_of(tmp_path / "scans.zip", ["b.png", "a.png"])) == ("a.png", "b.png")
    np.save(tmp_path / "a.npy", np.zeros((5, 4, 4), np.uint8))
    np.savez(tmp_path / "a.npz", np.zeros((5, 4, 4), np.uint8))
    for source in ("digits", "hf:anything", tmp_path / "a.npy", tmp_path / "a.npz"):
        assert image_names(source) is None
    (tmp_path / "bad.zip").write_bytes(b"PK and no more")
    with pytest.raises(DataError, match="could not read"):
        image_names(tmp_path / "bad.zip")


@pytest.mark.parametrize(
    ("expression", "groups"),
    [
        (r"^(p\d)/", [0, 0, 1, 1, 2]),
        (r"p\d", [0, 0, 1, 1, 2]),
        (r"(\d)\.png", [0, 1, 0, 2, 3]),
        (r"p(\d)/(\d)", [0, 1, 2, 3, 4]),
        (r"p(?:1|2)|9", [0, 0, 1, 1, 2]),
        (r"\.(png)", [0, 0, 0, 0, 0]),
    ],
)
def test_an_expression_groups_by_what_it_finds(scans, expression, groups):
    found = load_groups(scans, expression)
    assert (found.tolist(), found.dtype) == (groups, np.int64)
    assert count_groups(found) == max(groups) + 1


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            r"p3",
            r"4 of 5 images have no match .* such as p1/1\.png, p1/2\.png, p2/1\.png, …\. Give every image a group",
        ),
        (r"(x)?\d", "5 of 5 images have no match"),
        ("", "5 of 5 images have no match"),
        (r"(p", r"neither: \w+: missing \)"),
        (r"p{99999999999999999999}", "which is neither"),
    ],
)
def test_an_expression_that_does_not_find_every_image_is_refused(scans, expression, message):
    with pytest.raises((ConfigError, DataError), match=message):
        load_groups(scans, expression)


def test_images_without_files_need_a_table_of_one_row_each(table, tmp_path):
    with pytest.raises(ConfigError, match=r"no file names .* one row for each image, in their order"):
        load_groups("digits", r"(\d)")
    rows = table("name,writer", *(f"x,{number % 43}" for number in range(1797)))
    assert np.array_equal(load_groups("digits", f"{rows}:writer"), np.arange(1797) % 43)
    with pytest.raises(ConfigError, match="has no files"):
        load_groups("digits", f"{rows}:writer:name")
    rows = table("writer", *("a" for _ in range(1796)))
    with pytest.raises(DataError, match="one row for each of the 1797 images, in their order; it has 1796 rows"):
        load_groups("digits", f"{rows}:writer")


ROWS = [("p1/2.png", "b"), ("p1/1.png", "b"), ("p2/7.png", "a"), ("p2/1.png", "c"), ("p3/9.png", "a"), ("q.png", "d")]


@pytest.mark.parametrize("column", ["file", "Filename", "file_name", "PATH", "image", "name"])
@pytest.mark.parametrize("call", [str, "scans/{}".format, "./{}".format, lambda name: name.replace("/", "\\")])
def test_rows_are_found_by_file_name_in_any_order(scans, table, column, call):
    rows = table(f"patient,{column},age", *(f"{patient}, {call(name)},9" for name, patient in ROWS))
    assert load_groups(scans, f"{rows}:patient").tolist() == [0, 0, 1, 2, 2]


def test_a_table_may_be_of_several_folders_with_the_same_names(tmp_path, table):
    train, test = (folder_of(tmp_path / name, ["1.png", "2.png"]) for name in ("train", "test"))
    rows = table("path,patient", "train/1.png,a", "train/2.png,a", "test/1.png,b", "test/2.png,c")
    assert load_groups(train, f"{rows}:patient").tolist() == [0, 0]
    assert load_groups(test, f"{rows}:patient").tolist() == [0, 1]
    # Of 2.png, the table knows another than this one.
    rows = table("path,patient", "train/1.png,a", "train/2.png,a", "test/1.png,b")
    with pytest.raises(DataError, match=r"1 of 2 images have no row in scans\.csv, such as 2\.png"):
        load_groups(test, f"{rows}:patient")


def test_names_without_folders_or_endings_do_where_they_are_unique(tmp_path, table):
    scans = folder_of(tmp_path / "scans", ["p1/a.png", "p1/b.png", "p2/c.jpg"])
    for names in (["a.png", "b.png", "c.jpg"], ["a", "b", "c"], ["p1/a", "p1/b", "p2/c"], [f"/x/{n}" for n in "abc"]):
        rows = table("image,patient", *(f"{name},{name in ('c', 'c.jpg', 'p2/c', '/x/c')}" for name in names))
        assert load_groups(scans, f"{rows}:patient").tolist() == [0, 0, 1]
    rows = table("image,patient", "q/a.png,0", "r/a.png,0", "b.png,0", "c.jpg,1")
    with pytest.raises(DataError, match=r"1 of 3 images have more than one row in scans\.csv, such as p1/a\.png"):
        load_groups(scans, f"{rows}:patient")
    twice = folder_of(tmp_path / "twice", ["p1/a.png", "p2/a.png", "p2/b.png"])
    with pytest.raises(
        DataError, match=r"2 of 3 images have no row .* such as p1/a\.png, p2/a\.png; its files are called a"
    ):
        load_groups(twice, f"{table('image,patient', 'a.png,0', 'b.png,1')}:patient")


def test_the_columns_may_be_named_and_the_group_is_no_file_name(scans, table):
    rows = table("name,slice,image", *(f"{patient},{name},x" for name, patient in ROWS))
    assert load_groups(scans, f"{rows}:name:slice").tolist() == [0, 0, 1, 2, 2]
    with pytest.raises(DataError, match="5 of 5 images have no row"):
        load_groups(scans, f"{rows}:name")
    in_order = table("name", *"xxyyz")
    assert load_groups(scans, f"{in_order}:name").tolist() == [0, 0, 1, 1, 2]


def test_tabs_quotes_byte_marks_and_blank_lines_are_read(scans, table):
    rows = table("file\tpatient", *(f"{name}\t{patient}, née" for name, patient in ROWS), name="scans.TSV")
    assert load_groups(scans, f"{rows}:patient").tolist() == [0, 0, 1, 2, 2]
    quoted = (f'"{name}","{patient}, ""née"""\n' for name, patient in ROWS)
    rows = table("file,patient", *quoted, encoding="utf-8-sig")
    assert load_groups(scans, f"{rows}:patient").tolist() == [0, 0, 1, 2, 2]


@pytest.mark.parametrize(
    ("lines", "spec", "message"),
    [
        (["a,b", "1,2"], ":c", r"expected one column 'c' in the header; its columns are a, b\."),
        (["a,a", "1,2"], ":a", "expected one column 'a'"),
        ([""], ":a", "its columns are none"),
        (["a", "1"], "", "expected FILE.csv:COLUMN or"),
        (["a", "1"], ":", "expected FILE.csv:COLUMN or"),
        (["a", "1"], ":a:b:c", "expected FILE.csv:COLUMN or"),
        (["a,b", "1,2", "3"], ":b", "line 3: expected 2 cells as in the header; got 1"),
        (["a", "1"], ":a", r"one row for each of the 5 images, in their order, or a column of file names \(file, "),
        (["a", *"12345", "x" * 200_000], ":a", "field larger than field limit"),
        (["file,a", *(f"{name}," for name in NAMES)], ":a", "5 of 5 images have nothing in column 'a' of scans.csv"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_words(scans, table, lines, spec, message):
    with pytest.raises((ConfigError, DataError), match=message):
        load_groups(scans, f"{table(*lines)}{spec}")


def test_a_table_that_cannot_be_read_is_refused(scans, table, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"there is no file .*nowhere\.csv"):
        load_groups(scans, f"{tmp_path / 'nowhere.csv'}:a")
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(DataError, match="there is no file"):
        load_groups(scans, f"{tmp_path / 'a.csv'}:a")
    (tmp_path / "latin.csv").write_bytes("a\né\n".encode("latin1"))
    with pytest.raises(DataError, match=r"could not read .* in UTF-8"):
        load_groups(scans, f"{tmp_path / 'latin.csv'}:a")
    monkeypatch.setattr(tables, "_MOST_BYTES", 5)
    with pytest.raises(DataError, match=r"has 0 MB; expected 0 at most"):
        load_groups(scans, f"{table('a', *'123456')}:a")


def test_paths_with_a_drive_are_paths():
    column = tables.parse_column(r"C:\scans\x.csv:patient")
    assert (str(column.path), column.name, column.files) == (r"C:\scans\x.csv", "patient", None)
    column = tables.parse_column("~/x.TSV:a b:file name")
    assert (column.path.name, column.name, column.files) == ("x.TSV", "a b", "file name")
    assert "~" not in str(column.path)
    assert tables.parse_column(r"^(\w+)_\d+\.png$") is None


@pytest.mark.parametrize("put", [folder_of, zip_of])
def test_files_that_were_left_out_have_no_group(tmp_path, table, put):
    scans = folder_of(tmp_path / "scans", NAMES)
    (scans / "p1" / "2.png").write_bytes(b"broken")
    if put is zip_of:
        with zipfile.ZipFile(tmp_path / "scans.zip", "w") as archive:
            for name in NAMES:
                archive.write(scans / name, name)
        scans = tmp_path / "scans.zip"
    rows = [line for line in ROWS if line[0] != "p1/2.png"]  # nobody needs to know what it was
    by_name = table("file,patient", *(f"{name},{patient}" for name, patient in rows))
    in_order = table("patient", *"bbaca", name="order.csv")
    for spec, groups in [
        (f"{by_name}:patient", [0, 1, 2, 2]),
        (f"{in_order}:patient", [0, 1, 2, 1]),
        (r"p\d", [0, 1, 1, 2]),
    ]:
        with pytest.raises(DataError, match="broken"):
            load_groups(scans, spec)
        assert load_groups(scans, spec, skip_broken=True, size=2).tolist() == groups
        assert len(load_images(scans, skip_broken=True)) == 4


def test_images_that_came_or_went_meanwhile_are_noticed(scans):
    images = load_images(scans)
    (scans / "p3" / "9.png").unlink()
    with pytest.raises(DataError, match="holds 4 images now, and 5 were read"):
        with_groups(images, "p.")


def test_a_manifest_tells_groups_by_what_they_part(scans, table):
    rows = table("patient", *"xxyyz")
    images, plain = with_groups(load_images(scans), r"p\d"), load_images(scans)
    splits = Splits(5, held_out=1, groups=images.groups)
    record = manifest(images, splits, ["all"])
    assert record["groups_hash"] == with_groups(plain, f"{rows}:patient").groups_hash
    assert record["groups_hash"] != with_groups(plain, r"\d.png").groups_hash
    assert sum(part["groups"] for part in record["splits"].values()) == 3
    assert manifest(plain, splits)["groups_hash"] is None
    assert with_groups(plain, None) is plain
