"""The ladder of known cases: what the audit's rules say of models of which the truth is known.

    python validation/ladder.py [--part tuning] [--photos cifar10.npz] [--sets digits ...] [--seeds 10 ...] [--out F]

The truth is in ladder_truth.json, which was written before the rules; ladder_cases.py makes the models. Rules were tuned on
the part "tuning", digits and Gaussian data of seeds 0 and 1; margins of foreignness on photos, seeds 0 to 5, after swapped
channels had gone unnoticed in 3 of 16 cases of photos of seeds 10 and 13 (seeds 20 to 25 have taken their place). The part
"scoring" has other seeds, and fashion and mixtures, which played no part in tuning. By default only losses and foreignness
are used; `--samples 500` draws so many of each model, looks for copies, and judges by them too. Photos are 8×8 patches of
the photographs in `--photos` (any source of images of at least 8×8), or of made-up ones: discs over one another.
"""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from ladder_cases import (
    SETS,
    load_pixels,
    load_source,
    mixed,
    of_swapped_channels,
    of_unit_range,
    other_pixels,
    random_network,
    references,
    trained_network,
)
from torch import Tensor

from gausslens.auditing.copies import find_copies
from gausslens.auditing.evidence import Evidence
from gausslens.auditing.losses import measure_losses
from gausslens.auditing.pool import Pool
from gausslens.auditing.preprocessing_check import check_foreignness
from gausslens.auditing.steps import loss_records
from gausslens.auditing.verdict import judge
from gausslens.data import Splits
from gausslens.evaluation.cached_denoiser import CachedDenoiser
from gausslens.images import as_tensor
from gausslens.measures.intervals import Estimate
from gausslens.noise import draw_noise, karras_sigmas
from gausslens.sampling import sample
from gausslens.store.records import Record, of_estimate, record_of

TRUTH = json.loads(Path(__file__).with_name("ladder_truth.json").read_text())
SIGMAS = karras_sigmas(10)


def judged(
    models: dict[str, Any], train: Tensor, held_out: Tensor, case: dict[str, Any], samples: int = 0
) -> Iterator[dict[str, Any]]:
    """Verdicts on several models of the same images, with what was measured."""
    gaussian, multidelta = references(train)
    denoisers = {**models, "gaussian": gaussian, "multidelta": CachedDenoiser(multidelta)}
    pool = Pool(train, held_out)
    losses = measure_losses(denoisers, pool, SIGMAS)
    for kind, denoiser in models.items():
        foreignness = check_foreignness(denoiser, pool, SIGMAS)
        copied = copies_of(denoiser, pool, samples) if samples else []
        evidence = Evidence([*loss_records(losses, kind), foreignness, *copied])
        verdict = judge(evidence)
        truth = truth_of(kind, with_samples=samples > 0)
        yield {
            **case,
            "kind": kind,
            "verdict": verdict.verdict,
            "right": verdict.verdict in truth,
            "truth": truth,
            "lean": None if verdict.lean is None else [verdict.lean.value, verdict.lean.low, verdict.lean.high],
            "sigma": verdict.sigma,
            "foreign": foreignness["expected"],
            "gain": foreignness.get("high"),
            "copied_share": evidence.value("copied_share"),
            "reason": verdict.reasons[0],
            "evidence": {
                **{name: [record["value"] for record in evidence.find(name)] for name in ("window", "intermediate")},
                **{
                    name: [None if value is None else round(value.value, 4) for value in at_all_levels(evidence, name)]
                    for name in ("rho", "position", "retrieval", "train_loss", "held_out_loss")
                },
            },
        }


def at_all_levels(evidence: Evidence, quantity: str) -> list[Estimate | None]:
    """A quantity at each noise level, None where it is not known."""
    known = evidence.by_level(quantity)
    return [known.get(sigma) for sigma in SIGMAS.tolist()]


def copies_of(denoiser: Any, pool: Pool, samples: int) -> list[Record]:
    """What samples of a model show, as the audit has it."""
    latents = draw_noise(0, torch.arange(samples), tuple(pool.train.shape[1:]), stream="latents")
    gaussian = references(pool.train)[0]
    made, control = (sample(each, latents, dtype=torch.float32) for each in (denoiser, gaussian))
    found = find_copies(made, pool, control)
    return [
        record_of("copies_exist", found.exist),
        of_estimate("copied_share", found.share),
        record_of("overlap_decides", found.overlap_decides),
        *({"quantity": "copied_part", "window": part} for part in found.parts),
    ]


def truth_of(kind: str, *, with_samples: bool = False) -> list[str]:
    """The verdicts that are right for a kind of model."""
    group, _, rest = kind.partition(" ")
    if group == "mixed":
        seen = TRUTH["mixed with samples"] if with_samples else {}
        return seen.get(rest, TRUTH["mixed"][rest])
    return {**TRUTH["trained"], **TRUTH["broken"]}[kind]


