"""The findings of a monitor, as numbers by name and as sentences."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import GausslensError, is_short_of_memory, one_line
from ..measures.memorization import MEMORIZED
from .events import NEARER_MULTIDELTA, Event, closest_to_gaussian, recommended_probe, steps_to_keep
from .overhead import OverheadBudget
from .probe import ProbeResult


@dataclass(frozen=True)
class Failure:
    """Something that went wrong."""

    what: str  # what was tried, such as "The look"
    step: float | int | None  # when; None if that is no number
    reason: str

    @classmethod
    def of(cls, what: str, step: Any, error: Exception) -> "Failure":
        """What an error says."""
        number = step if isinstance(step, int | float) and math.isfinite(step) else None
        if isinstance(error, GausslensError):
            return cls(what, number, str(error).rstrip(". "))
        reason = one_line(error)
        return cls(what, number, f"memory does not suffice ({reason})" if is_short_of_memory(error) else reason)

    def sentence(self, unit: str = "step") -> str:
        """The failure as a sentence."""
        when = "" if self.step is None else f" at {unit} {self.step:.10g}"
        return f"{self.what}{when} failed: {self.reason}."


class Numbers(dict[str, Any]):
    """Numbers by name. The name of 0.1 with a British s is still found, with a warning."""

    def __missing__(self, name: str) -> Any:
        current = name.replace("memorised", "memorized")
        if current not in self:
            raise KeyError(name)
        warnings.warn(f"{name} is now {current}", DeprecationWarning, stacklevel=2)
        return self[current]


def latest_numbers(results: Sequence[ProbeResult], memorizing: Event | None) -> Numbers:
    """The numbers of the last result, by name."""
    last, steps = results[-1], steps_to_keep(results, memorizing)
    estimates = {
        "rho": last.rho,
        "gaussian_rmse": last.gaussian,
        "multidelta_rmse": last.multidelta,
        "loss_train": last.loss_train,
        "loss_held_out": last.loss_held_out,
        "memorized_fraction": last.memorized,
    }
    numbers = Numbers(step=last.step)
    for name, estimate in estimates.items():
        for end in ("value", "low", "high"):
            numbers[name if end == "value" else f"{name}_{end}"] = None if estimate is None else getattr(estimate, end)
    numbers |= {"count": last.gaussian.count, "samples": last.samples, "seconds": last.seconds}
    numbers |= {"memorizing": memorizing is not None, "keep": last.step in steps, "wanted": steps}
    return numbers


def summarize(
    results: Sequence[ProbeResult],
    memorizing: Event | None,
    time: OverheadBudget,
    *,
    is_last: bool,
    failure: Failure | None,
    unit: str,
) -> str:
    """What the probes have found."""
    closest, best, last = closest_to_gaussian(results), recommended_probe(results, memorizing), results[-1]
    sure = "" if closest.settled else ", so far"
    cost = f", {time.cost:.1%} of the training time" if time.cost < 1 else ""
    words = [f"{len(results)} look{'s' if len(results) > 1 else ''}{cost}."]
    if is_last and time.cost > time.share:
        words.append(f"The look at the end is taken even if the looks then need more than {time.share:.0%}.")
    words.append(f"Closest to the Gaussian denoiser at {unit} {closest.step:g} ({_between(closest)}{sure}).")
    if memorizing is not None:
        words.append(f"Memorising starts at {unit} {memorizing.step:g} ({_between(memorizing)}).")
    else:
        copies = f" ({last.copies} of {last.samples} samples are copies)" if last.samples else ""
        # One look with copies is no proof.
        seen = "certain" if last.memorized is not None and last.memorized.low > MEMORIZED else "seen"
        words.append(f"No memorising is {seen} up to {unit} {last.step:g}{copies}.")
        if last.rho is not None and last.rho.low > NEARER_MULTIDELTA:
            words.append(f"But the losses suggest it (ρ = {last.rho}): look more often, or audit those weights.")
    if failure is not None:
        words.append(failure.sentence(unit))
    words.append(f"Keep the weights of {unit} {best.step:g}.")
    return " ".join(words)


def explain_no_look(time: OverheadBudget, seconds: float, failure: Failure | None, unit: str) -> str:
    """Why no look was taken."""
    if failure is not None:
        return f"No look was taken. {failure.sentence(unit)}"
    allowed = time.share * time.main_until_now
    longer = seconds / allowed if allowed else math.inf
    if not 1 < longer < math.inf:
        return "No look was taken: the training was too short to afford one. Call finish when it ends."
    return (
        f"No look was taken: one may take {time.share:.0%} of the training's time, and would have taken about "
        f"{seconds:.2g} s. Train about {math.ceil(longer)} times as long, or call finish when training ends."
    )


def _between(event: Event) -> str:
    return f"between {event.earliest:g} and {event.latest:g}"
