"""What a study is: the tasks that it needs, the claims that it judges, and the figures of what came out.

Each study is a file that defines one `Study`. Tasks are shared: the records of a task become those of every study that names
it, tagged with the study's name.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..experiments.task import Result, Task, TaskStore
from ..report import Figure
from ..store.records import Record
from .claims.claim import Claim
from .claims.evidence import Evidence
from .figures import Curves, Drawing
from .plan import Plan


@dataclass(frozen=True)
class Part:
    """A task as a study uses it."""

    key: str  # what the study calls it, to find its arrays by
    task: Task  # the task
    tags: Record = field(default_factory=dict)  # added to its records


class Findings:
    """What has come out of a study's tasks so far.

    Args:
        plan: what was to be done.
        study: name of the study.
        parts: all that the study asked for.
        store: where finished tasks are.
    """

    def __init__(self, plan: Plan, study: str, parts: Iterable[Part], store: TaskStore) -> None:
        self.plan, self.study, self.parts = plan, study, list(parts)
        self._results = {part.key: store.result(part.task) for part in self.parts if store.is_done(part.task)}
        self.seen: dict[str, set[str]] = {}  # names of the arrays that were asked for, by the name of their task

    @property
    def done(self) -> int:
        """How many parts are there."""
        return len(self._results)

    @property
    def finished(self) -> bool:
        """Whether all parts are there."""
        return self.done == len(self.parts)

    @property
    def command(self) -> str:
        """What a reader would type to make the same."""
        return f"{self.plan.command} --only {self.study}"

    @cached_property
    def records(self) -> list[Record]:
        """All records, tagged with study and data."""
        shared = {"study": self.study, "data": self.plan.name}
        return [
            {**record, **part.tags, **shared}
            for part in self.parts
            if part.key in self._results
            for record in self._results[part.key].records
        ]

    @cached_property
    def evidence(self) -> Evidence:
        """The records that have a value, to be narrowed down by their tags."""
        return Evidence(record for record in self.records if record.get("value") is not None)

    def result(self, key: str) -> Result | None:
        """What came out of the part of this name; None if it is not finished."""
        return self._results.get(key)

    def array(self, key: str, name: str) -> Any:
        """One of a part's arrays as numpy's; None if the part is not finished or has no such array."""
        found = self.result(key)
        if found is None or name not in found.arrays:
            return None
        self.seen.setdefault(found.folder.name, set()).add(name)
        return found.arrays[name].numpy()


@dataclass(frozen=True)
class Study:
    """One study of the paper."""

    name: str  # as the command line knows it
    title: str  # its heading
    question: str  # what it asks, and how to read the answer; paragraphs are parted by empty lines
    figures: tuple[int, ...]  # the paper's figures that it redraws
    parts: Callable[[Plan], list[Part]]  # the tasks it needs, the most telling first
    # its own figures, from whatever is finished; None for what is not.
    drawings: Callable[[Findings], Iterable[Drawing]]
    judges: tuple[Claim, ...] = ()  # the claims that are defined here
    informs: tuple[str, ...] = ()  # names of claims of other studies that it bears on

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of all claims that it bears on."""
        return tuple(sorted((*(claim.name for claim in self.judges), *self.informs), key=lambda name: int(name[1:])))

    def draw(self, findings: Findings) -> list[Figure]:
        """Its figures, those left out that have nothing to show."""
        found = (
            figure.draw(findings.evidence) if isinstance(figure, Curves) else figure
            for figure in self.drawings(findings)
        )
        return [replace(figure, command=findings.command) for figure in found if figure is not None]
