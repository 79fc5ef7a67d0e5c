"""One process's part in one call of `train`: the loop, its records, its snapshots and its state.

A session goes on from the run's latest state and ends at the length that the config asks for. Between steps it may
record (every 50 steps, since reading the loss makes a GPU wait), keep a snapshot, save the state, or stop because it
was told to; nothing that is not finite is ever written.
"""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..config import AUGMENT_INPUTS, TrainConfig
from ..errors import CheckpointError, ConfigError, DivergedError, reraise_as
from ..nn.acceleration import arithmetic, pays_to_compile, prepare_network, resolve_precision
from ..noise import generator
from ..progress import progress_bar
from ..store.provenance import describe_machine
from ..store.records import Record
from ..store.run import Run
from ..store.weights import build_denoiser, describe_denoiser, named, under
from .batches import Batch, BatchStream, TrainingData
from .monitored import TrainingMonitor
from .objective import denoising_losses
from .state import Checkpoints, load_state
from .update import WeightAverage, WeightUpdate

_INTERVAL = 50  # steps between records
_AGREEMENT = 10  # steps after which several processes ask each other whether to stop
_VALIDATED = 1024  # images of either kind for the denoising loss at snapshots


class Session:
    """Training by a resolved config, from the run's latest state on; the main process alone writes to the run."""

    def __init__(self, config: TrainConfig, data: TrainingData, run: Run, accelerator: Any) -> None:
        self.config, self.data, self.run, self.accelerator = config, data, run, accelerator
        self.recipe, self.batch, self.length = config.recipe, config.recipe.batch, config.recipe.kimg
        self.device: torch.device = accelerator.device
        self.writes, processes = accelerator.is_main_process, accelerator.num_processes
        self.precision = resolve_precision(config.precision, self.device)
        self.arithmetic = partial(arithmetic, self.precision, self.device)
        classes = 0 if data.labels is None else int(data.labels.max()) + 1
        augment_inputs = AUGMENT_INPUTS if config.augment else 0
        self.description = describe_denoiser(config, tuple(data.images.shape[1:]), classes, augment_inputs)
        torch.manual_seed(generator(config.seed, "initial weights").initial_seed())
        self.denoiser = build_denoiser(self.description).train()
        compile = pays_to_compile(self.device, 3000 * self.length) if config.compile is None else config.compile
        compiled = prepare_network(self.denoiser, self.device, compile=compile)
        self.average = WeightAverage(self.denoiser, 1000 * self.recipe.ema_kimg)
        self.update = WeightUpdate(config, self.denoiser, accelerator, self.arithmetic)
        self.stream = BatchStream(data, config, self.device, accelerator.process_index, processes)
        self.wanted: dict[int, list[float]] = {}  # several may fall into one step of a large batch
        for kimg in sorted({*config.snapshots, self.length}):
            self.wanted.setdefault(config.step_at(kimg), []).append(kimg)
        is_monitored = self.writes and (config.monitor or config.stop_when_memorizing)
        self.monitor = TrainingMonitor(config, data, run) if is_monitored else None
        self.step, self.seconds_before = 0, 0.0
        self.losses: list[Tensor] = []  # since the last record
        self._restore()
        self.checkpoints = Checkpoints(run, config.steps, saved_step=self.step)
        self.first_step, self.started = self.step, time.perf_counter()
        here = {"processes": processes, "precision": self.precision, "compiled": compiled}
        self.provenance = run.provenance
        self.provenance["sessions"].append({**describe_machine(self.device), **here, "first_step": self.step})

    @property
    def kimg(self) -> float:
        """Thousands of images seen."""
        return self.step * self.batch / 1000

    @property
    def seconds(self) -> float:
        """Time spent training, in all sessions."""
        return self.seconds_before + time.perf_counter() - self.started

    @property
    def learning_rate(self) -> float:
        """Of the next step: a linear rise over `ramp_kimg`."""
        ramp = (self.step + 1) * self.batch / max(1000 * self.recipe.ramp_kimg, 1)
        return self.recipe.learning_rate * min(1.0, ramp)

    def advance(self, *, progress: bool, report: Callable[[float], None] | None = None) -> None:
        """Train to the end, unless it was stopped before because the network memorises."""
        total = self.step if self._agree([self._memorizes], at_once=True)[0] else self.config.steps
        if self.writes:
            self._configure()
            if self.step in self.wanted:
                self._snapshot()
        with (
            closing(self.checkpoints),
            closing(self.stream.batches(self.step, total)) as batches,
            progress_bar(self.length, done=self.kimg, unit="kimg", label=self.run.path.name, enabled=progress) as show,
            _note_signals() as signals,
        ):
            words = ""
            for batch in batches:
                self.losses.append(self._update(batch))
                self.step += 1
                if self.step % _INTERVAL == 0 or self.step == total:
                    words = self._record()
                show(min(self.kimg, self.length), words)
                if report is not None:
                    report(self.step / total)
                self._probe(ends=self.step == total)
                stopping, ending = self._agree([bool(signals), self._memorizes])
                if ending:
                    self._probe(ends=True)
                    self.wanted.setdefault(self.step, [self.kimg])
                if self.writes and self.step in self.wanted:
                    self._snapshot()
                if self.writes and (self.step in self.wanted or stopping or self.checkpoints.due(self.step)):
                    self._save()
                if stopping:
                    self.checkpoints.wait()
                    at = f"stopped at {self.kimg:.6g} of {self.length:g} kimg"
                    _leave(signals[0] if signals else signal.SIGINT, f"{at}; the same command continues from there.")
                if ending:
                    break
            self.checkpoints.wait()
        if self.monitor is not None:
            self.monitor.finish(self.description)

    def _probe(self, *, ends: bool) -> None:
        if self.monitor is not None:
            self.monitor.update(self.average.module, self._when, self._weights, ends=ends)

    def _update(self, batch: Batch) -> Tensor:
        """One step of Adam; returns the loss of the whole batch, over all processes."""
        if self.config.dropout:
            part = f"dropout {self.accelerator.process_index}"
            torch.manual_seed(generator(self.config.seed, part, self.step).initial_seed())
        loss = self.update(batch, self.learning_rate)
        self.average.update((self.step + 1) * self.batch, self.batch)
        mean: Tensor = self.accelerator.reduce(loss, "mean")
        return mean

    @property
    def _memorizes(self) -> bool:
        """Whether to end because the network memorises, if that was asked for."""
        return self.config.stop_when_memorizing and self.monitor is not None and self.monitor.monitor.should_stop

    def _agree(self, reasons: list[bool], *, at_once: bool = False) -> list[bool]:
        """Which reasons to stop after this step any process has: several must stop together."""
        if self.accelerator.num_processes == 1:
            return reasons
        if self.step % _AGREEMENT and not at_once:
            return [False] * len(reasons)
        counts = self.accelerator.reduce(torch.tensor(reasons, dtype=torch.float32, device=self.device), "sum")
        return [count > 0 for count in counts.tolist()]

    def _record(self) -> str:
        """Write down the mean loss since the last record; returns a few words on it."""
        losses = self._finite_losses()
        self.losses.clear()
        loss = math.fsum(losses) / len(losses)
        rate = (self.step - self.first_step) * self.batch / (self.seconds - self.seconds_before)
        values = {"loss": loss, "learning_rate": self.learning_rate, "images_per_second": rate, "seconds": self.seconds}
        if self.writes:
            records: list[Record] = [{"quantity": name, "value": value, **self._when} for name, value in values.items()]
            records[0]["count"] = len(losses) * self.batch
            self.run.append(records)
            self.accelerator.log(values, step=self.step)
        return f"{rate:.0f} img/s, loss {loss:.4f}"

    @property
    def _when(self) -> Record:
        return {"kimg": self.kimg, "step": self.step}

    def _finite_losses(self) -> list[float]:
        """The losses since the last record, read from the device; raises if one is not finite."""
        losses: list[float] = torch.stack(self.losses).tolist() if self.losses else []
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                self._fail(self.step - len(losses) + index + 1, f"the loss is {loss}")
        return losses

    def _check_weights(self) -> None:
        self._finite_losses()
        if not bool(torch.stack([parameter.isfinite().all() for parameter in self.denoiser.parameters()]).all()):
            self._fail(self.step, "weights are not finite")

    def _fail(self, step: int, what: str) -> NoReturn:
        low, high = (float(value) for value in self.stream.noise_levels(step - 1).aminmax())
        advice = ", or precision float32" if self.precision == "bf16" else ""
        self.checkpoints.wait()
        raise DivergedError(
            f"training diverged: {what} at step {step} ({step * self.batch / 1000:.6g} kimg; noise levels {low:.3g} to "
            f"{high:.3g}, learning rate {self.learning_rate:.3g}). The state of step {self.checkpoints.saved_step} and the "
            f"snapshots before are kept in {self.run.path}. Try a smaller learning rate or a longer ramp{advice}."
        )

    def _snapshot(self) -> None:
        self._check_weights()
        raw, ema = self.denoiser.state_dict(), self.average.module.state_dict()
        for kimg in self.wanted[self.step]:
            self.run.save_snapshot(kimg, raw, ema, self.description)
        self.run.append(self._validate())

    def _validate(self) -> list[Record]:
        """The denoising loss of the averaged weights, on training and on held-out images."""
        records = []
        for name, chosen in (("train", self.data.train), ("held_out", self.data.held_out)):
            if len(chosen):
                images, labels, _ = self.data.rows(chosen[:_VALIDATED])
                losses = denoising_losses(
                    self.average.module, images, self.config, labels=labels, arithmetic=self.arithmetic
                )
                number = {"quantity": "denoising_loss", "value": float(losses.double().mean()), "count": len(losses)}
                records.append({**number, "on": name, "weights": "ema", **self._when})
        return records

    def _save(self) -> None:
        self._check_weights()
        self.provenance["sessions"][-1] |= {"last_step": self.step, "seconds": self.seconds - self.seconds_before}
        tensors = self._weights() | self.update.state
        metadata: dict[str, Any] = {"seconds": self.seconds, "losses": self._finite_losses()}
        if self.monitor is not None:
            metadata["monitor"] = self.monitor.monitor.state_dict()
            tensors |= self.monitor.kept
        self.checkpoints.save(self.step, tensors, self.provenance, **metadata)

    def _weights(self) -> dict[str, Tensor]:
        return named("raw.", self.denoiser.state_dict()) | named("ema.", self.average.module.state_dict())

    def _restore(self) -> None:
        if (found := load_state(self.run)) is None:
            return
        tensors, metadata = found
        advice = "Use the version of gausslens that wrote it, or train again in another folder."
        with reraise_as(
            CheckpointError, f"the state in {self.run.path} does not fit the network", advice, RuntimeError
        ):
            self.denoiser.load_state_dict(under("raw.", tensors))
            self.average.module.load_state_dict(under("ema.", tensors))
        for name, kept in self.update.state.items():
            kept.copy_(tensors[name])
        self.step, self.seconds_before = metadata["step"], metadata["seconds"]
        self.losses = [torch.tensor(loss, device=self.device) for loss in metadata["losses"]]
        if self.monitor is not None and "monitor" in metadata:
            self.monitor.restore(metadata["monitor"], tensors)
        passed = {kimg for step, lengths in self.wanted.items() if step < self.step for kimg in lengths}
        if missing := sorted(passed - set(self.run.snapshots)):
            raise ConfigError(
                f"{self.run.path} is at {self.kimg:g} kimg and has kept no snapshot at {missing[0]:g}. Ask for a "
                "later one, or train again under another folder (out)."
            )

    def _configure(self) -> None:
        """Bring the run's config and records in line with what is to be done."""
        earlier = set(self.run.config.snapshots) & set(self.run.snapshots)
        config = replace(self.config, snapshots=tuple(earlier.union(self.config.snapshots)))
        self.run.save_config(asdict(config))
        self.run.drop_records_after(self.kimg)
        if config.tracker is not None:
            plain = {k: v if isinstance(v, int | float | str) else str(v) for k, v in asdict(config).items()}
            self.accelerator.init_trackers(self.run.path.name, config=plain)


@contextmanager
def _note_signals() -> Iterator[list[int]]:
    """Inside, the first Ctrl-C or SIGTERM is noted in a list rather than acted on; a second one acts at once."""
    noted: list[int] = []
    with ExitStack() as handlers:

        def note(number: int, _: FrameType | None) -> None:
            noted.append(number)
            handlers.close()  # puts the earlier handlers back

        if threading.current_thread() is threading.main_thread():  # Python allows handlers there alone
            for number in (signal.SIGINT, signal.SIGTERM):
                handlers.callback(signal.signal, number, signal.signal(number, note))
        yield noted


def _leave(number: int, message: str) -> NoReturn:
    """End as the signal would have: `KeyboardInterrupt` for Ctrl-C, exit code 143 for SIGTERM."""
    if number != signal.SIGTERM:
        raise KeyboardInterrupt(message)
    print(f"\ngausslens: {message}", file=sys.stderr)
    raise SystemExit(128 + signal.SIGTERM)
