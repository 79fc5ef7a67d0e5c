"""The monitor as a callback for Lightning.

    trainer = lightning.Trainer(callbacks=[monitoring_callback(GeneralizationMonitor(train, held_out), keep="kept")])

Lightning is only imported when the callback is made.
"""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ..denoisers.protocol import Denoiser
from ..errors import import_extra
from .monitor import GeneralizationMonitor


def monitoring_callback(
    monitor: GeneralizationMonitor,
    *,
    denoiser: Callable[[Any], Denoiser] | None = None,
    keep: str | Path | None = None,
    stop: bool = False,
) -> Any:
    """A Lightning callback that lets a monitor look at a module after every training batch.

    The numbers of a look are logged with the prefix "monitor/", by the module's global step. The monitor's state is part of
    Lightning's checkpoints. Only the first process looks; the others wait for it. When training ends it looks once more. An
    error here does not end the training: it becomes the monitor's `failure`. The exception is an error while several
    processes save a checkpoint together, which is raised, since the others would wait for ever.

    Args:
        monitor: the monitor.
        denoiser: makes D(x, sigma) of the LightningModule, such as `lambda module: module.ema`; None is the module itself.
        keep: a folder for checkpoints of the steps that may be recommended, "step-STEP.ckpt". Others are deleted again.
        stop: stop training as soon as the network memorises.

    Returns:
        A `lightning.pytorch.Callback`.

    Raises:
        MissingExtraError: if neither `lightning` nor `pytorch_lightning` is installed.
    """
    base = _callback_class()

    class MonitoringCallback(base):  # type: ignore[misc, valid-type]
        """Looks after every training batch, if it is time to, and when training ends."""

        def __init__(self) -> None:
            self.kept: list[float | int] = []

        def on_train_batch_end(self, trainer: Any, module: Any, *unused: Any, **unused_too: Any) -> None:
            self._act(trainer, module, ends=False)

        def on_train_end(self, trainer: Any, module: Any) -> None:
            self._act(trainer, module, ends=True)

        def _act(self, trainer: Any, module: Any, *, ends: bool) -> None:
            found = self._look(trainer, module, ends=ends) if trainer.is_global_zero else None
            if keep is None and not stop:
                return
            # Lightning saves a checkpoint on all processes together, and stops all of them.
            kept, stops = trainer.strategy.broadcast(
                (found and (found["step"], found["keep"], found["wanted"]), monitor.should_stop)
            )
            if keep is not None and kept is not None:
                alone = trainer.world_size == 1
                guarded = monitor.guarded("Keeping the weights", kept[0]) if alone else nullcontext()
                with guarded, monitor.at_its_cost():
                    self._keep(trainer, *kept)
            if stop and stops:
                trainer.should_stop = True

        def _look(self, trainer: Any, module: Any, *, ends: bool) -> dict[str, Any] | None:
            step, found = trainer.global_step, None
            with monitor.guarded("The look", step):
                made = module if denoiser is None else denoiser(module)
                if ends:
                    found = monitor.finish(made, step)
                else:
                    found = monitor.update(made, step, trainer.estimated_stepping_batches)
            if found is not None:
                with monitor.guarded("Logging the numbers", found["step"]), monitor.at_its_cost():
                    numbers = {f"monitor/{name}": value for name, value in found.items() if isinstance(value, float)}
                    for logger in trainer.loggers:
                        logger.log_metrics(numbers, step=found["step"])
            return found

        def _keep(self, trainer: Any, step: float | int, wanted_now: bool, wanted: list[float | int]) -> None:
            if wanted_now:
                self.kept.append(step)
                trainer.save_checkpoint(_checkpoint(step))
            for other in set(self.kept) - set(wanted):
                self.kept.remove(other)
                if trainer.is_global_zero:
                    _checkpoint(other).unlink(missing_ok=True)

        def state_dict(self) -> dict[str, Any]:
            return {**monitor.state_dict(), "kept": list(self.kept)}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            with monitor.guarded("Restoring the monitor"):
                monitor.load_state_dict(state_dict)
                self.kept = list(state_dict.get("kept", []))

    def _checkpoint(step: float | int) -> Path:
        return Path(keep or "") / f"step-{step}.ckpt"

    return MonitoringCallback()


def _callback_class() -> Any:
    with suppress(ImportError):
        return import_module("lightning.pytorch").Callback
    need = "any training loop can call GeneralizationMonitor.update itself, but this callback needs Lightning"
    return import_extra("pytorch_lightning", need, "lightning").Callback
