"""Levels of what an audit says of images: whether two sets are exchangeable, whether copies exist, and which they are.

Every table is a function of how many times as many trials to run, and of a seed; it yields its lines.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import torch
from levels_images import SAMPLES, SIDE, Drawn, draw, draw_groups
from levels_tables import LEVELS, clopper_pearson, line_of_false_names, mark, sources, table_of_levels

from gausslens.auditing.controls import ONCE, REPEATED, fisher_p
from gausslens.auditing.copies import Copies, find_copies
from gausslens.auditing.evidence import Evidence
from gausslens.auditing.exchangeability import check_exchangeability
from gausslens.auditing.families import PLAIN, Family, families_of
from gausslens.images import quantize

RATIOS = ((400, 400), (500, 100), (600, 50))


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
            found = Evidence(check_exchangeability(drawn.pool, permutations=999, seed=number))
            neighbors[name] += [record["value"] for record in found.find("neighbors_p")]
            detail[name] += [record["value"] for record in found.find("detail_p")]
    yield from table_of_levels("Exchangeability, neighbours (999 permutations)", neighbors.items())
    yield from table_of_levels("Exchangeability, detail (999 permutations)", detail.items())


def look(drawn: Drawn, families: list[Family] | None = None) -> Copies:
    """The search for copies; without parts and transformations unless they are asked for."""
    return find_copies(drawn.samples, drawn.pool, families=families or [Family(PLAIN)])


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
            found = look(make(random), families_of((1, SIDE, SIDE)))
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
