"""What to mend first: how many models meet a failure, how quietly it fails, how ordinary its trigger is.

    priority = silence of the outcome × max(use in ordinary cases, EDGE × use in all cases)

**Use** is the share of models (`harness.causes.use`) that call one of the failing operators in a
dtype in which it fails. **Silence** is `SILENCE`: wrong numbers reach a user's users, a refusal is read at
once. **Ordinary** is what `harness.generate.call_traits` says of a case: an edge case, such as NaN in a 0-d
tensor, counts `EDGE` as much as plain values do.

The priority of an operator is the same with the share of its cases that fail in place of the silence.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from harness.causes.rows import CodedRows
from harness.causes.use import Pair, UseWeights
from harness.compare import Outcome
from harness.record import Numbers

#: How much a failure of a kind counts. A crash and a hang take the program with them, but are noticed.
SILENCE = {
    Outcome.MISMATCH: 1.0,
    Outcome.CRASH: 0.5,
    Outcome.TIMEOUT: 0.4,
    Outcome.ERROR: 0.25,
    Outcome.UNSUPPORTED: 0.125,
}
#: How much an edge case counts beside an ordinary one.
EDGE = 0.02


def failure_priority(outcome: Outcome, ordinary: Iterable[Pair], pairs: Iterable[Pair], use: UseWeights) -> float:
    """The priority of failures of one kind, from 0 to 1.

    Args:
        outcome: How they fail.
        ordinary: Overloads and dtypes of those that are ordinary; none where all are edge cases.
        pairs: Overloads and dtypes of all.
        use: What models call.
    """
    ordinary = set(ordinary)
    usual = use.share(len(use.callers(ordinary))) if ordinary else 0.0
    return SILENCE[outcome] * max(usual, EDGE * use.share(len(use.callers(pairs))))


def operator_priority(overload: str, ordinary: float, edge: float, use: UseWeights) -> float:
    """The priority of an operator, given the shares of its ordinary and of its edge cases that fail."""
    return use.share(len(use.callers_of(overload))) * max(ordinary, EDGE * edge)


def failing_pairs(rows: CodedRows, group: Numbers) -> dict[int, set[Pair]]:
    """The overloads and dtypes of each group's rows.

    Args:
        rows: Failed rows of the record.
        group: Each row's group, a number from 0; those of rows that do not count are below 0.
    """
    overloads, dtypes = (rows.words(name).to_pylist() for name in ("overload", "dtype"))
    pairs = rows.numbers("overload") * len(dtypes) + rows.numbers("dtype")
    packed = np.unique((group * (len(overloads) * len(dtypes)) + pairs)[group >= 0])
    found: dict[int, set[Pair]] = {}
    for one in packed.tolist():
        number, pair = divmod(one, len(overloads) * len(dtypes))
        overload, dtype = divmod(pair, len(dtypes))
        found.setdefault(number, set()).add((overloads[overload], dtypes[dtype]))
    return found
