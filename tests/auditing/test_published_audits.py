"""Networks of CIFAR-10 that were audited on a GPU, judged again from their published records."""

import json
import lzma
from pathlib import Path

import pytest

from gausslens.auditing.evidence import Evidence
from gausslens.auditing.verdict import judge

AUDITS = Path(__file__).parents[2] / "results" / "audits" / "cifar10-ncsnpp-64.jsonl.xz"
# By what samples of the same networks are: 95 %, 28 % and none of 256 copies (results/cifar10).
VERDICTS = {
    49: "memorizing",
    195: "partly memorizing",
    782: "generalizing",
    3_125: "generalizing",
    25_000: "generalizing",
    50_000: "generalizing",
}


def records_of(n):
    with lzma.open(AUDITS, "rt") as file:
        return [record for record in map(json.loads, file) if record["n"] == n]


@pytest.mark.parametrize("n", VERDICTS)
def test_without_a_sample_networks_are_told_apart_as_by_their_copies(n):
    records = records_of(n)
    assert not any(record["stage"] == "copies" for record in records)
    assert judge(Evidence(records)).verdict == VERDICTS[n]


@pytest.mark.parametrize("n", VERDICTS)
def test_a_network_may_leak_membership_and_not_lean(n):
    """That of 782 images has a lower loss on 98 of 100 of them than on a new one, and the others of its verdict on 50."""
    assert judge(Evidence(records_of(n))).leaks == (n <= 782)


def test_quantities_that_no_rule_knows_are_ignored():
    records = records_of(782)
    known = {record["quantity"] for record in records}
    assert {"p_values", "shared_duplicates"} < known  # of version 0.1
    strange = {"stage": "later", "quantity": "unheard of", "value": None, "sigma": 1.0}
    fewer = [record for record in records if record["quantity"] not in ("p_values", "shared_duplicates")]
    assert judge(Evidence([*records, strange])) == judge(Evidence(fewer))
