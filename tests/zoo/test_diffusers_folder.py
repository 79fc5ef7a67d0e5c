"""Folders of diffusers are read as their own schedulers read them."""

import json
import sys

import pytest
import torch
from tiny_diffusers import SIZE, edit, noisy, save, tiny_unet

from gausslens import CheckpointError, DataError, MissingExtraError, karras_sigmas, sample
from gausslens.zoo.loading import load_denoiser, load_model

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: its folders are not tested")


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction", "sample"])
@pytest.mark.parametrize(("name", "betas"), [("DDPMScheduler", "linear"), ("DDIMScheduler", "squaredcos_cap_v2")])
def test_discrete_schedulers_agree_with_their_own_step(tmp_path, name, prediction, betas):
    scheduler = getattr(diffusers, name)(prediction_type=prediction, clip_sample=False, beta_schedule=betas)
    unet = tiny_unet()
    model = load_model(save(tmp_path, unet, scheduler))
    assert (model.shape, model.classes, model.bounds, model.encode) == ((3, SIZE, SIZE), 0, (-1.0, 1.0), None)
    scheduler.set_timesteps(1000)
    for step in (0, 1, 50, 500, 900):
        alpha = scheduler.alphas_cumprod[step]
        sigma = ((1 - alpha) / alpha).sqrt()
        x = noisy(sigma)
        x_t = alpha.sqrt() * x
        answer = scheduler.step(unet(x_t, step).sample, step, x_t).pred_original_sample
        # The estimate is a difference of numbers of the size of x, in float32.
        torch.testing.assert_close(model.denoiser(x, sigma), answer, rtol=1e-5, atol=1e-5 * max(1.0, float(sigma)))
    low, _ = model.sigma_range
    assert low == pytest.approx(
        float(((1 - scheduler.alphas_cumprod[0]) / scheduler.alphas_cumprod[0]).sqrt()), rel=1e-4
    )
    assert sample(model.denoiser, torch.randn(2, 3, SIZE, SIZE), sigmas=karras_sigmas(3, low, 80.0)).isfinite().all()


@pytest.mark.parametrize("name", ["EulerDiscreteScheduler", "PNDMScheduler", "DPMSolverMultistepScheduler"])
def test_other_solvers_of_the_same_process_give_the_same_denoiser(tmp_path, name):
    unet = tiny_unet()
    settings = {"beta_schedule": "scaled_linear", "prediction_type": "v_prediction", "beta_end": 0.012}
    one = load_denoiser(save(tmp_path / "a", unet, diffusers.DDPMScheduler(**settings)))
    other = load_denoiser(save(tmp_path / "b", unet, getattr(diffusers, name)(**settings)))
    x = noisy(1.3)
    torch.testing.assert_close(other(x, 1.3), one(x, 1.3))


@pytest.mark.parametrize("name", ["DDIMScheduler", "EulerDiscreteScheduler", "UniPCMultistepScheduler"])
def test_a_last_step_without_signal_is_left_out_whatever_the_solver_puts_there(tmp_path, name):
    unet = tiny_unet()
    settings = {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction"}
    one = load_model(save(tmp_path / "a", unet, diffusers.DDPMScheduler(**settings)))
    other = load_model(save(tmp_path / "b", unet, getattr(diffusers, name)(**settings)))
    assert other.sigma_range == pytest.approx(one.sigma_range, rel=1e-6)
    x = noisy(1.3)
    torch.testing.assert_close(other.denoiser(x, 1.3), one.denoiser(x, 1.3))


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of diffusers, at NumPy
@pytest.mark.parametrize("prediction", ["epsilon", "sample", "flow_prediction"])
@pytest.mark.parametrize("name", ["DPMSolverMultistepScheduler", "UniPCMultistepScheduler"])
def test_solvers_of_the_linear_flow_agree_with_their_own_estimate(tmp_path, name, prediction):
    scheduler = getattr(diffusers, name)(use_flow_sigmas=True, flow_shift=3.0, prediction_type=prediction)
    unet = tiny_unet()
    denoiser = load_denoiser(save(tmp_path, unet, scheduler))
    scheduler.set_timesteps(8)
    for index in (1, 4, 7):
        t = scheduler.sigmas[index]
        x_t = torch.randn(2, 3, SIZE, SIZE)
        scheduler._step_index = index
        answer = scheduler.convert_model_output(unet(x_t, 1000 * t).sample, sample=x_t)
        torch.testing.assert_close(denoiser(x_t / (1 - t), t / (1 - t)), answer, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("EDMEulerScheduler", {"prediction_type": "sample"}),
        ("DDPMScheduler", {"prediction_type": "flow_prediction"}),
        ("UniPCMultistepScheduler", {"prediction_type": "v_prediction", "use_flow_sigmas": True}),
    ],
)
def test_predictions_that_a_scheduler_does_not_know_are_refused(tmp_path, name, settings):
    with pytest.raises(CheckpointError, match=f"prediction_type among .* '{settings['prediction_type']}'"):
        load_model(save(tmp_path, tiny_unet(), getattr(diffusers, name)(**settings)))


