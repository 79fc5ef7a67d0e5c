"""Synthetic records: for every claim, a world described by a few numbers, and the records that studies would make of it.

Each builder takes `effect`, which is 1 where the claim is true, −1 where it is false, and anything else in between.
"""

import math
from unittest.mock import patch

from gausslens.paper.claims import judge
from gausslens.paper.registry import all_claims

HOLDS, FAILS, UNCERTAIN = "holds", "does not hold", "not enough evidence"

SIGMAS = (80.0, 42.4, 21.1, 9.7, 4.1, 1.5, 0.47, 0.117, 0.02, 0.002)
SIZES = (10, 40, 160, 640, 1400)
WIDTHS = (4, 8, 16, 32)
TIMES = (10, 20, 40, 80, 160, 320)
SEEDS = (0, 1, 2)

# Departures of the seeds from what is common to them; they add up to 0, so that means stay what the tests say.
_DEPARTURES = (-1.0, 0.25, 0.75)


def verdict_on(claim, records):
    """The verdict on one claim that is judged by itself."""
    with patch.dict(all_claims(), {claim: all_claims()[claim]}, clear=True):
        (verdict,) = judge(records)
    return verdict


def jitter(seed, spread):
    return spread * _DEPARTURES[seed % 3]


def record(quantity, value, spread=0.001, error=0.001, seed=None, **tags):
    """One number at one seed, with an interval over images of ± 2 errors."""
    value = value + (0.0 if seed is None else jitter(seed, spread))
    interval = {"low": value - 1.96 * error, "high": value + 1.96 * error, "count": 200}
    return {"quantity": quantity, "value": value, **interval, "seed": seed, "data": "toy", **tags}


def curve(quantity, value_at, sigmas=SIGMAS, **tags):
    return [record(quantity, value_at(sigma), sigma=sigma, **tags) for sigma in sigmas]


def bump(sigma):
    """1 at σ = 4, falling to both sides."""
    return math.exp(-((math.log(sigma / 4) / 1.5) ** 2))


HELD_OUT = {"on": "held_out", "denoiser": "network"}
RMS = [{"quantity": "data_rms", "value": 0.5, "data": "toy"}]
DIM = [{"quantity": "dim", "value": 20, "data": "toy"}]


def c1(effect, seeds=SEEDS, study="linearity", **tags):
    return [
        found
        for seed in seeds
        for n in SIZES
        for affine in (False, True)
        for metric, sign in (("cosine", -1), ("nmse", 1))
        for found in curve(
            f"linearity_{metric}",
            lambda sigma, n=n, sign=sign: 0.9 + sign * bump(sigma) * (0.2 - 0.02 * effect * math.log(n)),
            **{**HELD_OUT, "study": study, "n": n, "affine": affine, "seed": seed, "network": "unet", **tags},
        )
    ]


def c2(effect, seeds=SEEDS):
    return c1(1, seeds) + c1(effect, seeds, study="networks", network="adm", preconditioning="edm")


def c3(effect, seeds=SEEDS):
    return [
        found
        for seed in seeds
        for alpha in (0.8, 0.95)
        for found in curve(
            "linearity_difference",
            lambda sigma: -0.01 * effect,
            **HELD_OUT,
            study="linearity",
            n=1400,
            alpha=alpha,
            seed=seed,
        )
    ]


def c4(effect, seeds=SEEDS):
    return [
        found
        for seed in seeds
        for preconditioning, gain in (("edm", 0.05 * effect), ("ve", 0.0))
        for found in curve(
            "linearity_cosine",
            lambda sigma, gain=gain: 0.9 + gain,
            **HELD_OUT,
            study="linearity",
            n=1400,
            affine=False,
            preconditioning=preconditioning,
            seed=seed,
        )
    ]


def gaps(pairs, study, seeds, **tags):
    return [
        found
        for seed in seeds
        for (denoiser, reference), value_at in pairs.items()
        for found in curve(
            "rmse",
            value_at,
            **{"on": "held_out", "study": study, "seed": seed, "denoiser": denoiser, "reference": reference, **tags},
        )
    ]


