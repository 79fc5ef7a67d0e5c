"""Is it the training over all noise levels? Autoencoders of one level each, beside a network of all levels."""

from ...noise import karras_sigmas
from ...report import Axis, CurveFigure, Figure, Series, Threshold
from ..architectures import label
from ..autoencoder_recipes import AUTOENCODERS, autoencoder, kinds
from ..claims.evidence import Evidence, MissingError
from ..claims.findings import pixel_scale
from ..claims.thresholds import THRESHOLDS
from ..figures import NOISE, OVERLAP, RMSE, line, non_empty_figures, non_empty_series, trainings_behind
from ..plan import Plan
from ..study import Findings, Part, Study
from ..tasks.dataset_stats import dataset_stats_task
from ..tasks.jacobians import jacobian_task
from ..tasks.per_level_networks import follow_levels, measure_levels, per_level_task
from ..tasks.theorem import theorem_task
from ..tasks.trajectories import trajectory_grid, trajectory_task
from .jacobian_pictures import correlation_maps, vector_grid

_LEVELS = 10
_FOLLOWED = "network of all levels, followed"
_MAPS = (0, 2, 4, 6, 9)  # which of the ten levels
_MAPPED = "ncsnpp"  # whose Jacobians are shown
_SHOWN = f"{_MAPPED}, followed"
_SUBSPACE = 5  # dimensions of the subspace whose overlap is drawn, or the next below


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


def draw(findings: Findings) -> list[Figure]:
    """Figs. 24, 27 and 29 of the paper, and the theorem."""
    plan, evidence, command = findings.plan, findings.evidence, findings.command
    held_out = evidence.where(on="held_out")
    trained = f"All were trained on {plan.sizes[-1]:,} images, with {trainings_behind(held_out)}."
    figures: list[Figure | None] = [
        CurveFigure(
            title="Distance of autoencoders to the Gaussian denoiser",
            caption=f"RMSE to the Gaussian denoiser of the training images, on {plan.count} noisy held-out images. Each "
            "point of an autoencoder is a network of its own, trained for this noise level without preconditioning. "
            f"{trained} The claim is that the linear one stays below the line, and that at σ ≥ 42 the others are closer "
            "than the network of all levels. Control: the multi-delta denoiser.",
            redraws=(24,),
            claims=("C17",),
            command=command,
            x=NOISE,
            y=RMSE,
            series=_distances(held_out.where(quantity="rmse"), plan),
            thresholds=_limit(evidence),
        ),
        trajectory_grid(
            findings,
            [
                *((f"{words}, one a level", f"{name}, followed", "network") for name, words in AUTOENCODERS.items()),
                (f"{label(plan.training['network'])}, all levels", _FOLLOWED, "network"),
                ("Gaussian", _FOLLOWED, "gaussian"),
                ("control: multi-delta", _FOLLOWED, "multidelta"),
            ],
            title="Trajectories of autoencoders",
            caption="D(x_t; σ_t) on Euler's path from one noise, for autoencoders with the network of each level, the "
            "network of all levels, and the Gaussian and multi-delta denoisers of the training images; one training. Look "
            "whether the first columns are the mean image, and how long the rows are alike.",
            redraws=(24,),
            claims=("C17",),
        ),
        *(
            CurveFigure(
                title=f"Gaps of autoencoders and of a network of all levels, {metric.upper()}",
                caption=f"{words} between pairs of denoisers, on {plan.count} noisy held-out images. The paper's point is "
                "that relative errors show what a network of all levels has not learned at high noise, where autoencoders "
                f"stay near the Gaussian. {trained}",
                redraws=(27,),
                claims=("C17",),
                command=command,
                x=NOISE,
                y=axis,
                series=_pairs(held_out.where(quantity=metric), plan),
            )
            for metric, words, axis in (
                ("rmse", "RMSE", RMSE),
                ("nmse", "‖D₁ − D₂‖/‖D₁‖, D₁ the network,", Axis("NMSE", log=True)),
            )
        ),
        _overlaps(findings),
        correlation_maps(
            *(findings, _SHOWN, _MAPS),
            title=f"Singular vectors of {AUTOENCODERS[_MAPPED]} autoencoders' Jacobians against principal components",
            redraws=(29,),
        ),
        vector_grid(
            *(findings, _SHOWN),
            title=f"A trajectory of {AUTOENCODERS[_MAPPED]} autoencoders, and their Jacobians' first singular vectors",
            redraws=(29,),
        ),
        CurveFigure(
            title="The theorem, on these images",
            caption="√(E‖D − D_G‖²/E‖D_G‖²) over noisy images, D_G the Gaussian denoiser with Σ(Σ + σ²I)⁻¹ and its bias, D "
            "the minimum of the denoising loss over affine maps, or where gradient descent on it ends; from the moments of "
            "the images, shrunk to at most 64 dimensions. Levels that double precision or 20,000 steps do not suffice for "
            "are left out.",
            claims=("C21",),
            command=command,
            x=NOISE,
            y=Axis("relative residual", log=True),
            series=non_empty_series(
                *(
                    line(kind, evidence.where(quantity="theorem_residual", kind=kind))
                    for kind in ("optimum", "gradient descent")
                )
            ),
            thresholds=(Threshold(THRESHOLDS["C21 residual"].below or 0.0, "limit of C21"),),
        ),
    ]
    return non_empty_figures(*figures)


