"""How many images? Models of one width on more and more of them, from copying to novelty."""

from ...measures.memorization import MEMORIZED
from ...report import Axis, CurveFigure, Figure, ImageGrid, Threshold
from ..claims.thresholds import PAPER_GENERALIZATION
from ..figures import COPIES, GL, NOISE, RMSE, line, lines, non_empty_figures, non_empty_series, sample_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task, format_duplicates
from .critical_points import format_images_needed, images_needed

_SHOWN = 10  # samples of each model
_LOW = 1.0  # the noise levels up to which the paper's Fig. 16 zooms in
_MEMORY = "control: multi-delta, most images"


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


def draw(findings: Findings) -> list[Figure]:
    """Figs. 6, 12, 13, 16 and 19 of the paper."""
    command = findings.command
    held_out = findings.evidence.where(on="held_out")
    gaps = held_out.where(quantity="rmse", denoiser="network")
    control = held_out.where(quantity="rmse", denoiser="multidelta", reference="gaussian", n=max(findings.plan.sizes))
    copies = findings.evidence.where(quantity="memorized_fraction")
    of_subset = lines(gaps.where(reference="gaussian"), "n", _images)
    low_noise = lines(gaps.where(reference="gaussian").at(0.0, _LOW), "n", _images)
    of_all = lines(gaps.where(reference="gaussian_full"), "n", _images)
    memory = non_empty_series(line(_MEMORY, control, dashed=True))
    figures: list[Figure | None] = [
        CurveFigure(
            title="Distance to the Gaussian denoiser of the training images, by number of images",
            caption="RMSE between a network and the Gaussian denoiser of its own training images, on held-out images. "
            "Look whether a network with more images to learn from stays closer to the Gaussian. The dashed control "
            "retrieves training images exactly.",
            redraws=(6, 19),
            claims=("C11", "C13"),
            command=command,
            x=NOISE,
            y=RMSE,
            series=of_subset + memory if of_subset else (),
        ),
        CurveFigure(
            title="Distance to the Gaussian denoiser at low noise, by number of images",
            caption="At the least noise the network does nothing, and the Gaussian of fewer images than pixels cannot: what "
            "is left between them depends on the number of images alone. The dashed control retrieves training images.",
            redraws=(16,),
            claims=("C13",),
            command=command,
            x=Axis("noise level σ", "pixel range [−1, 1]"),
            y=RMSE,
            series=low_noise + non_empty_series(line(_MEMORY, control.at(0.0, _LOW), dashed=True)) if low_noise else (),
        ),
        CurveFigure(
            title="Distance to the Gaussian denoiser of all images, by number of images",
            caption="The same networks held against one Gaussian for all, that of all images that could have been "
            "trained on. The dashed control retrieves images from among the most that were trained on.",
            redraws=(6,),
            claims=("C11",),
            command=command,
            x=NOISE,
            y=RMSE,
            series=of_all + memory if of_all else (),
        ),
        CurveFigure(
            title="Novelty of samples, by number of images",
            caption="GL score: the distance of a sample to its nearest training image, over the sample's norm; also "
            "relative to that of real, held-out images. The paper's rule, 0.6, is drawn and not judged: new real images may "
            "score less.",
            redraws=(13,),
            claims=("C14",),
            command=command,
            x=Axis("training images N", log=True),
            y=GL,
            series=tuple(
                line(
                    name,
                    findings.evidence.where(quantity=quantity, denoiser=denoiser),
                    x="n",
                    dashed=denoiser != "network",
                )
                for name, quantity, denoiser in (
                    ("samples of the network", "gl", "network"),
                    ("relative to held-out images", "relative_gl", "network"),
                    ("control: samples of the Gaussian", "gl", "gaussian"),
                    ("control: samples of multi-delta", "gl", "multidelta"),
                )
                if len(findings.evidence.where(quantity=quantity, denoiser=denoiser))
            ),
            thresholds=(Threshold(PAPER_GENERALIZATION, "the paper's rule"),),
        ),
        CurveFigure(
            title="Copies among samples, by number of images",
            caption="Share of samples whose nearest training image is less than a third as far as the second nearest."
            f"{format_images_needed(images_needed(findings.evidence))}{format_duplicates(findings.evidence)}",
            redraws=(12,),
            claims=("C14",),
            command=command,
            x=Axis("training images N", log=True),
            y=COPIES,
            series=tuple(
                line(name, copies.where(denoiser=denoiser), x="n", dashed=denoiser != "network")
                for name, denoiser in (
                    ("network", "network"),
                    ("control: multi-delta", "multidelta"),
                    ("control: Gaussian", "gaussian"),
                )
                if len(copies.where(denoiser=denoiser))
            ),
            thresholds=(Threshold(MEMORIZED, "memorising"),),
        ),
        _samples(findings),
    ]
    return non_empty_figures(*figures)


def _samples(findings: Findings) -> ImageGrid | None:
    rows = []
    for n in findings.plan.sizes:
        key = f"samples of {n}, seed {findings.plan.shown}"
        rows += [(f"network, {_images(n)}", key, "network"), ("nearest training image", key, "nearest")]
        rows += [(f"Gaussian, {_images(n)}", key, "gaussian")]
    return sample_grid(
        findings,
        rows,
        columns=_SHOWN,
        title="Samples, their nearest training images, and samples of the Gaussian",
        caption="All from the same noises. Look up to which number samples are copies of training images, and from which "
        "they are new and resemble those of the Gaussian.",
        redraws=(6, 12),
        claims=("C14",),
    )


def _images(n: int) -> str:
    return f"N = {n:,}"


STUDY = Study(
    name="size",
    title="How many images?",
    question="Models of one width are trained on more and more images. With few, they reproduce them; with many, they make "
    "new ones. On the way, their denoisers come closer to the Gaussian's.",
    figures=(6, 12, 13, 16, 19),
    claims=("C11", "C13", "C14"),
    parts=parts,
    draw=draw,
)
