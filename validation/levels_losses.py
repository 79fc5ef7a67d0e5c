"""Levels and coverage of what an audit says of losses: the AUC, rates of recognition, the memory share, images that leak.

Losses are simulated by laws of which the AUC and the rates of recognition are known. Every table is a function of how many
times as many trials to run, and of a seed; it yields its lines.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import torch
from levels_images import Drawn, draw_groups
from levels_tables import COVERAGE, line_of_coverage, line_of_false_names, sources, table_of_levels
from scipy.stats import beta as beta_law
from scipy.stats import binom, gamma
from torch import Tensor

import gausslens
from gausslens.auditing.evidence import Evidence
from gausslens.auditing.losses import BASELINE, GAUSSIAN, MULTIDELTA, LossGap, measure_losses
from gausslens.auditing.membership import membership_records, true_positive_rate
from gausslens.measures.intervals import Estimate, proportion_estimate
from gausslens.measures.two_sample import auc_estimate, permutation_p_values
from gausslens.noise import generator

_NORMAL = NormalDist()


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
        sigmas=torch.arange(levels, 0, -1, dtype=torch.float64),
        train=sides[0],
        held_out=sides[1],
        pull=sides[1],
        apart=sides[1],
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
    return measure_losses(denoisers, drawn.pool, sigmas=[0.5], noises=4, seed=seed)


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
                named = torch.zeros(n, dtype=torch.bool)
                named[[record["value"] for record in Evidence(membership_records(gap)).find("leaking_image")]] = True
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
                    found = Evidence(membership_records(gap))
                    held[0] += all(low <= auc for low in found.auc_low)
                    rates = found.by_level("tpr", false_positive_rate=0.01)
                    held[1] += all(holds(one, truth) for one in rates.values())
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
                hits["μ"] += holds(Evidence(membership_records(gap)).estimate("memory_share"), 0.4)
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
                hits["μ"] += holds(Evidence(membership_records(gap)).estimate("memory_share"), 0.4)
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
