"""Folders that diffusers' `save_pretrained` wrote: a `UNet2DModel`, its scheduler, and an autoencoder for latent models.

    FOLDER/model_index.json, FOLDER/unet/, FOLDER/scheduler/, FOLDER/vae/ or FOLDER/vqvae/

or network and scheduler side by side in FOLDER itself. Nothing is downloaded. Diffusers would build any network that a
config asks for, however large, and read shards that are pickles: so the headers of the files are checked first. A
scheduler's clipping and thresholding of estimates are sampling tricks and left out: D is what the network says.
"""

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ..denoisers.preconditioned import Preconditioned
from ..denoisers.protocol import in_batches
from ..denoisers.schedules import Discrete, LinearFlow
from ..errors import CheckpointError, DataError, import_extra, require, reraise_as
from ..images import dequantize, gather, quantize
from ..store.artifact import expect, read_object
from .model import Model, fingerprint
from .parametrizations import from_eps, from_flow, from_v, from_x0

_CONVERT = {"epsilon": from_eps, "v_prediction": from_v, "sample": from_x0, "flow_prediction": from_flow}
# What networks predict, by the noise schedule that they were trained with.
_PREDICTIONS = {
    "edm": ("epsilon", "v_prediction"),
    "flow": ("flow_prediction", "epsilon", "sample"),
    "discrete": ("epsilon", "v_prediction", "sample"),
}
_WRAP = "Wrap the network in a function D(x, sigma), and load it as package.module:function."
_STEM, _ENDING = "diffusion_pytorch_model", ".safetensors"
_MOST_STEPS = 100_000  # published models have up to 4000
_BATCH = 16  # encoders run at the resolution of the pixels, where images are large


class LabeledUNet(nn.Module):
    """F(x, t) or F(x, t, labels) of a `UNet2DModel`, times `sign`."""

    def __init__(self, unet: Any, sign: int = 1) -> None:
        super().__init__()
        settings = unet.config
        self.unet, self.sign = unet, sign
        self.channels: int = settings.in_channels
        returned, embedded = settings.out_channels, settings.get("class_embed_type")
        fits = returned in (self.channels, 2 * self.channels)  # twice: with the variance it has learned
        found = f"this one has {self.channels} in and {returned} out"
        expect(fits, f"expected as many channels out as in; {found}. Models conditioned on images cannot be read.")
        found = f"this network embeds classes by {embedded!r:.80}"
        expect(embedded is None, f"expected integer labels or none; {found}. {_WRAP}")
        self.shape, self.classes = _shape(settings), int(settings.get("num_class_embeds") or 0)

    def forward(self, x: Tensor, time: Tensor, labels: Tensor | None = None) -> Tensor:
        """What the network predicts."""
        expected = f"labels from 0 to {self.classes - 1}" if self.classes else "no labels: it is unconditional"
        arrived = "none" if labels is None else "labels"
        require((labels is None) == (self.classes == 0), f"this model takes {expected}; got {arrived}.", DataError)
        predicted: Tensor = self.unet(x, time, class_labels=labels, return_dict=False)[0]
        return self.sign * predicted[:, : self.channels]


