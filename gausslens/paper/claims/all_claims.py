"""All claims at once: records in, verdicts out."""

from collections.abc import Callable, Iterable

from ...store.records import Record
from .distillation import c8, c9, c10
from .evidence import Evidence, is_finite
from .findings import Finding
from .linearity import c1, c2, c3, c4
from .references import c5, c6, c7, c19
from .regimes import c11, c12, c13, c14
from .samples import c15, c16, c18
from .structure import c17, c20, c21
from .verdict import Verdict, decide

CLAIMS: dict[str, tuple[str, Callable[[Evidence], Finding]]] = {
    "C1": ("Denoisers become more linear with more training images.", c1),
    "C2": ("Linearity rises with the number of images also by a second measure and in other architectures.", c2),
    "C3": ("Equal weights are the hardest test of linearity.", c3),
    "C4": ("A badly parametrised network is less linear at high noise.", c4),
    "C5": ("At high and low noise, a generalising network is close to its linear fit.", c5),
    "C6": ("The linear fit of a generalising network is close to the Gaussian denoiser.", c6),
    "C7": (
        "At intermediate noise, a generalising network is closer to the Gaussian than to the multi-delta denoiser.",
        c7,
    ),
    "C8": ("The matrix of the linear fit is close to the Gaussian's.", c8),
    "C9": ("The leading singular vectors of the linear fit are the principal components.", c9),
    "C10": ("A memorising network is described less well by linear and Gaussian denoisers.", c10),
    "C11": (
        "Networks approach the Gaussian denoiser with more images, with less width, and briefly before they memorise.",
        c11,
    ),
    "C12": ("At high noise, narrow networks are far from the Gaussian until they are trained for longer.", c12),
    "C13": ("At the least noise, the distance to the Gaussian depends on the number of images, not on width.", c13),
    "C14": ("With more training images, samples become newer and denoisers more linear.", c14),
    "C15": ("Models trained on disjoint images agree if they have many images, stop early, or are narrow.", c15),
    "C16": ("The Gaussian of few images gives nearly the same samples as the Gaussian of many.", c16),
    "C17": (
        "Autoencoders of one noise level are close to the Gaussian, and closer than other networks at high noise.",
        c17,
    ),
    "C18": ("Different architectures make the same images from the same noise.", c18),
    "C19": ("At low noise, the network returns its input, as the Wiener filter does.", c19),
    "C20": ("The Jacobian follows the principal components at high noise and the image at low noise.", c20),
    "C21": ("The best linear denoiser is the Wiener filter, and gradient descent finds it.", c21),
}


def judge(records: Iterable[Record]) -> list[Verdict]:
    """The verdict on every claim, for every data set.

    >>> [verdict.verdict for verdict in judge([])] == ["not enough evidence"] * 21
    True
    """
    given = [_tidy(record) for record in records if is_finite(record.get("value"))]
    studies = sorted({(r["data"], r.get("plan") or "") for r in given if r.get("data") is not None})
    findings: dict[tuple[str, str | None], Finding] = {}
    for data, plan in studies or [(None, "")]:
        own = [r for r in given if r.get("data") is None or (r["data"], r.get("plan") or "") == (data, plan)]
        name = f"{data} ({plan})" if plan else data
        findings |= {(claim, name): find(Evidence(own)) for claim, (_, find) in CLAIMS.items()}
    return decide(findings, {claim: text for claim, (text, _) in CLAIMS.items()})


def _tidy(record: Record) -> Record:
    """With σ to five digits: levels that passed through single precision are still the same levels."""
    sigma = record.get("sigma")
    return {**record, "sigma": float(f"{sigma:.5g}")} if is_finite(sigma) else record
