"""Everything that is wrong with a case, as the record stores it when there is more than the outcome says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.core.documents import to_json
from harness.core.text import strip_escapes


@dataclass(frozen=True, kw_only=True)
class CaseProblem:
    """A problem of a case: what the columns of the same names would hold if it were the only one."""

    stage: str
    outcome: str
    signature: str
    message: str
    blame: str
    evidence: str = ""
    blame_rule: str = ""
    component: str = ""
    place: str = ""
    fault: str = ""
    detail: str = ""
    diagnosis: str = ""


def problems_text(problems: Sequence[CaseProblem]) -> str:
    """Return problems as a JSON list for the record; "" if there are fewer than two."""
    if len(problems) < 2:
        return ""
    return to_json([{name: strip_escapes(text) for name, text in asdict(p).items() if text} for p in problems])


def parse_problems(text: str) -> tuple[CaseProblem, ...]:
    """Return the problems that `problems_text` wrote.

    Raises:
        ValueError: The text is something else.
    """
    try:
        entries = json.loads(text) if text else ()
        return tuple(CaseProblem(**{"signature": "", "message": "", "blame": "", **entry}) for entry in entries)
    except TypeError as error:
        raise ValueError(f"not a list of problems: {error}") from None
