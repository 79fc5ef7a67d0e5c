"""The two-set copy test against an independent, loop-written reference, and its behaviour under the null."""

import importlib.util
import itertools
import math
from pathlib import Path

import pytest
import torch

from gausslens.errors import ConfigError
from gausslens.measures import copy_test as twoset
from gausslens.measures.copy_test import NEIGHBORS, copy_test, judge_neighbors
from gausslens.measures.neighbors import nearest


def images(n, seed, side=4):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def near_copies(originals, seed, scale=0.01):
    noise = torch.randn(originals.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return originals + scale * noise


def reference_ratio(sample, pool, in_train):
    """r = d_T/d_H from the definition, with the 16 nearest pool images only."""
    pairs = sorted((math.dist(sample.flatten().tolist(), image.flatten().tolist()), i) for i, image in enumerate(pool))
    pairs = pairs[:NEIGHBORS]
    last = pairs[-1][0]
    to_train = min([d for d, i in pairs if in_train[i]], default=last)
    to_held_out = min([d for d, i in pairs if not in_train[i]], default=last)
    if to_train == to_held_out:
        return 1.0
    return to_train / to_held_out if to_held_out > 0 else math.inf


def reference_difference(samples, pool, in_train, threshold):
    ratios = [reference_ratio(sample, pool, in_train) for sample in samples]
    return sum(r < threshold for r in ratios) - sum(r > 1 / threshold for r in ratios), ratios


def test_ratios_and_counts_follow_the_definition():
    pool, threshold = images(40, 0), 0.6
    samples = torch.cat(
        [near_copies(pool[:8], 1, 0.05), near_copies(pool[30:33], 2, 0.05), images(20, 3), pool[[4, 25]]]
    )
    in_train = [i < 20 for i in range(40)]
    difference, ratios = reference_difference(samples, pool, in_train, threshold)
    result = copy_test(samples, pool[:20], pool[20:], threshold=threshold)
    torch.testing.assert_close(result.ratios, torch.tensor(ratios, dtype=torch.float64))
    assert result.nearer_train == sum(r < threshold for r in ratios) > 8
    assert result.nearer_train - result.nearer_held_out == difference
    assert result.nearer_held_out >= 4


def test_p_value_is_that_of_all_labellings():
    """A pool of 8 has 70 labellings in all; random ones must agree with counting them."""
    pool, threshold = images(8, 4), 0.6
    samples = torch.cat([near_copies(pool[:3], 5, 0.1), near_copies(pool[[6]], 6, 0.1), images(12, 7)])
    observed, _ = reference_difference(samples, pool, [i < 4 for i in range(8)], threshold)
    every = [
        reference_difference(samples, pool, [i in chosen for i in range(8)], threshold)[0]
        for chosen in itertools.combinations(range(8), 4)
    ]
    exact = sum(value >= observed for value in every) / len(every)
    result = copy_test(samples, pool[:4], pool[4:], threshold=threshold, permutations=40_000)
    assert 0.01 < exact < 0.9
    assert result.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 40_000) + 1 / 40_000)


def test_labellings_are_shared_by_tests_of_more_and_of_fewer_images():
    few, more = (twoset._urn_labels(n, (30, 40), 500, 3, 0) for n in (5, 64))
    assert torch.equal(more[:5], few)
    assert torch.equal(twoset._urn_labels(70, (30, 40), 500, 3, 0).sum(0), torch.full((500,), 30))
    assert not torch.equal(twoset._urn_labels(5, (30, 40), 500, 3, 1), few)
    assert not torch.equal(twoset._urn_labels(5, (30, 40), 500, 4, 0), few)


