"""Trained networks on real images, of which some stand in the training set again and again, or are a class of their own.

    python validation/repeated_images.py --out FOLDER [--data SOURCE] [--size 16] [--case repeated] [--case rare]

`repeated`: a small U-Net is trained on up to 10,000 different images of which 20 stand 500 times each (less often where
there are fewer images: these 20 are at most half of the training set). The audit must say that it copies, and name the 20.

`rare`: a conditional network is trained on many images of nine classes and on 20 of one, all classes drawn equally often,
as class-balanced samplers do. The audit, which is given each image once, must name that class.

The truth is counted without the package: a sample is a copy of an original if it is less than a third as far from it as from
the next one. A network that draws no copies is none to be found; the output says so. A source is whatever `gausslens train`
takes, or a zip of lossless sheets: pictures of tile × tile images, with n, size and tile in its meta.json and classes in
labels.u8.
"""

import argparse
import io
import json
import platform
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import gausslens
from gausslens.auditing.summary import headline
from gausslens.data import load_images
from gausslens.images import dequantize
from gausslens.noise import generator

MEMORISED, REPEATS = 20, 500
MOST_IMAGES, MOST_HELD_OUT = 10_000, 2_000
COPY_RATIO = 1 / 3


@dataclass(frozen=True)
class Setup:
    """Images of a case.

    Attributes:
        train: uint8 (n, c, h, w), repeats included.
        held_out: uint8 (m, c, h, w).
        original: which different image each training image is, (n,); the first 20 are those repeated, or of the rare class.
        labels: of training and held-out images; None for an unconditional network.
        rare: the rare class.
    """

    train: Tensor
    held_out: Tensor
    original: Tensor
    labels: tuple[Tensor, Tensor] | None = None
    rare: int | None = None


def read(source: str, size: int | None, folder: Path) -> tuple[Tensor, Tensor | None]:
    """Images without repeats, in an order that depends on nothing, and their classes.

    Args:
        source: what `load_images` takes, or a zip of sheets.
        size: height and width to resize to.
        folder: where to put what is unpacked.

    Returns:
        uint8 (n, c, h, w), and (n,) or None.
    """
    if zipfile.is_zipfile(source) and "meta.json" in zipfile.ZipFile(source).namelist():
        np.savez(folder / "images.npz", **_unpack(source))
        source = str(folder / "images.npz")
    loaded = load_images(source, size=size, cache=folder / "cache")
    images = torch.from_numpy(np.array(loaded.images))
    labels = None if loaded.labels is None else torch.from_numpy(np.array(loaded.labels))
    first = np.sort(np.unique(images.flatten(1).numpy(), axis=0, return_index=True)[1])
    order = first[torch.randperm(len(first), generator=generator(0, "repeated images")).numpy()]
    return images[order], None if labels is None else labels[order]


def _unpack(path: str) -> dict[str, np.ndarray]:
    """The images of a zip of sheets, (n, h, w, c), and their classes."""
    with zipfile.ZipFile(path) as archive:
        told = json.loads(archive.read("meta.json"))
        tile, size, parts = told["tile"], told["size"], []
        for name in sorted(name for name in archive.namelist() if Path(name).suffix in (".webp", ".png")):
            sheet = np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB"))
            parts.append(sheet.reshape(tile, size, tile, size, 3).transpose(0, 2, 1, 3, 4).reshape(-1, size, size, 3))
        found = {"images": np.concatenate(parts)[: told["n"]]}
        if "labels.u8" in archive.namelist():
            found["labels"] = np.frombuffer(archive.read("labels.u8"), dtype=np.uint8)[: told["n"]]
        return found


