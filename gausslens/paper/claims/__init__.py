"""How the paper's claims C1–C21 are judged: what is measured, what it must exceed, and the verdict.

`judge` takes the records of a study and returns a `Verdict` on every claim; `as_table` and `as_json` show them. Each claim
stands in the file of its study (`paper/studies/`), with its text, its records and its thresholds. docs/claims.md has the
rules.
"""

from .verdict import SCHEMA, Verdict, as_json, as_table, judge

__all__ = ["SCHEMA", "Verdict", "as_json", "as_table", "judge"]
