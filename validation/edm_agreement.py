"""How far EDM's networks and ours are apart, on the same weights.

    python validation/edm_agreement.py --edm FOLDER [--full] [--write]

FOLDER is a checkout of NVlabs' EDM, whose licence forbids to keep it here. Its networks get random weights, are pickled
by its own code and read by `gausslens.zoo.edm`; both answer the same noisy images at six noise levels. The table shows
the largest difference of a pixel, relative to the largest pixel of the answer or 1. `--full` takes the layouts that were
published instead of the tests' small ones; `--write` keeps the small ones' answers for the tests.
"""

import argparse
import pickle
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from edm_files import CASES, NCSNPP, VECTORS, Case, layout, seeded_weights

from gausslens.zoo.edm import load_edm

PUBLISHED = {
    "cifar10-cond-vp": Case(
        100,
        size=32,
        classes=10,
        arguments={
            **{"model_channels": 128, "channel_mult": [2, 2, 2], "num_blocks": 4, "attn_resolutions": [16]},
            **{"augment_dim": 9, "dropout": 0.13},
        },
    ),
    "cifar10-uncond-ve": Case(
        101,
        size=32,
        arguments={
            **{"model_channels": 128, "channel_mult": [2, 2, 2], "num_blocks": 4, "attn_resolutions": [16]},
            **{"augment_dim": 9, "dropout": 0.13, **NCSNPP},
        },
    ),
    "baseline-cifar10-vp": Case(
        102,
        "VPPrecond",
        size=32,
        arguments={"model_channels": 128, "channel_mult": [1, 2, 2, 2], "num_blocks": 4, "attn_resolutions": [16]},
    ),
    "baseline-cifar10-ve": Case(
        103,
        "VEPrecond",
        size=32,
        arguments={
            **{"model_channels": 128, "channel_mult": [1, 2, 2, 2], "num_blocks": 4, "attn_resolutions": [16]},
            **NCSNPP,
        },
    ),
    "ffhq-64-ve": Case(
        104,
        size=64,
        arguments={
            **{"model_channels": 128, "channel_mult": [1, 2, 2, 2], "num_blocks": 4, "attn_resolutions": [16]},
            **{"augment_dim": 9, "dropout": 0.05, **NCSNPP},
        },
    ),
    "imagenet-64-cond-adm": Case(
        105,
        inner="DhariwalUNet",
        size=64,
        classes=1000,
        arguments={
            **{"model_channels": 192, "channel_mult": [1, 2, 3, 4], "num_blocks": 3},
            **{"attn_resolutions": [32, 16, 8], "dropout": 0.1},
        },
    ),
}


def their_classes(folder):
    """The module with EDM's networks; two packages that it imports and does not need here may be missing."""
    for name, attribute in (("requests", "get"), ("distutils", "util"), ("distutils.util", "strtobool")):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = ModuleType(name)
            setattr(sys.modules[name], attribute, None)
    sys.path.insert(0, folder)
    from training import networks

    return networks


def original(networks, case):
    """Their network with the case's weights."""
    build = getattr(networks, case.outer)
    options = {"model_type": case.inner, **case.own, **case.options}
    network = build(case.size, case.channels, label_dim=case.classes, **options).eval().requires_grad_(False)
    state = network.model.state_dict()
    assert {name: tuple(value.shape) for name, value in state.items()} == layout(case)
    network.model.load_state_dict(seeded_weights(case))
    return network


def answer(network, case):
    x, sigma, labels, augment = case.inputs
    one_hot = None if labels is None else F.one_hot(labels, case.classes)
    return network(x, sigma, one_hot, augment_labels=augment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edm", required=True)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", help="one case")
    options = parser.parse_args()
    networks = their_classes(options.edm)
    cases = PUBLISHED if options.full else CASES
    answers = {}
    print(
        "| network | weights | read in | " + " | ".join(f"σ = {sigma:g}" for sigma in CASES["adm-ve"].inputs[1]) + " |"
    )
    print("|---|---|---|" + "---|" * 6)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for name, case in cases.items():
            if options.only not in (None, name):
                continue
            network = original(networks, case)
            answers[name] = answer(network, case)
            path = Path(folder) / "network.pkl"
            with open(path, "wb") as file:
                pickle.dump({"ema": network}, file)
            count = sum(parameter.numel() for parameter in network.parameters())
            del network
            started = time.perf_counter()
            denoiser = load_edm(path).denoiser
            seconds = time.perf_counter() - started
            difference = (denoiser(*case.inputs) - answers[name]).abs().amax((1, 2, 3))
            relative = difference / answers[name].abs().amax((1, 2, 3)).clamp_min(1)
            cells = " | ".join(f"{value:.1e}" for value in relative)
            print(f"| {name} | {count:,} | {seconds:.1f} s | {cells} |", flush=True)
    if options.write:
        save_file(answers, VECTORS)


if __name__ == "__main__":
    main()