def repeated(images: Tensor, most: int = MOST_IMAGES) -> Setup:
    """Twenty images again and again among others that stand once."""
    n_held_out = min(MOST_HELD_OUT, len(images) // 3)
    held_out, known = images[:n_held_out], images[n_held_out:][:most]
    times = min(REPEATS, max(2, len(known) // MEMORISED))
    original = torch.cat([torch.arange(MEMORISED).repeat(times), torch.arange(MEMORISED, len(known))])
    original = original[torch.randperm(len(original), generator=generator(0, "repeated images order"))]
    return Setup(known[original], held_out, original)


def rare(images: Tensor, labels: Tensor, most: int) -> Setup:
    """Twenty images of one class among many of the others; as large a share of the held-out images is of that class."""
    label = int(labels.max())
    own, rest = (labels == label).nonzero()[:, 0], (labels != label).nonzero()[:, 0]
    n_train = min(most, len(rest) // 2)
    n_held_out = min(MOST_HELD_OUT, len(rest) - n_train)
    others = round(MEMORISED * n_held_out / n_train)
    train = torch.cat([own[:MEMORISED], rest[:n_train]])
    unseen = torch.cat([own[MEMORISED:][:others], rest[n_train:][:n_held_out]])
    chosen = labels[train], labels[unseen]
    return Setup(images[train], images[unseen], torch.arange(len(train)), chosen, label)


def fit(
    setup: Setup, folder: Path, *, kimg: float, width: int | None, multipliers: tuple[int, ...] | None, cpu: bool
) -> Any:
    """A network trained on the images; with classes, these are drawn equally often."""
    rows = torch.arange(len(setup.train))
    if setup.labels is not None:
        counts = torch.bincount(setup.labels[0])
        most = int(counts.max())
        rows = rows.repeat_interleave((most / counts[setup.labels[0]]).round().long())
    arrays = {"images": setup.train[rows].permute(0, 2, 3, 1).numpy()}
    if setup.labels is not None:
        arrays["labels"] = setup.labels[0][rows].numpy()
    np.savez(folder / "train.npz", **arrays)
    config = gausslens.TrainConfig(
        str(folder / "train.npz"),
        held_out=0,
        width=width,
        multipliers=multipliers,
        labels=setup.labels is not None,
        kimg=kimg,
        cpu=cpu,
        out=str(folder / "runs"),
    )
    return gausslens.train(config)


def copies(samples: Tensor, setup: Setup) -> Tensor:
    """The original that each sample copies, −1 for none, counted by brute force."""
    first = torch.tensor([int((setup.original == one).nonzero()[0]) for one in setup.original.unique().tolist()])
    known = dequantize(setup.train[first], torch.float64).flatten(1)
    nearest = torch.cdist(dequantize(samples, torch.float64).flatten(1), known).topk(2, largest=False)
    copied = nearest.values[:, 0] < COPY_RATIO * nearest.values[:, 1]
    return torch.where(copied, nearest.indices[:, 0], -1)


def tell(audit: Any, setup: Setup) -> bool | None:
    """Print what the audit says beside what is true; whether it is as it must be, None if no copies were drawn."""
    drawn = copies(audit.samples, setup)
    of_ours = (drawn >= 0) & (drawn < MEMORISED)
    to_find = set(drawn[of_ours].tolist())
    named = {int(setup.original[record["image"]]) for record in audit.find("copied_original")}
    ours = {one for one in named if one < MEMORISED}
    others = named - ours
    wrong = others - set(drawn.tolist())
    print(
        f"  samples: {len(drawn)}; copies drawn of the {MEMORISED}: {int(of_ours.sum())}, of {len(to_find)} of them; of "
        f"other training images: {int((drawn >= MEMORISED).sum())}, of {len(set(drawn[drawn >= MEMORISED].tolist()))}"
    )
    print(
        f"  named: {len(ours)} of the {MEMORISED} ({len(to_find - ours)} drawn and not named), {len(others)} others, "
        f"{len(wrong)} of them without a copy among the samples"
    )
    refused = audit.first("refused")
    print(f"  refused: {'no' if refused is None else refused}")
    for record in audit.find("copy_p", family="plain"):
        print(
            f"  whole copies of originals that stand {record['kind']}: {record['copies']} of {record['count']} samples, "
            f"{record['real_copies']} of {record['real_count']} real images, p = {record['value']:.2g}"
        )
    print(f"  verdict: {audit.verdict.verdict}; leaks membership: {audit.verdict.leaks}")
    print(f"  headline: {headline(audit)}")
    print(f"  reason: {audit.verdict.reasons[0]}")
    if not to_find:
        return None
    right = audit.verdict.verdict in ("partly memorizing", "memorizing")
    if setup.rare is not None:
        classes = [record["label"] for record in audit.find("copied_class")]
        print(f"  classes named: {classes}; the rare one is {setup.rare}")
        return right and classes == [setup.rare]
    return right and len(ours) == MEMORISED and not wrong


def carry_out(name: str, setup: Setup, folder: Path, options: argparse.Namespace, kimg: float) -> bool | None:
    """Train, audit and tell; whether the audit says what it must, None if there was nothing to say."""
    known, unseen = len(setup.original.unique()), len(setup.held_out)
    print(
        f"{name}: {len(setup.train)} training images, {known} different, {unseen} held out, {tuple(setup.train.shape[1:])}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    multipliers = options.multipliers and tuple(options.multipliers)
    run = fit(setup, folder, kimg=kimg, width=options.width, multipliers=multipliers, cpu=not options.gpu)
    trained = time.perf_counter()
    labels = {} if setup.labels is None else {"labels": setup.labels[0], "held_out_labels": setup.labels[1]}
    audit = gausslens.audit(
        run, setup.train, setup.held_out, samples=options.samples, device="cuda" if options.gpu else None, **labels
    )
    print(f"  {kimg:g} kimg in {trained - started:.0f} s, audited in {time.perf_counter() - trained:.0f} s")
    right = tell(audit, setup)
    untested = "NOT TESTED: the network draws no copies of the 20"
    print(f"  {untested if right is None else 'right' if right else 'NOT as it must be'}", flush=True)
    return right


def main() -> int:
    """Carry out the cases that are asked for; 1 if one is not judged as it must be, or could not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion", help="source of images")
    parser.add_argument("--size", type=int, default=16, help="height and width to resize the images to")
    parser.add_argument("--case", action="append", choices=("repeated", "rare"), help="by default both")
    parser.add_argument("--kimg", type=float, default=600, help="length of training of `repeated`")
    parser.add_argument("--rare-kimg", type=float, default=600, help="length of training of `rare`")
    parser.add_argument(
        "--images", type=int, default=MOST_IMAGES, help="different training images of `repeated`, at most"
    )
    parser.add_argument("--rare-images", type=int, default=2000, help="training images of the other classes, at most")
    parser.add_argument("--width", type=int, help="channels of the network; by default the package's own")
    parser.add_argument("--multipliers", type=int, nargs="+", help="of the channels at each resolution")
    parser.add_argument("--samples", type=int, default=1000, help="samples of each network")
    parser.add_argument("--gpu", action="store_true", help="train and audit on a GPU; without it, on one core")
    parser.add_argument("--out", type=Path, required=True, help="folder of images and runs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    versions = f"gausslens {gausslens.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {versions}")
    print(f"command: python validation/{' '.join(Path(word).name for word in sys.argv)}")
    images, labels = read(options.data, options.size, options.out)
    right = []
    for name in options.case or ("repeated", "rare"):
        if name == "repeated":
            setup, kimg = repeated(images, options.images), options.kimg
        elif labels is None:
            print("rare: the source has no classes")
            continue
        else:
            setup, kimg = rare(images, labels, options.rare_images), options.rare_kimg
        right.append(carry_out(name, setup, options.out / name, options, kimg))
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
