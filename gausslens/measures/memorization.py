"""Memorisation in samples: the distance from generated images to the images a model was trained on.

Distances are pixel Euclidean and neighbours exact. There are three descriptions, which are also computed for held-out
images, and one test: the GL score (the distance of samples from the training set, relative to their norm), the share of
samples much nearer to one training image than to any other, the duplicates among the images, and the two-set copy test of
`copy_test`. Only the last is a test. The distance of real new images depends on how smooth or noisy they are, so "nearer
than held-out images" is no evidence of copying. The paper's rule, that a GL score above 0.6 means generalisation, is not
applied: real new images of some sets score 0.3.
"""

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._typing import Bool, Float, Images, Int
from ..errors import require
from ..images import Bounds, check_labels, check_same_shape, gather
from ..noise import draw_order
from .copy_test import FALSE_DISCOVERY, CopyTest, copy_test
from .intervals import Estimate, mean_estimate, proportion_estimate
from .neighbors import norms
from .originals import COPY_RATIO, DUPLICATE_RMSE, Match, Originals, near_duplicates

MEMORIZED = 0.05
"""Share of copies among a network's samples above which it memorises."""

# The number of training images from which the usual distance between neighbours is computed.
_REFERENCE_IMAGES = 1000
_FLAT_SHARE = 0.1


@dataclass(frozen=True)
class Memorization:
    """How near samples lie to training images; tensors are on the CPU.

    Attributes:
        nearest: index of the training image nearest to each sample, (m,).
        distances: d₁, the distance to it, (m,).
        second_distances: d₂, the distance to the nearest training image that is not a near-duplicate of that one, (m,);
            NaN where there is none.
        gl: the GL score, the mean of ‖x − NN(x)‖/‖x‖ over samples x ≠ 0.
        gl_held_out: the GL score of the held-out images, which are certainly new; None without them.
        relative_gl: `gl`/`gl_held_out`, about 1 for samples as new as real images; None without held-out images.
        ratio_fraction: the share of samples with d₁/d₂ < threshold.
        ratio_fraction_held_out: the same share of the held-out images, which are not copies; None without them.
        identifiable: whether a copy of a sample's nearest training image can be distinguished from a similar image, (m,):
            that image is further from its own nearest distinct neighbour than the flattest tenth of training images are.
        copy_test: the two-set copy test; None without held-out images.
        train_duplicates: pairs (i, j), i < j, of training images of which j repeats i, (p, 2); see `duplicates`.
        shared_duplicates: pairs (i, j) of a training image i and a held-out image j that repeats it, (p, 2). Such
            images are not truly held out; remove them before trusting the held-out numbers and the copy test.
        n_train: number of training images.
        n_held_out: number of held-out images, 0 if none were given.
        threshold: the threshold of d₁/d₂ and of the copy test.
    """

    nearest: Tensor = field(repr=False)
    distances: Tensor = field(repr=False)
    second_distances: Tensor = field(repr=False)
    gl: Estimate
    gl_held_out: Estimate | None
    relative_gl: Estimate | None
    ratio_fraction: Estimate
    ratio_fraction_held_out: Estimate | None
    identifiable: Tensor = field(repr=False)
    copy_test: CopyTest | None
    train_duplicates: Tensor = field(repr=False)
    shared_duplicates: Tensor = field(repr=False)
    n_train: int
    n_held_out: int
    threshold: float

    @property
    def gl_relative(self) -> Estimate | None:
        """The name of `relative_gl` in version 0.1."""
        warnings.warn("Memorization.gl_relative is now relative_gl.", DeprecationWarning, stacklevel=2)
        return self.relative_gl

    def __str__(self) -> str:
        lines = [
            f"{len(self.nearest)} samples against {self.n_train} training and {self.n_held_out} held-out images",
            f"  GL score: {self.gl}",
            f"  share of samples with d₁/d₂ below {self.threshold:.2g}: {self.ratio_fraction}",
            f"  samples whose nearest training image is identifiable: {int(self.identifiable.sum())} of "
            f"{len(self.identifiable)}",
            f"  duplicates: {len(self.train_duplicates)} training images repeat others, "
            f"{len(self.shared_duplicates)} held-out images repeat training images",
        ]
        if self.copy_test is not None:
            lines.insert(2, f"  GL score of held-out images: {self.gl_held_out}; relative to it: {self.relative_gl}")
            lines.append(f"  copy test: {self.copy_test}")
        return "\n".join(lines)


