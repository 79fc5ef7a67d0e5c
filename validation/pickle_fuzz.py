"""What becomes of 10,000 pickles that are hostile or damaged.

    python validation/pickle_fuzz.py > validation/pickle_fuzz.txt

Every file is read by `gausslens.zoo.edm.load_edm` in this process, while a hook (see `sys.audit`) records everything that
Python reports to do besides opening that file; the calls would leave a file behind, too. A file is refused, by a
`CheckpointError`, or read: flipped bits in weights are weights. Memory is how far the process's peak rose above what it was
after one file in order.
"""

import argparse
import random
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from edm_files import edm_pickle
from hostile_pickles import TINY, bombs, calls, mutated, placed
from hostile_reader import Watch, load_edm, peak_memory

NAMES = [
    *(
        "os.system",
        "builtins.exec",
        "builtins.eval",
        "importlib.import_module",
        "collections.OrderedDict",
        "numpy.dtype",
    ),
    *("torch.storage._load_from_bytes", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"),
    *("torch_utils.persistence._reconstruct_persistent_obj", "torch.nn.modules.container.ModuleDict", "_codecs.encode"),
]
PIECES = [
    *(b"N", b"\x88", b"\x89", b"K\x01", b"M\x00\x01", b"J\xff\xff\xff\xff", b"\x8a\x01\x7f", b"G?\xe0\0\0\0\0\0\0"),
    *(b"\x8c\x01x", b"\x8c\x03ema", b"\x8c\x05state", b"C\x01x", b"]", b")", b"}", b"\x8f", b"(", b"0", b"2", b"1"),
    *(b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x86", b"\x87", b"l", b"d", b"\x90", b"\x91", b"R", b"R", b"\x81", b"b"),
    *(
        b"Q",
        b"\x93",
        b"\x94",
        b"q\x00",
        b"h\x00",
        b"\x95\0\0\0\0\0\0\0\0",
        b"\x80\x04",
        b"\x97",
        b"\x98",
        b"\x92",
        b"o",
    ),
    *(f"c{name.rpartition('.')[0]}\n{name.rpartition('.')[2]}\n".encode() for name in NAMES),
]


def damaged(count, canary):
    """Kinds and contents of `count` files."""
    chance = random.Random(0)
    bases = [edm_pickle(TINY, protocol) for protocol in (2, 4, 5)]
    made = 0
    for call in calls(canary).values():
        for content in placed(call).values():
            yield "calls", content
            made += 1
    for content in bombs().values():
        yield "asking for too much", content
        made += 1
    share = (count - made) // 8
    for _ in range(share):
        content = chance.choice(bases)
        yield "cut short", content[: chance.randrange(len(content))]
    for _ in range(3 * share):
        content = bytearray(chance.choice(bases))
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        yield "one bit flipped", bytes(content)
    for _ in range(share):
        pieces = chance.choices(PIECES, k=chance.choice((3, 10, 30, 100)))
        yield "random instructions", b"\x80\x04" + b"".join(pieces) + b"."
    for _ in range(count - made - 5 * share):
        yield "damaged otherwise", mutated(chance.choice(bases), chance)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    options = parser.parse_args()
    outcomes, slowest, events, failed = defaultdict(Counter), Counter(), Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pkl"
        path.write_bytes(edm_pickle(TINY))
        load_edm(path)
        watch, before = Watch(), peak_memory()
        for kind, content in damaged(options.count, Path(folder) / "canary"):
            path.write_bytes(content)
            result = watch.read(path)
            outcome = result["outcome"]
            outcomes[kind][
                "read" if outcome == "read" else "failed" if outcome.startswith("FAILED") else "refused"
            ] += 1
            slowest[kind] = max(slowest[kind], result["seconds"])
            events[kind] += len(result["events"])
            if outcome.startswith("FAILED"):
                failed.append(outcome)
        left = [name.name for name in Path(folder).iterdir() if name != path]
        risen = (peak_memory() - before) / 2**20
    print(f"{'files':22}{'number':>8}{'refused':>9}{'read':>7}{'other errors':>14}{'events':>8}{'slowest':>10}")
    for kind, counts in outcomes.items():
        row = [sum(counts.values()), counts["refused"], counts["read"], counts["failed"], events[kind]]
        print(f"{kind:22}{row[0]:>8,}{row[1]:>9,}{row[2]:>7,}{row[3]:>14}{row[4]:>8}{slowest[kind]:>8.2f} s")
    total = sum(outcomes.values(), Counter())
    print(f"{'all':22}{sum(total.values()):>8,}{total['refused']:>9,}{total['read']:>7,}{total['failed']:>14}")
    print(f"files left behind by calls: {len(left)}; memory at its peak: {risen:.0f} MB above reading a file in order")
    for message in failed[:10]:
        print(message)


if __name__ == "__main__":
    main()