class LatentSpace:
    """Images to the latents x0 = (encoder(image) − shift)·scale of an `AutoencoderKL` or `VQModel`, and back.

    An encoder with a posterior answers with its mean, so that an image has one latent. Scale and shift are what the
    autoencoder's config says diffusion models were trained with. `shape` is that of the latents; None is any.
    """

    def __init__(self, autoencoder: Any, shape: tuple[int, int, int] | None) -> None:
        self.autoencoder, self.shape = autoencoder, shape
        settings, name = autoencoder.config, type(autoencoder).__name__
        self.shift = _per_channel(settings, "latents_mean", settings.get("shift_factor") or 0.0)
        self.scale: Tensor = settings.get("scaling_factor", 1.0) / _per_channel(settings, "latents_std", 1.0)
        channels = settings.get("vq_embed_dim") or settings.latent_channels
        expected = channels if shape is None else shape[0]
        expect(channels == expected, f"the network denoises {expected} channels, and its {name} has {channels}.")
        expected = f"a finite shift and scale for all latents of {name} or for each of their {channels} channels"
        for values in (self.shift, self.scale):
            fits = len(values) in (1, channels) and values.isfinite().all() and self.scale.all()
            expect(fits, f"expected {expected}; got {values.flatten().tolist()!s:.80}.")

    def encode(self, images: Any) -> Tensor:
        """The latents of images."""
        pixels = gather(images)
        channels = self.autoencoder.config.in_channels
        what = f"expected images with {channels} channels for this autoencoder; got shape {tuple(pixels.shape)}"
        advice = "Convert them, as grey images to RGB with images.expand(-1, 3, -1, -1)."
        require(pixels.shape[1] == channels, f"{what}. {advice}", DataError)
        raw = self._in_batches(pixels, lambda batch: _latents(self.autoencoder.encode(dequantize(batch))))
        latents = (raw - self.shift) * self.scale
        if self.shape is not None and tuple(latents.shape[1:]) != self.shape:
            factor = pixels.shape[3] // latents.shape[3]
            raise DataError(
                f"expected images whose latents have shape {self.shape}, which is {self.shape[1] * factor} by "
                f"{self.shape[2] * factor} pixels; got images of shape {tuple(pixels.shape)}. Resize them."
            )
        return latents

    def decode(self, latents: Tensor) -> Tensor:
        """The pictures of latents."""
        raw = latents.float().cpu() / self.scale + self.shift
        return self._in_batches(raw, lambda batch: quantize(self.autoencoder.decode(batch).sample))

    def _in_batches(self, values: Tensor, work: Callable[[Tensor], Tensor]) -> Tensor:
        device: torch.device = next(self.autoencoder.parameters()).device
        with torch.no_grad():
            parts = in_batches(lambda start, stop: work(values[start:stop].to(device)).cpu(), len(values), _BATCH)
            return torch.cat([*parts])


def _latents(answer: Any) -> Tensor:
    latents: Tensor = answer.latents if hasattr(answer, "latents") else answer.latent_dist.mode()
    return latents.float()


def _per_channel(settings: Any, name: str, default: float) -> Tensor:
    values = default if settings.get(name) is None else settings[name]
    return torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1, 1)


def is_diffusers(folder: Path) -> bool:
    """Whether a folder looks like one that diffusers wrote."""
    names = ("model_index.json", "scheduler/scheduler_config.json", "scheduler_config.json", "unet/config.json")
    if any((folder / name).is_file() for name in names):
        return True
    return (folder / "config.json").is_file() and "_class_name" in read_object(folder / "config.json")


def load_diffusers(folder: Path, *, device: torch.device | str | None = None) -> Model:
    """The model in a diffusers folder."""
    diffusers = import_extra("diffusers", "models of diffusers need the package diffusers", "'gausslens[hf]'")
    latents = None
    with _quiet(diffusers), reraise_as(CheckpointError, f"the settings in {folder} cannot be made into a denoiser"):
        unet = _load(diffusers, _part(folder, "unet", "config.json"), ("UNet2DModel",), device)
        scheduler = _scheduler(diffusers, _part(folder, "scheduler", "scheduler_config.json"))
        tensors, settings = dict(unet.state_dict()), {"unet": _public(unet), "scheduler": _public(scheduler)}
        denoiser, sigma_range = _denoiser(unet, scheduler)
        shape, classes = denoiser.network.shape, denoiser.network.classes
        for name in _autoencoders(folder):
            place = _part(folder, name, "config.json", or_itself=False)
            autoencoder = _load(diffusers, place, ("AutoencoderKL", "VQModel"), device)
            latents = LatentSpace(autoencoder, shape)
            tensors |= {f"{name}.{key}": value for key, value in autoencoder.state_dict().items()}
            settings[name] = _public(autoencoder)
    return Model(
        denoiser.requires_grad_(False).eval(),
        shape,
        classes=classes,
        bounds=(-1.0, 1.0) if latents is None else None,
        encode=None if latents is None else latents.encode,
        decode=None if latents is None else latents.decode,
        source=str(folder),
        identity=fingerprint(tensors, **settings),
        sigma_range=sigma_range,
    )


def _shape(settings: Any) -> tuple[int, int, int] | None:
    size = settings.sample_size
    if size is None:
        return None
    sides = tuple(size) if isinstance(size, list | tuple) else (size, size)
    are_sides = len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)
    expect(are_sides, f"expected a sample_size of one or two whole numbers; the network's config has {size!r:.80}.")
    return settings.in_channels, *sides