def memorization(
    samples: Images,
    train: Images,
    held_out: Images | None = None,
    *,
    threshold: float = COPY_RATIO,
    false_discovery: float = FALSE_DISCOVERY,
    permutations: int = 9999,
    duplicate_rmse: float = DUPLICATE_RMSE,
    groups: Any = None,
    seed: int = 0,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Memorization:
    """Whether samples are copies of training images.

    GL = (1/m) Σ ‖x − NN(x)‖/‖x‖;  ratio fraction = #{d₁/d₂ < 1/3}/m, d₂ to the nearest distinct image.

    Without held-out images there are descriptions but no test. Pass as many held-out images as there are, drawn at random
    from the source of the training images and never trained on.

    Args:
        samples: generated images, (m, *shape), m ≥ 1, finite but of any range.
        train: the images the model was trained on, (n, *shape).
        held_out: images of the same source that it has not seen, (n', *shape).
        threshold: the threshold of d₁/d₂ and of the copy test, above 0 and below 1.
        false_discovery: the largest expected share of wrong names among the copies that the copy test names.
        permutations: number of random labellings behind the p-value of the copy test, at least 1.
        duplicate_rmse: root mean square pixel difference up to which two images are the same, at least 0; the default
            is one grey level of 8 bits.
        groups: integers (n,) that say which training images belong together, such as those of one patient: a copy of any
            image of a group is a copy of the same original.
        seed: seed of everything random.
        bounds: admissible values of float `train` and `held_out`, or None.
        device: where to search for neighbours; None is where `train` is.
        progress: whether to show progress bars.

    Returns:
        The distances, scores and test.

    Raises:
        ConfigError: if an option is out of its range.
        DataError: if a set is empty or not finite, or the sets' image shapes differ.

    Reference: arXiv:2410.24060, Eq. (14), for GL; Gu, Du, Pang, Li, Lin, Wang (2023), arXiv:2310.02664, for the ratio.

    >>> images = torch.rand(300, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    >>> copies, new = images[:100], images[200:]
    >>> for samples in copies, new:
    ...     result = memorization(samples, images[:100], images[100:200])
    ...     print(f"{result.gl.value:.2f} {result.ratio_fraction.value:.2f} {result.copy_test.p_value}")
    0.00 1.00 0.0001
    0.53 0.00 1.0
    """
    require(0 < threshold < 1, f"threshold must lie above 0 and below 1; got {threshold}.")
    require(0 <= duplicate_rmse < math.inf, f"duplicate_rmse must be finite and at least 0; got {duplicate_rmse}.")
    generated = gather(samples, bounds=None, name="samples")
    known = gather(train, bounds=bounds, name="train")
    unseen = None if held_out is None else gather(held_out, bounds=bounds, name="held_out")
    for name, images in (("samples", generated), ("held_out", unseen)):
        if images is not None:
            check_same_shape(images, known, name)
    where: dict[str, Any] = {"device": device, "progress": progress}
    options: dict[str, Any] = {"threshold": threshold, "false_discovery": false_discovery, "permutations": permutations}
    repeats = near_duplicates(known, rmse=duplicate_rmse, **where)
    of_group = None if groups is None else check_labels(groups, len(known), "groups")
    originals = Originals.of(known, of_group, repeats=repeats, device=device)

    def describe(images: Tensor) -> tuple[Match, Estimate, Estimate]:
        """The nearest originals, the GL score and the ratio fraction of images."""
        match = originals.nearest(images, progress=progress)
        close = int((match.ratio < threshold).sum())
        return match, gl_score(images, match.first), proportion_estimate(close, len(images))

    match, gl, fraction = describe(generated)
    gl_held_out = relative_gl = fraction_held_out = tested = None
    shared = torch.empty(0, 2, dtype=torch.long)
    if unseen is not None:
        _, gl_held_out, fraction_held_out = describe(unseen)
        relative_gl = estimate_ratio(gl, gl_held_out)
        shared = near_duplicates(known, unseen, rmse=duplicate_rmse, **where)
        tested = copy_test(generated, known, unseen, seed=seed, **options, **where)
    return Memorization(
        nearest=match.image,
        distances=match.first,
        second_distances=match.second,
        gl=gl,
        gl_held_out=gl_held_out,
        relative_gl=relative_gl,
        ratio_fraction=fraction,
        ratio_fraction_held_out=fraction_held_out,
        identifiable=identifiable_images(match.image, originals, seed),
        copy_test=tested,
        train_duplicates=repeats,
        shared_duplicates=shared,
        n_train=len(known),
        n_held_out=0 if unseen is None else len(unseen),
        threshold=threshold,
    )


def gl_score(images: Tensor, distances: Float[Tensor, "m"]) -> Estimate:
    """The mean of ‖x − NN(x)‖/‖x‖ over images other than 0."""
    sizes = norms(images)
    if not bool((sizes > 0).any()):
        return Estimate(math.nan, math.nan, math.nan, 0)
    return mean_estimate((distances / sizes)[sizes > 0])


def estimate_ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """The ratio of two independent positive estimates, with an interval from theirs.

    With a = x² − (x − x_low)² and b = y² − (y_high − y)², low = (xy − √(x²y² − ab))/b; high likewise, with the other
    ends and +. It is Fieller's interval if both intervals are symmetric.

    Reference: Donner, Zou (2012), Stat. Methods Med. Res. 21, 347 ff.
    """
    x, y = numerator.value, denominator.value
    if not y > 0:
        return Estimate(math.nan, math.nan, math.nan, numerator.count)

    def end(x_end: float, y_end: float, sign: int) -> float:
        a, b = x**2 - (x - x_end) ** 2, y**2 - (y - y_end) ** 2
        if b <= 0:  # the denominator may be 0, so the ratio may be anything
            return 0.0 if sign < 0 else math.inf
        return (x * y + sign * math.sqrt(max(x**2 * y**2 - a * b, 0.0))) / b

    low, high = end(numerator.low, denominator.high, -1), end(numerator.high, denominator.low, 1)
    return Estimate(x / y, low, high, numerator.count)


def identifiable_images(indices: Int[Tensor, "m"], originals: Originals, seed: int) -> Bool[Tensor, "m"]:
    """Whether images of a set are further from the nearest other original than the flattest tenth of the set."""
    usual = originals.kept[draw_order(seed, len(originals.kept), stream="identifiable")[:_REFERENCE_IMAGES]]
    asked, places = torch.cat([usual, indices]).unique(return_inverse=True)
    own = originals.without_themselves(torch.searchsorted(originals.kept, asked)).first[places]
    flat = own[: len(usual)].nanquantile(_FLAT_SHARE)
    return own[len(usual) :] > flat
