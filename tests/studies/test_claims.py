"""Every claim gives each of its three verdicts on records made for it, and no verdict goes beyond its evidence."""

import json
import math
from unittest.mock import patch

import pytest
from claim_records import BUILDERS, HELD_OUT, SIZES, c1, c7, c11, c14, c15, c16, c21, record

from gausslens.studies.claims import SCHEMA, as_json, as_table, judge
from gausslens.studies.claims.judging import CLAIMS
from gausslens.studies.claims.thresholds import THRESHOLDS

HOLDS, FAILS, UNCERTAIN = "holds", "does not hold", "not enough evidence"
CLAIM_NAMES = [f"C{number}" for number in range(1, 22)]


def verdict_on(claim, records):
    """The verdict on one claim that is judged by itself."""
    with patch.dict(CLAIMS, {claim: CLAIMS[claim]}, clear=True):
        (verdict,) = judge(records)
    return verdict


def widen(records):
    """The same values with intervals over images that leave nothing certain."""
    return [
        {**found, "low": found["value"] - 3, "high": found["value"] + 3} if "low" in found else found
        for found in records
    ]


@pytest.mark.parametrize("claim", CLAIM_NAMES)
def test_a_true_claim_holds(claim):
    verdict = verdict_on(claim, BUILDERS[claim](1))
    assert verdict.verdict == HOLDS, (verdict.reason, verdict.statistic)
    assert verdict.reason is None
    for statistic in verdict.statistics:
        if statistic.threshold.above is not None:
            assert statistic.low > statistic.threshold.above
        if statistic.threshold.below is not None:
            assert statistic.high < statistic.threshold.below


@pytest.mark.parametrize("claim", CLAIM_NAMES)
def test_a_false_claim_does_not_hold(claim):
    verdict = verdict_on(claim, BUILDERS[claim](-1))
    assert verdict.verdict == FAILS, (verdict.reason, verdict.statistics)
    limit = verdict.statistic.threshold
    beyond = [limit.above is not None and verdict.statistic.high < limit.above]
    beyond += [limit.below is not None and verdict.statistic.low > limit.below]
    assert any(beyond)


@pytest.mark.parametrize("claim", CLAIM_NAMES)
def test_an_uncertain_claim_lacks_evidence(claim):
    verdict = verdict_on(claim, BUILDERS[claim](1e-4) if claim != "C21" else c21(0))
    if claim in ("C7", "C19"):  # there, halfway is not at the threshold
        verdict = verdict_on(claim, widen(BUILDERS[claim](1)))
    assert verdict.verdict == UNCERTAIN, verdict.statistics
    assert verdict.reason


@pytest.mark.parametrize("claim", [name for name in CLAIM_NAMES if name != "C21"])
def test_wide_intervals_over_images_are_not_enough(claim):
    verdict = verdict_on(claim, widen(BUILDERS[claim](1)))
    assert verdict.verdict == UNCERTAIN
    assert "reaches the threshold" in verdict.reason


@pytest.mark.parametrize("claim", CLAIM_NAMES)
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_fewer_than_three_seeds_never_hold(claim, seeds):
    verdict = verdict_on(claim, BUILDERS[claim](1, seeds))
    if claim == "C21":
        assert verdict.verdict == HOLDS  # algebra, without training
    else:
        assert verdict.verdict == UNCERTAIN
        assert verdict.reason == f"3 training seeds needed, {len(seeds)} found"


def test_missing_records_are_named():
    verdicts = judge([])
    assert [verdict.claim for verdict in verdicts] == CLAIM_NAMES
    for verdict in verdicts:
        assert verdict.verdict == UNCERTAIN
        assert verdict.reason.startswith("no record of")
        assert verdict.statistic.value is None


@pytest.mark.parametrize("claim", CLAIM_NAMES)
def test_numbers_that_are_none_or_nan_count_as_missing(claim):
    records = BUILDERS[claim](1)
    broken = [{**found, "value": value} for found in records for value in (None, math.nan, math.inf)]
    assert verdict_on(claim, records + broken).verdict == HOLDS
    assert verdict_on(claim, broken).verdict == UNCERTAIN


