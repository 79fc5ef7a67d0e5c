"""Training a little longer at one noise level: is a network far from the Gaussian there because it is undertrained?

Training draws few high noise levels: of 512 thousand images about ten have σ > 42. So training continues at one level alone,
by Adam on the plain denoising loss with fresh noise and a step size that falls to 0, and the network is compared with the
Gaussian on the way. A middle level, which training draws often, is the control. A distance that shrinks at high noise but
not at the control was a lack of training.
"""

import copy
from collections.abc import Iterator

import torch

from ...evaluation.model_tasks import evaluation_of
from ...experiments.task import Task, TaskContext, task
from ...images import dequantize
from ...measures.gap import gap
from ...noise import draw_noise, generator, karras_sigmas
from ...store.records import Record, of_curve
from ..plan import Plan

QUANTITY = "refined_rmse"
_PLACES = (1, 5)  # of ten levels: σ = 42 and, as a control, 1.5
_BATCH, _STEPS, _LOOKS = 32, 64, 4
_STEP_SIZE, _RISE = 2e-4, 5  # of Adam, and the steps over which it rises before it falls


def finetune_task(plan: Plan, model: Task) -> Task:
    """The task that trains a model further at each of the two levels."""
    sigmas = tuple(karras_sigmas(10)[list(_PLACES)].tolist())
    calls = len(sigmas) * (3 * _BATCH * _STEPS + (_LOOKS + 1) * plan.count)
    return plan.on_model(refine_at_levels, model, calls=calls, sigmas=sigmas)


@task("refine_at_levels", version=2, of_0_1="studies.refining")
def refine_at_levels(context: TaskContext) -> Iterator[Record]:
    """Train the network on its own training images at one level after the other, each time from its final weights.

    Yields:
        `refined_rmse` between the network and the Gaussian of its training images, on held-out images after `further` ones.
    """
    evaluation = evaluation_of(context)
    train, held_out, seed = evaluation.images.train, evaluation.inputs["held_out"], evaluation.config.seed
    context.tags.update(on="held_out", denoiser="network", reference="gaussian")
    for place, sigma in enumerate(evaluation.sigmas.tolist()):
        network = copy.deepcopy(evaluation.network).requires_grad_(True)
        optimizer = torch.optim.Adam(network.parameters(), lr=_STEP_SIZE)
        chosen = torch.randint(len(train), (_STEPS, _BATCH), generator=generator(seed, "refine"), device="cpu")
        for step in range(_STEPS + 1):
            if step % (_STEPS // _LOOKS) == 0:
                context.report((place + step / _STEPS) / len(evaluation.sigmas))
                curve = evaluation.curve(gap, held_out, network, evaluation.references["gaussian"], sigmas=[sigma])
                yield from of_curve(QUANTITY, curve, further=step * _BATCH)
            if step == _STEPS:
                break
            for group in optimizer.param_groups:
                group["lr"] = _STEP_SIZE * min((step + 1) / _RISE, 1 - step / _STEPS)
            draws = torch.arange(step * _BATCH, (step + 1) * _BATCH)
            noise = draw_noise(seed, draws, evaluation.images.shape, stream="refine").to(evaluation.device)
            clean = dequantize(train[chosen[step]]).to(evaluation.device)
            network.train()
            denoised = network(clean + sigma * noise, clean.new_full((_BATCH,), sigma))
            optimizer.zero_grad()
            (denoised - clean).square().mean().backward()
            optimizer.step()
