"""The level of every p-value of an audit and the coverage of every interval, by simulation.

    python validation/audit_levels.py [--only copies ...] [--trials 1] [--seed 0]

Where training images, held-out images and samples are draws of one law, a p-value must be at most α in at most a share α of
the trials, and what is named must be wrong in at most a tenth of the names. Intervals must hold the truth in 95 % of trials.
`--trials` multiplies the number of trials of every row. Shares have Clopper and Pearson's 95 % limits. A row is marked
"above" or "below" if its limits exclude what it must be, to the bad side; in capitals if its 99.9 % limits do. Of a
hundred rows that are as they must be, two or three are marked, and none in capitals.

Sets are named T:H, the number of training and of held-out images, or of groups of them; ":0" is without held-out images.
"""

import argparse
import math
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist

import torch
from scipy.stats import beta as beta_law
from scipy.stats import binom
from torch import Tensor

import gausslens
from gausslens.auditing.controls import ONCE, REPEATED, fisher_p
from gausslens.auditing.copies import Copies, find_copies
from gausslens.auditing.exchangeability import check_exchangeability
from gausslens.auditing.families import PLAIN
from gausslens.auditing.losses import BASELINE, GAUSSIAN, MULTIDELTA, LossGap, measure_losses
from gausslens.auditing.membership import measure_membership, true_positive_rate
from gausslens.data import load_images
from gausslens.images import quantize
from gausslens.measures.intervals import Estimate, proportion_estimate
from gausslens.measures.two_sample import auc_estimate, permutation_p_values
from gausslens.noise import generator

LEVELS = (0.05, 0.01, 0.001)
COVERAGE, FALSE_DISCOVERY = 0.95, 0.1
RATIOS = ((400, 400), (500, 100), (600, 50))
SAMPLES, SIDE, CLASSES = 400, 8, 60
_NORMAL = NormalDist()


# Laws of images. Each gives sets of so many images that are draws of one law; groups are numbered across the sets.


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


# What is counted, and how it is told.


def clopper_pearson(hits: int, trials: int, error: float = 0.05) -> tuple[float, float]:
    """Limits of a share.

    >>> [round(limit, 3) for limit in clopper_pearson(0, 100)]
    [0.0, 0.036]
    """
    low = 0.0 if hits == 0 else float(beta_law.ppf(error / 2, hits, trials - hits + 1))
    high = 1.0 if hits == trials else float(beta_law.ppf(1 - error / 2, hits + 1, trials - hits))
    return low, high


def mark(hits: int, trials: int, bound: float, *, at_least: bool = False) -> str:
    """Whether a share is on the bad side of what it must be: "above" or "below" for sure, in capitals for very sure.

    >>> mark(20, 100, 0.05), mark(8, 100, 0.05), mark(90, 1000, 0.95, at_least=True)
    ('ABOVE', '', 'BELOW')
    """
    for error, told in ((0.001, str.upper), (0.05, str)):
        low, high = clopper_pearson(hits, trials, error)
        if at_least and high < bound:
            return told("below")
        if not at_least and low > bound:
            return told("above")
    return ""


def table_of_levels(title: str, rows: Iterable[tuple[str, list[float]]]) -> Iterator[str]:
    """How often p-values were at most 5, 1 and .1 %.

    Args:
        title: of the table.
        rows: of a name and the p-values.

    Yields:
        Lines.
    """
    yield f"\n{title}\n  {'':<46} trials  " + "".join(f"{f'p <= {level:g}':<26}" for level in LEVELS)
    for name, p_values in rows:
        if not p_values:
            continue
        cells = []
        for level in LEVELS:
            hits = sum(value <= level * (1 + 1e-9) for value in p_values)
            low, high = clopper_pearson(hits, len(p_values))
            bad = mark(hits, len(p_values), level)
            cells.append(f"{f'{hits / len(p_values):.4f} [{low:.4f}, {high:.4f}] {bad}':<30}")
        yield f"  {name:<46} {len(p_values):>6}  {''.join(cells)}".rstrip()


