"""Which run the page shows first, and which one each run is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.gate import RunRequest, last_alike, shown_first

#: What of a run may be other than of another one while the shares of both are of the same cases.
_NOT_OF_CASES = frozenset({"seed", "sources", "converters", "backends"})


def first_shown(requests: Sequence[RunRequest], empty: Sequence[bool]) -> int:
    """The number of the run that is shown where none is asked for; −1 without any.

    Args:
        requests: Of all runs, oldest first.
        empty: Which of them have no verdict: these show nothing, so that any other goes before.
    """
    some = [one for one, nothing in zip(requests, empty, strict=True) if not nothing] or requests
    found = shown_first(some)
    return -1 if found is None else _place(requests, found)


def earlier_run(requests: Sequence[RunRequest], number: int) -> int | None:
    """The run with which a run is compared: the newest earlier one of its kind.

    Otherwise it is the newest earlier run of every operator, or else the newest earlier one; if any.
    """
    found = last_alike(requests[number], requests) or shown_first(requests[:number])
    return None if found is None else _place(requests, found)


def runs_of_like_cases(requests: Sequence[RunRequest], number: int) -> list[int]:
    """The runs whose shares are of the same cases as those of a run, but for the seed; it is one of them."""
    mine = requests[number]
    return [n for n, other in enumerate(requests) if not mine.differences(other).keys() - _NOT_OF_CASES]


def differences(requests: Sequence[RunRequest]) -> dict[str, dict[str, tuple[str, str]]]:
    """``A/B``, the numbers of an earlier and a later run → what they were asked for that differs."""
    pairs = ((a, b) for b in range(len(requests)) for a in range(b))
    found = ((f"{a}/{b}", requests[a].differences(requests[b])) for a, b in pairs)
    return {pair: theirs for pair, theirs in found if theirs}


def asked_for(request: RunRequest, other: RunRequest, cells: pa.Table) -> npt.NDArray[np.bool_]:
    """Which cases of another run a run was asked for as well; none if the two drew other ones.

    Args:
        cells: What `RunRequest.asks` looks at, a row for each case.
    """
    if request.differences(other).keys() & {*request.budget, *other.budget}:
        return np.zeros(cells.num_rows, dtype=bool)
    return request.asks(cells)


def _place(requests: Sequence[RunRequest], wanted: RunRequest) -> int:
    return next(number for number, one in enumerate(requests) if one is wanted)
