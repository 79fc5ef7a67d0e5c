"""The examples of docs/zoo.md run as they stand, in their order."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "zoo.md").read_text(encoding="utf-8")


def test_the_examples_run_as_they_are(tmp_path):
    pytest.importorskip("diffusers", reason="diffusers is not installed: docs/zoo.md is not tested")
    program = ""
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        if name := re.match(r"# file: (\S+)\n", block):
            (tmp_path / name[1]).write_text(block)
        else:
            program += block
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert answer.returncode == 0, answer.stderr
    ranges = [tuple(map(float, found)) for found in re.findall(r"\(([\d.]+), ([\d.]+)\)", answer.stdout)]
    assert ranges == [
        pytest.approx((0.01, 157.4), rel=1e-3),
        pytest.approx((0.0, 152.2), rel=1e-3),
        pytest.approx((0.01, 157.4), rel=1e-3),
    ]
    assert "(3, 16, 16) 10 (" in answer.stdout
