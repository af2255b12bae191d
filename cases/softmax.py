"""Softmax and its logarithm."""

from __future__ import annotations

from typing import Any

from harness.core.dtypes import ALL, FLOATS, is_float
from harness.generate.draw import Draw
from harness.generate.operator_case import Arguments, Family

ops = Family("softmax")


def _shape(d: Draw) -> tuple[int, ...]:
    """Any shape; sometimes a slice longer than any vector register."""
    return d.choose((1025,), (3, 700), (257, 9)) if d.integer(0, 15) == 15 else d.shape()


def _dtype(d: Draw) -> Any:
    """Integers have no softmax of their own dtype."""
    if not is_float(d.dtype):
        return d.dtype_argument(*FLOATS)
    return d.maybe(lambda: d.dtype_argument(*FLOATS), none=True)


@ops.case("softmax.int", "log_softmax.int", "special_softmax", "special_log_softmax", dtypes=ALL)
@ops.case("_safe_softmax", dtypes=ALL)
def softmax(d: Draw) -> Arguments:
    shape = _shape(d)
    return {"self": d.tensor(shape), "dim": d.dim(len(shape)), "dtype": _dtype(d)}


@ops.case("_softmax", "_log_softmax", dtypes=FLOATS)
def softmax_kernel(d: Draw) -> Arguments:
    shape = _shape(d)
    # The CPU kernel refuses `half_to_float`.
    return {"self": d.tensor(shape), "dim": d.dim(len(shape)), "half_to_float": False}
