"""Conditions of calls, and which pairs of them calls have."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest
from recorded_rows import call

from harness.core.invocation import Recipe, TensorSpec, contiguous_strides
from harness.generate.pairs.table import PairTable, pair_table


def ordinary(shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Recipe(("any",), "plain", 0))


def names(table: PairTable, row: int = 0) -> set[str]:
    return {condition.name for condition, has in zip(table.conditions, table.has[row], strict=True) if has}


def pairs(table: PairTable, calls: Sequence[int] | None = None) -> set[frozenset[str]]:
    seen = table.pairs & (table.counts(calls) > 0)
    places = np.argwhere(seen).tolist()
    return {frozenset((table.conditions[i].name, table.conditions[j].name)) for i, j in places}


def test_conditions_say_what_a_call_is() -> None:
    first = call(
        "aten.amax.default",
        self=TensorSpec((3, 1, 4), "float16", (4, 0, 1), 2, Recipe(("any",), "plain", 0)),
        dim=(-1, 0),
        keepdim=True,
    )
    second = call("aten.amax.default", self=ordinary((), "uint32"))
    table = pair_table([first, second])
    assert names(table) >= {
        *("dtype float16", "self rank 3", "self size 1", "self offset", "keepdim=True"),
        *("dim several", "dim out of order", "dim of both signs", "dim is last", "dim of size 2+"),
    }
    assert names(table, 1) >= {"dtype wide unsigned", "self rank 0", "self one element", "keepdim omitted"}


def test_a_number_is_seen_beside_the_dtype() -> None:
    def fit(dtype: str, value: float) -> set[str]:
        made = [call("aten.eq.Scalar", self=ordinary((2,), dtype), other=value)]
        return {name for name in names(pair_table(made)) if name.endswith(" dtype") and name.startswith("other ")}

    assert fit("float32", 2**24 + 1) == fit("float32", 0.1) == {"other rounded in the dtype"}
    assert fit("float64", 2**24 + 1) == fit("float32", 2**24) == {"other exact in the dtype"}
    assert fit("float64", 2**53 + 1) == fit("int64", 0.5) == {"other rounded in the dtype"}
    assert fit("float16", 70000) == fit("int8", -129) == fit("int32", 2.0**31) == {"other beyond the dtype"}
    assert fit("uint8", -1) == {"other negative in an unsigned dtype"}
    assert fit("bfloat16", float("nan")) == set()


def test_parts_of_a_complex_number_are_seen() -> None:
    def said(dtype: str, alpha: complex) -> set[str]:
        made = [call("aten.sub.Scalar", self=ordinary((2,), dtype), other=1, alpha=alpha)]
        found = {name for name in names(pair_table(made)) if name.startswith("alpha ")}
        return {name.removeprefix("alpha ") for name in found} - {"given", "complex"}

    nan, inf = float("nan"), float("inf")
    assert said("complex64", 1j) == {"imaginary"}
    assert said("complex64", 0j) == {"zero"}
    assert said("complex64", -1.5 + 0j) == {"real", "exact in the dtype"}
    assert said("complex64", 0.5 + 0.1j) == {"of both parts", "rounded in the dtype"}
    assert said("complex64", 0.1 + 1e300j) == {"of both parts", "beyond the dtype"}
    assert said("complex128", 3 + 16777217j) == {"of both parts", "exact in the dtype"}
    assert said("complex64", complex(0.5, nan)) == {"with a part NaN"}
    assert said("complex64", complex(-inf, 1)) == {"with a part infinite"}
    calls = [
        call("aten.sub.Scalar", self=ordinary((2,), dtype), other=1, alpha=alpha)
        for dtype in ("complex64", "float32")
        for alpha in (2, 2j)
    ]
    assert frozenset(("alpha complex", "dtype complex")) in pairs(pair_table(calls))


def test_windows_and_sizes_are_seen_together() -> None:
    pooled = call(
        "aten.max_pool2d.default",
        self=ordinary((1, 1, 7, 7)),
        kernel_size=(2, 2),
        stride=(3, 3),
        padding=(1,),
        ceil_mode=True,
    )
    resized = call("aten.upsample_nearest2d.default", self=ordinary((1, 1, 4, 6)), output_size=(2, 4))
    assert names(pair_table([pooled])) >= {
        *("window smaller than input", "stride larger than window", "last window cut", "ceil_mode=True"),
        "padding one",
    }
    assert "output does not divide input" in names(pair_table([resized]))


def test_what_follows_or_never_changes_makes_no_pair() -> None:
    calls = [
        call("aten.clamp.default", self=ordinary((2, 3), dtype), min=low, max=0.5)
        for dtype in ("float32", "float64")
        for low in (0.5, -2)
    ]
    found = {name for pair in pairs(pair_table(calls)) for name in pair}
    assert not {name for name in found if name.startswith(("max", "self rank"))}
    assert {"min positive", "min negative", "min int", "dtype float64"} <= found
    made = pairs(pair_table(calls))
    assert frozenset(("min int", "min negative")) not in made
    assert frozenset(("min int", "dtype float32")) in made


def test_pairs_are_read_without_pytorch() -> None:
    program = "import sys, harness.generate.pairs.table; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=600, check=False).returncode == 0


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 3), "of the first shape"),
        ((), "rank 0 beside a higher one"),
        ((5, 3), "of another shape"),
        ((1, 3), "broadcast"),
        ((5, 2, 3), "larger than the first"),
    ],
)
def test_a_later_tensor_has_a_shape_beside_the_first(shape: tuple[int, ...], words: str) -> None:
    table = pair_table([call("aten.add.Tensor", self=ordinary((2, 3)), other=ordinary(shape))])
    assert f"other {words}" in names(table)
