"""A run draws more, and more ordinary, calls of operators that models call."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from harness.core.invocation import Invocation
from harness.generate.call_traits import is_ordinary
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_examples
from harness.generate.pairs.table import structure_conditions
from harness.plan.options import Options

DEFAULT = Options().examples


def structures(overload: str, examples: int = DEFAULT) -> list[Invocation]:
    return [d.invocations[0] for d in draw_examples(load_cases()[overload], seed=0, examples=examples)]


@pytest.mark.parametrize("overload", ["aten.conv2d.default", "aten.add.Tensor", "aten.embedding.default"])
def test_float32_and_its_halves_come_as_often_as_models_use_them(overload: str) -> None:
    dtypes = Counter(call.dtype for call in structures(overload))
    # The calls of models come in addition.
    assert dtypes["float32"] >= 40
    assert min(dtypes["float16"], dtypes["bfloat16"]) >= 20
    # None of the others is given up.
    case = load_cases()[overload]
    assert set(case.dtypes) - set(dtypes) <= {*case.rare, *case.gaps}


def test_an_operator_of_truth_values_is_drawn_for_them() -> None:
    dtypes = Counter(call.dtype for call in structures("aten.bitwise_not.default"))
    assert dtypes.most_common(1)[0][0] == "bool"


def test_what_is_refused_is_a_tenth() -> None:
    case = load_cases()["aten.max_pool2d.default"]
    refused = replace(case, refused=frozenset({"kernel_size one number"}))
    shares = []
    for drawn_of in (replace(case, refused=frozenset()), refused):
        calls = [d.invocations[0] for d in draw_examples(drawn_of, seed=0, examples=DEFAULT)]
        of_them = sum("kernel_size one number" in {c.name for c in structure_conditions(call)} for call in calls)
        shares.append(of_them / len(calls))
    assert shares[0] > 0.15
    # A tenth, and the first.
    assert 0 < shares[1] <= 0.1 + 1 / len(calls)


def test_a_refused_dtype_comes_now_and_then() -> None:
    case = replace(load_cases()["aten.conv2d.default"], refused=frozenset({"dtype float64", "dtype int8"}))
    dtypes = Counter(d.invocations[0].dtype for d in draw_examples(case, seed=0, examples=DEFAULT))
    assert 1 <= dtypes["float64"] + dtypes["int8"] <= sum(dtypes.values()) / 10
    asked = draw_examples(case, seed=0, examples=8, dtypes=["float64"])
    assert len(asked) == 4


@pytest.mark.parametrize("overload", ["aten.add.Tensor", "aten.conv2d.default", "aten.cumsum.default"])
def test_a_small_budget_begins_with_ordinary_calls(overload: str) -> None:
    calls = structures(overload, 24)
    assert sum(map(is_ordinary, calls)) >= 4


def test_operators_that_no_model_calls_have_all_dtypes_alike() -> None:
    case = load_cases()["aten.celu.default"]
    assert not case.used
    dtypes = Counter(call.dtype for call in structures("aten.celu.default"))
    assert max(dtypes.values()) - min(dtypes.values()) <= 4