def closed_form_cases(
    name: str, seed: int, n_train: int, photos: str | None, samples: int = 0
) -> Iterator[dict[str, Any]]:
    """Mixed and broken models of one set of training images."""
    source = load_source(name, n_train, TRUTH["held_out"], seed, photos)
    train, held_out = source.train, source.held_out
    shape, mean = tuple(train.shape[1:]), train.mean(0)
    memorizer = CachedDenoiser(references(train)[1])
    generalizer = CachedDenoiser(source.posterior_mean)
    models = {f"mixed {w}": mixed(memorizer, generalizer, float(w)) for w in TRUTH["mixed"]}
    models["random weights"] = random_network(shape, seed)
    models["identity"] = lambda x, sigma: x
    models["constant mean"] = lambda x, sigma: mean.to(x).expand_as(x)
    models["unscaled memorizer"] = of_unit_range(memorizer.denoiser)
    models["unscaled generalizer"] = of_unit_range(source.posterior_mean)
    others = other_pixels(name, shape, 1000, seed, photos)
    models["other memorizer"] = references(others[:n_train])[1]
    models["other generalizer"] = references(others)[0]
    if shape[0] == 3:
        models["swapped memorizer"] = of_swapped_channels(memorizer.denoiser)
        models["swapped generalizer"] = of_swapped_channels(source.posterior_mean)
    case = {"set": name, "seed": seed, "n": n_train}
    yield from judged(models, train, held_out, case, samples)
    scaled = {"scaled memorizer": memorizer.denoiser, "scaled generalizer": source.posterior_mean}
    yield from judged(scaled, (train + 1) / 2, (held_out + 1) / 2, case, samples)


def trained_cases(seed: int, folder: Path) -> Iterator[dict[str, Any]]:
    """Networks trained on few and on many digits, and what they say of images that are not theirs."""
    digits = load_pixels("digits", None)
    splits = Splits(len(digits), held_out=397, seed=seed)
    held_out = digits[as_tensor(splits.held_out)]
    fashion = other_pixels("digits", tuple(digits.shape[1:]), 800, seed, None)
    for kind, size in TRUTH["trained sizes"].items():
        network = trained_network(size, seed, folder)
        train = digits[as_tensor(splits.subset(size))]
        case = {"set": "digits (trained)", "seed": seed, "n": size}
        yield from judged({kind: network}, train, held_out, case)
        yield from judged({"scaled trained": network}, (train + 1) / 2, (held_out + 1) / 2, case)
        yield from judged({"other trained": network}, fashion[: min(size, 400)], fashion[400:], case)


def all_cases(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All cases of a part that were asked for."""
    part = TRUTH[options.part]
    seeds = part if options.part == "scoring" else dict.fromkeys(part["sets"], part["seeds"])
    for seed in sorted({seed for own in seeds.values() for seed in own}):
        if options.seeds is not None and seed not in options.seeds:
            continue
        for name in (name for name in options.sets if seed in seeds.get(name, ())):
            for n_train in TRUTH["sizes"][name]:
                if options.sizes is None or n_train in options.sizes:
                    yield from closed_form_cases(name, seed, n_train, options.photos, options.samples)
        if options.trained and seed in TRUTH["trained seeds"][options.part]:
            yield from trained_cases(seed, options.runs)


def report(results: list[dict[str, Any]]) -> None:
    """How many verdicts are right, by set and by kind, and which are not."""
    for key in ("set", "kind"):
        counts = Counter(result[key] for result in results)
        right = Counter(result[key] for result in results if result["right"])
        print(f"\n| {key} | right | of |\n|---|---|---|")
        for name, count in counts.items():
            print(f"| {name} | {right[name]} | {count} |")
    for pure, opposite in (("memorizers", "generalizing"), ("generalizers", "memorizing")):
        known = [result for result in results if result["kind"] in TRUTH[f"pure {pure}"]]
        wrong = sum(result["verdict"] == opposite for result in known)
        print(f"\npure {pure} called {opposite}: {wrong} of {len(known)}")
    for result in results:
        if not result["right"]:
            case = ", ".join(str(result[key]) for key in ("set", "seed", "n", "kind"))
            print(f"wrong: {case}: {result['verdict']}: {result['reason']}")
    print(f"\nright: {sum(result['right'] for result in results)} of {len(results)}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What the audit says of models whose truth is known.")
    parser.add_argument("--part", choices=("tuning", "scoring"), default="scoring")
    parser.add_argument("--sets", nargs="*", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, nargs="*", help="some of the part's seeds; by default all")
    parser.add_argument("--sizes", type=int, nargs="*", help="some of the numbers of training images; by default all")
    parser.add_argument("--samples", type=int, default=0, help="of each closed-form model, to look for copies among")
    parser.add_argument("--trained", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--photos", help="photographs to take patches from; by default they are made up")
    parser.add_argument("--runs", type=Path, default=Path("runs/ladder"), help="where trained networks are kept")
    parser.add_argument("--out", type=Path, help="write every case here, one a line")
    parser.add_argument("--read", type=Path, nargs="*", help="report what was written before, and run nothing")
    options = parser.parse_args()
    if options.read:
        report([json.loads(line) for path in options.read for line in path.read_text().splitlines()])
        return
    results, start = [], time.perf_counter()
    for result in all_cases(options):
        results.append(result)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    report(results)
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
