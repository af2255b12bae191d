"""Two runs of the same cases with different converters or backends, side by side: neither is worse, they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.causes.priority import model_use
from harness.compare.verdict import SPEC, Outcome
from harness.record import store

_COLUMNS = ("case_id", "shape_mode", "exported_id", "overload", "converter", "backend")
_COMPARED = ("stage", "outcome", "signature", "blame")
_KEYS = ["case_id", "shape_mode", "exported_id", "overload"]
#: Outcomes that say nothing of a case.
_UNJUDGED = frozenset({str(Outcome.SKIP), str(Outcome.BUILT), str(Outcome.NARROWED), str(Outcome.INACCURATE)})


@dataclass(frozen=True)
class OnlyOne:
    """Cases of one operator that one of two ways passes, and the other does not.

    Attributes:
        example: The id of the first, by case id.
        how: How the other one fails it.
    """

    overload: str
    cases: int
    example: str
    how: str


@dataclass(frozen=True)
class SideBySide:
    """Two ways from PyTorch to a runtime, on the same cases.

    Attributes:
        ways: Of the first run and of the second: ``dynamo → ort-cpu``.
        both: Cases that both pass, of the `cases` that both judge; `neither` that none passes.
        only: What the first alone passes, and what the second alone passes, by operator; those that most models call
            come first.
    """

    ways: tuple[str, str]
    cases: int
    both: int
    neither: int
    only: tuple[tuple[OnlyOne, ...], tuple[OnlyOne, ...]]


def side_by_side(first: Path, second: Path) -> SideBySide | None:
    """Two runs of one way each; None where these are the same way, or a run has several, or no case is common.

    Raises:
        ResultsError: a run cannot be read.
    """
    tables = [store.read(run, (*_COLUMNS, *_COMPARED)) for run in (first, second)]
    keys = ["converter", "backend"]
    ways = [
        {(row["converter"], row["backend"]) for row in table.group_by(keys).aggregate([]).to_pylist()}
        for table in tables
    ]
    if any(len(found) != 1 for found in ways) or ways[0] == ways[1]:
        return None
    left, right = (table.drop_columns(keys) for table in tables)
    joined = left.join(right, keys=_KEYS, join_type="inner", left_suffix=" 0", right_suffix=" 1")
    rows = [row for row in joined.to_pylist() if not _is_unjudged(row)]
    if not rows:
        return None
    passed = [tuple(row[f"outcome {side}"] == Outcome.PASS for side in (0, 1)) for row in rows]
    counted = Counter(passed)
    names = [f"{converter} → {backend}" for ((converter, backend),) in ways]
    return SideBySide(
        ways=(names[0], names[1]),
        cases=len(rows),
        both=counted[True, True],
        neither=counted[False, False],
        only=(
            _only([row for row, ends in zip(rows, passed, strict=True) if ends == (True, False)], 1),
            _only([row for row, ends in zip(rows, passed, strict=True) if ends == (False, True)], 0),
        ),
    )


def _is_unjudged(row: Mapping[str, Any]) -> bool:
    """Whether one side says nothing of a case, or only what a specification leaves open."""
    return any(row[f"outcome {side}"] in _UNJUDGED or row[f"blame {side}"] == SPEC for side in (0, 1))


def _only(rows: list[dict[str, Any]], failing: int) -> tuple[OnlyOne, ...]:
    """By operator what the other one passes; `failing` is the side that does not."""
    counted = Counter(row["overload"] for row in rows)
    first: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["case_id"]):
        first.setdefault(row["overload"], row)
    use = model_use()
    order = sorted(counted, key=lambda name: (-len(use.callers_of(name)), -counted[name], name))
    return tuple(OnlyOne(name, counted[name], first[name]["case_id"], _how(first[name], failing)) for name in order)


def _how(row: Mapping[str, Any], side: int) -> str:
    return f"{row[f'outcome {side}']} at {row[f'stage {side}']}: {row[f'signature {side}']}"
