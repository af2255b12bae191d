"""Which of several runs of one case is judged, where what it gives is drawn at random."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from harness.compare.comparison import compare
from harness.compare.drawn import draws
from harness.compare.judge import Judge
from harness.compare.nearness import Oracle
from harness.core.dtypes import Array

#: How often a case is run at most when a failure of it is looked for again.
RUNS = 1000
#: How many elements are looked at for that.
_ELEMENTS = 2**18

#: Runs a case once more; None where that ends otherwise than with outputs.
Again: TypeAlias = Callable[[], Sequence[Array] | None]


def first_wrong(judge: Judge, oracle: Oracle, got: Sequence[Array], again: Again, most: int = RUNS) -> Sequence[Array]:
    """The outputs of the first of several runs that are wrong, else of the last.

    Of an operator that does not draw at random one run says all. Whoever looks for a recorded failure of one
    that does takes runs from here, so that all of them find it or do not.

    Args:
        judge: The operator's.
        oracle: PyTorch's answers.
        got: What the first run gave.
        again: See `Again`.
        most: Runs; fewer of a case with many elements.
    """
    elements = sum(array.size for array in oracle.expected)
    more = min(most, max(1, _ELEMENTS // max(elements, 1))) - 1 if draws(judge) else 0
    for _ in range(more):
        if compare(judge, oracle, got).problem is not None:
            break
        following = again()
        if following is None:
            break
        got = following
    return got
