"""Is it the training over all levels?

A network of all noise levels is trained least at the highest levels, and shares its weights between levels. An autoencoder
that is trained for a single noise level has neither limitation. Here, autoencoders of four kinds are trained for each noise
level, without preconditioning. The exact optimum of the linear kind is the Gaussian denoiser, by the theorem that the last
figure checks. The other kinds could learn to retrieve, so whether they stay near the Gaussian is an open question.
"""

from collections.abc import Iterator
from typing import Any

from ...noise import karras_sigmas
from .. import axes
from ..architectures import AUTOENCODERS, autoencoder, kinds, label
from ..claims.claim import Found, Threshold, claim, statistic
from ..claims.comparisons import in_pixels, minus, negative
from ..claims.evidence import Evidence
from ..figures import Curves, Drawing, Line, about, closed_forms, trainings_behind
from ..pictures import jacobian_pictures, trajectory_grid
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import describe_images
from ..tasks.denoised_outputs import LABELS, trajectory_task
from ..tasks.jacobians import follow_levels, jacobian_task, measure_levels, per_level_task
from ..tasks.theorem import check_theorem
from .distillation import THEOREM
from .jacobian import shown_subspace

_LEVELS = 10
_FOLLOWED = "network of all levels, followed"
_MAPS = (0, 2, 4, 6, 9)  # which of the ten levels
_MAPPED = "ncsnpp"  # whose Jacobians are shown
_UNDERTRAINED = 42.0  # the lowest noise level at which the paper finds networks of all levels undertrained

_LINEAR = Threshold("the paper, Fig. 24", below=0.04, possible=axes.POSITIVE)


@claim(
    "C17",
    "Autoencoders trained for one noise level are close to the Gaussian; at high noise, closer than other networks.",
)
def c17(evidence: Evidence) -> Found:
    """max RMSE(linear autoencoder, G); the other autoencoders' minus a network's of all levels, mean over σ ≥ 42.

    On held-out images. Autoencoders have `preconditioning` none, the network of all levels edm.
    """
    gaps = evidence.where(study="autoencoders", **axes.RMSE.tags, denoiser="network", reference="gaussian")
    plain, high = gaps.where(preconditioning="none"), gaps.at(_UNDERTRAINED)
    linear, worst = plain.where(network="linear"), in_pixels(Evidence.greatest, evidence)
    yield statistic("largest RMSE of the linear autoencoder to G", _LINEAR, linear, worst)
    for name in [name for name in plain.names("network") if name != "linear"] or ["another autoencoder"]:
        difference = minus({"preconditioning": "none", "network": name}, {"preconditioning": "edm"})
        yield statistic(f"RMSE to G at σ ≥ 42, {name} minus EDM", negative("Fig. 24"), high, difference)


def parts(plan: Plan) -> Iterator[Part]:
    """The theorem; then, on the most images, every autoencoder at every level and seed, and the plan's own model."""
    most = plan.sizes[-1]
    yield Part("theorem", plan.on_images(check_theorem, split=False, cost=2.0))
    yield Part("images", plan.on_images(describe_images))
    for seed in range(plan.seeds):
        model = plan.model(most, seed)
        yield Part(f"network of all levels, seed {seed}", plan.measured(model, "gap", "linearity"))
        yield Part(f"its linear denoiser, seed {seed}", plan.measured(model, "linear_gap"))
        for name in kinds(plan):
            models = [autoencoder(plan, name, most, seed, sigma) for sigma in karras_sigmas(_LEVELS).tolist()]
            yield Part(f"{name}, seed {seed}", per_level_task(plan, models, measure_levels))
            if seed == plan.shown:
                yield Part(f"{name}, followed", per_level_task(plan, models, follow_levels))
    own = plan.model(most, plan.shown)
    yield Part(_FOLLOWED, trajectory_task(plan, own))
    yield Part("network of all levels, Jacobians", jacobian_task(plan, own))


