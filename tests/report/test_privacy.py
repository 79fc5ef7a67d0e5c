"""What a report tells of private data: with images blurred or withheld, and of paths always, nothing more than it says."""

import io
import re

import numpy as np
import pytest
from html_reader import Reader, content
from PIL import Image
from sample_page import curves, grid, page, slider

from gausslens.report import Axis, ClaimRow, CurveFigure, ImageGrid, Page, Section, Series, Table, render, render_svgs
from gausslens.report.pages import without_paths
from gausslens.report.pictures import blur, image_uri


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("made from /home/ada/scans/set one", "made from set one"),
        ("gausslens study /srv/hospital/scans.zip --only size", "gausslens study scans.zip --only size"),
        ("--data=/srv/hospital/scans/", "--data=scans"),
        ('load("/home/ada/my scans/a b.png")', 'load("a b.png")'),
        (r"study /home/ada/my\ scans/x.zip", "study x.zip"),
        ("(/a/b), [/c/d]; /e/f:/g/h", "(b), [d]; f:h"),
        ("~/scans/x ~ada/scans/y ../../ada/z", "x y z"),
        (r"C:\Users\ada\x.npz D:/ada/y \\server\share\z", "x.npz y z"),
        ("file:///home/ada/x.html", "x.html"),
        ("/tmp", "tmp"),
        ("</b> of </home/ada/x>", "</b> of <x>"),
        ("1/N, ‖a‖/‖b‖, kimg/s and/or s1/s2, x / y", "1/N, ‖a‖/‖b‖, kimg/s and/or s1/s2, x / y"),
        ("https://arxiv.org/abs/2410.24060", "https://arxiv.org/abs/2410.24060"),
        ("runs/train-digits-ab12/record", "runs/train-digits-ab12/record"),
        ("noise: 3:4, σ > 0.1", "noise: 3:4, σ > 0.1"),
    ],
)
def test_paths_become_names(text, told):
    assert without_paths(text) == told


def everywhere(secret):
    """A page that has the text at every place that takes one."""
    common = {"title": secret, "caption": secret, "claims": (secret,), "command": secret}
    images = np.zeros((1, 1, 1, 4, 4), np.uint8)
    row = ClaimRow(secret, secret, secret, 1.0, 0.0, 2.0, secret, secret, "holds", secret, (secret,))
    series = (Series(secret, [1.0], [1.0]),)
    figures = (
        CurveFigure(x=Axis(secret, secret), y=Axis(secret), series=series, **common),
        ImageGrid(rows=(secret,), columns=(secret,), images=images, **common),
    )
    return Page(secret, secret, Table(rows=(row,), **common), (Section(secret, secret, figures),), secret)


def test_no_path_appears_at_any_place():
    told = everywhere("of /home/ada/secret-place/scans here")
    text = render(told)
    held = [content(link["href"]).decode() for link in Reader(text).all("a", class_="csv")]
    for part in (text, *held, *render_svgs(told), *render_svgs(told).values()):
        assert "secret-place" not in part
    assert "of scans here" in text
    assert len(held) == 3
    assert "of scans here" in held[0]


def test_without_images_there_are_none():
    told = render(page(), images="none")
    read = Reader(told)
    assert not read.all("img")
    shapes = [(20, 20, 3)] * 3 + [(1, 64, 3)]  # of matrices and their scale
    embedded = re.findall("data:image/[^)\"' ]*", told)
    assert [np.asarray(Image.open(io.BytesIO(content(uri)))).shape for uri in embedded] == shapes
    assert read.text.count("Images are left out of this page") == 2
    assert "This page embeds no images" in read.text
    assert len(read.all("a", class_="csv")) == 3  # claims, curves, heat-map
    assert list(render_svgs(page(), images="none")) == [
        "01-linearity-over-noise-levels.svg",
        "02-singular-vectors-against-principal-components.svg",
    ]


def test_blurred_pages_hold_no_picture_as_it_was():
    told = render(page(), images="blurred")
    for text in (told, *render_svgs(page(), images="blurred").values()):
        for image in grid().images.reshape(-1, 1, 8, 8):
            assert image_uri(image) not in text
    read = Reader(told)
    shown = [np.asarray(Image.open(io.BytesIO(content(image["src"])))) for image in read.all("img")]
    assert np.array_equal(shown[0], blur(grid().images[0, 0])[0])
    pixels = content(read.all("a", class_="csv")[3]["href"]).decode().splitlines()[1]
    assert pixels.endswith(" ".join(map(str, shown[0].ravel())))
    assert "85 images, all blurred beyond recovery" in read.text


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (1, 67, 45), (1, 3, 2), (3, 256, 256)])
def test_blurring_leaves_block_means_and_nothing_else(shape):
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    told = blur(image)
    assert told.shape == shape
    assert told.dtype == np.uint8
    rows = 1 + int((np.diff(told.astype(int), axis=1) != 0).any((0, 2)).sum())
    columns = 1 + int((np.diff(told.astype(int), axis=2) != 0).any((0, 1)).sum())
    assert rows <= max(1, min(4, shape[1] // 4))
    assert columns <= max(1, min(4, shape[2] // 4))
    assert abs(told.mean() - image.mean()) < 1.0


def test_a_block_holds_its_mean():
    image = np.random.default_rng(0).integers(0, 256, (1, 32, 16), np.uint8)
    means = image.reshape(1, 4, 8, 4, 4).mean((2, 4))
    np.testing.assert_allclose(blur(image)[:, ::8, ::4], means, atol=0.5 + 1e-9)


def test_images_that_blur_alike_cannot_be_told_apart():
    first = np.random.default_rng(1).integers(0, 256, (1, 16, 16), np.uint8)
    second = first.copy()
    second[0, :4, :4] = first[0, :4, :4].T[::-1]
    assert not np.array_equal(first, second)
    assert np.array_equal(blur(first), blur(second))


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ((grid(), curves()), "images on this page are training images"),
        ((ImageGrid(**(vars(grid()) | {"training": False})),), "15 images; none of them is a training image"),
        ((curves(),), "This page embeds no images."),
        ((slider(),), "Some of the 70 images"),
    ],
)
def test_the_top_says_whether_training_images_are_embedded(figures, told):
    read = Reader(render(page(sections=(Section("s", "", figures),))))
    assert told in read.text
    assert read.text.index(told) < read.text.index("Summary")
