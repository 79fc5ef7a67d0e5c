"""Which cases the ladder of laws has: their names and numbers, read from laws_truth.json.

laws_truth.json was written before the audit saw any case. It says what the audit must answer to each kind.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TRUTH = json.loads(Path(__file__).with_name("laws_truth.json").read_text())
KINDS = tuple(TRUTH["kinds"])
SETS = ("digits", "fashion", "photos", "mixture")


@dataclass(frozen=True)
class Spec:
    """Which case: its kind, set, seed and ratio, the name within the kind, and numbers that go with it."""

    kind: str
    set: str
    seed: int
    ratio: str
    name: str
    numbers: tuple[tuple[str, Any], ...] = ()

    @property
    def key(self) -> str:
        """Names the case among all."""
        return " | ".join([self.kind, self.set, str(self.seed), self.ratio, self.name])

    def __getitem__(self, name: str) -> Any:
        return dict(self.numbers)[name]


def specs(part: str, *, kinds: Any = KINDS, sets: Any = None, seeds: Any = None) -> Iterator[Spec]:
    """The cases of a part, "tuning" or "scoring": of these kinds, sets and seeds, or of all."""
    chosen = TRUTH["parts"][part]
    for kind in kinds:
        for name in (name for name in chosen["sets"] if sets is None or name in sets):
            for seed in TRUTH["seeds_of"].get(kind, {}).get(part, chosen["seeds"]):
                if seeds is None or seed in seeds:
                    for ratio, case, numbers in _NAMES[kind](TRUTH["kinds"][kind]):
                        yield Spec(kind, name, seed, ratio, case, tuple(numbers.items()))


# Names and numbers of the cases of each kind.

_Named = Iterator[tuple[str, str, dict[str, Any]]]


def _names_of_partial(truth: dict[str, Any]) -> _Named:
    for i, ratio in enumerate(truth["ratios"]):
        for j, memorised in enumerate(truth["memorised"]):
            for k, share in enumerate(truth["shares"]):
                general = ("gaussian", "mixture")[(i + j + k) % 2]
                numbers = {"memorised": memorised, "share": share, "general": general}
                yield ratio, f"m={memorised} share={share:g} {general}", numbers


def _names_of_repeated(truth: dict[str, Any]) -> _Named:
    for k, share in enumerate(truth["shares"]):
        general = ("gaussian", "mixture")[k % 2]
        yield truth["ratio"], f"share={share:g} {general}", {"share": share, "general": general}


def _names_of_null(truth: dict[str, Any]) -> _Named:
    for ratio in truth["posterior"]["verdicts"]:
        for general in truth["posterior"]["models"]:
            yield ratio, f"posterior {general}", {"group": "posterior", "model": general}
    for degraded in truth["degraded"]["models"]:
        yield truth["degraded"]["ratio"], degraded, {"group": "degraded", "model": degraded}
    for ratio in truth["own"]["ratios"]:
        yield ratio, "own gaussian", {"group": "own", "model": "all"}
    few = ":".join(str(size) for size in truth["own"]["few"])
    yield few, "own gaussian of few", {"group": "own", "model": "few"}
    for law in truth["coinciding"]["laws"]:
        yield truth["coinciding"]["ratio"], law, {"group": "coinciding", "model": law}


def _names_of_shifts(truth: dict[str, Any]) -> _Named:
    for change in truth["changes"]:
        for model in truth["models"]:
            yield truth["ratio"], f"{change}: {model}", {"change": change, "model": model}


def _names_of_parts(truth: dict[str, Any]) -> _Named:
    for ratio in truth["ratios"]:
        for law in truth["laws"]:
            yield ratio, law, {"law": law}


def _names_of_local(truth: dict[str, Any]) -> _Named:
    for window in truth["windows"]:
        yield truth["ratio"], f"windows of {window}x{window}", {"window": window}


def _names_of_conditional(truth: dict[str, Any]) -> _Named:
    for ratio in truth["ratios"]:
        yield ratio, "a rare class memorised", {}


def _names_of_exchangeable(truth: dict[str, Any]) -> _Named:
    for ratio in truth["ratios"]:
        for model in truth["models"]:
            yield ratio, model, {"model": model}


def _names_of_grouped(truth: dict[str, Any]) -> _Named:
    yield truth["ratio"], "ten groups memorised", {}


_NAMES = {kind: globals()[f"_names_of_{kind}"] for kind in KINDS}
