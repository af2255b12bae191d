"""Elements that PyTorch or C++ leave undefined, and the results that they allow for integers that overflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from harness.compare.judge import Allowance, Mask
from harness.core.dtypes import Array


def conversion_undefined(source: str = "self") -> Allowance:
    """Elements of a float → integer conversion that C++ leaves undefined: NaN, infinities, and values
    whose integral part the target does not hold ([conv.fpint]; PyTorch's documentation of `Tensor.to`
    says the same). For `Judge.undefined`."""
    return Allowance("a float that the integer cannot hold", partial(_unconvertible, source))


def _unconvertible(source: str, arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
    data, result = arguments[source], expected[0]
    if data.dtype.kind in "biuc" or result.dtype.kind not in "iu":
        return [None]
    limits = np.iinfo(result.dtype)
    wide = data.astype(np.float64)
    with np.errstate(invalid="ignore"):
        # float64 does not hold 2**63 - 1: compare with the first integer beyond the range.
        inside = (np.trunc(wide) >= float(limits.min)) & (np.trunc(wide) < float(limits.max) + 1.0)
    return [np.broadcast_to(~inside, result.shape)]


#: PyTorch's kernels wrap an overflow, without a promise in the documentation.
WRAPPED = (
    "An integer leaves the range of its dtype: PyTorch's kernels wrap it, C++ leaves it undefined, and "
    "neither PyTorch's documentation nor ONNX says a word."
)


def saturated(
    exact: Callable[[Mapping[str, Any]], Any],
) -> Callable[[Mapping[str, Any], Sequence[Array]], list[Array | None]]:
    """Return integer results with the nearest end of the range where the exact result leaves it, as an alternative.

    PyTorch's kernels wrap without a promise to do so: signed overflow is undefined in C++ ([expr.pre]/4), and ONNX says
    nothing. No reading gives a result that is neither the wrapped nor the saturated one. Narrower integers are computed
    as `int` and converted modulo 2ⁿ ([conv.integral]/3), and unsigned ones wrap ([basic.fundamental]/2).

    Args:
        exact: The result from the arguments, whose integer tensors come as arrays of Python integers,
            which do not overflow.
    """

    def other(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Array | None]:
        result = expected[0]
        if result.dtype not in (np.int32, np.int64):
            return [None]
        limits = np.iinfo(result.dtype)
        value = exact({name: _unbounded(a) for name, a in arguments.items()})
        high, low = (
            np.broadcast_to(np.asarray(o, bool), result.shape) for o in (value > limits.max, value < limits.min)
        )
        return [np.where(high, limits.max, np.where(low, limits.min, result)).astype(result.dtype)]

    return other


def _unbounded(argument: Any) -> Any:
    if isinstance(argument, np.ndarray) and argument.dtype.kind in "biu":
        integers = argument.astype(np.int64) if argument.dtype.kind == "b" else argument
        return integers.astype(object)
    return argument


def infinite_mean(
    axes: Callable[[Mapping[str, Any]], tuple[int, ...] | None], *, source: str, output: int
) -> Allowance:
    """Mark the means of slices that hold an infinity but no NaN. They are infinite, or NaN if both infinities
    occur; PyTorch's kernels for moments update a running mean, and inf − inf on the way makes all of them
    NaN, which `torch.mean` is not. For `Judge.undefined`.

    Args:
        axes: Returns the dims of `source` that are averaged, from the arguments; None for all.
        source: Name of the argument.
        output: Index of the output that holds the means.
    """

    def undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        given = np.atleast_1d(arguments[source])
        data = given if given.dtype.kind == "c" else given.astype(np.float64)
        along = axes(arguments)
        open_ = np.isinf(data).any(axis=along) & ~np.isnan(data).any(axis=along)
        marks: list[Mask | None] = [None] * len(expected)
        # Complex means are pairs of real numbers.
        shape = expected[output].shape[: -1 if data.dtype.kind == "c" else None]
        marks[output] = np.asarray(open_, dtype=bool).reshape(shape)
        return marks

    return Allowance("the mean of a slice with infinities", undefined)
