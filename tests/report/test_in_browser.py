"""The page in a real browser: nothing goes wrong, nothing goes out, and what can be touched answers."""

import re
import shutil

import numpy as np
import pytest
from playwright.sync_api import expect, sync_playwright
from sample_page import curves, page, slider

from gausslens.report import Section, save_report

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PLOT_WIDTHS = "[...document.querySelectorAll('.plot svg')].map(svg => svg.getBoundingClientRect().width)"
PHONE = {"width": 360, "height": 740}

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="the page is not tested in a browser: Chromium is not installed (apt-get install chromium)"
)


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    long = "a-very-long-word-that-has-no-place-to-break-" * 4
    wordy = Section(long, long, (type(curves())(**(vars(curves()) | {"title": long, "command": long})),))
    told = page()
    (path,) = save_report(tmp_path_factory.mktemp("report") / "page.html", page(sections=(*told.sections, wordy)))
    return path


class Visit:
    """The page, opened, with what went wrong on it and what it asked for."""

    def __init__(self, browser, report, **options):
        self.address, self.wrongs, self.requests = report.as_uri(), [], []
        self.page = browser.new_page(**options)
        self.page.on(
            "console", lambda told: self.wrongs.append(told.text) if told.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.wrongs.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(self.address)

    def check(self):
        assert self.wrongs == []
        assert [url for url in self.requests if not url.startswith(("data:", "blob:"))] == [self.address]


@pytest.fixture(scope="module")
def on_desktop(browser, report):
    return Visit(browser, report, viewport={"width": 1200, "height": 900})


@pytest.fixture
def desktop(on_desktop):
    """The page on a large screen; whatever a test does there, nothing goes wrong and nothing goes out."""
    yield on_desktop.page
    on_desktop.check()


def test_every_plot_is_drawn_and_a_click_on_the_legend_hides_a_line_with_its_band(desktop):
    kinds = "[...document.querySelectorAll('.plot svg')].map(p => p.closest('figure').id)"
    assert desktop.evaluate(kinds) == ["figure-1", "figure-2", "figure-5"]
    plot = desktop.locator("#figure-1")
    lines, bands = (plot.locator(f"{kind}[data-series]:visible") for kind in ("polyline", "polygon[fill-opacity]"))
    expect(lines).to_have_count(4)
    expect(bands).to_have_count(4)
    for left in (3, 4):
        plot.locator("text[data-legend]").first.click()
        expect(lines).to_have_count(left)
        expect(bands).to_have_count(left)


def test_a_point_says_what_it_shows(desktop):
    point = desktop.locator("#figure-1 [data-value]").first
    point.hover(force=True)
    expect(desktop.locator("#value")).to_have_text(point.get_attribute("data-value"))
    assert re.fullmatch(r"N = 16, noise level σ 80: 0\.\d+ \[0\.\d+, \d(\.\d+)?\]", point.get_attribute("data-value"))
    desktop.locator("h1").hover()
    expect(desktop.locator("#value")).to_be_hidden()


def test_a_double_click_enlarges_a_plot_and_another_goes_back(desktop):
    plot, sizes = desktop.locator("#figure-1 .plot"), []
    for _ in range(3):
        sizes.append(plot.locator("svg").bounding_box()["width"])
        plot.dblclick(position={"x": 300, "y": 100})
    plot.dblclick(position={"x": 300, "y": 100})
    assert sizes[0] == sizes[2] < sizes[1]


def test_the_slider_changes_the_images_shown(desktop):
    images = desktop.locator("#figure-4 .level:not([hidden]) img")
    before = [image.get_attribute("src") for image in images.all()]
    handle = desktop.locator("#slider-4")
    handle.focus()
    handle.press("End")
    after = [image.get_attribute("src") for image in images.all()]
    assert len(before) == len(after) == 10
    assert all(np.not_equal(before, after))
    assert desktop.locator("#level-4").inner_text() == f"{slider().sigmas[-1]:.3g}" == "0.002"
    assert handle.get_attribute("aria-valuetext") == "σ = 0.002"
    assert all(image.is_visible() for image in images.all())


def test_the_command_can_be_copied(desktop):
    desktop.locator("#figure-1 button.copy").click()
    expect(desktop.locator("#figure-1 button.copy")).to_have_text(re.compile("copied|selected"))


def test_the_data_can_be_downloaded(desktop):
    with desktop.expect_download() as download:
        desktop.locator("#figure-1 a.csv").click()
    assert download.value.suggested_filename == "linearity-over-noise-levels.csv"
    assert (
        download.value.path()
        .read_text(encoding="utf-8")
        .startswith("series,noise level σ,linearity (cosine),low,high\n")
    )


def test_print_leaves_out_what_paper_cannot_do_and_cuts_nothing_off(desktop):
    desktop.emulate_media(media="print")
    try:
        assert not any(element.is_visible() for element in desktop.locator("button, .csv, nav, input").all())
        assert desktop.locator("#figure-1 polyline").first.is_visible()
        assert max(desktop.evaluate(PLOT_WIDTHS)) <= desktop.evaluate("document.querySelector('main').clientWidth")
        assert desktop.pdf(format="A4")[:5] == b"%PDF-"
    finally:
        desktop.emulate_media(media="screen")


def test_a_phone_has_nothing_to_scroll_sideways_but_plots_and_can_be_read(browser, report):
    visit = Visit(browser, report, viewport=PHONE, is_mobile=True, has_touch=True)
    widths = "[document.documentElement.scrollWidth, document.body.scrollWidth, window.innerWidth]"
    assert visit.page.evaluate(widths) == [PHONE["width"]] * 3
    sizes = "[...document.querySelectorAll('p, td, figcaption')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    assert min(visit.page.evaluate(sizes)) >= 13
    letters = "[...document.querySelectorAll('.plot svg text')].map(e => e.getBoundingClientRect().height)"
    assert min(visit.page.evaluate(letters)) >= 12
    visit.check()
