"""The numbers that the audit's rules compare with, in one table, each with its source."""

from typing import NamedTuple


class Threshold(NamedTuple):
    """A number that the rules compare with, and its source."""

    value: float | int
    source: str


THRESHOLDS = {
    "memorizing": Threshold(
        0.65, "between multi-delta weights of .5 and .9; networks whose samples are mostly copies have .73 to .85"
    ),
    "generalizing": Threshold(0.3, "midway between multi-delta weights of .1 and .5; generalisers have .0 to .1"),
    "exchanged": Threshold(-0.3, "position below which the model memorised the held-out images: the same, mirrored"),
    "gaussian": Threshold(
        0.75, "position of the Gaussian denoiser above which it is so near a memoriser that a level decides nothing"
    ),
    "beyond gaussian": Threshold(0.3, "ρ at which a model is clearly beyond the Gaussian denoiser, whose ρ is 0"),
    "visible": Threshold(
        0.25, "gap of the multi-delta denoiser, in units of the baseline's loss, below which a level decides nothing"
    ),
    "behind": Threshold(
        1.1, "loss in units of the baseline's above which a model falls behind; networks of digits have .7 to 1.03"
    ),
    "far behind": Threshold(
        2.0,
        "the same below the intermediate levels, where the baseline hardly removes noise: a choice; networks have about 1",
    ),
    "far better": Threshold(
        0.8,
        "loss of another preparation, in units of the loss as given, that cannot explain a model that is behind: a choice",
    ),
    "noisy": Threshold(0.9, "intermediate levels: the baseline leaves less of the noise, and of the images' variance"),
    "copies": Threshold(0.5, "most samples: a choice"),
    "p": Threshold(0.001, "level at which copies exist: at most one false alarm in a thousand audits"),
    "few originals": Threshold(5, "copied originals below which the generator may have collapsed: a choice"),
    "rare": Threshold(0.01, "share of real images that are copies by chance, below which few originals convict, too"),
    "false discovery": Threshold(0.1, "admissible share of wrong names among all names"),
    "exchangeable": Threshold(0.0005, "p-value at which training and held-out images differ in distribution"),
    "auc": Threshold(
        0.6,
        "AUC of the loss above which a model leaks membership; that of a Gaussian filter is reported for comparison",
    ),
    "tpr": Threshold(0.02, "share of training images recognised at 1 % false positives, twice what chance gives"),
}
"""All numbers that decide, tuned on the tuning part of the ladder and not on what it is scored on (validation/ladder.py)."""


def limit(name: str) -> float | int:
    """The value of a threshold."""
    return THRESHOLDS[name].value
