"""Numbers of a graph that are not the call's, and have fewer bits than they ought to."""

from __future__ import annotations

import numpy as np
import pytest
from failure_contexts import graph_of_nodes, trial_of, words_of
from harness_runs import unary
from onnx import helper

from harness.blame.examine import examine
from harness.blame.witnesses.passes import ask_unoptimised_export
from harness.blame.witnesses.rounded_constants import look_for_rounded_reciprocals
from harness.core.invocation import Invocation
from harness.present.evidence import sentence

CALL = unary("aten.log10.default", [0.5, 3.0, 7.0], "float64")


@pytest.mark.parametrize("converter", ["dynamo", "torchscript"])
def test_a_logarithm_that_is_rounded_in_the_graph_is_the_converters(converter: str) -> None:
    # In float64 nothing confirms PyTorch, and both converters emit the same.
    decision = examine(trial_of(CALL, converter=converter), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "The graph has the number 2.3025851249694824 in float32's precision" in words_of(decision)
    assert "2.302585093 would give PyTorch's result" in words_of(decision)


@pytest.mark.parametrize("converter", ["dynamo", "torchscript"])
@pytest.mark.parametrize("decimals", [-1, -2])
def test_a_reciprocal_that_is_rounded_in_the_graph_is_the_converters(converter: str, decimals: int) -> None:
    # PyTorch divides by ten, the graph multiplies by float16's nearest to a tenth. ONNX Runtime computes the three
    # nodes together in float32, where that number shows.
    [argument] = unary("aten.round.decimals", [15.0, 1250.0, 0.05, 40.0], "float16").arguments
    call = Invocation("aten.round.decimals", (argument, ("decimals", decimals)))
    decision = examine(trial_of(call, converter=converter), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert f"gives PyTorch's result with a division by {10**-decimals}" in words_of(decision)


def test_a_reciprocal_that_is_exact_is_not_blamed() -> None:
    [argument] = unary("aten.div.Scalar", [15.0, 3.0], "float32").arguments
    call = Invocation("aten.div.Scalar", (argument, ("other", 8.0)))
    nodes = [helper.make_node("Mul", ["c0_i0", "eighth"], ["product"]), helper.make_node("Neg", ["product"], ["c0_o0"])]
    context = trial_of(call, model=graph_of_nodes(call, nodes, {"eighth": np.asarray(0.125, np.float32)}))
    assert list(look_for_rounded_reciprocals.testify(context)) == []


def test_a_function_that_the_runtime_computes_with_more_bits_is_wrong_before_the_optimiser_too() -> None:
    # Times 10^5, which float16 does not hold; ONNX Runtime runs a function that is not inlined in float32.
    [(name, tensor)] = unary("aten.round.decimals", [0.5], "float16").arguments
    call = Invocation("aten.round.decimals", ((name, tensor), ("decimals", 5)))
    context = trial_of(call)
    [testimony] = ask_unoptimised_export.testify(context)
    words = "Exported without dynamo's optimiser, the call gives the same wrong result in onnx-reference."
    assert sentence(testimony) == words
    decision = examine(context, frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "optimiser breaks the graph" not in words_of(decision)


@pytest.mark.parametrize("number", [2.5, float(np.float32(np.log(10.0)))], ids=["a round number", "a rounded one"])
def test_another_error_is_not_explained_by_a_number(number: float) -> None:
    nodes = [
        helper.make_node("Log", ["c0_i0"], ["logarithm"]),
        helper.make_node("Div", ["logarithm", "number"], ["quotient"]),
        helper.make_node("Add", ["quotient", "slip"], ["c0_o0"]),
    ]
    numbers = {"number": np.asarray(number), "slip": np.asarray(1e-6)}
    context = trial_of(CALL, model=graph_of_nodes(CALL, nodes, numbers))
    decision = examine(context, frozenset(), lambda name: None)
    assert "in float32's precision" not in words_of(decision)
