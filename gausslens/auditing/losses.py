"""Denoising losses on training images and on held-out ones, and where a network lies between denoisers that are known.

The loss of a denoiser at an image x0 and a noise level σ is the mean over pixels and noises of (D(x0 + σ·eps; σ) − x0)². All
denoisers and all noise levels see the same noises; images are the independent units. What a model has learned of its
training images in particular shows in the gap, held-out loss minus training loss. A gap alone is not copying: the Wiener
filter of 64 digits has an AUC of .9. So the gap is placed between those of two denoisers with the same noises,

    (gap − gap_zero) / (gap_M − gap_zero),     M the multi-delta denoiser of the training images, a perfect memoriser,

with the Gaussian denoiser of the training images as zero (ρ, the paper's scale), or the baseline (see `baseline`), to
which both sets are equally new. Fitted to fewer images than dimensions, the Gaussian copies too. The second scale shows it.

A third number needs held-out images alone. For the exact posterior mean P of the law, E⟨h(x), P(x) − x0⟩ = 0 for every
function h of new noisy images x. So with h = M − B, B the baseline, the retrieval

    κ = E⟨M − B, D − x0⟩ / E⟨M − B, M − x0⟩

is 0 for the posterior mean, 1 for the memoriser, and w for D = wM + (1 − w)P, whatever the law.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from .._typing import Float, Int, Sigmas
from ..denoisers.protocol import Denoiser, call, eval_mode, in_batches, placement
from ..errors import DataError
from ..images import dequantize
from ..measures.intervals import Estimate, mean_estimate, mean_interval, ratio_interval
from ..measures.two_sample import auc_estimate, permutation_p_values, quotient_estimate
from ..noise import as_sigmas, draw_noise, draw_order
from ..progress import track
from .baseline import Baseline, images_used
from .pool import Pool
from .thresholds import limit

GAUSSIAN, MULTIDELTA, BASELINE = "gaussian", "multidelta", "baseline"
_BATCH_NUMBERS = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class LossGap:
    """Losses of denoisers, by name, by image (or by group where images come in groups), and what follows from them."""

    sigmas: Float[Tensor, "s"]
    train: Mapping[str, Float[Tensor, "s n"]]  # losses on each training image used
    held_out: Mapping[str, Float[Tensor, "s m"]]  # the same on held-out images; m may be 0
    pull: Mapping[str, Float[Tensor, "s m"]]  # ⟨M − B, D − x0⟩/d on each held-out image
    apart: Mapping[str, Float[Tensor, "s m"]]  # ‖D − G‖²/d of each denoiser and the Gaussian one on each held-out image
    seed: int  # of noises and of the choice of images
    images: Int[Tensor, "n"]  # which training images they are; of groups the first image
    labels: Int[Tensor, "n"] | None = None  # their classes
    held_out_labels: Int[Tensor, "m"] | None = None

    @property
    def calibrated(self) -> bool:
        """Whether there are held-out images, without which no gap is known."""
        return self.held_out[MULTIDELTA].shape[1] > 0

    def loss(self, name: str, on: str = "held_out") -> list[Estimate]:
        """Mean losses of a denoiser at each level, on "train" or "held_out" images, with intervals over images."""
        return [mean_estimate(row) for row in getattr(self, on)[name]]

    def relative(self, name: str, on: str = "held_out") -> list[Estimate]:
        """Mean losses in units of the baseline's at each level, with intervals over the same images."""
        losses = getattr(self, on)
        return ratio_estimates(losses[name], losses[BASELINE])

    def auc(self, name: str) -> list[Estimate]:
        """How well the loss separates training images from others at each level: P(training loss < held-out loss)."""
        return [auc_estimate(*rows) for rows in self._rows(name)]

    def p_values(self, name: str) -> Float[Tensor, "s"]:
        """How likely so large an AUC would be by chance, at each level (see `permutation_p_values`)."""
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
        ones = self.pull[MULTIDELTA]
        resolved = mean_interval(ones)[1] > 0
        found = zip(ratio_estimates(self.pull[name], ones), resolved.tolist(), strict=True)
        return [share if known else None for share, known in found]

    def near_gaussian(self, name: str) -> list[bool]:
        """At which levels it is nearer to the Gaussian than half the multi-delta denoiser's distance, on held-out images."""
        own, reference = (self.apart[each].mean(1) for each in (name, MULTIDELTA))
        return (own < reference / 4).tolist()

    def window(self) -> list[bool]:
        """At which levels a memoriser would be seen: its gap is visible there, and the Gaussian's well below it."""
        zero, gaussian, one = (
            self.held_out[name].mean(1) - self.train[name].mean(1) for name in (BASELINE, GAUSSIAN, MULTIDELTA)
        )
        visible = one - zero >= limit("visible") * self.held_out[BASELINE].mean(1)
        return (visible & (gaussian - zero <= limit("gaussian") * (one - zero))).tolist()

    def intermediate(self) -> list[bool]:
        """At which levels the baseline is better than the noisy image, and than the mean image (its loss at the top)."""
        plain, share = (self.held_out if self.calibrated else self.train)[BASELINE].mean(1), limit("noisy")
        return ((plain <= share * self.sigmas.square()) & (plain <= share * plain.max())).tolist()

    def _rows(self, name: str) -> list[tuple[Tensor, Tensor]]:
        """Losses on training and on held-out images, level by level."""
        return list(zip(self.train[name], self.held_out[name], strict=True))


def ratio_estimates(numerators: Float[Tensor, "s n"], denominators: Float[Tensor, "s n"]) -> list[Estimate]:
    """The ratio of the sums at each level, with its interval over images."""
    *ends, units = ratio_interval(numerators, denominators)
    return [Estimate(value, low, high, units.shape[1]) for value, low, high in torch.stack(ends, 1).tolist()]


