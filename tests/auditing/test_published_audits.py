"""Networks of CIFAR-10 that were audited on a GPU, judged again from their published records."""

import json
from pathlib import Path

import pytest

from gausslens.auditing.rules import judge
from gausslens.auditing.stages import evidence_of

AUDITS = Path(__file__).parents[2] / "results" / "audits"
# By what samples of the same networks are: 95 %, 28 % and none of 256 copies (results/cifar10).
VERDICTS = {
    49: "memorizing",
    195: "in transition",
    782: "generalizing",
    3_125: "generalizing",
    25_000: "generalizing",
    50_000: "generalizing",
}


@pytest.mark.parametrize("n", VERDICTS)
def test_without_a_sample_networks_are_told_apart_as_by_their_copies(n):
    records = [json.loads(line) for line in (AUDITS / f"cifar10-ncsnpp-64-n{n}.jsonl").read_text().splitlines()]
    assert not any(record["stage"] == "copies" for record in records)
    assert judge(evidence_of(records)).verdict == VERDICTS[n]
