"""How often the interval of `gausslens how-many` holds the truth, beside that of a bootstrap over seeds and samples.

Networks around a transition at 100 images are simulated with 3 or 4 seeds, with and without a shift of the transition by
seed and by network. The bootstrap draws seeds with replacement and copies from the binomial law, and fits the same curve by
maximum likelihood.

    python benchmarks/transition_coverage.py --trials 100
"""

import argparse
import math

import torch

from gausslens.studies.transition import _CHANCE, _TOPS, _WIDTHS, Count, _share, fit_transition

NEEDED, WIDTH, TOP, SAMPLES = 100.0, 0.3, 0.97, 256
SIZES = (16, 32, 64, 91, 128, 256, 1024)


def simulated(generator, seeds, seed_shift, model_shift):
    """Counts of networks; the transition is at `NEEDED` images."""
    center = math.log(NEEDED) - WIDTH * math.log(TOP / 0.05 - 1)
    normal = torch.randn(seeds, 1 + len(SIZES), generator=generator)
    counts = []
    for seed in range(seeds):
        for place, n in enumerate(SIZES):
            shifted = center + seed_shift * float(normal[seed, 0]) + model_shift * float(normal[seed, 1 + place])
            share = torch.tensor(TOP / (1 + math.exp((math.log(n) - shifted) / WIDTH)))
            copies = torch.binomial(torch.tensor(float(SAMPLES)), share, generator=generator)
            counts.append(Count(n, seed, int(copies), SAMPLES))
    return counts


def bootstrap(counts, generator, resamples=400):
    """The percentile interval over resampled seeds and redrawn copies."""
    centers = torch.arange(math.log(8), math.log(2000), 0.02, dtype=torch.float64)
    grid = torch.stack([part.flatten() for part in torch.meshgrid(centers, _WIDTHS, _TOPS, indexing="ij")])
    shares = torch.stack([_share(math.log(n) - grid[0], grid[1], grid[2]) for n in SIZES])
    copies = torch.tensor([count.copies for count in counts], dtype=torch.float64).reshape(-1, len(SIZES))
    picks = torch.randint(len(copies), (resamples, len(copies)), generator=generator)
    drawn = torch.binomial(torch.full_like(copies[picks], SAMPLES), copies[picks] / SAMPLES, generator=generator).sum(1)
    log = drawn @ shares.log() + (SAMPLES * len(copies) - drawn) @ (-shares).log1p()
    best = grid[:, log.argmax(1)]
    needed = (best[0] + best[1] * ((best[2] - _CHANCE) / (0.05 - _CHANCE) - 1).log()).exp()
    return needed.quantile(0.025).item(), needed.quantile(0.975).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    trials = parser.parse_args().trials
    torch.set_num_threads(1)
    print("seeds  shift by seed  by network  covered  bootstrap  median width high/low")
    for seeds in (3, 4):
        for shifts in ((0.0, 0.0), (0.25, 0.0), (0.0, 0.25), (0.2, 0.2)):
            generator = torch.Generator().manual_seed(seeds)
            hits = naive = 0
            widths = []
            for _ in range(trials):
                counts = simulated(generator, seeds, *shifts)
                found = fit_transition(counts).needed
                low, high = found.low or 0.0, found.high or math.inf
                hits += low <= NEEDED <= high
                widths.append(high / low if low else math.inf)
                low, high = bootstrap(counts, generator)
                naive += low <= NEEDED <= high
            width = sorted(widths)[len(widths) // 2]
            print(
                f"{seeds:5}  {shifts[0]:13}  {shifts[1]:10}  {hits:7}  {naive:9}  {width:.2f}   of {trials}", flush=True
            )


if __name__ == "__main__":
    main()
