"""Scripts on two processes, as torchrun starts them."""

import os
import subprocess
import sys
from pathlib import Path


def run_on_two(script, *words):
    """Run a script, which must end well within two minutes; returns what it printed. It may import helpers of tests."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    ran = subprocess.run(
        [*command, *map(str, words)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
