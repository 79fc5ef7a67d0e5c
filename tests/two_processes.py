"""Scripts on two processes, as torchrun starts them."""

import subprocess
import sys


def run_on_two(script, *words):
    """Run a script, which must end well within two minutes; returns what it printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(script)]
    ran = subprocess.run([*command, *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
