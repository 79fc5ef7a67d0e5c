"""Monitoring a training run (see `monitor`): what the probes measure becomes records, and the recommended weights are kept.

Weights that may yet be recommended are held in memory and saved with the state of the run, so that they are there after any
stop. At the end those that are recommended become a snapshot, beside monitor.json, which says what was found. Nothing that
goes wrong here ends the training: the log and monitor.json report it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from ..config import TrainConfig
from ..monitor.monitor import GeneralizationMonitor
from ..store.records import Record
from ..store.run import Run
from ..store.weights import named, under
from .batches import TrainingData

REPORT = "monitor.json"
"""What was found, in the folder of a run."""

_KEPT = "kept."


class TrainingMonitor:
    """The monitor of a training run of a resolved config, whose records go to the run."""

    def __init__(self, config: TrainConfig, data: TrainingData, run: Run) -> None:
        images, labels, groups = data.rows(data.train)
        held_out, held_out_labels, _ = data.rows(data.held_out)
        if config.flip:
            images = torch.cat([images, images.flip(3)])
            labels, groups = (None if part is None else part.repeat(2) for part in (labels, groups))
        how: dict[str, Any] = {"labels": labels, "held_out_labels": held_out_labels, "groups": groups}
        if config.sigma is not None:  # a network of one noise level cannot be sampled
            how |= {"sigmas": config.sigma, "samples": 0}
        self.run, self.length = run, config.recipe.kimg
        self.monitor = GeneralizationMonitor(images, held_out if len(held_out) > 1 else None, **how)
        self.kept: dict[str, Tensor] = {}
        """The weights that are held, by name after "kept.KIMG/"."""

    def update(
        self, denoiser: nn.Module, when: Record, weights: Callable[[], dict[str, Tensor]], *, ends: bool
    ) -> None:
        """Probe the network if it is time to, or because training ends; record what was measured and hold the weights."""
        if ends:
            found = self.monitor.finish(denoiser, min(when["kimg"], self.length))
        else:
            found = self.monitor.update(denoiser, when["kimg"], self.length)
        if found is None:
            return
        kimg = found["step"]
        with self.monitor.guarded("Recording the numbers", kimg), self.monitor.at_its_cost():
            if found["keep"]:
                # Copies, even where the weights are on the CPU already.
                copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights().items()}
                self.kept |= named(_kept_at(kimg), copies)
            wanted = tuple(map(_kept_at, found["wanted"]))
            self.kept = {name: tensor for name, tensor in self.kept.items() if name.startswith(wanted)}
            self.run.append(_records(found, {**when, "kimg": kimg}))

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from the monitor's state and the tensors that were saved."""
        with self.monitor.guarded("Restoring the monitor"):
            self.monitor.load_state_dict(state)
            self.kept = {name: tensor for name, tensor in tensors.items() if name.startswith(_KEPT)}

    def finish(self, denoiser: Mapping[str, Any]) -> None:
        """Keep the recommended weights as a snapshot, and write down what was found."""
        monitor = self.monitor
        with monitor.guarded("Keeping the recommended weights"):
            best = monitor.recommended
            held = {} if best is None else under(_kept_at(best), self.kept)
            if best is not None and held and best not in self.run.snapshots:
                self.run.save_snapshot(best, under("raw.", held), under("ema.", held), denoiser)
        with monitor.guarded("Writing the monitor's report"):
            events = {"closest_to_gaussian": monitor.closest_to_gaussian, "memorization": monitor.memorization}
            found = {name: None if event is None else asdict(event) for name, event in events.items()}
            summary = {"recommended": monitor.recommended, "cost": monitor.cost, "summary": monitor.summary("kimg")}
            self.run.save_json(REPORT, {**found, **summary})


def _kept_at(kimg: float | int) -> str:
    return f"{_KEPT}{float(kimg)!r}/"


def _records(found: Mapping[str, Any], when: Record) -> list[Record]:
    """One line for each number with an interval that a probe measured."""
    records = []
    for name in found:
        if f"{name}_low" in found and found[name] is not None:
            numbers = {"value": found[name], "low": found[f"{name}_low"], "high": found[f"{name}_high"]}
            count = found["samples" if name == "memorized_fraction" else "count"]
            records.append({"measure": "monitor", "quantity": name, **numbers, "count": count, **when})
    return records
