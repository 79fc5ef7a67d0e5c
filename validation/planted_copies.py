"""Planted copies: how often the audit finds them, how often it finds any where there are none, and whom it names.

Bars: among 2,000 samples of a good model, 20 exact copies of identifiable training images, or copies with pixel noise of
RMSE 0.02, are found in at least 188 of 200 trials; of 1,000 trials without copies at most 5 give an alarm; of the pairs
listed at most a tenth is wrong. Copies with more noise, mirrored and shifted ones are listed beside them.

A trial splits a pool at random into training and held-out images and makes 2,000 samples. Four sources take turns, so
that of 20 trials 5 are of `blobs` and 5 of `fields` (laws of their own, the good model is the law), 6 of digits and 1 of
fashion (real images; the good model is a Gaussian for each class, fitted to the training half), and 3 of `fields` with
four training images to a held-out one, which count for false alarms alone. Copies take the place of 20 of the samples,
kind by kind, and all are searched again. Samples are judged as in an audit, copied parts too; planted ones without parts.

In these sources hardly anything is like a training image by chance, so hardly a pair can be wrong. `dots`, images of four
degrees of freedom, are what puts the list to the proof: 300 of 2,000 samples are copies with noise of 0.002, and of all
other samples tens are as near to an image by chance.

    python validation/planted_copies.py                   # the bars, about an hour on one core
    python validation/planted_copies.py --null 40 --planted 20
"""

import argparse
import time
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from copy_test import blobs, dots, fields
from torch import Tensor

from gausslens.auditing.copies import Copies, find_copies
from gausslens.auditing.families import PLAIN, Family, families_of
from gausslens.auditing.pool import Pool
from gausslens.auditing.power import PLANTINGS, Planting
from gausslens.images import dequantize, quantize
from gausslens.measures.memorization import identifiable_images
from gausslens.measures.transformations import MIRRORED, Transformation, shifts_by
from gausslens.noise import draw_noise, draw_order, generator

SAMPLES = 2000
COPIES = 20
PER_HALF = 1000
CHANCE_COPIES = 300
UNEVEN = "fields 4:1"
TURN = ("blobs", "fields", "digits", UNEVEN) * 3 + ("blobs", "fields", "digits") * 2 + ("digits", "fashion")


@dataclass
class Trial:
    """Training images, held-out images and samples of a good model."""

    train: Tensor
    held_out: Tensor
    samples: Tensor

    @property
    def pool(self) -> Pool:
        """The images of both sets."""
        return Pool(self.train, self.held_out)


def make_trial(source: str, seed: int) -> Trial:
    """One trial's images, fixed by its arguments."""
    random = generator(seed, f"planted {source}")
    if source in ("digits", "fashion"):
        return _real(source, random)
    law, train = (blobs if source == "blobs" else fields), (1600 if source == UNEVEN else PER_HALF)
    pool = law(2 * PER_HALF, random)
    return Trial(pool[:train], pool[train:], law(SAMPLES, random))


