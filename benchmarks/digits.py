"""How soon a small network draws digits: training time of one thread, and how its samples are labelled.

    python benchmarks/digits.py [--seeds 0 1 2] [--split-seed 0]

Trains the default network on 1,400 of the embedded digits, once per seed, and draws 500 samples of each with the default
sampler. A sample counts as unanimous if its five nearest neighbours among the 397 other digits have one label. Beside it:
the same for the 1,400 training images, and the fraction of samples that are copies of one of these.
"""

import argparse
import tempfile
import time

import torch
from torch import Tensor

from gausslens import TrainConfig, load_denoiser, memorization, sample, train
from gausslens.data import Splits, load_images
from gausslens.images import as_tensor, dequantize
from gausslens.noise import draw_noise

N_TRAIN, N_SAMPLES, N_NEIGHBORS = 1400, 500, 5


def unanimous(queries: Tensor, references: Tensor, labels: Tensor) -> Tensor:
    """Whether the nearest references of each query have one label, (b,)."""
    distances = torch.cdist(queries.flatten(1), references.flatten(1))
    voted = labels[distances.topk(N_NEIGHBORS, largest=False).indices]
    return (voted == voted[:, :1]).all(1)


def wilson(successes: int, n: int) -> tuple[float, float]:
    """The 95 % interval of a fraction."""
    z = 1.959964
    centre = (successes + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * (successes * (n - successes) / n + z**2 / 4) ** 0.5
    return centre - half, centre + half


def worded(hits: Tensor) -> str:
    low, high = wilson(int(hits.sum()), len(hits))
    return f"{hits.double().mean():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Training time and samples of the small network on digits.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--split-seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    digits = load_images("digits")
    pixels, labels = dequantize(as_tensor(digits.images)), as_tensor(digits.labels)
    splits = Splits(len(digits), held_out=len(digits) - N_TRAIN, seed=options.split_seed)
    trained, others = as_tensor(splits.subset(N_TRAIN)), as_tensor(splits.held_out)
    print(f"real images: unanimous {worded(unanimous(pixels[trained], pixels[others], labels[others]))}")
    print("| seed | kimg | CPU s | wall s | unanimous | copies |\n|---|---|---|---|---|---|")
    hits = []
    for seed in options.seeds:
        with tempfile.TemporaryDirectory() as folder:
            config = TrainConfig(
                "digits",
                split=str(N_TRAIN),
                split_seed=options.split_seed,
                seed=seed,
                cpu=True,
                out=folder,
            )
            cpu, wall = time.process_time(), time.perf_counter()
            run = train(config)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            latents = draw_noise(seed, torch.arange(N_SAMPLES), digits.shape, stream="latents")
            samples = sample(load_denoiser(run), latents).float().clamp(-1, 1)
            hits.append(unanimous(samples, pixels[others], labels[others]))
            copies = memorization(samples, pixels[trained], pixels[others]).ratio_fraction.value
            print(
                f"| {seed} | {run.config.recipe.kimg:g} | {cpu:.1f} | {wall:.1f} | {worded(hits[-1])} | {copies:.3f} |",
                flush=True,
            )
    print(f"| all | | | | {worded(torch.cat(hits))} | |")


if __name__ == "__main__":
    main()
