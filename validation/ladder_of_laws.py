"""The ladder of laws: what the audit says of models that are exact posterior means, so that the truth is known.

    python validation/ladder_of_laws.py --part scoring --out laws.jsonl [--kinds partial ...] [--processes 2]
    python validation/ladder_of_laws.py --read laws.jsonl

The truth is in laws_truth.json, which was written before the audit saw any case. laws_specs.py says which cases there are,
laws_images.py draws their images, laws_cases.py makes their models, laws.py has the posterior means. In 18 steps a sampler
draws a few copies less than the law has (.41 and .43 of shares of .45, seen on mixture and digits; .45 in 120 steps), so
copies are counted, not presumed. A case that stands in `--out` is not done again: the same command goes on where it stopped.
"""

import argparse
import inspect
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from laws_cases import Case, build
from laws_specs import KINDS, SETS, TRUTH, Spec, specs
from torch import Tensor

import gausslens
from gausslens.errors import GausslensError
from gausslens.images import dequantize

STOPPED = "stopped"
_OTHER_WORDS = {"in transition": "partly memorizing"}
_TWICE = 2
_REASONS = 4


# What the audit says: the only lines that know how it says it.


def ask(case: Case, seed: int) -> dict[str, Any]:
    """The audit's answers to a case, and how many copies stand among its samples; None is what it does not say."""
    known = inspect.signature(gausslens.audit).parameters
    options: dict[str, Any] = {"samples": case.samples, "noises": TRUTH["noises"], "seed": seed}
    for name, pair in (("labels", case.labels), ("groups", case.groups)):
        if pair is not None and name in known:
            options |= {name: pair[0], f"held_out_{name}": pair[1]}
    try:
        audit = gausslens.audit(case.model, case.train, case.held_out, **options)
    except GausslensError as error:
        return {"verdict": STOPPED, "reasons": [str(error)]}
    word = audit.verdict.verdict
    smallest = {record["kind"]: record["value"] for record in audit.find("smallest_count")}
    share = next(iter(audit.find("copied_share")), None)
    named = audit.find("copied_original")
    pairs = [(record["sample"], record["image"]) for record in audit.find("copy") if not record.get("window")]
    refused = next(iter(audit.find("refused")), None)
    spoken = " ".join([str(audit), *audit.verdict.reasons]).lower()
    return {
        "verdict": _OTHER_WORDS.get(word, word),
        "reasons": list(audit.verdict.reasons[:_REASONS]),
        "copied_share": None if share is None else [share["value"], share["low"], share["high"]],
        "smallest": {kind: smallest.get(kind) for kind in ("spread", "concentrated")},
        # One record a copied original; an audit that has none of them names samples' originals by their pairs.
        "originals": sorted({record["image"] for record in named} or {image for _, image in pairs}),
        "pairs": pairs,
        "windows": sorted({str(record.get("window")) for record in audit.find("copied_part")}),
        "classes": sorted({int(record["label"]) for record in audit.find("copied_class")}),
        "refused": None if refused is None else str(refused.get("reason")),
        "neither": "neither" in spoken,
        "drawn": _drawn(audit.samples, case),
    }


def _drawn(samples: Tensor | None, case: Case) -> dict[int, list[int]]:
    """The samples that are copies of each memorised original, by the original's number."""
    if samples is None or not case.originals:
        return {}
    number_of = {place: number for number, places in enumerate(case.originals) for place in places}
    memorised = dequantize(case.train[list(number_of)], torch.float64).flatten(1)
    # As differences: a product loses the digits of small distances.
    distances = torch.cdist(
        dequantize(samples, torch.float64).flatten(1), memorised, compute_mode="donot_use_mm_for_euclid_dist"
    )
    nearest, which = distances.min(1)
    numbers, drawn = list(number_of.values()), defaultdict(list)
    for index in (nearest < TRUTH["copy_rmse"] * memorised.shape[1] ** 0.5).nonzero()[:, 0].tolist():
        drawn[numbers[int(which[index])]].append(index)
    return dict(drawn)


# What is right.


