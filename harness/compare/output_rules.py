"""Output rules for operators that have several right answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from harness.compare.judge import Evidence, Mask, OutputRule
from harness.core import Array


def _same(a: Array, b: Array) -> Mask:
    """Equal, NaN being equal to NaN."""
    equal = a == b
    if a.dtype.kind not in "biu":
        equal = equal | (np.isnan(a) & np.isnan(b))
    return np.asarray(equal)


def equal(evidence: Evidence, output: int) -> Mask:
    """Equal, zeros of either sign being equal: a selection among elements that compare equal (an extremum,
    a median, an unstable sort), of which PyTorch leaves open which one is returned."""
    return ~_same(evidence.expected[output], evidence.got[output])


def _plain(a: Array) -> Array:
    """As a dtype of NumPy's own, which sorts NaN last."""
    return a if a.dtype.kind in "biu" else a.astype(np.float64)


def anything(evidence: Evidence, output: int) -> Mask:
    """Uninitialised and random values: only shape and dtype count."""
    return np.zeros(evidence.got[output].shape, dtype=bool)


def within(low: float, high: float) -> OutputRule:
    """Random values in [low, high): shape, dtype and range count."""

    def rule(evidence: Evidence, output: int) -> Mask:
        got = evidence.got[output].astype(np.float64)
        return np.asarray(~((got >= low) & (got < high)))

    return rule


def _repeated(got: Array, axis: int) -> Mask:
    """Elements that occur more than once along `axis`."""
    order = np.argsort(got, axis=axis, kind="stable")
    ordered = np.moveaxis(np.take_along_axis(got, order, axis), axis, -1)
    same = ordered[..., 1:] == ordered[..., :-1]
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[..., 1:] |= same
    repeated[..., :-1] |= same
    result = np.empty(got.shape, dtype=bool)
    np.put_along_axis(result, order, np.moveaxis(repeated, -1, axis), axis)
    return result


def indices_along(dim: str, *, values: int | None = 0, source: str = "self", default: int = -1) -> OutputRule:
    """Indices into `source` along the argument `dim`: each must point at the value reported beside it,
    and none may repeat. For sort and top-k, whose order among equal elements PyTorch leaves open.

    Args:
        dim: Name of the argument that holds the dimension.
        values: Which output holds the values; None where the operator returns indices only, which must
            then point at what PyTorch's point at.
        source: Name of the argument that is indexed.
        default: The dimension where the argument is omitted.
    """

    def rule(evidence: Evidence, output: int) -> Mask:
        data, got = np.atleast_1d(evidence.arguments[source]), np.atleast_1d(evidence.got[output])
        axis = evidence.arguments.get(dim, default)
        wrong = (got < 0) | (got >= data.shape[axis])
        if got.size and data.shape[axis]:
            taken = np.take_along_axis(data, np.where(wrong, 0, got), axis)
            if values is None:
                reported = np.take_along_axis(data, np.atleast_1d(evidence.expected[output]), axis)
            else:
                reported = np.atleast_1d(evidence.got[values])
            wrong = wrong | ~_same(taken, reported) | _repeated(got, axis)
        return np.asarray(wrong).reshape(evidence.got[output].shape)

    return rule


def any_order(dim: str, unless: str, *, default: int = -1) -> OutputRule:
    """Values that come in any order along `dim`, unless the argument `unless` is true or omitted."""

    def rule(evidence: Evidence, output: int) -> Mask:
        expected, got = np.atleast_1d(evidence.expected[output]), np.atleast_1d(evidence.got[output])
        if not evidence.arguments.get(unless, True):
            axis = evidence.arguments.get(dim, default)
            expected, got = np.sort(_plain(expected), axis), np.sort(_plain(got), axis)
        return ~_same(expected, got).reshape(evidence.got[output].shape)

    return rule


def unique_inverse(evidence: Evidence, output: int) -> Mask:
    """Where each element of `self` is found among the unique ones (output 0), whose order is open."""
    unique, got = evidence.got[0], evidence.got[output]
    if not got.size or not unique.size:
        return np.zeros(got.shape, dtype=bool)
    wrong = (got < 0) | (got >= unique.size)
    return np.asarray(wrong | ~_same(unique[np.where(wrong, 0, got)], evidence.arguments["self"]))


def unique_counts(evidence: Evidence, output: int) -> Mask:
    """How often each unique element (output 0) occurs in `self`; every NaN is one of its own."""
    unique, got = _plain(evidence.got[0]), evidence.got[output]
    if not got.size:
        return np.zeros(got.shape, dtype=bool)
    values, counts = np.unique(_plain(evidence.arguments["self"]), return_counts=True, equal_nan=False)
    right = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return np.asarray(got != np.array([right.get(v, 1) for v in unique.tolist()]))


