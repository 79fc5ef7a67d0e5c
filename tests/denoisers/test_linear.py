"""A linear denoiser as a denoiser, on disk, and its refusals."""

import pytest
import torch
from safetensors.torch import save_file

from gausslens import (
    CheckpointError,
    ConfigError,
    DataError,
    LinearDenoiser,
    Moments,
    MultiDeltaDenoiser,
    distill,
    jacobian_spectrum,
    sample,
)
from gausslens.atomic_files import load_tensors, save_tensors
from gausslens.denoisers import linear as maps

SIGMAS = (2.0, 0.5, 0.1)
PER_LEVEL = ("sigmas", "fvu", "fvu_floor", "fvu_held_out", "weight_error_floor", "shrinkage", "truncation")


@pytest.fixture(scope="module")
def images():
    return torch.rand(30, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.fixture(scope="module")
def linear(images):
    return distill(MultiDeltaDenoiser(images), images, SIGMAS, held_out=images[:10], calls=400)


def prediction(linear, level):
    """W and b of the prediction fit, read off from what it does to a basis."""
    bias = linear(torch.zeros(1, 1, 3, 3, dtype=torch.float64), level).flatten()
    basis = torch.eye(9, dtype=torch.float64).reshape(9, 1, 3, 3)
    return (linear(basis, level).flatten(1) - bias).T, bias


def noisy(n, seed=1):
    return torch.randn(n, 1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_one_batch_may_mix_levels(linear):
    x = noisy(6)
    levels = torch.tensor([0.5, 2.0, 0.1, 0.5, 2.0, 0.5], dtype=torch.float64)
    together = linear(x, levels)
    for i, level in enumerate(levels.tolist()):
        assert torch.allclose(together[i], linear(x[i : i + 1], level)[0], rtol=1e-12)


def test_the_called_map_is_the_shrunk_one_and_the_weight_is_not(linear):
    weight, bias = prediction(linear, 0.5)
    assert 0 < float(linear.shrinkage[1]) < 1
    assert float((weight - linear.weight(0.5)).norm()) > 1e-3
    assert float((bias - linear.bias(0.5)).norm()) > 1e-4


def test_a_weight_taken_out_can_be_changed(linear):
    before = linear.weight(0.5)
    linear.weight(0.5).zero_()
    linear.bias(0.5).zero_()
    assert torch.equal(linear.weight(0.5), before)
    assert linear.bias(0.5).any()


def test_levels_that_were_rounded_are_the_same_levels(images):
    linear = distill(MultiDeltaDenoiser(images), images, [80.0, 0.47, 0.002], calls=40)
    x = noisy(3)
    for level in (80.0, 0.47, 0.002):
        exact = linear(x, level)
        for dtype in (torch.float32, torch.bfloat16):
            assert torch.equal(linear(x, torch.tensor(level, dtype=dtype).double()), exact)


@pytest.mark.parametrize("level", [0.3, 1.0, 0.51, 1e6])
def test_a_level_that_was_not_fitted_is_refused(linear, level):
    message = r"only at sigma = 2, 0.5, 0.1; got"
    with pytest.raises(ConfigError, match=message):
        linear(noisy(2), level)
    with pytest.raises(ConfigError, match=message):
        linear.weight(level)
    with pytest.raises(ConfigError, match=message):
        linear(noisy(2), torch.tensor([0.5, level], dtype=torch.float64))


@pytest.mark.parametrize("level", [0.0, -0.5, float("nan")])
def test_a_level_that_is_none_is_refused(linear, level):
    with pytest.raises(ConfigError, match="sigma"):
        linear.weight(level)
    with pytest.raises(ConfigError, match="sigma"):
        linear(noisy(2), level)


def test_inputs_of_another_shape_are_refused(linear):
    with pytest.raises(DataError, match=r"\(b, 1, 3, 3\)"):
        linear(torch.zeros(2, 1, 4, 4), 0.5)
    with pytest.raises(DataError, match="uint8"):
        linear(torch.zeros(2, 1, 3, 3, dtype=torch.uint8), 0.5)


def test_too_few_calls_leave_the_weight_open(images):
    linear = distill(MultiDeltaDenoiser(images), images, SIGMAS, calls=12)
    for ask in (linear.weight, linear.bias):
        with pytest.raises(ConfigError, match=r"2d \+ 2 = 20 calls .* 10d = 90 .* had 12"):
            ask(0.5)
    assert not linear.enough_calls
    assert linear(noisy(2), 0.5).isfinite().all()


def test_ten_calls_a_dimension_are_enough(images):
    memory = MultiDeltaDenoiser(images)
    assert distill(memory, images, 0.5).enough_calls
    assert distill(memory, images, 0.5, calls=90).enough_calls
    assert not distill(memory, images, 0.5, calls=89).enough_calls


def test_results_have_the_dtype_of_the_input(linear):
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        assert linear(noisy(2).to(dtype), 0.5).dtype == dtype


def test_maps_of_a_float32_denoiser_are_float32_and_close(images, linear):
    # The linear denoiser of a linear denoiser is itself.
    again = distill(linear.float(), images.float(), SIGMAS, calls=400)
    linear.double()
    assert again.weight(0.5).dtype == torch.float32
    weight, _ = prediction(linear, 0.5)
    assert float((again.weight(0.5) - weight).norm() / weight.norm()) < 1e-5


def test_its_jacobian_is_the_shrunk_weight(linear):
    weight, _ = prediction(linear, 0.5)
    spectrum = jacobian_spectrum(linear, noisy(2), 0.5, k=9)
    expected = torch.linalg.svdvals(weight)
    assert torch.allclose(spectrum.singular_values, expected.expand(2, 9), atol=1e-9)


def test_it_can_be_sampled_from(linear):
    assert sample(linear, noisy(2), sigmas=SIGMAS, solver="euler").isfinite().all()


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("calls", [400, 12])
def test_save_and_load(images, tmp_path, monkeypatch, full, calls):
    monkeypatch.setattr(maps, "_STORED_RANK", 2)
    held_out = images[:10] if full else None
    linear = distill(
        MultiDeltaDenoiser(images), images, SIGMAS, train=images[5:], held_out=held_out, calls=calls, full=full
    )
    linear.save(tmp_path / "linear.safetensors")
    loaded = LinearDenoiser.load(tmp_path / "linear.safetensors")
    x = noisy(4)
    for level in SIGMAS:
        assert torch.allclose(loaded(x, level), linear(x, level), rtol=1e-13)
        if calls > 18:
            assert torch.allclose(loaded.weight(level), linear.weight(level), rtol=1e-13)
            assert torch.equal(loaded.bias(level), linear.bias(level))
    for name in PER_LEVEL:
        ours, theirs = getattr(linear, name), getattr(loaded, name)
        assert theirs is None if ours is None else torch.allclose(ours, theirs, rtol=0, atol=0, equal_nan=True)
    assert list(loaded.weight_error) == sorted(linear.weight_error)
    for name, error in linear.weight_error.items():
        assert torch.allclose(error, loaded.weight_error[name], rtol=0, atol=0, equal_nan=True)
    assert (loaded.calls, loaded.shape, loaded.history) == (calls, (1, 3, 3), [])
    assert repr(loaded) == repr(linear)


def test_the_history_is_saved(images, tmp_path):
    linear = distill(MultiDeltaDenoiser(images), images, SIGMAS, method="adam", calls=90)
    linear.save(tmp_path / "linear.safetensors")
    loaded = LinearDenoiser.load(tmp_path / "linear.safetensors")
    assert loaded.history == linear.history
    assert [len(level) for level in loaded.history] == [3, 3, 3]


@pytest.mark.parametrize("full", [True, False])
def test_the_state_dict_carries_the_maps(images, full):
    first, second = (
        distill(MultiDeltaDenoiser(part), part, SIGMAS, calls=200, full=full) for part in (images[:15], images[15:])
    )
    x = noisy(4)
    assert not torch.allclose(first(x, 0.5), second(x, 0.5))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(x, 0.5), second(x, 0.5))
    assert torch.equal(first.weight(0.1), second.weight(0.1))


def test_foreign_files_are_refused(images, tmp_path):
    path = tmp_path / "other.safetensors"
    with pytest.raises(CheckpointError, match="no such file"):
        LinearDenoiser.load(path)
    Moments.fit(images).save(path)
    with pytest.raises(CheckpointError, match=r"gausslens\.linear"):
        LinearDenoiser.load(path)
    save_file({"weights": torch.zeros(2)}, path)
    with pytest.raises(CheckpointError, match="another program"):
        LinearDenoiser.load(path)


@pytest.mark.parametrize("missing", ["sigmas", "fvu", "extra"])
def test_a_file_of_another_version_is_refused(linear, tmp_path, missing):
    path = tmp_path / "linear.safetensors"
    linear.save(path)
    tensors, metadata = load_tensors(path, kind="gausslens.linear")
    if missing == "extra":
        tensors["unknown"] = torch.zeros(2)
    else:
        del tensors[missing]
    save_tensors(path, tensors, kind="gausslens.linear", **metadata)
    with pytest.raises(CheckpointError, match="Distill and save again"):
        LinearDenoiser.load(path)


def test_a_truncated_file_is_refused(linear, tmp_path):
    path = tmp_path / "linear.safetensors"
    linear.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="truncated"):
        LinearDenoiser.load(path)
    assert [file.name for file in tmp_path.iterdir()] == ["linear.safetensors"]


def test_repr_names_the_levels(linear):
    assert "shape=(1, 3, 3), calls=400, sigmas=[2, 0.5, 0.1]" in repr(linear)
