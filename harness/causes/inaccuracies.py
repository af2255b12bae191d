"""Inaccuracies of a run: kernels that are as exact as the operator's own formula, and less exact than PyTorch.

They are no defects, and are listed apart from failures, by the size of their errors: the absolute one, since many units
in the last place may be next to nothing beside zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.compute as pc

from harness.compare.verdict import Outcome

#: What is read of a verdict, and of which.
COLUMNS = ["overload", "dtype", "component", "place", "case_id", "max_ulp_error", "max_abs_error"]
INACCURATE = pc.field("outcome") == str(Outcome.INACCURATE)


@dataclass(frozen=True, kw_only=True)
class Inaccuracy:
    """The inexact results of one kernel.

    Attributes:
        component: Whose kernel.
        place: The operator.
        cases: How many.
        overloads: Operators whose calls show it.
        dtypes: Of the calls.
        largest_error: The largest absolute error, in the values' unit.
        largest_ulps: The same case's error in units in the last place of PyTorch's result.
        case_id: Of that case.
    """

    component: str
    place: str
    cases: int
    overloads: tuple[str, ...]
    dtypes: tuple[str, ...]
    largest_error: float
    largest_ulps: float
    case_id: str


def inaccuracies(rows: Iterable[dict[str, object]]) -> list[Inaccuracy]:
    """The inaccuracies among verdicts, the largest error first.

    Args:
        rows: Of `INACCURATE` verdicts, with `COLUMNS`.
    """
    groups: dict[tuple[str, str], list[dict[str, object]]] = {}
    for row in rows:
        groups.setdefault((str(row["component"]), str(row["place"])), []).append(row)
    found = []
    for (component, place), cases in groups.items():
        worst = max(cases, key=_error)
        found.append(
            Inaccuracy(
                component=component,
                place=place,
                cases=len(cases),
                overloads=tuple(sorted({str(case["overload"]) for case in cases})),
                dtypes=tuple(sorted({str(case["dtype"]) for case in cases})),
                largest_error=_error(worst),
                largest_ulps=_number(worst["max_ulp_error"]),
                case_id=str(worst["case_id"]),
            )
        )
    return sorted(found, key=lambda one: -one.largest_error)


def _error(row: dict[str, object]) -> float:
    return _number(row["max_abs_error"])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
