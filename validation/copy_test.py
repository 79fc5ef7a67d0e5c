"""False alarms and power of the two-set copy test, over many trials.

Bars: of 1,000 trials without a copy, blurred and noisy samples among them, at most 16 alarms at level 0.01; of 200
trials in which 20 of 2,000 samples are copies, at least 188 alarms. A trial draws a pool of 2,000 images from a law of
its own, splits it at random into training and held-out images, makes 2,000 samples and runs the test once:

    python validation/copy_test.py            # the bars, about ten minutes on one core
    python validation/copy_test.py --null 120 --planted 20

Three laws take turns. `dots` has four degrees of freedom, so tens of samples have r < 1/3 or r > 3 by chance: it is
what puts the level to the proof, for where both counts are 0 no alarm is possible. For the same reason copies are
seldom found there, so the bar on power is for `blobs` and `fields` alone and `dots` is listed beside it. Samples of a
Gaussian fitted to the training images depend on the split, and the test promises nothing for them, yet they copy
nothing and should raise no alarm; they too are listed apart.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from gausslens.measures.copy_test import CopyTest, copy_test
from gausslens.measures.neighbors import nearest
from gausslens.noise import generator

SIDE = 8
SAMPLES = 2000
PER_HALF = 1000
LEVEL = 0.01
COPY_NOISE = 0.02  # 2.5 grey levels
PERMUTATIONS = 999


def blobs(n: int, random: torch.Generator) -> Tensor:
    """One bright ellipse on a dim, slightly uneven ground; faint ones make nearly flat images, alike by nature."""
    line = torch.linspace(-1, 1, SIDE)
    y, x = (axis.expand(n, SIDE, SIDE) for axis in torch.meshgrid(line, line, indexing="ij"))
    center_y, center_x, radius_a, radius_b, angle, light, ground = torch.rand(7, n, 1, 1, generator=random)
    dy, dx = y - 1.4 * center_y + 0.7, x - 1.4 * center_x + 0.7
    cos, sin = torch.cos(torch.pi * angle), torch.sin(torch.pi * angle)
    across = (cos * dx + sin * dy) / (0.15 + 0.5 * radius_a)
    along = (cos * dy - sin * dx) / (0.15 + 0.5 * radius_b)
    ellipse = torch.sigmoid(4 * (1 - across**2 - along**2))
    return (-0.9 + 0.4 * ground + 1.4 * light * ellipse)[:, None] + 0.1 * fields(n, random)


def dots(n: int, random: torch.Generator) -> Tensor:
    """A round dot with a place, a size and a brightness, and nothing else."""
    line = torch.linspace(-1, 1, SIDE)
    center_y, center_x, radius, light = torch.rand(4, n, 1, 1, generator=random)
    square = (line[:, None] - 1.6 * center_y + 0.8) ** 2 + (line - 1.6 * center_x + 0.8) ** 2
    return (-1 + (0.5 + light) * torch.exp(-square / (0.2 + 0.6 * radius) ** 2))[:, None]


def fields(n: int, random: torch.Generator) -> Tensor:
    """Smooth Gaussian random fields, amplitudes falling as the square of the frequency."""
    frequency = torch.arange(SIDE, dtype=torch.float32)
    cosines = torch.cos(torch.pi * (torch.arange(SIDE) + 0.5)[:, None] * frequency / SIDE)
    amplitude = 0.5 / (1 + frequency[:, None] ** 2 + frequency**2)
    return cosines @ (amplitude * torch.randn(n, 1, SIDE, SIDE, generator=random)) @ cosines.T


def gaussian(images: Tensor, n: int, random: torch.Generator) -> Tensor:
    """Samples of the Gaussian with the images' mean and covariance."""
    vectors = images.flatten(1)
    centred = vectors - vectors.mean(0)
    mix = torch.randn(n, len(images), generator=random) / len(images) ** 0.5
    return (vectors.mean(0) + mix @ centred).reshape(n, *images.shape[1:])


def blurred(images: Tensor, random: torch.Generator) -> Tensor:
    """Images mixed, to a random degree, with their means over 3×3 windows."""
    degree = torch.rand((), generator=random)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="replicate")
    return torch.lerp(images, torch.nn.functional.avg_pool2d(padded, 3, 1), degree)


