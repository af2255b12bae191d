"""Output rules for operators that have several right answers."""

from __future__ import annotations

import numpy as np

from harness.compare.judge import Evidence, Mask, OutputRule
from harness.core.dtypes import Array


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
    """Convert an array to a dtype of NumPy's own, which sorts NaN last."""
    return a if a.dtype.kind in "biu" else a.astype(np.float64)


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
    """Judge indices into `source` along the argument `dim`: each must point at the value reported with it,
    and none may repeat. For sort and top-k, whose order among equal elements PyTorch leaves open.

    Args:
        dim: Name of the argument that holds the dimension.
        values: Index of the output that holds the values; None if the operator returns indices only, which must
            then point at the same values as PyTorch's.
        source: Name of the argument that is indexed.
        default: The dimension if the argument is omitted.
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
    """Judge the places of the elements of `self` among the unique ones (output 0), whose order is open."""
    unique, got = evidence.got[0], evidence.got[output]
    if not got.size or not unique.size:
        return np.zeros(got.shape, dtype=bool)
    wrong = (got < 0) | (got >= unique.size)
    return np.asarray(wrong | ~_same(unique[np.where(wrong, 0, got)], evidence.arguments["self"]))


def unique_counts(evidence: Evidence, output: int) -> Mask:
    """Judge the counts of the unique elements (output 0) in `self`; every NaN is an element of its own."""
    unique, got = _plain(evidence.got[0]), evidence.got[output]
    if not got.size:
        return np.zeros(got.shape, dtype=bool)
    values, counts = np.unique(_plain(evidence.arguments["self"]), return_counts=True, equal_nan=False)
    right = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return np.asarray(got != np.array([right.get(v, 1) for v in unique.tolist()]))


def index_along(dim: str, *, values: int = 0, source: str = "self", default: int = -1) -> OutputRule:
    """Judge one index per slice along `dim`, with or without `keepdim`: it must point at the value reported with it.
    For median, mode and kthvalue, whose choice among equal elements PyTorch leaves open."""

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
    """Judge indices of running extrema along the argument `dim`: each must point at the value reported with it,
    at or before its own place. The choice among equal elements is open."""

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