def line_of_coverage(name: str, hits: int, trials: int) -> str:
    """How often intervals held the truth."""
    low, high = clopper_pearson(hits, trials)
    bad = mark(hits, trials, COVERAGE, at_least=True)
    return f"  {name:<62} {trials:>6}  {hits / trials:.4f} [{low:.4f}, {high:.4f}] {bad}".rstrip()


def line_of_false_names(name: str, shares: list[float], named: float) -> str:
    """The mean share of wrong names, with Student's limits (normal ones: there are many trials)."""
    values = torch.tensor(shares, dtype=torch.float64)
    mean, error = float(values.mean()), float(values.std(correction=0)) / math.sqrt(max(len(values) - 1, 1))
    limits = [mean + z * error for z in (-1.96, 1.96)]
    bad = "above" if limits[0] > FALSE_DISCOVERY else ""
    told = f"{mean:.4f} [{max(limits[0], 0):.4f}, {limits[1]:.4f}]"
    return f"  {name:<46} {len(values):>6}  wrong {told}, {named:.1f} named on average {bad}".rstrip()


def sources(title: str, trials: int, seed: int) -> Iterator[torch.Generator]:
    """A source of randomness for each trial."""
    for trial in range(trials):
        yield generator(seed, f"audit levels {title}", trial)


# Whether two sets are exchangeable.


def exchangeability(trials: float, seed: int) -> Iterator[str]:
    """Yields: the level of the tests of neighbours and of detail."""
    cases = {
        f"{law} {sizes[0]}:{sizes[1]}": partial(draw, law, sizes) for law in ("digits", "mixture") for sizes in RATIOS
    }
    cases["icons, 1000 equal (repeats) 400:400"] = partial(draw, "icons, 1000 equal", (400, 400))
    cases["icons, Zipf (repeats) 500:100"] = partial(draw, "icons, Zipf", (500, 100))
    for sizes in ((100, 100), (150, 30), (180, 15)):
        cases[f"mixture, groups of 2-8 {sizes[0]}:{sizes[1]}"] = partial(draw_groups, "mixture", sizes, uneven=True)
    cases["digits, groups of 2-8 150:30"] = partial(draw_groups, "digits", (150, 30), uneven=True)
    neighbors: dict[str, list[float]] = {}
    detail: dict[str, list[float]] = {}
    for name, make in cases.items():
        neighbors[name], detail[name] = [], []
        for number, random in enumerate(sources(f"exchangeability {name}", round(150 * trials), seed)):
            drawn = make(random)
            groups = drawn.groups or (None, None)
            found = check_exchangeability(drawn.train, drawn.held_out, *groups, permutations=999, seed=number)
            if found is not None:
                neighbors[name].append(found.neighbors_p)
                detail[name].append(found.detail_p)
    yield from table_of_levels("Exchangeability, neighbours (999 permutations)", neighbors.items())
    yield from table_of_levels("Exchangeability, detail (999 permutations)", detail.items())


# Whether copies exist, and which they are.


def look(drawn: Drawn, **options: object) -> Copies:
    """The search for copies; without parts and transformations unless they are asked for."""
    groups = {} if drawn.groups is None else {"groups": drawn.groups[0]}
    if drawn.groups is not None and drawn.held_out is not None:
        groups["held_out_groups"] = drawn.groups[1]
    how = {"mirrored": False, "shifts": (), "parts": False} | groups | options
    return find_copies(drawn.samples, drawn.train, drawn.held_out, **how)


