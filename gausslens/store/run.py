"""A `Run`: the directory that holds what a command did, and from which the same command goes on.

    <verb>-<data>-<identity>/
        config.json         the resolved config
        manifest.json       which images were used
        provenance.json     each session's software, hardware, steps and seconds
        records.jsonl       tidy records, one number a line
        snapshots/          weights, raw and averaged; each file is enough to load its denoiser
        state.safetensors   where to go on from

Whatever moment a process dies at, the directory stays readable: files appear whole (see `storage`), and a record cut
short in its line is dropped.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ..atomic_files import save_text
from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from ..errors import CheckpointError, ConfigError, one_line
from .locking import lock
from .weights import load_snapshot, read_weights, save_denoiser

Record: TypeAlias = dict[str, Any]
"""One number with what it is the number of: {"quantity": "loss", "value": 0.41, "kimg": 12.8, …}."""


class Run:
    """The directory of one run, to read its config, records and weights.

    Use `Run.open` for a run that exists and `Run.create` to make one or find it again.

    Attributes:
        path: the directory.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Run":
        """The run in a directory.

        Args:
            path: the directory.

        Returns:
            The run.

        Raises:
            CheckpointError: if there is no run there.
        """
        run = cls(path)
        if not run.path.is_dir():
            raise CheckpointError(f"expected the directory of a run at {path}; there is no such directory.")
        if not {"verb", "identity", "config"} <= run._json("config.json").keys():
            raise CheckpointError(f"{run.path / 'config.json'} was not written by gausslens; is {path} a run?")
        return run

    @staticmethod
    def folder(out: str | os.PathLike[str], verb: str, data: str, identity: str) -> Path:
        """The directory of a run, which may not be there yet; arguments are those of `create`."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", data).strip("-")[:40] or "images"
        return Path(out) / f"{verb}-{name}-{identity}"

    @classmethod
    def create(
        cls, out: str | os.PathLike[str], verb: str, data: str, identity: str, config: Mapping[str, Any]
    ) -> "Run":
        """The run of this identity under `out`, made if it is not there yet.

        Args:
            out: the folder of runs.
            verb: what the run does ("train", …).
            data: name of the data, for the directory's name.
            identity: hexadecimal digits that tell it from other runs.
            config: the resolved config, for a run that is new.

        Returns:
            The run.

        Raises:
            CheckpointError: if the directory belongs to another run or cannot be written.
        """
        run = cls(cls.folder(out, verb, data, identity))
        try:
            run.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(
                f"could not make the directory {run.path}: {error}. Choose another folder."
            ) from error
        if not (run.path / "config.json").exists():
            run.save_json("config.json", {"verb": verb, "identity": identity, "config": config})
        if run.identity != identity:
            raise CheckpointError(f"{run.path} holds the run {run.identity}, not {identity}. Choose another folder.")
        return run

    @property
    def verb(self) -> str:
        """What the run does: "train", …."""
        return str(self._json("config.json")["verb"])

    @property
    def identity(self) -> str:
        """The digits at the end of the directory's name."""
        return str(self._json("config.json")["identity"])

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved config of any run, as JSON holds it."""
        settings = self._json("config.json")["config"]
        if not isinstance(settings, dict):
            raise CheckpointError(f"expected settings by name in {self.path / 'config.json'}; got {settings!r:.80}.")
        return settings

    @property
    def config(self) -> TrainConfig:
        """The resolved config of a training run."""
        if self.verb != "train":
            raise CheckpointError(f"expected a training run at {self.path}; this is a run of {self.verb!r}.")
        unknown = self.settings.keys() - {field.name for field in fields(TrainConfig)}
        if unknown:
            raise CheckpointError(
                f"{self.path / 'config.json'} has settings this version does not know: {', '.join(sorted(unknown))}. "
                "Use the version of gausslens that wrote it."
            )
        try:
            return TrainConfig(**self.settings)
        except (TypeError, ConfigError) as error:  # settings that are missing, of other types, or impossible
            raise CheckpointError(f"{self.path / 'config.json'} is not a training run's: {one_line(error)}.") from None

    @property
    def manifest(self) -> dict[str, Any]:
        """Which images were used."""
        return self._json("manifest.json")

    @property
    def provenance(self) -> dict[str, Any]:
        """Each session's software, hardware, steps and seconds; empty before the first."""
        return self._json("provenance.json") if (self.path / "provenance.json").exists() else {"sessions": []}

    def records(self) -> list[Record]:
        """All records, in the order they were made."""
        path = self.path / "records.jsonl"
        lines = (
            path.read_bytes().split(b"\n")[:-1] if path.exists() else []
        )  # what follows the last newline is cut short
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise CheckpointError(f"{path} has a line that is not a record: {error}. Restore or remove it.") from None

    @property
    def snapshots(self) -> list[float]:
        """When weights were kept, in kimg, ascending."""
        names = [path.stem.removeprefix("kimg-") for path in (self.path / "snapshots").glob("kimg-*.safetensors")]
        return sorted(float(name) for name in names if re.fullmatch(r"\d+(\.\d+)?(e[+-]\d+)?", name))

    @property
    def is_finished(self) -> bool:
        """Whether a training run has come to the end that it was last asked for."""
        return self.config.kimg in self.snapshots

    def weights(self, kimg: float | int | None = None, *, ema: bool = True) -> dict[str, Tensor]:
        """The weights of a snapshot, by name.

        Args:
            kimg: which snapshot; None is the last.
            ema: the moving average rather than the raw weights.

        Returns:
            Tensors on the CPU.

        Raises:
            CheckpointError: if there is no such snapshot.
        """
        return read_weights(self.snapshot_path(kimg), ema=ema)

    def snapshot_path(self, kimg: float | int | None = None) -> Path:
        """The file of a snapshot; None is the last.

        Args:
            kimg: which snapshot, in thousands of images.

        Returns:
            The path.

        Raises:
            CheckpointError: if there is no such snapshot.
        """
        kept = self.snapshots
        if not kept:
            _ = self.config  # says so if it is no training run
            raise CheckpointError(f"{self.path} has no snapshot yet. Run its command again to continue it.")
        if kimg is not None and float(kimg) not in kept:
            listed = ", ".join(f"{value:g}" for value in kept)
            raise CheckpointError(f"{self.path} has no snapshot at {kimg:g} kimg; it has {listed}.")
        return self._snapshot_file(kept[-1] if kimg is None else kimg)

    def save_snapshot(
        self, kimg: float | int, raw: Mapping[str, Tensor], ema: Mapping[str, Tensor], denoiser: Mapping[str, Any]
    ) -> None:
        """Keep weights.

        Args:
            kimg: when, in thousands of images.
            raw: the trained weights, by name.
            ema: their moving average, by name.
            denoiser: what `build_denoiser` needs.
        """
        (self.path / "snapshots").mkdir(exist_ok=True)
        save_denoiser(self._snapshot_file(kimg), denoiser, ema=ema, raw=raw, kimg=kimg, run=self.identity)

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Replace the config by one that differs in its circumstances, such as the length."""
        self.save_json("config.json", {**self._json("config.json"), "config": config})

    def save_json(self, name: str, value: Any) -> None:
        """Write one of the JSON files, whole or not at all."""
        save_text(self.path / name, json.dumps(value, indent=2) + "\n")

    def append(self, records: Iterable[Record]) -> None:
        """Add records at the end.

        Args:
            records: the records; values must be what JSON can hold.

        Raises:
            CheckpointError: if they cannot be written.
        """
        text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
        try:
            with open(self.path / "records.jsonl", "ab+") as file:
                if file.seek(0, os.SEEK_END) and file.seek(-1, os.SEEK_END) >= 0 and file.read(1) != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CheckpointError(
                f"could not write {self.path / 'records.jsonl'}: {error}. Check that it has room."
            ) from error

    def drop_records_after(self, kimg: float | int) -> None:
        """Forget the records made after `kimg`, which a resumed run will make again."""
        kept = [record for record in self.records() if record.get("kimg", 0) <= kimg]
        save_text(self.path / "records.jsonl", "".join(json.dumps(record) + "\n" for record in kept))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Inside, no other process on this machine writes into the run.

        Yields:
            Nothing.

        Raises:
            CheckpointError: if another process is at it.
        """
        try:
            file = open(self.path / ".lock", "w", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise CheckpointError(f"could not write into {self.path}: {error}. Choose another folder.") from error
        with file:
            try:
                lock(file, wait=False)
            except BlockingIOError:
                raise CheckpointError(
                    f"another process is writing into {self.path}. Wait for it to end, or stop it."
                ) from None
            except OSError as error:
                raise CheckpointError(
                    f"could not lock {self.path}: {error}. Choose a folder on a file system that has locks."
                ) from error
            for leftover in self.path.rglob(".*.safetensors.*.partial"):  # of a process that was killed
                leftover.unlink(missing_ok=True)
            yield

    def _snapshot_file(self, kimg: float | int) -> Path:
        return self.path / "snapshots" / f"kimg-{f'{kimg:.10g}'.zfill(6)}.safetensors"

    def _json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CheckpointError(
                f"expected the directory of a run at {self.path}; it has no {name}.{runs_in(self.path)}"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}. Restore it, or remove the directory.") from None
        if not isinstance(value, dict):
            raise CheckpointError(f"{path} was not written by gausslens; is {self.path} a run?")
        return value

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def runs_in(folder: Path) -> str:
    """A hint to the models in a folder of runs; nothing if there is none."""
    inside = sorted(path.parent.name for path in folder.glob("train-*/config.json"))
    more = f" or another of the {len(inside)} in it" if len(inside) > 1 else ""
    return f" Name {folder / inside[0]}{more}." if inside else ""


def load_trained(
    run: Run | str | os.PathLike[str],
    *,
    kimg: float | int | None = None,
    ema: bool = True,
    device: torch.device | str | None = None,
) -> Preconditioned:
    """The trained denoiser D(x, σ) of a run or of a snapshot file, in eval mode."""
    if not isinstance(run, Run) and Path(run).is_file():
        path = Path(run)
    else:
        path = (run if isinstance(run, Run) else Run.open(run)).snapshot_path(kimg)
    return load_snapshot(path, ema=ema, device=device)
