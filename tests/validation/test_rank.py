"""validation/rank.py at a size for the slow tier: a known spectrum is found, within memory, from every source."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "validation" / "rank.py"


@pytest.mark.slow
def test_large_images_keep_their_spectrum_within_memory():
    command = [sys.executable, str(SCRIPT), "--count", "300", "--side", "64", "--rank", "40"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    rows = [line.strip("| ").split(" | ") for line in ran.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == ["float32 tensor", "float32 stream, read once", "uint8 memory map"]
    for row in rows:
        assert float(row[4]) < 1e-3, row
        assert float(row[5]) < 1e-3, row
        assert float(row[6]) < 1.0, row
