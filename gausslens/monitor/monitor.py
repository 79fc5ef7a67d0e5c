"""Monitoring a training run: is it still learning the images' law, or already the images?

`GeneralizationMonitor.update` is called after every step of any training loop, and looks at the denoiser when that can be
afforded: when all looks so far, what they needed first and this one take less than `share` of the time between the calls,
which is taken for training (see `overhead`). The look at the end is taken whatever it costs. Nothing global is drawn from,
and the denoiser is put back as it was. A look that fails does not end the training: the failure is remembered and logged,
and the monitor tries again, the more rarely the more looks have failed.
"""

import logging
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import torch

from .._typing import Images, Sigmas
from ..denoisers.protocol import Denoiser, placement, range_of
from ..errors import CheckpointError, ConfigError, is_short_of_memory, require
from ..images import Bounds, content_hash
from ..measures.intervals import Estimate
from ..noise import as_sigmas
from .events import Event, closest_to_gaussian, recommended_probe, start_of_memorizing
from .overhead import OverheadBudget
from .probe import Probe, ProbeImages, ProbeOptions, ProbeResult
from .summary import Failure, explain_no_look, latest_numbers, summarize

_LOGGER = logging.getLogger("gausslens")  # no warning: where warnings are errors, it would end the training
_STATE = 1