def _copy_cases() -> dict[str, Callable[[torch.Generator], Drawn]]:
    cases: dict[str, Callable[[torch.Generator], Drawn]] = {}
    for law in ("digits", "dots", "icons", "icons, 1000 equal", "icons, Zipf"):
        for sizes in (*RATIOS, (400, 0)):
            cases[f"{law} {sizes[0]}:{sizes[1]}"] = partial(draw, law, sizes)
    for sizes in ((100, 100), (125, 25), (150, 12), (100, 0)):
        cases[f"dots, groups of 4 {sizes[0]}:{sizes[1]}"] = partial(draw_groups, "dots", sizes)
    cases["dots, groups of 2-8 125:25"] = partial(draw_groups, "dots", (125, 25), uneven=True)
    return cases


def copies(trials: float, seed: int) -> Iterator[str]:
    """Yields: the level of Fisher's test and of the two-set test, on whole and unchanged copies."""
    p_values: dict[str, dict[str, list[float]]] = {kind: defaultdict(list) for kind in (ONCE, REPEATED)}
    two_set: dict[str, list[float]] = defaultdict(list)
    against_new: dict[str, list[float]] = defaultdict(list)
    chance: dict[str, list[float]] = defaultdict(list)
    false_alarms: dict[str, list[bool]] = defaultdict(list)
    for name, make in _copy_cases().items():
        for random in sources(f"copies {name}", round(200 * trials), seed):
            found = look(make(random))
            for kind in (ONCE, REPEATED):
                one = found.find(PLAIN, kind)
                if one is not None:
                    p_values[kind][name].append(one.p_value)
            once, matches = found.find(PLAIN, ONCE), found.matches[PLAIN]
            if once is not None and matches.held_out is not None:
                new = matches.of_kind(matches.held_out, ONCE)
                against_new[name].append(fisher_p(*once.samples, int(new.sum()), len(new)))
            if found.two_set is not None:
                two_set[name].append(found.two_set.p_value)
            chance[name].append(found.share.value)
            false_alarms[name].append(found.exist)
    title = f"Copies, Fisher's test, {SAMPLES} samples, originals that stand"
    yield from table_of_levels(f"{title} once, all real images", p_values[ONCE].items())
    yield from table_of_levels(f"{title} once, held-out images alone", against_new.items())
    yield from table_of_levels(f"{title} repeatedly", p_values[REPEATED].items())
    yield from table_of_levels("Copies, two-set test", two_set.items())
    yield "\nChance copies on average, and how often whole copies `exist` (must be .001 at most)"
    for name, shares in chance.items():
        hits, n = sum(false_alarms[name]), len(shares)
        told = f"{100 * sum(shares) / n:5.1f} % of samples; exist in {hits} of {n} {mark(hits, n, LEVELS[2])}"
        yield f"  {name:<46} {told}".rstrip()


def families(trials: float, seed: int) -> Iterator[str]:
    """Yields: how often an audit says that copies or parts exist, all families looked at."""
    yield "\nThe audit's level: copies or parts exist, with mirrored, shifted and parts (must be .001 at most)"
    total = hits_of_all = 0
    for name, make in _copy_cases().items():
        if name.startswith("digits"):
            continue
        told, n = [], round(20 * trials)
        for random in sources(f"families {name}", n, seed):
            found = look(make(random), mirrored=True, shifts=(1, 2), parts=True)
            told += [*(["copies"] * found.exist), *found.parts][:1]
        hits, total, hits_of_all = len(told), total + n, hits_of_all + len(told)
        what = f" ({', '.join(sorted(set(told)))})" if told else ""
        yield f"  {name:<46} {hits} of {n} {mark(hits, n, LEVELS[2])}{what}".rstrip()
    low, high = clopper_pearson(hits_of_all, total)
    bad = mark(hits_of_all, total, LEVELS[2])
    yield f"  {'all':<46} {hits_of_all} of {total} [{low:.4f}, {high:.4f}] {bad}".rstrip()


