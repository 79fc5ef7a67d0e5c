"""The monitor: what it marks on denoisers on their way from the Gaussian to the multi-delta one, and what it costs."""

import itertools
import json
import math
import re
import time
from pathlib import Path

import pytest
import torch

from gausslens import CheckpointError, ConfigError, DataError, GaussianDenoiser, Moments, MultiDeltaDenoiser
from gausslens.measures.intervals import proportion_estimate
from gausslens.monitor.monitor import GeneralizationMonitor
from gausslens.monitor.probe import position

WEIGHTS = (-1.0, -0.6, -0.3, -0.1, 0.0, 0.1, 0.5, 0.7, 0.85, 1.0, 1.0)
CLOSEST = WEIGHTS.index(0.0)


def smooth_images(n, seed=0):
    """Images of 6×6 pixels with few independent directions, as real ones have."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(36, 36, generator=generator))[0] * torch.logspace(0, -1.5, 36)
    return (torch.randn(n, 36, generator=generator) @ basis.T).clamp(-1, 1).reshape(n, 1, 6, 6)


IMAGES = smooth_images(200)
TRAIN, HELD_OUT = IMAGES[:80], IMAGES[80:]
GAUSSIAN = GaussianDenoiser(Moments.fit(TRAIN)).float()


def multidelta(x, sigma):
    """The posterior mean over the training images, as its formula says."""
    rows, known = x.double().flatten(1), TRAIN.double().flatten(1)
    weights = (-(torch.cdist(rows, known) ** 2) / (2 * sigma.double()[:, None] ** 2)).softmax(1)
    return (weights @ known).reshape(x.shape).to(x.dtype)


def mixture(weight):
    """From the input (-1) to the Gaussian (0) to the multi-delta denoiser (1)."""

    def denoise(x, sigma):
        if weight < 0:
            return (1 + weight) * GAUSSIAN(x, sigma) - weight * x / (1 + sigma[:, None, None, None])
        return (1 - weight) * GAUSSIAN(x, sigma) + weight * multidelta(x, sigma)

    return denoise


def watched(monitor, weights=WEIGHTS, first=0):
    for step, weight in enumerate(weights, first):
        monitor.look(mixture(weight), step)
    return monitor


@pytest.fixture(scope="module")
def seen():
    return watched(GeneralizationMonitor(TRAIN, HELD_OUT))


def test_rho_goes_from_the_gaussian_to_the_multidelta(seen):
    rho = [look["rho"] for look in seen.looks]
    assert rho[CLOSEST] == pytest.approx(0, abs=1e-4)
    assert rho[-1] == pytest.approx(1, abs=1e-4)
    assert rho[CLOSEST:-1] == sorted(rho[CLOSEST:-1])


def test_distances_are_those_of_the_mixture(seen):
    for look, weight in list(zip(seen.looks, WEIGHTS, strict=True))[CLOSEST:]:
        assert look["gaussian_rmse"] == pytest.approx(weight * seen.looks[-1]["gaussian_rmse"], abs=1e-5)
        assert look["multidelta_rmse"] == pytest.approx((1 - weight) * seen.looks[-1]["gaussian_rmse"], abs=1e-5)
        assert look["gaussian_rmse_low"] <= look["gaussian_rmse"] <= look["gaussian_rmse_high"]


def test_the_moments_are_marked(seen):
    closest, memorizing = seen.closest_to_gaussian, seen.memorization
    assert (closest.step, closest.settled) == (CLOSEST, True)
    fractions = [look["memorized_fraction"] for look in seen.looks]
    assert max(fractions[: CLOSEST + 1]) == 0
    assert fractions[-1] == 1
    onset = next(step for step, fraction in enumerate(fractions) if fraction > 0.05)
    assert memorizing.step == onset
    assert memorizing.earliest < onset < memorizing.latest
    assert seen.should_stop
    assert seen.recommended < onset
    held_out = {look["step"]: look["loss_held_out"] for look in seen.looks if look["step"] < onset}
    assert seen.recommended == min(held_out, key=held_out.get)


def test_what_is_recommended_was_to_be_kept_then_and_ever_since(seen):
    kept = set()
    for look in seen.looks:
        kept = (kept | ({look["step"]} if look["keep"] else set())) & set(look["wanted"])
    assert seen.recommended in kept
    assert len(kept) <= 3


def test_a_network_that_stays_by_the_gaussian_is_not_stopped():
    monitor = watched(GeneralizationMonitor(TRAIN, HELD_OUT), (-0.6, -0.2, 0.0, 0.02, 0.0, 0.02))
    assert monitor.memorization is None
    assert not monitor.should_stop
    assert "No memorising" in monitor.summary()
    assert "suggest" not in monitor.summary()
    assert monitor.recommended in (2, 3, 4, 5)


def test_without_held_out_images_the_one_closest_to_the_gaussian_is_kept():
    monitor = watched(GeneralizationMonitor(TRAIN))
    assert monitor.looks[0]["rho"] is None
    assert monitor.recommended == monitor.closest_to_gaussian.step == CLOSEST
    early = watched(GeneralizationMonitor(TRAIN), WEIGHTS[:3])
    assert early.recommended == 2, "nothing is memorised: the latest"


def test_without_samples_rho_decides():
    monitor = watched(GeneralizationMonitor(TRAIN, HELD_OUT, samples=0, sigmas=(1.0, 0.5)))
    assert monitor.looks[0]["memorized_fraction"] is None
    first = next(look["step"] for look in monitor.looks if look["rho"] > 0.5)
    assert monitor.memorization.step == first


def test_classes_are_held_against_their_own_references():
    labels, unseen = torch.arange(len(TRAIN)) % 2, torch.arange(len(HELD_OUT)) % 2
    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, labels=labels, held_out_labels=unseen, samples=8)
    conditional = MultiDeltaDenoiser.per_class(TRAIN, labels)
    assert monitor.look(conditional, 0)["rho"] == pytest.approx(1, abs=1e-4)
    with pytest.raises(DataError, match="held_out_labels"):
        GeneralizationMonitor(TRAIN, HELD_OUT, labels=labels)


def test_images_that_are_twice_in_the_training_set_are_still_copied():
    monitor = GeneralizationMonitor(TRAIN.repeat(2, 1, 1, 1), HELD_OUT)
    assert monitor.look(multidelta, 0)["memorized_fraction"] == 1


def test_held_out_images_that_repeat_training_images_hide_no_copies():
    monitor = GeneralizationMonitor(TRAIN, torch.cat([TRAIN[:60], HELD_OUT]))
    watched(monitor, (1.0, 1.0, 1.0))
    assert monitor.should_stop


def test_the_state_goes_through_json_and_nothing_is_lost(seen):
    whole = watched(GeneralizationMonitor(TRAIN, HELD_OUT), WEIGHTS[:6])
    again = GeneralizationMonitor(TRAIN, HELD_OUT)
    state = json.loads(json.dumps(whole.state_dict()))
    again.load_state_dict(state)
    assert again.cost == pytest.approx(state["time"]["own"] / state["time"]["main"])
    assert again.recommended == whole.recommended
    watched(again, WEIGHTS[6:], first=6)
    ignored = ("seconds",)
    for look, other in zip(again.looks, seen.looks, strict=True):
        assert {k: v for k, v in look.items() if k not in ignored} == {
            k: v for k, v in other.items() if k not in ignored
        }
    assert again.memorization == seen.memorization
    assert again.closest_to_gaussian == seen.closest_to_gaussian


def test_a_state_of_other_images_or_options_is_refused(seen):
    for other in (
        GeneralizationMonitor(TRAIN[:70], HELD_OUT),
        GeneralizationMonitor(TRAIN, HELD_OUT, count=9),
        GeneralizationMonitor(TRAIN, HELD_OUT, sigmas=1.0),
    ):
        with pytest.raises(CheckpointError, match="other images"):
            other.load_state_dict(seen.state_dict())


def test_what_cannot_be_meant_is_refused(seen):
    for options in ({"share": 0.0}, {"count": 1}, {"samples": -1}, {"steps": 1}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            GeneralizationMonitor(TRAIN, **options)
    with pytest.raises(DataError, match="shape"):
        GeneralizationMonitor(TRAIN, torch.zeros(5, 1, 7, 7))
    with pytest.raises(ConfigError, match="grow"):
        seen.look(multidelta, 3)


@pytest.mark.parametrize("look_seconds", [pytest.param(0.5, marks=pytest.mark.slow), 20.0])
def test_looks_cost_less_than_their_share(clock, look_seconds):

    class Slow(torch.nn.Module):
        def forward(self, x, sigma):
            clock.now += look_seconds * len(x) / calls
            return x

    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, samples=4)
    calls = 4 * 12 + 2 * 3 * 128  # samples and inputs
    taken = []
    for step in range(4000):
        clock.now += 1.0
        if monitor.update(Slow(), step) is not None:
            taken.append(step)
        assert monitor.cost <= 0.03
    assert monitor._probe.calls == calls
    assert len(taken) >= 3
    assert max(b - a for a, b in itertools.pairwise(taken)) <= max(1.5 * look_seconds / 0.03, 100)


def test_nothing_global_is_drawn_from_and_the_network_is_put_back():
    network = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3, padding=1), torch.nn.Dropout(0.5)).train()

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network

        def forward(self, x, sigma):
            return self.inner(x)

    denoiser = Net().train()
    before = torch.random.get_rng_state()
    GeneralizationMonitor(TRAIN, HELD_OUT).look(denoiser, 0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert denoiser.training
    assert network[1].training
    assert all(parameter.grad is None and parameter.requires_grad for parameter in denoiser.parameters())


def test_a_single_look_with_copies_is_told_as_uncertain():
    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, samples=16, count=8)
    monitor.look(multidelta, 0)
    assert re.match(r"1 look\b", monitor.summary())
    assert "No memorising is certain up to step 0 (16 of 16 samples are copies)" in monitor.summary()
    assert "losses suggest it (ρ = 1.000" in monitor.summary()


def test_the_interval_of_rho_covers():
    generator = torch.Generator().manual_seed(0)
    hits, trials = 0, 400
    for _ in range(trials):

        def losses(mean, shared, scale=0.2):
            return mean + shared + scale * torch.randn(len(shared), generator=generator)

        train, held_out = (0.3 * torch.randn(40, generator=generator) for _ in range(2))
        gaussian = [losses(1.0, train), losses(1.2, held_out)]
        multidelta = [losses(0.1, train), losses(2.2, held_out)]
        network = [losses(0.6, train), losses(1.6, held_out)]
        estimate = position(network, gaussian, multidelta)
        hits += estimate.low <= (1.0 - 0.2) / (2.1 - 0.2) <= estimate.high
    assert 0.92 <= hits / trials <= 0.985


def test_the_example_of_the_documentation_runs(capsys):
    text = (Path(__file__).parents[2] / "docs" / "monitor.md").read_text()
    turning, training = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(turning, "monitor.md", "exec"), {})
    assert "Memorising starts" in capsys.readouterr().out
    names = {}
    exec(compile(training, "monitor.md", "exec"), names)
    assert "Keep the weights of step" in capsys.readouterr().out
    assert names["monitor"].failure is None
    assert names["monitor"].looks[-1]["step"] == 30


def test_rho_needs_references_that_differ():
    same = [torch.rand(20), torch.rand(20)]
    assert position(same, same, same) is None
    assert math.isfinite(proportion_estimate(0, 5).high)


def test_a_step_that_has_not_grown_is_no_reason_for_a_look():
    monitor = GeneralizationMonitor(TRAIN, HELD_OUT, count=4, samples=0, share=1.0)
    for _ in range(3):  # as an epoch counter, or as gradients are accumulated
        monitor.update(mixture(0.0), 1, total=0)
        time.sleep(0.5)
    assert [look["step"] for look in monitor.looks] == [1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_networks_of_any_precision_are_looked_at(dtype):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(0.5, dtype=dtype))

        def forward(self, x, sigma):
            assert x.dtype == dtype
            return self.weight * x / (1 + sigma.reshape(-1, 1, 1, 1).to(dtype) ** 2)

    seen = GeneralizationMonitor(TRAIN, HELD_OUT, count=4, samples=4).look(Network(), 1)
    assert seen["gaussian_rmse"] > 0


def test_training_images_that_are_all_the_same_are_watched():
    seen = GeneralizationMonitor(TRAIN[:1].repeat(4, 1, 1, 1), HELD_OUT, count=4, samples=4).look(mixture(0.0), 1)
    assert seen["rho"] is None
    assert seen["gaussian_rmse"] > 0


def test_held_out_images_of_other_classes_are_left_out_and_said_to_be():
    labels, others = torch.arange(80) % 3, torch.arange(120) % 4
    with pytest.warns(UserWarning, match="30 of 120 held-out images are of classes without a training image"):
        monitor = GeneralizationMonitor(TRAIN, HELD_OUT, labels=labels, held_out_labels=others, count=4, samples=4)
    assert monitor.look(lambda x, sigma, labels: 0.5 * x, 1)["rho"] is not None


def test_a_denoiser_that_diverges_is_told_and_what_was_seen_stays():
    def diverged(below):
        return lambda x, sigma: torch.where(sigma[:, None, None, None] < below, torch.nan, GAUSSIAN(x, sigma))

    monitor = watched(GeneralizationMonitor(TRAIN, HELD_OUT), WEIGHTS[:3])
    with pytest.raises(DataError, match=r"answers at step 3 must be finite.* diverged"):
        monitor.look(diverged(100.0), 3)
    with pytest.raises(DataError, match=r"samples at step 3 must be finite.* samples=0"):
        monitor.look(diverged(0.01), 3)
    assert [look["step"] for look in monitor.looks] == [0, 1, 2]
    monitor.look(GAUSSIAN, 3)
    assert monitor.recommended == 3