def noisy(images: Tensor, random: torch.Generator) -> Tensor:
    """Images with noise of a random standard deviation between 0.002 and 0.2."""
    deviation = 0.002 * 100 ** torch.rand((), generator=random)
    return images + deviation * torch.randn(images.shape, generator=random)


Law = Callable[[int, torch.Generator], Tensor]
LAWS: tuple[Law, ...] = (dots, blobs, fields)
NULL_KINDS = ("same law", "blurred", "noisy", "Gaussian of other images")
FITTED = "Gaussian of the training images"
COPIES = "1 % copies"


def trial(kind: str, law: Law, seed: int, *, per_half: int = PER_HALF, samples: int = SAMPLES) -> CopyTest:
    """One trial of the test, fixed by its arguments."""
    random = generator(seed, f"{kind} {law.__name__} {per_half}")
    pool = law(2 * per_half, random)
    train, held_out = pool[:per_half], pool[per_half:]
    made = law(samples, random)
    if kind == "blurred":
        made = blurred(made, random)
    elif kind == "noisy":
        made = noisy(made, random)
    elif kind == "Gaussian of other images":
        made = gaussian(law(per_half, random), samples, random)
    elif kind == FITTED:
        made = gaussian(train, samples, random)
    elif kind == COPIES:
        made[: samples // 100] = copies(train, samples // 100, random)
    return copy_test(made, train, held_out, permutations=PERMUTATIONS, seed=seed)


def copies(train: Tensor, n: int, random: torch.Generator) -> Tensor:
    """Copies, slightly noisy, of images that can be told from their neighbours: the flattest tenth is left out."""
    own_distance = nearest(train, train, 2)[0][:, 1]
    identifiable = (own_distance > own_distance.quantile(0.1)).nonzero()[:, 0]
    chosen = train[identifiable[torch.randperm(len(identifiable), generator=random)[:n]]]
    return chosen + COPY_NOISE * torch.randn(chosen.shape, generator=random)


def run(kind: str, law: Law, seeds: range, *, per_half: int = PER_HALF) -> int:
    """Run the trials of one kind and law, print their line of the table, and return the alarms."""
    start = time.perf_counter()
    results = [trial(kind, law, seed, per_half=per_half) for seed in seeds]
    n = max(len(results), 1)
    seconds = (time.perf_counter() - start) / n
    alarms = sum(result.p_value <= LEVEL for result in results)
    below, above = sum(result.nearer_train for result in results), sum(result.nearer_held_out for result in results)
    nearer = sum(float((result.ratios < 1).double().mean()) for result in results)
    print(
        f"| {kind} | {law.__name__} | {per_half} | {len(results)} | {alarms} | {below / n:.1f} | {above / n:.1f} "
        f"| {nearer / n:.3f} | {seconds:.2f} |",
        flush=True,
    )
    return alarms


def in_turn(kind: str, laws: tuple[Law, ...], trials: int, *, per_half: int = PER_HALF) -> int:
    """Alarms in trials of one kind in which the laws take turns."""
    return sum(run(kind, law, range(first, trials, len(laws)), per_half=per_half) for first, law in enumerate(laws))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--null", type=int, default=1000, help="trials without copies")
    parser.add_argument("--planted", type=int, default=200, help="trials with 1 %% copies")
    options = parser.parse_args()
    torch.set_num_threads(1)
    each = max(1, options.null // len(NULL_KINDS))
    print(f"| {SAMPLES} samples | law | a side | trials | alarms at {LEVEL} | r < 1/3 | r > 3 | P(r < 1) | s/trial |")
    print("|---|---|---|---|---|---|---|---|---|")
    null_alarms = sum(in_turn(kind, LAWS, each) for kind in NULL_KINDS)
    found = in_turn(COPIES, (blobs, fields), options.planted)
    hard = in_turn(COPIES, (dots,), options.planted)
    fitted = sum(in_turn(FITTED, LAWS, each, per_half=per_half) for per_half in (64, 256, PER_HALF))
    print(f"\nwithout copies: {null_alarms} alarms in {each * len(NULL_KINDS)} trials (bar: at most 16 in 1,000)")
    print(f"1 % copies, blobs and fields: {found} of {options.planted} found (bar: at least 188 in 200)")
    print(f"1 % copies, dots: {hard} of {options.planted} found (no bar: likenesses by chance outnumber the copies)")
    print(f"Gaussian of the training images: {fitted} alarms in {3 * each} trials")


if __name__ == "__main__":
    main()
