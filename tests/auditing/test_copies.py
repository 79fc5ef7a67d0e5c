"""Copies found and named, whatever was done to them, beside controls; silence where there are none."""

import pytest
import torch

from gausslens import memorization
from gausslens.auditing.copies import find_copies
from gausslens.auditing.families import PLAIN, Family, families_of
from gausslens.auditing.pool import Pool
from gausslens.images import quantize
from gausslens.measures.transformations import MIRRORED, Transformation


def search(samples, train, held_out=None, gaussian=None, *, families=None, exchangeable=True, **pool):
    sets = samples, Pool(train, held_out, **pool), gaussian
    return find_copies(*sets, families=families, exchangeable=exchangeable)


def images(n, seed, side=6):
    return torch.rand(n, 1, side, side, generator=torch.Generator().manual_seed(seed)) * 2 - 1


UNCHANGED, SHIFT = Transformation(), Transformation(down=-1, right=2)


def planted(seed=0, transformation=UNCHANGED, noise=0.01, copies=30):
    """30 copies of training images 50 … 79 after 170 new samples, and a pool in two halves."""
    pool = images(600, seed)
    made = transformation.apply(pool[50 : 50 + copies]) + noise * images(copies, seed + 1)
    return torch.cat([images(170, seed + 2), made]), pool[:300], pool[300:]


@pytest.mark.parametrize(
    ("transformation", "family"),
    [(UNCHANGED, PLAIN), (MIRRORED, "mirrored"), (SHIFT, "shifted")],
    ids=["plain", "mirrored", "shifted"],
)
def test_copies_are_found_and_named_with_what_was_done_to_them(transformation, family):
    copies = search(*planted(0, transformation))
    assert copies.exist
    assert {one.family for one in copies.comparisons if one.convicts} == {family}
    assert sorted((copy.sample, copy.image) for copy in copies.copies) == [(170 + i, 50 + i) for i in range(30)]
    assert {copy.transformation for copy in copies.copies} == {transformation}
    assert all(copy.rmse < 0.02 and copy.ratio < 1 / 3 for copy in copies.copies)
    assert copies.share.value == 30 / 200
    assert copies.counts == dict.fromkeys(range(50, 80), 1)


def test_new_samples_do_not_convict():
    copies = search(*planted(10, copies=0), images(170, 13))
    assert not copies.exist
    assert (copies.copies, copies.part_copies, copies.parts, copies.overlap_decides) == ([], [], {}, False)
    assert copies.gl.low < copies.gl_held_out.high
    assert copies.gl_held_out.low < copies.gl.high


def test_few_originals_copied_often_are_found_and_counted():
    """What the two-set test is blind to: all copies are of one image, which fell to the training half by chance."""
    pool = images(400, 20)
    samples = torch.cat([pool[:1].expand(60, 1, 6, 6) + 0.01 * images(60, 21), images(240, 22)])
    copies = search(samples, pool[:300], pool[300:])
    assert copies.exist
    assert copies.counts == {0: 60}
    assert copies.two_set.p_value > 0.05


def test_repeated_images_are_one_original_that_held_out_images_alone_judge():
    pool = images(400, 40)
    train = torch.cat([pool[:200], pool[:1].expand(13, 1, 6, 6) + 1e-4 * images(13, 41)])
    samples = torch.cat([pool[:1].expand(60, 1, 6, 6) + 0.01 * images(60, 42), images(140, 43)])
    copies = search(samples, train, pool[200:])
    assert copies.exist
    assert copies.find(kind="repeatedly").samples.copies == 60
    assert copies.find(kind="repeatedly").real == (0, 200)
    assert copies.find(kind="once").samples.copies == 0
    assert copies.counts == {0: 60}
    # Without held-out images nobody can tell whether such an image is memorised or commonplace.
    assert not search(samples, train).exist
    # Indices are those of the set as given, whatever was dropped from it.
    shuffled = torch.cat([train[200:], pool[:200]])
    named = search(torch.cat([pool[30:60] + 0.001, images(50, 43)]), shuffled, pool[200:])
    assert sorted(copy.image for copy in named.copies) == [13 + i for i in range(30, 60)]


def icons(n, kinds, seed):
    """Draws from a few different images: new ones coincide with old ones by nature."""
    return images(kinds, 99)[torch.randint(kinds, (n,), generator=torch.Generator().manual_seed(seed))]


@pytest.mark.parametrize("kinds", [20, 200, 2000])
@pytest.mark.parametrize(("n_train", "n_held_out"), [(300, 300), (600, 50)])
def test_images_that_coincide_by_nature_do_not_convict(kinds, n_train, n_held_out):
    pool = icons(n_train + n_held_out, kinds, 0)
    copies = search(icons(1000, kinds, 50), pool[:n_train], pool[n_train:])
    assert not copies.exist
    assert not copies.parts


def test_held_out_images_that_repeat_training_images_count_as_coincidences():
    """With as many of them as copies nothing convicts; leaving them out would, and that is said."""
    samples, train, held_out = planted(50, noise=0.0)
    held_out[:60] = train[50:110]
    copies = search(samples, train, held_out)
    assert not copies.exist
    assert copies.overlap_decides
    assert int(Pool(train, held_out).overlap.sum()) == 60


def test_the_gaussians_samples_are_a_control():
    samples, train, held_out = planted(60)
    assert search(samples, train, held_out, images(200, 64)).exist
    assert not search(samples, train, held_out, samples.flip(0)).exist


