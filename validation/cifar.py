"""What training on CIFAR-10 gives on one GPU: bf16 against float32, and the Fréchet distance of samples.

    python validation/cifar.py --data FOLDER --runs FOLDER [--only precision,frechet] [--width 64] [--kimg 2000]
        [--no-compile] [--out FILE]

FOLDER holds `cifar10-train-a.npz` and `cifar10-test.npz` (`images`, uint8 NHWC). Runs resume: the same command goes on where
it was stopped.

precision: NCSN++ of width 32, 100 kimg, three seeds, each on the fast path (bf16, compiled) and in float32 (not compiled,
TF32 off) with the same data order and noise. The loss is Eq. (52) of the averaged weights on 5,000 held-out images, all
evaluated in float32 with the same noise.
frechet: NCSN++ of the given width; 10,000 samples of 18 Heun steps against the training set, in 256 principal components,
beside 10,000 test images and beside as many samples of the training set's own Gaussian.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from gausslens import GaussianDenoiser, Moments, TrainConfig, load_denoiser, sample, train
from gausslens.data import Splits, load_images
from gausslens.images import as_tensor, dequantize
from gausslens.measures.frechet import frechet_distances
from gausslens.nn.acceleration import FastDenoiser, pays_to_compile
from gausslens.noise import draw_noise
from gausslens.training.objective import denoising_losses

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
HELD_OUT = 5000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--only", default="precision,frechet")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--kimg", type=float, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, help="for frechet; if long enough")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    for name in args.only.split(","):
        for record in {"precision": precision, "frechet": frechet}[name](args):
            hardware = torch.cuda.get_device_name() if DEVICE.type == "cuda" else "cpu"
            record |= {"work": name, "hardware": hardware, "torch": torch.__version__}
            print(json.dumps(record), flush=True)
            if args.out:
                with args.out.open("a") as file:
                    print(json.dumps(record), file=file)


def precision(args):
    torch.backends.cudnn.allow_tf32 = False
    data = load_images(str(args.data / "cifar10-train-a.npz"))
    images = as_tensor(data.images)[as_tensor(Splits(len(data), held_out=HELD_OUT).held_out)]
    for seed in range(args.seeds):
        losses = {}
        for arithmetic in ("bf16", "float32"):
            run = train(precision_config(args, seed, arithmetic))
            denoiser = load_denoiser(run, device=DEVICE)
            per_image = denoising_losses(denoiser, images, run.config).double()
            losses[arithmetic] = float(per_image.mean())
        ratio = losses["bf16"] / losses["float32"]
        yield {"seed": seed, **losses, "ratio": ratio, "count": len(images), "kimg": run.config.kimg}


def precision_config(args, seed, arithmetic):
    return TrainConfig(
        str(args.data / "cifar10-train-a.npz"), network="ncsnpp", width=32, batch=128, learning_rate=1e-3, ramp_kimg=10,
        ema_kimg=20, kimg=min(args.kimg, 100), held_out=HELD_OUT, seed=seed, precision=arithmetic,
        compile=arithmetic == "bf16" and DEVICE.type == "cuda", out=str(args.runs),
    )  # fmt: skip


def frechet(args):
    source, test = (str(args.data / f"cifar10-{name}.npz") for name in ("train-a", "test"))
    config = TrainConfig(
        source, network="ncsnpp", width=args.width, kimg=args.kimg, ramp_kimg=100, held_out=0, compile=args.compile,
        out=str(args.runs),
    )  # fmt: skip
    start = time.perf_counter()
    run = train(config)
    seconds = [r["value"] for r in run.records() if r["quantity"] == "seconds"][-1]
    images, held_out = as_tensor(load_images(source).images), as_tensor(load_images(test).images)[: args.count]
    moments = Moments.fit(images, device=DEVICE)
    compile = pays_to_compile(DEVICE, 35 * args.count) if args.compile is None else args.compile
    denoiser = FastDenoiser(load_denoiser(run), DEVICE, compile=compile)
    sampling = time.perf_counter()
    samples = sampled(denoiser, args.count, moments.shape)
    rates = {"training_s": seconds, "sampling_s": time.perf_counter() - sampling, "all_s": time.perf_counter() - start}
    gaussian = sampled(GaussianDenoiser(moments).to(DEVICE), args.count, moments.shape)
    mean, vectors = moments.mean.double().cpu(), moments.eigvecs[:, :256].double().cpu()
    sets = {"samples": samples, "test images": held_out, "Gaussian samples": gaussian}

    def components(images):
        return torch.cat([(dequantize(x.cpu(), torch.float64) - mean) @ vectors for x in images.flatten(1).split(4096)])

    yield {
        "width": args.width, "kimg": args.kimg, "count": args.count, **rates,
        **dict(zip(sets, frechet_distances(map(components, sets.values()), components(images)), strict=True)),
    }  # fmt: skip
    shown = samples[:64].clamp(-1, 1).add(1).mul(127.5).round().byte().permute(0, 2, 3, 1).numpy()
    grid = shown.reshape(8, 8, *shown.shape[1:]).swapaxes(1, 2).reshape(8 * shown.shape[1], -1, 3)
    if args.out:
        from PIL import Image

        Image.fromarray(np.ascontiguousarray(grid)).save(args.out.with_suffix(".png"))


def sampled(denoiser, count, shape):
    """Samples from the latents 0 … count − 1 of seed 0, on the CPU."""
    parts = []
    for indices in torch.arange(count).split(500):  # equal batches: another size would be compiled again
        latents = draw_noise(0, indices, shape, stream="latents").to(DEVICE)
        parts.append(sample(denoiser, latents, steps=18, batch_size=len(indices)).float().cpu())
    return torch.cat(parts)


if __name__ == "__main__":
    main()
