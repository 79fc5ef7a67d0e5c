"""Architectures (NCSN++, DDPM++ and ADM, the networks of EDM-VE, EDM-VP and EDM-ADM): claim C18; figure 23."""

from itertools import combinations, product

from ...experiments.task import Task
from .. import axes
from ..architectures import PUBLISHED, label, model_of, sizes_told
from ..claims.claim import Finding, Threshold, claim
from ..claims.comparisons import each
from ..claims.evidence import Evidence
from ..figures import Curves, Drawing, Line, about, closed_forms, trainings_behind
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.agreement import agreement_task, lowpass_agreement_task

_COUNT = 100  # images behind a number, at most: these networks are slow for their size
_AGREEMENT = Threshold("our choice: two models that retrieve training images agree this much", above=0.0)
_LAYOUT = Threshold("our choice: samples that are training images agree this much", above=0.0)
_LAYOUTS = axes.quantity(
    "agreement_lowpass_correlation", "correlation of fields", bounds=axes.CORRELATION, reference="gaussian"
)
_ALIKE = (
    Line("networks", denoiser="network", noise="same"),
    Line("networks minus multi-delta, paired by noise", denoiser="network", noise="excess"),
    Line("control: networks, noise exchanged", denoiser="network", noise="shuffled"),
    *closed_forms("multidelta", noise="same"),
)


@claim("C18", "Different architectures make the same images from the same noise.")
def c18(evidence: Evidence) -> Finding:
    """Agreement of architectures minus the multi-delta denoisers'; and, blurred, with the Gaussian's samples.

    Both are paired by noise (noise excess). For the first, network and reference are two architectures.
    """
    found = evidence.where(study="networks", noise="excess")
    across, layout = found.where(**axes.AGREEMENT.tags), found.where(**_LAYOUTS.tags)
    pairs = sorted({(str(record.get("network")), str(record.get("reference"))) for record in across.records})
    agree = {
        f", {first} and {second}": across.where(network=first, reference=second)
        for first, second in pairs or [("one architecture", "another")]
    }
    resemble = {f", {name}": layout.where(network=name) for name in layout.names("network") or ["any architecture"]}
    return Finding(
        (
            *each("excess agreement", _AGREEMENT, agree, Evidence.one),
            *each("excess agreement with the Gaussian, blurred", _LAYOUT, resemble, Evidence.one),
        )
    )


def parts(plan: Plan) -> list[Part]:
    """Every architecture at every seed: on the most images, on the fewest, and pairs of them on disjoint halves."""
    names, most, half, found = compared(plan), plan.sizes[-1], plan.available // 2, []
    for n, words in ((most, ""), (plan.sizes[0], " on few")):
        for seed, name in product(range(plan.seeds), names):
            model = model_of(plan, name, n, seed)
            tasks = _measured(plan, name, model)
            if n == most:
                sampled = plan.sampled(model)
                tasks = {"samples": sampled, "layouts": lowpass_agreement_task(plan, sampled), **tasks}
            found += [Part(f"{what} of {name}{words}, seed {seed}", task) for what, task in tasks.items()]
    for seed, pair in product(range(plan.seeds), combinations(names, 2)):
        both = [plan.sampled(model_of(plan, name, half, seed, half=which)) for which, name in enumerate(pair, 1)]
        tags = {"network": pair[0], "reference": pair[1], "n": half, "seed": seed}
        found.append(Part(f"{pair[0]} and {pair[1]}, seed {seed}", agreement_task(plan, both), tags))
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


