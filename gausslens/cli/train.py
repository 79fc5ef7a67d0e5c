"""Train a denoiser on a set of images.

The same command continues a run that was stopped, and reuses a finished run. A larger --kimg extends a run.

Examples:
  gausslens train digits
  gausslens train digits --split 1400 --network unet --kimg 300
  gausslens train fashion --snapshots 50,100 --kimg 200
  gausslens train digits --split 64 --monitor
  gausslens train my-images/ --stop-when-memorizing
  gausslens train scans/ --groups scans.csv:patient
  gausslens train my-images/ --size 64 --network ncsnpp --width 64
  torchrun --nproc-per-node 8 -m -- gausslens train images.zip --network ncsnpp
"""

import json
import os
import sys

from ..config import TrainConfig as Options
from . import GlobalOptions, print_options

_NAMED = 10  # broken files, at most


def run(config: Options, how: GlobalOptions) -> None:
    """Train, and print what matters about the run."""
    from ..training.collapse import collapse_warning
    from ..training.train import check_tracker, prepare, run_folder, train

    if how.dry_run:
        check_tracker(config)
        resolved, images = prepare(config, int(os.environ.get("WORLD_SIZE", "1")))
        print_options(resolved, f"The run would be in {run_folder(resolved, images)}")
        return
    run = train(config, progress=how.progress)
    if int(os.environ.get("RANK", "0")) > 0:  # the first process reports
        return
    skipped = run.manifest["skipped"]
    if skipped:
        more = ", …" if len(skipped) > _NAMED else ""
        print(f"Skipped {len(skipped)} broken files: {', '.join(skipped[:_NAMED])}{more}.", file=sys.stderr)
    if config.groups is not None:
        parts = {name: part["groups"] for name, part in run.manifest["splits"].items()}
        print(f"Groups: {parts[config.split]} trained on, {parts.get('held-out', 0)} held out.", file=sys.stderr)
    print(f"Duplicates: {run.manifest['duplicates']}.", file=sys.stderr)
    if warning := collapse_warning(run.records()):
        print(f"gausslens: {warning}", file=sys.stderr)
    losses = {r["on"]: r["value"] for r in run.records() if r["quantity"] == "denoising_loss"}
    print(", ".join(f"denoising loss {value:.4f} ({on.replace('_', '-')})" for on, value in losses.items()))
    following = f"gausslens {'sample' if config.sigma is None else 'measure'} {run.path}"
    if config.monitor or config.stop_when_memorizing:
        watched = run.path / "monitor.json"
        seen = json.loads(watched.read_text(encoding="utf-8")) if watched.exists() else {}
        nothing = "The run was finished before, without a monitor. A monitor works only during training."
        print(seen.get("summary", nothing))
        if seen.get("recommended") in run.snapshots[:-1]:
            following += f" --kimg {seen['recommended']:g}"
    print(f"Trained for {run.snapshots[-1]:g} kimg in {run.path}. Next: {following}")
