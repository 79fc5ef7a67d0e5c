"""Why the interval of a mean is what it is: coverage of several rules on laws of one number per image.

    python validation/interval_methods.py [--trials 5000]

Nominal 95 %, n = 50 and 100 units, the same resamples for every rule. `ours` is `mean_interval`.
"""

import argparse
import math
from collections.abc import Callable

import torch
from torch import Tensor

from gausslens.measures.intervals import bootstrap_counts, mean_interval, student_quantile

_generator = torch.Generator().manual_seed(1)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=_generator, dtype=torch.float64)


def _contaminated(*shape: int) -> Tensor:
    return _normal(*shape) * torch.where(torch.rand(*shape, generator=_generator) < 0.1, 5.0, 1.0)


def _cosine(trials: int, n: int, spread: float, contrast: float) -> Tensor:
    """|cos| of a fixed vector with the same vector plus noise, whose size may vary between units."""
    vectors = spread * _normal(trials, n, 8) * (contrast * _normal(trials, n, 1)).exp()
    vectors[..., 0] += 1
    return vectors[..., 0].abs() / vectors.norm(dim=-1)


LAWS: dict[str, Callable[[int, int], Tensor]] = {
    "normal": _normal,
    "contaminated": _contaminated,
    "chi": lambda trials, n: _normal(trials, n).abs(),
    "chi square": lambda trials, n: _normal(trials, n).square(),
    "exponential": lambda trials, n: _normal(trials, n, 2).square().sum(-1) / 2,
    "lognormal 0.3": lambda trials, n: (0.3 * _normal(trials, n)).exp(),
    "lognormal 0.6": lambda trials, n: (0.6 * _normal(trials, n)).exp(),
    "lognormal 1": lambda trials, n: _normal(trials, n).exp(),
    "cosine 0.9": lambda trials, n: _cosine(trials, n, 0.2, 0.0),
    "cosine 0.99": lambda trials, n: _cosine(trials, n, 0.05, 0.5),
}


def intervals(units: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Ends of the interval of the mean of every row, by every rule."""
    n = units.shape[1]
    mean, error = units.mean(1), units.std(1) / math.sqrt(n)
    centred = units - mean[:, None]
    frequencies = bootstrap_counts(n).T / n
    shift = centred @ frequencies
    t = shift / ((centred.square() @ frequencies - shift.square()) / (n - 1)).sqrt()

    def order(values: Tensor, rank: Tensor) -> Tensor:
        return values.sort(1).values.gather(1, rank[:, None].clamp(1, values.shape[1]) - 1)[:, 0]

    def ranks(quantile: Tensor) -> Tensor:
        return (quantile * (shift.shape[1] + 1)).round().long()

    lower, upper = torch.full((len(units),), 50), torch.full((len(units),), 1950)
    student = student_quantile(n - 1) * error
    gauss = torch.distributions.Normal(torch.tensor(0.0, dtype=torch.float64), 1.0)
    bias = gauss.icdf((shift < 0).double().mean(1))
    acceleration = centred.pow(3).sum(1) / (6 * centred.square().sum(1) ** 1.5)
    bca = [
        mean + order(shift, ranks(gauss.cdf(bias + (bias + z) / (1 - acceleration * (bias + z)))))
        for z in (-1.96, 1.96)
    ]
    return {
        "ours": mean_interval(units)[1:],
        "bootstrap-t": (mean - order(t, upper) * error, mean - order(t, lower) * error),
        "Student": (mean - student, mean + student),
        "BCa": (bca[0], bca[1]),
        "percentile": (mean + order(shift, lower), mean + order(shift, upper)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5000)
    trials = parser.parse_args().trials
    torch.set_num_threads(1)
    rows: list[list[float]] = []
    names = list(intervals(_normal(2, 50)))
    print(f"{'law':<14} {'n':>4} " + " ".join(f"{name:>12}" for name in names) + "   coverage %")
    for n in (50, 100):
        for law, draw in LAWS.items():
            truth = float(torch.stack([draw(2000, 1000).mean() for _ in range(10)]).mean())
            hits = dict.fromkeys(names, 0)
            for chunk in torch.arange(trials).split(1000):
                for name, (low, high) in intervals(draw(len(chunk), n)).items():
                    hits[name] += int(((low <= truth) & (truth <= high)).sum())
            rows.append([100 * hits[name] / trials for name in names])
            print(f"{law:<14} {n:>4} " + " ".join(f"{share:>12.1f}" for share in rows[-1]), flush=True)
    for label, pick in (("least", min), ("greatest", max)):
        print(f"{label:<19} " + " ".join(f"{pick(column):>12.1f}" for column in zip(*rows, strict=True)))


if __name__ == "__main__":
    main()
