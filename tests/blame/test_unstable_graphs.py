"""Graphs that are right on paper and lose the result on the way, where nothing confirms PyTorch."""

from __future__ import annotations

import pytest
from failure_contexts import trial_of
from harness_runs import unary

from harness.blame.examine import examine
from harness.core.invocation import Invocation


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        # Log(1 + x)
        (unary("aten.special_log1p.default", [2.7e-44, 0.5], "float64"), "values"),
        # Log(Sigmoid(x))
        (unary("aten.log_sigmoid.default", [-1.5e308, 1.0], "float64"), "overflow to infinity"),
    ],
    ids=["log1p", "log_sigmoid"],
)
@pytest.mark.parametrize("converter", ["dynamo", "torchscript"])
def test_a_graph_that_loses_the_result_on_the_way_is_the_converters(
    call: Invocation, problem: str, converter: str
) -> None:
    context = trial_of(call, converter=converter)
    assert context.comparison is not None
    assert context.comparison.problem == problem
    assert examine(context, frozenset(), lambda name: None).blame == "converter"
