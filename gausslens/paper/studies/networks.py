"""Does the architecture matter?

Networks of different architectures are trained on the same images and sampled from the same noise. If they learn a property
of the images, their samples resemble each other, and share their layout with the samples of the images' Gaussian.

Two denoisers that retrieve the same training images also agree. So agreement is measured between models on disjoint halves
of the images, and that of the multi-delta denoisers of the halves is subtracted. The paper also says that every
architecture becomes more linear with more images.
"""

from collections.abc import Iterator
from itertools import combinations, product

from ...experiments.task import Task
from .. import axes
from ..architectures import PUBLISHED, architecture, format_sizes, label
from ..claims.claim import Found, Threshold, claim, statistic
from ..claims.evidence import Evidence
from ..figures import Curves, Drawing, Line, about, closed_forms, trainings_behind
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.agreement import compare_layouts, compare_samples

_COUNT = 100  # images for each number, at most: these networks are slow for their size
_AGREEMENT = Threshold("our choice: the agreement of two models that retrieve training images", above=0.0)
_LAYOUT = Threshold("our choice: the agreement of samples that are training images", above=0.0)
_LAYOUTS = axes.quantity(
    "agreement_lowpass_correlation", "correlation of block means", bounds=axes.CORRELATION, reference="gaussian"
)
_AGREEMENTS = (
    Line("networks", denoiser="network", noise="same"),
    Line("networks minus multi-delta, paired by noise", denoiser="network", noise="excess"),
    Line("control: networks, noise exchanged", denoiser="network", noise="shuffled"),
    *closed_forms("multidelta", noise="same"),
)


@claim("C18", "Different architectures make the same images from the same noise.")
def c18(evidence: Evidence) -> Found:
    """Agreement of architectures minus the multi-delta denoisers'; and, blurred, with the Gaussian's samples.

    Both are paired by noise (noise excess). For the first, network and reference are two architectures.
    """
    found = evidence.where(study="networks", noise="excess")
    across, layout = found.where(**axes.AGREEMENT.tags), found.where(**_LAYOUTS.tags)
    pairs = sorted({(str(record.get("network")), str(record.get("reference"))) for record in across.records})
    for first, second in pairs or [("one architecture", "another")]:
        of_pair = across.where(network=first, reference=second)
        yield statistic(f"excess agreement, {first} and {second}", _AGREEMENT, of_pair, Evidence.one)
    for name in layout.names("network") or ["any architecture"]:
        blurred = f"excess agreement with the Gaussian, blurred, {name}"
        yield statistic(blurred, _LAYOUT, layout.where(network=name), Evidence.one)


def parts(plan: Plan) -> Iterator[Part]:
    """Every architecture at every seed: on the most images, on the fewest, and pairs of them on disjoint halves."""
    names, most, half = compared(plan), plan.sizes[-1], plan.available // 2
    for n, words in ((most, ""), (plan.sizes[0], " on few")):
        for seed, name in product(range(plan.seeds), names):
            model = plan.model(n, seed, **architecture(plan, name))
            tasks = _measured(plan, name, model)
            if n == most:
                sampled = plan.sampled(model)
                tasks = {"samples": sampled, "layouts": plan.on_model(compare_layouts, sampled), **tasks}
            for what, task in tasks.items():
                yield Part(f"{what} of {name}{words}, seed {seed}", task)
    for seed, (first, second) in product(range(plan.seeds), combinations(names, 2)):
        changes = enumerate((architecture(plan, first), architecture(plan, second)), 1)
        both = [plan.sampled(plan.model(half, seed, half=which, **changed)) for which, changed in changes]
        tags = {"network": first, "reference": second, "n": half, "seed": seed}
        yield Part(f"{first} and {second}, seed {seed}", plan.on_model(compare_samples, *both), tags)


def compared(plan: Plan) -> tuple[str, ...]:
    """The architectures, with the plan's own, in the order in which pairs on disjoint halves need the fewest models."""
    return tuple(dict.fromkeys((PUBLISHED[0], plan.training["network"], PUBLISHED[2], PUBLISHED[1])))


