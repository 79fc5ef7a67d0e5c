"""The theorem behind distillation, for the studies that check it: claim C21."""

from .. import axes
from ..claims.claim import Finding, Threshold, bound, claim
from ..claims.evidence import Evidence
from ..figures import Curves, Line, about

_RELATIVE = axes.quantity("theorem_residual", "relative distance", log=True)
_RESIDUAL = Threshold("our choice: rounding in float64, with a margin", below=1e-10)


@claim("C21", "The best linear denoiser is the Wiener filter, and gradient descent finds it.")
def c21(evidence: Evidence) -> Finding:
    """The theorem's residuals, in any study: algebra, so neither images nor seeds count."""
    return Finding((bound("largest relative residual", _RESIDUAL, evidence.where(**_RELATIVE.tags)),))


THEOREM = Curves(
    title="The theorem, on these images",
    caption="Relative distance to the Wiener filter, √(E‖D − D_G‖²/E‖D_G‖²) over noisy images, of the affine map that "
    "minimises the denoising loss, from its normal equations, and of where gradient descent from zero ends; for the "
    "moments of these images, shrunk to at most 64 dimensions. Levels that double precision or 20,000 steps do not "
    "suffice for are left out.",
    **about("C21"),
    of=_RELATIVE.against(_RESIDUAL, "limit of C21"),
    lines=(Line(str, by="kind"),),
)