def _denoiser(unet: Any, scheduler: Any) -> tuple[Any, tuple[float, float]]:
    """D(x, σ) of the network, as its scheduler reads its predictions, and its noise levels."""
    settings, name = scheduler.config, type(scheduler).__name__
    prediction = "flow_prediction" if name.startswith("FlowMatch") else settings.get("prediction_type", "epsilon")
    schedule = _schedule(scheduler, prediction)
    known = _PREDICTIONS[schedule]
    expect(prediction in known, f"expected a prediction_type among {', '.join(known)}; {name} has {prediction!r:.80}.")
    learned = unet.config.get("time_embedding_type") == "learned"
    continuous = learned and schedule != "discrete"
    expect(not continuous, f"the network takes whole time steps only, but {name} has continuous time.")
    if schedule == "edm":
        low, high = settings.sigma_min, settings.sigma_max
        expect(0 < low < high, f"expected 0 < sigma_min < sigma_max; {name} has {low} and {high}.")
        # EDM's c_out multiplies the answer of either kind; "v_prediction" only turns its sign.
        network = LabeledUNet(unet, sign=-1 if prediction == "v_prediction" else 1)
        return Preconditioned(network, "edm", sigma_data=settings.sigma_data), (float(low), float(high))
    if schedule == "flow":
        process: Any = LinearFlow(int(settings.get("invert_sigmas", False)), settings.num_train_timesteps)
    else:
        # After rescaling, the last step has no signal and no σ; some schedulers store an arbitrary number for it.
        alphas = scheduler.alphas_cumprod[: -1 if settings.get("rescale_betas_zero_snr") else None]
        steps = (unet.config.num_train_timesteps or 0) if learned else len(alphas)
        expect(steps >= len(alphas), f"the network knows {steps} time steps, and {name} has {len(alphas)}.")
        process = Discrete.from_alphas(alphas, rounded=learned)
    return _CONVERT[prediction](LabeledUNet(unet), process), process.sigma_range


def _schedule(scheduler: Any, prediction: Any) -> str:
    """Which of the known noise schedules a scheduler follows."""
    settings, name = scheduler.config, type(scheduler).__name__
    if name in ("EDMEulerScheduler", "EDMDPMSolverMultistepScheduler"):
        return "edm"
    may_flow = "use_flow_sigmas" in settings
    if name.startswith("FlowMatch") or (may_flow and (settings.use_flow_sigmas or prediction == "flow_prediction")):
        return "flow"
    expect(
        hasattr(scheduler, "alphas_cumprod") and settings.get("timestep_type", "discrete") == "discrete",
        f"the schedule of {name} is not known here. The known schedulers are those in discrete time (DDPM, DDIM, PNDM, "
        f"DPM-Solver, Euler, …), EDM's and those of flow matching. {_WRAP} gausslens.from_eps and from_v help.",
    )
    return "discrete"


def _scheduler(diffusers: Any, folder: Path) -> Any:
    path = folder / "scheduler_config.json"
    settings = read_object(path)
    name, steps = settings.get("_class_name", ""), settings.get("num_train_timesteps", 1000)
    is_count = type(steps) is int and 0 < steps <= _MOST_STEPS
    expect(is_count, f"expected a whole num_train_timesteps up to {_MOST_STEPS:,} in {path}; got {steps!r:.80}.")
    kind: Any = getattr(diffusers, str(name), None)
    is_scheduler = diffusers.SchedulerMixin in getattr(kind, "__mro__", ())
    expect(is_scheduler, f"{path} names no scheduler of diffusers: {name!r:.80}.")
    with reraise_as(CheckpointError, f"the scheduler in {folder} cannot be made"):
        return kind.from_config(settings)


def _load(diffusers: Any, folder: Path, kinds: tuple[str, ...], device: torch.device | str | None) -> Any:
    """One of diffusers' models with the weights in its folder, all of them."""
    settings = read_object(folder / "config.json")
    name = settings.get("_class_name", kinds[0])
    expect(name in kinds, f"expected a {' or '.join(kinds)} in {folder}; got {name!s:.80}. {_WRAP}")
    kind = getattr(diffusers, name)
    variant = _check_weights(folder, kind, settings)
    # Low memory usage would leave missing weights without values.
    how = {"torch_dtype": torch.float32, "low_cpu_mem_usage": False, "output_loading_info": True}
    with reraise_as(CheckpointError, f"{name} in {folder} cannot be read"):
        model, report = kind.from_pretrained(
            folder, variant=variant, local_files_only=True, use_safetensors=True, **how
        )
    lacking = next(iter([*report["missing_keys"], *report["mismatched_keys"], *report["error_msgs"]]), None)
    expect(lacking is None, f"the weights in {folder} do not fill {name}; missing or of another shape: {lacking}.")
    return model.requires_grad_(False).eval().to(device or "cpu")


