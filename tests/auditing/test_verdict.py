import pytest
import torch
from known_models import GaussianLaw, mixed, references

from gausslens import karras_sigmas
from gausslens.auditing.evidence import DISTANCES, Evidence
from gausslens.auditing.losses import measure_losses
from gausslens.auditing.pool import Pool
from gausslens.auditing.steps import loss_records
from gausslens.auditing.thresholds import THRESHOLDS
from gausslens.auditing.verdict import VERDICTS, judge, leaks_membership
from gausslens.data import load_images
from gausslens.images import dequantize
from gausslens.measures.intervals import Estimate
from gausslens.noise import draw_order


def near(value, reach=0.02):
    return Estimate(value, value - reach, value + reach, 200)


SIGMAS = (5.0, 1.0, 0.2, 0.01)


class Known(Evidence):
    """Evidence from numbers by quantity, or a number for each noise level (None if not known), or tags of records."""

    def __init__(self, sigmas=SIGMAS, **known):
        super().__init__(record for quantity, value in known.items() for record in records_of(quantity, value, sigmas))
        self.known = {"sigmas": sigmas, **known}

    def but(self, **others):
        return Known(**{**self.known, **others})


def records_of(quantity, value, sigmas):
    if isinstance(value, list | tuple):
        tags = {"false_positive_rate": 0.01} if quantity == "tpr" else DISTANCES.get(quantity, {})
        name = "rmse" if quantity in DISTANCES else quantity
        for sigma, one in zip(sigmas, value, strict=False):
            if one is not None:
                yield {"quantity": name, **tags, "sigma": sigma, **fields(one)}
    elif quantity == "copied_original":
        yield from [{"quantity": quantity, "value": 1}] * value
    elif value is not None:
        yield {"quantity": quantity, **fields(value)}


def foreign(expected, gain, sigma):
    return {**vars(gain), "expected": expected, "sigma": sigma}


def fields(value):
    return value if isinstance(value, dict) else vars(value) if isinstance(value, Estimate) else {"value": value}


def evidence(position=0.0, retrieval=0.0, train=0.9, held_out=0.95, **others):
    levels = {
        "sigmas": (5.0, 1.0, 0.2, 0.01),
        "window": (False, True, True, False),
        "intermediate": (True, True, True, False),
        "rho": [None, near(0.5), near(0.5), None],
        "position": [None, near(position), near(position / 2), near(9.0)],
        "retrieval": [None, near(-1.0), near(retrieval), near(9.0)],
        "train_loss": [near(train)] * 4,
        "held_out_loss": [near(held_out)] * 4,
    }
    return Known(**{**levels, **others})


@pytest.mark.parametrize(
    ("position", "retrieval", "verdict"),
    [
        (0.0, 0.0, "generalizing"),
        (-0.2, 0.29, "generalizing"),
        (0.5, 0.0, "partly memorizing"),
        (0.0, 0.5, "partly memorizing"),
        (0.85, 0.2, "memorizing"),
        (0.2, 0.9, "memorizing"),
    ],
)
def test_the_greater_of_position_and_retrieval_decides(position, retrieval, verdict):
    found = judge(evidence(position, retrieval))
    assert found.verdict == verdict
    assert found.lean.value == max(position, retrieval, -1.0)
    assert f"{found.lean.value:.2f}" in found.reasons[0]


def test_levels_outside_the_window_decide_nothing():
    assert judge(evidence()).lean.value < 1
    found = judge(evidence(0.9, window=(False,) * 4))
    assert (found.verdict, found.lean) == ("cannot tell", None)


def test_a_model_behind_the_baseline_on_both_sets_cannot_be_judged():
    assert judge(evidence(0.9, train=1.5, held_out=2.0)).verdict == "cannot tell"
    assert "Wiener" in judge(evidence(0.9, train=1.5, held_out=2.0)).reasons[0]
    # On held-out images alone it is what memorisers do; at few levels it is a weakness.
    assert judge(evidence(0.9, train=0.1, held_out=9.0)).verdict == "memorizing"
    mostly_fine = [near(1.5), near(0.9), near(0.9), near(1.5)]
    assert judge(evidence(0.0, train_loss=mostly_fine, held_out_loss=mostly_fine)).verdict == "generalizing"


