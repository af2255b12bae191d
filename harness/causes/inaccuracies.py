"""Inaccuracies of a run: kernels that are as exact as the operator's formula but less exact than PyTorch.

They are not defects and are listed separately from failures, ordered by their largest absolute error, since an error of
many units in the last place may be negligible near zero.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow.compute as pc

from harness.compare.verdict import Outcome

#: The columns that are read, and the condition for the rows.
COLUMNS = ["overload", "dtype", "component", "place", "case_id", "max_ulp_error", "max_abs_error"]
INACCURATE = pc.field("outcome") == str(Outcome.INACCURATE)


@dataclass(frozen=True, kw_only=True)
class Inaccuracy:
    """The inexact results of one kernel.

    Attributes:
        component: The component of the kernel.
        place: The operator that it computes.
        cases: The number of cases.
        overloads: The overloads whose calls show it.
        dtypes: The dtypes of these calls.
        largest_error: The largest absolute error, in the values' unit.
        largest_ulps: The same case's error in units in the last place of PyTorch's result.
        case_id: The id of that case.
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
    """Return the inaccuracies among verdicts, the largest error first.

    Args:
        rows: `INACCURATE` verdicts with `COLUMNS`.
    """
    groups: dict[tuple[str, str], list[dict[str, object]]] = {}
    for row in rows:
        groups.setdefault((str(row["component"]), str(row["place"])), []).append(row)
    kernels = []
    for (component, place), cases in groups.items():
        worst = max(cases, key=_error)
        kernels.append(
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
    return sorted(kernels, key=lambda kernel: -kernel.largest_error)


def _error(row: dict[str, object]) -> float:
    return _number(row["max_abs_error"])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
