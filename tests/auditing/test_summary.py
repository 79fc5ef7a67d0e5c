"""What an audit says follows from its records: the sentence denies none of them, and the advice fits both halves."""

import json
import re

import pytest
import torch

from gausslens.auditing.audit import Audit
from gausslens.auditing.summary import advice, as_json, headline, summary
from gausslens.auditing.verdict import VERDICTS, Verdict
from gausslens.measures.intervals import Estimate

SAMPLES = 2_000


def share(quantity, value, reach=0.01, **tags):
    low, high = max(0.0, value - reach), min(1.0, value + reach)
    return {"quantity": quantity, "value": value, "low": low, "high": high, "count": SAMPLES, **tags}


def copied(value, originals, *, repeats=1, real=0.0):
    """Records of copies, of so many training images."""
    return [
        {"quantity": "copies_exist", "value": originals > 0},
        share("copied_share", value),
        share("real_share", real),
        *(
            {"quantity": "copied_original", "value": 40 - i, "image": 7 * i, "repeats": repeats}
            for i in range(originals)
        ),
    ]


def noticed(**counts):
    return [{"quantity": "smallest_count", "kind": kind, "value": n, "count": SAMPLES} for kind, n in counts.items()]


def losses(auc):
    """Records of three noise levels, the middle one the most telling."""
    return [
        {"quantity": "auc", "value": value, "low": value - 0.02, "high": value + 0.02, "count": 400, "sigma": sigma}
        for sigma, value in ((4.0, 0.5), (1.0, auc), (0.2, 0.51))
    ]


NOTHING = [*copied(0.0, 0), *noticed(spread=12, concentrated=10)]
PART = {"quantity": "copied_part", "value": 90, "window": "top half", "count": SAMPLES}
UNDECIDED = {"quantity": "undecided_copies", "value": 54, "count": SAMPLES, "real_count": 50}
REFUSED = {"quantity": "refused", "value": "not exchangeable", "reason": "held-out images have less contrast."}


def audit_of(verdict, records=(), *, leaks=None, lean=None, samples=True, held_out=800, is_run=False):
    middle = None if lean is None else Estimate(lean, lean - 0.02, lean + 0.02, 200)
    judged = Verdict(verdict, ("a reason.",), leaks, middle, None if lean is None else 1.0)
    made = torch.zeros(1, 1, 2, 2) if samples else None
    return Audit(
        judged, [{"stage": "a", **record} for record in records], "model", "images", 400, held_out, made, is_run
    )


@pytest.mark.parametrize(
    ("verdict", "records", "leaks", "told", "denied"),
    [
        (
            "generalizing",
            [*NOTHING, *losses(0.52)],
            False,
            ["no copies", "12 copies would", "do not clearly reveal", "0.52"],
            ["but"],
        ),
        ("generalizing", [*NOTHING, *losses(0.97)], True, ["no copies", ", but its losses reveal", "0.97"], ["do not"]),
        ("generalizing", losses(0.52), False, ["not examined", "do not clearly reveal"], ["no copies"]),
        (
            "memorizing",
            [*copied(0.93, 3), *losses(0.99)],
            True,
            ["93.0 % of 2,000 samples copy 3 of the 400"],
            ["no cop"],
        ),
        ("partly memorizing", [*copied(0.03, 1), *losses(0.5)], False, ["3.0 %", "copy 1 of the 400"], ["no cop"]),
        ("partly memorizing", [*NOTHING, PART, *losses(0.5)], False, ["samples copy parts", "top half"], ["no cop"]),
        (
            "partly memorizing",
            [*copied(0.03, 2), PART],
            None,
            ["3.0 %", "copy 2", "top half", "cannot be judged"],
            ["no cop"],
        ),
        # A convicting test need not find one name that is right nine times of ten.
        (
            "partly memorizing",
            [share("copied_share", 0.1), share("real_share", 0.03), {"quantity": "copies_exist", "value": True}],
            None,
            ["10.0 % of 2,000 samples pass as copies", "none can be named"],
            ["no copies"],
        ),
        (
            "cannot tell",
            [share("copied_share", 0.05), {"quantity": "copies_exist", "value": False}, UNDECIDED, *losses(0.5)],
            False,
            ["repeated training images cannot be distinguished"],
            ["no copies"],
        ),
        (
            "cannot tell",
            [*NOTHING, REFUSED, *losses(0.99)],
            None,
            ["no copies", "cannot be judged"],
            ["reveal", "0.99"],
        ),
        (
            "cannot tell",
            [{"quantity": "originals", "value": 2}],
            None,
            ["copies cannot be identified"],
            ["no cop"],
        ),
    ],
)
def test_the_headline_gives_both_halves_and_denies_nothing_that_the_records_show(verdict, records, leaks, told, denied):
    sampled = any(record["quantity"] in ("copied_share", "originals") for record in records)
    said = headline(audit_of(verdict, records, leaks=leaks, samples=sampled))
    assert said.startswith(verdict.capitalize() + ": ")
    assert said.endswith(".")
    for words in told:
        assert words in said
    for words in denied:
        assert words not in said


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ({"spread": 12, "concentrated": 10}, "(12 copies would have been detected)"),
        ({"spread": 12, "concentrated": 1_030}, "(1,030 copies would have been detected)"),
        ({"spread": 12, "concentrated": None}, "(12 copies would have been detected)"),
        ({"spread": None, "concentrated": None}, "(no number of copies would have been detected)"),
        ({"spread": 12, "repeated": 44}, "(12 copies would have been detected; of repeated training images, 44)"),
        ({"spread": 12, "repeated": None}, "of repeated training images, no number)"),
    ],
)
def test_where_no_copies_are_found_it_says_how_many_would_have_been(counts, told):
    assert told in headline(audit_of("generalizing", [*copied(0.0, 0), *noticed(**counts)], leaks=False))


