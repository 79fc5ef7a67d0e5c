"""Measure a trained network at every noise level, with controls.

The network is a run of `gausslens train`. It is measured on training and on held-out images. The controls are the Gaussian
and the multi-delta denoiser of its training images. The results get their own folder; the records in it hold one number per
line. Measures that are finished are not taken again.

Examples:
  gausslens measure runs/train-digits-1a2b3c4d
  gausslens measure runs/train-digits-1a2b3c4d --only linearity,gap
  gausslens measure runs/train-digits-1a2b3c4d --kimg 50 --sigmas 10,1,0.1 --samples 1000
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..evaluation.config import MeasureConfig as Options
from . import GlobalOptions, open_training_run, print_options

if TYPE_CHECKING:
    from ..store.records import Record

# Title; quantity and other tags of the records; whether the least or the greatest over noise levels is shown; and the tag
# that tells lines apart.
_TABLE: list[tuple[str, str, dict[str, Any], Callable[..., Any], str]] = [
    ("least affine linearity", "linearity_cosine", {"affine": True, "on": "held_out"}, min, "denoiser"),
    ("greatest gap of the network, RMSE", "rmse", {"on": "held_out", "denoiser": "network"}, max, "reference"),
    ("greatest share left unexplained by a linear map", "fvu", {"on": "held_out"}, max, "denoiser"),
    ("GL score, relative to held-out images", "relative_gl", {}, max, "denoiser"),
    ("memorised fraction", "memorized_fraction", {}, max, "denoiser"),
    ("correlation of samples with those of the network", "agreement_correlation", {"noise": "same"}, max, "reference"),
    ("denoising loss", "denoising_loss", {}, max, "on"),
]


def run(options: Options, how: GlobalOptions) -> None:
    """Measure, and print the most important numbers."""
    from ..evaluation.measure import measure, rehearse

    trained, _ = open_training_run(options.run, options.kimg)
    if how.dry_run:
        resolved, folder = rehearse(options, progress=how.progress)
        print_options(resolved, f"The records would be in {folder / 'records.jsonl'}")
        return
    run = measure(options, progress=how.progress)
    records = run.records()
    print(summary(records) or "None of the measures that are summarised here was taken. The records hold the others.")
    duplicates = [record for record in records if record["quantity"] == "duplicates"]
    if duplicates:
        found = ", ".join(f"{record['value']} {record['kind']}" for record in duplicates)
        print(f"held-out images that repeat a training image: {found}, of {duplicates[0]['count']}")
    counts = {name: part["count"] for name, part in trained.manifest["splits"].items()}
    few = ", ".join(f"{count} ({name})" for name, count in counts.items() if count < options.count)
    if few:
        note = "Each image is used with several draws of noise; `count` in the records is the number of images."
        print(f"There are fewer images than --count {options.count}: {few}. {note}", file=sys.stderr)
    print(f"{len(records)} records of {trained.path} are in {run.path / 'records.jsonl'}")


def summary(records: "list[Record]") -> str:
    """The most important numbers of a set of records with their 95 % intervals, where possible on held-out images."""
    lines = []
    for title, quantity, tags, pick, column in _TABLE:
        wanted = {"quantity": quantity, **tags}.items()
        found = [record for record in records if wanted <= record.items() and record["value"] is not None]
        names = dict.fromkeys(record[column] for record in found)
        if names:
            lines.append(title)
        for name in names:
            best = pick((record for record in found if record[column] == name), key=lambda record: record["value"])
            ends = [best.get("low"), best.get("high")]
            interval = "" if None in ends else f" [{ends[0]:.3f}, {ends[1]:.3f}]"
            where = f" at sigma = {best['sigma']:.3g}" if "sigma" in best else ""
            lines.append(f"  {name.replace('_', '-'):14}{best['value']:8.3f}{interval}{where}")
    return "\n".join(lines)
