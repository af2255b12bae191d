"""Repeat a case whose result is random until it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from harness.compare.comparison import compare
from harness.compare.drawn import draws
from harness.compare.judge import Judge
from harness.compare.nearness import Oracle
from harness.core.dtypes import Array

#: Largest number of runs in a search for a recorded failure.
RUNS = 1000
#: Largest number of elements that such a search compares.
_ELEMENTS = 2**18

#: Runs a case again; None if it ends without outputs.
Again: TypeAlias = Callable[[], Sequence[Array] | None]


def first_wrong(judge: Judge, oracle: Oracle, got: Sequence[Array], again: Again, most: int = RUNS) -> Sequence[Array]:
    """Return the outputs of the first wrong run out of several; if none is wrong, those of the last.

    One run suffices unless the operator is random. All searches for a recorded failure use this function, so that they
    agree on whether it occurs.

    Args:
        judge: The operator's judge.
        oracle: PyTorch's results.
        got: The outputs of the first run.
        again: Runs the case again.
        most: Largest number of runs; a case with many elements gets fewer.
    """
    elements = sum(array.size for array in oracle.expected)
    repetitions = min(most, max(1, _ELEMENTS // max(elements, 1))) - 1 if draws(judge) else 0
    for _ in range(repetitions):
        if compare(judge, oracle, got).problem is not None:
            break
        following = again()
        if following is None:
            break
        got = following
    return got
