"""All problems of a case, as one column of the record: a case may fail for several reasons."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from harness.core.documents import to_json
from harness.core.text import strip_escapes

#: The columns of a verdict that each of its problems has: what they would hold if it were the only one.
PROBLEM_COLUMNS = (
    *("stage", "outcome", "signature", "message", "blame", "evidence"),
    *("blame_rule", "component", "place", "fault", "detail", "diagnosis"),
)


def problems_text(problems: Sequence[Mapping[str, str]]) -> str:
    """Return problems, each by its `PROBLEM_COLUMNS`, as a JSON list for the record; "" if there are fewer than two."""
    if len(problems) < 2:
        return ""
    return to_json([{name: strip_escapes(text) for name, text in problem.items() if text} for problem in problems])


def parse_problems(text: str) -> tuple[Mapping[str, str], ...]:
    """Return the problems that `problems_text` wrote: column → text, "" for a column that an older version lacks.

    Raises:
        ValueError: The text is something else.
    """
    entries = json.loads(text) if text else []
    if not all(isinstance(entry, dict) and set(entry) <= {*PROBLEM_COLUMNS} for entry in entries):
        raise ValueError(f"not a list of problems: {text[:80]}")
    return tuple({**dict.fromkeys(PROBLEM_COLUMNS, ""), **entry} for entry in entries)
