"""How few copies the audit at hand would have found: copies planted among its own samples.

Noisy training images, mirrored or shifted ones, take the place of some samples, and the copy test is made again. The
neighbours of all other samples are known, so a trial costs as much as the test alone. Planted are copies of images
that can be told from their neighbours (the flattest tenth is left out): of the others nobody can tell a copy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from ..errors import ConfigError, DataError
from ..images import dequantize
from ..measures.copying import identifiable_images
from ..measures.twoset import Neighborhood, fewest_copies, judge_neighborhood, may_count
from ..noise import draw_noise, draw_order, generator
from .copies import Copies
from ..measures.transformations import MIRRORED, Transformation

_MOST_PLANTED = 512
_LARGEST_SHARE = 0.2
_STEP = 1.15


class Planting(NamedTuple):
    """What planted copies look like.

    Attributes:
        name: for people.
        transformation: what is done to the image.
        rmse: standard deviation of the pixel noise on it, in units of the images.
    """

    name: str
    transformation: Transformation = Transformation()
    rmse: float = 0.0


PLANTINGS = (
    Planting("exact"),
    Planting("noise 0.02", rmse=0.02),
    Planting("noise 0.05", rmse=0.05),
    Planting("noise 0.1", rmse=0.1),
    Planting("mirrored", MIRRORED, 0.02),
    Planting("shifted", Transformation(down=1, right=-1), 0.02),
)


@dataclass(frozen=True)
class PowerCurve:
    """How often copies of one kind were found, by their number.

    Attributes:
        planting: what they look like.
        counts: numbers of copies among the samples, ascending.
        found: trials in which they were found, for each number.
        trials: at each number.
        samples: how many samples there are that were not named as copies already.
    """

    planting: Planting
    counts: tuple[int, ...]
    found: tuple[int, ...]
    trials: int
    samples: int

    def smallest(self, probability: float) -> float | None:
        """The smallest share of copies found with at least this probability; None if no number tried was."""
        enough = (n for n, found in zip(self.counts, self.found, strict=True) if found >= probability * self.trials)
        smallest = next(enough, None)
        return None if smallest is None else smallest / self.samples

    def __str__(self) -> str:
        shares = [(chance, self.smallest(chance)) for chance in (0.8, 0.95)]
        said = ", ".join(
            f"{share:.2%} copies with probability {chance:.0%}" for chance, share in shares if share is not None
        )
        if not said:
            said = f"not even {self.counts[-1] / self.samples:.1%} copies" if self.counts else "nothing: all are copies"
        return f"{self.planting.name}: would find {said}"


def copy_power(
    copies: Copies, *, plantings: Sequence[Planting] = PLANTINGS, trials: int = 40, seed: int = 0
) -> list[PowerCurve]:
    """The power of an audit to find copies, by what they look like and how many there are.

    The audit finds copies if the p-value of the test for their family of transformations, times the number of families,
    is at most its level. Numbers of copies grow by a seventh, from the fewest that are worth a trial.

    Args:
        copies: the audit, with held-out images.
        plantings: what copies look like; those of no family that was looked for are left out.
        trials: at each number of copies, at least 1.
        seed: fixes everything random.

    Returns:
        A curve for each kind; none if there is no image that can be told from its neighbours.

    Raises:
        ConfigError: if `trials` is below 1.
        DataError: if the audit had no held-out images.
    """
    if trials < 1:
        raise ConfigError(f"trials must be at least 1; got {trials}.")
    if copies.pool.held_out is None:
        raise DataError("without held-out images nothing is tested, so nothing can be said of what would be found.")
    originals = identifiable(copies, seed)
    if not len(originals):  # of no image could anybody tell a copy
        return []
    curves = []
    for planting in plantings:
        family = family_of(copies, planting)
        if family is not None:
            planted = plant(copies, planting, originals, seed)
            curves.append(_curve(copies, family, planting, _neighborhood(copies, planted, family), trials, seed))
    return curves


def family_of(copies: Copies, planting: Planting) -> str | None:
    """The family of transformations in whose test such copies are looked for, or None."""
    families = copies.pool.families.items()
    return next((name for name, members in families if planting.transformation in members), None)


def identifiable(copies: Copies, seed: int = 0) -> Tensor:
    """Up to 512 training images of the pool in random order, those left out of which nobody can tell a copy."""
    pool = copies.pool
    drawn = draw_order(seed, len(pool.train), stream="planted originals")[: 2 * _MOST_PLANTED]
    where = {"device": pool.device, "progress": False}
    return drawn[identifiable_images(drawn, pool.train, 0.0, seed, where)][:_MOST_PLANTED]


def plant(copies: Copies, planting: Planting, originals: Tensor, seed: int = 0) -> Tensor:
    """Copies of the given images of the pool, in float32, (b, *shape)."""
    images = dequantize(copies.pool.train[originals.to(copies.pool.train.device)])
    if planting.transformation != Transformation():
        images = planting.transformation.apply(images)
    eps = draw_noise(seed, originals, tuple(images.shape[1:]), stream=f"planted {planting.name}")
    return images + planting.rmse * eps.to(images.device)


def with_planted(neighborhood: Neighborhood, planted: Neighborhood, rows: Tensor) -> Neighborhood:
    """The neighbourhood when planted copies take the place of the samples in `rows`."""
    return replace(
        neighborhood,
        distances=neighborhood.distances.index_copy(0, rows, planted.distances),
        members=neighborhood.members.index_copy(0, rows, planted.members),
    )


def _neighborhood(copies: Copies, images: Tensor, family: str) -> Neighborhood:
    return copies.pool.neighborhood(images, family, copies.pool.in_train(images, family))


def _without_copies(copies: Copies, family: str) -> Neighborhood:
    """The neighbourhood without the samples that were named as copies: planted ones are to be found without their help."""
    near, named = copies.neighborhoods[family], copies.tests[family].copies
    others = torch.ones(len(near.distances), dtype=torch.bool).index_fill(0, named, False)
    return replace(near, distances=near.distances[others], members=near.members[others])


def _curve(copies: Copies, family: str, planting: Planting, bank: Neighborhood, trials: int, seed: int) -> PowerCurve:
    around = _without_copies(copies, family)
    samples, level = len(around.distances), copies.level / len(copies.tests)
    if samples == 0:  # all are copies
        return PowerCurve(planting, (), (), trials, 0)
    most = max(1, min(len(bank.distances), int(_LARGEST_SHARE * samples)))
    counting = may_count(around, copies.threshold)  # of a good model few do, and the others change no p-value

    def found(count: int, random: torch.Generator, trials: int = trials) -> int:
        alarms = 0
        for _ in range(trials):
            chosen = torch.randperm(len(bank.distances), generator=random)[:count]
            rows = torch.randperm(samples, generator=random)[:count]
            left = counting.index_fill(0, rows, False)
            tested = judge_neighborhood(
                replace(
                    bank,
                    distances=torch.cat([around.distances[left], bank.distances[chosen]]),
                    members=torch.cat([around.members[left], bank.members[chosen]]),
                ),
                threshold=copies.threshold,
                permutations=copies.permutations,
                seed=seed,
            )
            alarms += tested.p_value <= level
        return alarms

    # Only copies much nearer to their original than to any held-out image count; these are as many as must count.
    near = judge_neighborhood(bank, threshold=copies.threshold, permutations=1).nearer_train / len(bank.distances)
    count = most if near == 0 else min(most, math.ceil(fewest_copies(bank.n_train, bank.n_held_out, level) / near))
    # What the most copies do not show once, fewer are not tried for: samples near held-out images can hide any number.
    if not found(most, generator(seed, f"planted most {planting.name}"), 1):
        count = most
    random = generator(seed, f"planted rows {planting.name}")
    results = {count: found(count, random)}
    while results[count] < 0.95 * trials and count < most:
        count = min(most, math.ceil(_STEP * count))
        results[count] = found(count, random)
    return PowerCurve(planting, tuple(results), tuple(results.values()), trials, samples)