@pytest.mark.parametrize("claim", [name for name in CLAIM_NAMES if name != "C21"])
def test_without_intervals_the_seeds_alone_decide(claim):
    bare = [{key: value for key, value in found.items() if key not in ("low", "high")} for found in BUILDERS[claim](1)]
    assert verdict_on(claim, bare).verdict == HOLDS
    one = [found for found in bare if found.get("seed") in (0, None)]
    assert verdict_on(claim, one).verdict == UNCERTAIN


def test_one_seed_without_interval_refutes_nothing():
    bare = [{**found, "low": None, "high": None} for found in c16(-1, seeds=(0,))]
    verdict = verdict_on("C16", bare)
    assert verdict.verdict == UNCERTAIN
    assert verdict.statistic.value == pytest.approx(0.919)
    assert verdict.statistic.low is None


def test_a_false_claim_is_refuted_by_images_alone():
    assert verdict_on("C16", c16(-1, seeds=(0,))).verdict == FAILS


def test_disagreeing_seeds_are_not_enough():
    tags = {"study": "strong", "denoiser": "gaussian", "reference": "gaussian_full", "noise": "same"}
    records = [record("agreement_correlation", 0.98, spread=0.03, seed=seed, **tags) for seed in range(3)]
    assert verdict_on("C16", records).verdict == UNCERTAIN


def test_holm_takes_back_what_holds_alone():
    tags = {"study": "strong", "denoiser": "gaussian", "reference": "gaussian_full", "noise": "same"}
    weak = [record("agreement_correlation", 0.98, spread=0.012, seed=seed, **tags) for seed in range(3)]
    alone = verdict_on("C16", weak)
    assert alone.verdict == HOLDS
    assert 0.01 < alone.statistic.p_holds < 0.025
    others = [found for name in ("C1", "C7", "C11") for found in BUILDERS[name](1e-4)]
    together = {verdict.claim: verdict for verdict in judge(weak + others)}["C16"]
    assert together.verdict == UNCERTAIN
    assert "Holm" in together.reason
    assert (together.statistic.low, together.statistic.high) == (alone.statistic.low, alone.statistic.high)


def test_claims_of_several_data_sets_are_judged_apart():
    faces = [{**found, "data": "faces"} for found in c16(-1)]
    verdicts = judge(c16(1) + faces)
    assert [(v.data, v.verdict) for v in verdicts if v.claim == "C16"] == [("faces", FAILS), ("toy", HOLDS)]
    assert len(verdicts) == 2 * len(CLAIMS)


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
    records = [{**found, "value": 0.9} if found["quantity"] == "memorised_fraction" else found for found in c11(1)]
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
        if found["seed"] == 2 and found["quantity"] == "gl_relative"
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


@pytest.mark.parametrize("claim", ["C6", "C8", "C9"])
def test_almost_automatic_claims_say_so(claim):
    verdict = verdict_on(claim, BUILDERS[claim](1))
    assert "automatic" in verdict.caveat


def test_controls_stand_beside_the_claim():
    assert [control.name for control in verdict_on("C6", BUILDERS["C6"](1)).controls] == [
        "the same for the multi-delta denoiser"
    ]
    assert [control.name for control in verdict_on("C8", BUILDERS["C8"](1)).controls] == ["the same on training images"]


def test_json_has_a_schema_and_comes_back():
    verdicts = judge([found for build in BUILDERS.values() for found in build(1)])
    read = json.loads(as_json(verdicts))
    assert read["schema"] == SCHEMA == 1
    assert [row["claim"] for row in read["claims"]] == CLAIM_NAMES
    keys = {"claim", "data", "text", "verdict", "statistic", "statistics", "reason", "caveat", "note", "controls"}
    parts = {"name", "value", "low", "high", "images", "seeds", "threshold", "p_holds", "p_fails", "missing"}
    for row, verdict in zip(read["claims"], verdicts, strict=True):
        assert set(row) == keys
        assert set(row["statistic"]) == parts
        assert set(row["statistic"]["threshold"]) == {"source", "above", "below"}
        assert row["statistic"] in row["statistics"]
        assert row["statistic"]["value"] == verdict.statistic.value