def judge(spec: Spec, case: Case, said: dict[str, Any]) -> dict[str, Any]:
    """What the audit said of a case, beside what is true: one line of the output."""
    drawn = said.pop("drawn", {})
    copies = {number: len(samples) for number, samples in drawn.items()}
    total, smallest = sum(copies.values()), said.get("smallest") or {}
    needed = count_needed(len(case.originals), smallest)
    due = needed is not None and total >= needed
    admissible = case.verdicts if due or case.not_due is None else dict.fromkeys(case.verdicts + case.not_due)
    stopped = said["verdict"] == STOPPED
    number_of = {place: number for number, places in enumerate(case.originals) for place in places}
    named = {number_of.get(image) for image in said.get("originals", ())}
    twice = {number for number, count in copies.items() if count >= _TWICE}
    copy_of = {sample: number for number, samples in drawn.items() for sample in samples}
    pairs = said.pop("pairs", [])
    return {
        "case": spec.key,
        **{name: getattr(spec, name) for name in ("kind", "set", "seed", "ratio", "name")},
        **dict(spec.numbers),
        **said,
        "right": case.may_stop if stopped else said["verdict"] in admissible,
        "admissible": list(admissible),
        "due": due if case.not_due is not None else None,
        "needed": needed,
        "copies": total,
        "originals_drawn": len(copies),
        "twice": len(twice),
        "twice_named": len(twice & named),
        "wrong_originals": sum(image not in number_of for image in said.get("originals", ())),
        "pairs": len(pairs),
        "wrong_pairs": sum(copy_of.get(sample, -1) != number_of.get(image, -2) for sample, image in pairs),
        "refusal_due": case.refused,
        "refusal_right": not stopped and (said.get("refused") is not None) == case.refused,
        "part_right": bool(said.get("windows")) if case.parts else None,
        "class_right": said.get("classes") == [case.label] if case.label is not None else None,
        "neither_right": said.get("neither", False) if case.neither else None,
    }


def count_needed(originals: int, smallest: dict[str, Any]) -> float | None:
    """How many copies of so many originals the audit says it would have found; None if it says of none."""
    concentrated, spread = smallest.get("concentrated"), smallest.get("spread")
    if originals == 1:
        return concentrated
    if originals >= 30:
        return spread
    return None if concentrated is None or spread is None else max(concentrated, spread)


def work(task: tuple[Spec, str | None]) -> dict[str, Any]:
    """One case from beginning to end."""
    torch.set_num_threads(1)
    spec, photos = task
    case = build(spec, photos)
    started = time.process_time()
    result = judge(spec, case, ask(case, spec.seed))
    return {**result, "seconds": round(time.process_time() - started, 2)}


# Tables.


def report(results: list[dict[str, Any]]) -> None:
    """How the audit did, by the bars of the contract."""
    by_kind = defaultdict(list)
    for result in results:
        by_kind[result["kind"]].append(result)
    for kind in KINDS:
        if kind in by_kind:
            print(f"\n## {kind}: {_part(by_kind[kind], 'right')} verdicts right")
            _TABLES[kind](by_kind[kind])
    print("\n## all")
    alike = [result for result in results if not result["refusal_due"] and result["verdict"] != STOPPED]
    print(f"falsely refused: {sum(result['refused'] is not None for result in alike)} of {len(alike)}")
    _table(results, lambda result: result["set"], {"right": "right"})
    print("\n| kind | cases | seconds of a core a case |\n|---|---|---|")
    for kind, own in by_kind.items():
        print(f"| {kind} | {len(own)} | {sum(result['seconds'] for result in own) / len(own):.1f} |")
    for result in results:
        if not result["right"]:
            reason = (result["reasons"] or [""])[0]
            print(f"wrong: {result['case']} ({result['copies']} copies): {result['verdict']}: {reason[:160]}")


def _report_copies(results: list[dict[str, Any]]) -> None:
    due = [result for result in results if result["due"]]
    others = [result for result in results if not result["due"]]
    print(f"as many copies drawn as it says it finds: {_part(due, 'right')} right;")
    print(f"  called generalizing there: {sum(result['verdict'] == 'generalizing' for result in due)}")
    print(f"fewer, or no count said: {_part(others, 'right')} right; verdicts: {_verdicts(others)}")
    for name, chosen in (("due", due), ("not due", others)):
        twice, found = (sum(result[key] for result in chosen) for key in ("twice", "twice_named"))
        wrong, pairs = (sum(result[key] for result in chosen) for key in ("wrong_originals", "pairs"))
        print(f"{name}: originals drawn twice or more that are named: {found} of {twice};", end=" ")
        print(f"originals named wrongly: {wrong}; of {pairs} pairs wrong: {sum(r['wrong_pairs'] for r in chosen)}")
    for column in ("ratio", "memorised", "share", "general"):
        if any(column in result for result in results):
            print()
            _table(due, lambda result, column=column: str(result[column]), {"right": "right, of those due"}, column)


def _report_plainly(column: str, *others: str) -> Callable[[list[dict[str, Any]]], None]:
    """A table by one column, of right verdicts and of some other thing that must be right."""

    def table(results: list[dict[str, Any]]) -> None:
        keys = {"right": "verdict right", **{key: key.replace("_", " ") for key in others}}
        _table(results, lambda result: str(result[column]), keys, column)

    return table


