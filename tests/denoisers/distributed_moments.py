"""Run by torchrun on two processes: how far the shared moments are from those of one process, written to <rank>.json."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gausslens import ConfigError, DataError, GeneralizationMonitor, Moments
from gausslens.denoisers import scatter


def images_of(n, dim, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scales = 1 / torch.arange(1, dim + 1, dtype=torch.float64).sqrt()
    noise = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    return (0.1 * scales * noise + 0.2).reshape(n, 1, 1, dim)


def same_everywhere(moments):
    """Whether both processes hold the same numbers, to the last bit."""
    numbers = torch.cat([moments.mean, moments.eigvals, moments.eigvecs.flatten(), torch.tensor([moments.floor])])
    gathered = [torch.empty_like(numbers) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, numbers)
    return all(torch.equal(numbers, other) for other in gathered)


def distance(images, **options):
    """Largest difference to the moments of one process, relative to λ₁; the shards are of unequal size."""
    cut = len(images) // 3
    shard = images[:cut] if dist.get_rank() == 0 else images[cut:]
    shared = Moments.fit(shard, bounds=None, **options)
    expected = Moments.fit(images, bounds=None, across_ranks=False, **options)
    assert same_everywhere(shared)
    assert shared.count == expected.count == len(images)
    projections = [(m.eigvecs * m.eigvals) @ m.eigvecs.T for m in (shared, expected)]
    differences = [
        (shared.mean - expected.mean).abs().max(),
        (shared.eigvals - expected.eigvals).abs().max() / expected.eigvals[0],
        (projections[0] - projections[1]).abs().max() / expected.eigvals[0],
        torch.tensor(abs(shared.floor - expected.floor)) / expected.eigvals[0],
    ]
    return float(max(differences))


def count_errors():
    """How many of the failures of one process reach both, as errors and without waiting for each other."""
    raised = 0
    good, bad = images_of(20, 12), images_of(20, 12)
    bad[3] = float("nan")
    first = dist.get_rank() == 0
    try:
        Moments.fit(bad if first else good)
    except DataError as error:
        raised += "rank 0" in str(error) and "NaN" in str(error)
    try:
        Moments.fit(good if first else images_of(20, 14))
    except DataError as error:
        raised += "one shape" in str(error)
    try:
        Moments.fit(good[:4], rank=9)
    except ConfigError as error:
        raised += "min(8, 12)" in str(error)
    return raised


def looks_of_one_rank():
    """How many looks a monitor takes on one rank, of which the other knows nothing."""
    looks = [0]
    if dist.get_rank() == 0:
        monitor = GeneralizationMonitor(images_of(24, 16), images_of(24, 16, seed=1), count=4, samples=4)
        monitor.look(lambda x, sigma: x / (1 + sigma.reshape(-1, 1, 1, 1)), 1)
        looks = [len(monitor.looks)]
    dist.broadcast_object_list(looks)
    return looks[0]


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    torch.set_num_threads(1)
    results = {
        "dense": distance(images_of(90, 12)),
        "few images": distance(images_of(30, 200)),
        "rank": distance(images_of(90, 12), rank=5),
        "rank of few images": distance(images_of(60, 200), rank=5),
        "uint8": distance(((images_of(90, 12) + 1) * 127.5).to(torch.uint8)),
        "errors": count_errors(),
        "looks": looks_of_one_rank(),
    }
    scatter._GRAM_ROWS, scatter._HELD_BYTES = 40, 0
    results["sketch"] = distance(images_of(300, 200), rank=5)
    Path(sys.argv[1], f"{dist.get_rank()}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
