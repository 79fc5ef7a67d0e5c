"""The ladder of known cases: its truth table, and one rung of it."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "validation"))

import ladder
import ladder_cases


def test_the_truth_table_is_large_enough_and_consistent():
    truth = ladder.TRUTH
    sets = truth["scoring"]
    groups = [(name, seed, n) for name, seeds in sets.items() for seed in seeds for n in truth["sizes"][name]]
    assert set(sets) == set(ladder_cases.SETS)
    assert len(groups) >= 100  # each has a pure memoriser and a pure generaliser
    assert len(groups) * len(truth["mixed"]) >= 300
    tuned = {(name, seed) for name in truth["tuning"]["sets"] for seed in truth["tuning"]["seeds"]}
    assert not tuned & {(name, seed) for name, seed, _ in groups}
    assert not set(truth["trained seeds"]["tuning"]) & set(truth["trained seeds"]["scoring"])
    for weight, verdicts in truth["mixed"].items():
        assert ("memorizing" in verdicts) == (float(weight) >= 0.75)
        assert ("generalizing" in verdicts) == (float(weight) <= 0.25)
        assert ("partly memorizing" in verdicts) == (0.25 <= float(weight) <= 0.75)
    assert all(verdicts == ["cannot tell"] for verdicts in truth["broken"].values())


def test_the_law_of_the_synthetic_sets_has_the_posterior_mean_it_claims():
    """Its Tweedie identity: D = x + σ² ∇ log p(x), with p known."""
    law = ladder_cases.MixtureLaw(3, (1, 4, 4), seed=0)
    x = law.draw(5, 1).double().flatten(1).requires_grad_()
    sigma = 0.4
    covariances = [(law.basis * (values + sigma**2)) @ law.basis.T for values in law.eigvals]
    parts = [
        share.log() + torch.distributions.MultivariateNormal(mean, covariance).log_prob(x)
        for share, mean, covariance in zip(law.shares, law.means, covariances, strict=True)
    ]
    (score,) = torch.autograd.grad(torch.stack(parts).logsumexp(0).sum(), x)
    denoised = law(x.detach().reshape(5, 1, 4, 4), torch.full((5,), sigma)).flatten(1)
    assert torch.allclose(denoised, x.detach() + sigma**2 * score, atol=1e-8)


@pytest.mark.slow
def test_one_rung_is_right():
    results = list(ladder.closed_form_cases("photos", 99, 10, None))
    assert len(results) == 20
    assert [result["kind"] for result in results if not result["right"]] == []