def test_permuted_differences_have_the_distribution_of_full_permutations():
    """The shortcuts (only samples that can count, only images they depend on) against permuting everything."""
    pool, threshold = images(60, 8, side=3), 0.5
    samples = torch.cat([near_copies(pool[:10], 9, 0.1), near_copies(pool[:5], 10, 0.2), images(60, 11, side=3)])
    distances = torch.cdist(samples.flatten(1), pool.flatten(1), compute_mode="donot_use_mm_for_euclid_dist")
    kept = distances.topk(NEIGHBORS, largest=False)
    ours = twoset._permutation_null(*twoset._close_sets(kept.values, kept.indices, threshold), (30, 30), 4000, 0)

    generator, theirs = torch.Generator().manual_seed(1), []
    for _ in range(4000):
        in_train = torch.zeros(60, dtype=torch.bool)
        in_train[torch.randperm(60, generator=generator)[:30]] = True
        own = in_train[kept.indices]
        last = kept.values[:, -1]
        to_train = kept.values.masked_fill(~own, math.inf).amin(1).minimum(last)
        to_held_out = kept.values.masked_fill(own, math.inf).amin(1).minimum(last)
        theirs.append(float((to_train < threshold * to_held_out).sum() - (to_held_out < threshold * to_train).sum()))
    theirs = torch.tensor(theirs, dtype=torch.float64)
    assert theirs.std() > 2
    assert float(ours.mean()) == pytest.approx(float(theirs.mean()), abs=4 * float(theirs.std()) / math.sqrt(2000))
    assert float(ours.std()) == pytest.approx(float(theirs.std()), rel=0.07)
    for quantile in (0.05, 0.25, 0.75, 0.95, 0.99):
        assert abs(float(ours.quantile(quantile) - theirs.quantile(quantile))) <= 1


def test_labels_are_drawn_without_replacement():
    labels = twoset._urn_labels(10, (5, 5), 5000, 0, 0)
    assert bool((labels.sum(0) == 5).all())
    assert float(labels.double().mean(1).sub(0.5).abs().max()) < 0.04
    together = (labels[0] & labels[9]).double().mean()
    assert float(together) == pytest.approx(0.5 * 4 / 9, abs=0.025)


def test_copies_are_found_and_named():
    pool = images(400, 12)
    copied = torch.arange(60, 90)
    samples = torch.cat([images(200, 13), near_copies(pool[copied], 14)])
    result = copy_test(samples, pool[:200], pool[200:])
    assert result.p_value == 1 / 10_000
    assert torch.equal(result.copies.sort().values, torch.arange(200, 230))
    assert torch.equal(result.copied[result.copies.argsort()], copied)
    assert bool((result.ratios[result.copies].diff() >= 0).all())


def test_swapping_the_halves_mirrors_everything():
    pool = images(300, 15)
    samples = torch.cat([near_copies(pool[:20], 16), images(50, 17)])
    forward = copy_test(samples, pool[:150], pool[150:])
    backward = copy_test(samples, pool[150:], pool[:150])
    torch.testing.assert_close(forward.ratios, 1 / backward.ratios)
    assert (forward.nearer_train, forward.nearer_held_out) == (backward.nearer_held_out, backward.nearer_train)
    assert backward.p_value > 0.99
    assert len(backward.copies) == 0


def test_samples_around_one_image_are_no_evidence():
    """200 samples at one training image have r < 1/3, but that image is in the training half by a coin flip."""
    pool = images(200, 18)
    samples = near_copies(pool[[0]].expand(200, 1, 4, 4), 19)
    result = copy_test(samples, pool[:100], pool[100:])
    assert result.nearer_train == 200
    assert result.p_value == pytest.approx(0.5, abs=0.03)


def test_target_decoy_selection_follows_its_formula():
    generator = torch.Generator().manual_seed(0)
    targets, decoys = 0.3 * torch.rand(90, generator=generator) ** 3, 0.3 * torch.rand(9, generator=generator)
    ratios = torch.cat([targets, 1 / decoys, torch.ones(50)]).double()
    for rate in (0.02, 0.05, 0.1, 0.3):
        chosen = twoset._target_decoy(ratios.minimum(1 / ratios), ratios < 1 / 3, ratios > 3, rate)
        best = 0
        for cut in ratios[ratios < 1 / 3].tolist():
            named = int((ratios <= cut).sum())
            if (1 + int((1 / ratios <= cut).sum())) / named <= rate:
                best = max(best, named)
        assert len(chosen) == best
        assert set(chosen.tolist()) == set(ratios.argsort()[:best].tolist())
    assert best > 60