PRIVATE, KEEP_BACK, LOOK, MORE = (
    "keep the model private",
    "Do not publish samples",
    "the named copies",
    "more images",
)
REPEATS, SAME_SOURCE, EXAMINE = "remove the repeats", "drawn from the same source", "audit with --samples"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (audit_of("memorizing", copied(0.9, 3), leaks=True), {KEEP_BACK, MORE, PRIVATE}),
        (audit_of("memorizing", leaks=None, samples=False), {KEEP_BACK, MORE}),
        (audit_of("partly memorizing", copied(0.03, 3), leaks=False), {LOOK, MORE}),
        (audit_of("partly memorizing", copied(0.03, 3), leaks=True), {LOOK, MORE, PRIVATE}),
        (audit_of("partly memorizing", [*NOTHING, PART], leaks=False), {LOOK, MORE}),
        (audit_of("partly memorizing", copied(0.03, 3, repeats=40), leaks=False), {LOOK, REPEATS}),
        (audit_of("partly memorizing", NOTHING, leaks=True, lean=0.5), {MORE, PRIVATE}),
        (audit_of("generalizing", NOTHING, leaks=False), set()),
        (audit_of("generalizing", NOTHING, leaks=True), {PRIVATE}),
        (audit_of("generalizing", leaks=False, samples=False), {EXAMINE}),
        (audit_of("cannot tell", [*NOTHING, REFUSED]), {SAME_SOURCE}),
    ],
)
def test_the_advice_follows_from_both_halves(found, told):
    said = advice(found)
    for words in (PRIVATE, KEEP_BACK, LOOK, MORE, REPEATS, SAME_SOURCE, EXAMINE):
        assert (words in said) == (words in told), words
    assert ("Nothing needs to be done" in said) == (found.verdict.verdict == "generalizing")
    # Who may tell members from others is not told that nothing at all is to be done.
    assert ("Nothing needs to be done." in said) == (
        found.verdict.verdict == "generalizing" and not found.verdict.leaks
    )


def test_repeats_are_blamed_only_where_most_copied_images_stand_there_repeatedly():
    some = copied(0.03, 4)
    for record in some[-2:]:
        record["repeats"] = 9
    assert REPEATS not in advice(audit_of("partly memorizing", some))
    some[-3]["repeats"] = 30
    assert "3 of the 4 copied images occur in the training set more than once, up to 30 times" in advice(
        audit_of("partly memorizing", some)
    )


def test_the_advice_fits_whose_model_it_is():
    ours, theirs = (advice(audit_of("memorizing", copied(0.9, 3), is_run=run)) for run in (True, False))
    assert "gausslens train --monitor" in ours
    assert "GeneralizationMonitor" not in ours
    assert "GeneralizationMonitor" in theirs
    assert "gausslens train" not in theirs
    assert "--unseen" in advice(audit_of("cannot tell", held_out=0))


