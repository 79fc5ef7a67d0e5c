"""Pickles built as EDM builds them, with weights from a seed and a line of text for a source.

The weights are uniform numbers of NumPy's frozen generator, so that they are the same everywhere. What the original
networks answer with them is in zoo/edm_vectors.safetensors, written by validation/edm_agreement.py.
"""

import pickle
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import nn

VECTORS = Path(__file__).parent / "zoo" / "edm_vectors.safetensors"
SOURCE = "raise RuntimeError('the source in a pickle was run')"
NCSNPP = {
    "embedding_type": "fourier",
    "encoder_type": "residual",
    "channel_mult_noise": 2,
    "resample_filter": [1, 3, 3, 1],
}


@dataclass(frozen=True)
class Case:
    """A preconditioned network: the classes and arguments that make it, and the seed of its weights."""

    seed: int
    outer: str = "EDMPrecond"
    inner: str = "SongUNet"
    size: int = 8
    channels: int = 3
    classes: int = 0
    arguments: dict = field(default_factory=dict)
    own: dict = field(default_factory=dict)  # of the preconditioning

    @property
    def options(self):
        """All arguments of the network, small unless the case says otherwise."""
        small = {
            "model_channels": 16,
            "channel_mult": [1, 2],
            "num_blocks": 1,
            "attn_resolutions": [4],
            "augment_dim": 0,
        }
        return small | self.arguments

    @property
    def inputs(self):
        """Noisy images, noise levels, labels and augmentation inputs."""
        random = np.random.RandomState(1000 + self.seed)
        sigma = torch.tensor([0.002, 0.05, 0.5, 2.0, 10.0, 80.0])
        images, noise = random.uniform(-1, 1, (2, 6, self.channels, self.size, self.size))
        x = torch.from_numpy(images).float() + sigma[:, None, None, None] * torch.from_numpy(1.7 * noise).float()
        labels = torch.from_numpy(random.randint(self.classes, size=6)) if self.classes else None
        augment = self.options["augment_dim"]
        return x, sigma, labels, torch.from_numpy(random.uniform(-1, 1, (6, augment))).float() if augment else None


CASES = {
    "ncsnpp-edm": Case(0, arguments=NCSNPP),
    "ncsnpp-ve-classes-augment": Case(1, "VEPrecond", classes=4, arguments={**NCSNPP, "augment_dim": 9}),
    "ncsnpp-vp": Case(2, "VPPrecond", arguments={**NCSNPP, "channel_mult": [2, 2], "num_blocks": 2}),
    "ddpmpp-edm-augment": Case(3, arguments={"augment_dim": 9}, own={"sigma_data": 0.3}),
    "ddpmpp-vp-classes": Case(4, "VPPrecond", classes=10, arguments={"attn_resolutions": [8, 4], "num_blocks": 2}),
    "ddpmpp-ve-gray": Case(5, "VEPrecond", channels=1, arguments={"channel_mult": [2, 1, 2], "attn_resolutions": []}),
    "adm-edm-without-heads": Case(6, inner="DhariwalUNet", arguments={"attn_resolutions": [8, 4]}),
    "adm-edm-classes-heads": Case(
        7, inner="DhariwalUNet", classes=5, arguments={"model_channels": 64, "attn_resolutions": [4], "augment_dim": 6}
    ),
    "adm-vp-wide-stem": Case(8, "VPPrecond", "DhariwalUNet", arguments={"channel_mult": [2, 3], "num_blocks": 2}),
    "adm-ve": Case(9, "VEPrecond", "DhariwalUNet", classes=3, size=16, arguments={"channel_mult": [1, 2, 2]}),
}