def names(trials: float, seed: int) -> Iterator[str]:
    """Yields: the share of wrong names among copies that are named, where copies and chance copies stand side by side."""
    yield "\nNamed copies, false-discovery rate (must be .1 at most)"
    for law in ("dots", "icons, Zipf"):
        for sizes in RATIOS:
            for planted in (20, 100):
                shares, count = [], 0
                title = f"{law} {sizes[0]}:{sizes[1]}, {planted} planted"
                for random in sources(f"names {title}", round(60 * trials), seed):
                    drawn = draw(law, sizes, random)
                    chosen = torch.randperm(sizes[0], generator=random)[:planted]
                    made = drawn.train[chosen].float() / 127.5 - 1
                    made = quantize(made + 0.01 * torch.randn(made.shape, generator=random))
                    found = look(Drawn(drawn.train, drawn.held_out, torch.cat([made, drawn.samples[planted:]])))
                    named = {copy.sample for copy in found.copies}
                    shares.append(sum(one >= planted for one in named) / max(len(named), 1))
                    count += len(named)
                yield line_of_false_names(title, shares, count / len(shares))


# What the losses say.


@dataclass(frozen=True)
class LossLaw:
    """Losses of images: log-normal or gamma of unit scale, in groups or one by one, times a factor of their own set.

    Attributes:
        name: "lognormal" or "gamma".
        shape: the standard deviation of the logarithm, or the gamma law's shape.
    """

    name: str
    shape: float

    def __str__(self) -> str:
        return f"{self.name} {self.shape:g}"

    @property
    def mean(self) -> float:
        return math.exp(self.shape**2 / 2) if self.name == "lognormal" else self.shape

    def draw(self, n: int, random: torch.Generator) -> Tensor:
        """So many losses, (n,) float64."""
        if self.name == "lognormal":
            return (self.shape * torch.randn(n, generator=random, dtype=torch.float64)).exp()
        count = round(2 * self.shape)  # twice a gamma variable of half-integer shape is a sum of squared normal ones
        return torch.randn(n, count, generator=random, dtype=torch.float64).square().sum(1) / 2

    def auc(self, factor: float) -> float:
        """P(factor · X < Y) of two losses."""
        if self.name == "lognormal":
            return _NORMAL.cdf(-math.log(factor) / (self.shape * math.sqrt(2)))
        return float(beta_law.cdf(1 / (1 + factor), self.shape, self.shape))

    def factor(self, auc: float) -> float:
        """The factor of which that is so."""
        if self.name == "lognormal":
            return math.exp(-self.shape * math.sqrt(2) * _NORMAL.inv_cdf(auc))
        return 1 / float(beta_law.ppf(auc, self.shape, self.shape)) - 1

    def recognised(self, factor: float, rate: float) -> float:
        """P(factor · X < q), q the quantile of X at that rate."""
        from scipy.stats import gamma

        if self.name == "lognormal":
            return _NORMAL.cdf(_NORMAL.inv_cdf(rate) - math.log(factor) / self.shape)
        return float(gamma.cdf(gamma.ppf(rate, self.shape) / factor, self.shape))


LOSS_LAWS = (LossLaw("lognormal", 0.5), LossLaw("lognormal", 1.0), LossLaw("gamma", 1.5), LossLaw("gamma", 8.0))


def holds(estimate: Estimate | None, truth: float) -> bool:
    """Whether an interval holds the truth; one that was not given makes no claim."""
    return estimate is None or estimate.low <= truth <= estimate.high


def loss_rows(
    law: LossLaw,
    factors: dict[str, tuple[float, float]],
    sizes: tuple[int, int],
    random: torch.Generator,
    levels: int = 1,
) -> LossGap:
    """Losses of several denoisers on the same images: their difficulty, which all share, times a factor, times an error.

    Args:
        law: of the difficulty.
        factors: of each denoiser, on training and on held-out images.
        sizes: of the sets.
        random: source of randomness.
        levels: how many noise levels.
    """
    sides = []
    for side, size in enumerate(sizes):
        hard = torch.stack([law.draw(size, random) for _ in range(levels)])
        # The error has mean 1: what 16 noises leave of a sum over pixels.
        rows = {
            name: hard * factor[side] * (1 + 0.1 * torch.randn(levels, size, generator=random, dtype=torch.float64))
            for name, factor in ({GAUSSIAN: (1, 1), MULTIDELTA: (1, 1)} | factors).items()
        }
        sides.append(rows)
    return LossGap(
        sigmas=torch.ones(levels, dtype=torch.float64),
        train=sides[0],
        held_out=sides[1],
        pull=sides[1],
        apart=sides[1],
        n_train=sizes[0],
        noises=16,
        seed=0,
        images=torch.arange(sizes[0]),
    )


