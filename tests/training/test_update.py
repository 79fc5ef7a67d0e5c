"""One update of the weights: Adam on Eq. (52), and the same whether or not it is recorded."""

from types import SimpleNamespace

import pytest
import torch

from gausslens import Preconditioned, TrainConfig
from gausslens.nn import build_network
from gausslens.training.batches import Batch
from gausslens.training.update import WeightUpdate, make_adam

SHAPE = (1, 8, 8)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def _losses(device, *, recordable, labels=False, steps=12):
    torch.manual_seed(0)
    config = TrainConfig("digits", labels=labels)
    denoiser = Preconditioned(build_network("unet", SHAPE, classes=3 if labels else 0)).to(device).train()
    accelerator = SimpleNamespace(
        device=torch.device(device),
        num_processes=1 if recordable else 2,
        prepare=lambda module: module,
        backward=torch.Tensor.backward,
    )
    update = WeightUpdate(config, denoiser, accelerator, torch.enable_grad)
    losses = []
    for step in range(steps):
        rng = torch.Generator().manual_seed(step)
        x0, eps = torch.randn(2, 16, *SHAPE, generator=rng)
        sigma, classes = torch.rand(16, generator=rng) + 0.1, torch.randint(0, 3, (16,), generator=rng)
        parts = [part.to(device) for part in (x0, sigma, eps, classes)]
        batch = Batch(*parts[:3], labels=parts[3] if labels else None, augment=None)
        losses.append(update(batch, 1e-3 * (step + 1)))
    return torch.stack(losses).cpu(), update, denoiser


@pytest.mark.parametrize("device", DEVICES)
def test_an_update_is_adam_on_the_weighted_error(device):
    torch.manual_seed(0)
    denoiser = Preconditioned(build_network("unet", SHAPE)).to(device).train()
    plain = torch.optim.Adam(denoiser.parameters(), lr=3e-3)
    expected = []
    for step in range(4):
        rng = torch.Generator().manual_seed(step)
        x0, eps = (part.to(device) for part in torch.randn(2, 16, *SHAPE, generator=rng))
        sigma = (torch.rand(16, generator=rng) + 0.1).to(device)
        plain.param_groups[0]["lr"] = 1e-3 * (step + 1)
        errors = (denoiser(x0 + sigma[:, None, None, None] * eps, sigma) - x0).square().mean((1, 2, 3))
        loss = ((sigma**2 + 0.25) / (0.5 * sigma) ** 2 * errors).mean()
        plain.zero_grad()
        loss.backward()
        plain.step()
        expected.append(loss.detach())
    losses, _, _ = _losses(device, recordable=False, steps=4)
    torch.testing.assert_close(losses, torch.stack(expected).cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("labels", [False, True])
def test_recorded_updates_on_a_gpu_learn_the_same(labels):
    plain, _, _ = _losses("cuda", recordable=False, labels=labels)
    replayed, update, denoiser = _losses("cuda", recordable=True, labels=labels)
    assert update.recorder.replay is not None
    torch.testing.assert_close(replayed, plain, rtol=1e-3, atol=1e-4)
    assert all(parameter.isfinite().all() for parameter in denoiser.parameters())


@pytest.mark.parametrize("device", DEVICES)
def test_all_that_adam_remembers_is_there_before_the_first_step(device):
    denoiser = Preconditioned(build_network("unet", SHAPE)).to(device)
    adam = make_adam(denoiser, torch.device(device))
    before = {name: value for state in adam.state.values() for name, value in state.items()}
    for parameter in denoiser.parameters():
        parameter.grad = torch.ones_like(parameter)
    adam.step()
    after = {name: value for state in adam.state.values() for name, value in state.items()}
    assert before.keys() == {"step", "exp_avg", "exp_avg_sq"}
    assert all(after[name] is before[name] for name in after)
    assert before["step"] == 1
