"""The plan of a run: the units of what was asked for, and their division among shards."""

from __future__ import annotations

import pytest

from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.sharding import Shard, check_parts

UNITS = ["a", "b", "c"]


def test_an_operator_that_has_no_chosen_dtype_has_no_unit() -> None:
    chosen = Options(ops=("aten.celu.default", "aten.bitwise_not.default"), dtypes=("float32",), shapes="static")
    assert [unit.overload for unit in make_plan(chosen).units] == ["aten.celu.default"]


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        pytest.param([["a"], ["b", "c", "a"]], "a", id="twice"),
        pytest.param([["a"], ["b"]], "c", id="left out"),
        pytest.param([["a", "b"], ["c", "d"]], "d", id="unknown"),
    ],
)
def test_parts_that_do_not_divide_the_units_are_refused(parts: list[list[str]], name: str) -> None:
    with pytest.raises(UsageProblem, match=f"once: {name}$"):
        check_parts(parts, Shard(1, 2), UNITS)


def test_each_shard_has_a_part() -> None:
    check_parts([["a"], ["b", "c"]], Shard(1, 2), UNITS)
    with pytest.raises(UsageProblem, match="has 2 parts"):
        check_parts([["a"], ["b", "c"]], Shard(1, 3), UNITS)