def test_exchanged_sets_are_noticed():
    found = judge(evidence(-1.0, train=9.0, held_out=0.1))
    assert found.verdict == "cannot tell"
    assert "exchanged" in found.reasons[0]
    assert "exchanged" not in judge(evidence(train=9.0, held_out=9.0)).reasons[0]


def test_a_memoriser_of_held_out_images_is_noticed_where_the_baseline_is_no_better():
    """As of steep spectra, where a filter denoises training images as badly."""
    found = judge(evidence(-1.0, train=1.0, held_out=0.9))
    assert found.verdict == "cannot tell"
    assert "2 of 2 noise levels" in found.reasons[0]
    assert "exchanged" in found.reasons[0]
    positions = [None, near(-1.0), near(0.0), None]  # one level of two may be chance
    assert judge(evidence().but(position=positions)).verdict == "generalizing"


def test_a_model_that_is_far_worse_than_no_denoising_at_low_noise_cannot_be_judged():
    levels = {"sigmas": (5.0, 1.0, 0.2, 0.01), "window": (True,) * 4, "intermediate": (True, True, False, False)}
    nothing, fair = [near(0.0)] * 4, [near(1.2), near(0.9)]
    for low, verdict in (((6.0, 900.0), "cannot tell"), ((1.5, 1.5), "generalizing"), ((1.0, 90.0), "generalizing")):
        losses = [*fair, *map(near, low)]
        found = judge(Known(**levels, position=nothing, train_loss=losses, held_out_loss=losses))
        assert found.verdict == verdict, low
    half = [near(0.0), near(0.1), near(0.5), near(0.5)]  # a model that retrieves half of its training images
    losses = [near(1.2), near(0.9), near(6.0), near(900.0)]
    found = judge(Known(**levels, position=half, train_loss=losses, held_out_loss=[near(2e3)] * 4))
    assert found.verdict == "partly memorizing"
    unclear = [near(0.0), near(0.1), near(0.5, 2.0), near(0.5, 2.0)]
    found = judge(Known(**levels, position=unclear, train_loss=losses, held_out_loss=losses))
    assert found.verdict == "cannot tell"
    # An identity leaves the noise as it is, which is no merit where there is more of it.
    losses = [near(9.0), near(3.0), near(1.0), near(1.0)]
    found = judge(Known(**levels, position=nothing, train_loss=losses, held_out_loss=losses))
    assert "2 of 2 intermediate noise levels" in found.reasons[0]


def test_a_model_that_is_not_trained_is_not_said_to_expect_other_images():
    expected = "images in [-1, 1], and these seem to be in [0, 1]"
    for gain, told in ((0.97, "worse than a plain Wiener filter"), (0.4, "look foreign to the model")):
        found = judge(evidence(train=3.0, held_out=3.0, foreignness=foreign(expected, near(gain), 1.0)))
        assert found.verdict == "cannot tell"
        assert told in found.reasons[0]
        assert expected in found.reasons[0]


def test_foreign_images_cannot_be_judged():
    bgr = foreign("channels in the order BGR of these images", near(0.9), 1.0)
    found = judge(evidence(0.9, foreignness=bgr))
    assert found.verdict == "cannot tell"
    assert "BGR" in found.reasons[0]
    assert judge(evidence(0.9, foreignness=foreign(None, near(1.2), 1.0))).verdict == "memorizing"


def test_an_interval_from_end_to_end_cannot_tell():
    found = judge(Known(sigmas=(1.0,), window=(True,), position=[Estimate(0.5, 0.1, 0.9, 12)]))
    assert found.verdict == "cannot tell"
    assert "too few" in found.reasons[0]


def test_an_uncertain_level_decides_nothing_beside_certain_ones():
    uncertain = [None, Estimate(0.9, -0.5, 2.0, 12), near(0.1), None]
    assert judge(evidence().but(position=uncertain)).verdict == "generalizing"