def c5(effect, seeds=SEEDS):
    # Half of the paper's .05, and as much again above it, after division by the data's RMS of ½.
    pairs = {("network", "linear"): lambda sigma: 0.5 * (0.05 - 0.025 * effect) + (0.1 if 0.1 < sigma < 20 else 0.0)}
    return gaps(pairs, "references", seeds, n=1400, shrunk=False) + RMS


def c6(effect, seeds=SEEDS):
    pairs = {("linear", "gaussian"): lambda sigma: 0.5 * (0.05 - 0.025 * effect)}
    judged = gaps(pairs, "distillation", seeds, n=1400, shrunk=False)
    return judged + gaps(pairs, "distillation", seeds, n=1400, shrunk=False, of="multidelta") + RMS


def c7(effect, seeds=SEEDS):
    pairs = {
        ("network", "gaussian"): lambda sigma: 0.1 + 0.1 * bump(sigma),
        ("network", "multidelta"): lambda sigma: (0.1 + 0.1 * bump(sigma)) * math.exp(effect),
        ("multidelta", "gaussian"): lambda sigma: 0.4 * bump(sigma),
    }
    linear = {("network", "linear"): pairs["network", "gaussian"]}
    return gaps(pairs, "references", seeds, n=1400) + gaps(linear, "references", seeds, n=1400, shrunk=False)


def fits(errors, seeds, fvu=None):
    """Weight errors of distilled networks, by (inputs, n)."""
    found = []
    for seed in seeds:
        for (on, n), error in errors.items():
            tags = {"study": "distillation", "on": on, "n": n, "denoiser": "network", "seed": seed}
            for sigma in SIGMAS:
                weight = record("weight_error", error + 0.02, sigma=sigma, reference="gaussian of train", **tags)
                floor = record("weight_error_floor", 0.02, spread=0.0, sigma=sigma, **tags)
                found += [{**weight, "count": 400}, floor]
                if fvu is not None:
                    found.append(record("fvu", fvu[n], sigma=sigma, **tags))
    return found + DIM


def c8(effect, seeds=SEEDS):
    return fits({("held_out", 1400): 0.2 - 0.1 * effect, ("train", 1400): 0.01}, seeds)


def c9(effect, seeds=SEEDS):
    quantities = {"overlap": 0.1 + 0.8 * (0.8 + 0.1 * effect), "overlap_chance": 0.1, "overlap_ceiling": 0.9}
    return [
        record(quantity, value, study="distillation", **HELD_OUT, n=1400, sigma=sigma, k=k, seed=seed)
        for seed in seeds
        for sigma in SIGMAS
        for k in (1, 5, 10)
        for quantity, value in quantities.items()
    ]


def c10(effect, seeds=SEEDS):
    errors = {("held_out", 10): 0.2 + 0.1 * effect, ("held_out", 1400): 0.2, ("train", 10): 0.01, ("train", 1400): 0.01}
    return fits(errors, seeds, fvu={10: 0.4, 1400: 0.1})


def sweep(study, tag, values, gap_of, seeds, **tags):
    """Gaps of models along a sweep, with the multi-delta denoiser's that fix the window."""
    found = []
    for value in values:
        pairs = {
            ("network", "gaussian"): lambda sigma, value=value: gap_of(value),
            ("multidelta", "gaussian"): lambda sigma: 0.4 * bump(sigma),
        }
        found += gaps(pairs, study, seeds, **{tag: value}, **tags)
    return found


def c11(effect, seeds=SEEDS):
    small = dict(zip(TIMES, (0.3, 0.15, 0.2, 0.3, 0.35, 0.4), strict=True))
    large = dict(zip(TIMES, (0.3, 0.2, 0.15, 0.12, 0.12, 0.13), strict=True))
    copies = dict(zip(TIMES, (0.0, 0.0, 0.0, 0.0, 0.3, 0.9), strict=True))
    return (
        sweep("size", "n", SIZES, lambda n: 0.5 - 0.03 * effect * math.log(n), seeds)
        + sweep("capacity", "width", WIDTHS, lambda width: 0.1 + 0.05 * math.log(width), seeds, n=40)
        + sweep("time", "kimg", TIMES, small.get, seeds, n=40)
        + sweep("time", "kimg", TIMES, large.get, seeds, n=1400)
        + [
            record(
                "memorized_fraction", copies[kimg], 0.0, study="time", denoiser="network", n=40, kimg=kimg, seed=seed
            )
            for seed in seeds
            for kimg in TIMES
        ]
    )


