"""Denoising losses on training images and on held-out ones, and where a network lies between denoisers that are known.

The loss of a denoiser at an image x0 and a noise level σ is the mean over pixels and noises of (D(x0 + σ·eps; σ) − x0)². All
denoisers and all noise levels see the same noises; images are the independent units. What a model has learned of its
training images in particular shows in the gap, held-out loss minus training loss. A gap alone is no copying: the Wiener
filter of 64 digits has an AUC of .9. So the gap is placed between those of two denoisers with the same noises,

    (gap − gap_zero) / (gap_M − gap_zero),     M the multi-delta denoiser of the training images, a perfect memoriser,

with the Gaussian denoiser of the training images as zero (ρ, the paper's scale), or the baseline (see `baseline`), to which
both sets are alike. Fitted to fewer images than dimensions the Gaussian copies too; on the second scale that shows.

A third number needs held-out images alone. For the exact posterior mean P of the law, E⟨h(x), P(x) − x0⟩ = 0 for every
function h of new noisy images x. So with h = M − B, B the baseline, the retrieval

    κ = E⟨M − B, D − x0⟩ / E⟨M − B, M − x0⟩

is 0 for the posterior mean, 1 for the memoriser, and w for D = wM + (1 − w)P, whatever the law.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .._typing import Bool, Float, Images, Int, Sigmas
from ..denoisers.protocol import Denoiser, call, eval_mode, in_batches, placement
from ..errors import ConfigError, DataError
from ..images import Bounds, check_labels, dequantize, gather
from ..measures.intervals import Estimate, mean_estimate, mean_interval, ratio_interval
from ..measures.two_sample import auc_estimate, difference_estimate, permutation_p_values, quotient_estimate
from ..noise import as_sigmas, draw_noise, draw_order
from ..progress import track
from .baseline import Baseline, images_used
from .thresholds import THRESHOLDS

GAUSSIAN, MULTIDELTA, BASELINE = "gaussian", "multidelta", "baseline"
DEFAULT_NOISES, DEFAULT_IMAGES = 16, 200
_BATCH_NUMBERS = 1 << 20


@dataclass(frozen=True, eq=False)
class LossGap:
    """Losses of denoisers by image, or by group where images come in groups, and what follows from them.

    Attributes:
        sigmas: the noise levels, (s,).
        train: loss of each denoiser, by name, at each level on each training image used, (s, n).
        held_out: the same on held-out images, (s, m); m may be 0.
        pull: ⟨M − B, D − x0⟩/d of each denoiser at each level on each held-out image, (s, m).
        apart: ‖D − G‖²/d of each denoiser and the Gaussian one at each level on each held-out image, (s, m).
        n_train: how many training images there are.
        noises: noises per image.
        seed: of noises and of the choice of images.
        images: which training images they are, (n,); of groups the first image.
        labels: their classes, (n,), or None.
        held_out_labels: classes of the held-out images, (m,), or None.
    """

    sigmas: Float[Tensor, "s"]
    train: Mapping[str, Float[Tensor, "s n"]] = field(repr=False)
    held_out: Mapping[str, Float[Tensor, "s m"]] = field(repr=False)
    pull: Mapping[str, Float[Tensor, "s m"]] = field(repr=False)
    apart: Mapping[str, Float[Tensor, "s m"]] = field(repr=False)
    n_train: int
    noises: int
    seed: int
    images: Int[Tensor, "n"] = field(repr=False)
    labels: Int[Tensor, "n"] | None = field(default=None, repr=False)
    held_out_labels: Int[Tensor, "m"] | None = field(default=None, repr=False)

    @property
    def calibrated(self) -> bool:
        """Whether there are held-out images, without which no gap is known."""
        return self.held_out[MULTIDELTA].shape[1] > 0

    def loss(self, name: str, on: str = "held_out") -> list[Estimate]:
        """Mean losses of a denoiser at each level, on "train" or "held_out" images, with intervals over images."""
        return [mean_estimate(row) for row in (self.train if on == "train" else self.held_out)[name]]

    def gap(self, name: str) -> list[Estimate]:
        """Held-out loss minus training loss at each level."""
        return [difference_estimate(*rows) for rows in self._rows(name)]

    def auc(self, name: str) -> list[Estimate]:
        """How well the loss tells training images from others at each level: P(training loss < held-out loss)."""
        return [auc_estimate(*rows) for rows in self._rows(name)]

    def p_values(self, name: str) -> Float[Tensor, "s"]:
        """How likely so large an AUC would be by chance, at each level (see `permutation_p_values`)."""
        self._check_calibrated()
        return permutation_p_values(self.train[name], self.held_out[name], seed=self.seed)

    def position(self, name: str, zero: str = GAUSSIAN) -> list[Estimate | None]:
        """Where the gap lies between that of `zero` (0) and the multi-delta denoiser's (1), at each level."""
        positions = []
        for own, zeros, ones in zip(*(self._rows(part) for part in (name, zero, MULTIDELTA)), strict=True):
            above = own[0] - zeros[0], own[1] - zeros[1]
            positions.append(quotient_estimate(above, (ones[0] - zeros[0], ones[1] - zeros[1])))
        return positions

    def retrieval(self, name: str) -> list[Estimate | None]:
        """κ, the share of the multi-delta denoiser's answers to new images in this denoiser's, at each level."""
        self._check_calibrated()
        ones = self.pull[MULTIDELTA]
        resolved = mean_interval(ones)[1] > 0
        shares: list[Estimate | None] = [None] * len(ones)
        if bool(resolved.any()):
            values, low, high, _ = ratio_interval(self.pull[name][resolved], ones[resolved])
            for level, *row in zip(resolved.nonzero()[:, 0].tolist(), values, low, high, strict=True):
                shares[level] = Estimate(float(row[0]), float(row[1]), float(row[2]), ones.shape[1])
        return shares

    def near_gaussian(self, name: str) -> tuple[bool, ...]:
        """At which levels it is nearer to the Gaussian than half the multi-delta denoiser's distance, on held-out images."""
        self._check_calibrated()
        own, reference = (self.apart[each].mean(1) for each in (name, MULTIDELTA))
        return tuple((own < reference / 4).tolist())

    def window(self) -> tuple[bool, ...]:
        """At which levels a memoriser would be seen: where its gap is visible, and the Gaussian's well below it."""
        gaps = {
            name: self.held_out[name].mean(1) - self.train[name].mean(1) for name in (GAUSSIAN, MULTIDELTA, BASELINE)
        }
        reach = gaps[MULTIDELTA] - gaps[BASELINE]
        visible = reach >= THRESHOLDS["visible"].value * self.held_out[BASELINE].mean(1)
        apart = gaps[GAUSSIAN] - gaps[BASELINE] <= THRESHOLDS["gaussian"].value * reach
        return tuple((visible & apart).tolist())

    def intermediate(self) -> tuple[bool, ...]:
        """At which levels the baseline is better than the noisy image, and than the mean image (its loss at the top)."""
        plain = (self.held_out if self.calibrated else self.train)[BASELINE].mean(1)
        share = THRESHOLDS["noisy"].value
        return tuple(((plain <= share * self.sigmas.square()) & (plain <= share * plain.max())).tolist())

    def relative(self, name: str, to: str, on: str = "held_out") -> list[Estimate]:
        """Mean loss of one denoiser in units of another's at each level, with intervals over the same images."""
        losses = self.train if on == "train" else self.held_out
        values, low, high, per_image = ratio_interval(losses[name], losses[to])
        ends = zip(values.tolist(), low.tolist(), high.tolist(), strict=True)
        return [Estimate(*row, per_image.shape[1]) for row in ends]

    def _rows(self, name: str) -> list[tuple[Tensor, Tensor]]:
        self._check_calibrated()
        return list(zip(self.train[name], self.held_out[name], strict=True))

    def _check_calibrated(self) -> None:
        if not self.calibrated:
            raise ConfigError(
                "gaps need held-out images, and none were given. Pass images that the model has not seen."
            )


