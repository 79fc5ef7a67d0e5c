"""Does the architecture matter? NCSN++, DDPM++ and ADM, the networks of EDM-VE, EDM-VP and EDM-ADM, from one noise."""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

from ...experiments.task import Task
from ...report import Axis, CurveFigure, Figure, ImageGrid, Series, Threshold
from ..architectures import PUBLISHED, label, model_of, sizes_told
from ..claims.evidence import Evidence
from ..claims.thresholds import THRESHOLDS
from ..figures import CORRELATION, NOISE, RMSE, line, non_empty_figures, non_empty_series, sample_grid, trainings_behind
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.agreement import agreement_task
from ..tasks.lowpass_agreement import lowpass_agreement_task

_SHOWN = 8  # samples of each model
_COUNT = 100  # images behind a number, at most: these networks are slow for their size


def parts(plan: Plan) -> list[Part]:
    """Every architecture at every seed: on the most images, on the least, and pairs of them on disjoint halves."""
    names, most, least = compared(plan), plan.sizes[-1], plan.sizes[0]
    found = []
    for seed in range(plan.seeds):
        for name in names:
            model = model_of(plan, name, most, seed)
            sampled = plan.sampled(model)
            found.append(Part(f"samples of {name}, seed {seed}", sampled))
            found.append(Part(f"layouts of {name}, seed {seed}", lowpass_agreement_task(plan, sampled)))
            found += [
                Part(f"{what} of {name}, seed {seed}", task) for what, task in _measured(plan, name, model).items()
            ]
    for seed in range(plan.seeds):
        for name in names:
            measured = _measured(plan, name, model_of(plan, name, least, seed))
            found += [Part(f"{what} of {name} on few, seed {seed}", task) for what, task in measured.items()]
    n = plan.available // 2
    for seed in range(plan.seeds):
        for first, second in combinations(names, 2):
            models = (model_of(plan, name, n, seed, half=half) for half, name in ((1, first), (2, second)))
            both = [plan.sampled(model) for model in models]
            tags = {"network": first, "reference": second, "n": n, "seed": seed}
            found.append(Part(f"{first} and {second}, seed {seed}", agreement_task(plan, both), tags))
    return found


def compared(plan: Plan) -> tuple[str, ...]:
    """The architectures, in the order that pairs on disjoint halves need the fewest models in: the plan's own is there."""
    return tuple(dict.fromkeys((PUBLISHED[0], plan.training["network"], PUBLISHED[2], PUBLISHED[1])))