def figures(findings: Findings) -> list[Drawing]:
    """Fig. 23 of the paper, and what stands behind it."""
    plan, own = findings.plan, findings.plan.training["network"]
    most, fewest = plan.sizes[-1], plan.sizes[0]
    names = compared(plan)
    pairs = {str(place): pair for place, pair in enumerate(combinations(names, 2), 1)}
    by_pair = axes.among(
        "pair, by its number in the caption",
        {place: {"network": first, "reference": second} for place, (first, second) in pairs.items()},
    )
    by_name = axes.among("architecture", {label(name): {"network": name} for name in names})
    numbered = ", ".join(f"{place} {label(first)} and {label(second)}" for place, (first, second) in pairs.items())
    sizes = sizes_told(plan, names)
    memory = closed_forms("multidelta", called=f", N = {most:,}", network=names[0], n=most)
    few_to_all = f"control: {label(names[0])}, N = {fewest:,}, to the Gaussian of all"
    by_architecture = [
        Line(f"{label(name)}, N = {n:,}", dashed=n == fewest, denoiser="network", network=name, n=n)
        for n in (most, fewest)
        for name in names
    ]
    shown = [(label(name), name, "network") for name in dict.fromkeys((*PUBLISHED, own))]
    shown += [("Gaussian", own, "gaussian"), ("control: multi-delta", own, "multidelta")]
    return [
        sample_grid(
            findings,
            [(words, f"samples of {name}, seed {plan.shown}", array) for words, name, array in shown],
            columns=8,
            title="Samples of several architectures from the same initial noise",
            caption=f"All trained on the same {most:,} images, once each, with samples of the closed-form denoisers of "
            "these. The claim is that the rows of networks are alike, and share their layout with the Gaussian's row more "
            "than the multi-delta row does.",
            **about(23, "C18"),
        ),
        Curves(
            title="Agreement of architectures that share no training image",
            caption=f"Correlation of the pixels of samples from the same noise, over {plan.samples} initial noises and "
            f"{trainings_behind(findings.evidence.where(**axes.AGREEMENT.tags))}. Of each pair, the first was trained on "
            f"one half of the images and the second on the other, {plan.available // 2:,} each. Controls: the same models "
            "with noise exchanged; the multi-delta denoisers of the two halves, which retrieve training images. Agreement "
            f"that tells something lies above both. The pairs: {numbered}.",
            **about("C18"),
            of=axes.AGREEMENT.by(by_pair),
            lines=(*_ALIKE, Line("Gaussians", dashed=True, denoiser="gaussian", noise="same")),
        ),
        Curves(
            title="Agreement of layouts with the Gaussian's samples",
            caption=f"Correlation of the same kind between samples of a network trained on {most:,} images and of the "
            "Gaussian of these images, after both were averaged over fields of pixels (half as many as pixels a side, at "
            f"most 8), over {plan.samples} initial noises. Controls: the multi-delta denoiser in the network's place, and "
            "noise exchanged. The claim is that the excess over multi-delta, paired by noise, lies above 0.",
            **about("C18"),
            of=_LAYOUTS.by(by_name).against(_LAYOUT, "the excess lies above"),
            lines=_ALIKE,
        ),
        *(
            Curves(
                title=f"Linearity by architecture, {metric}",
                caption=f"{what} for pairs of noisy held-out images, of each architecture trained on {fewest:,} (dashed) "
                f"and on {most:,} images, and of the multi-delta denoiser of the latter as control. {sizes} The claim is "
                f"that {which} with the number of images for every architecture.",
                **about("C2"),
                of=quantity.where(affine=True),
                lines=(*by_architecture, *memory),
            )
            for metric, quantity, what, which in (
                ("cosine", axes.LINEARITY, "Affine linearity, 1 for an affine map,", "the lowest value over σ rises"),
                (
                    "NMSE",
                    axes.LINEARITY_ERROR,
                    "Error of affine linearity, 0 for an affine map,",
                    "the largest value over σ falls",
                ),
            )
        ),
        Curves(
            title="Distance of each architecture to the Gaussian denoiser",
            caption=f"RMSE between a network trained on {most:,} images (solid) or on {fewest:,} and the Gaussian denoiser "
            f"of these images, on held-out images. Controls: the multi-delta denoiser of {most:,} images, and for "
            f"{fewest:,} the Gaussian of all images that could have been trained on. {sizes}",
            **about("C2"),
            of=axes.RMSE.where(reference="gaussian"),
            lines=(
                *by_architecture,
                Line(few_to_all, denoiser="network", network=names[0], n=fewest, reference="gaussian_full"),
                *memory,
            ),
        ),
    ]


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