def measure_losses(
    denoisers: Mapping[str, Denoiser],
    train: Images,
    held_out: Images | None,
    sigmas: Sigmas,
    *,
    noises: int = DEFAULT_NOISES,
    count: int = DEFAULT_IMAGES,
    seed: int = 0,
    labels: Any = None,
    held_out_labels: Any = None,
    groups: Int[Tensor, "N"] | None = None,
    held_out_groups: Int[Tensor, "M"] | None = None,
    bounds: Bounds = (-1.0, 1.0),
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> LossGap:
    """Denoising losses on training and held-out images, of the network and of the references beside it."""
    if missing := {GAUSSIAN, MULTIDELTA} - set(denoisers):
        raise ConfigError(f"denoisers must include the references; {', '.join(sorted(missing))} is missing.")
    if noises < 1 or count < 2:
        raise ConfigError(f"expected noises >= 1 and count >= 2; got noises={noises}, count={count}.")
    if held_out is not None and (labels is None) != (held_out_labels is None):
        raise ConfigError("labels are given for training and held-out images, or for neither; got one of the two.")
    levels = as_sigmas(sigmas)
    known = _Part.of(train, labels, groups, bounds, "train", seed, count, noises)
    unseen = None
    if held_out is not None:
        unseen = _Part.of(held_out, held_out_labels, held_out_groups, bounds, "held_out", seed, count, noises)
    parts = [known] if unseen is None else [known, unseen]
    if len({tuple(part.images.shape[1:]) for part in parts}) > 1:
        raise DataError(
            f"training and held-out images must have one shape; got {tuple(known.images.shape[1:])} and "
            f"{tuple(parts[1].images.shape[1:])}. Resize or convert one of the sets."
        )
    if sum(len(part.images) for part in parts) < 4:
        raise DataError("training and held-out images must be at least 4 together; there is nothing to compare with.")
    home = placement(next(iter(denoisers.values())), known.images, device)[0]
    dim = known.images[0].numel()
    share = images_used(dim) // len(parts)
    halves = [torch.cat([part.half(first, share) for part in parts]).to(home) for first in (True, False)]
    baseline = Baseline(*halves)
    size = batch_size or max(16, min(1024, _BATCH_NUMBERS // dim))
    results = []
    with eval_mode(*denoisers.values()):
        for part in parts:

            def work(start: int, stop: int, part: _Part = part) -> tuple[Tensor, Tensor, Tensor]:
                return _losses(denoisers, baseline, part, levels, start, stop, noises, seed, device, home)

            n_inputs = len(part.chosen) * noises
            batches = in_batches(work, n_inputs, size)
            pieces = list(track(batches, total=-(-n_inputs // size), label=part.stream, enabled=progress))
            results.append([_per_image(torch.cat(rows, 2), noises) for rows in zip(*pieces, strict=True)])
    empty = torch.zeros(len(denoisers) + 1, len(levels), 0, dtype=torch.float64)
    train_losses = results[0][0]
    held_losses, pull, apart = results[1] if unseen is not None else (empty, empty, empty)
    names = [*denoisers, BASELINE]
    return LossGap(
        sigmas=levels,
        train=dict(zip(names, train_losses, strict=True)),
        held_out=dict(zip(names, held_losses, strict=True)),
        pull=dict(zip(names, pull, strict=True)),
        apart=dict(zip(names, apart, strict=True)),
        n_train=len(known.images),
        noises=noises,
        seed=seed,
        images=known.chosen[:, 0],
        labels=known.labels_of_units,
        held_out_labels=None if unseen is None else unseen.labels_of_units,
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """One of the two sets: its images, labels, those chosen for each unit and noise, the rest, and its stream of noise."""

    images: Tensor
    labels: Tensor | None
    chosen: Int[Tensor, "k noises"]
    rest: Int[Tensor, "r"]
    stream: str

    @classmethod
    def of(
        cls,
        images: Images,
        labels: Any,
        groups: Tensor | None,
        bounds: Bounds,
        name: str,
        seed: int,
        count: int,
        noises: int,
    ) -> "_Part":
        pixels = gather(images, bounds=bounds, name=name)
        classes = None if labels is None else check_labels(labels, len(pixels), f"{name} labels")
        order = draw_order(seed, len(pixels), stream=f"{name} losses")
        if groups is None:
            return cls(pixels, classes, order[:count, None].expand(-1, noises), order[count:], f"{name} losses")
        members: dict[int, list[int]] = {}
        for image, group in zip(order.tolist(), groups.cpu()[order].tolist(), strict=True):
            members.setdefault(group, []).append(image)
        units = list(members.values())
        chosen = torch.tensor([[unit[noise % len(unit)] for noise in range(noises)] for unit in units[:count]])
        rest = torch.tensor([image for unit in units[count:] for image in unit], dtype=torch.long)
        return cls(pixels, classes, chosen, rest, f"{name} losses")

    @property
    def labels_of_units(self) -> Tensor | None:
        return None if self.labels is None else self.labels.cpu()[self.chosen[:, 0]]

    def clean(self, indices: Int[Tensor, "b"]) -> Tensor:
        return dequantize(self.images[indices.to(self.images.device)], torch.float64)

    def half(self, first: bool, most: int) -> Tensor:
        """Images of one half, at most so many: those of every other unit chosen, then of the rest."""
        start = 0 if first else 1
        indices = torch.cat([self.chosen[start::2].T.flatten().unique(), self.rest[start::2]])[:most]
        return dequantize(self.images[indices.to(self.images.device)])


def _losses(
    denoisers: Mapping[str, Denoiser],
    baseline: Baseline,
    part: _Part,
    levels: Float[Tensor, "s"],
    start: int,
    stop: int,
    noises: int,
    seed: int,
    device: torch.device | str | None,
    home: torch.device,
) -> tuple[Float[Tensor, "k s b"], Float[Tensor, "k s b"], Float[Tensor, "k s b"]]:
    """Losses, pulls and distances to the Gaussian of each denoiser, the baseline last, at some noisy images of a set."""
    rows = torch.arange(start, stop)
    which = part.chosen.flatten()[rows]
    x0 = part.clean(which).to(home)
    eps = draw_noise(seed, rows, tuple(x0.shape[1:]), stream=part.stream).to(home)
    labels = None if part.labels is None else part.labels[which.to(part.labels.device)]
    in_first = (rows // noises % 2 == 0).to(home)
    losses, pulls, apart, finite = [], [], [], []
    for sigma in levels.tolist():
        x = x0 + sigma * eps.double()
        answers = {name: _answer(denoiser, x, sigma, labels, device) for name, denoiser in denoisers.items()}
        finite.append(torch.stack([answer.isfinite().all() for answer in answers.values()]))
        errors = {name: answer - x0.flatten(1) for name, answer in answers.items()}
        errors[BASELINE] = baseline(x.float(), sigma, in_first).double().flatten(1) - x0.flatten(1)
        toward = errors[MULTIDELTA] - errors[BASELINE]
        losses.append(torch.stack([error.square().mean(1) for error in errors.values()]))
        pulls.append(torch.stack([(toward * error).mean(1) for error in errors.values()]))
        apart.append(torch.stack([(error - errors[GAUSSIAN]).square().mean(1) for error in errors.values()]))
    _check_finite(torch.stack(finite).cpu(), levels, list(denoisers))  # last, so that a GPU is waited for only once
    return torch.stack(losses, 1).cpu(), torch.stack(pulls, 1).cpu(), torch.stack(apart, 1).cpu()


def _answer(
    denoiser: Denoiser, x: Tensor, sigma: float, labels: Tensor | None, device: torch.device | str | None
) -> Float[Tensor, "b d"]:
    """A denoiser's answers, called where and in what dtype it is at home; back where x is, in float64."""
    place, dtype = placement(denoiser, x.float(), device)
    denoised = call(denoiser, x.to(place, dtype), sigma, labels)
    return denoised.to(x.device, torch.float64).flatten(1)


def _check_finite(finite: Bool[Tensor, "s k"], levels: Float[Tensor, "s"], names: list[str]) -> None:
    """Raise unless all denoisers gave finite answers at all levels."""
    if not bool(finite.all()):
        level, which = (~finite).nonzero()[0].tolist()
        raise DataError(
            f"{names[which]} must return finite values; at sigma = {float(levels[level]):g} some are NaN or infinite. "
            "Name other levels with --sigmas, or look whether its weights were read."
        )


def _per_image(values: Float[Tensor, "k s c"], noises: int) -> Float[Tensor, "k s n"]:
    return values.reshape(*values.shape[:2], -1, noises).mean(3)
