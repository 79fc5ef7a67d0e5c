"""How few copies this audit would have found, by what they look like.

Copies of originals are planted, changed as described. The flattest tenth of the originals is left out: a copy of them cannot
be distinguished from a likeness. With q the share of the copies that the rule recognises in their family and c the smallest
number that convicts there (see `controls`), n copies among the samples are found with probability P(X ≥ c), X binomial of n
and q.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from scipy.stats import binom
from torch import Tensor

from .._typing import Int
from ..images import dequantize
from ..measures.memorization import identifiable_images
from ..measures.originals import Originals
from ..measures.transformations import MIRRORED, Transformation
from ..noise import draw_noise, draw_order
from ..store.records import Record
from .controls import ONCE
from .copies import Copies
from .families import PLAIN

_MOST_PLANTED = 256
_PROBABILITY = 0.95


class Planting(NamedTuple):
    """What planted copies look like."""

    name: str
    family: str = PLAIN  # in which they are looked for
    transformation: Transformation = Transformation()
    rmse: float = 0.0  # standard deviation of the pixel noise on them, in units of the images


PLANTINGS = (
    Planting("exact"),
    Planting("noise 0.02", rmse=0.02),
    Planting("noise 0.05", rmse=0.05),
    Planting("noise 0.1", rmse=0.1),
    Planting("mirrored", "mirrored", MIRRORED, 0.02),
    Planting("shifted", "shifted", Transformation(down=1, right=-1), 0.02),
    Planting("top half", "top half", rmse=0.02),
)


def copy_power(copies: Copies, *, plantings: Sequence[Planting] = PLANTINGS, seed: int = 0) -> Iterator[Record]:
    """The power of an audit to find copies of different originals, by what they look like.

    Yields:
        For each kind the smallest number of copies among the samples that would have been found in 95 % of cases, None if
        there is none, and the share of them that the rule recognises.
    """
    plain, samples = copies.plain.originals, len(copies.plain.rows)
    originals = _identifiable(plain, seed)
    for planting in plantings if len(originals) else ():
        comparison = copies.find(planting.family, ONCE)
        if comparison is None:
            continue
        matches = copies.matches[planting.family]
        planted = matches.family.crop(_planted(plain, planting, originals, seed))
        match = matches.originals.nearest(planted, transformations=matches.family.transformations)
        right = match.original == matches.originals.of_image[plain.kept[originals]]
        recognised = float((matches.of_kind(match, ONCE) & right).double().mean())
        needed = comparison.smallest_count(concentrated=False, exact=planting.rmse == 0)
        count = _found_mostly(needed, recognised, samples)
        tags = {"kind": planting.name, "count": samples, "recognised": recognised}
        yield {"quantity": "detectable", "value": count, **tags}


def _found_mostly(needed: int | None, recognised: float, samples: int) -> int | None:
    """The smallest number of copies of which so many are recognised in 95 % of cases."""
    if needed is None:
        return None
    numbers = torch.arange(needed, samples + 1)
    enough = torch.from_numpy(binom.sf(needed - 1, numbers.numpy(), recognised) >= _PROBABILITY)
    return int(numbers[enough][0]) if bool(enough.any()) else None


def _identifiable(originals: Originals, seed: int) -> Int[Tensor, "k"]:
    """Distinct images of originals that occur once, in random order, without the flattest."""
    once = originals.unique[originals.of_image[originals.kept]].nonzero()[:, 0]
    if originals.count < 3 or not len(once):
        return once[:0]
    drawn = once[draw_order(seed, len(once), stream="planted originals")[: 2 * _MOST_PLANTED]]
    return drawn[identifiable_images(originals.kept[drawn], originals, seed)][:_MOST_PLANTED]


def _planted(originals: Originals, planting: Planting, chosen: Int[Tensor, "k"], seed: int) -> Tensor:
    """Changed copies of distinct images, in float32, (k, *shape)."""
    images = dequantize(originals.images[chosen.to(originals.images.device)])
    if planting.transformation != Transformation():
        images = planting.transformation.apply(images)
    eps = draw_noise(seed, chosen, tuple(images.shape[1:]), stream=f"planted {planting.name}")
    return images + planting.rmse * eps.to(images.device)
