"""Architectures: the published networks in sizes that fit a plan's images, to stand beside the plan's own."""

from collections.abc import Iterable
from typing import Any

from ..experiments.task import Task
from ..nn import default_options
from .plan import Plan

PUBLISHED = ("ncsnpp", "ddpmpp", "adm")
"""The architectures that are compared, beside the plan's own."""

_LABELS = {"ncsnpp": "NCSN++ (VE)", "ddpmpp": "DDPM++ (VP)", "adm": "ADM", "unet": "small U-Net"}
_SMALL_PIXELS = 16  # longest side of images that a reduced network suffices for
_REDUCED: dict[str, Any] = {"width": 16, "multipliers": (1, 2), "blocks": 1, "attention": ()}
# On 8×8 digits, an eighth of the small U-Net's training in smaller batches brings each of the three as far as that: a
# held-out loss of 0.55 to 0.56 after 12 kimg, beside 0.55 after 96. So few images hold three at σ > 20 with the published
# noise levels, and NCSN++, which tells levels apart by random frequencies, is then erratic there: they are spread wider.
_REDUCED_TRAINING: dict[str, Any] = {"batch": 32, "learning_rate": 6e-3, "level_spread": 1.6}
_REDUCED_SHARE = 1 / 8
# What networks bear without reduced depth. When the step size of ADM, of width 64 on CIFAR-10, reached 1e-3, its loss rose
# from .25 to .94, and the network did not recover; with 3e-4 two of four trainings were thrown back later, and one diverged.
# With these, three of four came to an end, with jumps that they made good, and one diverged.
_LARGEST_STEPS: dict[str, dict[str, float]] = {
    "ncsnpp": {"learning_rate": 1e-3},
    "ddpmpp": {"learning_rate": 1e-3},
    "adm": {"learning_rate": 1e-4, "batch": 32},
}
_SETTLING = 1 / 10  # share of training over which the step size rises, and half-life of the average, as published


def architecture(plan: Plan, name: str) -> dict[str, Any]:
    """What to change in a plan's model to make it one of another architecture, in a size that fits the images.

    Beside the small U-Net, small images get a reduced network and training, and larger ones the U-Net's own width, depth and
    length of training. Beside a published network, the others have its width and their own published layout.
    """
    own = plan.training["network"]
    if name == own:
        return {}
    if own == "unet" and max(plan.shape[1:]) <= _SMALL_PIXELS:
        multipliers = _fitting(_REDUCED["multipliers"], plan.shape)
        kimg = max(float(f"{plan.kimg * _REDUCED_SHARE:.3g}"), _REDUCED_TRAINING["batch"] / 1000)
        return {"network": name, **_REDUCED, "multipliers": multipliers, **_REDUCED_TRAINING, "kimg": kimg}
    layout = default_options("unet" if own == "unet" else name, plan.shape)
    return {
        "network": name,
        "multipliers": _fitting(layout["multipliers"], plan.shape),
        "blocks": layout["blocks"],
        **{field: min(plan.training[field], most) for field, most in _LARGEST_STEPS[name].items()},
        "ramp_kimg": plan.kimg * _SETTLING,
        "ema_kimg": plan.kimg * _SETTLING,
    }


def model_of(plan: Plan, name: str, n: int, seed: int, *, half: int = 1) -> Task:
    """The task that trains a model of an architecture; for the plan's own, that of all other studies."""
    return plan.model(n, seed, half=half, **architecture(plan, name))


def label(name: str) -> str:
    """What figures call an architecture."""
    return _LABELS.get(name, name)


def sizes_told(plan: Plan, names: Iterable[str]) -> str:
    """How large the networks of these names are, in words."""
    reduced = [name for name in names if architecture(plan, name).get("width") == _REDUCED["width"]]
    if not reduced:
        return f"All have {plan.width} channels."
    names = ", ".join(label(name) for name in reduced)
    return (
        f"{names} are reduced to {_REDUCED['width']} channels and {len(_REDUCED['multipliers'])} resolutions for images of "
        f"this size, and trained for {plan.kimg * _REDUCED_SHARE:.3g} thousand images."
    )


def _fitting(multipliers: tuple[int, ...], shape: tuple[int, int, int]) -> tuple[int, ...]:
    """As many resolutions as the image can be halved to."""
    halvings = min((side & -side).bit_length() - 1 for side in shape[1:])
    return multipliers[: halvings + 1]