@pytest.mark.parametrize(
    ("at_the_first", "verdict"),
    [
        ((Estimate(0.8, 0.1, 1.5, 35), Estimate(0.5, -0.5, 1.5, 3)), "cannot tell"),  # could be anything
        ((None, None), "cannot tell"),  # not even a memoriser would be seen
        ((Estimate(0.1, -0.2, 0.4, 35), None), "generalizing"),
        ((Estimate(0.8, 0.1, 1.5, 35), near(0.1)), "generalizing"),
    ],
)
def test_no_model_is_acquitted_where_it_may_hide(at_the_first, verdict):
    position, retrieval = at_the_first
    levels = {"position": [None, position, near(0.0), None], "retrieval": [None, retrieval, near(0.0), None]}
    found = judge(evidence().but(**levels))
    assert found.verdict == verdict
    assert ("too few images" in found.reasons[0]) == (verdict == "cannot tell")


def test_nothing_measured_and_nothing_held_out_cannot_tell():
    assert judge(Evidence([])).verdict == "cannot tell"
    found = judge(Known(sigmas=(1.0,), intermediate=(True,), train_loss=[near(0.1)]))
    assert found.verdict == "cannot tell"
    assert "without held-out images" in found.reasons[0]


def test_significance_alone_is_never_memorizing():
    found = judge(evidence(0.2, auc=[near(0.99)] * 4, auc_low=(0.9,) * 4, rho=[None, near(0.1), None, None]))
    assert found.verdict == "generalizing"
    assert found.leaks
    assert any("leaks membership" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    ("auc_low", "tpr", "leaks"),
    [
        ((0.5, 0.61), None, True),
        ((0.5, 0.59), None, False),
        ((0.5, 0.59), [near(0.05), Estimate(0.05, 0.021, 0.2, 200)], True),
        ((0.5, 0.59), [near(0.03), Estimate(0.05, 0.019, 0.2, 200)], False),
        (None, None, None),
    ],
)
def test_a_model_leaks_by_either_limit(auc_low, tpr, leaks):
    known = evidence(auc=[near(0.7)] * 2 if auc_low else [], auc_low=auc_low, tpr=tpr)
    assert leaks_membership(known) is leaks
    assert leaks_membership(known.but(refused={"reason": "the sets differ."})) is None
    assert leaks_membership(known.but(foreignness=foreign("negatives", near(0.5), 1.0))) is None


def copying(share, *, exist=True, reach=0.02, **others):
    estimate = Estimate(share, share - reach, share + reach, 1000)
    return {"copies_exist": exist, "copied_share": estimate, "copied_original": 7 * exist, **others}


def test_copies_among_the_samples_decide_by_themselves():
    assert judge(evidence(0.8, **copying(0.9))).verdict == "memorizing"
    assert judge(evidence(0.0, **copying(0.9))).verdict == "memorizing"
    assert judge(Known(**copying(0.9))).verdict == "memorizing"
    assert judge(evidence(0.0, **copying(0.03))).verdict == "partly memorizing"
    assert judge(evidence(0.0, **copying(0.51))).verdict == "partly memorizing"  # not most of them for certain
    assert judge(evidence(0.0, **copying(0.0, exist=False))).verdict == "generalizing"
    by_chance = judge(evidence(0.0, **copying(0.9, exist=False)))
    assert by_chance.verdict == "generalizing"
    assert any("not significantly more than chance" in reason for reason in by_chance.reasons)


def test_a_model_that_shows_few_of_the_images_it_holds_is_partly_memorizing():
    """What comes out stands above what is inside, where samples are mostly new for certain."""
    assert judge(evidence(0.9)).verdict == "memorizing"
    assert judge(evidence(0.9, **copying(0.2))).verdict == "partly memorizing"
    assert judge(evidence(0.9, **copying(0.0, exist=False))).verdict == "partly memorizing"
    assert judge(evidence(0.9, **copying(0.5, exist=False, reach=0.1))).verdict == "memorizing"