def _real(name: str, random: torch.Generator) -> Trial:
    with np.load(str(files("gausslens.data") / "embedded" / f"{name}.npz")) as stored:
        images, labels = torch.from_numpy(stored["images"]), torch.from_numpy(stored["labels"]).long()
    order = torch.randperm(len(images), generator=random)
    train, held_out = order[: len(order) // 2], order[len(order) // 2 : len(order) // 2 * 2]
    return Trial(images[train], images[held_out], _class_gaussians(images[train], labels[train], random))


def _class_gaussians(images: Tensor, labels: Tensor, random: torch.Generator) -> Tensor:
    """Samples of the mixture of Gaussians with each class's mean and covariance."""
    vectors = dequantize(images).flatten(1)
    drawn = labels[torch.randint(len(labels), (SAMPLES,), generator=random)]
    made = torch.empty(SAMPLES, vectors.shape[1])
    for label in labels.unique():
        own, rows = vectors[labels == label], drawn == label
        mix = torch.randn(int(rows.sum()), len(own), generator=random) / len(own) ** 0.5
        made[rows] = own.mean(0) + mix @ (own - own.mean(0))
    return quantize(made.reshape(SAMPLES, *images.shape[1:]))


@dataclass
class Outcome:
    """Whether planted copies were found, how many samples were named, and how many of them wrongly."""

    alarm: bool
    named: int
    wrong: int


def search_planted(trial: Trial, copies: Copies, kinds: list[Planting], seed: int) -> list[Outcome]:
    """For each kind, plant 20 copies among the samples of a trial, of which `copies` is the search, and search again."""
    chosen = identifiable(copies, seed)
    rows = torch.randperm(SAMPLES, generator=generator(seed, "planted rows"))[:COPIES]
    truth = dict(zip(rows.tolist(), chosen.tolist(), strict=True))
    outcomes = []
    whole = [family for family in families_of(trial.train.shape[1:]) if not family.is_part]
    for kind in kinds:
        samples = dequantize(trial.samples)
        samples[rows] = plant(trial.train[chosen], kind, seed)
        found = find_copies(samples, trial.pool, families=whole, seed=seed)
        outcomes.append(Outcome(found.exist, len(found.copies), wrong_names(found, truth)))
    return outcomes


def identifiable(copies: Copies, seed: int) -> Tensor:
    """Twenty training images that stand there once, without those of which nobody can tell a copy; indices."""
    originals = copies.matches[PLAIN].originals
    once = originals.kept[originals.unique[originals.of_image[originals.kept]]]
    drawn = once[draw_order(seed, len(once), stream="planted copies")]
    return drawn[identifiable_images(drawn, originals, seed)][:COPIES]


def plant(images: Tensor, kind: Planting, seed: int) -> Tensor:
    """Copies as a kind looks like, float."""
    clean = dequantize(images)
    if kind.transformation != Transformation():
        clean = kind.transformation.apply(clean)
    return clean + kind.rmse * draw_noise(seed, torch.arange(len(clean)), tuple(clean.shape[1:]), stream=kind.name)


def wrong_names(found: Copies, truth: dict[int, int]) -> int:
    """How many samples are named that copy nothing, or another original; `truth` has the image of each copy."""
    original = found.matches[PLAIN].originals.of_image
    named = [(copy.sample, copy.original) for copy in found.copies]
    return sum(sample not in truth or int(original[truth[sample]]) != told for sample, told in named)


def plantings(seed: int) -> list[Planting]:
    """The kinds of copies, shifted ones by one or two pixels in a direction of the trial's own."""
    shifts = shifts_by((1, 2))
    shift = shifts[int(torch.randint(len(shifts), (), generator=generator(seed, "shift")))]
    return [
        *(kind for kind in PLANTINGS if kind.family == PLAIN),
        Planting("mirrored", "mirrored", MIRRORED),
        Planting("mirrored, noise 0.02", "mirrored", MIRRORED, 0.02),
        Planting("shifted", "shifted", shift),
        Planting("shifted, noise 0.02", "shifted", shift, 0.02),
    ]


def wrong_pairs(n_train: int, seed: int) -> tuple[int, int]:
    """Samples named among `dots`, and how many of them wrongly."""
    random = generator(seed, f"dots {n_train}")
    pool, samples = dots(2 * PER_HALF, random), dots(SAMPLES, random)
    copied = torch.randperm(n_train, generator=random)[:CHANCE_COPIES]
    samples[:CHANCE_COPIES] = pool[copied] + 0.002 * torch.randn(samples[:CHANCE_COPIES].shape, generator=random)
    found = find_copies(samples, Pool(pool[:n_train], pool[n_train:]), families=[Family(PLAIN)], seed=seed)
    return len(found.copies), wrong_names(found, dict(enumerate(copied.tolist())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", type=int, default=1000, help="trials without copies")
    parser.add_argument("--planted", type=int, default=200, help="trials with 1 %% copies, among those of equal halves")
    parser.add_argument("--listed", type=int, default=30, help="trials of `dots` for the share of wrong pairs")
    parser.add_argument("--first", type=int, default=0, help="the first trial's number, to share them out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    null: Counter[str] = Counter()
    alarms: Counter[str] = Counter()
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    done, start = 0, time.perf_counter()
    for seed in range(options.first, options.first + options.null):
        source = TURN[seed % len(TURN)]
        trial = make_trial(source, seed)
        copies = find_copies(trial.samples, trial.pool, seed=seed)
        null[source] += 1
        alarms[source] += copies.exist or bool(copies.parts)
        if source != UNEVEN and done < options.planted:
            done += 1
            kinds = plantings(seed)
            for kind, outcome in zip(kinds, search_planted(trial, copies, kinds, seed), strict=True):
                outcomes.setdefault((kind.name, source), []).append(outcome)
        if sum(null.values()) % 20 == 0:
            seconds = time.perf_counter() - start
            print(f"{sum(null.values())} trials, {sum(alarms.values())} alarms, {seconds:.0f} s", flush=True)
    report(null, alarms, outcomes)
    for n_train in (PER_HALF, 1600) if options.listed else ():
        lists = [wrong_pairs(n_train, seed) for seed in range(options.listed)]
        named, wrong = (sum(column) for column in zip(*lists, strict=True))
        share = sum(wrong / max(named, 1) for named, wrong in lists) / len(lists)
        print(
            f"dots, {n_train} training images: {named} pairs in {len(lists)} trials, {wrong} wrong; mean share {share:.3f}"
        )


def report(null: Counter[str], alarms: Counter[str], outcomes: dict[tuple[str, str], list[Outcome]]) -> None:
    """Print the tables."""
    print("\n| source | trials without copies | alarms |\n|---|---|---|")
    for source, trials in null.items():
        print(f"| {source} | {trials} | {alarms[source]} |")
    print(f"| all | {sum(null.values())} | {sum(alarms.values())} |")
    if not outcomes:
        return
    sources = sorted({source for _, source in outcomes})
    print(f"\n| 1 % copies | trials | found | {' | '.join(sources)} | named | wrong share | mean share a trial |")
    print("|---" * (6 + len(sources)) + "|")
    for kind in dict.fromkeys(kind for kind, _ in outcomes):
        own = {source: outcomes.get((kind, source), []) for source in sources}
        every = [outcome for some in own.values() for outcome in some]
        each = [f"{sum(outcome.alarm for outcome in some)}/{len(some)}" for some in own.values()]
        named, wrong = sum(outcome.named for outcome in every), sum(outcome.wrong for outcome in every)
        share = sum(outcome.wrong / max(outcome.named, 1) for outcome in every) / len(every)
        found = sum(outcome.alarm for outcome in every)
        print(
            f"| {kind} | {len(every)} | {found} | {' | '.join(each)} | {named} | {wrong / max(named, 1):.3f} "
            f"| {share:.3f} |"
        )


if __name__ == "__main__":
    main()
