"""What tasks do for `gausslens how-many`: look at a trained network at each of its snapshots, and count copies."""

from collections.abc import Iterator

from ..evaluation.model_tasks import run_of, tags_of
from ..evaluation.records import of_estimate
from ..evaluation.references import load_run_images
from ..experiments.task import Task, TaskContext, task
from ..images import quantize
from ..measures.neighbors import nearest
from ..monitor.probe import Probe, ProbeImages, ProbeOptions
from ..paper.plan import Plan
from ..store.records import Record
from ..store.run import load_trained

_TIMES = (1 / 16, 1 / 8, 3 / 16, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
_STEPS = 18
_COUNT, _NOISES = 100, 4
_SHOWN = 12


def times(plan: Plan) -> tuple[float, ...]:
    """When networks are looked at, in kimg; the end is the last."""
    return (*(float(f"{share * plan.kimg:.3g}") for share in _TIMES), plan.kimg)


def copies_task(plan: Plan, n: int, seed: int, samples: int) -> Task:
    """The task that looks at a network; it needs the one that trains it."""
    model = plan.model(n, seed, split_seed=seed, snapshots=times(plan)[:-1])
    calls = (len(times(plan)) + 1) * 2 * _COUNT * _NOISES * 3 + len(times(plan)) * samples * _STEPS
    return plan.on_model(look_at_copies, model, calls=calls, samples=samples)


@task("look_at_copies", version=2)
def look_at_copies(context: TaskContext) -> Iterator[Record]:
    """Look at the network of the first input at each snapshot (see `looks`). Options: `samples`.

    Its arrays hold some samples of the end, uint8 (k, c, h, w), and the training images `nearest` to them.
    """
    run, samples = run_of(context.inputs[0]), context.options["samples"]
    images = load_run_images(run, data=context.options.get("data"))
    sets = images.train, images.held_out, images.train_labels, images.held_out_labels
    probed = ProbeImages(*sets, (-1.0, 1.0), images.train_groups)
    how = ProbeOptions(_COUNT, _NOISES, samples, _STEPS, run.config.seed)
    probe = Probe(probed, how, sigmas=None, device=context.device)
    for number, kimg in enumerate(context.each(run.snapshots)):
        network = load_trained(run, kimg=kimg, device=context.device)
        look, tags = probe.look(network, kimg, number), tags_of(run, kimg)
        if look.rho is not None:
            yield of_estimate("rho", look.rho, **tags)
        yield of_estimate("gaussian_rmse", look.gaussian, **tags)
        assert look.memorized is not None  # networks of all noise levels can be sampled
        yield of_estimate("memorized_fraction", look.memorized, copies=look.copies, **tags)
    for on, relative in zip(("train", "held_out"), probe.relative_losses(network), strict=False):
        yield of_estimate("relative_loss", relative, on=on, **tags)
    shown = quantize(probe.generate(network, number)[:_SHOWN].cpu())
    _, indices = nearest(shown, images.train)
    context.save_arrays(samples=shown, nearest=images.train[indices[:, 0]])
