"""Answer from a run: its ordinary cases or, in rarer dtypes, those with everyday values."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.core.invocation import Invocation
from harness.core.route import route_label
from harness.generate.call_traits import is_everyday
from harness.record import store
from harness.record.layout import ResultsError
from harness.support.answer import OperatorSupport, operator_support

#: The columns that are read.
_COLUMNS = ("overload", "dtype", "converter", "backend", "outcome", "stage", "blame", "component", "place", "fault")
_FURTHER = ("rule", "detail", "signature", "message", "invocation", "ordinary", "diagnosis")


def recorded_support(
    run: Path, *, converter: str, backend: str, dtype: str | None = None, overloads: Collection[str] | None = None
) -> list[OperatorSupport]:
    """Return the support of each operator on one route, as recorded in a run.

    Args:
        run: The run's directory.
        converter: The converter as the run names it.
        backend: The backend as the run names it.
        dtype: The dtype of the cases; None means all.
        overloads: The operators; None means all.

    Raises:
        ResultsError: The run cannot be read, or has no such case.
    """
    rows = [
        row
        for row in store.read(run, [*_COLUMNS, *_FURTHER]).to_pylist()
        if (row["converter"], row["backend"]) == (converter, backend)
        and dtype in (None, row["dtype"])
        and (overloads is None or row["overload"] in overloads)
    ]
    if not rows:
        in_dtype = f" of {dtype}" if dtype else ""
        raise ResultsError(f"{run} has no case{in_dtype} of {route_label(converter, backend)}")
    ordinary = [row for row in rows if row["ordinary"]]
    known = {(row["overload"], row["dtype"]) for row in ordinary}
    rest = [row for row in rows if (row["overload"], row["dtype"]) not in known]
    everyday = [row for row in rest if is_everyday(Invocation.from_json(row["invocation"]))]
    return operator_support([*ordinary, *everyday])
