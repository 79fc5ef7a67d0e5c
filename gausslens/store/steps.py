"""Work in named steps, each of which makes records: a step cut short leaves nothing, a finished one is not redone.

The records of a step are written together, the seconds it took last, and by that record a step is known to be finished.
"""

import time
from collections.abc import Callable, Iterable

from .artifact import Artifact
from .records import Record, finite

_FINISHED = "seconds"  # the quantity of a step's last record


class Steps:
    """The steps of one piece of work; records call the step that they are of by `tag`: "measure", "stage".

    Without an artifact, records are kept in memory alone.
    """

    def __init__(self, tag: str, artifact: Artifact | None = None) -> None:
        self.tag, self._artifact = tag, artifact
        kept = [] if artifact is None else artifact.records()
        self.finished = {record[tag] for record in kept if record["quantity"] == _FINISHED}
        self.records = [record for record in kept if record[tag] in self.finished]
        if artifact is not None and len(self.records) < len(kept):
            artifact.save_records(self.records)

    def run(self, step: str, work: Callable[[], Iterable[Record]]) -> None:
        """Do a step, unless it is finished, and keep its records."""
        if step in self.finished:
            return
        started = time.perf_counter()
        made = [{self.tag: step, **finite(record)} for record in work()]
        made.append({self.tag: step, "quantity": _FINISHED, "value": time.perf_counter() - started})
        self.records += made
        self.finished.add(step)
        if self._artifact is not None:
            self._artifact.append(made)
