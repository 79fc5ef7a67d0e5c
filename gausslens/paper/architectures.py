"""Networks other than a plan's own: published architectures in sizes that fit its images, and autoencoders of one level.

Autoencoders are not preconditioned: their input is the noisy image itself, of a scale of up to 80, and their output the
clean one. On 8×8 digits each recipe below takes 2 to 6 seconds on one core. The linear autoencoder must average out the
noise of its gradient. To come within a share e of the data's spread in d dimensions it needs about d/(0.14·e²) images, and
the average of its last weights covers a seventh of them: 4.5 thousand images for each dimension at e = 0.04.
"""

import math
from collections.abc import Iterable
from typing import Any

from ..experiments.task import Task
from ..nn import LAYOUT, default_options
from .plan import Plan, rounded

PUBLISHED = ("ncsnpp", "ddpmpp", "adm")
"""The architectures that are compared with the plan's own."""

AUTOENCODERS = {"linear": "linear", "skipnet": "Skip-Net", "dit": "DiT", "ncsnpp": "NCSN++"}
"""The networks of the paper's App. G.2, with their names in figures."""

_LABELS = {"ncsnpp": "NCSN++ (VE)", "ddpmpp": "DDPM++ (VP)", "adm": "ADM", "unet": "small U-Net"}
_RISE = 1 / 10  # share of training over which the step size rises; for architectures also half-life of the average

# On 8×8 digits, an eighth of the small U-Net's training in smaller batches suffices for each of the three: the held-out
# loss is 0.55 to 0.56 after 12 kimg, and 0.55 after 96 for the U-Net. With the published noise levels, only three of 12
# thousand images have σ > 20, and NCSN++, which encodes levels by random frequencies, is then erratic there. So the levels
# are spread wider.
_REDUCED: dict[str, Any] = {
    **{"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": ()},
    **{"batch": 32, "learning_rate": 6e-3, "level_spread": 1.6},
}
_REDUCED_SHARE = 1 / 8
# The largest steps at which networks of full depth are stable. When the step size of ADM (width 64, CIFAR-10) reached 1e-3,
# its loss rose from .25 to .94, and the network did not recover. With 3e-4 the loss of two of four runs jumped later, and
# one run diverged. With these values three of four runs recovered from all jumps and finished, and one diverged.
_LARGEST_STEPS: dict[str, dict[str, float]] = {
    "ncsnpp": {"learning_rate": 1e-3},
    "ddpmpp": {"learning_rate": 1e-3},
    "adm": {"learning_rate": 1e-4, "batch": 32},
}

# Autoencoders where the plan's network is the small U-Net and images are small: layout and training. `share` is the length
# of training in units of the plan's.
_SMALL: dict[str, dict[str, Any]] = {
    "skipnet": {"width": 32, "batch": 64, "learning_rate": 5e-3, "share": 1 / 12},
    "dit": {"width": 32, "blocks": 1, "batch": 32, "learning_rate": 3e-3, "share": 1 / 5},
    "ncsnpp": {
        **{"width": 8, "multipliers": (1, 2), "blocks": 1, "attention": ()},
        **{"batch": 32, "learning_rate": 1e-2, "share": 1 / 12},
    },
}
# The same on larger images. Where the plan's network is a published one, autoencoders have their published layouts.
_LARGER: dict[str, dict[str, Any]] = {"skipnet": {"width": 32}, "dit": {"width": 128, "blocks": 4}, "ncsnpp": {}}
_LARGER_TRAINING: dict[str, Any] = {"batch": 128, "learning_rate": 1e-3, "share": 1 / 4}
_CAREFUL = {"dit": {"learning_rate": 3e-4}}  # with 1e-3 twelve blocks diverged at one of ten levels of CIFAR-10
_LINEAR_SHARE, _LINEAR_KIMG, _LINEAR_KIMG_PER_DIM = 4, 400.0, 5.0


