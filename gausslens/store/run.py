"""A `Run`: the directory that holds what a command did, and from which the same command goes on.

<verb>-<data>-<identity>/
    config.json         the resolved config
    manifest.json       which images were used
    provenance.json     each session's software, hardware, steps and seconds
    records.jsonl       tidy records, one number a line
    snapshots/          weights, raw and averaged; each file is enough to load its denoiser
    state.safetensors   where to go on from
"""

import os
import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..config import TrainConfig
from ..denoisers.preconditioned import Preconditioned
from ..errors import CheckpointError, reraise_as
from .artifact import Artifact, expect
from .weights import USE_ITS_VERSION, load_snapshot, read_snapshot, save_denoiser


class Run(Artifact):
    """The directory of one run, to read its config, records and weights.

    Use `Run.open` for a run that exists and `Run.create` to make one or find it again. `path` is the directory.
    """

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Run":
        """The run in a directory; raises `CheckpointError` if there is none."""
        run = cls(path)
        expect(run.path.is_dir(), f"expected the directory of a run at {path}; there is no such directory.")
        is_ours = {"verb", "identity", "config"} <= run.read_json("config.json").keys()
        expect(is_ours, f"{run.path / 'config.json'} was not written by gausslens; is {path} a run?")
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
            identity: hexadecimal digits that distinguish it from other runs.
            config: the resolved config, for a run that is new.

        Raises:
            CheckpointError: if the directory belongs to another run or cannot be written.
        """
        return cls.create_at(cls.folder(out, verb, data, identity), verb, identity, config)

    @classmethod
    def create_at(cls, path: Path, verb: str, identity: str, config: Mapping[str, Any]) -> "Run":
        """The same in a folder of any name."""
        run = cls(path)
        with reraise_as(CheckpointError, f"could not make the directory {run.path}", "Choose another folder."):
            run.path.mkdir(parents=True, exist_ok=True)
        if not (run.path / "config.json").exists():
            run.save_json("config.json", {"verb": verb, "identity": identity, "config": config})
        held = run.identity
        expect(held == identity, f"{run.path} holds the run {held}, not {identity}. Choose another folder.")
        return run

    @property
    def verb(self) -> str:
        """What the run does: "train", …."""
        return str(self.read_json("config.json")["verb"])

    @property
    def identity(self) -> str:
        """The digits at the end of the directory's name."""
        return str(self.read_json("config.json")["identity"])

    @property
    def settings(self) -> dict[str, Any]:
        """The resolved config of any run, as JSON holds it."""
        settings = self.read_json("config.json")["config"]
        if not isinstance(settings, dict):
            raise CheckpointError(f"expected settings by name in {self.path / 'config.json'}; got {settings!r:.80}.")
        return settings

    @property
    def config(self) -> TrainConfig:
        """The resolved config of a training run."""
        verb, path = self.verb, self.path / "config.json"
        expect(verb == "train", f"expected a training run at {self.path}; this is a run of {verb!r}.")
        settings = self.settings
        unknown = settings.keys() - {field.name for field in fields(TrainConfig)}
        names = ", ".join(sorted(unknown))
        expect(not unknown, f"{path} has settings this version does not know: {names}. {USE_ITS_VERSION}")
        with reraise_as(CheckpointError, f"{path} is not a training run's"):  # some are missing, wrong or impossible
            return TrainConfig(**settings)

    @property
    def manifest(self) -> dict[str, Any]:
        """Which images were used."""
        return self.read_json("manifest.json")

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
        """The weights of a snapshot by name, on the CPU.

        Args:
            kimg: which snapshot, in thousands of images; None is the last.
            ema: the moving average rather than the raw weights.

        Raises:
            CheckpointError: if there is no such snapshot.
        """
        return read_snapshot(self.snapshot_path(kimg), ema=ema)[0]

    def snapshot_path(self, kimg: float | int | None = None) -> Path:
        """The file of the snapshot after `kimg` thousands of images; None is the last."""
        kept = self.snapshots
        if not kept:
            _ = self.config  # says so if it is no training run
            raise CheckpointError(f"{self.path} has no snapshot yet. Run its command again to continue it.")
        wanted, listed = kept[-1] if kimg is None else float(kimg), ", ".join(f"{value:g}" for value in kept)
        expect(wanted in kept, f"{self.path} has no snapshot at {wanted:g} kimg; it has {listed}.")
        return self._snapshot_file(wanted)

    def save_snapshot(
        self, kimg: float | int, raw: Mapping[str, Tensor], ema: Mapping[str, Tensor], denoiser: Mapping[str, Any]
    ) -> None:
        """Keep the trained weights and their moving average, each by name, with what `build_denoiser` needs."""
        (self.path / "snapshots").mkdir(exist_ok=True)
        save_denoiser(self._snapshot_file(kimg), denoiser, ema=ema, raw=raw, kimg=kimg, run=self.identity)

    def save_config(self, config: Mapping[str, Any]) -> None:
        """Replace the config by one that differs in its circumstances, such as the length."""
        self.save_json("config.json", {**self.read_json("config.json"), "config": config})

    def drop_records_after(self, kimg: float | int) -> None:
        """Forget the records made after `kimg`, which a resumed run will make again."""
        self.save_records([record for record in self.records() if record.get("kimg", 0) <= kimg])

    def _snapshot_file(self, kimg: float | int) -> Path:
        return self.path / "snapshots" / f"kimg-{f'{kimg:.10g}'.zfill(6)}.safetensors"

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def load_trained(
    run: Run | str | os.PathLike[str],
    *,
    kimg: float | int | None = None,
    ema: bool = True,
    device: torch.device | str | None = None,
) -> Preconditioned:
    """The trained denoiser D(x, σ) of a run or of a snapshot file, in eval mode."""
    if not isinstance(run, Run) and not Path(run).is_file():
        run = Run.open(run)
    path = run.snapshot_path(kimg) if isinstance(run, Run) else Path(run)
    return load_snapshot(path, ema=ema, device=device)
