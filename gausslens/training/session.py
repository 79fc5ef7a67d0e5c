"""One process's part in one call of `train`: the loop, its records, its snapshots and its state.

A session goes on from the run's latest state and ends at the length that the config asks for. Between steps it may
record (every 50 steps, since reading the loss makes a GPU wait), keep a snapshot, save the state, or stop because it
was told to; nothing that is not finite is ever written.
"""

import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..config import AUGMENT_INPUTS, TrainConfig
from ..errors import CheckpointError, ConfigError, DivergedError
from ..nn.acceleration import arithmetic, chosen_precision, pays_to_compile, prepare_network
from ..noise import generator
from ..progress import progress_bar
from ..store.provenance import describe_machine
from ..store.records import Record
from ..store.run import Run
from ..store.weights import build_denoiser, describe_denoiser
from .averaging import WeightAverage
from .batches import Batch, BatchStream, TrainingData
from .interruption import noting_signals
from .monitored import REPORT, Watch
from .state import Checkpoints
from .update import WeightUpdate, make_adam
from .validation import denoising_losses

_INTERVAL = 50  # steps between records
_AGREEMENT = 10  # steps between two looks of several processes at whether one was told to stop
_VALIDATED = 1024  # images of either kind for the denoising loss at snapshots


class Session:
    """Training, from the run's latest state on.

    Args:
        config: a resolved config.
        data: the images.
        run: where everything is written, by the main process alone.
        accelerator: accelerate's.

    Raises:
        ConfigError: if a snapshot is asked for that the run has passed without keeping it.
    """

    def __init__(self, config: TrainConfig, data: TrainingData, run: Run, accelerator: Any) -> None:
        self.config, self.data, self.run, self.accelerator = config, data, run, accelerator
        self.recipe, self.batch, self.length = config.recipe, config.recipe.batch, config.recipe.kimg
        self.device: torch.device = accelerator.device
        self.precision = chosen_precision(config.precision, self.device)
        classes = 0 if data.labels is None else int(data.labels.max()) + 1
        augment_inputs = AUGMENT_INPUTS if config.augment else 0
        self.description = describe_denoiser(config, tuple(data.images.shape[1:]), classes, augment_inputs)
        torch.manual_seed(generator(config.seed, "initial weights").initial_seed())
        self.denoiser = build_denoiser(self.description).train()
        compile = pays_to_compile(self.device, 3000 * self.length) if config.compile is None else config.compile
        compiled = prepare_network(self.denoiser, self.device, compile=compile)
        self.average = WeightAverage(self.denoiser, 1000 * self.recipe.ema_kimg)
        self.adam = make_adam(self.denoiser, self.device)
        self.stream = BatchStream(
            *(data.images, data.labels, data.train, config, self.device),
            process=accelerator.process_index,
            processes=accelerator.num_processes,
        )
        self.wanted: dict[int, list[float]] = {}  # several may fall into one step of a large batch
        for kimg in sorted({*config.snapshots, self.length}):
            self.wanted.setdefault(config.step_at(kimg), []).append(kimg)
        self.checkpoints = Checkpoints(run, config.steps)
        self.watch: Watch | None = None
        if accelerator.is_main_process and (config.monitor or config.stop_when_memorizing):
            self.watch = Watch(config, data, run)
        self.step, self.seconds_before = 0, 0.0
        self.losses: list[Tensor] = []  # since the last record
        self._restore()
        model = accelerator.prepare(self.denoiser)
        self.update = WeightUpdate(
            *(config, self.denoiser, model, self.adam, accelerator.backward),
            arithmetic=lambda: arithmetic(self.precision, self.device),
            recordable=self.device.type == "cuda" and accelerator.num_processes == 1,
        )
        self.first_step, self.started = self.step, time.perf_counter()
        here = {"processes": accelerator.num_processes, "precision": self.precision, "compiled": compiled}
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
        """Train to the end."""
        total, writes = self.config.steps, self.accelerator.is_main_process
        if writes:
            self._configure()
            if self.step in self.wanted:
                self._snapshot()
        if self._memorizes(at_once=True):
            if self.watch is not None and not (self.run.path / REPORT).exists():  # stopped before it was written
                self.watch.finish(self.description)
            return
        with (
            closing(self.checkpoints),
            closing(self.stream.batches(self.step, total)) as batches,
            progress_bar(self.length, done=self.kimg, unit="kimg", label=self.run.path.name, enabled=progress) as show,
            noting_signals() as interruption,
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
                self._look(ends=self.step == total)
                stopping = self._agree_to_stop(bool(interruption))
                ending = self._memorizes()
                if ending:
                    self._look(ends=True)
                    self.wanted.setdefault(self.step, [self.kimg])
                if writes and self.step in self.wanted:
                    self._snapshot()
                if writes and (self.step in self.wanted or stopping or self.checkpoints.due(self.step)):
                    self._save()
                if stopping:
                    self.checkpoints.wait()
                    interruption.leave(
                        f"stopped at {self.kimg:.6g} of {self.length:g} kimg; the same command continues from there."
                    )
                if ending:
                    break
            self.checkpoints.wait()
        if self.watch is not None:
            self.watch.finish(self.description)

    def _look(self, *, ends: bool) -> None:
        """Let the monitor look at the network, if there is one: if it is time to, or because training ends."""
        if self.watch is not None:
            look = self.watch.end if ends else self.watch.update
            look(self.average.module, self.kimg, self.step, self._weights)

    def _update(self, batch: Batch) -> Tensor:
        """One step of Adam; returns the loss of the whole batch, over all processes."""
        if self.config.dropout:
            part = f"dropout {self.accelerator.process_index}"
            torch.manual_seed(generator(self.config.seed, part, self.step).initial_seed())
        loss = self.update(batch, self.learning_rate)
        self.average.update((self.step + 1) * self.batch, self.batch)
        return self._over_processes(loss, "mean")

    def _over_processes(self, value: Tensor, how: str) -> Tensor:
        if self.accelerator.num_processes == 1:
            return value
        reduced: Tensor = self.accelerator.reduce(value, how)
        return reduced

    def _memorizes(self, *, at_once: bool = False) -> bool:
        """Whether to end because the network memorises, if that was asked for."""
        memorizes = self.watch is not None and self.watch.should_stop
        return self.config.stop_when_memorizing and self._agree_to_stop(memorizes, at_once=at_once)

    def _agree_to_stop(self, told: bool, *, at_once: bool = False) -> bool:
        """Whether to stop after this step, which several processes must do together."""
        if self.accelerator.num_processes == 1:
            return told
        if self.step % _AGREEMENT and not at_once:
            return False
        return bool(self._over_processes(torch.tensor(float(told), device=self.device), "sum") > 0)

    def _record(self) -> str:
        """Write down the mean loss since the last record; returns a few words on it."""
        losses = self._finite_losses()
        self.losses.clear()
        loss = math.fsum(losses) / len(losses)
        rate = (self.step - self.first_step) * self.batch / (self.seconds - self.seconds_before)
        if self.accelerator.is_main_process:
            values = {
                "loss": loss,
                "learning_rate": self.learning_rate,
                "images_per_second": rate,
                "seconds": self.seconds,
            }
            counts = {"loss": {"count": len(losses) * self.batch}}
            self.run.append(
                {"quantity": name, "value": value, "kimg": self.kimg, "step": self.step, **counts.get(name, {})}
                for name, value in values.items()
            )
            self.accelerator.log(values, step=self.step)
        return f"{rate:.0f} img/s, loss {loss:.4f}"

    def _finite_losses(self) -> list[float]:
        """The losses since the last record, read from the device; raises if one is not finite."""
        losses: list[float] = torch.stack(self.losses).tolist() if self.losses else []
        for index, loss in enumerate(losses):
            if not math.isfinite(loss):
                self._fail(self.step - len(losses) + index + 1, f"the loss is {loss}")
        return losses

    def _check_weights(self) -> None:
        self._finite_losses()
        finite = torch.stack([parameter.isfinite().all() for parameter in self.denoiser.parameters()])
        if not bool(finite.all()):
            self._fail(self.step, "weights are not finite")

    def _fail(self, step: int, what: str) -> NoReturn:
        sigma = self.stream.noise_levels(step - 1)
        low, high = (float(value) for value in sigma.aminmax())
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
            some = chosen[:_VALIDATED]
            if len(some) == 0:
                continue
            losses = denoising_losses(
                *(self.average.module, self.data.images[some], self.config),
                labels=None if self.data.labels is None else self.data.labels[some],
                arithmetic=lambda: arithmetic(self.precision, self.device),
            )
            number = {"quantity": "denoising_loss", "value": float(losses.double().mean()), "count": len(losses)}
            records.append({**number, "on": name, "weights": "ema", "kimg": self.kimg, "step": self.step})
        return records

    def _save(self) -> None:
        self._check_weights()
        seconds = {"last_step": self.step, "seconds": self.seconds - self.seconds_before}
        self.provenance["sessions"][-1] |= seconds
        tensors = self._weights()
        for name, parameter in self.denoiser.named_parameters():
            tensors |= {f"adam.{key}.{name}": value for key, value in self.adam.state[parameter].items()}
        watched: dict[str, Any] = {}
        if self.watch is not None:
            watched["monitor"] = self.watch.state
            tensors |= self.watch.tensors
        self.checkpoints.save(
            *(self.step, tensors, self.provenance), seconds=self.seconds, losses=self._finite_losses(), **watched
        )

    def _weights(self) -> dict[str, Tensor]:
        """All weights, raw and averaged, by name."""
        return _named("raw.", self.denoiser.state_dict()) | _named("ema.", self.average.module.state_dict())

    def _restore(self) -> None:
        """Go on from the latest state, if there is one."""
        found = self.checkpoints.load()
        if found is None:
            return
        tensors, metadata = found
        try:
            self.denoiser.load_state_dict(_under("raw.", tensors))
            self.average.module.load_state_dict(_under("ema.", tensors))
        except RuntimeError as error:
            raise CheckpointError(
                f"the state in {self.run.path} does not fit the network: {error}. Use the version of gausslens that wrote "
                "it, or train again in another folder."
            ) from None
        for name, parameter in self.denoiser.named_parameters():
            for key, value in self.adam.state[parameter].items():
                value.copy_(tensors[f"adam.{key}.{name}"])
        self.step, self.seconds_before = metadata["step"], metadata["seconds"]
        self.losses = [torch.tensor(loss, device=self.device) for loss in metadata["losses"]]
        if self.watch is not None and "monitor" in metadata:
            self.watch.restore(metadata["monitor"], tensors)
        passed = [
            kimg
            for step, lengths in self.wanted.items()
            for kimg in lengths
            if step < self.step and kimg not in self.run.snapshots
        ]
        if passed:
            raise ConfigError(
                f"{self.run.path} is at {self.kimg:g} kimg and has kept no snapshot at {passed[0]:g}. Ask for a "
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


def _named(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
