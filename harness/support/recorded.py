"""What a run says of support: its ordinary cases, or everyday values in a rarer dtype."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.core.invocation import Invocation
from harness.core.route import route_label
from harness.generate.call_traits import is_everyday
from harness.record import store
from harness.record.layout import ResultsError
from harness.support.answer import OperatorSupport, operator_support

#: What is read of a verdict.
_COLUMNS = ("overload", "dtype", "converter", "backend", "outcome", "stage", "blame", "component", "place", "fault")
_FURTHER = ("rule", "detail", "signature", "message", "invocation", "ordinary", "diagnosis")


def recorded_support(
    run: Path, *, converter: str, backend: str, dtype: str | None = None, overloads: Collection[str] | None = None
) -> list[OperatorSupport]:
    """Operator by operator, what a run's cases with a converter and a backend say.

    Args:
        run: Its directory.
        converter: As the run names it.
        backend: Likewise.
        dtype: Of the cases; None for all.
        overloads: Which; None for all.

    Raises:
        ResultsError: the run cannot be read, or has no such case.
    """
    rows = [
        row
        for row in store.read(run, [*_COLUMNS, *_FURTHER]).to_pylist()
        if (row["converter"], row["backend"]) == (converter, backend)
        and dtype in (None, row["dtype"])
        and (overloads is None or row["overload"] in overloads)
    ]
    if not rows:
        of_dtype = f" of {dtype}" if dtype else ""
        raise ResultsError(f"{run} has no case{of_dtype} of {route_label(converter, backend)}")
    ordinary = [row for row in rows if row["ordinary"]]
    known = {(row["overload"], row["dtype"]) for row in ordinary}
    rest = [row for row in rows if (row["overload"], row["dtype"]) not in known]
    everyday = [row for row in rest if is_everyday(Invocation.from_json(row["invocation"]))]
    return operator_support([*ordinary, *everyday])
