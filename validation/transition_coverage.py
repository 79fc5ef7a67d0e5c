"""How often the interval of `gausslens how-many` holds the truth, beside that of a bootstrap over seeds and samples.

Copies are simulated by a logistic or a normal law of log n, with and without a shift of the transition by seed and by
network. Every trial has a law of its own: copies end at 40 to 400 images, its width is .1 to .5 and its top .75 to 1. Sizes
are those that the command would choose: a first network of each, and then more around the end of copying, of 2, 3, 4 or 8
seeds. The bootstrap draws seeds with replacement and copies from the binomial law, and fits the logistic law by maximum
likelihood.

    python validation/transition_coverage.py --trials 100
"""

import argparse
import math
from statistics import NormalDist

import torch

from gausslens.measures.memorization import MEMORIZED
from gausslens.measures.transition import Count, fit_transition
from gausslens.sample_size.how_many import growing_sizes, sizes_around

SAMPLES, AVAILABLE = 256, 1438
CASES = [
    *((seeds, "logistic", *shifts) for seeds in (3, 4) for shifts in ((0, 0), (0.25, 0), (0, 0.25), (0.2, 0.2))),
    *((2, law, 0.05, 0.05) for law in ("logistic", "normal")),
    *((4, "normal", shift, shift) for shift in (0, 0.05, 0.2)),
    *((8, law, 0.05, 0.05) for law in ("logistic", "normal")),
]


def between(generator, low, high):
    """A number, uniformly distributed."""
    return low + (high - low) * float(torch.rand((), generator=generator))


def simulated(generator, seeds, law, seed_shift, model_shift):
    """How many images are needed, and counts of networks as the command would train them."""
    needed = math.exp(between(generator, math.log(40), math.log(400)))
    width, top = math.exp(between(generator, math.log(0.1), math.log(0.5))), between(generator, 0.75, 1)
    normal = NormalDist(sigma=1.7)
    left = MEMORIZED / top
    center = math.log(needed) - width * (math.log(1 / left - 1) if law == "logistic" else -normal.inv_cdf(left))
    first = growing_sizes(AVAILABLE)
    of_seed = seed_shift * torch.randn(seeds, generator=generator)

    def count(n, seed):
        shifted = center + float(of_seed[seed]) + model_shift * float(torch.randn((), generator=generator))
        distance = (math.log(n) - shifted) / width
        share = top * (1 / (1 + math.exp(distance)) if law == "logistic" else normal.cdf(-distance))
        copies = torch.binomial(torch.tensor(float(SAMPLES)), torch.tensor(share), generator=generator)
        return Count(n, seed, int(copies), SAMPLES)

    found = {(n, 0): count(n, 0) for n in first}
    around = sizes_around({n: found[n, 0].share for n in first})
    found |= {(n, seed): count(n, seed) for seed in range(seeds) for n in around if (n, seed) not in found}
    return needed, list(found.values())


def bootstrap(counts, generator, resamples=400):
    """The percentile interval over resampled seeds and redrawn copies."""
    sizes, seeds = (sorted({getattr(count, name) for count in counts}) for name in ("n", "seed"))
    copies, samples = (torch.zeros(len(seeds), len(sizes), dtype=torch.float64) for _ in range(2))
    for count in counts:
        place = seeds.index(count.seed), sizes.index(count.n)
        copies[place], samples[place] = count.copies, count.samples
    axes = (
        torch.arange(math.log(8), math.log(2000), 0.02),
        torch.logspace(math.log10(0.05), math.log10(0.8), 16),
        torch.linspace(0.7, 1, 7),
    )
    center, width, top = (part.flatten().double() for part in torch.meshgrid(*axes, indexing="ij"))
    distances = (torch.tensor(sizes).log().double()[:, None] - center) / width
    shares = (top * torch.sigmoid(-distances)).clamp(1e-4, 1 - 1e-4)
    picks = torch.randint(len(seeds), (resamples, len(seeds)), generator=generator)
    chances = (copies / samples.clamp_min(1))[picks]
    drawn, tried = torch.binomial(samples[picks], chances, generator=generator).sum(1), samples[picks].sum(1)
    best = (drawn @ shares.log() + (tried - drawn) @ (-shares).log1p()).argmax(1)
    needed = (center[best] + width[best] * (top[best] / MEMORIZED - 1).log()).exp()
    return needed.quantile(0.025).item(), needed.quantile(0.975).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    trials = parser.parse_args().trials
    torch.set_num_threads(1)
    print("seeds  law       shift by seed  by network  covered  bootstrap  median width high/low")
    for seeds, law, *shifts in CASES:
        generator = torch.Generator().manual_seed(seeds)
        hits = naive = 0
        widths = []
        for _ in range(trials):
            needed, counts = simulated(generator, seeds, law, *shifts)
            found = fit_transition(counts).needed
            low, high = found.low or 0.0, found.high or math.inf
            hits += low <= needed <= high
            widths.append(high / low if low else math.inf)
            low, high = bootstrap(counts, generator)
            naive += low <= needed <= high
        width = sorted(widths)[len(widths) // 2]
        print(
            f"{seeds:5}  {law:8}  {shifts[0]:13}  {shifts[1]:10}  {hits:7}  {naive:9}  {width:.2f}   of {trials}",
            flush=True,
        )


if __name__ == "__main__":
    main()