def test_true_claims_of_many_data_sets_hold_together():
    worlds = [{**found, "data": name} for name in CLAIM_NAMES for found in BUILDERS[name](1)]
    verdicts = {(verdict.data, verdict.claim): verdict.verdict for verdict in judge(worlds)}
    assert [verdicts[name, name] for name in CLAIM_NAMES] == [HOLDS] * len(CLAIM_NAMES)


def test_the_table_fits_a_terminal():
    table = as_table(judge(c16(1) + c15(-1)))
    lines = table.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.startswith("C16  holds ") and "> 0.95" in line for line in lines)
    assert any(line.startswith("C15  does not hold ") for line in lines)


def test_every_threshold_has_a_source_and_is_used():
    used = {
        part.threshold
        for v in judge([{**f, "data": d} for b in BUILDERS.values() for f in b(1) for d in ("toy", "cifar10")])
        for part in v.statistics
    }
    assert used == set(THRESHOLDS.values())
    assert all(limit.source.startswith(("the paper, Fig", "our choice: ")) for limit in THRESHOLDS.values())


def test_inputs_other_than_held_out_do_not_count():
    elsewhere = [{**found, "on": "train"} if found.get("on") == HELD_OUT["on"] else found for found in c1(1)]
    assert verdict_on("C1", elsewhere).verdict == UNCERTAIN


def test_noise_levels_that_lost_digits_are_the_same_levels():
    rounded = [
        {**found, "sigma": found["sigma"] * (1 + 3e-8)} if found.get("reference") == "multidelta" else found
        for found in c7(1)
    ]
    assert verdict_on("C7", rounded).verdict == HOLDS


def scaled(records, factor, **tags):
    """Records with these tags times a factor."""
    return [
        {**found, **{key: found[key] * factor for key in ("value", "low", "high")}}
        if all(found.get(tag) == value for tag, value in tags.items())
        else found
        for found in records
    ]


@pytest.mark.parametrize(
    ("claim", "factor", "tags", "spoiled"),
    [
        (
            "C2",
            0.5,
            {"quantity": "linearity_nmse", "network": "unet", "n": 10},
            "slope of the largest NMSE on log N, unet",
        ),
        ("C7", 0.5, {"reference": "linear"}, "mean log RMSE(L, θ)/RMSE(G, θ) in the window"),
        ("C7", 2.0, {"reference": "linear"}, "mean log RMSE(L, θ)/RMSE(G, θ) in the window"),
        ("C10", 0.1, {"quantity": "fvu", "n": 10}, "FVU, memorising minus generalising"),
        (
            "C10",
            10.0,
            {"quantity": "weight_error", "on": "train", "n": 10},
            "weight error on training images, memorising",
        ),
        ("C11", 0.2, {"study": "capacity", "denoiser": "network", "width": 32}, "slope of RMSE(θ, G) on log width"),
        (
            "C11",
            9.0,
            {"study": "time", "n": 1400, "kimg": 320, "denoiser": "network"},
            "late rise in time, smallest minus largest N",
        ),
        ("C12", 0.1, {"kimg": 800, "width": 32}, "what longer training adds to the slope"),
        ("C13", 1.3, {"study": "capacity", "width": 4}, "RMSE(θ, G) at the least σ, narrowest over widest, minus 1"),
        ("C13", 0.7, {"study": "capacity", "width": 4}, "RMSE(θ, G) at the least σ, narrowest over widest, minus 1"),
        ("C17", 5.0, {"network": "linear"}, "largest RMSE of the linear autoencoder to G"),
        ("C18", -1.0, {"reference": "gaussian"}, "excess agreement with the Gaussian, blurred, ncsnpp"),
    ],
)
def test_one_statistic_that_fails_spoils_a_claim(claim, factor, tags, spoiled):
    verdict = verdict_on(claim, scaled(BUILDERS[claim](1), factor, **tags))
    assert (verdict.verdict, verdict.statistic.name) == (FAILS, spoiled)


def test_longer_training_is_needed_to_say_what_it_removes():
    records = [found for found in BUILDERS["C12"](1) if found["kimg"] == 100]
    assert verdict_on("C12", records).reason == "two lengths of training are needed, 1 found"


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
    assert verdict.reason == "errors of 0.1 cannot be seen by a fit whose own is 0.3"


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
