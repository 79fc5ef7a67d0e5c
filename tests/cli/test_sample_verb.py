"""`gausslens sample`: what it draws, what it writes, and what it says when it cannot."""

import json
import shutil

import numpy as np
import pytest
import torch
from tiny_command import TINY, command, train_tiny

from gausslens import GaussianDenoiser, LinearDenoiser, Moments, MultiDeltaDenoiser, load_denoiser, sample
from gausslens.data import Splits, load_images
from gausslens.generation import generate
from gausslens.images import dequantize, quantize
from gausslens.noise import draw_noise


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_tiny(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run, to write into."""
    return shutil.copytree(trained, tmp_path / trained.name)


def images_in(path):
    with np.load(path) as arrays:
        return torch.from_numpy(arrays["images"]).permute(0, 3, 1, 2)


def sampled(capsys, run, *words):
    code, _, err = command(capsys, "sample", run, "--cpu", *words)
    assert (code, err) == (0, ""), err
    (path,) = (run / "samples").glob("*.npz")
    images = images_in(path)
    shutil.rmtree(run / "samples")
    return images


def expected(denoiser, n, **options):
    latents = draw_noise(0, torch.arange(n), (1, 8, 8), stream="latents")
    return quantize(sample(denoiser, latents, dtype=torch.float32, **options))


def train_images():
    digits = load_images("digits")
    return digits.images[Splits(len(digits)).subset(200)]


def assert_same(images, others):
    """Equal up to a rounding of grey levels."""
    assert images.shape == others.shape
    assert int((images.int() - others.int()).abs().max()) <= 1
    assert float((images != others).float().mean()) < 0.01


def test_three_files_of_the_same_images(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("GAUSSLENS_CACHE", str(tmp_path / "cache"))
    code, out, _ = command(capsys, "sample", run, "--count", 5, "--steps", 4, "--cpu")
    assert code == 0
    stem = run / "samples" / "network-1.6kimg-ema-heun4-seed0-5"
    assert out.splitlines() == [
        *(f"wrote {stem}.{suffix}" for suffix in ("png", "npz", "zip")),
        f"5 images of the network denoiser. Next: gausslens measure {run}",
    ]
    assert sorted(path.name for path in stem.parent.iterdir()) == [f"{stem.name}.{s}" for s in ("npz", "png", "zip")]
    images = images_in(f"{stem}.npz")
    assert torch.equal(images, expected(load_denoiser(run), 5, steps=4))
    assert np.array_equal(load_images(f"{stem}.zip").images, images.numpy())


def test_small_images_are_sampled_on_one_thread(run, capsys, monkeypatch):
    threads = []

    def watched(*args, **options):
        threads.append(torch.get_num_threads())
        return generate(*args, **options)

    monkeypatch.setattr("gausslens.generation.generate", watched)
    torch.set_num_threads(2)
    sampled(capsys, run, "--count", 5, "--steps", 3, "--format", "npz")
    assert threads == [1]
    assert torch.get_num_threads() == 2


def test_image_i_depends_on_the_seed_and_on_i_alone(run, capsys):
    common = ("--steps", 3, "--format", "npz")
    few = sampled(capsys, run, "--count", 5, *common)
    many = sampled(capsys, run, "--count", 23, "--batch", 7, *common)
    other = sampled(capsys, run, "--count", 5, "--seed", 1, *common)
    assert_same(few, many[:5])
    assert (few != other).float().mean() > 0.5


def test_the_closed_forms_are_of_the_training_images(run, capsys):
    common = ("--count", 6, "--steps", 5, "--solver", "euler", "--format", "npz", "--denoiser")
    solved = {"steps": 5, "solver": "euler"}
    images = dequantize(torch.from_numpy(train_images()))
    gaussian = GaussianDenoiser(Moments.fit(images))
    assert_same(sampled(capsys, run, *common, "gaussian"), expected(gaussian, 6, **solved))
    memory = MultiDeltaDenoiser(images)
    copies = sampled(capsys, run, *common, "multidelta")
    assert_same(copies, expected(memory, 6, **solved))
    assert all((torch.from_numpy(train_images()) == copy).flatten(1).all(1).any() for copy in copies)


def test_the_linear_distillation_is_kept_in_the_run(run, capsys, monkeypatch):
    common = ("--count", 4, "--steps", 3, "--format", "npz", "--denoiser", "linear")
    first = sampled(capsys, run, *common)
    linear = LinearDenoiser.load(run / "linear" / "kimg-1.6-ema-3.safetensors")
    assert_same(first, expected(linear, 4, steps=3))
    monkeypatch.setattr("gausslens.evaluation.references.distill", None)
    assert torch.equal(sampled(capsys, run, *common), first)


def test_raw_weights_and_solvers_differ(run, capsys):
    common = ("--count", 4, "--steps", 4, "--format", "npz")
    plain = sampled(capsys, run, *common)
    for words in (("--weights", "raw"), ("--solver", "euler")):
        assert not torch.equal(plain, sampled(capsys, run, *common, *words))


def test_what_is_there_is_not_made_again(run, capsys, monkeypatch, tmp_path):
    words = ("sample", run, "--count", 3, "--steps", 2, "--cpu", "--out", tmp_path / "pictures")
    assert command(capsys, *words, "--format", "npz")[0] == 0
    (npz,) = (tmp_path / "pictures").iterdir()
    before = npz.stat().st_mtime_ns
    code, out, _ = command(capsys, *words)
    assert (code, out.splitlines()[0]) == (0, f"{npz} exists already.")
    assert npz.stat().st_mtime_ns == before
    monkeypatch.setattr("gausslens.generation.generate", None)
    code, out, _ = command(capsys, *words)
    assert (code, out.count("exists already")) == (0, 3)


def test_a_dry_run_prints_the_options_and_writes_nothing(run, capsys):
    code, out, _ = command(capsys, "sample", run, "--count", 3, "--dry-run")
    resolved = json.loads(out)
    assert (code, resolved["kimg"], resolved["count"]) == (0, 1.6, 3)
    assert not (run / "samples").exists()


def test_labels_in_turn(tmp_path, capsys):
    run = train_tiny(tmp_path, "--labels")
    code, *_ = command(capsys, "sample", run, "--cpu", "--count", 5, "--steps", 3, "--labels", "3,8")
    assert code == 0
    (path,) = (run / "samples").glob("*.npz")
    labels = torch.tensor([3, 8, 3, 8, 3])
    with np.load(path) as arrays:
        assert arrays["labels"].tolist() == labels.tolist()
    assert torch.equal(images_in(path), expected(load_denoiser(run), 5, steps=3, labels=labels))
    for dry in (["--dry-run"], []):
        code, _, err = command(capsys, "sample", run, "--cpu", "--labels", "3,10", *dry)
        assert (code, err.count("\n")) == (2, 1)
        assert "labels must be from 0 to 9" in err
    for denoiser in ("gaussian", "multidelta"):
        code, *_ = command(capsys, "sample", run, "--cpu", "--count", 12, "--steps", 3, "--denoiser", denoiser)
        assert code == 0
        (path,) = (run / "samples").glob(f"{denoiser}*.npz")
        with np.load(path) as arrays:
            assert arrays["labels"].tolist() == [*range(10), 0, 1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kimg", "7"], "has no snapshot at 7 kimg; it has 1.6."),
        (["--solver", "magic"], "--solver: invalid choice: 'magic' (choose from "),
        (["--count", "0"], "count must be an integer of at least 1; got 0."),
        (["--format", "gif"], "format must be some of png, npz, zip; got gif."),
        (["--out", "{run}/config.json"], "could not make the folder"),
        (["--labels", "3"], "labels are for networks trained with labels"),
        (["--denoiser", "gaussian", "--data", "fashion"], "of other content"),
    ],
)
@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_bad_input_is_one_line_and_exit_code_2_also_in_a_dry_run(words, message, dry, run, capsys):
    code, out, err = command(capsys, "sample", run, "--cpu", *(word.format(run=run) for word in words), *dry)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_folder_that_is_no_run(tmp_path, capsys):
    for folder, message in ((tmp_path / "nowhere", "there is no such directory"), (tmp_path, "has no config.json")):
        code, _, err = command(capsys, "sample", folder)
        assert (code, err.count("\n")) == (2, 1)
        assert message in err


def test_a_folder_of_runs_says_which_are_in_it(tmp_path, capsys):
    for name in ("train-digits-0a", "train-digits-1b", "study-digits-2c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        for verb in ("sample", "audit"):
            code, _, err = command(capsys, verb, tmp_path)
            assert (code, err.count("\n")) == (2, 1)
            assert f"Name {tmp_path / 'train-digits-0a'}" in err
    assert "or another of the 2 in it." in err


def test_a_network_of_one_noise_level_cannot_be_sampled(tmp_path, capsys):
    run = train_tiny(tmp_path, "--sigma", "0.5")
    code, _, err = command(capsys, "sample", run)
    assert code == 2
    assert "was trained for sigma = 0.5 alone" in err


def test_a_target_that_cannot_be_is_said_before_anything_is_sampled(run, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, _, err = command(capsys, "sample", run, "--cpu", "--out", tmp_path / "file")
    assert code == 2
    assert "could not make the folder" in err


def test_classes_without_training_images_are_not_sampled(tmp_path, capsys):
    images = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "gaps.npz", images=images, labels=np.arange(60) % 2 * 5)
    words = ("--labels", "--held-out", "10", *TINY, "--cpu", "--quiet", "--out", tmp_path)
    assert command(capsys, "train", tmp_path / "gaps.npz", *words)[0] == 0
    (folder,) = tmp_path.glob("train-*")
    for denoiser in ("network", "gaussian"):
        target = ("--count", "6", "--denoiser", denoiser, "--format", "npz", "--out", tmp_path / denoiser)
        assert command(capsys, "sample", folder, "--cpu", *target)[0] == 0
        (path,) = (tmp_path / denoiser).glob("*.npz")
        assert np.load(path)["labels"].tolist() == [0, 5] * 3
