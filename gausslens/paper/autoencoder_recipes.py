"""Recipes: how an autoencoder of one noise level is built and trained beside a plan's models.

Autoencoders are not preconditioned: they are given images as they are, of a scale of up to 80, and return clean ones. On
8×8 digits the recipes below take 2 to 6 seconds of one core each. The linear one must average its gradient's noise away: to
come within a share e of the data's spread in d dimensions it needs about d/(0.14·e²) images, of which the average of its
last weights sees a seventh: 4.5 thousand for each dimension at e = 0.04.
"""

import math
from typing import Any

from ..experiments.task import Task
from ..nn import default_options
from .architectures import architecture
from .plan import Plan

AUTOENCODERS = {"linear": "linear", "skipnet": "Skip-Net", "dit": "DiT", "ncsnpp": "NCSN++"}
"""What figures call the networks of the paper's App. G.2."""

_SMALL_PIXELS = 16
_LAYOUT = ("width", "multipliers", "blocks", "attention")
# Beside the small U-Net on small images: layout and training, of which `share` is in units of the plan's own length.
_SMALL: dict[str, dict[str, Any]] = {
    "skipnet": {"width": 32, "batch": 64, "learning_rate": 5e-3, "share": 1 / 12},
    "dit": {"width": 32, "blocks": 1, "batch": 32, "learning_rate": 3e-3, "share": 1 / 5},
    "ncsnpp": {
        **{"width": 8, "multipliers": (1, 2), "blocks": 1, "attention": ()},
        **{"batch": 32, "learning_rate": 1e-2, "share": 1 / 12},
    },
}
# Beside it on larger images; the published ones keep their own layout beside a published network.
_LARGER: dict[str, dict[str, Any]] = {"skipnet": {"width": 32}, "dit": {"width": 128, "blocks": 4}, "ncsnpp": {}}
_LARGER_TRAINING: dict[str, Any] = {"batch": 128, "learning_rate": 1e-3, "share": 1 / 4}
_CAREFUL = {"dit": {"learning_rate": 3e-4}}  # with 1e-3 twelve blocks diverged at one of ten levels of CIFAR-10
_RISE = 1 / 10  # share of training over which the step size rises
_LINEAR_SHARE, _LINEAR_KIMG = 4, 400.0
_LINEAR_KIMG_PER_DIM = 5.0


def kinds(plan: Plan) -> tuple[str, ...]:
    """Names of the autoencoders that fit the images: a transformer needs sides that are multiples of its patch."""
    patch = 2 if max(plan.shape[1:]) <= 32 else 4
    fits = all(side % patch == 0 for side in plan.shape[1:])
    return tuple(name for name in AUTOENCODERS if name != "dit" or fits)


def autoencoder(plan: Plan, name: str, n: int, seed: int, sigma: float) -> Task:
    """The task that trains an autoencoder."""
    if name == "linear":
        return plan.model(n, seed, **_linear(plan, sigma))
    small_network = plan.training["network"] == "unet"
    if small_network and max(plan.shape[1:]) <= _SMALL_PIXELS:
        recipe = dict(_SMALL[name])
    else:
        layout = architecture(plan, name) if name == "ncsnpp" else default_options(name, plan.shape)
        recipe = {option: layout[option] for option in _LAYOUT if option in layout}
        recipe |= {**(_LARGER[name] if small_network else {}), **_LARGER_TRAINING, **_CAREFUL.get(name, {})}
    recipe.setdefault("multipliers", default_options(name, plan.shape).get("multipliers"))
    length = _lengths(plan.kimg * recipe.pop("share"), recipe["batch"])
    return plan.model(n, seed, network=name, sigma=sigma, **recipe, **length)


def _linear(plan: Plan, sigma: float) -> dict[str, Any]:
    """A step of Adam moves the output by σ√d times the step size, so high noise and many dimensions take smaller ones.

    It is 1e-2/√(s·u·min(s, u)) with s = max(1, d/64) and u = 1 + σ/4. At high noise the answer is smaller as well, so that
    the step size falls with all of s; where noise is low, √s suffices, and smaller steps would not arrive.
    """
    least, needed = max(_LINEAR_SHARE, plan.dim / 32) * plan.kimg, max(_LINEAR_KIMG, _LINEAR_KIMG_PER_DIM * plan.dim)
    more_dims, more_noise = max(1.0, plan.dim / 64), 1 + sigma / 4
    rate = 1e-2 / math.sqrt(more_dims * more_noise * min(more_dims, more_noise))
    batch = 256 if max(plan.shape[1:]) <= _SMALL_PIXELS else 1024
    training = {"network": "linear", "sigma": sigma, "batch": batch, "learning_rate": float(f"{rate:.3g}")}
    return {**training, **_lengths(min(least, needed), batch)}


def _lengths(kimg: float, batch: int) -> dict[str, Any]:
    """Length of training, at least one step; the weights' average is as long as it can be."""
    length = max(float(f"{kimg:.3g}"), batch / 1000)
    return {"kimg": length, "ramp_kimg": length * _RISE, "ema_kimg": length}