def draw(findings: Findings) -> list[Figure]:
    """Fig. 23 of the paper, and what stands behind it."""
    plan, evidence, command = findings.plan, findings.evidence, findings.command
    most, least = plan.sizes[-1], plan.sizes[0]
    names = compared(plan)
    pairs = {pair: place for place, pair in enumerate(combinations(names, 2), 1)}
    places = {name: place for place, name in enumerate(names, 1)}
    alike = evidence.where(quantity="agreement_correlation")
    layout = evidence.where(quantity="agreement_lowpass_correlation", reference="gaussian")
    told = sizes_told(plan, names)
    figures: list[Figure | None] = [
        _samples(findings),
        CurveFigure(
            title="Agreement of architectures that share no training image",
            caption=f"Correlation of the pixels of samples from the same noise, over {plan.samples} noises and "
            f"{trainings_behind(alike)}. Of each pair, the first was trained on one half of the images and the second on "
            f"the other, {plan.available // 2:,} each: on the same images, two denoisers that retrieve them would agree "
            "entirely. "
            "Controls: the same models with noises exchanged; the multi-delta denoisers of the two halves, which retrieve "
            f"training images. Agreement that tells something lies above both. The pairs: {_numbered(pairs)}.",
            claims=("C18",),
            command=command,
            x=Axis("pair, by its number in the caption", names=tuple(map(str, pairs.values()))),
            y=CORRELATION,
            series=_agreements(alike, pairs),
        ),
        CurveFigure(
            title="Agreement of layouts with the Gaussian's samples",
            caption=f"Correlation of the same kind between samples of a network on {most:,} images and of the Gaussian of "
            "these images, from the same noise, after both were averaged over fields of pixels (half as many as pixels a "
            f"side, at most 8), over {plan.samples} noises. Control: the multi-delta denoiser of these images in the "
            "network's place, and noises exchanged. The excess is the network's minus the multi-delta denoiser's, paired by "
            "noise; the claim is that it lies above 0.",
            claims=("C18",),
            command=command,
            x=Axis("architecture", names=tuple(map(label, names))),
            y=Axis("correlation of fields", bounds=(-1.0, 1.0)),
            series=_layouts(layout, places),
            thresholds=(Threshold(THRESHOLDS["C18 layout"].above or 0.0, "the excess lies above"),),
        ),
        *(
            CurveFigure(
                title=f"Linearity by architecture, {words}",
                caption=f"{what} for pairs of noisy held-out images, of each architecture on {least:,} (broken) and on "
                f"{most:,} images, and of the multi-delta denoiser of the latter as control. {told} {which}",
                claims=("C2",),
                command=command,
                x=NOISE,
                y=axis,
                series=_linearity(evidence.where(quantity=quantity), names, most, least),
            )
            for words, quantity, axis, what, which in (
                (
                    "cosine",
                    "linearity_cosine",
                    Axis("affine linearity (cosine)", bounds=(0.0, 1.0)),
                    "Cosine between the denoised superposition and the superposition of the denoised images, affine, so "
                    "that 1 means an affine map,",
                    "The claim is that the least value over σ rises with the number of images for every architecture.",
                ),
                (
                    "NMSE",
                    "linearity_nmse",
                    Axis("affine linearity error (NMSE)", bounds=(0.0, math.inf)),
                    "The same as a distance over a norm, 0 for an affine map,",
                    "The claim is that the largest value over σ falls with the number of images for every architecture.",
                ),
            )
        ),
        CurveFigure(
            title="Distance of each architecture to the Gaussian denoiser",
            caption=f"RMSE between a network on {most:,} images (solid) or on {least:,} and the Gaussian denoiser of these "
            f"images, on held-out images; controls: the multi-delta denoiser of {most:,} images, and for {least:,} the "
            f"Gaussian of all images that could have been trained on. {told}",
            claims=("C2",),
            command=command,
            x=NOISE,
            y=RMSE,
            series=_gaps(evidence.where(quantity="rmse", on="held_out"), names, most, least),
        ),
    ]
    return non_empty_figures(*figures)


def _samples(findings: Findings) -> ImageGrid | None:
    own, seed = findings.plan.training["network"], findings.plan.shown
    order = [*PUBLISHED, *(name for name in (own,) if name not in PUBLISHED)]
    rows = [(label(name), f"samples of {name}, seed {seed}", "network") for name in order]
    controls = [("Gaussian", "gaussian"), ("control: multi-delta", "multidelta")]
    rows += [(words, f"samples of {own}, seed {seed}", name) for words, name in controls]
    return sample_grid(
        findings,
        rows,
        columns=_SHOWN,
        title="Samples of several architectures from the same noises",
        caption=f"All trained on the same {findings.plan.sizes[-1]:,} images, once each, with samples of the Gaussian and "
        "of the multi-delta denoiser of these. Look whether the rows of networks are alike, and whether they share their "
        "layout with the Gaussian's row more than the multi-delta row does.",
        redraws=(23,),
        claims=("C18",),
    )


def _numbered(pairs: Mapping[tuple[str, str], int]) -> str:
    return ", ".join(f"{place} {label(first)} and {label(second)}" for (first, second), place in pairs.items())


