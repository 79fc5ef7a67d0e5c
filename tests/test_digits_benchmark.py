"""The digits benchmark, once and with room: the default recipe learns to draw digits, and copies none."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "digits.py"


@pytest.mark.slow
def test_samples_of_a_small_network_are_digits_and_not_copies():
    ran = subprocess.run([sys.executable, str(SCRIPT), "--seeds", "7"], capture_output=True, text=True, check=True)
    first, *rows = ran.stdout.splitlines()
    real = float(first.split()[3])
    seed, _, cpu, _, unanimous, copies = (task.split()[0] for task in rows[2].strip("| ").split(" | "))
    assert seed == "7"
    assert 0.75 < real < 0.85
    assert float(unanimous) > real - 0.08  # twice the half-width of its interval
    assert float(copies) < 0.05
    assert float(cpu) < 60
