"""The words and rows of a study's page."""

from dataclasses import replace

from gausslens.paper.claims import judge
from gausslens.paper.claims.claim import Control
from gausslens.paper.page import claim_row


def test_a_row_says_why_it_is_open_and_what_stands_beside_it():
    verdict = judge([])[0]
    assert claim_row(verdict).note == "not measured"
    controls = (Control("of multi-delta", 0.123456, 0.1, 0.15), Control("exact", 1.0, None, None))
    part = replace(verdict.statistic, value=0.5)
    known = replace(verdict, statistics=(part,), statistic=part, reason="3 seeds needed", note="odd", controls=controls)
    row = claim_row(known)
    assert row.note == "3 seeds needed; odd"
    assert row.controls == ("of multi-delta: 0.123 [0.1, 0.15]", "exact: 1")
