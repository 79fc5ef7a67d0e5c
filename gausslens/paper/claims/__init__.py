"""The paper's claims C1–C21, each judged from records: what is measured, what it must exceed, and the verdict.

`judge` takes the records of a study and returns a `Verdict` on every claim; `as_table` and `as_json` show them. Each claim
is a function whose docstring says which records it reads. docs/claims.md has the rules.
"""

from .all_claims import judge
from .verdict import SCHEMA, Verdict, as_json, as_table

__all__ = ["SCHEMA", "Verdict", "as_json", "as_table", "judge"]
