"""What a run says of the harness itself, for its maintainers.

An operator case is defective if PyTorch rejects many of its draws, and a witness if it raises an exception.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from harness.compare.diagnosis import Finding
from harness.compare.signatures import normalise
from harness.compare.verdict import Outcome, Stage
from harness.core.documents import to_data
from harness.record import store

_DRAWN = ("overload", "case_id")
_REJECTED = ("overload", "case_id", "message")
#: PyTorch accepts the calls of models, but not always their half-precision forms.
_IS_REJECTED = (
    (pc.field("stage") == str(Stage.REFERENCE))
    & (pc.field("outcome") == str(Outcome.SKIP))
    & (pc.field("source") != "use")
)
#: More than one draw in this many is a defect.
TOLERATED = 10


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """One operator: how many drawn cases were rejected, mostly with `message`, in one of its wordings."""

    overload: str
    rejected: int
    drawn: int
    message: str


@dataclass(frozen=True)
class Upkeep:
    """What a run says of the harness itself.

    Attributes:
        rejections: The operators with more than one rejected case in `TOLERATED`, worst first.
        raised: Witness → how often it raised an exception.
    """

    rejections: tuple[Rejection, ...] = ()
    raised: Mapping[str, int] | None = None

    def to_data(self) -> dict[str, Any]:
        """Return plain data, as ``run.json`` has it; empty if there is nothing to say."""
        return {name: value for name, value in to_data(self).items() if value}


def read_upkeep(results_dir: Path) -> Upkeep:
    """Return what a run says of the harness itself.

    Raises:
        ResultsError: the run cannot be read.
    """
    rejected = store.read(results_dir, list(_REJECTED), _IS_REJECTED)
    drawn = store.read(results_dir, list(_DRAWN)) if rejected.num_rows else rejected
    return Upkeep(tuple(rejections(drawn, rejected)), _witnesses_that_raised(results_dir))


def rejections(drawn: pa.Table, rejected: pa.Table) -> list[Rejection]:
    """Return the operators with more than one rejected case in `TOLERATED`, worst first.

    Args:
        drawn: All rows, with ``overload`` and ``case_id``.
        rejected: The rows that PyTorch rejects, with ``message``, too.
    """
    counted = drawn.select(_DRAWN).group_by("overload").aggregate([("case_id", "count_distinct")])
    totals = {row["overload"]: row["case_id_count_distinct"] for row in counted.to_pylist()}
    messages_by_case: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for row in rejected.select(_REJECTED).to_pylist():
        messages_by_case[row["overload"]].setdefault(row["case_id"], row["message"])
    found = [
        Rejection(
            overload=overload,
            rejected=len(messages),
            drawn=totals[overload],
            message=_commonest(list(messages.values())),
        )
        for overload, messages in messages_by_case.items()
        if len(messages) * TOLERATED > totals[overload]
    ]
    return sorted(found, key=lambda r: (-r.rejected / r.drawn, r.overload))


def _commonest(messages: Sequence[str]) -> str:
    signatures = Counter(normalise(message) for message in messages)
    [(commonest, _)] = signatures.most_common(1)
    return next(message for message in messages if normalise(message) == commonest)


def _witnesses_that_raised(results_dir: Path) -> dict[str, int]:
    table = store.read(results_dir, ["diagnosis"], pc.match_substring(pc.field("diagnosis"), str(Finding.RAISED)))
    times: Counter[str] = Counter()
    for text in table["diagnosis"].to_pylist():
        diagnosis = json.loads(text)
        if not diagnosis.get("inherited_from"):
            raised = (t for t in diagnosis.get("testimony", ()) if t["finding"] == Finding.RAISED)
            times.update(t["facts"]["witness"] for t in raised)
    return dict(times.most_common())