def test_exact_copies_and_shared_duplicates_have_defined_ratios():
    pool = images(80, 20)
    pool[40] = pool[0]  # held out and in training: 0/0
    result = copy_test(pool[[0, 1, 41]], pool[:40], pool[40:])
    assert result.ratios.tolist() == [1.0, 0.0, math.inf]
    assert (result.nearer_train, result.nearer_held_out) == (1, 1)


def test_the_larger_set_is_cut_at_random_and_indices_refer_to_the_whole():
    pool = images(500, 21)
    train, held_out = pool[:400], pool[400:]
    result = copy_test(near_copies(train, 22), train, held_out)
    assert result.n_train == result.n_held_out == 100
    assert len(result.copies) == pytest.approx(100, abs=3)
    assert torch.equal(result.copies, result.copied)  # sample i is a copy of image i
    other = copy_test(near_copies(train, 22), train, held_out, seed=1)
    assert set(other.copied.tolist()) != set(result.copied.tolist())


def unequal(samples, pool, n_train, **options):
    n_held_out = len(pool) - n_train
    found = [nearest(samples, half, min(NEIGHBORS, len(half))) for half in (pool[:n_train], pool[n_train:])]
    return judge_neighbors(*found, (n_train, n_held_out), **options)


def test_unequal_halves_have_the_p_value_of_all_labellings():
    """Of the 28 ways to hold out two of eight images; 3·A − 9·B, κ = 3, scaled to whole numbers, is A − 3B."""
    pool, threshold = images(8, 4), 0.6
    samples = torch.cat([near_copies(pool[:3], 5, 0.1), near_copies(pool[[6]], 6, 0.1), images(12, 7)])

    def statistic(chosen):
        _, ratios = reference_difference(samples, pool, [i in chosen for i in range(8)], threshold)
        return sum(r < threshold for r in ratios) - 3 * sum(r > 1 / threshold for r in ratios)

    observed = statistic(range(6))
    every = [statistic(chosen) for chosen in itertools.combinations(range(8), 6)]
    exact = sum(value >= observed for value in every) / len(every)
    result = unequal(samples, pool, 6, threshold=threshold, permutations=40_000)
    assert 0.01 < exact < 0.9
    assert result.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 40_000) + 1 / 40_000)


def test_unequal_halves_find_copies_of_every_training_image():
    pool = images(500, 21)
    result = unequal(near_copies(pool[:400], 22), pool, 400)
    assert (result.n_train, result.n_held_out, result.p_value) == (400, 100, 1 / 10_000)
    assert torch.equal(result.copies.sort().values, result.copied.sort().values)
    assert len(result.copies) > 390
    assert "400 against 100 images" in str(result)


def test_a_decoy_weighs_as_much_as_the_training_set_is_larger():
    """Four training images to a held-out one: chance copies of 40 training and 10 held-out images name nothing."""
    pool = images(500, 23)
    chance = near_copies(torch.cat([pool[:40], pool[400:410]]), 24)
    assert len(unequal(chance, pool, 400, false_discovery=0.2).copies) == 0
    assert len(unequal(chance[:40], pool, 400, false_discovery=0.1).copies) == 40  # 4/40
    assert len(unequal(chance[:39], pool, 400, false_discovery=0.1).copies) == 0
    assert len(unequal(chance[:41], pool, 400, false_discovery=0.2).copies) == 40  # 4·2/40