def architecture(plan: Plan, name: str) -> dict[str, Any]:
    """What to change in a plan's model for another architecture, in a size that fits the images; nothing for its own.

    If the plan's network is the small U-Net, small images get a reduced network and training, and larger images the U-Net's
    width, depth and length of training. If it is a published network, the others have its width and their own layout.
    """
    own = plan.training["network"]
    if name == own:
        return {}
    if _is_reduced(plan):
        kimg = max(rounded(plan.kimg * _REDUCED_SHARE), _REDUCED["batch"] / 1000)
        return {"network": name, **_REDUCED, "multipliers": _fitting(_REDUCED["multipliers"], plan.shape), "kimg": kimg}
    layout = default_options("unet" if own == "unet" else name, plan.shape)
    return {
        "network": name,
        "multipliers": _fitting(layout["multipliers"], plan.shape),
        "blocks": layout["blocks"],
        **{field: min(plan.training[field], most) for field, most in _LARGEST_STEPS[name].items()},
        "ramp_kimg": plan.kimg * _RISE,
        "ema_kimg": plan.kimg * _RISE,
    }


def label(name: str) -> str:
    """The name of an architecture in figures."""
    return _LABELS.get(name, name)


def format_sizes(plan: Plan, names: Iterable[str]) -> str:
    """The sizes of these networks, in a sentence."""
    reduced = [label(name) for name in names if architecture(plan, name).get("width") == _REDUCED["width"]]
    if not reduced:
        return f"All have {plan.width} channels."
    return (
        f"{', '.join(reduced)} are reduced to {_REDUCED['width']} channels and {len(_REDUCED['multipliers'])} "
        f"resolutions for images of this size, and trained for {plan.kimg * _REDUCED_SHARE:.3g} thousand images."
    )


def kinds(plan: Plan) -> tuple[str, ...]:
    """Names of the autoencoders that fit the images: a transformer needs sides that are multiples of its patch size."""
    patch = 2 if max(plan.shape[1:]) <= 32 else 4
    fits = all(side % patch == 0 for side in plan.shape[1:])
    return tuple(name for name in AUTOENCODERS if name != "dit" or fits)


def autoencoder(plan: Plan, name: str, n: int, seed: int, sigma: float) -> Task:
    """The task that trains an autoencoder for at least one step, with an average of its weights over all of training."""
    layout = default_options(name, plan.shape)
    if name == "linear":
        recipe = _linear_recipe(plan, sigma)
    else:
        if _is_reduced(plan):
            recipe = dict(_SMALL[name])
        else:
            own = architecture(plan, name) if name == "ncsnpp" else layout
            larger = _LARGER[name] if plan.training["network"] == "unet" else {}
            recipe = {option: own[option] for option in LAYOUT if option in own}
            recipe |= {**larger, **_LARGER_TRAINING, **_CAREFUL.get(name, {})}
        recipe["kimg"] = plan.kimg * recipe.pop("share")
    recipe.setdefault("multipliers", layout.get("multipliers"))
    kimg = max(rounded(recipe["kimg"]), recipe["batch"] / 1000)
    recipe |= {"kimg": kimg, "ramp_kimg": kimg * _RISE, "ema_kimg": kimg}
    return plan.model(n, seed, network=name, sigma=sigma, **recipe)


def _linear_recipe(plan: Plan, sigma: float) -> dict[str, Any]:
    """A step of Adam moves the output by σ√d times the step size, so high noise and many dimensions need smaller steps.

    The step size is 1e-2/√(s·u·min(s, u)) with s = max(1, d/64) and u = 1 + σ/4. At high noise the exact weights are smaller
    as well, so the step size falls with s. At low noise it falls with √s, since smaller steps would not reach the optimum.
    """
    least, needed = max(_LINEAR_SHARE, plan.dim / 32) * plan.kimg, max(_LINEAR_KIMG, _LINEAR_KIMG_PER_DIM * plan.dim)
    more_dims, more_noise = max(1.0, plan.dim / 64), 1 + sigma / 4
    rate = 1e-2 / math.sqrt(more_dims * more_noise * min(more_dims, more_noise))
    batch = 256 if plan.has_small_images else 1024
    return {"batch": batch, "learning_rate": rounded(rate), "kimg": min(least, needed)}


def _is_reduced(plan: Plan) -> bool:
    """Whether other networks than the plan's are reduced: its own is small, and its images are."""
    return plan.training["network"] == "unet" and plan.has_small_images


def _fitting(multipliers: tuple[int, ...], shape: tuple[int, int, int]) -> tuple[int, ...]:
    """As many resolutions as the image can be halved to."""
    halvings = min((side & -side).bit_length() - 1 for side in shape[1:])
    return multipliers[: halvings + 1]
