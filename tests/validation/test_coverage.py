"""A sample of validation/coverage.py, of one law: 95 % intervals of the measures hold the truth about 95 % of the time."""

import importlib.util
from pathlib import Path

import pytest
import scipy.stats

TRIALS = 150


@pytest.mark.slow
def test_intervals_cover(monkeypatch):
    path = Path(__file__).parents[2] / "validation" / "coverage.py"
    spec = importlib.util.spec_from_file_location("coverage_module", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "REFERENCE_IMAGES", 20_000)
    # What 93 % and 97 % could give in so few trials, but for one in a thousand.
    least = scipy.stats.binom.ppf(0.001, TRIALS, 0.93)
    most = scipy.stats.binom.ppf(0.999, TRIALS, 0.97)
    for name, (_, _, hits) in script.coverage("gaussian", TRIALS, 100).items():
        assert least <= hits <= most, name