def _agreements(alike: Evidence, pairs: Mapping[tuple[str, str], int]) -> tuple[Series, ...]:
    network = alike.where(denoiser="network")
    kinds = {
        "networks": network.where(noise="same"),
        "networks minus multi-delta, paired by noise": network.where(noise="excess"),
        "control: networks, noises exchanged": network.where(noise="shuffled"),
        "control: multi-delta": alike.where(denoiser="multidelta", noise="same"),
        "Gaussians": alike.where(denoiser="gaussian", noise="same"),
    }
    placed = {
        words: [{**record, "place": pairs.get((record["network"], record["reference"]))} for record in of_kind.records]
        for words, of_kind in kinds.items()
    }
    return _placed(placed)


def _layouts(layout: Evidence, places: Mapping[str, int]) -> tuple[Series, ...]:
    network = layout.where(denoiser="network")
    kinds = {
        "networks": network.where(noise="same"),
        "networks minus multi-delta, paired by noise": network.where(noise="excess"),
        "control: networks, noises exchanged": network.where(noise="shuffled"),
        "control: multi-delta": layout.where(denoiser="multidelta", noise="same"),
    }
    placed = {
        words: [{**record, "place": places.get(record["network"])} for record in of_kind.records]
        for words, of_kind in kinds.items()
    }
    return _placed(placed)


def _placed(kinds: Mapping[str, list[dict[str, Any]]]) -> tuple[Series, ...]:
    """A line for each kind of records, along their places."""
    return non_empty_series(
        *(
            line(words, Evidence(records), x="place", dashed=not words.startswith("networks"))
            for words, records in kinds.items()
        )
    )


def _linearity(scores: Evidence, names: tuple[str, ...], most: int, least: int) -> tuple[Series, ...]:
    affine = scores.where(affine=True, on="held_out")
    networks = (
        line(f"{label(name)}, N = {n:,}", affine.where(network=name, n=n, denoiser="network"), dashed=n == least)
        for n in (most, least)
        for name in names
    )
    control = affine.where(network=names[0], n=most, denoiser="multidelta")
    return non_empty_series(*networks, line(f"control: multi-delta, N = {most:,}", control, dashed=True))


def _gaps(gaps: Evidence, names: tuple[str, ...], most: int, least: int) -> tuple[Series, ...]:
    networks = gaps.where(denoiser="network")
    found = [
        line(f"{label(name)}, N = {n:,}", networks.where(network=name, reference="gaussian", n=n), dashed=n == least)
        for n in (most, least)
        for name in names
    ]
    found += [
        line(
            f"control: {label(name)}, N = {least:,}, to the Gaussian of all",
            networks.where(network=name, reference="gaussian_full", n=least),
            dashed=True,
        )
        for name in names[:1]
    ]
    memory = gaps.where(network=names[0], denoiser="multidelta", reference="gaussian", n=most)
    return non_empty_series(*found, line(f"control: multi-delta, N = {most:,}", memory, dashed=True))


def _measured(plan: Plan, name: str, model: Task) -> dict[str, Task]:
    """The measures of a model by what they are of; those of the plan's own are those of other studies."""
    if name == plan.training["network"]:
        return {"measures": plan.measured(model, "gap", "linearity")}
    linearity = plan.measured(model, "linearity", count=min(plan.count, _COUNT))
    return {"linearity": linearity, "distances": plan.measured(model, "gap")}


STUDY = Study(
    name="networks",
    title="Does the architecture matter?",
    question="Networks of different architectures are trained on the same images and sampled from the same noise. If what "
    "they learn is a property of the images, their samples are alike, and share their layout with the samples of the "
    "images' Gaussian.\n\nTwo denoisers that retrieve the same training images agree as well. So agreement is measured "
    "between models on disjoint halves of the images, and that of the multi-delta denoisers of the halves is taken off. The "
    "paper also says that every architecture becomes more linear with more images.",
    figures=(23,),
    claims=("C2", "C18"),
    parts=parts,
    draw=draw,
)
