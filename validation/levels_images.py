"""Laws of images for the simulation of levels: each gives sets of so many images that are independent draws of one law.

Images are 8×8 and uint8. `draw` gives images that come one by one. `draw_groups` gives groups of images that are almost the
same, such as the frames of a video; groups are numbered across training and held-out images.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor

from gausslens.auditing.pool import Pool
from gausslens.data import load_images
from gausslens.images import quantize
from gausslens.noise import generator

SAMPLES, SIDE, CLASSES = 400, 8, 60


@dataclass(frozen=True)
class Drawn:
    """Training images, held-out images and samples of one law.

    Attributes:
        train: uint8 (n, 1, 8, 8).
        held_out: (m, 1, 8, 8), or None.
        samples: (s, 1, 8, 8).
        groups: of training and held-out images, or None.
    """

    train: Tensor
    held_out: Tensor | None
    samples: Tensor
    groups: tuple[Tensor, Tensor] | None = None

    @property
    def pool(self) -> Pool:
        """Training and held-out images with their groups."""
        groups, held_out_groups = self.groups or (None, None)
        return Pool(self.train, self.held_out, groups=groups, held_out_groups=held_out_groups)


def digits(n: int, random: torch.Generator) -> Tensor:
    """Handwritten digits, none twice."""
    pool = _digits()
    return pool[torch.randperm(len(pool), generator=random)[:n]]


@cache
def _digits() -> Tensor:
    return torch.from_numpy(load_images("digits").images.copy())


def mixture(n: int, random: torch.Generator) -> Tensor:
    """A mixture of four Gaussians of smooth images."""
    means, roots = _parts()
    part = torch.randint(len(means), (n,), generator=random)
    rows = torch.einsum("nde,ne->nd", roots[part], torch.randn(n, roots.shape[2], generator=random))
    return quantize((means[part] + rows).reshape(n, 1, SIDE, SIDE))


@cache
def _parts() -> tuple[Tensor, Tensor]:
    random = generator(0, "audit levels mixture")
    place = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE)).float()
    smooth = torch.exp(-torch.cdist(place, place).square() / 8)
    roots = 0.1 * torch.randn(4, SIDE**2, SIDE**2, generator=random) @ smooth
    return 0.3 * torch.randn(4, SIDE**2, generator=random) @ smooth / 2, roots


def dots(n: int, random: torch.Generator) -> Tensor:
    """Blurred dots: place, width and brightness are all that differs, and chance copies are frequent."""
    y, x, width, light = torch.rand(4, n, 1, 1, generator=random)
    i = torch.arange(SIDE, dtype=torch.float32)
    away = (i[:, None] - y * (SIDE - 1)).square() + (i - x * (SIDE - 1)).square()
    shown = (0.8 + 1.2 * light) * torch.exp(-away / (2 * (SIDE / 8 * (0.8 + 0.8 * width)).square())) - 1
    return quantize(shown[:, None])


def icons(n: int, random: torch.Generator, *, kinds: int = CLASSES, exponent: float = 0.0) -> Tensor:
    """Pictures that recur: of so many kinds, equally frequent or as Zipf's law has it."""
    shares = torch.arange(1, kinds + 1, dtype=torch.float64) ** -exponent
    return _icons(kinds)[torch.multinomial(shares, n, replacement=True, generator=random)]


@cache
def _icons(kinds: int) -> Tensor:
    shape = (kinds, 1, SIDE, SIDE)
    return torch.randint(0, 256, shape, generator=generator(0, "audit levels icons"), dtype=torch.uint8)


LAWS: dict[str, Callable[[int, torch.Generator], Tensor]] = {
    "digits": digits,
    "mixture": mixture,
    "dots": dots,
    "icons": icons,
    "icons, 1000 equal": partial(icons, kinds=1000),
    "icons, Zipf": partial(icons, kinds=1000, exponent=1.0),
}


def draw(law: str, sizes: tuple[int, int], random: torch.Generator) -> Drawn:
    """Images of a law that come one by one."""
    everything = LAWS[law](sum(sizes) + SAMPLES, random)
    train, held_out, samples = everything.split([*sizes, SAMPLES])
    return Drawn(train, held_out if sizes[1] else None, samples)


def draw_groups(law: str, sizes: tuple[int, int], random: torch.Generator, *, uneven: bool = False) -> Drawn:
    """Groups of 2 to 8 images that are next to the same, of which no two are the same; samples are of other groups.

    Args:
        law: of the first image of a group.
        sizes: groups of training and of held-out images.
        random: source of randomness.
        uneven: whether groups have 2 to 8 images, or 4 each.
    """
    count = sum(sizes)
    base = LAWS[law](count + SAMPLES, random)
    images = torch.randint(2, 9, (count,), generator=random) if uneven else torch.full((count,), 4)
    of_group = torch.arange(count).repeat_interleave(images)
    frames = base[torch.cat([of_group, torch.arange(count, count + SAMPLES)])].float() / 127.5 - 1
    frames = frames * (1 + 0.03 * torch.randn(len(frames), 1, 1, 1, generator=random))
    frames = quantize(frames + 0.03 * torch.randn(frames.shape, generator=random))
    n_train = int(images[: sizes[0]].sum())
    train, held_out, samples = frames.split([n_train, len(of_group) - n_train, SAMPLES])
    groups = of_group[:n_train], of_group[n_train:]
    return Drawn(train, held_out if sizes[1] else None, samples, groups)