class GeneralizationMonitor:
    """Looks at a denoiser while it is trained, and says which weights to keep and when to stop.

    Args:
        train: the images that it is trained on, any source, (n, *shape), n ≥ 2.
        held_out: images of the same source that it never sees. Without them there is no ρ, and distances are measured on
            noisy training images.
        labels: of the training images, integers (n,), for a conditional denoiser D(x, sigma, labels).
        held_out_labels: of the held-out images.
        groups: integers (n,) that say which training images belong together, such as those of one patient: a copy of any of
            them is a copy of one original.
        sigmas: the noise levels to look at; None is three of those at which the Gaussian and the multi-delta denoiser of the
            training images differ most. All lie within the denoiser's `sigma_range`, if it has one.
        count: training images, and held-out images, of a look; at least 2.
        noises: noises for each of them, at least 1.
        samples: images that are generated at each look to count copies, from new noises every time; 0 for a denoiser that
            cannot be sampled, which is then judged by ρ.
        steps: noise levels that are sampled through.
        share: the largest part of the training time that looking may take, above 0 and at most 1.
        seed: fixes everything random.
        bounds: admissible values of float images, or None.
        device: where the denoiser is; None finds out.

    Attributes:
        memorization: since when the network memorises; None while it does not.

    Raises:
        ConfigError: if an option is out of its range.
        DataError: if the images cannot be used.

    >>> from gausslens import MultiDeltaDenoiser
    >>> images = torch.rand(48, 1, 4, 4, generator=torch.Generator().manual_seed(0)) * 2 - 1
    >>> monitor = GeneralizationMonitor(images[:24], images[24:], count=8, samples=8)
    >>> for step in range(3):
    ...     seen = monitor.look(MultiDeltaDenoiser(images[:24]), step)
    >>> print(f"{seen['rho']:.2f} {seen['memorized_fraction']:.0%} {monitor.should_stop}")
    1.00 100% True
    """

    def __init__(
        self,
        train: Images,
        held_out: Images | None = None,
        *,
        labels: Any = None,
        held_out_labels: Any = None,
        groups: Any = None,
        sigmas: Sigmas | None = None,
        count: int = 64,
        noises: int = 2,
        samples: int = 32,
        steps: int = 12,
        share: float = 0.03,
        seed: int = 0,
        bounds: Bounds = (-1.0, 1.0),
        device: torch.device | str | None = None,
    ) -> None:
        self._options = ProbeOptions(count, noises, samples, steps, seed)
        require(0 < share <= 1, f"share must lie above 0 and be at most 1; got {share}.")
        self.device = device
        self._images = ProbeImages.of(train, held_out, labels, held_out_labels, groups, bounds)
        self._seconds_to_prepare = self._images.seconds_to_prepare(count * noises)
        self._sigmas = None if sigmas is None else as_sigmas(sigmas)
        self._probe: Probe | None = None
        self._results: list[ProbeResult] = []
        self._by_chance: Estimate | None = None
        self._expected: float | None = None  # seconds of the next look, once the probe has been tried out
        self._to_try = [8, 64]  # images at a time, which cost less each than one alone
        self.memorization: Event | None = None
        self._time = OverheadBudget(share)
        self._failure: Failure | None = None
        self._logged: set[str] = set()
        self._final: float | int | None = None  # the step of the look at the end, which is taken whatever it costs
        self._ended: float | int | None = None  # the total at which that look was due

    def update(self, denoiser: Denoiser, step: float | int, total: float | int | None = None) -> dict[str, Any] | None:
        """Look at the denoiser, if it is time to; to be called after every step, or as often as convenient.

        Nothing that goes wrong is raised: it becomes `failure`.

        Args:
            denoiser: D(x, sigma) as it is now, best with averaged weights; a conditional one if there are labels.
            step: a count that grows: steps, images or epochs. Until it has, no further look is taken.
            total: the step at which training will end, if that is known. Looks then begin earlier, which may take up to four
                times the share for a while. When `step` reaches it, a last look is taken whatever it costs.

        Returns:
            What was seen (see `look`), or None.
        """
        with self.guarded("The look", step):
            now = _number(step)
            length = total if total and total > 0 else math.inf  # infinite where nobody says when training ends
            with self._time.spending():
                if now >= length and length != self._ended:  # the last look is due
                    self._final, self._ended = now, length
                    return self.look(denoiser, now) if self._has_grown(now) else None
                done = now / length if now < length < math.inf else None  # the part of training that is done, if known
                if self._has_grown(now) and self._can_afford_look(denoiser, done):
                    return self.look(denoiser, now)
        return None

    def finish(self, denoiser: Denoiser, step: float | int) -> dict[str, Any] | None:
        """Look once more when training ends, whatever it costs, so that `recommended` covers its end.

        Nothing is done if the last look was at this step. Nothing that goes wrong is raised: it becomes `failure`.

        Args:
            denoiser: as for `update`.
            step: likewise.

        Returns:
            What was seen (see `look`), or None.
        """
        with self.guarded("The look", step):
            now = _number(step)
            if self._has_grown(now):
                self._final = now
                return self.look(denoiser, now)
        return None

    def look(self, denoiser: Denoiser, step: float | int) -> dict[str, Any]:
        """Look at the denoiser now, whatever it costs. Unlike `update` and `finish` this raises what goes wrong.

        Args:
            denoiser: as for `update`.
            step: likewise, above that of the look before.

        Returns:
            Numbers by name, each `NAME` with `NAME_low` and `NAME_high`, its 95 % interval: `rho`, `gaussian_rmse`,
            `multidelta_rmse`, `loss_train`, `loss_held_out`, `memorized_fraction` (None where unknown); and `step`,
            `count`, `samples`, `seconds`, whether the network is `memorizing`, whether to `keep` the weights of now, and the
            steps whose weights are still `wanted`.

        Raises:
            ConfigError: if `step` is no number or does not grow, or `sigmas` are outside of the denoiser's range.
            DataError: if the denoiser answers with anything but images, or these or its samples are not finite.

        It also raises whatever the denoiser raises. What was seen before stays.
        """
        step = _number(step)
        if not self._has_grown(step):
            raise ConfigError(f"step must grow from look to look; got {step} after {self._results[-1].step}.")
        with self._spending(denoiser) as probe:
            result = probe.look(denoiser, step, len(self._results))
        self._results.append(replace(result, seconds=self._time.spent))
        self._expected = max(result.seconds for result in self._results[-2:])
        self.memorization = start_of_memorizing(self._results, self._by_chance)
        self._time.mark()
        self._failure = None
        return latest_numbers(self._results, self.memorization)

    def at_its_cost(self) -> AbstractContextManager[None]:
        """Inside, time counts as the monitor's own: for what is done on its account, such as keeping weights."""
        return self._time.spending()

    @contextmanager
    def guarded(self, what: str, step: Any = None) -> Iterator[None]:
        """Inside, an error ends nothing: it becomes `failure` and is logged, once for errors that differ only in numbers.

        `what` is done inside, as the beginning of a sentence, such as "Keeping weights"; `step` is when.
        """
        short = False
        try:
            yield
        except Exception as error:
            self._failure = Failure.of(what, step, error)
            self._time.mark(failed=True)
            short = is_short_of_memory(error)
            sentence = self._failure.sentence()
            kind = re.sub(r"\d[\d.]*", "0", sentence)
            if kind not in self._logged:
                self._logged.add(kind)
                _LOGGER.warning("%s The training goes on.", sentence)
        if short:  # what was prepared can be made again; training may need its memory now
            self._probe, self._expected = None, None
            torch.cuda.empty_cache()

    @property
    def failure(self) -> str | None:
        """What went wrong at the latest attempt to look, as a sentence; None if nothing did."""
        return None if self._failure is None else self._failure.sentence()

    @property
    def looks(self) -> list[dict[str, Any]]:
        """Everything that was seen, in its order."""
        firsts = (self._results[:count] for count in range(1, len(self._results) + 1))
        return [latest_numbers(results, start_of_memorizing(results, self._by_chance)) for results in firsts]

    @property
    def closest_to_gaussian(self) -> Event | None:
        """When the network was closest to the Gaussian denoiser of its training images; None before the first look."""
        return closest_to_gaussian(self._results) if self._results else None

    @property
    def recommended(self) -> float | int | None:
        """The step whose weights to keep; None before the first look.

        Of the looks before memorising starts, the one with the least held-out loss; without held-out images the one closest
        to the Gaussian or, while nothing is memorised, the latest.
        """
        return recommended_probe(self._results, self.memorization).step if self._results else None

    @property
    def should_stop(self) -> bool:
        """Whether the network memorises, so that training on makes it worse."""
        return self.memorization is not None

    @property
    def cost(self) -> float:
        """Time spent on looking, over time spent on training, so far."""
        return self._time.cost

    def summary(self, unit: str = "step") -> str:
        """What was found, in plain words.

        Args:
            unit: what steps are counted in.

        Returns:
            A few sentences.
        """
        if not self._results:
            return explain_no_look(self._time, self._seconds_to_prepare + (self._expected or 0.0), self._failure, unit)
        is_last = self._results[-1].step == self._final
        return summarize(
            self._results, self.memorization, self._time, is_last=is_last, failure=self._failure, unit=unit
        )

    def state_dict(self) -> dict[str, Any]:
        """All that was seen and spent, as JSON can hold it, for `load_state_dict`."""
        by_chance, failure = (None if part is None else asdict(part) for part in (self._by_chance, self._failure))
        looks = [asdict(result) for result in self._results]
        found = {"by_chance": by_chance, "looks": looks, "final": self._final, "failure": failure}
        return {"version": _STATE, **self._identity, "time": self._time.state(), **found}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what another monitor of the same images and options had seen.

        Args:
            state: from `state_dict`.

        Raises:
            CheckpointError: if it belongs to other images or options, or to another version.
        """
        if state.get("version") != _STATE or any(state.get(name) != value for name, value in self._identity.items()):
            raise CheckpointError(
                "the monitor's state belongs to other images, other options or another version. Make the monitor with the "
                "same images and options, or start without the state."
            )
        by_chance = None if state["by_chance"] is None else Estimate(**state["by_chance"])
        failure = None if state.get("failure") is None else Failure(**state["failure"])
        results = [ProbeResult.from_json(value) for value in state["looks"]]
        self._time = OverheadBudget(self._time.share, **state["time"])
        self._by_chance, self._failure, self._results, self._final = by_chance, failure, results, state.get("final")
        self.memorization = start_of_memorizing(results, by_chance)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        held_out = self._images.held_out
        return {
            "train": content_hash(self._images.train),
            "held_out": None if held_out is None else content_hash(held_out),
            "sigmas": None if self._sigmas is None else self._sigmas.tolist(),
            "options": asdict(self._options),
        }

    def _has_grown(self, step: float | int) -> bool:
        return not self._results or step > self._results[-1].step

    def _can_afford_look(self, denoiser: Denoiser, done: float | None) -> bool:
        """Whether there is time for a look. It is prepared and tried out first, if there is time for that."""
        if self._probe is None or self._expected is None:
            if not self._time.affords(self._seconds_to_prepare, done):
                return False
            self._seconds_of_look(denoiser, 1)  # prepares; and the first call of all takes longer than others
            self._expected = self._seconds_of_look(denoiser, 1)
        assert self._probe is not None  # it was tried out
        while self._to_try and not self._time.affords(self._expected, done):
            if not self._time.affords(self._expected * self._to_try[0] / self._probe.calls, done):
                return False
            self._expected = min(self._seconds_of_look(denoiser, self._to_try.pop(0)), self._expected)
        return self._time.affords(self._expected, done)

    def _seconds_of_look(self, denoiser: Denoiser, count: int) -> float:
        """Seconds that a look will take, from a call on a few images."""
        with self._spending(denoiser) as probe:
            probe.try_out(denoiser, count)
        return self._time.spent / count * probe.calls

    @contextmanager
    def _spending(self, denoiser: Denoiser) -> Iterator[Probe]:
        """Inside, time counts as the monitor's own; makes the probe if that is not done yet."""
        device, _ = placement(denoiser, self._images.train, self.device)
        _wait_for(device)  # what a GPU still has to train is not ours
        with self._time.spending():
            if self._probe is None:
                how: dict[str, Any] = {"sigmas": self._sigmas, "device": device, "sigma_range": range_of(denoiser)}
                self._probe = Probe(self._images, self._options, **how)
                self._by_chance = self._probe.copies_by_chance
            yield self._probe
            _wait_for(device)


def _number(step: Any) -> float | int:
    """A step as Python's number, of whatever kind it is."""
    found = step.item() if hasattr(step, "item") else step
    if not isinstance(found, int | float) or not math.isfinite(found):
        raise ConfigError(f"step must be a number that grows, such as a count of steps; got {step!r:.80}.")
    return found


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
