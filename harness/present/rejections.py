"""Operators whose drawn cases PyTorch itself rejects too often: a defect of the operator case."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.text import Text

from harness.compare import Outcome, Stage, normalise
from harness.core import count, plain

COLUMNS: tuple[str, ...] = ("overload", "case_id", "stage", "outcome")
#: What `rejections` needs of the rows that PyTorch rejected.
REJECTED_COLUMNS = ("overload", "case_id", "message")
REJECTED = (pc.field("stage") == str(Stage.REFERENCE)) & (pc.field("outcome") == str(Outcome.SKIP))

#: More than one draw in this many is a defect.
TOLERATED = 10


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """One operator: how many drawn cases were rejected, mostly with `message`, in one of its wordings."""

    overload: str
    rejected: int
    drawn: int
    message: str


def rejections(verdicts: pa.Table, rejected: pa.Table) -> list[Rejection]:
    """The operators with more than one rejected case in `TOLERATED`, worst first.

    Args:
        verdicts: All rows, with `COLUMNS`.
        rejected: The rows for which `REJECTED` holds, with `REJECTED_COLUMNS`.
    """
    drawn = verdicts.select(["overload", "case_id"]).group_by("overload")
    totals = {
        row["overload"]: row["case_id_count_distinct"]
        for row in drawn.aggregate([("case_id", "count_distinct")]).to_pylist()
    }
    said: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in rejected.select(REJECTED_COLUMNS).to_pylist():
        said[row["overload"]].setdefault(row["case_id"], row["message"])
    found = [
        Rejection(
            overload=overload,
            rejected=len(messages),
            drawn=totals[overload],
            message=_commonest(list(messages.values())),
        )
        for overload, messages in said.items()
        if len(messages) * TOLERATED > totals[overload]
    ]
    return sorted(found, key=lambda r: (-r.rejected / r.drawn, r.overload))


def render(found: Sequence[Rejection], limit: int = 20) -> RenderableType:
    """The list with its heading; nothing for an empty list."""
    if not found:
        return Group()
    title = f"Defective operator cases: PyTorch rejects more than one draw in {TOLERATED}"
    lines = [Text(title, style="bold red")]
    for one in found[:limit]:
        share = f"{one.rejected} of {one.drawn} rejected"
        lines.append(Text(f"  {plain(one.overload)}: {share}, mostly: {plain(one.message, 200)}"))
    if len(found) > limit:
        lines.append(Text(f"  and {count(len(found) - limit, 'more operator case')}"))
    return Group(*lines)


def _commonest(messages: Sequence[str]) -> str:
    signatures = Counter(normalise(message) for message in messages)
    [(commonest, _)] = signatures.most_common(1)
    return next(message for message in messages if normalise(message) == commonest)
