"""Every claim gives each of its three verdicts on records made for it, and no verdict goes beyond its evidence."""

import json
import math
import sys

import pytest
from claim_records import (
    BUILDERS,
    FAILS,
    HELD_OUT,
    HOLDS,
    UNCERTAIN,
    c1,
    c7,
    c15,
    c16,
    c21,
    record,
    verdict_on,
)

from gausslens.paper.claims import SCHEMA, as_json, as_table, judge
from gausslens.paper.claims.claim import Threshold
from gausslens.paper.registry import all_claims

CLAIM_NAMES = [f"C{number}" for number in range(1, 22)]


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


def test_a_study_that_has_not_been_done_is_named_instead_of_its_records():
    assert verdict_on("C2", c1(1.0)).reason == "no record of study networks, which has not been done"
    assert verdict_on("C7", c1(1.0)).reason == "no record of study references, which has not been done"


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
    assert together.reason == "for the claim by itself, but not when 5 claims are judged together (Holm)"
    assert (together.statistic.low, together.statistic.high) == (alone.statistic.low, alone.statistic.high)


def test_claims_of_several_data_sets_are_judged_apart():
    faces = [{**found, "data": "faces"} for found in c16(-1)]
    verdicts = judge(c16(1) + faces)
    assert [(v.data, v.verdict) for v in verdicts if v.claim == "C16"] == [("faces", FAILS), ("toy", HOLDS)]
    assert len(verdicts) == 2 * len(all_claims())


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


@pytest.mark.slow
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
    thresholds = {
        value
        for claim in all_claims().values()
        for value in vars(sys.modules[claim.find.__module__]).values()
        if isinstance(value, Threshold)
    }
    used = {
        part.threshold
        for v in judge([{**f, "data": d} for b in BUILDERS.values() for f in b(1) for d in ("toy", "cifar10")])
        for part in v.statistics
    }
    assert thresholds <= used
    assert all(limit.source.startswith(("the paper, Fig", "our choice: ")) for limit in used)


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
        ("C13", 1.3, {"study": "capacity", "width": 4}, "RMSE(θ, G) at the lowest σ, narrowest over widest, minus 1"),
        ("C13", 0.7, {"study": "capacity", "width": 4}, "RMSE(θ, G) at the lowest σ, narrowest over widest, minus 1"),
        ("C17", 5.0, {"network": "linear"}, "largest RMSE of the linear autoencoder to G"),
        ("C18", -1.0, {"reference": "gaussian"}, "excess agreement with the Gaussian, blurred, ncsnpp"),
    ],
)
def test_one_statistic_that_fails_spoils_a_claim(claim, factor, tags, spoiled):
    verdict = verdict_on(claim, scaled(BUILDERS[claim](1), factor, **tags))
    assert (verdict.verdict, verdict.statistic.name) == (FAILS, spoiled)


def test_a_claim_that_was_measured_for_one_of_two_data_sets_is_in_the_table():
    table = as_table(judge(c16(1) + [{**found, "data": "faces"} for found in c15(-1)]))
    assert "faces: Models trained on disjoint images agree" in table
    assert "toy: The Gaussian of few images" in table
    silent = table.partition("Not measured: ")[2]
    assert "C14" in silent
    assert not {"C15", "C16"} & set(silent.replace(",", "").split())
