"""A sample of validation/planted_copies.py: planted copies are found and named, and good models raise no alarm."""

import importlib.util
import sys
from pathlib import Path

import pytest

from gausslens.auditing.copies import find_copies

KINDS = ("exact", "noise 0.02", "mirrored", "shifted")


@pytest.fixture(scope="module")
def planting():
    folder = Path(__file__).parents[2] / "validation"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        spec = importlib.util.spec_from_file_location("planted_copies_module", folder / "planted_copies.py")
        module = importlib.util.module_from_spec(spec)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.mark.slow
@pytest.mark.parametrize(("source", "seed"), [("blobs", 2001), ("digits", 2002)])
def test_one_percent_copies_are_found_and_their_absence_too(planting, source, seed):
    trial = planting.make_trial(source, seed)
    copies = find_copies(trial.samples, trial.pool, seed=seed)
    assert not copies.exist
    assert (copies.copies, copies.parts) == ([], {})
    kinds = [kind for kind in planting.plantings(seed) if kind.name in KINDS]
    outcomes = planting.search_planted(trial, copies, kinds, seed)
    assert [outcome.alarm for outcome in outcomes] == [True] * len(KINDS)
    named = sum(outcome.named for outcome in outcomes)
    assert named > 0.9 * len(KINDS) * planting.COPIES
    assert sum(outcome.wrong for outcome in outcomes) <= 0.1 * named


@pytest.mark.slow
def test_chance_copies_of_few_held_out_images_raise_no_alarm(planting):
    for seed in range(2001, 2004):
        trial = planting.make_trial(planting.UNEVEN, seed)
        assert not find_copies(trial.samples, trial.pool, seed=seed).exist