def auc_tests(trials: float, seed: int) -> Iterator[str]:
    """Yields: the level of the permutation test of the AUC, on rows and by the losses of a model that knows no image."""
    rows: dict[str, list[float]] = {}
    for law in (LOSS_LAWS[1], LOSS_LAWS[2]):
        for n, m in ((200, 200), (500, 100), (600, 50), (30, 30)):
            title = f"{law}, {n}:{m}"
            rows[title] = []
            for random in sources(f"auc {title}", round(50 * trials), seed):
                pool = torch.stack([law.draw(n + m, random) for _ in range(20)])
                rows[title] += permutation_p_values(pool[:, :n], pool[:, n:], permutations=1999).tolist()
    for title, uneven in (("mixture, groups of 4, 60:30", False), ("mixture, groups of 2-8, 60:30", True)):
        rows[title] = []
        for number, random in enumerate(sources(f"auc {title}", round(300 * trials), seed)):
            drawn = draw_groups("mixture", (60, 30), random, uneven=uneven)
            rows[title] += losses_of(drawn, number).p_values("network").tolist()
    yield from table_of_levels("AUC of the loss, permutation test", rows.items())


def losses_of(drawn: Drawn, seed: int) -> LossGap:
    """Losses of a Wiener filter of the samples, which knows none of the images, at one noise level."""
    denoisers = {
        "network": gausslens.GaussianDenoiser(gausslens.Moments.fit(drawn.samples)),
        GAUSSIAN: gausslens.GaussianDenoiser(gausslens.Moments.fit(drawn.train)),
        MULTIDELTA: gausslens.MultiDeltaDenoiser(drawn.train),
    }
    groups = drawn.groups or (None, None)
    known = {"groups": groups[0], "held_out_groups": groups[1]}
    return measure_losses(denoisers, drawn.train, drawn.held_out, sigmas=[0.5], noises=4, seed=seed, **known)


def leaking(trials: float, seed: int) -> Iterator[str]:
    """Yields: the share of wrong names among images that leak, and how often any is named where none does."""
    yield "\nImages that leak, false-discovery rate (must be .1 at most)"
    for law in LOSS_LAWS:
        for (n, m), share in (((2000, 2000), 0.2), ((2000, 2000), 0.02), ((600, 2000), 0.2), ((600, 2000), 0.0)):
            shares, count = [], 0
            title = f"{law}, {n}:{m}, {100 * share:g} % leak"
            for random in sources(f"leaking {title}", round(100 * trials), seed):
                ours = torch.arange(n) < share * n
                gap = loss_rows(law, {"network": (1, 1)}, (n, m), random, levels=10)
                gap.train["network"][:, ours] *= 0.01
                named = measure_membership(gap).leaking
                shares.append(float((named & ~ours).sum()) / max(int(named.sum()), 1))
                count += int(named.sum())
            yield line_of_false_names(title, shares, count / len(shares))


def shares(trials: float, seed: int) -> Iterator[str]:
    """Yields: the coverage of Wilson's interval, computed and not simulated."""
    yield "\nCopied share, Wilson's interval: exact coverage over shares (mean 95 % is claimed, not least)"
    for n in (100, 500, 1000, 2000, 10_000):
        bounds = [proportion_estimate(count, n) for count in range(n + 1)]
        counts = range(n + 1)
        for low, high in ((1 / n, 0.02), (0.02, 0.1), (0.1, 0.5)):
            found = []
            for place in range(101):
                truth = low * (high / low) ** (place / 100)
                chances = binom.pmf(list(counts), n, truth)
                inside = (one.low <= truth <= one.high for one in bounds)
                found.append(float(sum(chance for chance, held in zip(chances, inside, strict=True) if held)))
            mean = sum(found) / len(found)
            told = f"mean {mean:.4f}, least {min(found):.4f} {'below' if mean < COVERAGE - 0.005 else ''}"
            yield f"  {f'{n} samples, shares from {low:g} to {high:g}':<46} {told}".rstrip()


