"""Linearity and novelty by the number of training images, as Markdown for docs/tables/; `publish.py` writes it."""

from collections.abc import Iterator

from gausslens.paper.claims.evidence import Evidence, least
from gausslens.paper.claims.findings import control
from gausslens.paper.plan import Plan


def by_size(plan: Plan, evidence: Evidence) -> Iterator[str]:
    """What C1 and C14 say of the number of images, size by size.

    Yields:
        Lines; nothing where fewer than three sizes were trained.
    """
    samples = evidence.where(study="size", denoiser="network")
    pairs = evidence.where(study="linearity", denoiser="network", quantity="linearity_cosine", on="held_out")
    pairs = pairs.where(alpha=None, preconditioning=(None, "edm"))
    sizes = list(samples.where(quantity="gl").by("n")) if len(samples) else []
    if len(sizes) < 3:
        return
    yield "## Linearity and novelty by number of images\n"
    yield (
        f"Networks of {plan.width} channels, trained on {plan.kimg:,g} thousand images. Linearity is the least over noise "
        "levels, on held-out images. GL is the generalisation score of samples: the paper calls a sample new above 0.6. "
        "Relative GL is GL divided by that of held-out images. Copies are a share of "
        f"{plan.samples} samples. Values are means over training runs; intervals are over training runs and images.\n"
    )
    yield "| N | training runs | affine linearity | raw linearity | GL | relative GL | copies |"
    yield "|---|---|---|---|---|---|---|"
    for n in sizes:
        of_size = samples.where(n=n)
        numbers = [
            *(
                control("least", pairs.where(n=n, affine=affine), lambda r: least(r.curve().values()), (None, 1.0))
                for affine in (True, False)
            ),
            *(
                control(quantity, of_size.where(quantity=quantity), Evidence.one, possible)
                for quantity, possible in (
                    ("gl", (0.0, None)),
                    ("relative_gl", (0.0, None)),
                    ("memorized_fraction", (0.0, 1.0)),
                )
            ),
        ]
        told = [f"{found[0].value:.3f} [{found[0].low:.3f}, {found[0].high:.3f}]" if found else "" for found in numbers]
        yield f"| {n:,} | {len(of_size.where(quantity='gl').seeds())} | {' | '.join(told)} |"
    yield ""
