"""Is it the training over all noise levels? Autoencoders of one level each, beside a network of all levels."""

from typing import Any

from ...noise import karras_sigmas
from ...report import Axis, Figure
from .. import axes
from ..architectures import label
from ..autoencoder_recipes import AUTOENCODERS, autoencoder, kinds
from ..claims.evidence import Evidence, Number, mean_at
from ..claims.findings import Finding, Statistic, claim, pixel_scale, statistic
from ..claims.thresholds import POSITIVE, SIGN, Threshold
from ..figures import Curves, Line, Tags, about, controls, level, pixel_level, trainings_behind
from ..pictures import jacobian_maps, jacobian_vectors
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task
from ..tasks.jacobians import follow_levels, jacobian_task, measure_levels, per_level_task
from ..tasks.theorem import theorem_task
from ..tasks.trajectories import trajectory_grid, trajectory_task
from .distillation import RESIDUAL
from .jacobian import shown_subspace

_LEVELS = 10
_FOLLOWED = "network of all levels, followed"
_MAPS = (0, 2, 4, 6, 9)  # which of the ten levels
_MAPPED = "ncsnpp"  # whose Jacobians are shown
_SHOWN = f"{_MAPPED}, followed"
_UNDERTRAINED = 42.0  # the noise levels from here on, at which the paper finds networks of all levels under-trained

_LINEAR = Threshold("the paper, Fig. 24", below=0.04, possible=POSITIVE)
_DIFFERENCE = Threshold(SIGN + " in Fig. 24", below=0.0)


@claim(
    "C17", "Autoencoders of one noise level are close to the Gaussian, and closer than other networks at high noise."
)
def c17(evidence: Evidence) -> Finding:
    """max axes.RMSE(linear autoencoder, G); the other autoencoders' minus a network's of all levels, mean over σ ≥ 42.

    On held-out images. Autoencoders have `preconditioning` none, the network of all levels edm.
    """
    tags = Tags(quantity="rmse", on="held_out", denoiser="network", reference="gaussian")
    gaps = evidence.where(study="autoencoders", **tags)
    plain = gaps.where(preconditioning="none")

    def largest(records: Evidence) -> Number:
        return records.greatest() / pixel_scale(evidence)

    def compare(name: str) -> Statistic:
        def difference(records: Evidence) -> Number:
            high = records.at(_UNDERTRAINED)
            own = high.where(preconditioning="none", network=name)
            return own.mean() - mean_at(high.where(preconditioning="edm").curve(), [*own.curve()])

        return statistic(f"RMSE to G at σ ≥ 42, {name} minus EDM", _DIFFERENCE, gaps, difference)

    linear = statistic("largest RMSE of the linear autoencoder to G", _LINEAR, plain.where(network="linear"), largest)
    names = [name for name in plain.names("network") if name != "linear"]
    return Finding((linear, *(compare(name) for name in names or ["another autoencoder"])))


def parts(plan: Plan) -> list[Part]:
    """Every autoencoder at every level and seed on the most images, beside the plan's own model; the theorem first."""
    most = plan.sizes[-1]
    found = [Part("theorem", theorem_task(plan)), Part("images", dataset_stats_task(plan))]
    for seed in range(plan.seeds):
        model = plan.model(most, seed)
        found.append(Part(f"network of all levels, seed {seed}", plan.measured(model, "gap", "linearity")))
        found.append(Part(f"its linear denoiser, seed {seed}", plan.measured(model, "linear_gap")))
        for name in kinds(plan):
            models = [autoencoder(plan, name, most, seed, sigma) for sigma in karras_sigmas(_LEVELS).tolist()]
            found.append(Part(f"{name}, seed {seed}", per_level_task(plan, models, measure_levels)))
            if seed == plan.shown:
                found.append(Part(f"{name}, followed", per_level_task(plan, models, follow_levels)))
    own = plan.model(most, plan.shown)
    found += [
        Part(_FOLLOWED, trajectory_task(plan, own)),
        Part("network of all levels, Jacobians", jacobian_task(plan, own)),
    ]
    return found


