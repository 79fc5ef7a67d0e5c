"""How many images?

Networks of one width are trained on more and more images. With few images, they reproduce them; with many, they make new
ones. On the way from few to many images, the networks come closer to the Gaussian denoiser.
"""

from collections.abc import Iterator
from dataclasses import replace

from .. import axes
from ..claims.claim import PAPER_GENERALIZATION, Found, claim, control, rank_statistic, statistic
from ..claims.comparisons import largest, positive, smallest
from ..claims.evidence import Evidence, MissingError, Number, slope
from ..claims.inference import Real
from ..critical_points import format_images_needed, images_needed
from ..figures import COPIED, Curves, Drawing, Line, about, closed_forms, images_label
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import describe_images, format_duplicates

_RANKED_SIZES = 5  # fewer sizes have too few orders
_RANK = replace(positive("Fig. 13"), possible=axes.CORRELATION)


@claim("C14", "With more training images, samples become more novel and denoisers more linear.")
def c14(evidence: Evidence) -> Found:
    """Slope of relative GL on log N, and its rank correlation with the lowest affine linearity as for C1; at least 5 sizes.

    Samples are those of the study `size`, linearity that of the study `linearity`, of networks of the same n and seeds.
    """
    samples = evidence.where(study="size", denoiser="network")
    linear = evidence.where(study="linearity", denoiser="network", **axes.LINEARITY.tags, affine=True)
    both = Evidence([*samples.records, *linear.where(alpha=None, preconditioning=(None, "edm")).records])
    gl, relative_gl = (samples.where(quantity=quantity) for quantity in ("gl", "relative_gl"))

    def at_enough(of_sizes: dict[Real, Number], what: str = "") -> dict[Real, Number]:
        if len(of_sizes) < _RANKED_SIZES:
            raise MissingError(f"{what}{_RANKED_SIZES} sizes needed, {len(of_sizes)} found")
        return of_sizes

    def novelty(records: Evidence) -> dict[Real, Number]:
        return at_enough(records.where(study="size", quantity="relative_gl").over("n"))

    def rises(records: Evidence) -> Number:
        return slope(novelty(records), relative_gl.by("n"))

    def ranked(records: Evidence) -> tuple[list[Real], list[Real]]:
        scores, by_size = novelty(records), records.where(study="linearity").by("n")
        lowest = at_enough({n: by_size[n].least() for n in scores if n in by_size}, "linearity at ")
        return [scores[n].value for n in lowest], [number.value for number in lowest.values()]

    yield statistic("slope of relative GL on log N", positive("Fig. 13"), both, rises)
    yield rank_statistic("Spearman's ρ of relative GL and linearity", _RANK, both, ranked)
    if len(gl):
        few, many = (control("", gl.where(n=n), Evidence.one)[0].value for n in (smallest(gl), largest(gl)))
        found = f"GL is {few:.2f} at the smallest and {many:.2f} at the largest N"
        yield f"{found}; the paper's rule of {PAPER_GENERALIZATION} is not judged"


def parts(plan: Plan) -> Iterator[Part]:
    """Every size at every seed, measured and sampled, the smallest and the largest first; then the images."""
    for n in sorted(plan.sizes, key=lambda n: (n not in (plan.sizes[0], plan.sizes[-1]), n)):
        for seed in range(plan.sweep_seeds):
            model = plan.model(n, seed)
            yield Part(f"measures of {n}, seed {seed}", plan.measured(model, "gap", "linearity"))
            yield Part(f"samples of {n}, seed {seed}", plan.sampled(model))
    yield Part("images", plan.on_images(describe_images))


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 6, 12, 13, 16 and 19 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    memory = closed_forms("multidelta", called=", most images", reference="gaussian", n=max(plan.sizes))
    to_own, to_all = (
        (Line(images_label, by="n", denoiser="network", reference=reference), *memory)
        for reference in ("gaussian", "gaussian_full")
    )
    yield Curves(
        **about("Distance to the Gaussian denoiser of the training images, by number of images", 6, 19, "C11", "C13"),
        caption="RMSE between a network and the Gaussian denoiser of its own training images, on held-out images. The "
        "claim is that networks trained on more images are closer to the Gaussian at intermediate noise. Control: the "
        "multi-delta denoiser of the most images, which retrieves training images.",
        lines=to_own,
    )
    yield Curves(
        **about("Distance to the Gaussian denoiser at low noise, by number of images", 16, "C13"),
        caption="At the lowest noise the network returns its input, and the Gaussian of fewer images than pixels "
        "cannot. The claim is that the distance left there depends on the number of images alone. Control: the "
        "multi-delta denoiser, which retrieves training images.",
        of=axes.RMSE.by(axes.LOW_SIGMA).at(0.0, 1.0),
        lines=to_own,
    )
    yield Curves(
        **about("Distance to the Gaussian denoiser of all images, by number of images", 6, "C11"),
        caption="RMSE between the same networks and one Gaussian denoiser, that of all images that could be used for "
        "training. Control: the multi-delta denoiser of the most training images.",
        lines=to_all,
    )
    yield Curves(
        **about("Novelty of samples, by number of images", 13, "C14"),
        caption="GL score: distance of a sample to its nearest training image, divided by the sample's norm; a second "
        "line divides it by the GL score of real, held-out images. The line at 0.6 is the paper's rule; no verdict "
        "uses it, because new real images may also score less. Controls: samples of the closed-form denoisers.",
        of=axes.GL.by(axes.SIZE),
        lines=(
            Line("samples of the network", denoiser="network"),
            Line("relative to held-out images", quantity="relative_gl", denoiser="network"),
            Line("control: samples of the Gaussian", denoiser="gaussian"),
            Line("control: samples of multi-delta", denoiser="multidelta"),
        ),
    )
    yield Curves(
        **about("Copies among samples, by number of images", 12, "C14"),
        caption="Share of samples "
        f"{COPIED}.{format_images_needed(images_needed(evidence))}{format_duplicates(evidence)}",
        of=axes.COPIES.by(axes.SIZE),
        lines=(Line("network", denoiser="network"), *closed_forms()),
    )
    yield sample_grid(
        findings,
        [
            (label, f"samples of {n}, seed {plan.shown}", name)
            for n in plan.sizes
            for label, name in (
                (f"network, {images_label(n)}", "network"),
                ("nearest training image", "nearest"),
                (f"Gaussian, {images_label(n)}", "gaussian"),
            )
        ],
        **about("Samples, their nearest training images, and samples of the Gaussian", 6, 12, "C14"),
        caption="All samples are from the same initial noise. With few training images, networks return copies of "
        "them; with more, samples are new and resemble those of the Gaussian.",
    )


STUDY = Study("size", __doc__, parts, drawings, figures=(6, 12, 13, 16, 19), judges=(c14,), informs=("C11", "C13"))
