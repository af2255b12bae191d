"""Indexing under a mask, as compilers write gathers that pad, and writing into strided views."""

from __future__ import annotations

import operator
from typing import Any

from harness.compare.judge import ACCUMULATES, EXACT, Judge
from harness.core.dtypes import ALL, UNSIGNED
from harness.core.invocation import contiguous_strides
from harness.generate.draw import OMIT, Draw, index_into
from harness.generate.operator_case import Arguments, Family

ops = Family("indexing")


def _masked(d: Draw) -> tuple[dict[str, Any], tuple[int, ...]]:
    """A tensor, a mask, and for each dim the indices of the places that the mask speaks of."""
    shape, common = d.shape(1, min_size=1), d.shape(max_size=5)
    return {
        "self": d.tensor(shape),
        "mask": d.tensor(d.broadcastable(common), "bool"),
        "indices": [d.tensor(common, "int64", index_into(size)) for size in shape],
    }, common


@ops.case("_unsafe_masked_index", dtypes=ALL, judge=EXACT)
def masked_index(d: Draw) -> Arguments:
    return {
        **_masked(d)[0],
        "fill": d.choose(0, 1, 3, True, 0.0) if d.dtype in UNSIGNED else d.choose(0, 1, 3, True, 0.0, -1),
    }


@ops.case("_unsafe_masked_index_put_accumulate", dtypes=ALL, judge=ACCUMULATES)
def masked_index_put(d: Draw) -> Arguments:
    arguments, common = _masked(d)
    return {**arguments, "values": d.tensor(d.broadcastable(common))}


@ops.case("as_strided_scatter", dtypes=ALL, judge=Judge(exact=True, signed_zeros=True, reads_layout=True))
def as_strided_scatter(d: Draw) -> Arguments:
    # A box within the tensor, its dims in any order, so that no element is written twice.
    shape = d.shape(min_size=1)
    size = [d.integer(0 if d.integer(0, 9) == 9 else 1, n) for n in shape]
    start = [d.integer(0, n - m) for n, m in zip(shape, size, strict=True)]
    strides = contiguous_strides(shape)
    order = [i % len(shape) for i in d.dims(len(shape), min_count=len(shape))] if shape else []
    offset = sum(map(operator.mul, start, strides))
    return {
        "self": d.tensor(shape, contiguous=True),
        "src": d.tensor([size[i] for i in order]),
        "size": [size[i] for i in order],
        "stride": [strides[i] for i in order],
        "storage_offset": d.choose(OMIT, None, 0) if offset == 0 else offset,
    }
