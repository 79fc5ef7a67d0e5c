"""The theorem behind distillation, for the studies that check it: claim C21."""

from .. import axes
from ..claims.claim import Found, Threshold, bound, claim
from ..claims.evidence import Evidence
from ..figures import Curves, Line, about

_RELATIVE = axes.quantity("theorem_residual", "relative distance", log=True)
_RESIDUAL = Threshold("our choice: rounding in float64, with a margin", below=1e-10)


@claim("C21", "The best linear denoiser is the Wiener filter, and gradient descent finds it.")
def c21(evidence: Evidence) -> Found:
    """The largest of the theorem's residuals, in any study; this is algebra, so it needs neither images nor seeds."""
    yield bound("largest relative residual", _RESIDUAL, evidence.where(**_RELATIVE.tags))


THEOREM = Curves(
    **about("The theorem, on these images", "C21"),
    caption="Relative distance to the Wiener filter, √(E‖D − D_G‖²/E‖D_G‖²) over noisy images, computed from the mean "
    "and the covariance of these images after averaging them down to at most 64 dimensions. Two affine maps are "
    "compared with it: the one that minimises the denoising loss, found by solving its normal equations, and the one "
    "at which gradient descent from zero ends. Noise levels that need more than double precision or 20,000 steps are "
    "left out.",
    of=_RELATIVE.against(_RESIDUAL, "limit of C21"),
    lines=(Line(str, by="kind"),),
)