def test_parts_and_classes_are_named():
    found = judge(evidence(0.0, **copying(0.0, exist=False), copied_part={"window": "top half"}))
    assert found.verdict == "partly memorizing"
    assert "top half" in found.reasons[0]
    assert "class 3" in judge(evidence(0.0, **copying(0.1, copied_class={"label": 3}))).reasons[0]


def test_sets_that_differ_do_not_judge_membership_and_copies_still_convict():
    why = "training and held-out images do not come from one distribution: they differ."
    for position in (-1.0, 0.0, 0.9):
        found = judge(evidence(position, refused={"reason": why}, **copying(0.0, exist=False)))
        assert (found.verdict, found.reasons[0], found.leaks) == ("cannot tell", why, None)
    assert judge(evidence(0.0, refused={"reason": why}, **copying(0.1))).verdict == "partly memorizing"
    assert judge(evidence(0.9, refused={"reason": why}, **copying(0.1))).verdict == "partly memorizing"
    assert judge(evidence(0.0, refused={"reason": why}, **copying(0.9))).verdict == "memorizing"
    assert why in judge(evidence(0.0, refused={"reason": why}, **copying(0.1))).reasons


def test_copies_that_depend_on_the_overlap_cannot_tell():
    found = judge(evidence(0.0, **copying(0.05, exist=False), overlap_decides=True))
    assert found.verdict == "cannot tell"
    assert "repeat training images" in found.reasons[0]


def test_copies_of_repeated_images_that_too_few_held_out_images_can_judge_acquit_nobody():
    counts = {"value": 54, "count": 1000, "real_count": 50}
    found = judge(evidence(0.0, **copying(0.05, exist=False), undecided_copies=counts))
    assert found.verdict == "cannot tell"
    assert found.reasons[0].startswith("54 of 1,000 samples match images that occur repeatedly in the training set")
    assert not any("not significantly more than chance" in reason for reason in found.reasons)


def test_no_reason_denies_a_leak_of_which_nothing_can_be_told():
    known = {"auc": [near(0.6)] * 4, "auc_low": (0.5,) * 4, "train_loss": [near(3.0)] * 4}
    found = judge(evidence(0.0, **known))
    assert found.leaks is None
    assert any("leaks membership cannot be judged" in reason for reason in found.reasons)
    assert not any("within the audit's limit" in reason for reason in found.reasons)


def test_fewer_than_three_originals_cannot_tell():
    found = judge(evidence(0.0, originals=2))
    assert found.verdict == "cannot tell"
    assert "fewer than three" in found.reasons[0]


def test_the_limits_of_the_lean_must_be_passed_for_certain():
    assert judge(evidence(position=0.31)).verdict == "generalizing"
    assert judge(evidence(position=0.33)).verdict == "partly memorizing"
    assert judge(evidence(position=0.66)).verdict == "partly memorizing"
    assert judge(evidence(position=0.68)).verdict == "memorizing"


def test_thresholds_name_their_sources():
    assert all(threshold.source for threshold in THRESHOLDS.values())
    assert 0 < THRESHOLDS["generalizing"].value < THRESHOLDS["memorizing"].value < 1


def test_what_the_gaussian_denoiser_does_too_is_not_memorizing():
    within = [None, near(0.1), near(0.1), None]
    assert judge(evidence(0.9, rho=within)).verdict == "partly memorizing"
    found = judge(evidence(0.9, rho=within, near_gaussian=(True,) * 4))
    assert found.verdict == "cannot tell"
    assert "Gaussian denoiser of so few images" in found.reasons[0]
    found = judge(evidence(0.8, 0.7, rho=[None, near(0.1), near(0.4), None]))
    assert (found.verdict, found.lean.value) == ("memorizing", 0.7)