def aucs(trials: float, seed: int) -> Iterator[str]:
    """Yields: the coverage of the AUC's interval and of the rates of recognition."""
    yield "\nAUC, DeLong's interval on the logit scale"
    trials_of_row = round(2000 * trials)
    for law in LOSS_LAWS[1:3]:
        for n, m in ((30, 30), (200, 200), (600, 50), (1000, 1000)):
            for auc in (0.5, 0.7, 0.9, 0.96):
                factor, title = law.factor(auc), f"{law}, {n}:{m}, AUC {auc}"
                hits = sum(
                    holds(auc_estimate(factor * law.draw(n, random), law.draw(m, random)), auc)
                    for random in sources(f"aucs {title}", trials_of_row, seed)
                )
                yield line_of_coverage(title, hits, trials_of_row)
    yield "\nTrue-positive rate at 1 % false positives (conservative: more is right)"
    for law in LOSS_LAWS[1:3]:
        for n, m in ((200, 1000), (1000, 1000), (1000, 2000)):
            for auc in (0.5, 0.7, 0.9, 0.99):
                factor, title = law.factor(auc), f"{law}, {n}:{m}, AUC {auc}"
                truth, hits = law.recognised(factor, 0.01), 0
                for random in sources(f"tpr {title}", trials_of_row // 2, seed):
                    found = true_positive_rate(factor * law.draw(n, random), law.draw(m, random), 0.01)
                    hits += holds(found, truth)
                yield line_of_coverage(f"{title}, rate {truth:.3f}", hits, trials_of_row // 2)


def together(trials: float, seed: int) -> Iterator[str]:
    """Yields: how often all lower limits of ten levels hold together."""
    yield "\nTen noise levels together: no lower limit of the AUC, no interval of the rate at 1 % fails"
    n_trials = round(400 * trials)
    for law in LOSS_LAWS[1:3]:
        for n, m in ((100, 2000), (2000, 2000)):
            for auc in (0.5, 0.8):
                factor, held = law.factor(auc), [0, 0]
                truth = law.recognised(factor, 0.01)
                title = f"{law}, {n}:{m}, AUC {auc}"
                for random in sources(f"together {title}", n_trials, seed):
                    train = torch.stack([factor * law.draw(n, random) for _ in range(10)])
                    unseen = torch.stack([law.draw(m, random) for _ in range(10)])
                    empty = loss_rows(law, {}, (n, m), random, levels=10)
                    known, new = (dict.fromkeys(("network", GAUSSIAN, MULTIDELTA), rows) for rows in (train, unseen))
                    gap = LossGap(**{**vars(empty), "train": known, "held_out": new})
                    found = measure_membership(gap)
                    held[0] += all(low <= auc for low in found.auc_low)
                    held[1] += all(holds(one, truth) for one in found.tpr[0.01])
                yield line_of_coverage(f"{title}: AUC", held[0], n_trials)
                yield line_of_coverage(f"{title}: rate", held[1], n_trials)


def gaps(trials: float, seed: int) -> Iterator[str]:
    """Yields: the coverage of μ, ρ, position, and of μ and AUC where the units are groups."""
    n_trials = round(300 * trials)
    yield "\nMemory share μ, position ρ between Gaussian and multi-delta (Fieller)"
    for law in LOSS_LAWS:
        for n, m in ((50, 50), (200, 200), (1000, 1000), (600, 50)):
            factors = {"network": (0.6, 1.0), GAUSSIAN: (0.9, 1.0), MULTIDELTA: (0.05, 1.5), BASELINE: (1.0, 1.0)}
            apart = {name: new - known for name, (known, new) in factors.items()}
            rho = (apart["network"] - apart[GAUSSIAN]) / (apart[MULTIDELTA] - apart[GAUSSIAN])
            position = (apart["network"] - apart[BASELINE]) / (apart[MULTIDELTA] - apart[BASELINE])
            hits, title = {"μ": 0, "ρ": 0, "position": 0}, f"{law}, {n}:{m}"
            for random in sources(f"gaps {title}", n_trials, seed):
                gap = loss_rows(law, factors, (n, m), random)
                hits["μ"] += holds(measure_membership(gap).memory_share[0], 0.4)
                hits["ρ"] += holds(gap.position("network")[0], rho)
                hits["position"] += holds(gap.position("network", BASELINE)[0], position)
            for name, number in hits.items():
                yield line_of_coverage(f"{title}, {name}", number, n_trials)
    yield "\nUnits are groups of 2-8 images, each the mean of 16 noises that fall on its images in turn"
    for law in LOSS_LAWS[1:3]:
        for n, m in ((100, 100), (200, 30)):
            # P(group < group) by itself: the same law, so that a factor of 1 makes it one half.
            hits, title = {"μ": 0, "AUC": 0, "AUC .5": 0}, f"{law}, {n}:{m} groups"
            auc = group_auc(law, 0.6, seed)
            for random in sources(f"groups {title}", n_trials, seed):
                known, new = group_losses(law, n, random), group_losses(law, m, random)
                hits["AUC .5"] += holds(auc_estimate(known, new), 0.5)
                hits["AUC"] += holds(auc_estimate(0.6 * known, new), auc)
                gap = loss_rows(law, {}, (n, m), random)
                rows = {"network": 0.6 * known[None]}, {"network": new[None]}
                gap = LossGap(
                    **{**vars(gap), "train": {**gap.train, **rows[0]}, "held_out": {**gap.held_out, **rows[1]}}
                )
                hits["μ"] += holds(measure_membership(gap).memory_share[0], 0.4)
            for name, number in hits.items():
                yield line_of_coverage(f"{title}, {name}", number, n_trials)


def group_losses(law: LossLaw, n: int, random: torch.Generator) -> Tensor:
    """Losses of groups: what their images share, times what is their own, averaged over images."""
    sizes = torch.randint(2, 9, (n,), generator=random)
    own = law.draw(8 * n, random).reshape(n, 8)
    counted = torch.stack([torch.bincount(torch.arange(16) % size, minlength=8) for size in range(2, 9)])[sizes - 2]
    return law.draw(n, random) * (own * counted).sum(1) / 16


def group_auc(law: LossLaw, factor: float, seed: int) -> float:
    """P(factor · X < Y) of two such losses, by 200,000 of each."""
    random = generator(seed, "audit levels groups")
    known = (factor * group_losses(law, 200_000, random)).sort().values
    return float(torch.searchsorted(known, group_losses(law, 200_000, random)).double().mean()) / len(known)


SECTIONS: dict[str, Callable[[float, int], Iterator[str]]] = {
    "exchangeability": exchangeability,
    "copies": copies,
    "families": families,
    "names": names,
    "auc-tests": auc_tests,
    "leaking": leaking,
    "shares": shares,
    "aucs": aucs,
    "together": together,
    "gaps": gaps,
}


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="by default all")
    parser.add_argument("--trials", type=float, default=1.0, help="times as many trials in each row")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = f"gausslens {gausslens.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{time.strftime('%Y-%m-%d')}, {versions}")
    print(f"command: python validation/{' '.join(Path(word).name for word in sys.argv)}")
    for name in options.only:
        started = time.perf_counter()
        for line in SECTIONS[name](options.trials, options.seed):
            print(line, flush=True)
        print(f"  ({name}: {time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
