"""Reductions over segments of a dim, which lengths or offsets mark."""

from __future__ import annotations

from typing import Any

from harness.compare.judge import ACCUMULATES
from harness.core.dtypes import FLOATS
from harness.generate.draw import OMIT, Draw, between
from harness.generate.operator_case import Arguments, Family

ops = Family("reduction")


def _segments(d: Draw, lead: tuple[int, ...], size: int) -> dict[str, Any]:
    """Segments of `size` elements: by offsets, some of them empty, or by lengths."""
    count = d.integer(1, 4)
    kind = d.choose("offsets", "whole", "part") if not lead else d.choose("whole", "part")
    if kind == "offsets":
        return {"offsets": d.tensor((count + 1,), "int64", ("offsets", size, 1), contiguous=True)}
    if kind == "whole":
        # Equal lengths, which add up to the size.
        count = next(n for n in (count, 2, 1) if size % n == 0)
        lengths = d.tensor((*lead, count), "int64", between(size // count, size // count))
        return {"lengths": lengths, "unsafe": d.maybe(d.boolean)}
    # Lengths that may leave a rest, which PyTorch accepts with checks off.
    domain = between(0, size // count)
    return {"lengths": d.tensor((*lead, count), "int64", domain), "unsafe": True}


@ops.case("segment_reduce", dtypes=FLOATS, judge=ACCUMULATES)
def segment_reduce(d: Draw) -> Arguments:
    axis = d.choose(0, 0, 0, 1, 1, 2, 3, 4)
    lead, size = d.shape(axis, axis, min_size=1, max_size=3), 130 if d.integer(0, 15) == 15 else d.size(1, 17)
    data = d.tensor((*lead, size, *d.shape(0, min(3, 4 - axis), max_size=4)))
    return {
        "data": data,
        "reduce": d.choose("sum", "mean", "max", "min", "prod"),
        **_segments(d, lead, size),
        "axis": d.choose(axis, axis - len(data.shape), *((OMIT, OMIT) if axis == 0 else ())),
        "initial": d.choose(OMIT, None, 0, 1.0, 2.5, -1.5),
    }
