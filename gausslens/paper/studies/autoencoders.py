"""Autoencoders of one noise level each, beside a network of all levels: claim C17; figures 24, 27, 29."""

from typing import Any

from ...noise import karras_sigmas
from .. import axes
from ..architectures import AUTOENCODERS, autoencoder, kinds, label
from ..claims.claim import POSITIVE, Finding, Statistic, Threshold, claim, statistic
from ..claims.comparisons import in_pixels, minus, negative
from ..claims.evidence import Evidence
from ..figures import Curves, Drawing, Line, about, closed_forms, known_pixel_scale, trainings_behind
from ..pictures import jacobian_pictures
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task
from ..tasks.denoised_outputs import trajectory_grid, trajectory_task
from ..tasks.jacobians import follow_levels, jacobian_task, measure_levels, per_level_task
from ..tasks.theorem import theorem_task
from .jacobian import shown_subspace
from .theorem import THEOREM

_LEVELS = 10
_FOLLOWED = "network of all levels, followed"
_MAPS = (0, 2, 4, 6, 9)  # which of the ten levels
_MAPPED = "ncsnpp"  # whose Jacobians are shown
_UNDERTRAINED = 42.0  # the noise levels from here on, at which the paper finds networks of all levels under-trained

_LINEAR = Threshold("the paper, Fig. 24", below=0.04, possible=POSITIVE)


@claim(
    "C17",
    "Denoising autoencoders trained at a single noise level are close to the Gaussian, and at high noise closer than a "
    "network of all levels.",
)
def c17(evidence: Evidence) -> Finding:
    """max RMSE(linear autoencoder, G); the other autoencoders' minus a network's of all levels, mean over σ ≥ 42.

    On held-out images. Autoencoders have `preconditioning` none, the network of all levels edm.
    """
    gaps = evidence.where(study="autoencoders", **axes.RMSE.tags, denoiser="network", reference="gaussian")
    plain, high = gaps.where(preconditioning="none"), gaps.at(_UNDERTRAINED)
    linear, worst = plain.where(network="linear"), in_pixels(Evidence.greatest, evidence)

    def compare(name: str) -> Statistic:
        difference = minus({"preconditioning": "none", "network": name}, {"preconditioning": "edm"})
        return statistic(f"RMSE to G at σ ≥ 42, {name} minus EDM", negative("Fig. 24"), high, difference)

    names = [name for name in plain.names("network") if name != "linear"] or ["another autoencoder"]
    of_linear = statistic("largest RMSE of the linear autoencoder to G", _LINEAR, linear, worst)
    return Finding((of_linear, *map(compare, names)))


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
    return [
        *found,
        Part(_FOLLOWED, trajectory_task(plan, own)),
        Part("network of all levels, Jacobians", jacobian_task(plan, own)),
    ]


def figures(findings: Findings) -> list[Drawing]:
    """Figs. 24, 27 and 29 of the paper, and the theorem."""
    plan, evidence = findings.plan, findings.evidence
    trained = f"All were trained on {plan.sizes[-1]:,} images, with {trainings_behind(evidence.where(on='held_out'))}."
    own = f"{label(plan.training['network'])}, all levels"
    edm = axes.Tags(preconditioning="edm")
    k = shown_subspace(evidence.where(**axes.JACOBIAN_OVERLAP.tags))

    def one_a_level(words: str, **tags: Any) -> list[Line]:
        """A line for each kind of autoencoder."""
        return [
            Line(f"{kind}, one a level{words}", preconditioning="none", network=name, denoiser="network", **tags)
            for name, kind in AUTOENCODERS.items()
        ]

    return [
        Curves(
            title="Distance of autoencoders to the Gaussian denoiser",
            caption=f"RMSE to the Gaussian denoiser of the training images, on {plan.count} noisy held-out images. "
            "Each point of an autoencoder is a network of its own, trained for this noise level without "
            f"preconditioning. {trained} The claim is that the linear one stays below the limit, and that at σ ≥ 42 the "
            "others are closer than the network of all levels. Control: the multi-delta denoiser.",
            **about(24, "C17"),
            lines=(
                *one_a_level("", reference="gaussian"),
                Line(f"{own} (EDM)", denoiser="network", reference="gaussian", **edm),
                *one_a_level(", to the Gaussian of all images", reference="gaussian_full"),
                *closed_forms("multidelta", reference="gaussian", **edm),
            ),
            of=axes.RMSE.against(_LINEAR, "limit of C17 for the linear one", known_pixel_scale(evidence)),
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
            "network of all levels, and the closed-form denoisers of the training images; one training. The first columns "
            "should be the mean image, and the rows alike down to some noise level.",
            **about(24, "C17"),
        ),
        *(
            Curves(
                title=f"Gaps of autoencoders and of a network of all levels, {quantity.tags['quantity'].upper()}",
                caption=f"{words} between pairs of denoisers, on {plan.count} noisy held-out images. The paper's point "
                "is that relative errors show what a network of all levels has not learned at high noise, where "
                f"autoencoders stay near the Gaussian. {trained}",
                **about(27, "C17"),
                of=quantity,
                lines=(
                    *one_a_level(", to Gaussian", reference="gaussian"),
                    *(
                        Line(f"{own}, to {kind}", denoiser="network", reference=reference, **edm)
                        for kind, reference in (
                            ("Gaussian", "gaussian"),
                            ("linear", "linear"),
                            ("multi-delta", "multidelta"),
                        )
                    ),
                    Line("its linear to Gaussian", dashed=True, denoiser="linear", reference="gaussian", **edm),
                ),
            )
            for words, quantity in (
                ("RMSE", axes.RMSE),
                ("‖D₁ − D₂‖/‖D₁‖, D₁ the network,", axes.quantity("nmse", "NMSE", log=True, on="held_out")),
            )
        ),
        Curves(
            title="Overlap of autoencoders' Jacobians with principal components",
            caption=f"‖UᵀU_data‖²/{k} of the {k} leading left singular vectors of ∇D(x_t; σ_t), along a few sampling "
            "trajectories of each, and as many principal components of the training images; one training. Control: the "
            f"Gaussian, whose Jacobian is the same everywhere. Unrelated subspaces would have {k}/{plan.dim}.",
            **about(29),
            of=axes.JACOBIAN_OVERLAP.where(k=k),
            lines=(
                *one_a_level(""),
                Line(own, denoiser="network", **edm),
                *closed_forms("gaussian", preconditioning="none", network="linear"),
            ),
        ),
        *jacobian_pictures(
            findings, f"{_MAPPED}, followed", _MAPS, f" of {AUTOENCODERS[_MAPPED]} autoencoders", **about(29)
        ),
        THEOREM,
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