def _distances(gaps: Evidence, plan: Plan) -> tuple[Series, ...]:
    network = gaps.where(denoiser="network")
    plain, edm = (network.where(preconditioning=kind) for kind in ("none", "edm"))
    own = label(plan.training["network"])
    return non_empty_series(
        *(
            line(f"{words}, one a level", plain.where(network=name, reference="gaussian"))
            for name, words in AUTOENCODERS.items()
        ),
        line(f"{own}, all levels (EDM)", edm.where(reference="gaussian")),
        *(
            line(f"{words}, to the Gaussian of all images", plain.where(network=name, reference="gaussian_full"))
            for name, words in AUTOENCODERS.items()
        ),
        line(
            "control: multi-delta",
            gaps.where(denoiser="multidelta", reference="gaussian", preconditioning="edm"),
            dashed=True,
        ),
    )


def _pairs(gaps: Evidence, plan: Plan) -> tuple[Series, ...]:
    plain, edm = (gaps.where(preconditioning=kind) for kind in ("none", "edm"))
    all_levels = f"{label(plan.training['network'])}, all levels"
    return non_empty_series(
        *(
            line(
                f"{words}, one a level, to Gaussian",
                plain.where(network=name, denoiser="network", reference="gaussian"),
            )
            for name, words in AUTOENCODERS.items()
        ),
        *(
            line(f"{all_levels}, to {words}", edm.where(denoiser="network", reference=reference))
            for words, reference in (("Gaussian", "gaussian"), ("linear", "linear"), ("multi-delta", "multidelta"))
        ),
        line("its linear to Gaussian", edm.where(denoiser="linear", reference="gaussian"), dashed=True),
    )


def _limit(evidence: Evidence) -> tuple[Threshold, ...]:
    limit = THRESHOLDS["C17 linear"].below
    try:
        return () if limit is None else (Threshold(limit * pixel_scale(evidence), "limit of C17 for the linear one"),)
    except MissingError:
        return ()


def _overlaps(findings: Findings) -> CurveFigure:
    overlap = findings.evidence.where(quantity="jacobian_overlap")
    network = overlap.where(denoiser="network")
    ks = sorted({record["k"] for record in network.records})
    k = max((k for k in ks if k <= _SUBSPACE), default=ks[0] if ks else 0)
    at_k = network.where(k=k)
    return CurveFigure(
        title="Overlap of autoencoders' Jacobians with principal components",
        caption=f"‖UᵀU_data‖²/{k} of the {k} leading left singular vectors of ∇D(x_t; σ_t), along a few sampling "
        "trajectories of each, and as many principal components of the training images; one training. Control: the "
        f"Gaussian, whose Jacobian is the same everywhere. Unrelated subspaces would have {k}/{findings.plan.dim}.",
        redraws=(29,),
        command=findings.command,
        x=NOISE,
        y=OVERLAP,
        series=non_empty_series(
            *(
                line(f"{words}, one a level", at_k.where(preconditioning="none", network=name))
                for name, words in AUTOENCODERS.items()
            ),
            line(f"{label(findings.plan.training['network'])}, all levels", at_k.where(preconditioning="edm")),
            line(
                "control: Gaussian",
                overlap.where(k=k, denoiser="gaussian", preconditioning="none", network="linear"),
                dashed=True,
            ),
        ),
    )


STUDY = Study(
    name="autoencoders",
    title="Is it the training over all levels?",
    question="A network of all noise levels is trained least at the highest, and shares its weights between them. "
    "Autoencoders that know one level each, of four kinds and without preconditioning, have neither excuse. The linear one "
    "has the Gaussian denoiser as its exact optimum, which the theorem says and the last figure checks; whether the others, "
    "which could learn to retrieve, stay near it too is to be seen.",
    figures=(24, 27, 29),
    claims=("C17", "C21"),
    parts=parts,
    draw=draw,
)
