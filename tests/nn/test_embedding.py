"""The embedding is the formula of its docstring."""

import math

import pytest
import torch
import torch.nn.functional as F

from gausslens import ConfigError
from gausslens.nn.embedding import NoiseEmbedding

NOISE = torch.tensor([-1.5, 0.0, 0.7], dtype=torch.float64)
LABELS = torch.tensor([2, 0, 1])


def mapped(embedding, features, late=0.0):
    hidden = F.silu(features @ embedding.first.weight.T + embedding.first.bias)
    return F.silu(hidden @ embedding.second.weight.T + embedding.second.bias + late)


def test_fourier_features_are_cosines_then_sines():
    embedding = NoiseEmbedding(6, "fourier").double()
    angles = 2 * math.pi * NOISE[:, None] * embedding.frequencies
    expected = mapped(embedding, torch.cat([angles.cos(), angles.sin()], 1))
    torch.testing.assert_close(embedding(NOISE), expected)
    assert expected.shape == (3, 24)


def test_fourier_frequencies_have_a_deviation_of_16_and_are_stored():
    embedding = NoiseEmbedding(400, "fourier")
    assert float(embedding.frequencies.std()) == pytest.approx(16, rel=0.15)
    assert "frequencies" in embedding.state_dict()
    assert not embedding.frequencies.requires_grad


@pytest.mark.parametrize(
    ("features", "frequencies", "sine_first"),
    [("sin_cos", [1.0, 0.01, 0.0001], True), ("cos_sin", [1.0, 10_000 ** (-1 / 3), 10_000 ** (-2 / 3)], False)],
)
def test_positional_features_run_down_to_a_ten_thousandth(features, frequencies, sine_first):
    embedding = NoiseEmbedding(6, features).double()
    angles = NOISE[:, None] * torch.tensor(frequencies, dtype=torch.float64)
    halves = [angles.sin(), angles.cos()] if sine_first else [angles.cos(), angles.sin()]
    torch.testing.assert_close(embedding(NOISE), mapped(embedding, torch.cat(halves, 1)))


def test_early_labels_and_augmentation_join_the_features():
    embedding = NoiseEmbedding(6, "sin_cos", classes=3, augment_inputs=2).double()
    augment = torch.randn(3, 2, dtype=torch.float64)
    joined = (
        math.sqrt(3) * embedding.label.weight[:, LABELS].T + embedding.label.bias + augment @ embedding.augment.weight.T
    )
    plain = NoiseEmbedding(6, "sin_cos").double()
    expected = mapped(embedding, plain._features(NOISE) + joined)
    torch.testing.assert_close(embedding(NOISE, LABELS, augment), expected)
    torch.testing.assert_close(embedding(NOISE, LABELS), embedding(NOISE, LABELS, torch.zeros_like(augment)))


def test_late_labels_join_the_embedding():
    embedding = NoiseEmbedding(6, "cos_sin", classes=3, late_labels=True).double()
    expected = mapped(embedding, embedding._features(NOISE), embedding.label.weight[:, LABELS].T)
    torch.testing.assert_close(embedding(NOISE, LABELS), expected)
    assert embedding.label.bias is None


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="3 classes"):
        NoiseEmbedding(6, "sin_cos", classes=3)(NOISE.float())
    with pytest.raises(ConfigError, match="no labels"):
        NoiseEmbedding(6, "sin_cos")(NOISE.float(), LABELS)
    with pytest.raises(ConfigError, match="no augmentation"):
        NoiseEmbedding(6, "sin_cos")(NOISE.float(), None, torch.zeros(3, 2))
    with pytest.raises(ConfigError, match=r"even.*got 7"):
        NoiseEmbedding(7, "sin_cos")
