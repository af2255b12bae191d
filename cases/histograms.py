"""Histograms in several dimensions: counts in a grid of bins, and the bins' edges."""

from __future__ import annotations

from typing import Any

from harness.core.dtypes import FULL_FLOATS
from harness.generate.draw import Draw, ascending, between
from harness.generate.operator_case import Arguments, Family

ops = Family("sorting")


def _points(d: Draw) -> tuple[dict[str, Any], int]:
    """Points, their weights and how to count, and of how many dimensions."""
    dimensions = d.choose(2, 1, 3)
    lead = d.choose((d.size(1, 65),), (d.size(1, 5), d.size(1, 5)))
    return {
        "self": d.tensor((*lead, dimensions), domain=between(-4.0, 4.0)),
        "weight": d.maybe(lambda: d.tensor(lead, domain=between(0.0, 2.0)), none=True),
        "density": d.maybe(d.boolean),
    }, dimensions


def _range(d: Draw, dimensions: int) -> Any:
    ranges = [d.choose((-2.0, 2.0), (0.0, 1.0), (-3.5, 1.25)) for _ in range(dimensions)]
    return d.maybe(lambda: [end for ends in ranges for end in ends], none=True)


def _count(d: Draw) -> int:
    return d.choose(3, 1, 2, 4, 7)


@ops.case("histogramdd", "_histogramdd_from_bin_cts", "_histogramdd_bin_edges", dtypes=FULL_FLOATS)
def histogramdd(d: Draw) -> Arguments:
    points, dimensions = _points(d)
    return {**points, "bins": [_count(d) for _ in range(dimensions)], "range": _range(d, dimensions)}


@ops.case("histogramdd.int_bins", dtypes=FULL_FLOATS)
def histogramdd_same_count(d: Draw) -> Arguments:
    points, dimensions = _points(d)
    return {**points, "bins": _count(d), "range": _range(d, dimensions)}


def _edges(d: Draw, dimensions: int) -> list[Any]:
    counts = [d.size(2, 9) for _ in range(dimensions)]
    return [d.tensor((count,), domain=ascending(count), contiguous=True) for count in counts]


@ops.case("histogramdd.TensorList_bins", "_histogramdd_from_bin_tensors", dtypes=FULL_FLOATS)
def histogramdd_edges(d: Draw) -> Arguments:
    points, dimensions = _points(d)
    return {**points, "bins": _edges(d, dimensions)}
