"""Monitoring a training run (see `monitoring`): its looks become records, and the weights it recommends are kept.

Weights that may yet be recommended are held in memory and saved with the state of the run, so that they are there after any
stop. At the end those that are recommended become a snapshot, beside monitor.json, which says what was found. Nothing that
goes wrong here ends the training: it is told on the log and in monitor.json.
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
from .batches import TrainingData

REPORT = "monitor.json"
"""What was found, in the folder of a run."""

_NUMBERS = ("rho", "gaussian_rmse", "multidelta_rmse", "loss_train", "loss_held_out", "memorized_fraction")
_KEPT = "kept."

Weights = dict[str, Tensor]


class Watch:
    """The monitor of a training run.

    Args:
        config: the resolved config.
        data: the images of the run.
        run: where its records go.
    """

    def __init__(self, config: TrainConfig, data: TrainingData, run: Run) -> None:
        seen, labels, groups = (
            None if part is None else part[data.train] for part in (data.images, data.labels, data.groups)
        )
        assert seen is not None
        if config.flip:
            seen = torch.cat([seen, seen.flip(3)])
            labels, groups = (None if part is None else part.repeat(2) for part in (labels, groups))
        alone: dict[str, Any] = (
            {} if config.sigma is None else {"sigmas": config.sigma, "samples": 0}
        )  # one level cannot be sampled
        self.run, self.length = run, config.recipe.kimg
        self.monitor = GeneralizationMonitor(
            seen,
            data.images[data.held_out] if len(data.held_out) > 1 else None,
            labels=labels,
            held_out_labels=None if data.labels is None else data.labels[data.held_out],
            groups=groups,
            **alone,
        )
        self.kept: dict[float, Weights] = {}

    def update(self, denoiser: nn.Module, kimg: float, step: int, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Look at the network, if it is time to; write down what was seen and hold its weights."""
        self._keep(self.monitor.update(denoiser, kimg, self.length), step, weights)

    def end(self, denoiser: nn.Module, kimg: float, step: int, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Look at the network once more, unless that was done at this step; to be called after the last step."""
        self._keep(self.monitor.finish(denoiser, min(kimg, self.length)), step, weights)

    def _keep(self, seen: dict[str, Any] | None, step: int, weights: Callable[[], Mapping[str, Tensor]]) -> None:
        if seen is None:
            return
        kimg = seen["step"]
        with self.monitor.guarded("Keeping what was seen", kimg), self.monitor.at_its_cost():
            if seen["keep"]:
                # A copy, even where the weights are on the CPU already.
                self.kept[kimg] = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights().items()}
            self.kept = {when: held for when, held in self.kept.items() if when in seen["wanted"]}
            self.run.append(_records(seen, {"kimg": kimg, "step": step}))

    @property
    def should_stop(self) -> bool:
        """Whether the network memorises."""
        return self.monitor.should_stop

    @property
    def state(self) -> dict[str, Any]:
        """What to save with the run's state, beside `tensors`."""
        return self.monitor.state_dict()

    @property
    def tensors(self) -> Weights:
        """The weights that are held, by kimg and name."""
        return {f"{_KEPT}{kimg!r}/{name}": tensor for kimg, held in self.kept.items() for name, tensor in held.items()}

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """Go on from what was saved."""
        with self.monitor.guarded("Going on from what was seen before"):
            self.monitor.load_state_dict(state)
            for name, tensor in tensors.items():
                if name.startswith(_KEPT):
                    kimg, name = name.removeprefix(_KEPT).split("/", 1)
                    self.kept.setdefault(float(kimg), {})[name] = tensor

    def finish(self, denoiser: Mapping[str, Any]) -> None:
        """Keep the recommended weights as a snapshot, and write down what was found."""
        with self.monitor.guarded("Keeping the recommended weights"):
            self._keep_recommended(denoiser)
        with self.monitor.guarded("Writing down what was found"):
            self._report()

    def _keep_recommended(self, denoiser: Mapping[str, Any]) -> None:
        best = self.monitor.recommended
        if best in self.kept and best not in self.run.snapshots:
            held = self.kept[float(best)]
            raw, ema = (
                {name.removeprefix(prefix): tensor for name, tensor in held.items() if name.startswith(prefix)}
                for prefix in ("raw.", "ema.")
            )
            self.run.save_snapshot(best, raw, ema, denoiser)

    def _report(self) -> None:
        monitor = self.monitor
        marks = {"closest_to_gaussian": monitor.closest_to_gaussian, "memorization": monitor.memorization}
        found = {name: None if mark is None else asdict(mark) for name, mark in marks.items()}
        summary = {"recommended": monitor.recommended, "cost": monitor.cost, "summary": monitor.summary("kimg")}
        self.run.save_json(REPORT, {**found, **summary})


def _records(seen: Mapping[str, Any], when: Record) -> list[Record]:
    """One line for each number of a look."""
    counts = {"count": seen["count"]}, {"count": seen["samples"]}
    return [
        {
            **{"measure": "monitor", "quantity": name, "value": seen[name]},
            **{"low": seen[f"{name}_low"], "high": seen[f"{name}_high"], **counts[name == _NUMBERS[-1]], **when},
        }
        for name in _NUMBERS
        if seen[name] is not None
    ]
