"""The level of every p-value of an audit and the coverage of every interval, by simulation.

    python validation/audit_levels.py [--only copies ...] [--trials 1] [--seed 0]

Where training images, held-out images and samples are draws of one law, a p-value must be at most α in at most a share α of
the trials, and what is named must be wrong in at most a tenth of the names. Intervals must hold the truth in 95 % of trials.
`--trials` multiplies the number of trials of every row. Shares have Clopper and Pearson's 95 % limits. A row is marked
"above" or "below" if its limits exclude what it must be, to the bad side; in capitals if its 99.9 % limits do. Of a
hundred rows that are as they must be, two or three are marked, and none in capitals.

Sets are named T:H, the number of training and of held-out images, or of groups of them; ":0" is without held-out images.
"""

import argparse
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from levels_copies import copies, exchangeability, families, names
from levels_losses import auc_tests, aucs, gaps, leaking, shares, together

import gausslens

SECTIONS: dict[str, Callable[[float, int], Iterator[str]]] = {
    "exchangeability": exchangeability,
    "copies": copies,
    "families": families,
    "names": names,
    "auc-tests": auc_tests,
    "leaking": leaking,
    "shares": shares,
    "aucs": aucs,
    "together": together,
    "gaps": gaps,
}


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="by default all")
    parser.add_argument("--trials", type=float, default=1.0, help="times as many trials in each row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = f"gausslens {gausslens.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {versions}")
    print(f"command: python validation/{' '.join(Path(word).name for word in sys.argv)}")
    for name in options.only:
        started = time.perf_counter()
        for line in SECTIONS[name](options.trials, options.seed):
            print(line, flush=True)
        print(f"  ({name}: {time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