@pytest.fixture(scope="module")
def measured():
    torch.set_num_threads(1)
    law = GaussianLaw(seed=3)
    train, held_out = law.draw(30, 1), law.draw(100, 2)
    known = references(train)
    mean = train.mean(0)
    models = {f"{w:g}": mixed(known["multidelta"], law, w) for w in (0.0, 0.1, 0.5, 0.9, 1.0)}
    models |= {"identity": lambda x, sigma: x, "mean": lambda x, sigma: mean.to(x).expand_as(x)}
    other = GaussianLaw(seed=4)
    models["other"] = other
    return measure_losses({**models, **known}, Pool(train, held_out), karras_sigmas(10), noises=8)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("0", "generalizing"),
        ("0.1", "generalizing"),
        ("0.5", "partly memorizing"),
        ("0.9", "memorizing"),
        ("1", "memorizing"),
        ("identity", "cannot tell"),
        ("mean", "cannot tell"),
        ("other", "cannot tell"),
    ],
)
def test_known_models_are_recognised(measured, name, verdict):
    found = judge(Evidence(loss_records(measured, name)))
    assert found.verdict == verdict, found.reasons
    assert found.verdict in VERDICTS


@pytest.mark.parametrize("n", [16, 64, 256])
def test_a_wiener_filter_is_never_memorizing(n):
    digits = dequantize(torch.as_tensor(load_images("digits").images.copy()))
    digits = digits[draw_order(0, len(digits))]  # they are sorted by writer
    train, held_out = digits[:n], digits[1000:1150]
    losses = measure_losses(references(train), Pool(train, held_out), karras_sigmas(10), noises=4)
    found = judge(Evidence(loss_records(losses, "gaussian")))
    assert found.verdict == ("cannot tell" if n == 16 else "generalizing")
    if n == 64:
        assert max(auc.value for auc in losses.auc("gaussian")) > 0.85
    assert judge(Evidence(loss_records(losses, "multidelta"))).verdict == "memorizing"


def test_answers_far_from_both_references_are_said_to_be_neither():
    def distances(own, memory, apart):
        return {
            "gaussian": [near(own)] * 4,
            "multidelta": [near(memory)] * 4,
            "references": [near(apart)] * 4,
        }

    assert any("neither" in reason for reason in judge(evidence(**distances(0.3, 0.3, 0.5))).reasons)
    for own, memory in ((0.05, 0.5), (0.5, 0.05), (0.1, 0.1)):
        assert not any("neither" in reason for reason in judge(evidence(**distances(own, memory, 0.5))).reasons)


def test_without_held_out_images_or_samples_it_is_said_what_is_missing():
    known = Known(sigmas=(1.0,), train_loss=[near(0.9)], intermediate=(True,))
    found = judge(known.but(**copying(0.93)))
    assert found.verdict == "memorizing"
    assert any("membership cannot be judged" in reason for reason in found.reasons)
    assert any("samples were not examined" in reason for reason in judge(known).reasons)


def test_gaps_lost_in_their_errors_are_for_want_of_images():
    nothing = [None] * 4
    found = judge(evidence().but(rho=nothing, position=nothing, retrieval=nothing))
    assert found.verdict == "cannot tell"
    assert found.reasons[0].startswith("too few images")


def test_copies_of_a_model_that_cannot_be_judged_are_told():
    behind = evidence(train=2.0, held_out=2.0)
    assert not any("copies" in reason for reason in judge(behind).reasons)
    found = judge(behind.but(**copying(0.03)))
    assert found.verdict == "cannot tell"
    assert any("3.0 %" in reason and "7 different training images" in reason for reason in found.reasons)


def test_a_model_whose_samples_mostly_copy_memorises_however_it_denoises():
    behind = evidence(train=2.0, held_out=4.0, **copying(0.9))
    assert judge(behind).verdict == "memorizing"
    bgr = foreign("channels in the order BGR of these images", near(0.5), 1.0)
    found = judge(behind.but(foreignness=bgr))
    assert found.verdict == "memorizing"
    assert any("BGR" in reason for reason in found.reasons)


def test_no_two_reasons_are_the_same():
    found = judge(
        evidence(0.1, auc=[near(0.74)] * 4, auc_low=(0.7,) * 4, **copying(0.03), copied_part={"window": "centre"})
    )
    assert len(set(found.reasons)) == len(found.reasons)
    assert "linear filter" in judge(evidence(0.1)).reasons[0]
    assert "for new images toward training images is 0.20" in judge(evidence(-0.1, 0.2)).reasons[0]