def test_tiny_pools_work():
    pool = images(2, 23)
    result = copy_test(near_copies(pool[:1], 24), pool[:1], pool[1:])
    assert (result.nearer_train, result.nearer_held_out) == (1, 0)
    assert result.p_value == pytest.approx(0.5, abs=0.03)


def test_uint8_images_give_the_result_of_their_float_values():
    pixels = torch.randint(0, 256, (300, 1, 4, 4), generator=torch.Generator().manual_seed(25)).to(torch.uint8)
    values = pixels.float().div(127.5).sub(1)
    samples = torch.cat([values[:20] + 0.003, values[250:260] + 0.4])
    whole, converted = copy_test(samples, pixels[:150], pixels[150:]), copy_test(samples, values[:150], values[150:])
    assert torch.equal(whole.ratios, converted.ratios)
    assert whole.p_value == converted.p_value < 0.01


def test_bad_input_is_named():
    pool = images(20, 26)
    with pytest.raises(ConfigError, match="threshold"):
        copy_test(pool, pool, pool, threshold=1.5)
    with pytest.raises(ConfigError, match="permutations"):
        copy_test(pool, pool, pool, permutations=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["same law", "smooth", "noisy"])
def test_null_p_values_are_valid_in_small(kind):
    """200 splits of one pool with fixed samples: p ≤ α at most as often as α, for smooth and noisy samples too."""
    pool = images(120, 27, side=3)
    samples = images(150, 28, side=3)
    if kind == "smooth":
        samples = 0.3 * samples + 0.7 * samples.mean((2, 3), keepdim=True)
    if kind == "noisy":
        samples = near_copies(samples, 29, 0.4)
    p_values = []
    for seed in range(200):
        order = torch.randperm(120, generator=torch.Generator().manual_seed(seed))
        half, other = pool[order[:60]], pool[order[60:]]
        p_values.append(copy_test(samples, half, other, threshold=0.6, permutations=199, seed=seed).p_value)
    p_values = torch.tensor(p_values)
    for level in (0.05, 0.1, 0.3):
        bound = 200 * level + 3.5 * math.sqrt(200 * level * (1 - level))
        assert int((p_values <= level).sum()) <= bound
    if kind == "same law":
        assert int((p_values <= 0.3).sum()) > 15  # and the test is not merely silent


@pytest.fixture(scope="module")
def trials():
    path = Path(__file__).parents[2] / "validation" / "copy_test.py"
    spec = importlib.util.spec_from_file_location("copy_test_module", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_false_alarms_in_full_size_trials(trials):
    """A sample of the 1,000 trials of validation/copy_test.py; five alarms of 60 at level 0.01 have probability 4e-4."""
    p_values = torch.tensor(
        [
            trials.trial(kind, law, seed).p_value
            for kind in trials.NULL_KINDS
            for law in trials.LAWS
            for seed in range(5)
        ]
    )
    assert len(p_values) == 60
    assert int((p_values <= 0.01).sum()) <= 4


@pytest.mark.slow
def test_p_values_are_uniform_where_chance_likeness_is_common(trials):
    """Images with four degrees of freedom: tens of samples in either tail, so the p-value is all but continuous."""
    results = [trials.trial("same law", trials.dots, 1000 + seed) for seed in range(40)]
    p_values = torch.tensor([result.p_value for result in results])
    assert min(result.nearer_train + result.nearer_held_out for result in results) > 20
    for level in (0.2, 0.5, 0.8):
        spread = 3.5 * math.sqrt(40 * level * (1 - level))
        assert 40 * level - spread <= int((p_values <= level).sum()) <= 40 * level + spread


@pytest.mark.slow
def test_one_percent_copies_are_found_in_full_size_trials(trials):
    """A sample of the 200 trials; at a power of 0.94, fewer than 16 of 20 have probability 0.006."""
    found = [
        trials.trial(trials.COPIES, law, seed).p_value <= 0.01
        for law in (trials.blobs, trials.fields)
        for seed in range(10)
    ]
    assert sum(found) >= 16
