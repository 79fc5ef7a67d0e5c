"""What a study is: the tasks that it needs, the claims that it judges, and the figures of its results.

Each study is a file that defines one `Study`. The docstring of the file opens the study's section of the page. Studies share
tasks: the records of a task become records of every study that names it, tagged with the study's name.
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

    key: str  # its name in the study, by which figures find its arrays
    task: Task
    tags: Record = field(default_factory=dict)  # added to its records


class Findings:
    """The results of a study's finished tasks."""

    def __init__(self, plan: Plan, study: str, parts: Iterable[Part], store: TaskStore) -> None:
        self.plan, self.study, self.parts = plan, study, list(parts)
        self._results = {part.key: store.result(part.task) for part in self.parts if store.is_done(part.task)}
        self.seen: dict[str, set[str]] = {}  # names of the arrays that were read, by the name of their task

    @property
    def done(self) -> int:
        """How many parts are finished."""
        return len(self._results)

    @property
    def finished(self) -> bool:
        """Whether all parts are finished."""
        return self.done == len(self.parts)

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
        """The records that have a value."""
        return Evidence(record for record in self.records if record.get("value") is not None)

    def result(self, key: str) -> Result | None:
        """The result of a part; None if it is not finished."""
        return self._results.get(key)

    def array(self, key: str, name: str) -> Any:
        """An array of a part; None if the part is not finished or has no such array."""
        found = self.result(key)
        if found is None or name not in found.arrays:
            return None
        self.seen.setdefault(found.folder.name, set()).add(name)
        return found.arrays[name].numpy()


@dataclass(frozen=True)
class Study:
    """One study of the paper."""

    name: str  # its name on the command line
    opening: str  # the docstring of its file: its title, then what it asks and how to read the answer
    parts: Callable[[Plan], Iterable[Part]]  # the tasks that it needs, the most informative first
    drawings: Callable[[Findings], Iterable[Drawing]]  # its figures, from the tasks that are finished
    figures: tuple[int, ...] = ()  # the paper's figures that it redraws
    judges: tuple[Claim, ...] = ()  # the claims that its file defines
    informs: tuple[str, ...] = ()  # names of claims of other studies that use its records

    @property
    def title(self) -> str:
        """Its heading."""
        return self.opening.partition("\n")[0]

    @property
    def question(self) -> str:
        """What it asks, and how to read the answer; an empty line separates paragraphs."""
        _, *paragraphs = self.opening.split("\n\n")
        return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of all claims that use its records."""
        return tuple(sorted((*(claim.name for claim in self.judges), *self.informs), key=lambda name: int(name[1:])))

    def draw(self, findings: Findings) -> list[Figure]:
        """Its figures, without those that have no data."""
        command = f"{findings.plan.command} --only {self.name}"
        found = (
            figure.draw(findings.evidence) if isinstance(figure, Curves) else figure
            for figure in self.drawings(findings)
        )
        return [replace(figure, command=command) for figure in found if figure is not None]
