"""All that is wrong with a case, as the record has it where that is more than its outcome."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from harness.core import as_json, without_escapes


@dataclass(frozen=True, kw_only=True)
class CaseProblem:
    """One problem of a case: what the columns of the same names would say if it were the only one."""

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
    """Problems as the record has them, a JSON list; "" where there is no more than one."""
    if len(problems) < 2:
        return ""
    return as_json([{name: without_escapes(text) for name, text in asdict(one).items() if text} for one in problems])


def problems_of(text: str) -> tuple[CaseProblem, ...]:
    """What `problems_text` wrote.

    Raises:
        ValueError: it wrote something else.
    """
    try:
        found = json.loads(text) if text else ()
        return tuple(CaseProblem(**{"signature": "", "message": "", "blame": "", **one}) for one in found)
    except TypeError as error:
        raise ValueError(f"no list of problems: {error}") from None
