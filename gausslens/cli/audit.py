"""Find out whether a model memorises its training images.

The verdict is memorizing, partly memorizing, generalizing, or cannot tell. The audit names the samples that are copies,
reports whether the model's losses reveal its training images, and recommends what to do. Nothing in a model's file is
executed. The same command continues an audit that was stopped.

Examples:
  gausslens audit runs/train-digits-1a2b3c4d
  gausslens audit runs/train-digits-1a2b3c4d --kimg 40
  gausslens audit network.pkl --train cifar10.zip --held-out cifar10-test.zip
  gausslens audit my-diffusers-folder --train photos/ --unseen 500 --size 64 --blur
  gausslens audit mypackage.models:denoiser --train scans.npz --held-out new-scans.npz --samples 0
  gausslens audit network.pkl --train scans/ --held-out new-scans/ --groups 'patient([0-9]+)'
  gausslens audit runs/train-digits-1a2b3c4d --fail-on partly-memorizing membership cannot-tell --json > audit.json
"""

import os

from ..auditing.config import AuditConfig as Options
from ..store.typed_command import typed_command, typed_options
from . import GlobalOptions, bad_input, print_options

_FOUND = 3  # exit code for a result that --fail-on names


def run(options: Options, how: GlobalOptions) -> int:
    """Audit, print the result and write the page; returns the exit code."""
    from ..auditing.audit import REPORT, audit_in_folder
    from ..auditing.inputs import load_context, resolve
    from ..auditing.page import make_page
    from ..auditing.summary import as_json
    from ..generation import best_device
    from ..report import save_report

    device = best_device(cpu=options.cpu)
    with bad_input():
        context = load_context(options, device=device, progress=how.progress, trial=how.dry_run)
    if how.dry_run:
        known, unseen = context.pictures or (context.images.train, context.images.held_out)
        note = f"There are {len(known):,} training and {len(unseen):,} held-out images."
        print_options(resolve(context), note)
        return 0
    run, audit = audit_in_folder(context, progress=how.progress)
    command = typed_command("audit", options.model, typed_options(options))
    page = run.path / REPORT
    save_report(page, make_page(audit, context, run.provenance, command), images=options.images)
    if options.json:
        print(as_json(audit, page=os.path.relpath(page)))
    elif not how.quiet:
        print(audit)
        print(f"\nThe records are in {run.path}/records.jsonl, the page is {page}")
    found = {audit.verdict.verdict.replace(" ", "-")}
    if "memorizing" in found:  # which is worse than partly memorizing
        found.add("partly-memorizing")
    if audit.verdict.leaks:
        found.add("membership")
    return _FOUND if found & {*options.fail_on} else 0
