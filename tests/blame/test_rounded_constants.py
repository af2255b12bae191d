"""Numbers of a graph that are not the call's, and have fewer bits than they ought to."""

from __future__ import annotations

import numpy as np
import pytest
from harness_runs import unary
from onnx import helper
from trials import graph_of_nodes, trial_of

from harness.blame.examine import examine

CALL = unary("aten.log10.default", [0.5, 3.0, 7.0], "float64")


@pytest.mark.parametrize("converter", ["dynamo", "torchscript"])
def test_a_logarithm_that_is_rounded_in_the_graph_is_the_converters(converter: str) -> None:
    # In float64 nothing confirms PyTorch, and both converters emit the same.
    decision = examine(trial_of(CALL, converter=converter), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "The graph has the number 2.3025851249694824 in float32's precision" in decision.evidence
    assert "2.302585093 would give PyTorch's result" in decision.evidence


@pytest.mark.parametrize(
    "number", [2.5, float(np.float32(np.log(10.0)))], ids=["a round number", "a rounded one"]
)
def test_another_error_is_not_explained_by_a_number(number: float) -> None:
    nodes = [
        helper.make_node("Log", ["c0_i0"], ["logarithm"]),
        helper.make_node("Div", ["logarithm", "number"], ["quotient"]),
        helper.make_node("Add", ["quotient", "slip"], ["c0_o0"]),
    ]
    numbers = {"number": np.asarray(number), "slip": np.asarray(1e-6)}
    trial = trial_of(CALL, model=graph_of_nodes(CALL, nodes, numbers))
    decision = examine(trial, frozenset(), lambda name: None)
    assert "in float32's precision" not in decision.evidence
