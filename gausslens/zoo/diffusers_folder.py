"""Folders that diffusers' `save_pretrained` wrote: a `UNet2DModel`, its scheduler, and an autoencoder for latent models.

    FOLDER/model_index.json, FOLDER/unet/, FOLDER/scheduler/, FOLDER/vae/ or FOLDER/vqvae/

or network and scheduler side by side in FOLDER itself. Nothing is downloaded. Diffusers would build any network that a
config asks for, however large, and read shards that are pickles: so the headers of the files are checked first. A
scheduler's clipping and thresholding of estimates are sampling tricks and left out: D is what the network says.
"""

import json
import logging
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from ..denoisers.preconditioned import Preconditioned
from ..denoisers.schedules import Discrete, LinearFlow
from ..errors import CheckpointError, DataError, import_extra
from .latents import LatentSpace
from .model import Model, as_checkpoint_errors, fingerprint
from .predictions import from_eps, from_flow, from_v, from_x0

_CONVERT = {"epsilon": from_eps, "v_prediction": from_v, "sample": from_x0}
_CONVERT_FLOW = {"flow_prediction": from_flow, "epsilon": from_eps, "sample": from_x0}
_STEM, _ENDING = "diffusion_pytorch_model", ".safetensors"
_MOST_STEPS = 100_000  # published models have up to 4000


class LabeledUNet(nn.Module):
    """F(x, t) or F(x, t, labels) of a `UNet2DModel`, times `sign`."""

    def __init__(self, unet: Any, sign: int = 1) -> None:
        super().__init__()
        settings = unet.config
        self.unet, self.sign = unet, sign
        self.channels: int = settings.in_channels
        if settings.out_channels not in (self.channels, 2 * self.channels):  # twice: with the variance it has learned
            raise CheckpointError(
                f"expected a network with as many channels out as in; this one has {settings.in_channels} in and "
                f"{settings.out_channels} out. Models conditioned on images cannot be read."
            )
        if settings.get("class_embed_type") is not None:
            raise CheckpointError(
                f"expected integer labels or none; this network embeds classes by {settings.class_embed_type!r:.80}. "
                "Wrap it in a function D(x, sigma) and load that as package.module:function."
            )
        self.shape, self.classes = _shape(settings), int(settings.get("num_class_embeds") or 0)

    def forward(self, x: Tensor, time: Tensor, labels: Tensor | None = None) -> Tensor:
        """What the network predicts."""
        if (labels is None) != (self.classes == 0):
            expected = f"labels from 0 to {self.classes - 1}" if self.classes else "no labels: it is unconditional"
            raise DataError(f"this model takes {expected}; got {'none' if labels is None else 'labels'}.")
        predicted: Tensor = self.unet(x, time, class_labels=labels, return_dict=False)[0]
        return self.sign * predicted[:, : self.channels]


def is_diffusers(folder: Path) -> bool:
    """Whether a folder looks like one that diffusers wrote."""
    names = ("model_index.json", "scheduler/scheduler_config.json", "scheduler_config.json", "unet/config.json")
    if any((folder / name).is_file() for name in names):
        return True
    return (folder / "config.json").is_file() and "_class_name" in _read_object(folder / "config.json")


def load_diffusers(folder: Path, *, device: torch.device | str | None = None) -> Model:
    """The model in a diffusers folder."""
    diffusers = import_extra("diffusers", "models of diffusers need the package diffusers", "'gausslens[hf]'")
    latents = None
    with _quiet(diffusers), as_checkpoint_errors(f"the settings in {folder} cannot be made into a denoiser"):
        unet = _load(diffusers, _part(folder, "unet", "config.json"), ("UNet2DModel",), device)
        scheduler = _scheduler(diffusers, _part(folder, "scheduler", "scheduler_config.json"))
        tensors, settings = dict(unet.state_dict()), {"unet": _public(unet), "scheduler": _public(scheduler)}
        denoiser = _denoiser(unet, scheduler)
        shape, classes = denoiser.network.shape, denoiser.network.classes
        for name in _autoencoders(folder):
            autoencoder = _load(diffusers, folder / name, ("AutoencoderKL", "VQModel"), device)
            latents = LatentSpace(autoencoder, shape)
            tensors |= {f"{name}.{key}": value for key, value in autoencoder.state_dict().items()}
            settings[name] = _public(autoencoder)
    if isinstance(denoiser, Preconditioned):
        sigma_range = float(scheduler.config.sigma_min), float(scheduler.config.sigma_max)
    else:
        sigma_range = denoiser.sigma_range
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
    if len(sides) != 2 or not all(type(side) is int and side > 0 for side in sides):
        raise CheckpointError(
            f"expected a sample_size of one or two whole numbers; the network's config has {size!r:.80}."
        )
    return settings.in_channels, *sides