def figures(findings: Findings) -> list[Curves | Figure | None]:
    """Figs. 24, 27 and 29 of the paper, and the theorem."""
    plan, evidence = findings.plan, findings.evidence
    trained = f"All were trained on {plan.sizes[-1]:,} images, with {trainings_behind(evidence.where(on='held_out'))}."
    own = f"{label(plan.training['network'])}, all levels"
    edm = Tags(preconditioning="edm")
    k = shown_subspace(evidence.where(quantity="jacobian_overlap"))

    def one_a_level(words: str, **tags: Any) -> list[Line]:
        """A line for each kind of autoencoder."""
        return [
            Line(f"{kind}{words}", preconditioning="none", network=name, denoiser="network", **tags)
            for name, kind in AUTOENCODERS.items()
        ]

    return [
        Curves(
            title="Distance of autoencoders to the Gaussian denoiser",
            caption=f"RMSE to the Gaussian denoiser of the training images, on {plan.count} noisy held-out images. "
            "Each point of an autoencoder is a network of its own, trained for this noise level without "
            f"preconditioning. {trained} The claim is that the linear one stays below the line, and that at σ ≥ 42 the "
            "others are closer than the network of all levels. Control: the multi-delta denoiser.",
            **about(24, "C17"),
            where=Tags(on="held_out", quantity="rmse"),
            lines=(
                *one_a_level(", one a level", reference="gaussian"),
                Line(f"{own} (EDM)", denoiser="network", reference="gaussian", **edm),
                *one_a_level(", to the Gaussian of all images", reference="gaussian_full"),
                *controls("multidelta", reference="gaussian", **edm),
            ),
            levels=pixel_level(evidence, _LINEAR, "limit of C17 for the linear one"),
        ),
        trajectory_grid(
            findings,
            [
                *((f"{words}, one a level", f"{name}, followed", "network") for name, words in AUTOENCODERS.items()),
                (own, _FOLLOWED, "network"),
                ("Gaussian", _FOLLOWED, "gaussian"),
                ("control: multi-delta", _FOLLOWED, "multidelta"),
            ],
            title="Trajectories of autoencoders",
            caption="D(x_t; σ_t) on Euler's path from one noise, for autoencoders with the network of each level, the "
            "network of all levels, and the Gaussian and multi-delta denoisers of the training images; one training. "
            "Look whether the first columns are the mean image, and how long the rows are alike.",
            **about(24, "C17"),
        ),
        *(
            Curves(
                title=f"Gaps of autoencoders and of a network of all levels, {metric.upper()}",
                caption=f"{words} between pairs of denoisers, on {plan.count} noisy held-out images. The paper's point "
                "is that relative errors show what a network of all levels has not learned at high noise, where "
                f"autoencoders stay near the Gaussian. {trained}",
                **about(27, "C17"),
                y=axis,
                where=Tags(on="held_out", quantity=metric),
                lines=(
                    *one_a_level(", one a level, to Gaussian", reference="gaussian"),
                    *(
                        Line(f"{own}, to {kind}", denoiser="network", reference=reference, **edm)
                        for kind, reference in (
                            *(("Gaussian", "gaussian"), ("linear", "linear")),
                            ("multi-delta", "multidelta"),
                        )
                    ),
                    Line("its linear to Gaussian", dashed=True, denoiser="linear", reference="gaussian", **edm),
                ),
            )
            for metric, words, axis in (
                ("rmse", "RMSE", axes.RMSE),
                ("nmse", "‖D₁ − D₂‖/‖D₁‖, D₁ the network,", Axis("NMSE", log=True)),
            )
        ),
        Curves(
            title="Overlap of autoencoders' Jacobians with principal components",
            caption=f"‖UᵀU_data‖²/{k} of the {k} leading left singular vectors of ∇D(x_t; σ_t), along a few sampling "
            "trajectories of each, and as many principal components of the training images; one training. Control: the "
            f"Gaussian, whose Jacobian is the same everywhere. Unrelated subspaces would have {k}/{plan.dim}.",
            **about(29),
            y=axes.OVERLAP,
            where=Tags(quantity="jacobian_overlap", k=k),
            lines=(
                *one_a_level(", one a level"),
                Line(own, denoiser="network", **edm),
                *controls("gaussian", preconditioning="none", network="linear"),
            ),
        ),
        jacobian_maps(
            *(findings, _SHOWN, _MAPS),
            title=f"Singular vectors of {AUTOENCODERS[_MAPPED]} autoencoders' Jacobians against principal components",
            **about(29),
        ),
        jacobian_vectors(
            *(findings, _SHOWN),
            title=f"A trajectory of {AUTOENCODERS[_MAPPED]} autoencoders, and their Jacobians' first singular vectors",
            **about(29),
        ),
        Curves(
            title="The theorem, on these images",
            caption="√(E‖D − D_G‖²/E‖D_G‖²) over noisy images, D_G the Gaussian denoiser with Σ(Σ + σ²I)⁻¹ and its "
            "bias, D the minimum of the denoising loss over affine maps, or where gradient descent on it ends; from "
            "the moments of the images, shrunk to at most 64 dimensions. Levels that double precision or 20,000 steps "
            "do not suffice for are left out.",
            **about("C21"),
            y=Axis("relative residual", log=True),
            where=Tags(quantity="theorem_residual"),
            lines=[Line(kind, kind=kind) for kind in ("optimum", "gradient descent")],
            levels=(level(RESIDUAL, "limit of C21"),),
        ),
    ]


STUDY = Study(
    name="autoencoders",
    title="Is it the training over all levels?",
    question="A network of all noise levels is trained least at the highest, and shares its weights between them. "
    "Autoencoders that know one level each, of four kinds and without preconditioning, have neither excuse. The linear "
    "one has the Gaussian denoiser as its exact optimum, which the theorem says and the last figure checks; whether "
    "the others, which could learn to retrieve, stay near it too is to be seen.",
    figures=(24, 27, 29),
    parts=parts,
    drawings=figures,
    judges=(c17,),
    informs=("C21",),
)
