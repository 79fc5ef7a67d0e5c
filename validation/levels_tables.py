"""How often something happened in simulated trials, beside how often it may: shares, their limits, and lines of tables.

Shares have Clopper and Pearson's 95 % limits. A row is marked "above" or "below" if its limits exclude what it must be, to
the bad side; in capitals if its 99.9 % limits do.
"""

import math
from collections.abc import Iterable, Iterator

import torch
from scipy.stats import beta as beta_law

from gausslens.noise import generator

LEVELS = (0.05, 0.01, 0.001)
COVERAGE, FALSE_DISCOVERY = 0.95, 0.1


def clopper_pearson(hits: int, trials: int, error: float = 0.05) -> tuple[float, float]:
    """Limits of a share.

    >>> [round(limit, 3) for limit in clopper_pearson(0, 100)]
    [0.0, 0.036]
    """
    low = 0.0 if hits == 0 else float(beta_law.ppf(error / 2, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta_law.ppf(1 - error / 2, hits + 1, trials - hits))
    return low, high


def mark(hits: int, trials: int, bound: float, *, at_least: bool = False) -> str:
    """Whether a share is on the bad side of what it must be: "above" or "below" for sure, in capitals for very sure.

    >>> mark(20, 100, 0.05), mark(8, 100, 0.05), mark(90, 1000, 0.95, at_least=True)
    ('ABOVE', '', 'BELOW')
    """
    for error, told in ((0.001, str.upper), (0.05, str)):
        low, high = clopper_pearson(hits, trials, error)
        if at_least and high < bound:
            return told("below")
        if not at_least and low > bound:
            return told("above")
    return ""


def table_of_levels(title: str, rows: Iterable[tuple[str, list[float]]]) -> Iterator[str]:
    """How often p-values were at most 5, 1 and .1 %.

    Args:
        title: of the table.
        rows: of a name and the p-values.

    Yields:
        Lines.
    """
    yield f"\n{title}\n  {'':<46} trials  " + "".join(f"{f'p <= {level:g}':<26}" for level in LEVELS)
    for name, p_values in rows:
        if not p_values:
            continue
        cells = []
        for level in LEVELS:
            hits = sum(value <= level * (1 + 1e-9) for value in p_values)
            low, high = clopper_pearson(hits, len(p_values))
            bad = mark(hits, len(p_values), level)
            cells.append(f"{f'{hits / len(p_values):.4f} [{low:.4f}, {high:.4f}] {bad}':<30}")
        yield f"  {name:<46} {len(p_values):>6}  {''.join(cells)}".rstrip()


def line_of_coverage(name: str, hits: int, trials: int) -> str:
    """How often intervals held the truth."""
    low, high = clopper_pearson(hits, trials)
    bad = mark(hits, trials, COVERAGE, at_least=True)
    return f"  {name:<62} {trials:>6}  {hits / trials:.4f} [{low:.4f}, {high:.4f}] {bad}".rstrip()


def line_of_false_names(name: str, shares: list[float], named: float) -> str:
    """The mean share of wrong names, with Student's limits (normal ones: there are many trials)."""
    values = torch.tensor(shares, dtype=torch.float64)
    mean, error = float(values.mean()), float(values.std(correction=0)) / math.sqrt(max(len(values) - 1, 1))
    limits = [mean + z * error for z in (-1.96, 1.96)]
    bad = "above" if limits[0] > FALSE_DISCOVERY else ""
    told = f"{mean:.4f} [{max(limits[0], 0):.4f}, {limits[1]:.4f}]"
    return f"  {name:<46} {len(values):>6}  wrong {told}, {named:.1f} named on average {bad}".rstrip()


def sources(title: str, trials: int, seed: int) -> Iterator[torch.Generator]:
    """A source of randomness for each trial."""
    for trial in range(trials):
        yield generator(seed, f"audit levels {title}", trial)
