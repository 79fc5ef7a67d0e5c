"""Our way against the published way, in one process: a table of ratios.

    python benchmarks/ratios.py --data FOLDER [--only spectrum,multidelta,distillation] [--model RUN] [--out FILE]

FOLDER holds `cifar10-train-a.npz` and `cifar10-test.npz` (`images`, uint8 NHWC). On a GPU, where there is one, the sizes are
the paper's (d = 12288 and 3072); on a CPU spectra have d = 3072 and distillation d = 192 (8×8 means of the same images).

The published way, written from the paper: the multi-delta denoiser by `cdist` and a softmax, the Gaussian's spectrum by a
float32 covariance and `svd`, distillation by Adam in batches of 256 for 100 epochs, each noise level at the best of several
learning rates. All in float32 with TF32 off, except that Adam's own products may use TF32 on a GPU: its calls are counted,
not timed. `--model` distils a trained network of 32×32 instead of a mixture of Gaussians. Ratios are medians of interleaved
repetitions, so that a noisy machine disturbs both sides alike.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gausslens import GaussianDenoiser, Moments, MultiDeltaDenoiser, distill, karras_sigmas, load_denoiser
from gausslens.denoisers.fitting import published_learning_rate
from gausslens.nn.acceleration import for_inference

sys.path.insert(0, str(Path(__file__).parents[1] / "validation"))
from mixture import MixtureDenoiser

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ON_GPU = DEVICE.type == "cuda"
OUT = []


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", default="spectrum,multidelta,distillation")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--levels", type=int, nargs="*", help="indices into the ten-level grid (distillation)")
    parser.add_argument("--model", help="a trained run to distil, instead of the mixture")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    print(f"{_hardware()}, torch {torch.__version__}", flush=True)
    if args.out:
        OUT.append(args.out.open("a"))
    for name in args.only.split(","):
        {"spectrum": spectrum, "multidelta": multidelta, "distillation": distillation}[name](args)


def _hardware():
    if ON_GPU:
        return torch.cuda.get_device_name()
    model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return f"{model[0].split(':')[1].strip() if model else platform.processor()}, {torch.get_num_threads()} threads"


def _report(**record):
    for file in OUT:
        print(json.dumps(record | {"hardware": _hardware(), "torch": torch.__version__}), file=file, flush=True)
    shown = {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in record.items()}
    print("  ".join(f"{key} {value}" for key, value in shown.items()), flush=True)


def _seconds(work):
    if ON_GPU:
        torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    if ON_GPU:
        torch.cuda.synchronize()
    return time.perf_counter() - start, result


def _compare(published, ours, repetitions, *, warm_up=True):
    """Median seconds of each, taken in turns after one warm-up (of ours alone where the other takes long)."""
    _seconds(ours)
    if warm_up:
        _seconds(published)
    times = [(_seconds(published)[0], _seconds(ours)[0]) for _ in range(repetitions)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def _images(path, name):
    return torch.from_numpy(np.load(path / f"{name}.npz")["images"]).permute(0, 3, 1, 2).contiguous()


# Spectra ---------------------------------------------------------------------------------------------------------------


def spectrum(args):
    dim = 12288 if ON_GPU else 3072
    for n in (16384, 1094) if ON_GPU else (8192, 1094):
        torch.manual_seed(0)
        scales = torch.arange(1, dim + 1, device=DEVICE).float().rsqrt()
        images = (torch.randn(n, dim, device=DEVICE) * scales).reshape(n, 3, -1, 64 if ON_GPU else 32)

        def published(images=images):
            rows = images.flatten(1)
            centred = rows - rows.mean(0)
            return torch.linalg.svd(centred.T @ centred / len(rows))

        def ours(images=images):
            return Moments.fit(images, bounds=None)

        slow, fast = _compare(published, ours, 1 if ON_GPU else 3, warm_up=not ON_GPU)
        rows = images.flatten(1).double()
        centred = rows - rows.mean(0)
        gram = centred.T @ centred if n > dim else centred @ centred.T
        exact = torch.linalg.eigvalsh(gram / n).flip(0)
        moments = ours()
        k = min(len(moments.eigvals), n - 1)
        error = float((moments.eigvals[:k] - exact[:k]).abs().max() / exact[0])
        published_values = published()[1][:k].double()
        _report(
            work="spectrum", d=dim, n=n, published_s=slow, ours_s=fast, ratio=slow / fast, our_error=error,
            published_error=float((published_values - exact[:k]).abs().max() / exact[0]),
        )  # fmt: skip


# Multi-delta -----------------------------------------------------------------------------------------------------------


def multidelta(args):
    images = _images(args.data, "cifar10-train-a")
    images = torch.cat([images, images.flip(3)])  # 50,000: each image and its mirror image
    queries = dequantized(_images(args.data, "cifar10-test")[: 512 if ON_GPU else 256].to(DEVICE))
    denoiser = MultiDeltaDenoiser(images, resident=True).to(DEVICE)
    rows = dequantized(images).to(DEVICE).flatten(1)  # on the CPU: a GPU divides otherwise
    norm = float(rows.norm(dim=1).mean())
    totals = [0.0, 0.0]
    for sigma in karras_sigmas(10).tolist()[:8]:
        torch.manual_seed(0)
        x = queries + sigma * torch.randn(queries.shape).to(DEVICE)

        def published(x=x, sigma=sigma):
            distances = torch.cdist(x.flatten(1), rows)
            return torch.softmax(-distances.square() / (2 * sigma**2), 1) @ rows

        def ours(x=x, sigma=sigma):
            return denoiser(x, sigma)

        slow, fast = _compare(published, ours, 20 if ON_GPU else 3)
        totals = [totals[0] + slow, totals[1] + fast]
        exact = _exact_multidelta(x[:64].flatten(1), rows, sigma)
        errors = [float((answer[:64].flatten(1) - exact).norm(dim=1).max()) / norm for answer in (published(), ours())]
        _report(
            work="multidelta", sigma=sigma, queries=len(x), n=len(rows), d=rows.shape[1], published_s=slow, ours_s=fast,
            ratio=slow / fast, published_error=errors[0], our_error=errors[1],
        )  # fmt: skip
    _report(work="multidelta", sigma="all", published_s=totals[0], ours_s=totals[1], ratio=totals[0] / totals[1])
    if ON_GPU:
        denoiser = denoiser.to("cpu").to(DEVICE)  # forgets what it recorded
        del rows, published, ours
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(4):
            denoiser(x, 1.0)
        _report(work="multidelta memory", extra_gib=(torch.cuda.max_memory_reserved() - before) / 2**30)


def dequantized(pixels):
    return pixels.float() / 127.5 - 1


def _exact_multidelta(x, rows, sigma):
    x, logits = x.double(), []
    for tile in rows.split(5000):
        tile = tile.double()
        logits.append((x @ tile.T - tile.square().sum(1) / 2) / sigma**2)
    weights = torch.softmax(torch.cat(logits, 1), 1)
    return sum(w @ tile.double() for w, tile in zip(weights.split(5000, 1), rows.split(5000), strict=True))


# Distillation ----------------------------------------------------------------------------------------------------------


def distillation(args):
    train, test = _images(args.data, "cifar10-train-a"), _images(args.data, "cifar10-test")
    if not ON_GPU and not args.model:
        train, test = (_shrink(images) for images in (train, test[:2000]))
    fitted, held_out = dequantized(train[:20000].to(DEVICE)), dequantized(train[20000:].to(DEVICE))
    if args.model:
        teacher = for_inference(load_denoiser(args.model).to(DEVICE), DEVICE)
    else:
        teacher = MixtureDenoiser(fitted, rank=32 if ON_GPU else 16).to(DEVICE)
    images = dequantized(test.to(DEVICE))
    dim = images[0].numel()
    gaussian = GaussianDenoiser(Moments.fit(images)).to(DEVICE)
    adam_calls = args.epochs * len(images)
    sizes = [adam_calls // k for k in (400, 200, 100, 80, 60, 40, 30, 20, 15, 10, 5)]
    for level in args.levels if args.levels is not None else range(10):
        start = time.perf_counter()
        sigma = karras_sigmas(10).tolist()[level]
        torch.manual_seed(1)
        x = held_out + sigma * torch.randn(held_out.shape).to(DEVICE)
        target = _in_batches(teacher, x, sigma)

        def error(denoise, x=x, target=target):
            return float((denoise(x).flatten(1) - target.flatten(1)).double().square().sum(1).mean() / dim) ** 0.5

        published = {rate: error(fit) for rate, fit in _adam(teacher, images, sigma, args.epochs).items()}
        best = min(published, key=published.get)
        minutes = (time.perf_counter() - start) / 60
        reached, ours = None, {}
        for calls in sizes:
            linear = distill(teacher, images, [sigma], calls=calls, batch_size=2048)
            ours[calls] = error(partial(linear, sigma=sigma))
            if ours[calls] <= published[best]:
                reached = calls
                break
        _report(
            work="distillation", sigma=sigma, d=dim, adam_calls=adam_calls, adam_rmse=published[best], adam_rate=best,
            adam_rates=str({f"{rate:.1e}": round(value, 6) for rate, value in published.items()}), adam_min=minutes,
            model=args.model and Path(args.model).name,
            our_calls=reached, our_rmse=ours[reached or sizes[-1]], gaussian_rmse=error(partial(gaussian, sigma=sigma)),
            ratio=adam_calls / reached if reached else float("nan"), path=str({k: round(v, 6) for k, v in ours.items()}),
        )  # fmt: skip


def _shrink(images):
    return torch.nn.functional.avg_pool2d(images.float(), 4).round().to(torch.uint8)


def _in_batches(denoiser, x, sigma):
    level = torch.tensor(sigma, device=x.device)
    return torch.cat([denoiser(batch, level.expand(len(batch))) for batch in x.split(1024)])


def _adam(teacher, images, sigma, epochs):
    """The published recipe for several learning rates at once, which share inputs and targets."""
    rates = [published_learning_rate(sigma) * factor for factor in (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)]
    dim, rows = images[0].numel(), images.flatten(1)
    maps = [(torch.zeros(dim, dim, device=DEVICE), torch.zeros(dim, device=DEVICE)) for _ in rates]
    for pair in maps:
        for tensor in pair:
            tensor.requires_grad_()
    groups = [{"params": list(pair), "lr": rate} for pair, rate in zip(maps, rates, strict=True)]
    optimizer = torch.optim.Adam(groups, fused=ON_GPU)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    level = torch.tensor(sigma, device=DEVICE)
    for _ in range(epochs):
        for x0 in rows.split(256):
            x = x0 + sigma * torch.randn_like(x0)
            with torch.no_grad():
                target = teacher(x.reshape(-1, *images.shape[1:]), level.expand(len(x))).flatten(1)
            scaled = x / dim**0.5
            loss = sum(torch.nn.functional.mse_loss(torch.addmm(b, scaled, w.T), target) for w, b in maps)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    torch.backends.cuda.matmul.allow_tf32 = False

    def denoiser(w, b):
        return lambda x: torch.addmm(b, x.flatten(1) / dim**0.5, w.T)

    return {rate: denoiser(w.detach(), b.detach()) for rate, (w, b) in zip(rates, maps, strict=True)}


if __name__ == "__main__":
    sys.exit(main())
