"""Sorting and what rests on order: top-k, search, membership, unique elements, histograms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from cases.rules.right_answers import any_order, equal, indices_along, unique_counts, unique_inverse
from harness.compare.judge import ACCUMULATES, EXACT, Evidence, Judge, Mask, OutputRule
from harness.core.dtypes import ALL, FLOATS, FULL_FLOATS, INTS, NUMBERS, Array
from harness.core.invocation import TensorSpec
from harness.generate.draw import DISTINCT, OMIT, Draw, ascending, between
from harness.generate.operator_case import Arguments, Family

ops = Family("sorting")


# Sort and top-k


def _if_unstable(rule: OutputRule) -> OutputRule:
    """`rule` where the argument `stable` is not true; a stable sort has one answer."""

    def judged(evidence: Evidence, output: int) -> Mask:
        if evidence.arguments.get("stable"):
            return np.asarray(evidence.expected[output] != evidence.got[output])
        return rule(evidence, output)

    return judged


SORTED = Judge(rules={0: equal, 1: _if_unstable(indices_along("dim"))})
ARGSORTED = Judge(rules={0: _if_unstable(indices_along("dim", values=None))})


def _sort(d: Draw) -> dict[str, Any]:
    shape = d.choose((1025,), (3, 200)) if d.integer(0, 15) == 15 else d.shape()
    dim = d.maybe(lambda: d.dim(len(shape)))
    return {"self": d.tensor(shape), "dim": dim, "descending": d.maybe(d.boolean)}


@ops.case("sort", dtypes=ALL, judge=SORTED)
@ops.case("argsort", dtypes=ALL, judge=ARGSORTED)
def sort(d: Draw) -> Arguments:
    return _sort(d)


@ops.case("sort.stable", dtypes=ALL, judge=SORTED)
def sort_stable(d: Draw) -> Arguments:
    return {**_sort(d), "stable": d.choose(True, True, False, None)}


@ops.case("argsort.stable", dtypes=ALL, judge=ARGSORTED)
def argsort_stable(d: Draw) -> Arguments:
    return {**_sort(d), "stable": d.choose(True, True, False)}


ops.simple("msort", dtypes=ALL, judge=Judge(rules={0: equal}))


@ops.case("topk", dtypes=NUMBERS, judge=Judge(rules={0: any_order("dim", "sorted"), 1: indices_along("dim")}))
def topk(d: Draw) -> Arguments:
    shape = d.shape()
    dim = d.maybe(lambda: d.dim(len(shape)))
    size = shape[-1 if dim is OMIT else dim] if shape else 1
    return {
        "self": d.tensor(shape),
        "k": d.integer(0, size),
        "dim": dim,
        "largest": d.maybe(d.boolean),
        "sorted": d.maybe(d.boolean),
    }


# Searching


def _search(d: Draw) -> dict[str, Any]:
    return {"out_int32": d.maybe(d.boolean), "right": d.maybe(d.boolean)}


@ops.case("bucketize.Tensor", dtypes=NUMBERS, judge=EXACT)
def bucketize(d: Draw) -> Arguments:
    count = d.size()
    boundaries = d.tensor((count,), domain=ascending(count))
    return {
        "self": d.tensor(d.shape(), d.choose(*[d.dtype] * 9, "bool")),
        "boundaries": boundaries,
        **_search(d),
    }


@ops.case("bucketize.Scalar", dtypes=ALL, judge=EXACT)
def bucketize_number(d: Draw) -> Arguments:
    count = d.size(high=65)
    boundaries = d.tensor((count,), domain=ascending(count))
    return {"self": d.number(), "boundaries": boundaries, **_search(d)}


def _sequence(d: Draw, lead: tuple[int, ...]) -> dict[str, Any]:
    """A sorted sequence with its side; sometimes one that only its sorter brings into order."""
    count = d.size() if lead else d.size(high=65)
    shape = (*lead, count)
    side = d.choose(OMIT, None, "left", "right")
    # PyTorch refuses sides that contradict each other.
    right = d.maybe(d.boolean) if side is OMIT or side is None else OMIT if side == "left" else d.choose(OMIT, True)
    search: dict[str, Any] = {"side": side, "right": right, "out_int32": d.maybe(d.boolean)}
    if d.choose(False, False, True):
        return {
            "sorted_sequence": d.tensor(shape, domain=("descending", count)),
            "sorter": d.tensor(shape, "int64", ("countdown", count)),
            **search,
        }
    sequence = d.tensor(shape, domain=ascending(count))
    return {"sorted_sequence": sequence, "sorter": d.choose(OMIT, None), **search}


@ops.case("searchsorted.Tensor", dtypes=NUMBERS, judge=EXACT)
def searchsorted(d: Draw) -> Arguments:
    if d.boolean():
        arguments = {**_sequence(d, ()), "self": d.any_tensor()}
    else:
        lead = d.shape(1, 4, max_size=5)
        arguments = {**_sequence(d, lead), "self": d.tensor((*lead, d.size()))}
    if d.integer(0, 15) == 15:
        arguments["sorted_sequence"] = replace(arguments["sorted_sequence"], dtype="bool")
    return arguments


@ops.case("searchsorted.Scalar", dtypes=ALL, judge=EXACT)
def searchsorted_number(d: Draw) -> Arguments:
    return {**_sequence(d, ()), "self": d.number()}


# Membership


def _membership(d: Draw, *, unique: bool = False) -> dict[str, Any]:
    # Where elements may repeat `assume_unique` would be a lie that PyTorch may punish.
    return {"assume_unique": True if unique else d.choose(OMIT, False), "invert": d.maybe(d.boolean)}


def _elements(d: Draw, *, unique: bool) -> TensorSpec:
    """Any tensor, or a vector without repetitions."""
    return d.tensor((d.size(),), domain=DISTINCT, contiguous=True) if unique else d.any_tensor()


def _number(d: Draw) -> int | float:
    # A bool is the one Scalar that PyTorch refuses here.
    return d.choose(d.int(), d.float())


@ops.case("isin.Tensor_Tensor", dtypes=NUMBERS, judge=EXACT)
def isin(d: Draw) -> Arguments:
    unique = d.choose(False, False, True)
    dtype = d.other_dtype(*FLOATS[:2], "int64")
    tests = _elements(d, unique=True) if unique else d.tensor(d.shape(), dtype)
    return {"elements": _elements(d, unique=unique), "test_elements": tests, **_membership(d, unique=unique)}


@ops.case("isin.Tensor_Scalar", dtypes=NUMBERS, judge=EXACT)
def isin_number(d: Draw) -> Arguments:
    unique = d.choose(False, False, True)
    return {
        "elements": _elements(d, unique=unique),
        "test_element": _number(d),
        **_membership(d, unique=unique),
    }


@ops.case("isin.Scalar_Tensor", dtypes=NUMBERS, judge=EXACT)
def number_isin(d: Draw) -> Arguments:
    unique = d.choose(False, False, True)
    return {
        "element": _number(d),
        "test_elements": _elements(d, unique=unique),
        **_membership(d, unique=unique),
    }


# Unique elements: in order only if `sorted` is true


def _unasked(arguments: Mapping[str, Any]) -> frozenset[int]:
    """Return the outputs that were not requested: PyTorch returns an inverse and counts all the same, or empty
    tensors in their place, and documents neither."""
    flags = {1: "return_inverse", 2: "return_counts"}
    return frozenset(output for output, name in flags.items() if not arguments.get(name, False))


_UNIQUE = Judge(rules={0: any_order("dim", "sorted"), 1: unique_inverse, 2: unique_counts}, unused_outputs=_unasked)


@ops.case("_unique2", dtypes=ALL, judge=_UNIQUE)
def unique(d: Draw) -> Arguments:
    flags = {name: d.maybe(d.boolean) for name in ("sorted", "return_inverse", "return_counts")}
    return {"self": d.any_tensor(), **flags}


@ops.case("_unique", dtypes=ALL, judge=_UNIQUE)
def unique_without_counts(d: Draw) -> Arguments:
    return {"self": d.any_tensor(), "sorted": d.maybe(d.boolean), "return_inverse": d.maybe(d.boolean)}


def _flags(d: Draw) -> dict[str, Any]:
    return {name: d.maybe(d.boolean) for name in ("return_inverse", "return_counts")}


@ops.case("unique_consecutive", dtypes=ALL, judge=EXACT)
def unique_consecutive(d: Draw) -> Arguments:
    shape = d.shape()
    dim = d.maybe(lambda: d.dim(len(shape)), none=True) if shape else d.choose(OMIT, None)
    return {"self": d.tensor(_nonempty_shape(shape, dim)), "dim": dim, **_flags(d)}


def _nonempty_shape(shape: tuple[int, ...], dim: Any) -> tuple[int, ...]:
    """PyTorch takes an empty tensor along a dim only where that dim is the one of size 0."""
    if dim is OMIT or dim is None:
        return shape
    return tuple(size if i == dim % len(shape) else size or 1 for i, size in enumerate(shape))


def _slices(array: Array, dim: int) -> list[bytes]:
    """The slices along `dim` as comparable values; zeros of either sign are equal."""
    rows = np.moveaxis(array, dim, 0)
    return [(row + 0).tobytes() for row in rows]


def _unless_sorted(rule: OutputRule) -> OutputRule:
    """`rule` where the argument `sorted` is false: then the order of the unique slices is open."""

    def judged(evidence: Evidence, output: int) -> Mask:
        if evidence.arguments.get("sorted", True) or not evidence.got[output].size:
            return equal(evidence, output)
        return rule(evidence, output)

    return judged


def _same_slices(evidence: Evidence, output: int) -> Mask:
    dim = evidence.arguments["dim"]
    expected, got = (_slices(arrays[output], dim) for arrays in (evidence.expected, evidence.got))
    return np.full(evidence.got[output].shape, sorted(expected) != sorted(got))


def _slice_inverse(evidence: Evidence, output: int) -> Mask:
    dim, index = evidence.arguments["dim"], evidence.got[output]
    unique, data = _slices(evidence.got[0], dim), _slices(evidence.arguments["self"], dim)
    inside = (index >= 0) & (index < len(unique))
    return np.array([not ok or unique[i] != row for ok, i, row in zip(inside, index, data, strict=True)])


def _slice_counts(evidence: Evidence, output: int) -> Mask:
    dim = evidence.arguments["dim"]
    unique, data = _slices(evidence.got[0], dim), _slices(evidence.arguments["self"], dim)
    return np.array([n != data.count(row) for n, row in zip(evidence.got[output], unique, strict=True)])


_UNIQUE_SLICES = (_same_slices, _slice_inverse, _slice_counts)


@ops.case(
    "unique_dim",
    dtypes=ALL,
    judge=Judge(rules=dict(enumerate(map(_unless_sorted, _UNIQUE_SLICES))), unused_outputs=_unasked),
)
def unique_dim(d: Draw) -> Arguments:
    shape = d.shape(1)
    dim = d.dim(len(shape))
    return {
        "self": d.tensor(_nonempty_shape(shape, dim)),
        "dim": dim,
        "sorted": d.maybe(d.boolean),
        **_flags(d),
    }


@ops.case("unique_dim_consecutive", dtypes=ALL, judge=EXACT)
def unique_dim_consecutive(d: Draw) -> Arguments:
    shape = d.shape(1)
    dim = d.dim(len(shape))
    return {"self": d.tensor(_nonempty_shape(shape, dim)), "dim": dim, **_flags(d)}


# Histograms


def _exact_counts(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Array | None]:
    """Count the elements of each bin in rational arithmetic, since a rounded quotient misses the bin near an edge."""
    values = arguments["self"].astype(np.float64).ravel()
    low, high = Fraction(arguments.get("min", 0)), Fraction(arguments.get("max", 0))
    if low == high and values.size and np.isfinite(values).all():
        low, high = Fraction(values.min()), Fraction(values.max())
    if low == high:
        low, high = low - 1, high + 1
    counts = [0] * arguments.get("bins", 100)
    for value in map(Fraction, values[np.isfinite(values)].tolist()):
        if low <= value <= high:
            counts[min(int((value - low) * len(counts) / (high - low)), len(counts) - 1)] += 1
    return [np.array(counts, np.float64).astype(expected[0].dtype)]


@ops.case("histc", dtypes=FLOATS, judge=Judge(alternatives=_exact_counts))
def histc(d: Draw) -> Arguments:
    limits = d.choose((OMIT, OMIT), (0, 0), (-2, 2), (0, 1), (-3.5, 1.25), (1, 1), (0, 10))
    return {
        "self": d.tensor(d.shape(), domain=between(-4, 4)),
        "bins": d.maybe(lambda: d.choose(10, 1, 3, 4, 7)),
        "min": limits[0],
        "max": limits[1],
    }


@ops.case("bincount", dtypes=INTS, judge=ACCUMULATES)
def bincount(d: Draw) -> Arguments:
    count = d.size(high=65)
    weights = d.maybe(lambda: d.tensor((count,), d.choose(*FULL_FLOATS, "int64", "int32")), none=True)
    return {
        "self": d.tensor((count,), domain=between(0, 9)),
        "weights": weights,
        "minlength": d.maybe(lambda: d.choose(0, 1, 5, 20)),
    }


@ops.case("histogram.bin_ct", dtypes=FULL_FLOATS)
def histogram(d: Draw) -> Arguments:
    shape = d.shape()
    return {
        "self": d.tensor(shape, domain=between(-4.0, 4.0)),
        "bins": d.maybe(lambda: d.choose(10, 1, 3, 4, 7)),
        "range": d.maybe(lambda: d.choose([-2.0, 2.0], [0.0, 1.0], [-3.5, 1.25]), none=True),
        "weight": d.maybe(lambda: d.tensor(shape, domain=between(0.0, 2.0)), none=True),
        "density": d.maybe(d.boolean),
    }


@ops.case("histogram.bins_tensor", dtypes=FLOATS)
def histogram_bins(d: Draw) -> Arguments:
    shape, count = d.shape(), d.size(2, 9)
    return {
        "self": d.tensor(shape, domain=between(-4.0, 4.0)),
        "bins": d.tensor((count,), domain=ascending(count)),
        "weight": d.maybe(lambda: d.tensor(shape, domain=between(0.0, 2.0)), none=True),
        "density": d.maybe(d.boolean),
    }
