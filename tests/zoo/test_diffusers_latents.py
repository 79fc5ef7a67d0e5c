"""Networks that denoise latents are measured there, with the autoencoder of their folder."""

import pytest
import torch
from tiny_diffusers import SIZE, edit, save, tiny_unet

from gausslens import CheckpointError, DataError
from gausslens.images import quantize
from gausslens.zoo.loading import load_model

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: its folders are not tested")


def tiny_vae(kind, **options):
    torch.manual_seed(1)
    blocks = {
        "block_out_channels": (8, 8),
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "norm_num_groups": 4,
        "latent_channels": 4,
    }
    return getattr(diffusers, kind)(**blocks, **options).eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("vae", "AutoencoderKL", {"scaling_factor": 0.5}),
        ("vae", "AutoencoderKL", {"scaling_factor": 0.5, "shift_factor": 0.2}),
        ("vae", "AutoencoderKL", {"latents_mean": [0.1, 0.2, 0.3, 0.4], "latents_std": [1.0, 2.0, 3.0, 4.0]}),
        ("vqvae", "VQModel", {"scaling_factor": 0.7}),
    ],
)
def test_latent_models_are_measured_in_their_latents(tmp_path, name, kind, options):
    vae = tiny_vae(kind, **options)
    unet = tiny_unet(in_channels=4, out_channels=4)
    model = load_model(save(tmp_path, unet, diffusers.DDIMScheduler(), **{name: vae}))
    assert model.bounds is None
    assert model.shape == (4, SIZE, SIZE)
    images = torch.randint(0, 256, (20, 3, 2 * SIZE, 2 * SIZE), dtype=torch.uint8)
    pixels = images.float() / 127.5 - 1
    raw = vae.encode(pixels).latents if kind == "VQModel" else vae.encode(pixels).latent_dist.mean
    mean = torch.tensor(options.get("latents_mean", [options.get("shift_factor", 0.0)] * 4)).reshape(4, 1, 1)
    std = torch.tensor(options.get("latents_std", [1.0] * 4)).reshape(4, 1, 1)
    answer = (raw - mean) * options.get("scaling_factor", 0.18215) / std
    latents = model.encode(images)
    torch.testing.assert_close(latents, answer, rtol=1e-5, atol=1e-5)
    assert model.denoiser(latents + torch.randn_like(latents), 1.0).shape == latents.shape
    torch.testing.assert_close(model.decode(latents), quantize(vae.decode(raw).sample), rtol=0, atol=1)
    with pytest.raises(DataError, match="16 by 16 pixels"):
        model.encode(images[..., :8, :8])
    with pytest.raises(DataError, match="3 channels"):
        model.encode(images[:, :1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scaling_factor": None}, "cannot be made into a denoiser"),
        ({"scaling_factor": 0.0}, "finite shift and scale"),
        ({"latents_std": [1.0, 2.0, 3.0]}, "each of their 4 channels"),
        ({"_class_name": "AutoencoderTiny"}, "got AutoencoderTiny"),
    ],
)
def test_autoencoders_that_cannot_be_meant_are_refused(tmp_path, settings, message):
    unet = tiny_unet(in_channels=4, out_channels=4)
    folder = save(tmp_path, unet, diffusers.DDIMScheduler(), vae=tiny_vae("AutoencoderKL"))
    edit(folder / "vae" / "config.json", **settings)
    with pytest.raises(CheckpointError, match=message):
        load_model(folder)


def test_an_autoencoder_of_other_latents_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="denoises 3 channels, and its AutoencoderKL has 4"):
        load_model(save(tmp_path, tiny_unet(), diffusers.DDIMScheduler(), vae=tiny_vae("AutoencoderKL")))


def test_latents_are_not_taken_for_pixels_where_the_autoencoder_is_missing(tmp_path):
    folder = save(tmp_path / "a", tiny_unet(), diffusers.DDIMScheduler())
    (folder / "model_index.json").write_text('{"_class_name": "LDMPipeline", "vqvae": ["diffusers", "VQModel"]}')
    with pytest.raises(CheckpointError, match=r"expected vqvae/config\.json"):
        load_model(folder)
    folder = save(tmp_path / "b", tiny_unet(), diffusers.DDIMScheduler())
    (folder / "vae").mkdir()
    with pytest.raises(CheckpointError, match=r"expected vae/config\.json"):
        load_model(folder)
