"""All studies by name, in the order in which they run, and the claims that they define."""

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from .config import STUDIES

if TYPE_CHECKING:
    from .claims.claim import Claim
    from .study import Study


def find_study(name: str) -> "Study":
    """The study of this name."""
    study: Study = import_module(f".studies.{name}", __package__).STUDY
    return study


@cache
def all_claims() -> "dict[str, Claim]":
    """Every claim by its name, from C1 on."""
    found = [claim for name in STUDIES for claim in find_study(name).judges]
    return {claim.name: claim for claim in sorted(found, key=lambda claim: int(claim.name[1:]))}
