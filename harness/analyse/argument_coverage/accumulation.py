"""Points of sums so long that the order of additions shows: libraries add in different orders."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from harness.analyse.argument_coverage.point import Point, SurveyedOperator, family
from harness.analyse.argument_coverage.shape_points import with_size
from harness.generate import OPERATOR_CASES

#: Terms beyond which a vectorised sum is added up in another order than a plain loop's.
LONG = 128
#: Families of operators that sum along a dim.
_SUMMING = ("reduction", "matmul", "cumulative", "softmax", "norms")


@family("accumulation")
def accumulation(subject: SurveyedOperator) -> Iterator[Point]:
    """Of reductions, of products of matrices, and of others that sum along a dim."""
    case = OPERATOR_CASES[subject.overload]
    if (case.judge.accumulates or case.judge.terms) and case.family in _SUMMING and subject.tensors:
        yield Point(
            name=f"{LONG} terms",
            hit=lambda call: any(size >= LONG for spec in call.tensors() for size in spec.shape),
            variants=partial(with_size, subject, subject.tensors[0], LONG + 1),
        )
