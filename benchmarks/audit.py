"""How long the audit of a model of CIFAR-10's size takes on a GPU, and how much of it is the network's own calls.

    python benchmarks/audit.py --data cifar10.npz [--width 128] [--kimg 50] [--runs FOLDER] [--out FILE]

`cifar10.npz` holds 60,000 images of 32×32 (`images`), of which 10,000 are held out. NCSN++ is trained on the others for a
moment, since the time does not depend on what it has learned; then it is audited with the defaults: ten noise levels, 10,000
samples by 18 Heun steps. Time on the network is that between two events in the GPU's queue, before and after each of its
calls; all else, reading the images included, is the rest. The page is part of it.

Fifty times a second it is noted where the program is; `where_s` says how long it was inside each of the package's functions
outside of the network. A GPU is waited for where its numbers are needed, which need not be where they are computed.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import torch

from gausslens import Preconditioned, TrainConfig, train
from gausslens.auditing.audit import REPORT, audit_in_folder
from gausslens.auditing.config import AuditConfig
from gausslens.auditing.inputs import load_context
from gausslens.auditing.page import make_page
from gausslens.generation import best_device
from gausslens.nn.acceleration import FastDenoiser
from gausslens.report import save_report

RATE = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10.npz")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--kimg", type=float, default=50.0)
    parser.add_argument("--samples", type=int, help="by default the audit's own default")
    parser.add_argument("--model", help="a run to audit instead")
    parser.add_argument("--runs", help="where to keep runs; by default nowhere")
    parser.add_argument("--out", type=Path, help="a file of JSON lines to append the result to")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as nowhere:
        folder = args.runs or nowhere
        model = args.model
        if model is None:
            model = str(
                train(
                    TrainConfig(
                        args.data,
                        network="ncsnpp",
                        width=args.width,
                        batch=256,
                        kimg=args.kimg,
                        held_out=10_000,
                        compile=False,
                        out=folder,
                    )
                ).path
            )
        start = time.perf_counter()
        with timed_network() as spans, watched() as where:
            who = load_context(AuditConfig(model=model, samples=args.samples, out=folder), device=best_device())
            run, found = audit_in_folder(who)
            save_report(run.path / REPORT, make_page(found, who, run.provenance, "gausslens audit"))
            total = time.perf_counter() - start
        by_stage = Counter()
        for stage, before, after in spans:
            by_stage[stage] += before.elapsed_time(after) / 1e3
        network = sum(by_stage.values())
        record = {
            "model": model, "total_s": total, "network_s": network, "rest_s": total - network, "calls": len(spans),
            "stages_s": {r["stage"]: round(r["value"], 1) for r in found.records if r["quantity"] == "seconds"},
            "network_by_stage_s": {stage: round(seconds, 1) for stage, seconds in by_stage.items()},
            "verdict": found.verdict.verdict, "n_train": found.n_train, "samples": who.sample_count,
            "page": True,
            "hardware": torch.cuda.get_device_name(), "torch": torch.__version__,
            "gib": torch.cuda.max_memory_reserved() / 2**30,
            "where_s": {name: round(count / RATE, 1) for name, count in where.most_common(60)},
        }  # fmt: skip
        print(found)
        print(json.dumps(record), flush=True)
        if args.out:
            with args.out.open("a") as file:
                print(json.dumps(record), file=file)


@contextmanager
def watched():
    """Inside, a thread counts in which of the package's functions this one is, `RATE` times a second."""
    counts, over, main = Counter(), threading.Event(), threading.get_ident()

    def watch():
        while not over.wait(1 / RATE):
            frame, inside = sys._current_frames().get(main), set()
            while frame is not None:
                code = frame.f_code
                if "gausslens" in code.co_filename:
                    inside.add(f"{Path(code.co_filename).stem}.{code.co_name}")
                frame = frame.f_back
            if not inside & {"acceleration.forward", "preconditioned.forward"}:
                counts.update(inside)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield counts
    finally:
        over.set()
        thread.join()


def _stage():
    """The step of the audit that is being worked on: the innermost function of `steps`."""
    frame = sys._getframe()
    while frame is not None and Path(frame.f_code.co_filename).stem != "steps":
        frame = frame.f_back
    return "before" if frame is None else frame.f_code.co_name


@contextmanager
def timed_network():
    """Inside, every call of a network from outside of it leaves its stage and two events in the list that is yielded."""
    spans, inside = [], False

    def timed(forward):
        def wrapper(self, *args, **options):
            nonlocal inside
            if inside:
                return forward(self, *args, **options)
            inside = True
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            try:
                return forward(self, *args, **options)
            finally:
                after.record()
                spans.append((_stage(), before, after))
                inside = False

        return wrapper

    plain = {kind: kind.forward for kind in (FastDenoiser, Preconditioned)}
    for kind, forward in plain.items():
        kind.forward = timed(forward)
    try:
        yield spans
        torch.cuda.synchronize()
    finally:
        for kind, forward in plain.items():
            kind.forward = forward


if __name__ == "__main__":
    main()