def measure_losses(
    denoisers: Mapping[str, Denoiser],
    pool: Pool,
    sigmas: Sigmas,
    *,
    noises: int = 16,
    count: int = 200,
    seed: int = 0,
    batch_size: int | None = None,
    progress: bool = False,
) -> LossGap:
    """Denoising losses of a network and of the references, on training and held-out images."""
    levels = as_sigmas(sigmas)
    parts = [_Part.of(*one, count, noises, seed) for one in pool.sets]
    home = placement(next(iter(denoisers.values())), pool.train)[0]
    dim = pool.train[0].numel()
    share = images_used(dim) // len(parts)
    baseline = Baseline(*(torch.cat([part.half(start, share) for part in parts]).to(home) for start in (0, 1)))
    size = batch_size or max(16, min(1024, _BATCH_NUMBERS // dim))
    results = []
    with eval_mode(*denoisers.values()):
        for part in parts:
            work = partial(_losses, denoisers, baseline, part, levels, seed, home)
            batches = in_batches(work, part.chosen.numel(), size)
            total = -(-part.chosen.numel() // size)
            values = torch.cat(list(track(batches, total=total, label=part.stream, enabled=progress)), 3)
            results.append(values.reshape(*values.shape[:3], -1, noises).mean(4))
    names = [*denoisers, BASELINE]
    on_held_out = results[1] if len(parts) > 1 else results[0][..., :0]
    losses, pull, apart = (dict(zip(names, rows, strict=True)) for rows in on_held_out)
    return LossGap(
        sigmas=levels,
        train=dict(zip(names, results[0][0], strict=True)),
        held_out=losses,
        pull=pull,
        apart=apart,
        seed=seed,
        images=parts[0].chosen[:, 0],
        labels=parts[0].labels_of_units,
        held_out_labels=parts[1].labels_of_units if len(parts) > 1 else None,
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
        cls, name: str, images: Tensor, labels: Tensor | None, groups: Tensor | None, count: int, noises: int, seed: int
    ) -> "_Part":
        stream = f"{name} losses"
        order = draw_order(seed, len(images), stream=stream)
        if groups is None:
            return cls(images, labels, order[:count, None].expand(-1, noises), order[count:], stream)
        members: dict[int, list[int]] = {}
        for image, group in zip(order.tolist(), groups.cpu()[order].tolist(), strict=True):
            members.setdefault(group, []).append(image)
        units = list(members.values())
        chosen = torch.tensor([[unit[noise % len(unit)] for noise in range(noises)] for unit in units[:count]])
        rest = torch.tensor([image for unit in units[count:] for image in unit], dtype=torch.long)
        return cls(images, labels, chosen, rest, stream)

    @property
    def labels_of_units(self) -> Tensor | None:
        return None if self.labels is None else self.labels.cpu()[self.chosen[:, 0]]

    def clean(self, indices: Int[Tensor, "b"], dtype: torch.dtype = torch.float32) -> Tensor:
        return dequantize(self.images[indices.to(self.images.device)], dtype)

    def half(self, start: int, most: int) -> Tensor:
        """Images of one half, at most so many: those of every other unit chosen, then of the rest."""
        return self.clean(torch.cat([self.chosen[start::2].T.flatten().unique(), self.rest[start::2]])[:most])


def _losses(
    denoisers: Mapping[str, Denoiser],
    baseline: Baseline,
    part: _Part,
    levels: Float[Tensor, "s"],
    seed: int,
    home: torch.device,
    start: int,
    stop: int,
) -> Float[Tensor, "3 k s b"]:
    """Losses, pulls and distances to the Gaussian of each denoiser, the baseline last, at some noisy images of a set."""
    rows = torch.arange(start, stop)
    which = part.chosen.flatten()[rows]
    x0 = part.clean(which, torch.float64).to(home)
    eps = draw_noise(seed, rows, tuple(x0.shape[1:]), stream=part.stream).to(home)
    labels = None if part.labels is None else part.labels[which.to(part.labels.device)]
    in_first = (rows // part.chosen.shape[1] % 2 == 0).to(home)
    values = []
    for sigma in levels.tolist():
        x = x0 + sigma * eps.double()
        errors = {}
        for name, denoiser in denoisers.items():
            place, dtype = placement(denoiser, x.float())
            answer = call(denoiser, x.to(place, dtype), sigma, labels).to(home, torch.float64)
            errors[name] = (answer - x0).flatten(1)
        errors[BASELINE] = (baseline(x.float(), sigma, in_first).double() - x0).flatten(1)
        toward, gaussian = errors[MULTIDELTA] - errors[BASELINE], errors[GAUSSIAN]
        measured = [
            torch.stack([error.square().mean(1), (toward * error).mean(1), (error - gaussian).square().mean(1)])
            for error in errors.values()
        ]
        values.append(torch.stack(measured, 1))
    found = torch.stack(values, 2).cpu()
    _check_finite(found[0], levels, [*denoisers, BASELINE])  # last, so that a GPU is waited for only once
    return found


def _check_finite(losses: Float[Tensor, "k s b"], levels: Float[Tensor, "s"], names: list[str]) -> None:
    """Raise unless all denoisers gave finite answers at all levels."""
    broken = (~losses.isfinite()).any(2).T.nonzero().tolist()
    if broken:
        level, which = broken[0]
        raise DataError(
            f"{names[which]} must return finite values; at sigma = {float(levels[level]):g} some are NaN or infinite. "
            "Choose other levels with --sigmas, or check that its weights were read."
        )