def _report_shifts(results: list[dict[str, Any]]) -> None:
    _report_plainly("change", "refusal_right")(results)
    print()
    _report_plainly("model", "refusal_right")(results)
    innocent = [result for result in results if result["model"] not in ("memoriser", "few copies")]
    guilty = sum(result["verdict"] in ("memorizing", "partly memorizing") for result in innocent)
    print(f"models that do not copy the training images, called memorizing or partly: {guilty} of {len(innocent)}")


def _report_parts(results: list[dict[str, Any]]) -> None:
    _report_plainly("law", "part_right")(results)
    for law, own in _grouped(results, lambda result: result["law"]).items():
        windows = Counter(window for result in own for window in result.get("windows", ()))
        print(f"windows named with {law}: {', '.join(f'{name} ({n})' for name, n in windows.items()) or 'none'}")


def _report_exchangeable(results: list[dict[str, Any]]) -> None:
    for model, own in _grouped(results, lambda result: f"{result['model']}, {result['ratio']}").items():
        print(f"{model}: falsely refused {sum(result.get('refused') is not None for result in own)} of {len(own)}")


_TABLES: dict[str, Callable[[list[dict[str, Any]]], None]] = {
    "partial": _report_copies,
    "repeated": _report_copies,
    "null": _report_plainly("name"),
    "shifts": _report_shifts,
    "parts": _report_parts,
    "local": _report_plainly("name", "neither_right"),
    "conditional": _report_plainly("ratio", "class_right"),
    "exchangeable": _report_exchangeable,
    "grouped": _report_copies,
}


def _table(
    results: list[dict[str, Any]], group: Callable[[dict[str, Any]], str], keys: dict[str, str], name: str = "set"
) -> None:
    """How many are right of each group, and the verdicts."""
    print(f"| {name} | {' | '.join(keys.values())} | verdicts |\n|{'---|' * (len(keys) + 2)}")
    for value, own in _grouped(results, group).items():
        print(f"| {value} | {' | '.join(_part(own, key) for key in keys)} | {_verdicts(own)} |")


def _grouped(results: list[dict[str, Any]], group: Callable[[dict[str, Any]], str]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        groups[group(result)].append(result)
    return groups


def _part(results: list[dict[str, Any]], key: str) -> str:
    return f"{sum(bool(result[key]) for result in results)} of {len(results)}"


def _verdicts(results: list[dict[str, Any]]) -> str:
    counts = Counter(result["verdict"] for result in results).most_common()
    return ", ".join(f"{verdict} {count}" for verdict, count in counts) or "none"


def read(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Results that were written, each case once; a last line that was cut short is left out."""
    found = {}
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                result = json.loads(line)
            except json.JSONDecodeError:
                continue
            found[result["case"]] = result
    return list(found.values())


def run(chosen: list[Spec], photos: str | None, processes: int) -> Iterator[dict[str, Any]]:
    """The results, in any order."""
    tasks = [(spec, photos) for spec in chosen]
    if processes == 1:
        yield from map(work, tasks)
        return
    with get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(work, tasks)


def main() -> None:
    parser = argparse.ArgumentParser(description="What the audit says of exact posterior means.")
    parser.add_argument("--part", choices=tuple(TRUTH["parts"]), default="scoring")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    parser.add_argument("--sets", nargs="*", choices=SETS, help="some of the part's sets; by default all")
    parser.add_argument("--seeds", type=int, nargs="*", help="some of the part's seeds; by default all")
    parser.add_argument("--limit", type=int, help="at most so many cases, evenly spread over those chosen")
    parser.add_argument("--photos", help="photographs to take patches from; by default they are made up")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--out", type=Path, help="write every case here, one a line; those that stand there are skipped"
    )
    parser.add_argument("--read", type=Path, nargs="*", help="report what was written before, and run nothing")
    options = parser.parse_args()
    if options.read:
        report(read(options.read))
        return
    chosen = list(specs(options.part, kinds=options.kinds, sets=options.sets, seeds=options.seeds))
    if options.limit and options.limit < len(chosen):
        chosen = list(islice(chosen, 0, None, -(-len(chosen) // options.limit)))
    keys = {spec.key for spec in chosen}
    done = [] if options.out is None or not options.out.exists() else read([options.out])
    results = [result for result in done if result["case"] in keys]
    finished = {result["case"] for result in results}
    left = [spec for spec in chosen if spec.key not in finished]
    for result in run(left, options.photos, options.processes):
        results.append(result)
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    report(results)


if __name__ == "__main__":
    main()