def _denoiser(unet: Any, scheduler: Any) -> Any:
    """D(x, σ) of the network, as its scheduler reads its predictions."""
    settings, name = scheduler.config, type(scheduler).__name__
    is_flow = name.startswith("FlowMatch")
    prediction = "flow_prediction" if is_flow else settings.get("prediction_type", "epsilon")
    is_flow |= bool(settings.get("use_flow_sigmas")) or (
        prediction == "flow_prediction" and "use_flow_sigmas" in settings
    )
    is_edm = name in ("EDMEulerScheduler", "EDMDPMSolverMultistepScheduler")
    learned = unet.config.get("time_embedding_type") == "learned"
    if learned and (is_edm or is_flow):
        raise CheckpointError(f"the network takes whole time steps only, but {name} has continuous time.")
    if is_edm:
        _check_prediction(prediction, ("epsilon", "v_prediction"), name)
        if not 0 < settings.sigma_min < settings.sigma_max:
            raise CheckpointError(
                f"expected 0 < sigma_min < sigma_max; {name} has {settings.sigma_min} and {settings.sigma_max}."
            )
        # EDM's c_out multiplies the answer of either kind; "v_prediction" only turns its sign.
        network = LabeledUNet(unet, sign=-1 if prediction == "v_prediction" else 1)
        return Preconditioned(network, "edm", sigma_data=settings.sigma_data)
    if is_flow:
        _check_prediction(prediction, _CONVERT_FLOW, f"{name} on the linear flow")
        data_at = int(settings.get("invert_sigmas", False))
        return _CONVERT_FLOW[prediction](LabeledUNet(unet), LinearFlow(data_at, settings.num_train_timesteps))
    if hasattr(scheduler, "alphas_cumprod") and settings.get("timestep_type", "discrete") == "discrete":
        _check_prediction(prediction, _CONVERT, name)
        # Rescaled, the last step has no signal, and no σ; some schedulers put a number there that is none of its own.
        alphas = scheduler.alphas_cumprod[: -1 if settings.get("rescale_betas_zero_snr") else None]
        if learned and (unet.config.num_train_timesteps or 0) < len(alphas):
            raise CheckpointError(
                f"the network knows {unet.config.num_train_timesteps} time steps, and {name} has {len(alphas)}."
            )
        return _CONVERT[prediction](LabeledUNet(unet), Discrete.from_alphas(alphas, rounded=learned))
    raise CheckpointError(
        f"the schedule of {name} is not known here. The known schedulers are those in discrete time (DDPM, DDIM, PNDM, "
        "DPM-Solver, Euler, …), EDM's and those of flow matching. Wrap the network with gausslens.from_eps or its kin "
        "and load it as package.module:object."
    )


def _check_prediction(prediction: Any, known: Collection[str], name: str) -> None:
    if not isinstance(prediction, str) or prediction not in known:
        raise CheckpointError(f"expected a prediction_type among {', '.join(known)}; {name} has {prediction!r:.80}.")


def _scheduler(diffusers: Any, folder: Path) -> Any:
    path = folder / "scheduler_config.json"
    settings = _read_object(path)
    name, steps = settings.get("_class_name", ""), settings.get("num_train_timesteps", 1000)
    if type(steps) is not int or not 0 < steps <= _MOST_STEPS:
        raise CheckpointError(
            f"expected a whole number of num_train_timesteps up to {_MOST_STEPS:,} in {path}; got {steps!r:.80}."
        )
    kind: Any = getattr(diffusers, str(name), None)
    if diffusers.SchedulerMixin not in getattr(kind, "__mro__", ()):
        raise CheckpointError(f"{path} names no scheduler of diffusers: {name!r:.80}.")
    with as_checkpoint_errors(f"the scheduler in {folder} cannot be made"):
        return kind.from_config(settings)


