"""Inaccuracies of a run: kernels that are as exact as the operator's own formula, and less exact than PyTorch.

They are no defects, and are listed apart from failures, by the size of their errors.
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
        largest_ulps: The largest error, in units in the last place of PyTorch's result.
        largest_error: The same case's absolute error.
        case_id: Of that case.
    """

    component: str
    place: str
    cases: int
    overloads: tuple[str, ...]
    dtypes: tuple[str, ...]
    largest_ulps: float
    largest_error: float
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
        worst = max(cases, key=_ulps)
        found.append(
            Inaccuracy(
                component=component,
                place=place,
                cases=len(cases),
                overloads=tuple(sorted({str(case["overload"]) for case in cases})),
                dtypes=tuple(sorted({str(case["dtype"]) for case in cases})),
                largest_ulps=_ulps(worst),
                largest_error=_number(worst["max_abs_error"]),
                case_id=str(worst["case_id"]),
            )
        )
    return sorted(found, key=lambda one: -one.largest_ulps)


def _ulps(row: dict[str, object]) -> float:
    return _number(row["max_ulp_error"])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