def _check_weights(folder: Path, kind: Any, settings: Mapping[str, Any]) -> str | None:
    """See that safetensors files hold about as many numbers as a model needs, without loading them; gives the variant."""
    variant, names = _weight_files(folder, kind.__name__)
    shapes: dict[str, list[int]] = {}
    advice = "Get the file again; if it is a pointer of Git LFS, `git lfs pull` gets it."
    for path in (folder / name for name in names):
        with reraise_as(CheckpointError, f"{path} cannot be read", advice), safe_open(path, "pt") as file:
            shapes |= {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 (not a dict)
    held = sum(math.prod(shape) for shape in shapes.values())
    blocks, layers = settings.get("block_out_channels"), settings.get("layers_per_block")
    many = isinstance(blocks, list) and isinstance(layers, int) and len(blocks) * layers > len(shapes)
    with reraise_as(CheckpointError, f"{kind.__name__} in {folder} cannot be made"), torch.device("meta"):
        wanted = math.inf if many else sum(map(torch.numel, kind.from_config(dict(settings)).state_dict().values()))
    expect(
        wanted <= 2 * held,  # of less, diffusers says what is missing
        f"the weights in {folder} do not fill {kind.__name__}: its config calls for far more numbers than the "
        f"{held:,} that they hold. Save network and config together, with save_pretrained.",
    )
    return variant


def _weight_files(folder: Path, name: str) -> tuple[str | None, list[str]]:
    """The variant, and the files that diffusers would load."""
    advice = (
        "Pickles (.bin) can run code and are not read: if you trust them, convert them with diffusers, "
        f"{name}.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})."
    )
    whole = f"{_STEM}{_ENDING}"
    index = folder / f"{whole}.index.json"
    if index.is_file():
        shards = read_object(index).get("weight_map")
        listed = list(shards.values()) if isinstance(shards, dict) else []
        are_safe = listed and all(isinstance(shard, str) and shard.endswith(_ENDING) for shard in listed)
        expect(are_safe, f"expected the names of safetensors files in {index}. {advice}")
        return None, sorted(set(listed))
    found = sorted(path.name for path in folder.glob(f"{_STEM}*"))
    usable = [name for name in found if name.startswith(f"{_STEM}.") and name.endswith(_ENDING)]
    chosen = [whole] if whole in usable else usable
    names = ", ".join(found) or "no weights"
    expect(len(chosen) == 1, f"expected weights as safetensors in {folder}, {whole}; found {names}. {advice}")
    return chosen[0].removeprefix(_STEM).removesuffix(_ENDING).lstrip(".") or None, chosen


def _autoencoders(folder: Path) -> list[str]:
    """The autoencoders that the model has, even if a folder is missing: latents must not be taken for pixels."""
    index = read_object(folder / "model_index.json") if (folder / "model_index.json").is_file() else {}
    named = {name for name, part in index.items() if part not in (None, [None, None])}
    return [name for name in ("vae", "vqvae") if name in named or (folder / name).is_dir()]


def _part(folder: Path, name: str, config: str, *, or_itself: bool = True) -> Path:
    """The folder of one part of the model: a subfolder or, if `or_itself`, the model's own folder."""
    places = [place for place in (folder / name, folder)[: 1 + or_itself] if (place / config).is_file()]
    advice = "Save the whole pipeline, network, scheduler and any autoencoder, with save_pretrained."
    expect(places, f"expected {name}/{config} in the diffusers folder {folder}; there is none. {advice}")
    return places[0]


@contextmanager
def _quiet(diffusers: Any) -> Iterator[None]:
    """Inside, diffusers neither warns nor shows progress; what matters is in the errors of gausslens."""
    logger, show = logging.getLogger("diffusers"), diffusers.utils.logging
    level, shown = logger.level, show.is_progress_bar_enabled()
    logger.setLevel(logging.CRITICAL + 1)
    show.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(level)
        if shown:
            show.enable_progress_bar()


def _public(part: Any) -> dict[str, Any]:
    """The settings of a part, without where it was saved and by which version."""
    return {"name": type(part).__name__, **{k: v for k, v in part.config.items() if not k.startswith("_")}}
