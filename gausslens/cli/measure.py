"""`gausslens measure`: every measure of the package on a trained network, with its controls."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..evaluation.config import MeasureConfig as Options
from . import GlobalOptions, open_training_run, print_options

if TYPE_CHECKING:
    from ..store.records import Record

DESCRIPTION = """\
Measure a run of `gausslens train` at every noise level, on training and on held-out images, beside the Gaussian and
the multi-delta denoiser of its training images. Records go to a folder of their own, one number a line. Measures that
are there already are not taken again.

examples:
  gausslens measure runs/train-digits-1a2b3c4d
  gausslens measure runs/train-digits-1a2b3c4d --only linearity,gap
  gausslens measure runs/train-digits-1a2b3c4d --kimg 50 --sigmas 10,1,0.1 --samples 1000"""

__all__ = ["DESCRIPTION", "Options", "run"]

# Title, which records, whether the least or the greatest over noise levels is shown, and what counts as a column.
_ROWS: list[tuple[str, dict[str, Any], Callable[..., Any], str]] = [
    ("affine linearity, least", {"quantity": "linearity_cosine", "affine": True, "on": "held_out"}, min, "denoiser"),
    (
        "gap of the network, rmse, greatest",
        {"quantity": "rmse", "on": "held_out", "denoiser": "network"},
        max,
        "reference",
    ),
    ("left unexplained by a linear map, greatest", {"quantity": "fvu", "on": "held_out"}, max, "denoiser"),
    ("GL score over that of held-out images", {"quantity": "relative_gl"}, max, "denoiser"),
    ("memorised fraction", {"quantity": "memorized_fraction"}, max, "denoiser"),
    (
        "correlation of samples with the network's",
        {"quantity": "agreement_correlation", "noise": "same"},
        max,
        "reference",
    ),
    ("denoising loss", {"quantity": "denoising_loss"}, max, "on"),
]


def run(options: Options, how: GlobalOptions) -> None:
    """Measure, and show the most telling numbers."""
    from ..evaluation.measure import measure, rehearse

    trained, _ = open_training_run(options.run, options.kimg)
    if how.dry_run:
        resolved, folder = rehearse(options, progress=how.progress)
        print_options(resolved, f"The records would be in {folder / 'records.jsonl'}")
        return
    run = measure(options, progress=how.progress)
    records = run.records()
    print(summary(records) or "None of the numbers that are shown here was taken; those that were are in the records.")
    duplicates = [record for record in records if record["quantity"] == "duplicates"]
    if duplicates:
        counts = ", ".join(f"{record['value']} {record['kind']}" for record in duplicates)
        print(f"held-out images that repeat a training image: {counts}, of {duplicates[0]['count']}")
    few = [
        f"{part['count']} ({name})"
        for name, part in trained.manifest["splits"].items()
        if part["count"] < options.count
    ]
    if few:
        print(
            f"There are fewer images than --count {options.count}: {', '.join(few)}. Each meets several noises; `count` in "
            "the records is the number of images.",
            file=sys.stderr,
        )
    print(f"{len(records)} records of {trained.path} are in {run.path / 'records.jsonl'}")


def summary(records: "list[Record]") -> str:
    """The most telling numbers of a set of records, held-out where there is a choice, with their 95 % intervals."""
    lines = []
    for title, wanted, pick, column in _ROWS:
        found = [record for record in records if wanted.items() <= record.items() and record["value"] is not None]
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
