"""How many images? Models of one width on more and more of them, from copying to novelty."""

from ...report import Figure
from .. import axes
from ..claims.evidence import Evidence, MissingError, Number, slope
from ..claims.findings import Finding, claim, control, rank_statistic, statistic
from ..claims.inference import Real
from ..claims.thresholds import CORRELATION, PAPER_GENERALIZATION, SIGN, Threshold
from ..figures import Curves, Line, Tags, about, controls, images_label
from ..pictures import sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task, format_duplicates
from .critical_points import format_images_needed, images_needed

_RANKED_SIZES = 5  # fewer sizes have too few orders
_LOW = 1.0  # the noise levels up to which the paper's Fig. 16 zooms in

_SLOPE = Threshold(SIGN + " in Fig. 13", above=0.0)
_RANK = Threshold(SIGN + " in Fig. 13", above=0.0, possible=CORRELATION)


@claim("C14", "With more training images, samples become newer and denoisers more linear.")
def c14(evidence: Evidence) -> Finding:
    """Slope of relative GL on log N, and its rank correlation with the least affine linearity as for C1; at least 5 sizes.

    Samples are those of the study `size`, linearity that of the study `linearity`, of networks of the same n and seeds.
    """
    samples = evidence.where(study="size", denoiser="network")
    linear = evidence.where(
        study="linearity", denoiser="network", quantity="linearity_cosine", on="held_out", alpha=None
    )
    both = Evidence([*samples.records, *linear.where(affine=True, preconditioning=(None, "edm")).records])

    def relative(records: Evidence) -> dict[Real, Number]:
        found = records.where(study="size", quantity="relative_gl").over("n")
        if len(found) < _RANKED_SIZES:
            raise MissingError(f"{_RANKED_SIZES} sizes needed, {len(found)} found")
        return found

    def trend(records: Evidence) -> Number:
        return slope(relative(records), samples.where(quantity="relative_gl").by("n"))

    def ranked(records: Evidence) -> tuple[list[Real], list[Real]]:
        scores, by_size = relative(records), records.where(study="linearity", quantity="linearity_cosine").by("n")
        common = [n for n in scores if n in by_size]
        if len(common) < _RANKED_SIZES:
            raise MissingError(f"linearity at {_RANKED_SIZES} sizes needed, {len(common)} found")
        return [scores[n].value for n in common], [by_size[n].least().value for n in common]

    def score(which: int) -> str:
        found = control("", samples.where(quantity="gl"), lambda r: [*r.over("n").values()][which])
        return f"{found[0].value:.2f}" if found else "unknown"

    rule = f"the paper's rule of {PAPER_GENERALIZATION} is not judged"
    shown = f"GL is {score(0)} at the smallest and {score(-1)} at the largest N; {rule}"
    return Finding(
        (
            statistic("slope of relative GL on log N", _SLOPE, both, trend),
            rank_statistic("Spearman's ρ of relative GL and linearity", _RANK, both, ranked),
        ),
        note=shown if len(samples.where(quantity="gl")) else None,
    )


def parts(plan: Plan) -> list[Part]:
    """Every size at every seed of the sweep: measured and sampled, the ends first; then what the images are like."""
    order = sorted(plan.sizes, key=lambda n: (n not in (plan.sizes[0], plan.sizes[-1]), n))
    found = []
    for n in order:
        for seed in range(plan.sweep_seeds):
            model = plan.model(n, seed)
            found.append(Part(f"measures of {n}, seed {seed}", plan.measured(model, "gap", "linearity")))
            found.append(Part(f"samples of {n}, seed {seed}", plan.sampled(model)))
    found.append(Part("images", dataset_stats_task(plan)))
    return found


def figures(findings: Findings) -> list[Curves | Figure | None]:
    """Figs. 6, 12, 13, 16 and 19 of the paper."""
    plan, evidence = findings.plan, findings.evidence
    gaps = Tags(quantity="rmse", on="held_out")
    of_own, of_all = (
        Line(images_label, by="n", denoiser="network", reference=name) for name in ("gaussian", "gaussian_full")
    )
    memory = controls("multidelta", called=", most images", reference="gaussian", n=max(plan.sizes))
    rows = []
    for n in plan.sizes:
        key = f"samples of {n}, seed {plan.shown}"
        rows += [(f"network, {images_label(n)}", key, "network"), ("nearest training image", key, "nearest")]
        rows += [(f"Gaussian, {images_label(n)}", key, "gaussian")]
    return [
        Curves(
            title="Distance to the Gaussian denoiser of the training images, by number of images",
            caption="RMSE between a network and the Gaussian denoiser of its own training images, on held-out images. "
            "Look whether a network with more images to learn from stays closer to the Gaussian. The dashed control "
            "retrieves training images exactly.",
            **about(6, 19, "C11", "C13"),
            where=gaps,
            lines=(of_own,),
            beside=memory,
        ),
        Curves(
            title="Distance to the Gaussian denoiser at low noise, by number of images",
            caption="At the least noise the network does nothing, and the Gaussian of fewer images than pixels cannot: what "
            "is left between them depends on the number of images alone. The dashed control retrieves training images.",
            **about(16, "C13"),
            x=axes.LOW_SIGMA,
            where=gaps,
            at=(0.0, _LOW),
            lines=(of_own,),
            beside=memory,
        ),
        Curves(
            title="Distance to the Gaussian denoiser of all images, by number of images",
            caption="The same networks held against one Gaussian for all, that of all images that could have been "
            "trained on. The dashed control retrieves images from among the most that were trained on.",
            **about(6, "C11"),
            where=gaps,
            lines=(of_all,),
            beside=memory,
        ),
        Curves(
            title="Novelty of samples, by number of images",
            caption="GL score: the distance of a sample to its nearest training image, over the sample's norm; also "
            "relative to that of real, held-out images. The paper's rule, 0.6, is drawn and not judged: new real "
            "images may score less.",
            **about(13, "C14"),
            x=axes.SIZE,
            y=axes.GL,
            lines=(
                Line("samples of the network", quantity="gl", denoiser="network"),
                Line("relative to held-out images", quantity="relative_gl", denoiser="network"),
                Line("control: samples of the Gaussian", quantity="gl", denoiser="gaussian"),
                Line("control: samples of multi-delta", quantity="gl", denoiser="multidelta"),
            ),
            levels=(axes.PAPER_RULE,),
        ),
        Curves(
            title="Copies among samples, by number of images",
            caption="Share of samples whose nearest training image is less than a third as far as the second "
            f"nearest.{format_images_needed(images_needed(evidence))}{format_duplicates(evidence)}",
            **about(12, "C14"),
            x=axes.SIZE,
            y=axes.COPIES,
            where=Tags(quantity="memorized_fraction"),
            lines=(Line("network", denoiser="network"), *controls()),
            levels=(axes.MEMORIZING,),
        ),
        sample_grid(
            findings,
            rows,
            title="Samples, their nearest training images, and samples of the Gaussian",
            caption="All from the same noises. Look up to which number samples are copies of training images, and from "
            "which they are new and resemble those of the Gaussian.",
            **about(6, 12, "C14"),
        ),
    ]


STUDY = Study(
    name="size",
    title="How many images?",
    question="Models of one width are trained on more and more images. With few, they reproduce them; with many, they "
    "make new ones. On the way, their denoisers come closer to the Gaussian's.",
    figures=(6, 12, 13, 16, 19),
    parts=parts,
    drawings=figures,
    judges=(c14,),
    informs=("C11", "C13"),
)