def test_the_copying_of_a_table_stands_beside_what_chance_gives():
    rows = {name: (value, note) for name, value, note in summary(audit_of("memorizing", copied(0.9, 7, real=0.02)))}
    assert rows["copies among samples"] == ("90.0 % [89.0, 91.0]", "controls: real images 2.0 %")
    number, named = rows["training images copied"]
    assert number == "7"
    assert named.startswith("most often image 0 (40 times), image 7 (39 times)")
    assert "image 35" not in named  # five of them


def test_samples_that_pass_as_copies_by_chance_are_not_denied():
    records = [{"quantity": "copies_exist", "value": False}, share("copied_share", 0.02), *noticed(spread=60)]
    said = headline(audit_of("generalizing", records, leaks=False))
    assert "no significant number of copies was found among 2,000 samples (60 copies would have been detected)" in said


def test_images_that_leak_by_name_are_not_denied():
    leaking = {"quantity": "leaking", "value": 2, "sigma": 1.0, "count": 300}
    found = audit_of("generalizing", [*NOTHING, *losses(0.55), leaking], leaks=False)
    assert "do not clearly reveal which images it was trained on, except for 2 images (AUC 0.55" in headline(found)
    assert "keep the model private" in advice(found)
    assert "Nothing needs to be done." not in advice(found)


def test_a_leak_that_the_recognition_rate_shows_is_headed_by_that_rate():
    rate = share("tpr", 0.21, false_positive_rate=0.01, sigma=1.0)
    found = audit_of("generalizing", [*NOTHING, *losses(0.55), rate], leaks=True)
    assert "(AUC 0.55 [0.53, 0.57]; 21.0 % recognised at 1 % false positives)" in headline(found)


def undefined(record):
    """A record as it is written where its value and its interval are undefined."""
    return {name: None if name in ("value", "low", "high") else told for name, told in record.items()}


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("leaks", [True, False, None])
def test_nothing_undefined_is_told_as_none_or_nan(verdict, leaks):
    tags = {"sigma": 1.0, "count": 3}
    gaps = [
        undefined({"quantity": quantity, "value": 0, "low": 0, "high": 0, **tags})
        for quantity in (
            "real_share",
            "gaussian_share",
            "relative_gl",
            "memory_share",
            "filter_auc",
            "frechet",
            "mifid",
        )
    ]
    half = {"quantity": "frechet_held_out", "value": 0.5, "low": None, "high": None, "count": 9}
    records = [
        *copied(0.04, 2)[:2],
        *copied(0.04, 2)[3:],
        *noticed(spread=None, repeated=None),
        *losses(0.7),
        *gaps,
        half,
    ]
    found = audit_of(verdict, records, leaks=leaks, lean=0.4)
    for told in (str(found), headline(found), advice(found)):
        assert not re.search(r"\b(None|nan|inf)\b", told)
    assert "undefined" in str(found)
    json.loads(as_json(found), parse_constant=pytest.fail)


def test_json_of_an_audit_of_which_nothing_is_known_has_every_field():
    told = json.loads(as_json(audit_of("cannot tell", samples=False)))
    assert told["page"] is None
    assert (told["copying"]["exist"], told["copying"]["share"], told["copying"]["originals"]) == (None, None, [])
    assert (told["membership"]["leaks"], told["membership"]["lean"], told["membership"]["auc"]) == (None, None, [])


def test_json_gives_the_reason_for_which_membership_is_refused():
    told = json.loads(as_json(audit_of("cannot tell", [*NOTHING, REFUSED])))
    assert told["membership"]["refused"] == "Held-out images have less contrast."
    assert told["copying"]["exist"] is False
    assert told["copying"]["smallest_count"] == {"spread": 12, "concentrated": 10}


@pytest.mark.parametrize(("leaks", "named"), [(True, [3, 9]), (False, [3, 9]), (None, [])])
def test_no_image_is_said_to_leak_where_membership_cannot_be_told(leaks, named):
    tags = {"sigma": 1.0, "count": 300}
    records = [{"quantity": "leaking_image", "value": image, "sigma": 1.0} for image in (3, 9)]
    found = audit_of("generalizing", [*losses(0.7), {"quantity": "leaking", "value": 2, **tags}, *records], leaks=leaks)
    assert json.loads(as_json(found))["membership"]["leaking_images"] == named
    assert ("images that leak, by name" in str(found)) == bool(named)
