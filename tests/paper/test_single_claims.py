"""What single claims take for evidence, and what not."""

import math

import pytest
from claim_records import BUILDERS, FAILS, HOLDS, SIZES, UNCERTAIN, c1, c7, c11, c14, c15, c16, verdict_on


def test_gaps_are_relative_to_the_data_except_for_the_papers_images():
    records = BUILDERS["C5"](1)
    relative = verdict_on("C5", records)
    pixels = verdict_on("C5", [{**found, "data": "cifar10"} for found in records])
    assert relative.statistic.value == pytest.approx(2 * pixels.statistic.value)
    without = verdict_on("C5", [found for found in records if found["quantity"] != "data_rms"])
    assert without.verdict == UNCERTAIN
    assert "data_rms" in without.reason


def test_the_papers_linearity_is_judged_for_the_papers_images_alone():
    names = {
        data: [part.name for part in verdict_on("C1", [{**found, "data": data} for found in c1(1)]).statistics]
        for data in ("toy", "cifar10", "cifar10-long")
    }
    assert len(names["toy"]) == 1
    assert names["cifar10"] == names["cifar10-long"]
    assert len(names["cifar10"]) == 3


def test_slopes_are_those_of_the_records():
    (statistic,) = verdict_on("C1", c1(1)).statistics
    # bump(4.1) is the largest: linearity falls by bump·(.2 − .02·log n), which rises by .02·bump for each log n.
    assert statistic.value == pytest.approx(0.02 * math.exp(-((math.log(4.1 / 4) / 1.5) ** 2)), rel=1e-9)
    assert (statistic.seeds, statistic.images) == (3, 200)


def test_the_window_is_fixed_without_the_network():
    before = verdict_on("C7", c7(1))
    # Outside the window, where RMSE(M, G) is small, the network may be anything.
    moved = [
        {**found, "value": 5.0} if found["denoiser"] == "network" and found["sigma"] in (80.0, 0.002) else found
        for found in c7(1)
    ]
    assert verdict_on("C7", moved).statistics[0].value == before.statistics[0].value == pytest.approx(-1, abs=0.01)
    assert before.note.startswith("much closer")


def test_memorising_first_is_against_the_claim():
    records = [{**found, "value": 0.9} if found["quantity"] == "memorized_fraction" else found for found in c11(1)]
    verdict = verdict_on("C11", records)
    assert verdict.verdict != HOLDS
    assert verdict.statistics[3].value == pytest.approx(math.log(10 / 20))


def test_a_late_rise_at_every_size_is_not_memorising():
    small = {
        (f["seed"], f["kimg"], f["sigma"], f["denoiser"]): f
        for f in c11(1)
        if f["study"] == "time" and "sigma" in f and f["n"] == 40
    }
    records = [
        {**small[found["seed"], found["kimg"], found["sigma"], found["denoiser"]], "n": 1400}
        if found["study"] == "time" and found["n"] == 1400
        else found
        for found in c11(1)
    ]
    verdict = verdict_on("C11", records)
    assert verdict.verdict == UNCERTAIN
    assert verdict.statistic.name.startswith("late rise")


def test_models_to_compare_with_are_not_judged():
    records = BUILDERS["C13"](1) + c11(1) + BUILDERS["C12"](1)
    apart = {"role": "reference", "n": 9999, "width": 16, "value": 7.0, "low": 6.9, "high": 7.1}
    others = [{**found, **apart} for found in records if found["study"] == "capacity"]
    for claim in ("C11", "C12", "C13"):
        alone, beside = verdict_on(claim, records), verdict_on(claim, others + records)
        assert [s.value for s in alone.statistics] == [s.value for s in beside.statistics]
        assert None not in [s.value for s in alone.statistics]


def test_ranks_need_five_sizes():
    records = [found for found in c14(1) if found["n"] != SIZES[2]]
    assert verdict_on("C14", records).reason == "5 sizes needed, 4 found"


def test_an_interval_of_a_correlation_ends_at_one():
    swapped = {SIZES[3]: SIZES[4], SIZES[4]: SIZES[3]}
    records = [
        {**found, "n": swapped.get(found["n"], found["n"])}
        if found["seed"] == 2 and found["quantity"] == "relative_gl"
        else found
        for found in c14(1)
    ]
    rank = next(part for part in verdict_on("C14", records).statistics if "Spearman" in part.name)
    assert rank.value == pytest.approx(2.9 / 3)
    assert 0.8 < rank.low < rank.value < rank.high == 1


def test_small_models_that_agree_refute_strong_generalization():
    records = [
        {**found, "value": 0.2, "low": 0.19, "high": 0.21} if found["role"] == "small" else found for found in c15(1)
    ]
    verdict = verdict_on("C15", records)
    assert verdict.verdict == FAILS
    assert verdict.statistic.name == "excess agreement, small"


@pytest.mark.parametrize(("excess", "expected"), [(0.01, HOLDS), (0.05, UNCERTAIN), (0.09, FAILS)])
def test_small_models_may_agree_by_the_margin_more_than_copies(excess, expected):
    records = [
        {**found, "value": excess, "low": excess - 0.01, "high": excess + 0.01} if found["role"] == "small" else found
        for found in c15(1)
    ]
    assert verdict_on("C15", records).verdict == expected


