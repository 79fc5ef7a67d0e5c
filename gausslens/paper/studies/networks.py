"""Does the architecture matter? NCSN++, DDPM++ and ADM, the networks of EDM-VE, EDM-VP and EDM-ADM, from one noise."""

import math
from itertools import combinations
from typing import Any

from ...experiments.task import Task
from ...report import Axis, Figure
from .. import axes
from ..architectures import PUBLISHED, label, model_of, sizes_told
from ..axes import Along
from ..claims.evidence import Evidence
from ..claims.findings import Finding, Statistic, claim, statistic
from ..claims.thresholds import Threshold
from ..figures import Curves, Line, Tags, about, controls, level, trainings_behind
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.agreement import agreement_task, lowpass_agreement_task

_SHOWN = 8  # samples of each model
_COUNT = 100  # images behind a number, at most: these networks are slow for their size
_AGREEMENT = Threshold("our choice: two models that retrieve training images agree this much", above=0.0)
_LAYOUT = Threshold("our choice: samples that are training images agree this much", above=0.0)
_ALIKE = (
    Line("networks", denoiser="network", noise="same"),
    Line("networks minus multi-delta, paired by noise", denoiser="network", noise="excess"),
    Line("control: networks, noises exchanged", denoiser="network", noise="shuffled"),
    *controls("multidelta", noise="same"),
)


@claim("C18", "Different architectures make the same images from the same noise.")
def c18(evidence: Evidence) -> Finding:
    """Agreement of architectures minus the multi-delta denoisers'; and, blurred, with the Gaussian's samples.

    Both are paired by noise (noise excess). For the first, network and reference are two architectures.
    """
    found = evidence.where(study="networks", noise="excess")
    across, layout = (found.where(quantity=f"agreement_{kind}correlation") for kind in ("", "lowpass_"))
    pairs = sorted({(str(record.get("network")), str(record.get("reference"))) for record in across.records})

    def agree(first: str, second: str) -> Statistic:
        of_pair = across.where(network=first, reference=second)
        return statistic(f"excess agreement, {first} and {second}", _AGREEMENT, of_pair, Evidence.one)

    def resemble(name: str) -> Statistic:
        of_network = layout.where(network=name, reference="gaussian")
        return statistic(f"excess agreement with the Gaussian, blurred, {name}", _LAYOUT, of_network, Evidence.one)

    return Finding(
        (
            *(agree(*pair) for pair in pairs or [("one architecture", "another")]),
            *(resemble(name) for name in layout.names("network") or ["any architecture"]),
        )
    )


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


def _measured(plan: Plan, name: str, model: Task) -> dict[str, Task]:
    """The measures of a model by what they are of; those of the plan's own are those of other studies."""
    if name == plan.training["network"]:
        return {"measures": plan.measured(model, "gap", "linearity")}
    linearity = plan.measured(model, "linearity", count=min(plan.count, _COUNT))
    return {"linearity": linearity, "distances": plan.measured(model, "gap")}


