"""The documentation agrees with the published results, its links lead somewhere, and its pages keep their size."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
REPRODUCE = (DOCS / "reproduce.md").read_text(encoding="utf-8")
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def publish():
    sys.path.append(str(ROOT / "commands"))
    spec = importlib.util.spec_from_file_location("command_publish", ROOT / "commands" / "publish.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(ROOT / "commands"))


def _anchor(heading):
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*$]|\]\([^)]*\)", "", heading).lower()).replace(" ", "-")


def _section(page, anchor):
    """The text below a heading, with its subsections; the whole page without an anchor."""
    text = page.read_text(encoding="utf-8")
    if not anchor:
        return text
    headings = [(found.start(), len(found[1]), _anchor(found[2])) for found in re.finditer(r"(?m)^(#+) (.*)$", text)]
    start, depth = next((start, depth) for start, depth, name in headings if name == anchor)
    return text[start : next((at for at, level, _ in headings if at > start and level <= depth), len(text))]


def _number(text):
    return float(text.replace("−", "-").replace(",", ""))


def _numbers(text):
    """Numbers as a reader sees them: not those in names, links or code."""
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    return re.findall(r"(?<![\w.,×#-])[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?(?![\w×]|\.\d)", prose)


def _paragraphs(text):
    """Paragraphs and list items, without code, tables and headings."""
    prose = re.sub(r"(?ms)^```.*?^```|^\s*\|.*?$|^#.*?$|^!\[.*?$", "", text)
    return [part for part in re.split(r"\n\s*\n|\n(?=\s*[-*] )", prose) if part.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    missing = []
    for target in LINK.findall(text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        if RESULTS in (file, *file.parents) and not RESULTS.exists():  # a source distribution has no results
            continue
        anchors = (
            [_anchor(heading) for heading in re.findall(r"(?m)^#+ (.*)$", file.read_text(encoding="utf-8"))]
            if anchor and file.is_file()
            else [anchor]
        )
        if not file.exists() or anchor not in anchors:
            missing.append(target)
    assert missing == []


@pytest.mark.skipif(not RESULTS.exists(), reason="a source distribution has no results")
def test_the_table_of_claims_is_that_of_the_verdicts(publish):
    table = REPRODUCE[REPRODUCE.index(publish.BEGIN) + len(publish.BEGIN) : REPRODUCE.index(publish.END)]
    assert table.strip().splitlines() == [line for line in publish.table_of_claims() if line]


@pytest.mark.parametrize("verdicts", sorted(RESULTS.glob("*/verdicts.jsonl")), ids=lambda path: path.parent.name)
def test_tables_hold_every_number_that_claims_are_judged_by(verdicts):
    page = (DOCS / "tables" / f"{verdicts.parent.name}.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    known, claim = {}, None
    for name, *cells in rows:
        if found := re.match(r"\*\*(C\d+)\*\* ", name):
            claim = found[1]
            known[claim, "verdict"] = [cells[-1]]
        elif claim:
            known.setdefault((claim, re.sub(r"^\*control: (.*)\*$", r"control: \1", name)), []).append(cells[1])
    checked = 0
    for told in map(json.loads, verdicts.read_text(encoding="utf-8").splitlines()):
        if (told["claim"], "verdict") not in known:  # a study of few claims
            assert all(part["value"] is None for part in told["statistics"])
            continue
        assert known[told["claim"], "verdict"][0].startswith(f"**{told['verdict']}**")
        for prefix, part in [("", part) for part in told["statistics"]] + [
            ("control: ", part) for part in told["controls"]
        ]:
            values = known[told["claim"], prefix + part["name"]]
            if part["value"] is None:
                assert any(value.startswith("not measured") for value in values)
                continue
            shown = [[_number(value) for value in _numbers(text)] for text in values if not text.startswith("not ")]
            expected = [part[end] for end in ("value", "low", "high") if part[end] is not None]
            assert [pytest.approx(number, rel=6e-4) for number in expected] in shown
            checked += 1
    assert checked


def test_every_number_of_a_finding_stands_in_a_source_that_it_names():
    """Findings link the tables and the details that they are taken from; a percentage may stand there as a share."""
    findings = REPRODUCE[REPRODUCE.index("## 1.") : REPRODUCE.index("## All claims")]
    checked = 0
    for paragraph in _paragraphs(findings):
        if not paragraph.startswith("- "):
            continue
        targets = [target.partition("#")[::2] for target in LINK.findall(paragraph)]
        known = {_number(number) for path, anchor in targets for number in _numbers(_section(DOCS / path, anchor))}
        assert known, f"this finding names no source: {paragraph}"
        for number in _numbers(paragraph):
            digits = len(number.partition(".")[2])
            value = _number(number)
            assert any(value in (round(other, digits), round(100 * other, digits)) for other in known), (
                number,
                paragraph,
            )
            checked += 1
    assert checked > 50


def test_the_page_of_findings_is_short_and_shows_eight_figures():
    assert len(REPRODUCE.splitlines()) <= 200
    figures = [DOCS / target for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", REPRODUCE)]
    assert len(figures) == 8
    assert sum(figure.stat().st_size for figure in figures) <= 1e6


def test_every_figure_is_drawn_by_a_command_and_linked(publish):
    """That they are drawn of what is published is a test of commands."""
    figures = {path.name for path in (DOCS / "figures").iterdir()}
    assert figures == {f"{name}.svg" for names in publish.KEY_FIGURES.values() for name in names.values()}
    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert figures == set(re.findall(r"\]\(figures/([^)]+)\)", text))