def _measured(plan: Plan, name: str, model: Task) -> dict[str, Task]:
    """The measures of a model by name; those of the plan's own architecture are shared with other studies."""
    if name == plan.training["network"]:
        return {"measures": plan.measured(model, "gap", "linearity")}
    linearity = plan.measured(model, "linearity", count=min(plan.count, _COUNT))
    return {"linearity": linearity, "distances": plan.measured(model, "gap")}


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Fig. 23 of the paper, and the numbers behind it."""
    plan, own = findings.plan, findings.plan.training["network"]
    most, fewest = plan.sizes[-1], plan.sizes[0]
    names = compared(plan)
    pairs = {str(place): pair for place, pair in enumerate(combinations(names, 2), 1)}
    by_pair = axes.among(
        "pair, by its number in the caption",
        {place: dict(zip(("network", "reference"), pair, strict=True)) for place, pair in pairs.items()},
    )
    by_name = axes.among("architecture", {label(name): {"network": name} for name in names})
    numbered = ", ".join(f"{place} {label(first)} and {label(second)}" for place, (first, second) in pairs.items())
    sizes = format_sizes(plan, names)
    memory = closed_forms("multidelta", called=f", N = {most:,}", network=names[0], n=most)
    few_to_all = f"control: {label(names[0])}, N = {fewest:,}, to the Gaussian of all"
    by_architecture = [
        Line(f"{label(name)}, N = {n:,}", dashed=n == fewest, denoiser="network", network=name, n=n)
        for n in (most, fewest)
        for name in names
    ]
    shown = [(label(name), name, "network") for name in dict.fromkeys((*PUBLISHED, own))]
    shown += [("Gaussian", own, "gaussian"), ("control: multi-delta", own, "multidelta")]
    yield sample_grid(
        findings,
        [(words, f"samples of {name}, seed {plan.shown}", array) for words, name, array in shown],
        columns=8,
        **about("Samples of several architectures from the same initial noise", 23, "C18"),
        caption=f"Samples of one network of each architecture, all trained on the same {most:,} images. The claim is "
        "that the networks' rows resemble each other, and share their layout with the Gaussian's row more than the "
        "multi-delta row does. Controls: the closed-form denoisers of these images.",
    )
    yield Curves(
        **about("Agreement of architectures that share no training image", "C18"),
        caption=f"Correlation of the pixels of samples from the same noise, over {plan.samples} initial noises and "
        f"{trainings_behind(findings.evidence.where(**axes.AGREEMENT.tags))}; the two of a pair were trained on "
        f"disjoint halves of the images, {plan.available // 2:,} each. Controls: the same models with noise exchanged, "
        "and the multi-delta denoisers of the halves, which retrieve training images; agreement above both is "
        f"meaningful. The pairs: {numbered}.",
        of=axes.AGREEMENT.by(by_pair),
        lines=(*_AGREEMENTS, Line("Gaussians", dashed=True, denoiser="gaussian", noise="same")),
    )
    yield Curves(
        **about("Agreement of layouts with the Gaussian's samples", "C18"),
        caption=f"The same correlation between samples of a network trained on {most:,} images and of the Gaussian of "
        "these images, after both are averaged over blocks of pixels (on each side half as many blocks as pixels, but "
        f"at most 8), over {plan.samples} initial noises. The claim is that the excess over multi-delta, paired by "
        "noise, lies above 0. Controls: the multi-delta denoiser in place of the network, and noise exchanged.",
        of=_LAYOUTS.by(by_name).against(_LAYOUT, "the excess lies above"),
        lines=_AGREEMENTS,
    )
    for metric, quantity, what, which in (
        ("cosine", axes.LINEARITY, "Affine linearity (1 for an affine map)", "minimum over σ rises"),
        ("NMSE", axes.LINEARITY_ERROR, "Error of affine linearity (0 for an affine map)", "maximum over σ falls"),
    ):
        yield Curves(
            **about(f"Linearity by architecture, {metric}", "C2"),
            caption=f"{what} over pairs of noisy held-out images, of each architecture trained on {fewest:,} (dashed) "
            f"and on {most:,} images. {sizes} The claim is that for every architecture the {which} with the number of "
            f"images; control: the multi-delta denoiser of {most:,} images.",
            of=quantity.where(affine=True),
            lines=(*by_architecture, *memory),
        )
    yield Curves(
        **about("Distance of each architecture to the Gaussian denoiser", "C2"),
        caption=f"RMSE between a network trained on {most:,} (solid) or {fewest:,} images (dashed) and the Gaussian "
        f"denoiser of its own training images, on held-out images. {sizes} Controls: the multi-delta denoiser of "
        f"{most:,} images and, for one network trained on {fewest:,}, the distance to the Gaussian of all images that "
        "could be used for training.",
        of=axes.RMSE.where(reference="gaussian"),
        lines=(
            *by_architecture,
            Line(few_to_all, denoiser="network", network=names[0], n=fewest, reference="gaussian_full"),
            *memory,
        ),
    )


STUDY = Study("networks", __doc__, parts, drawings, figures=(23,), judges=(c18,), informs=("C2",))
