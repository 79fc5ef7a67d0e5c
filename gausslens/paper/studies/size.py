"""Number of training images, from copying to novelty: claim C14; figures 6, 12, 13, 16, 19."""

from dataclasses import replace

from .. import axes
from ..claims.claim import CORRELATION, PAPER_GENERALIZATION, Finding, claim, control, rank_statistic, statistic
from ..claims.comparisons import largest, positive, smallest
from ..claims.evidence import Evidence, MissingError, Number, slope
from ..claims.inference import Real
from ..critical_points import format_images_needed, images_needed
from ..figures import Curves, Drawing, Line, about, closed_forms, images_label
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task, format_duplicates

_RANKED_SIZES = 5  # fewer sizes have too few orders
_RANK = replace(positive("Fig. 13"), possible=CORRELATION)


@claim("C14", "With more training images, samples become more novel and denoisers more linear.")
def c14(evidence: Evidence) -> Finding:
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

    note = None
    if len(gl):
        few, many = (control("", gl.where(n=n), Evidence.one)[0].value for n in (smallest(gl), largest(gl)))
        rule = f"the paper's rule of {PAPER_GENERALIZATION} is not judged"
        note = f"GL is {few:.2f} at the smallest and {many:.2f} at the largest N; {rule}"
    return Finding(
        (
            statistic("slope of relative GL on log N", positive("Fig. 13"), both, rises),
            rank_statistic("Spearman's ρ of relative GL and linearity", _RANK, both, ranked),
        ),
        note=note,
    )


def parts(plan: Plan) -> list[Part]:
    """Every size at every seed of the sweep: measured and sampled, the ends first; then what the images are like."""
    found = []
    for n in sorted(plan.sizes, key=lambda n: (n not in (plan.sizes[0], plan.sizes[-1]), n)):
        for seed in range(plan.sweep_seeds):
            model = plan.model(n, seed)
            found.append(Part(f"measures of {n}, seed {seed}", plan.measured(model, "gap", "linearity")))
            found.append(Part(f"samples of {n}, seed {seed}", plan.sampled(model)))
    return [*found, Part("images", dataset_stats_task(plan))]


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 6, 12, 13, 16 and 19 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    memory = closed_forms("multidelta", called=", most images", reference="gaussian", n=max(plan.sizes))
    to_own, to_all = (
        (Line(images_label, by="n", denoiser="network", reference=reference), *memory)
        for reference in ("gaussian", "gaussian_full")
    )
    return [
        Curves(
            title="Distance to the Gaussian denoiser of the training images, by number of images",
            caption="RMSE between a network and the Gaussian denoiser of its own training images, on held-out images. "
            "The claim is that networks trained on more images are closer to the Gaussian at intermediate noise. The "
            "control retrieves training images exactly.",
            **about(6, 19, "C11", "C13"),
            lines=to_own,
        ),
        Curves(
            title="Distance to the Gaussian denoiser at low noise, by number of images",
            caption="At the lowest noise the network does nothing, and the Gaussian of fewer images than pixels cannot. "
            "What is left between them depends on the number of images alone. The control retrieves training images.",
            **about(16, "C13"),
            of=axes.RMSE.by(axes.LOW_SIGMA).at(0.0, 1.0),
            lines=to_own,
        ),
        Curves(
            title="Distance to the Gaussian denoiser of all images, by number of images",
            caption="The same networks held against one Gaussian, that of all images that could have been trained on. "
            "The dashed control retrieves images from among the most that were trained on.",
            **about(6, "C11"),
            lines=to_all,
        ),
        Curves(
            title="Novelty of samples, by number of images",
            caption="GL score: the distance of a sample to its nearest training image, over the sample's norm; also "
            "relative to that of real, held-out images. The paper's rule, 0.6, is drawn and not judged: new real "
            "images may score less.",
            **about(13, "C14"),
            of=axes.GL.by(axes.SIZE),
            lines=(
                Line("samples of the network", denoiser="network"),
                Line("relative to held-out images", quantity="relative_gl", denoiser="network"),
                Line("control: samples of the Gaussian", denoiser="gaussian"),
                Line("control: samples of multi-delta", denoiser="multidelta"),
            ),
        ),
        Curves(
            title="Copies among samples, by number of images",
            caption="Share of samples whose nearest training image is less than a third as far as the second "
            f"nearest.{format_images_needed(images_needed(evidence))}{format_duplicates(evidence)}",
            **about(12, "C14"),
            of=axes.COPIES.by(axes.SIZE),
            lines=(Line("network", denoiser="network"), *closed_forms()),
        ),
        sample_grid(
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
            title="Samples, their nearest training images, and samples of the Gaussian",
            caption="All from the same initial noise. Up to some number of images, samples are copies of training "
            "images; with more, they are new and resemble those of the Gaussian.",
            **about(6, 12, "C14"),
        ),
    ]


STUDY = Study(
    name="size",
    title="How many images?",
    question="Networks of one width are trained on more and more images. With few, they reproduce them; with many, they "
    "make new ones. On the way, their denoisers come closer to the Gaussian's.",
    figures=(6, 12, 13, 16, 19),
    parts=parts,
    drawings=figures,
    judges=(c14,),
    informs=("C11", "C13"),
)
