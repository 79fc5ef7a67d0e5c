"""Images per second of training and sampling the published networks on one GPU, through the package's own loop.

    python benchmarks/throughput.py [--sizes 64 32] [--only train,sample,calls] [--limit GIB] [--out FILE]

NCSN++ of width 128: 64×64 with multipliers 1,2,2,2 and batch 256, and 32×32 with multipliers 2,2,2 and batch 512. Images are
random: their content does not matter here. Training time is read from the run's own records after the steps that compile;
`busy` is the share of the wall time in which kernels ran, by the profiler. Sampling is 18 steps of Heun, 35 calls an image.
`calls` is not among the defaults: calls without compiling, of widths 128 and 64, in bf16 and float32, on batches of 256.
With a limit, no more memory may be reserved, as on a smaller GPU.
"""

import argparse
import json
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from gausslens import Preconditioned, TrainConfig, sample, train
from gausslens.nn import build_network
from gausslens.nn.acceleration import FastDenoiser
from gausslens.training.update import WeightUpdate

BATCH = {64: 256, 32: 512}
DEVICE = torch.device("cuda")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 32])
    parser.add_argument("--only", default="train,sample")
    parser.add_argument("--limit", type=float)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.limit is not None:
        torch.cuda.set_per_process_memory_fraction(args.limit * 2**30 / torch.cuda.get_device_properties().total_memory)
    for work in args.only.split(","):
        for size in args.sizes:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            start = time.perf_counter()
            record = {"train": training, "sample": sampling, "calls": calling}[work](size)
            record |= {
                "work": work, "size": size, "hardware": torch.cuda.get_device_name(), "torch": torch.__version__,
                "limit_gib": args.limit, "peak_gib": torch.cuda.max_memory_reserved() / 2**30,
                "allocated_gib": torch.cuda.max_memory_allocated() / 2**30, "all_s": time.perf_counter() - start,
            }  # fmt: skip
            print(json.dumps(record), flush=True)
            if args.out:
                with args.out.open("a") as file:
                    print(json.dumps(record), file=file)


def training(size):
    """Rate over steps 50 to 100 of a run, which are past compiling, and the busy share of its steps 110 to 120."""
    with tempfile.TemporaryDirectory() as folder:
        images = np.random.default_rng(0).integers(0, 256, (4096, size, size, 3), dtype=np.uint8)
        np.save(f"{folder}/images.npy", images)
        config = TrainConfig(
            f"{folder}/images.npy", network="ncsnpp", width=128, batch=BATCH[size], kimg=BATCH[size] * 125 / 1000,
            held_out=0, compile=True, out=folder,
        )  # fmt: skip
        with profiled_updates(range(110, 120)) as busy:
            run = train(config)
        seconds = {r["step"]: r["value"] for r in run.records() if r["quantity"] == "seconds"}
        rate = 50 * BATCH[size] / (seconds[100] - seconds[50])
        return {"images_per_second": rate, "batch": BATCH[size], "busy": busy["share"]}


@contextmanager
def profiled_updates(steps):
    """Inside, the given steps of training are profiled; their kernel time over wall time is put in `share`."""
    original, found, count = WeightUpdate.__call__, {}, 0
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)

    def update(self, batch, rate):
        nonlocal count
        if count == steps.start:
            torch.cuda.synchronize()
            profiler.start()
            found["start"] = time.perf_counter()
        if count == steps.stop:
            torch.cuda.synchronize()
            found["wall"] = time.perf_counter() - found["start"]
            profiler.stop()
        count += 1
        return original(self, batch, rate)

    WeightUpdate.__call__ = update
    try:
        yield found
    finally:
        WeightUpdate.__call__ = original
    kernels = [e.time_range for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    end = busy = 0.0
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        busy += max(0.0, kernel.end - max(kernel.start, end))
        end = max(end, kernel.end)
    found["share"] = busy / 1e6 / found["wall"]


def sampling(size, batches=2):
    """Rate of whole batches after one that compiles."""
    multipliers = (1, 2, 2, 2) if size == 64 else (2, 2, 2)
    network = build_network("ncsnpp", (3, size, size), width=128, multipliers=multipliers)
    denoiser = FastDenoiser(Preconditioned(network), DEVICE, compile=True)
    latents = torch.randn(BATCH[size], 3, size, size, device=DEVICE)
    sample(denoiser, latents, steps=18)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(batches):
        sample(denoiser, latents, steps=18)
    torch.cuda.synchronize()
    return {"images_per_second": batches * BATCH[size] / (time.perf_counter() - start), "batch": BATCH[size]}


def calling(size, widths=(128, 64), batch=256, seconds=1.0):
    """Calls a second of uncompiled networks, after some that choose algorithms and are recorded."""
    rates = {}
    for width in widths:
        for precision in ("bf16", "float32"):
            denoiser = FastDenoiser(
                Preconditioned(build_network("ncsnpp", (3, size, size), width=width)), DEVICE, precision
            )
            x, sigma, count = torch.randn(batch, 3, size, size, device=DEVICE), torch.tensor(1.0, device=DEVICE), 0
            for _ in range(5):
                denoiser(x, sigma)
            torch.cuda.synchronize()
            start = time.perf_counter()
            while time.perf_counter() - start < seconds:
                denoiser(x, sigma)
                torch.cuda.synchronize()
                count += batch
            rates[f"width {width}, {precision}"] = count / (time.perf_counter() - start)
    return {"calls_per_second": rates, "batch": batch}


if __name__ == "__main__":
    main()
