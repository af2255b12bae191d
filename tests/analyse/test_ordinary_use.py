"""Which cases are ordinary use of their operator, and which are edges of it."""

from __future__ import annotations

from typing import Any

import pytest
from harness_runs import row_of

from harness.analyse import ordinary_rows
from harness.core.invocation import Enumerated, Invocation, Literal, Recipe, TensorSpec, contiguous_strides
from harness.record.schema import to_table

PLAIN = Recipe(("any",), "plain", 1459154461)


def tensor(*shape: int, dtype: str = "float32", values: Any = PLAIN, **changes: Any) -> TensorSpec:
    strides = changes.pop("strides", contiguous_strides(shape))
    return TensorSpec(shape, dtype, strides, changes.pop("offset", 0), values)


def drawn(domain: str, style: str, *bounds: float, dtype: str = "float32") -> TensorSpec:
    return tensor(2, 3, dtype=dtype, values=Recipe((domain, *bounds), style, 7))


def holding(*numbers: Any, dtype: str = "float32") -> TensorSpec:
    return tensor(len(numbers), dtype=dtype, values=Literal(numbers))


def call(overload: str = "aten.relu.default", **arguments: Any) -> Invocation:
    return Invocation(overload, tuple(arguments.items()))


ORDINARY = (
    call(self=tensor(2, 3)),
    call(self=tensor(2, 3, dtype="float16")),
    call(self=tensor(2, 3, dtype="int64"), other=tensor(2, 3)),
    # Transposed, channels last, a part of a larger tensor, a size of one with any stride.
    call(self=tensor(2, 3, strides=(1, 2))),
    call(self=tensor(2, 4, 3, 3, strides=(36, 1, 12, 4))),
    call(self=tensor(2, 3, offset=5)),
    call(self=tensor(1, 3, strides=(0, 1))),
    call(self=drawn("any", "tied"), other=tensor()),
    call(self=drawn("any", "halves", dtype="int64")),
    *(call(self=drawn("any", style)) for style in ("equal 0", "ordered -1", "hot 1", "alternating 0")),
    call(self=tensor(2), index=drawn("index", "equal 1", 5, dtype="int64")),
    call(self=drawn("range", "plain", 0.0, 1.0)),
    call(self=drawn("dominant", "special", 3, 0)),
    # An index has no other values, whatever its style; a mask no other dtype.
    call("aten.gather.default", self=tensor(2, 3), dim=1, index=drawn("index", "special", 3, dtype="int64")),
    call(
        "aten.masked_fill.Scalar", self=tensor(2), mask=drawn("any", "one", dtype="bool"), value=float("-inf")
    ),
    call("aten.full.default", size=(2, 3), fill_value=-3.4028234663852886e38),
    call("aten.logical_not.default", self=tensor(2, dtype="bool")),
    call("aten.slice.Tensor", self=tensor(4), dim=0, start=1, end=9223372036854775807),
    call("aten.to.dtype", self=tensor(2), dtype=Enumerated("dtype", "float16")),
    call(self=holding(0.5, -12345.25, 0.0), eps=1e-5, p=(2, 99999)),
)
EDGE = (
    call(self=tensor(2, 3, dtype="float64")),
    call(self=tensor(2, 3, dtype="bfloat16")),
    call(self=tensor(2, 3), other=tensor(2, 3, dtype="uint8")),
    call(self=tensor(2, 3, dtype="complex64")),
    call("aten.to.dtype", self=tensor(2), dtype=Enumerated("dtype", "float64")),
    call("aten.relu.default", self=tensor(2, dtype="bool")),
    call(self=tensor(2, 0, 3)),
    call(self=tensor(2), other=tensor(0)),
    call("aten.full.default", size=(0, 3), fill_value=1),
    call(self=tensor()),
    # Expanded, with gaps, overlapping.
    call(self=tensor(2, 3, strides=(0, 1))),
    call(self=tensor(4, strides=(2,))),
    call(self=tensor(2, 3, strides=(1, 1))),
    *(
        call(self=drawn("any", style))
        for style in ("mixed", "one", "special", "wide", "saturating", "halves", "facing 0 3 1", "every 5")
    ),
    *(
        call(self=drawn("any", style))
        for style in ("alone 0 1 0", "near 0.5", "row 2 4", "equal 3", "equal 13")
    ),
    call(self=drawn("any", "special", dtype="int64")),
    call(self=tensor(2), other=drawn("at_least", "wide", -4.0)),
    call(self=drawn("range", "tied", 0.0, 1.0)),
    call(self=holding(0.5, float("nan"))),
    call(self=holding(0.5, float("inf"), dtype="float16")),
    call(self=holding(-0.0)),
    call(self=holding(1e-13)),
    call(self=holding(2147483647, 1, dtype="int64")),
    call(self=tensor(2), other=float("nan")),
    call(self=tensor(2), other=float("-inf")),
    call(self=tensor(2), other=-0.0),
    call(self=tensor(2), other=3.4028234663852886e38),
    call(self=tensor(2), other=-2147483648),
    call(self=tensor(2), size=(1, 16777217)),
    call(self=tensor(2), other=1 + 2j),
    call(self=tensor(2), layout=Enumerated("layout", "sparse_coo")),
)


@pytest.mark.parametrize("old", [False, True])
def test_a_call_of_a_model_is_ordinary_and_all_else_is_an_edge(old: bool) -> None:
    calls = [*ORDINARY, *EDGE, *ORDINARY]
    # Older runs say nothing of structures.
    rows = [row_of(one, structure_id="" if old else one.structure_id) for one in calls]
    found = ordinary_rows(to_table(rows, "run")).tolist()
    expected = [one in ORDINARY for one in calls]
    assert [str(c) for c, a, b in zip(calls, found, expected, strict=True) if a != b] == []


def test_no_rows_are_no_trouble() -> None:
    assert ordinary_rows(to_table([], "run")).tolist() == []
