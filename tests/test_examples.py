"""Every example runs as it stands, on one thread, and prints something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def run(path, folder):
    """What an example prints, run in an empty folder."""
    answer = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


OTHERS = [path for path in EXAMPLES if path.stem != "memorising_or_generalising"]


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: path.stem)
def test_examples_run(path, tmp_path):
    assert run(path, tmp_path).strip()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_new_images_tell_memorising_from_generalising(tmp_path):
    rows = run(EXAMPLES[0].parent / "memorising_or_generalising.py", tmp_path).splitlines()[1:]
    fvu, error, floor = {}, {}, {}
    for row in rows:
        name, kind, _, _, _, *last = row.split()
        fvu[name, kind], error[name, kind], floor[name, kind] = map(float, last)
    assert error["memorising", "training"] < 1.5 * floor["memorising", "training"]
    assert error["memorising", "held-out"] > 4 * floor["memorising", "held-out"]
    assert error["generalising", "held-out"] < 0.05
    assert max(fvu["generalising", kind] for kind in ("training", "held-out")) < 0.01 < fvu["memorising", "training"]