def test_other_subsets_than_the_small_one_do_not_judge_the_gaussian():
    others = [{**found, "value": 0.1, "low": 0.09, "high": 0.11, "role": "curve"} for found in c16(1)]
    assert verdict_on("C16", c16(1) + others).verdict == HOLDS
    assert verdict_on("C16", others).statistic.value is None


def test_too_few_calls_are_no_evidence():
    records = [{**found, "count": 199} if found["quantity"] == "weight_error" else found for found in BUILDERS["C8"](1)]
    verdict = verdict_on("C8", records)
    assert verdict.verdict == UNCERTAIN
    assert verdict.reason == "200 calls are needed for an unshrunk fit, 199 were made"


def test_longer_training_is_needed_to_say_what_it_removes():
    records = [found for found in BUILDERS["C12"](1) if found["kimg"] == 100]
    assert verdict_on("C12", records).reason == "two values of kimg are needed, 1 found"


def test_the_subspace_that_passes_is_compared_even_where_gains_are_alike():
    said = [{**found, "separated": False} for found in BUILDERS["C9"](1)]
    passed = [{**found, "passed": True} if found["k"] == 10 else found for found in said]
    assert verdict_on("C9", passed).verdict == HOLDS
    worse = [
        {**found, "value": 0.2} if found["quantity"] == "overlap" and found["k"] == 10 else found for found in passed
    ]
    assert verdict_on("C9", worse).verdict == FAILS


def test_alignment_is_judged_up_to_the_highest_noise():
    worse = [
        {**found, "value": 0.1} if found["quantity"] == "overlap" and found["sigma"] > 60 else found
        for found in BUILDERS["C9"](1)
    ]
    assert verdict_on("C9", worse).verdict == FAILS


def test_a_fit_that_cannot_see_its_threshold_says_so():
    records = [
        {**found, "value": 0.3} if found["quantity"] == "weight_error_floor" else found for found in BUILDERS["C10"](1)
    ]
    verdict = verdict_on("C10", records)
    assert verdict.verdict == UNCERTAIN
    assert verdict.reason == "errors of 0.1 cannot be detected by a fit whose own error is 0.3"


def test_only_unshrunk_fits_are_compared():
    """A fit shrunk toward the Gaussian, which has no tag, assumes the claim."""
    for claim in ("C5", "C7"):
        shrunk = [{name: value for name, value in found.items() if name != "shrunk"} for found in BUILDERS[claim](1)]
        assert verdict_on(claim, shrunk).verdict == UNCERTAIN


def test_overlap_that_does_not_fall_spoils_the_claim():
    records = [{**found, "value": 0.95} if found["sigma"] < 10 else found for found in BUILDERS["C20"](1)]
    verdict = verdict_on("C20", records)
    assert (verdict.verdict, verdict.statistic.name) == (FAILS, "its fall below σ = 10")


def test_subspaces_that_near_equal_eigenvalues_do_not_determine_are_left_out():
    records = BUILDERS["C9"](1)
    for found in records:
        if found["quantity"] == "overlap" and (found["k"] == 5 or found["sigma"] == 0.47):
            found["value"] = 0.1
    assert verdict_on("C9", records).verdict == FAILS
    said = [{**found, "separated": found["k"] != 5 and found["sigma"] != 0.47} for found in records]
    assert verdict_on("C9", said).verdict == HOLDS
    none = [{**found, "separated": False} for found in records]
    assert verdict_on("C9", none).reason == "no subspace whose ceiling is above chance"


def test_every_architecture_must_do_nothing_at_low_noise():
    idle, busy = (
        [{**found, "network": name} for found in BUILDERS["C19"](effect)] for name, effect in (("unet", 1), ("adm", -1))
    )
    assert verdict_on("C19", idle).verdict == HOLDS
    verdict = verdict_on("C19", idle + busy)
    assert (verdict.verdict, verdict.statistic.name) == (FAILS, "identity gap minus the Wiener filter's, σ ≤ 0.1, adm")


def test_seeds_that_lack_a_size_do_not_stand_in_for_it():
    """Else the smallest N of one seed would be averaged with the next larger of another."""
    records = [{**found, "data": "cifar10"} for found in BUILDERS["C1"](1)]
    seeds = sorted({found["seed"] for found in records})
    for gone in (min, max):
        n = gone(found["n"] for found in records)
        fewer = [found for found in records if (found["n"], found["seed"]) != (n, seeds[0])]
        whole, part = (verdict_on("C1", given).statistics for given in (records, fewer))
        at = 2 if gone is min else 1
        assert part[0].seeds == part[at].seeds == whole[0].seeds - 1
        assert part[at].value == pytest.approx(whole[at].value, abs=0.02)


def test_images_without_spread_are_no_scale():
    records = [{**found, "value": 0.0} if found["quantity"] == "data_rms" else found for found in BUILDERS["C5"](1)]
    assert verdict_on("C5", records).reason == "the data's RMS is 0, and gaps are divided by it"