def _load(diffusers: Any, folder: Path, kinds: tuple[str, ...], device: torch.device | str | None) -> Any:
    """One of diffusers' models with the weights in its folder, all of them."""
    settings = _read_object(folder / "config.json")
    name = settings.get("_class_name", kinds[0])
    if name not in kinds:
        raise CheckpointError(
            f"expected a {' or '.join(kinds)} in {folder}; got {name!s:.80}. Models conditioned on text, and other "
            "networks, can be wrapped in a function D(x, sigma) and loaded as package.module:function."
        )
    kind = getattr(diffusers, name)
    variant = _check_weights(folder, kind, settings)
    with as_checkpoint_errors(f"{name} in {folder} cannot be read"):
        model, report = kind.from_pretrained(
            folder,
            variant=variant,
            local_files_only=True,
            use_safetensors=True,
            torch_dtype=torch.float32,
            low_cpu_mem_usage=False,  # which would leave missing weights without values
            output_loading_info=True,
        )
    lacking = [*report["missing_keys"], *report["mismatched_keys"], *report["error_msgs"]]
    if lacking:
        raise CheckpointError(f"the weights in {folder} do not fill {name}; missing or of another shape: {lacking[0]}.")
    return model.requires_grad_(False).eval().to(device or "cpu")


def _check_weights(folder: Path, kind: Any, settings: Mapping[str, Any]) -> str | None:
    """See that safetensors files hold about as many numbers as a model needs, without loading them; gives the variant."""
    variant, names = _weight_files(folder, kind.__name__)
    shapes: dict[str, list[int]] = {}
    for name in names:
        advice = " Get the file again; where it stands for a larger one, `git lfs pull` does."
        with as_checkpoint_errors(f"{folder / name} cannot be read", advice), safe_open(folder / name, "pt") as file:
            shapes |= {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118 (not a dict)
    held = sum(math.prod(shape) for shape in shapes.values())
    blocks, layers = settings.get("block_out_channels"), settings.get("layers_per_block")
    many = isinstance(blocks, list) and isinstance(layers, int) and len(blocks) * layers > len(shapes)
    with as_checkpoint_errors(f"{kind.__name__} in {folder} cannot be made"), torch.device("meta"):
        wanted = math.inf if many else sum(map(torch.numel, kind.from_config(dict(settings)).state_dict().values()))
    if wanted > 2 * held:  # by less, it is diffusers that says what is missing
        raise CheckpointError(
            f"the weights in {folder} do not fill {kind.__name__}: its config calls for far more numbers than the "
            f"{held:,} that they hold. Save network and config together, with save_pretrained."
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
        shards = _read_object(index).get("weight_map")
        listed = list(shards.values()) if isinstance(shards, dict) else []
        if not listed or not all(isinstance(shard, str) and shard.endswith(_ENDING) for shard in listed):
            raise CheckpointError(f"expected the names of safetensors files in {index}. {advice}")
        return None, sorted(set(listed))
    if (folder / whole).is_file():
        return None, [whole]
    found = sorted(path.name for path in folder.glob(f"{_STEM}*"))
    variants = [name for name in found if name.startswith(f"{_STEM}.") and name.endswith(_ENDING)]
    if len(variants) == 1:
        return variants[0].removeprefix(f"{_STEM}.").removesuffix(_ENDING), variants
    raise CheckpointError(
        f"expected weights as safetensors in {folder}, {whole}; found {', '.join(found) or 'no weights'}. {advice}"
    )


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"expected a JSON object in {path}; got {type(value).__name__}.")
    return value


def _autoencoders(folder: Path) -> list[str]:
    """The names of the folders with autoencoders; without its own, latents would be taken for pixels."""
    index = _read_object(folder / "model_index.json") if (folder / "model_index.json").is_file() else {}
    names = [
        name for name in ("vae", "vqvae") if (folder / name).is_dir() or index.get(name) not in (None, [None, None])
    ]
    for name in names:
        if not (folder / name / "config.json").is_file():
            raise CheckpointError(
                f"expected {name}/config.json in the diffusers folder {folder}, whose model denoises latents; there is "
                "none. Save the whole pipeline with save_pretrained."
            )
    return names


def _part(folder: Path, name: str, config: str) -> Path:
    """The folder of the network or the scheduler: its own, or the model's itself."""
    for place in (folder / name, folder):
        if (place / config).is_file():
            return place
    raise CheckpointError(
        f"expected {name}/{config} in the diffusers folder {folder}; there is none. "
        "Save the whole pipeline, network and scheduler, with save_pretrained."
    )


@contextmanager
def _quiet(diffusers: Any) -> Iterator[None]:
    """Inside, diffusers neither warns nor shows progress: what matters is in our errors."""
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