@pytest.mark.parametrize("prediction", ["epsilon", "v_prediction"])
@pytest.mark.parametrize("name", ["EDMEulerScheduler", "EDMDPMSolverMultistepScheduler"])
def test_edm_schedulers_agree_with_their_own_preconditioning(tmp_path, name, prediction):
    scheduler = getattr(diffusers, name)(prediction_type=prediction, sigma_data=0.4, sigma_min=0.01, sigma_max=50.0)
    unet = tiny_unet()
    model = load_model(save(tmp_path, unet, scheduler))
    assert model.sigma_range == (0.01, 50.0)
    for sigma in (0.01, 0.5, 3.0, 50.0):
        x = noisy(sigma)
        level = torch.tensor(sigma)
        predicted = unet(scheduler.precondition_inputs(x, level), scheduler.precondition_noise(level)).sample
        answer = scheduler.precondition_outputs(x, predicted, level)
        torch.testing.assert_close(model.denoiser(x, sigma), answer, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shift"), [("FlowMatchEulerDiscreteScheduler", 3.0), ("FlowMatchHeunDiscreteScheduler", 1.0)]
)
def test_flow_schedulers_agree_with_their_own_times(tmp_path, name, shift):
    scheduler = getattr(diffusers, name)(shift=shift)
    unet = tiny_unet()
    model = load_model(save(tmp_path, unet, scheduler))
    for index in (1, 300, 999):
        time, t = scheduler.timesteps[index], scheduler.sigmas[index]
        sigma = t / (1 - t)
        x = noisy(sigma)
        x_t = (1 - t) * x
        answer = x_t - t * unet(x_t, time).sample  # Euler's step from t to 0
        torch.testing.assert_close(model.denoiser(x, sigma), answer, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("inverted", [False, True])
def test_flow_schedulers_agree_with_their_own_last_step(tmp_path, inverted):
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(invert_sigmas=inverted)
    unet = tiny_unet()
    denoiser = load_denoiser(save(tmp_path, unet, scheduler))
    scheduler.set_timesteps(sigmas=[0.3])
    time = scheduler.timesteps[0]
    assert float(time) == pytest.approx(700 if inverted else 300)  # where the image has weight 0.7
    x_t = torch.randn(2, 3, SIZE, SIZE)
    answer = scheduler.step(unet(x_t, time).sample, time, x_t).prev_sample
    torch.testing.assert_close(denoiser(x_t / 0.7, 0.3 / 0.7), answer, rtol=1e-5, atol=1e-5)


def test_labels_reach_the_network(tmp_path):
    unet = tiny_unet(num_class_embeds=5)
    scheduler = diffusers.DDPMScheduler(clip_sample=False)
    model = load_model(save(tmp_path, unet, scheduler))
    assert model.classes == 5
    alpha = scheduler.alphas_cumprod[300]
    sigma = ((1 - alpha) / alpha).sqrt()
    x, labels = noisy(sigma), torch.tensor([4, 0, 2])
    answer = x - sigma * unet(alpha.sqrt() * x, 300, class_labels=labels).sample
    torch.testing.assert_close(model.denoiser(x, sigma, labels), answer, rtol=1e-5, atol=1e-5)
    assert sample(model.denoiser, torch.randn(3, 3, 8, 8), sigmas=[10.0, 1.0], labels=labels).isfinite().all()
    with pytest.raises(DataError, match="labels from 0 to 4; got none"):
        model.denoiser(x, sigma)
    with pytest.raises(DataError, match="among 0, 1, 2, 3, 4; got 5"):
        model.denoiser(x, sigma, torch.tensor([5, 0, 2]))
    unconditional = load_model(save(tmp_path / "other", tiny_unet(), scheduler))
    with pytest.raises(DataError, match="unconditional; got labels"):
        unconditional.denoiser(x, sigma, labels)


def test_a_learned_variance_is_left_out(tmp_path):
    unet = tiny_unet(out_channels=6)
    scheduler = diffusers.DDPMScheduler(variance_type="learned_range", clip_sample=False)
    denoiser = load_denoiser(save(tmp_path, unet, scheduler))
    alpha = scheduler.alphas_cumprod[300]
    sigma = ((1 - alpha) / alpha).sqrt()
    x = noisy(sigma)
    x_t = alpha.sqrt() * x
    answer = scheduler.step(unet(x_t, 300).sample, 300, x_t).pred_original_sample
    torch.testing.assert_close(denoiser(x, sigma), answer, rtol=1e-5, atol=1e-5)


def test_networks_that_look_steps_up_are_told_whole_steps(tmp_path):
    unet = tiny_unet(time_embedding_type="learned", num_train_timesteps=1000)
    scheduler = diffusers.DDPMScheduler()
    denoiser = load_denoiser(save(tmp_path, unet, scheduler))
    sigmas = ((1 - scheduler.alphas_cumprod) / scheduler.alphas_cumprod).sqrt()
    between = 0.9 * sigmas[300] + 0.1 * sigmas[301]
    x = noisy(between)
    answer = x - between * unet(x / (1 + between**2).sqrt(), 300).sample
    torch.testing.assert_close(denoiser(x, between), answer, rtol=1e-5, atol=1e-5)
    with pytest.raises(CheckpointError, match="knows 100 time steps, and DDPMScheduler has 1000"):
        load_denoiser(
            save(tmp_path / "fewer", tiny_unet(time_embedding_type="learned", num_train_timesteps=100), scheduler)
        )
    with pytest.raises(CheckpointError, match="takes whole time steps only"):
        load_denoiser(save(tmp_path / "edm", unet, diffusers.EDMEulerScheduler()))


def test_weights_of_half_precision_or_in_shards_are_read_silently(tmp_path, capfd):
    unet, scheduler, x = tiny_unet(), diffusers.DDPMScheduler(), noisy(1.0)
    answer = load_denoiser(save(tmp_path / "plain", unet, scheduler))(x, 1.0)
    for name, options in (("variant", {"variant": "fp16"}), ("shards", {"max_shard_size": "20KB"})):
        unet.save_pretrained(tmp_path / name / "unet", **options)
        scheduler.save_pretrained(tmp_path / name / "scheduler")
        capfd.readouterr()
        torch.testing.assert_close(load_denoiser(tmp_path / name)(x, 1.0), answer)
        assert capfd.readouterr() == ("", "")


def test_network_and_scheduler_may_lie_side_by_side(tmp_path):
    unet, scheduler = tiny_unet(), diffusers.DDPMScheduler()
    unet.save_pretrained(tmp_path / "flat")
    scheduler.save_pretrained(tmp_path / "flat")
    nested = load_model(save(tmp_path / "nested", unet, scheduler))
    flat = load_model(str(tmp_path / "flat"))
    x = noisy(1.0)
    assert torch.equal(flat.denoiser(x, 1.0), nested.denoiser(x, 1.0))
    assert flat.identity == nested.identity


def test_a_saved_pipeline_is_read(tmp_path):
    unet, scheduler = tiny_unet(), diffusers.DDPMScheduler()
    diffusers.DDPMPipeline(unet=unet, scheduler=scheduler).save_pretrained(tmp_path)
    assert load_model(tmp_path).shape == (3, SIZE, SIZE)


def test_identity_tells_weights_and_schedulers_apart(tmp_path):
    unet = tiny_unet()
    identities = {load_model(save(tmp_path / "a", unet, diffusers.DDPMScheduler())).identity}
    identities |= {load_model(save(tmp_path / "b", unet, diffusers.DDPMScheduler(prediction_type="sample"))).identity}
    unet.conv_in.bias.data += 1e-6
    identities |= {load_model(save(tmp_path / "c", unet, diffusers.DDPMScheduler())).identity}
    assert len(identities) == 3


def broken(folder, how):
    save(folder, tiny_unet(), diffusers.DDPMScheduler())
    weights = folder / "unet" / "diffusion_pytorch_model.safetensors"
    if how == "pickle":
        torch.save(tiny_unet().state_dict(), weights.with_suffix(".bin"))
        weights.unlink()
    elif how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-50])
    elif how == "partial":
        from safetensors.torch import load_file, save_file

        tensors = load_file(weights)
        tensors.pop("conv_in.bias")
        save_file(tensors, weights, metadata={"format": "pt"})
    elif how == "misfit":
        edit(folder / "unet" / "config.json", block_out_channels=[8, 16])
    elif how == "no scheduler":
        (folder / "scheduler" / "scheduler_config.json").unlink()
    elif how == "strange scheduler":
        edit(folder / "scheduler" / "scheduler_config.json", _class_name="logging")
    elif how == "strange betas":
        edit(folder / "scheduler" / "scheduler_config.json", beta_schedule="zigzag")
    elif how == "unknown schedule":
        edit(folder / "scheduler" / "scheduler_config.json", _class_name="ScoreSdeVeScheduler")
    elif how == "unknown prediction":
        edit(folder / "scheduler" / "scheduler_config.json", prediction_type="score")
    elif how == "text":
        edit(folder / "unet" / "config.json", _class_name="UNet2DConditionModel")
    elif how == "no JSON":
        (folder / "unet" / "config.json").write_text("{")
    elif how == "JSON without end":
        (folder / "scheduler" / "scheduler_config.json").write_text("[" * 200_000)
    elif how == "shards that are pickles":
        state = tiny_unet().state_dict()
        torch.save(state, folder / "unet" / "weights.bin")
        index = {"metadata": {}, "weight_map": dict.fromkeys(state, "weights.bin")}
        (folder / "unet" / "diffusion_pytorch_model.safetensors.index.json").write_text(json.dumps(index))
    elif how.startswith("unet "):
        edit(folder / "unet" / "config.json", **json.loads(how.removeprefix("unet ")))
    elif how.startswith("scheduler "):
        edit(folder / "scheduler" / "scheduler_config.json", **json.loads(how.removeprefix("scheduler ")))
    return folder


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("pickle", r"safetensors in .*found diffusion_pytorch_model.bin.*can run code"),
        ("truncated", "cannot be read"),
        ("partial", "missing or of another shape: conv_in.bias"),
        ("misfit", "UNet2DModel"),
        ("no scheduler", "expected scheduler/scheduler_config.json"),
        ("strange scheduler", "names no scheduler of diffusers: 'logging'"),
        ("strange betas", "zigzag"),
        ("unknown schedule", "ScoreSdeVeScheduler is not known"),
        ("unknown prediction", "prediction_type among epsilon, v_prediction, sample; DDPMScheduler has 'score'"),
        ("text", "expected a UNet2DModel in .*; got UNet2DConditionModel"),
        ("no JSON", "cannot be read"),
        ("JSON without end", "cannot be read"),
        ("shards that are pickles", "names of safetensors files .*can run code"),
        ('unet {"block_out_channels": [100000, 100000]}', "calls for far more numbers than the"),
        ('unet {"layers_per_block": 1000000000}', "calls for far more numbers than the"),
        ('unet {"num_class_embeds": 1000000000}', "calls for far more numbers than the"),
        ('unet {"num_class_embeds": "many"}', "UNet2DModel in .* cannot be made"),
        ('unet {"sample_size": "8"}', "sample_size of one or two whole numbers; .* has '8'"),
        ('unet {"sample_size": [8, 8, 8]}', r"has \[8, 8, 8\]"),
        ('unet {"sample_size": -8}', "has -8"),
        (f'unet {{"class_embed_type": {[0] * 1000}}}', r"embeds classes by \[0, 0"),
        ('scheduler {"num_train_timesteps": 1000000000}', "up to 100,000 in .*; got 1000000000"),
        ('scheduler {"num_train_timesteps": "many"}', "got 'many'"),
        ('scheduler {"num_train_timesteps": 1}', "cannot be made into a denoiser: .*at least 2 noise levels"),
        ('scheduler {"trained_betas": [0.0, 0.0]}', "cannot be made into a denoiser: .*strictly ascending"),
        ('scheduler {"prediction_type": ["epsilon"]}', r"has \['epsilon'\]"),
        ('scheduler {"_class_name": "EDMEulerScheduler", "sigma_data": "half"}', "cannot be made into a denoiser"),
        ('scheduler {"_class_name": "EDMEulerScheduler", "sigma_min": 5, "sigma_max": 1}', "has 5 and 1"),
    ],
)
def test_folders_that_cannot_be_read_say_why(tmp_path, how, message, capfd):
    folder = broken(tmp_path, how)
    capfd.readouterr()
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert capfd.readouterr() == ("", "")


def test_networks_with_other_inputs_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match="6 in and 3 out"):
        load_model(save(tmp_path / "a", tiny_unet(in_channels=6), diffusers.DDPMScheduler()))
    with pytest.raises(CheckpointError, match="embeds classes by 'timestep'"):
        load_model(save(tmp_path / "b", tiny_unet(class_embed_type="timestep"), diffusers.DDPMScheduler()))


def test_without_diffusers_the_extra_is_named(tmp_path, monkeypatch):
    folder = save(tmp_path, tiny_unet(), diffusers.DDPMScheduler())
    monkeypatch.setitem(sys.modules, "diffusers", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'gausslens\[hf\]'"):
        load_model(folder)