def drawings(findings: Findings) -> Iterator[Drawing]:
    """Figs. 24, 27 and 29 of the paper, and the theorem."""
    plan, evidence = findings.plan, findings.evidence
    trained = f"trained on {plan.sizes[-1]:,} images, with {trainings_behind(evidence.where(on='held_out'))}"
    held_out = f"on {plan.count} noisy held-out images"
    own = f"{label(plan.training['network'])}, all levels"
    edm = axes.Tags(preconditioning="edm")
    k = shown_subspace(evidence.where(**axes.JACOBIAN_OVERLAP.tags))

    def one_a_level(words: str, **tags: Any) -> list[Line]:
        """A line for each kind of autoencoder."""
        return [
            Line(f"{kind}, one a level{words}", preconditioning="none", network=name, denoiser="network", **tags)
            for name, kind in AUTOENCODERS.items()
        ]

    yield Curves(
        **about("Distance of autoencoders to the Gaussian denoiser", 24, "C17"),
        caption=f"RMSE to the Gaussian denoiser of the training images, {held_out}; each point of an autoencoder is a "
        f"network of its own for this noise level, without preconditioning, {trained}. The claim is that the linear "
        "autoencoder stays below the limit of C17 that is drawn, and that at σ ≥ 42 the others are closer to the "
        "Gaussian than the network of all levels is. Control: the multi-delta denoiser.",
        lines=(
            *one_a_level("", reference="gaussian"),
            Line(f"{own} (EDM)", denoiser="network", reference="gaussian", **edm),
            *one_a_level(", to the Gaussian of all images", reference="gaussian_full"),
            *closed_forms("multidelta", reference="gaussian", **edm),
        ),
        of=axes.RMSE.against(_LINEAR, "limit of C17 for the linear one", evidence),
    )
    yield trajectory_grid(
        findings,
        [
            *((f"{words}, one a level", f"{name}, followed", "network") for name, words in AUTOENCODERS.items()),
            (own, _FOLLOWED, "network"),
            ("Gaussian", _FOLLOWED, "gaussian"),
            ("control: multi-delta", _FOLLOWED, "multidelta"),
        ],
        **about("Trajectories of autoencoders", 24, "C17"),
        caption="Output D(x_t; σ_t) along the path of Euler's method from one initial noise, for autoencoders, which "
        "use another network at each level, and for the network of all levels; one training run each. The first "
        "columns should be the mean image, and the rows should look the same down to some noise level. Controls: the "
        "closed-form denoisers.",
    )
    for words, quantity in (
        ("RMSE", axes.RMSE),
        ("‖D₁ − D₂‖/‖D₁‖, D₁ the network,", axes.quantity("nmse", "NMSE", log=True, on="held_out")),
    ):
        yield Curves(
            **about(
                f"Gaps of autoencoders and of a network of all levels, {quantity.tags['quantity'].upper()}", 27, "C17"
            ),
            caption=f"{words} between pairs of denoisers {trained}, {held_out}. In the paper, the relative error "
            "(NMSE) shows that at high noise a network of all levels is far from the Gaussian for lack of training, "
            "while autoencoders stay near it.",
            of=quantity,
            lines=(
                *one_a_level(", to Gaussian", reference="gaussian"),
                *(
                    Line(f"{own}, to {LABELS[name]}", denoiser="network", reference=name, **edm)
                    for name in ("gaussian", "linear", "multidelta")
                ),
                Line("its linear to Gaussian", dashed=True, denoiser="linear", reference="gaussian", **edm),
            ),
        )
    yield Curves(
        **about("Overlap of autoencoders' Jacobians with principal components", 29),
        caption=f"‖UᵀU_data‖²/{k}, where the columns of U are the {k} leading left singular vectors of the Jacobian "
        "∇D(x_t; σ_t) along a few sampling trajectories of one training run each, and the columns of U_data are as "
        f"many principal components of the training images. Unrelated subspaces would have {k}/{plan.dim}. Control: "
        "the Gaussian, whose Jacobian is the same everywhere.",
        of=axes.JACOBIAN_OVERLAP.where(k=k),
        lines=(
            *one_a_level(""),
            Line(own, denoiser="network", **edm),
            *closed_forms("gaussian", preconditioning="none", network="linear"),
        ),
    )
    yield from jacobian_pictures(
        findings, f"{_MAPPED}, followed", _MAPS, f" of {AUTOENCODERS[_MAPPED]} autoencoders", 29
    )
    yield THEOREM


STUDY = Study("autoencoders", __doc__, parts, drawings, figures=(24, 27, 29), judges=(c17,), informs=("C21",))