def test_without_held_out_images_the_originals_themselves_are_the_control():
    samples, train, _ = planted(70)
    copies = search(samples, train)
    assert copies.exist
    assert copies.find().real == (0, 300)
    assert (copies.gl_held_out, copies.two_set) == (None, None)
    # Held-out images that are no draws of the same law are no control, either.
    refused = search(samples, train, 0.1 * images(300, 71), exchangeable=False)
    assert refused.find() == copies.find()


def test_copied_parts_are_named_and_whole_copies_are_not_named_again():
    pool = images(600, 80, side=8)
    train, held_out = pool[:300], pool[300:]
    halves = torch.cat([train[:60, :, :4], train[60:120, :, 4:]], 2)
    copies = search(torch.cat([halves, images(140, 81, side=8)]), train, held_out)
    assert not copies.exist
    assert list(copies.parts)[:2] == ["top half", "bottom half"]
    tops = {copy.sample: copy.image for copy in copies.part_copies if copy.family == "top half"}
    assert tops == {i: i for i in range(60)}
    whole = search(torch.cat([train[:60], images(140, 82, side=8)]), train, held_out)
    assert whole.exist
    assert not whole.parts


def test_commonplace_parts_are_no_copies():
    """All images share their lower half, and so do good samples."""
    pool, samples = images(600, 90, side=8), images(300, 91, side=8)
    pool[:, :, 4:] = samples[:, :, 4:] = -1.0
    copies = search(samples, pool[:300], pool[300:])
    assert not copies.exist
    assert not copies.parts


def test_images_of_one_group_are_one_original():
    scenes = images(100, 100)
    frames = torch.cat([0.9 * scenes + 0.05 * images(100, 101 + i) for i in range(3)])
    groups = torch.arange(100).repeat(3)
    held_out, held_out_groups = images(200, 105), 100 + torch.arange(200)
    samples = torch.cat([frames[:40] + 0.04 * images(40, 106), images(160, 107)])
    grouped = search(samples, frames, held_out, groups=groups, held_out_groups=held_out_groups)
    assert grouped.exist
    assert grouped.counts == dict.fromkeys(range(40), 1)
    assert search(samples, frames, held_out).share.value < grouped.share.value
    shared = Pool(frames, held_out, groups=groups, held_out_groups=torch.arange(200)).overlap
    assert shared[:100].all()
    assert not shared[100:].any()


def test_wrong_names_are_a_tenth_at_most_where_likeness_is_frequent():
    """Images of two degrees of freedom: many new ones are like an old one by chance."""

    def bars(n, seed):
        random = torch.Generator().manual_seed(seed)
        place, light = torch.rand(2, n, 1, 1, 1, generator=random)
        return (2 * light - 1) * torch.exp(-((torch.arange(6) - 5 * place) ** 2)).expand(n, 1, 6, 6)

    named = wrong = 0
    for seed in range(5):
        pool, samples = bars(800, seed), bars(1000, 50 + seed)
        samples[:250] = pool[:250] + 2e-4 * images(250, seed)
        copies = search(samples, pool[:400], pool[400:], families=[Family(PLAIN)], rmse=0.0)
        named += len(copies.copies)
        wrong += sum(copy.sample >= 250 or copy.image != copy.sample for copy in copies.copies)
    assert named > 200
    assert wrong <= 0.1 * named


def test_scores_are_those_of_memorization():
    samples, train, held_out = planted(120)
    copies, plain = search(samples, train, held_out), memorization(samples, train, held_out)
    assert (copies.gl, copies.gl_held_out) == (plain.gl, plain.gl_held_out)
    assert copies.share == plain.ratio_fraction
    torch.testing.assert_close(
        copies.plain.samples.first / copies.plain.samples.second, plain.distances / plain.second_distances
    )


def test_a_model_trained_on_mirror_images_copies_either_orientation():
    samples, train, held_out = planted(130, MIRRORED)
    copies = search(samples, train, held_out, families=families_of((1, 6, 6), flip=True))
    assert {one.family for one in copies.comparisons if one.convicts} == {PLAIN}
    assert {copy.image for copy in copies.copies} == set(range(50, 80))
    assert "mirrored" not in {family.name for family in families_of((1, 6, 6), flip=True)}


def test_pixels_vectors_and_tiny_sets_work():
    samples, train, held_out = planted(140)
    assert search(quantize(samples), quantize(train), quantize(held_out)).exist
    vectors = search(*(3 * part.flatten(1) for part in (samples, train, held_out)))
    assert list(vectors.matches) == [PLAIN]
    assert vectors.exist
    tiny = search(samples[:3], train[:1], held_out[:1])
    assert not tiny.exist
    assert bool(tiny.plain.samples.ratio.isnan().all())


def test_small_pictures_have_fewer_families_and_latents_one():
    names = {
        shape: [family.name for family in families_of(shape)] for shape in ((1, 1, 6), (3, 2, 2), (1, 4, 4), (36,))
    }
    assert names[1, 1, 6] == ["plain", "mirrored"]
    assert names[3, 2, 2] == ["plain", "mirrored", "shifted"]
    assert len(names[1, 4, 4]) == 12
    assert names[36,] == [family.name for family in families_of((4, 8, 8), pictures=False)] == ["plain"]
