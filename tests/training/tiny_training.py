"""A training run of two seconds, for the tests that stop one: `python tiny_training.py FOLDER [FIELD=VALUE …]`."""

import ast
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch

from gausslens import TrainConfig, train

TINY = {"width": 8, "multipliers": (1,), "blocks": 1, "batch": 16, "kimg": 1.6, "ramp_kimg": 0.2, "learning_rate": 0.01}


def config(folder, **options):
    """A config for 60 images of bright squares on a dark ground."""
    source = Path(folder) / "squares.npy"
    if not source.exists():
        corners = np.random.default_rng(0).integers(0, 5, (60, 2))
        images = np.zeros((60, 1, 8, 8), np.uint8)
        for image, (row, column) in zip(images, corners, strict=True):
            image[0, row : row + 4, column : column + 4] = 255
        np.save(source, images)
    return TrainConfig(str(source), **{**TINY, "held_out": 10, "out": str(Path(folder) / "runs"), **options})


if __name__ == "__main__":
    torch.set_num_threads(1)
    options = {name: ast.literal_eval(value) for name, value in (word.split("=") for word in sys.argv[2:])}
    run = train(config(sys.argv[1], **options))
    if os.environ.get("RANK", "0") == "0":  # two processes that print at once would share a line
        print(json.dumps([str(run.path), run.records()]))