def c12(effect, seeds=SEEDS):
    short = sweep("capacity", "width", WIDTHS, lambda w: 0.5 - 0.05 * effect * math.log(w), seeds, n=40, kimg=100)
    return short + sweep("capacity", "width", WIDTHS, lambda w: 0.3, seeds, n=40, kimg=800)


def c13(effect, seeds=SEEDS):
    widths = sweep("capacity", "width", WIDTHS, lambda width: 0.3, seeds, n=40)
    return sweep("size", "n", SIZES, lambda n: 0.5 - 0.03 * effect * math.log(n), seeds) + widths


def c14(effect, seeds=SEEDS):
    scores = [
        record("relative_gl", 0.5 + 0.08 * effect * math.log(n), study="size", denoiser="network", n=n, seed=seed)
        for seed in seeds
        for n in SIZES
    ]
    return scores + c1(1, seeds)


def c15(effect, seeds=SEEDS):
    roles = {"large": 0.2, "early": 0.2 * effect, "narrow": 0.2, "small": -0.2}
    tags = {"study": "strong", "denoiser": "network", "noise": "excess"}
    return [
        record("agreement_correlation", value, **tags, role=role, seed=seed)
        for seed in seeds
        for role, value in roles.items()
    ]


def c16(effect, seeds=SEEDS):
    tags = {"study": "strong", "denoiser": "gaussian", "reference": "gaussian_full", "noise": "same"}
    return [record("agreement_correlation", 0.95 + 0.03 * effect, **tags, seed=seed) for seed in seeds]


def c17(effect, seeds=SEEDS):
    linear = {("network", "gaussian"): lambda sigma: 0.01}
    others = {("network", "gaussian"): lambda sigma: 0.2 - 0.1 * effect}
    edm = {("network", "gaussian"): lambda sigma: 0.2}
    return (
        gaps(linear, "autoencoders", seeds, network="linear", preconditioning="none")
        + gaps(others, "autoencoders", seeds, network="dit", preconditioning="none")
        + gaps(edm, "autoencoders", seeds, network="ncsnpp", preconditioning="edm")
        + RMS
    )


def c18(effect, seeds=SEEDS):
    tags = {"study": "networks", "noise": "excess", "network": "ncsnpp"}
    return [
        found
        for seed in seeds
        for found in (
            record("agreement_correlation", 0.2 * effect, **tags, reference="ddpmpp", seed=seed),
            record("agreement_lowpass_correlation", 0.3, **tags, reference="gaussian", seed=seed),
        )
    ]


def c19(effect, seeds=SEEDS):
    found = []
    for seed in seeds:
        for denoiser, value in (("network", 0.01 + 0.04 * (1 - effect)), ("gaussian", 0.01)):
            tags = {"study": "identity", "on": "held_out", "n": 1400, "denoiser": denoiser, "seed": seed}
            found += curve("identity_nmse", lambda sigma, value=value: value, **tags)
    return found


def c20(effect, seeds=SEEDS):
    return [
        record(
            "jacobian_overlap",
            0.8 + 0.1 * effect if sigma >= 10 else 0.2,
            **{"study": "jacobian", "denoiser": "network", "sigma": sigma, "k": 5, "seed": seed},
        )
        for seed in seeds
        for sigma in SIGMAS
    ]


def c21(effect, seeds=SEEDS):
    tags = {"quantity": "theorem_residual", "study": "distillation", "data": "toy"}
    return [{**tags, "value": 1e-14}, {**tags, "value": 1e-14 if effect > 0 else 1e-6 if effect < 0 else math.nan}][
        effect == 0 :
    ]


BUILDERS = {f"C{number}": globals()[f"c{number}"] for number in range(1, 22)}