def figures(findings: Findings) -> list[Curves | Figure | None]:
    """Fig. 23 of the paper, and what stands behind it."""
    plan = findings.plan
    most, least = plan.sizes[-1], plan.sizes[0]
    names = compared(plan)
    pairs = {str(place): pair for place, pair in enumerate(combinations(names, 2), 1)}
    numbered = ", ".join(f"{place} {label(first)} and {label(second)}" for place, (first, second) in pairs.items())
    alike = findings.evidence.where(quantity="agreement_correlation")
    sizes = sizes_told(plan, names)
    memory = controls("multidelta", called=f", N = {most:,}", network=names[0], n=most)

    def by_architecture(**tags: Any) -> list[Line]:
        """A line for each architecture on the most and, broken, on the least images."""
        return [
            Line(f"{label(name)}, N = {n:,}", dashed=n == least, denoiser="network", network=name, n=n, **tags)
            for n in (most, least)
            for name in names
        ]

    return [
        _samples(findings),
        Curves(
            title="Agreement of architectures that share no training image",
            caption=f"Correlation of the pixels of samples from the same noise, over {plan.samples} noises and "
            f"{trainings_behind(alike)}. Of each pair, the first was trained on one half of the images and the second "
            f"on the other, {plan.available // 2:,} each: on the same images, two denoisers that retrieve them would "
            "agree entirely. Controls: the same models with noises exchanged; the multi-delta denoisers of the two "
            "halves, which retrieve training images. Agreement that tells something lies above both. The pairs: "
            f"{numbered}.",
            **about("C18"),
            x=Along(
                ("network", "reference"),
                Axis("pair, by its number in the caption", names=tuple(pairs)),
                [*pairs.values()],
            ),
            y=axes.CORRELATION,
            where=Tags(quantity="agreement_correlation"),
            lines=(*_ALIKE, Line("Gaussians", dashed=True, denoiser="gaussian", noise="same")),
        ),
        Curves(
            title="Agreement of layouts with the Gaussian's samples",
            caption=f"Correlation of the same kind between samples of a network on {most:,} images and of the Gaussian "
            "of these images, from the same noise, after both were averaged over fields of pixels (half as many as "
            f"pixels a side, at most 8), over {plan.samples} noises. Control: the multi-delta denoiser of these images "
            "in the network's place, and noises exchanged. The excess is the network's minus the multi-delta "
            "denoiser's, paired by noise; the claim is that it lies above 0.",
            **about("C18"),
            x=Along("network", Axis("architecture", names=tuple(map(label, names))), names),
            y=Axis("correlation of fields", bounds=(-1.0, 1.0)),
            where=Tags(quantity="agreement_lowpass_correlation", reference="gaussian"),
            lines=_ALIKE,
            levels=(level(_LAYOUT, "the excess lies above"),),
        ),
        *(
            Curves(
                title=f"Linearity by architecture, {metric}",
                caption=f"{what} for pairs of noisy held-out images, of each architecture on {least:,} (broken) and on "
                f"{most:,} images, and of the multi-delta denoiser of the latter as control. {sizes} {which}",
                **about("C2"),
                y=axis,
                where={"quantity": f"linearity_{metric.lower()}", "affine": True, "on": "held_out"},
                lines=(*by_architecture(), *memory),
            )
            for metric, axis, what, which in (
                (
                    "cosine",
                    Axis("affine linearity (cosine)", bounds=(0.0, 1.0)),
                    "Cosine between the denoised superposition and the superposition of the denoised images, affine, "
                    "so that 1 means an affine map,",
                    "The claim is that the least value over σ rises with the number of images for every architecture.",
                ),
                (
                    "NMSE",
                    Axis("affine linearity error (NMSE)", bounds=(0.0, math.inf)),
                    "The same as a distance over a norm, 0 for an affine map,",
                    "The claim is that the largest value over σ falls with the number of images for every architecture.",
                ),
            )
        ),
        Curves(
            title="Distance of each architecture to the Gaussian denoiser",
            caption=f"RMSE between a network on {most:,} images (solid) or on {least:,} and the Gaussian denoiser of "
            f"these images, on held-out images; controls: the multi-delta denoiser of {most:,} images, and for "
            f"{least:,} the Gaussian of all images that could have been trained on. {sizes}",
            **about("C2"),
            where=Tags(quantity="rmse", on="held_out"),
            lines=(
                *by_architecture(reference="gaussian"),
                Line(
                    f"control: {label(names[0])}, N = {least:,}, to the Gaussian of all",
                    **Tags(network=names[0], n=least, denoiser="network", reference="gaussian_full"),
                ),
                *controls("multidelta", called=f", N = {most:,}", network=names[0], n=most, reference="gaussian"),
            ),
        ),
    ]


def _samples(findings: Findings) -> Figure | None:
    own, seed = findings.plan.training["network"], findings.plan.shown
    networks = [(label(name), name, "network") for name in dict.fromkeys((*PUBLISHED, own))]
    closed = [("Gaussian", own, "gaussian"), ("control: multi-delta", own, "multidelta")]
    return sample_grid(
        findings,
        [(words, f"samples of {name}, seed {seed}", array) for words, name, array in (*networks, *closed)],
        columns=_SHOWN,
        title="Samples of several architectures from the same noises",
        caption=f"All trained on the same {findings.plan.sizes[-1]:,} images, once each, with samples of the Gaussian "
        "and of the multi-delta denoiser of these. Look whether the rows of networks are alike, and whether they share "
        "their layout with the Gaussian's row more than the multi-delta row does.",
        **about(23, "C18"),
    )


STUDY = Study(
    name="networks",
    title="Does the architecture matter?",
    question="Networks of different architectures are trained on the same images and sampled from the same noise. If "
    "what they learn is a property of the images, their samples are alike, and share their layout with the samples of "
    "the images' Gaussian.\n\nTwo denoisers that retrieve the same training images agree as well. So agreement is "
    "measured between models on disjoint halves of the images, and that of the multi-delta denoisers of the halves is "
    "taken off. The paper also says that every architecture becomes more linear with more images.",
    figures=(23,),
    parts=parts,
    drawings=figures,
    judges=(c18,),
    informs=("C2",),
)