def index_along(dim: str, *, values: int = 0, source: str = "self", default: int = -1) -> OutputRule:
    """One index per slice along `dim` that must point at the value reported beside it, with or without
    `keepdim`. For median, mode and kthvalue, whose choice among equal elements PyTorch leaves open."""

    def rule(evidence: Evidence, output: int) -> Mask:
        data = np.atleast_1d(evidence.arguments[source])
        got, expected = evidence.got[output], evidence.expected[values]
        axis = evidence.arguments.get(dim, default) % data.ndim
        keep = got.ndim == data.ndim
        index = got if keep else np.expand_dims(got, axis)
        value = expected if keep else np.expand_dims(expected, axis)
        wrong = (index < 0) | (index >= data.shape[axis])
        taken = np.take_along_axis(data, np.where(wrong, 0, index), axis)
        return np.asarray(wrong | ~_same(taken, value)).reshape(got.shape)

    return rule


def running_index(dim: str, *, values: int = 0, source: str = "self") -> OutputRule:
    """Indices of running extrema along the argument `dim`: each must point at the value reported beside
    it, at or before its own place. Which of several equal elements is open."""

    def rule(evidence: Evidence, output: int) -> Mask:
        data, got = np.atleast_1d(evidence.arguments[source]), np.atleast_1d(evidence.got[output])
        axis = evidence.arguments[dim]
        place = np.expand_dims(np.arange(data.shape[axis]), tuple(range(1, data.ndim))).swapaxes(0, axis)
        wrong = (got < 0) | (got > place)
        if got.size:
            taken = np.take_along_axis(data, np.where(wrong, 0, got), axis)
            wrong = wrong | ~_same(taken, np.atleast_1d(evidence.expected[values]))
        return np.asarray(wrong).reshape(evidence.got[output].shape)

    return rule


def conversion_undefined(arguments: Any, expected: Any, *, source: str = "self") -> list[Mask | None]:
    """Elements of a float → integer conversion that C++ leaves undefined: NaN, infinities, and values
    whose integral part the target does not hold ([conv.fpint]; PyTorch's documentation of `Tensor.to`
    says the same). For `Judge.undefined`."""
    data, result = arguments[source], expected[0]
    if data.dtype.kind in "biuc" or result.dtype.kind not in "iu":
        return [None]
    limits = np.iinfo(result.dtype)
    wide = data.astype(np.float64)
    with np.errstate(invalid="ignore"):
        # float64 does not hold 2**63 - 1: compare with the first integer beyond the range.
        inside = (np.trunc(wide) >= float(limits.min)) & (np.trunc(wide) < float(limits.max) + 1.0)
    return [np.broadcast_to(~inside, result.shape)]


def overflow_undefined(exact: Callable[[Mapping[str, Any]], Any]) -> Callable[..., list[Mask | None]]:
    """Elements whose exact result the int32 or int64 output does not hold: signed overflow is undefined in
    C++ ([expr.pre]/4), in which PyTorch's kernels are written. Narrower integers are computed as `int` and
    converted modulo 2ⁿ ([conv.integral]/3), and unsigned ones wrap ([basic.fundamental]/2). For
    `Judge.undefined`.

    Args:
        exact: The result from the arguments, whose integer tensors come as arrays of Python integers,
            which do not overflow.
    """

    def undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        result = expected[0]
        if result.dtype not in (np.int32, np.int64):
            return [None]
        limits = np.iinfo(result.dtype)
        value = exact({name: _unbounded(a) for name, a in arguments.items()})
        outside = np.asarray((value < int(limits.min)) | (value > int(limits.max)), dtype=bool)
        return [np.broadcast_to(outside, result.shape)]

    return undefined


def _unbounded(argument: Any) -> Any:
    if isinstance(argument, np.ndarray) and argument.dtype.kind in "biu":
        integers = argument.astype(np.int64) if argument.dtype.kind == "b" else argument
        return integers.astype(object)
    return argument


def infinite_mean(
    axes: Callable[[Mapping[str, Any]], tuple[int, ...] | None], *, source: str, output: int
) -> Callable[[Mapping[str, Any], Sequence[Array]], list[Mask | None]]:
    """The means of slices that hold an infinity but no NaN. They are infinite, or NaN where both infinities
    occur; PyTorch's kernels for moments update a running mean, and inf − inf on the way makes all of them
    NaN, which `torch.mean` is not. For `Judge.undefined`.

    Args:
        axes: The dims of `source` that are averaged, from the arguments; None for all.
        source: Name of the argument.
        output: Which output holds the means.
    """

    def undefined(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        data = np.atleast_1d(arguments[source].astype(np.float64))
        along = axes(arguments)
        open_ = np.isinf(data).any(axis=along) & ~np.isnan(data).any(axis=along)
        marks: list[Mask | None] = [None] * len(expected)
        marks[output] = np.asarray(open_, dtype=bool).reshape(expected[output].shape)
        return marks

    return undefined
