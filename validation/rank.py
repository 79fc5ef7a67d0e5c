"""Accuracy and peak memory of `Moments.fit(images, rank=r)` on large images with a known spectrum.

Bar: with d = 196,608 = 3×256×256, N = 2,000, λ_k ∝ 1/k and r = 256, the top 256 eigenvalues are within 1e-3 of the truth
and the process never holds more than 4 GiB, images and libraries included. Each source is read in a process of its own:

    python validation/rank.py                            # the bar, some minutes on two cores
    python validation/rank.py --count 6000 --side 128    # past 4,096 images, where a sketch begins

The images are X = √N Q diag(√λ) Vᵀ: Q has orthonormal columns orthogonal to (1, …, 1), so the mean is zero, and V are
columns of the Hartley transform, which is orthogonal and fast. Stored as float32 the spectrum stays as made. Stored as
uint8, rounding to grey levels adds to it, so the truth is the Gram matrix of what was stored, in NumPy and float64.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

SOURCES = ("float32 tensor", "float32 stream, read once", "uint8 memory map")
GROUND = 0.15  # root mean square of a pixel


def write_images(folder: Path, count: int, side: int) -> None:
    """Write images of known spectrum as float32 and uint8, and the true eigenvalues of both."""
    dim = 3 * side * side
    eigvals = 1 / np.arange(1, count)
    eigvals *= GROUND**2 * dim / eigvals.sum()
    random = np.random.default_rng(0)
    gaussian = random.standard_normal((count, count - 1))
    left, _ = np.linalg.qr(gaussian - gaussian.mean(0))
    left -= left.mean(0)
    columns = random.permutation(dim)[: count - 1]
    shape = (count, 3, side, side)
    floats = np.lib.format.open_memmap(folder / "float32.npy", mode="w+", dtype=np.float32, shape=shape)
    grey = np.lib.format.open_memmap(folder / "uint8.npy", mode="w+", dtype=np.uint8, shape=shape)
    for start in range(0, count, 50):
        stop = min(start + 50, count)
        coefficients = np.zeros((stop - start, dim))
        coefficients[:, columns] = np.sqrt(count * eigvals) * left[start:stop]
        waves = np.fft.fft(coefficients)
        pixels = ((waves.real - waves.imag) / np.sqrt(dim)).reshape(-1, *shape[1:])
        floats[start:stop] = pixels
        grey[start:stop] = np.clip(np.rint((pixels + 1) * 127.5), 0, 255)
    np.save(folder / "float32 truth.npy", eigvals)
    np.save(folder / "uint8 truth.npy", gram_eigenvalues(grey.reshape(count, dim)))


def gram_eigenvalues(grey: np.ndarray) -> np.ndarray:
    """Eigenvalues, descending, of the covariance of uint8 rows as values p/127.5 − 1."""
    count, dim = grey.shape
    gram = np.zeros((count, count))
    for start in range(0, dim, 4096):
        columns = grey[:, start : start + 4096] / 127.5
        columns -= columns.mean(0)
        gram += columns @ columns.T
    return np.linalg.eigvalsh(gram)[::-1] / count


def stream(path: Path) -> Iterator[np.ndarray]:
    """Batches of a stored array, read from disk and not mapped into memory."""
    with open(path, "rb") as file:
        np.lib.format.read_magic(file)
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        size = int(np.prod(shape[1:]))
        for start in range(0, shape[0], 64):
            n = min(64, shape[0] - start)
            yield np.fromfile(file, dtype, n * size).reshape(n, *shape[1:])


def fit(folder: Path, source: str, rank: int) -> None:
    """Fit one source in this process and print its line of the table."""
    import torch

    from gausslens import Moments

    kind = source.split()[0]
    path = folder / f"{kind}.npy"
    if source == "float32 tensor":
        images = torch.from_numpy(np.load(path))
    elif source == "uint8 memory map":
        images = np.load(path, mmap_mode="r")
    else:
        images = stream(path)
    start = time.perf_counter()
    moments = Moments.fit(images, rank=rank, bounds=None)
    seconds = time.perf_counter() - start
    truth = np.load(folder / f"{kind} truth.npy")
    error = np.abs(moments.eigvals.numpy() / truth[:rank] - 1).max()
    floor = truth[rank:].sum() / (moments.dim - rank)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"| {source} | {moments.dim:,} | {moments.count:,} | {rank} | {error:.1e} | {abs(moments.floor / floor - 1):.1e} "
        f"| {peak:.2f} | {seconds:.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="number of images")
    parser.add_argument("--side", type=int, default=256, help="height and width of an image")
    parser.add_argument("--rank", type=int, default=256, help="components to keep")
    parser.add_argument("--fit", nargs=2, metavar=("FOLDER", "SOURCE"), help=argparse.SUPPRESS)
    parser.add_argument("--write", metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(Path(options.fit[0]), options.fit[1], options.rank)
    elif options.write:
        write_images(Path(options.write), options.count, options.side)
    else:
        compare_sources(options)


def compare_sources(options: argparse.Namespace) -> None:
    """Fit every source in a process of its own, and print a table."""
    itself = [sys.executable, __file__, "--count", str(options.count), "--side", str(options.side)]
    print("| source | d | N | r | largest relative error of an eigenvalue | of the floor | peak GiB | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([*itself, "--write", folder], check=True)
        for source in SOURCES:
            subprocess.run([*itself, "--rank", str(options.rank), "--fit", folder, source], check=True)


if __name__ == "__main__":
    main()