def layout(case):
    """Names and shapes of a network's tensors; filters are buffers of one element per pair of taps."""
    options, adm = case.options, case.inner == "DhariwalUNet"
    width, multipliers = options["model_channels"], options["channel_mult"]
    taps = len(options.get("resample_filter", [1, 1]))
    embedding, noise = 4 * width, width * options.get("channel_mult_noise", 1)
    found = {}

    def layer(name, out, *inside, bias=True):
        found[f"{name}.weight"] = (out, *inside)
        if bias:
            found[f"{name}.bias"] = (out,)

    def block(name, inside, out, *, attention=False, resampled=False):
        layer(f"{name}.norm0", inside)
        layer(f"{name}.conv0", out, inside, 3, 3)
        layer(f"{name}.affine", out * (2 if adm else 1), embedding)
        layer(f"{name}.norm1", out)
        layer(f"{name}.conv1", out, out, 3, 3)
        if resampled:
            found[f"{name}.conv0.resample_filter"] = found[f"{name}.skip.resample_filter"] = (1, 1, taps, taps)
        if inside != out or (resampled and not adm):
            layer(f"{name}.skip", out, inside, 1, 1)
        if attention and (not adm or out >= 64):
            layer(f"{name}.norm2", out)
            layer(f"{name}.qkv", 3 * out, out, 1, 1)
            layer(f"{name}.proj", out, out, 1, 1)

    if options.get("embedding_type") == "fourier":
        found["map_noise.freqs"] = (noise // 2,)
    if case.classes:
        layer("map_label", embedding if adm else noise, case.classes, bias=not adm)
    if options["augment_dim"]:
        layer("map_augment", noise, options["augment_dim"], bias=False)
    layer("map_layer0", embedding, noise)
    layer("map_layer1", embedding, embedding)
    channels, image = width * (multipliers[0] if adm else 1), case.channels
    layer(f"enc.{case.size}x{case.size}_conv", channels, image, 3, 3)
    skips = [channels]
    for level, multiplier in enumerate(multipliers):
        side = case.size >> level
        if level:
            block(f"enc.{side}x{side}_down", channels, channels, resampled=True)
            skips.append(channels)
            if options.get("encoder_type") == "residual":
                layer(f"enc.{side}x{side}_aux_residual", channels, image, 3, 3)
                found[f"enc.{side}x{side}_aux_residual.resample_filter"] = (1, 1, taps, taps)
                image = channels
        for index in range(options["num_blocks"]):
            attention = side in options["attn_resolutions"]
            block(f"enc.{side}x{side}_block{index}", channels, width * multiplier, attention=attention)
            channels = width * multiplier
            skips.append(channels)
    for level, multiplier in reversed(list(enumerate(multipliers))):
        side = case.size >> level
        if level == len(multipliers) - 1:
            block(f"dec.{side}x{side}_in0", channels, channels, attention=True)
            block(f"dec.{side}x{side}_in1", channels, channels)
        else:
            block(f"dec.{side}x{side}_up", channels, channels, resampled=True)
        for index in range(options["num_blocks"] + 1):
            attention = side in options["attn_resolutions"] and (adm or index == options["num_blocks"])
            block(f"dec.{side}x{side}_block{index}", channels + skips.pop(), width * multiplier, attention=attention)
            channels = width * multiplier
    last = "out_" if adm else f"dec.{case.size}x{case.size}_aux_"
    layer(f"{last}norm", channels)
    layer(f"{last}conv", case.channels, channels, 3, 3)
    return found


def seeded_weights(case):
    """The case's tensors: uniform numbers that keep activations near one."""
    random = np.random.RandomState(case.seed)
    weights = {}
    for name, shape in sorted(layout(case).items()):
        if name.endswith("resample_filter"):
            taps = torch.tensor(case.options.get("resample_filter", [1, 1])).float()
            weights[name] = (torch.outer(taps, taps) / taps.sum() ** 2).reshape(shape)
            continue
        values = torch.from_numpy(random.uniform(-1.7, 1.7, shape)).float()
        if name.endswith("freqs"):
            values = 16 * values
        elif len(shape) > 1:
            values = values / np.sqrt(np.prod(shape[1:]))
        else:
            values = 0.2 * values + (1 if "norm" in name and name.endswith("weight") else 0)
        weights[name] = values
    return weights


class Persistent(nn.Module):
    """Pickled as a call that would run the source; it records what its constructor was called with."""

    def __init__(self, class_name, *arguments, **keywords):
        super().__init__()
        self._class_name = class_name
        self._init_args, self._init_kwargs = arguments, keywords

    def __reduce__(self):
        state = {name: value for name, value in self.__dict__.items() if name != "_class_name"}
        meta = {"type": "class", "version": 6, "module_src": SOURCE, "class_name": self._class_name, "state": state}
        return sys.modules["torch_utils.persistence"]._reconstruct_persistent_obj, (meta,)


def network(case, weights=None):
    """A module tree as EDM's, with these weights or the case's own."""
    shape = {"img_resolution": case.size, "in_channels": case.channels, "out_channels": case.channels}
    inner = Persistent(case.inner, **shape, label_dim=case.classes, **case.options)
    inner.skip_scale = np.sqrt(0.5)  # a NumPy scalar, as blocks have one
    for name, value in (weights or seeded_weights(case)).items():
        *path, leaf = name.split(".")
        module = inner
        for depth, part in enumerate(path):
            if part not in module._modules:
                module.add_module(
                    part, nn.ModuleDict() if depth == 0 and part in ("enc", "dec") else Persistent("Layer")
                )
            module = module._modules[part]
        if leaf in ("weight", "bias"):
            module.register_parameter(leaf, nn.Parameter(value, requires_grad=False))
        else:
            module.register_buffer(leaf, value)
    own = {"model_type": case.inner, **case.own, **case.options}
    outer = Persistent(case.outer, case.size, case.channels, label_dim=case.classes, **own)
    outer.model = inner
    return outer.eval()


@contextmanager
def their_names():
    """Inside, the functions that EDM's pickles name can be named, as pickling requires."""
    names = ("torch_utils", "torch_utils.persistence", "dnnlib", "dnnlib.util")
    modules = {name: ModuleType(name) for name in names}

    def _reconstruct_persistent_obj(meta):
        raise AssertionError("never called")

    for target, home in ((_reconstruct_persistent_obj, "torch_utils.persistence"), (EasyDict, "dnnlib.util")):
        target.__module__, target.__qualname__ = home, target.__name__
        setattr(modules[home], target.__name__, target)
    sys.modules |= modules
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


class EasyDict(dict):
    """Stands in for their dictionary."""


def pickled(content, protocol=4):
    """Bytes of anything that may hold `Persistent` modules."""
    with their_names():
        return pickle.dumps(content, protocol)


def edm_pickle(case, protocol=4, **entries):
    """The bytes of a file with the case's network under `ema`, and other entries."""
    return pickled({"ema": network(case), "dataset_kwargs": {"path": "images.zip"}, **entries}, protocol)
