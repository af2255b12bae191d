"""Principles of blame, each by a recorded failure that was blamed otherwise and was labelled by hand."""

from __future__ import annotations

import numpy as np
import pytest
from failure_contexts import graph_of_nodes, trial_of
from harness_runs import vector, verdict_of
from onnx import helper
from test_nodes import defined

from harness.blame.decide import decide
from harness.blame.examine import examine
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.core.invocation import Invocation, Recipe, TensorSpec, contiguous_strides
from harness.pipeline.nodes.preconditions import broken_precondition


def drawn(shape: tuple[int, ...], dtype: str, seed: int) -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Recipe(("any",), "plain", seed))


def attention(dtype: str, **more: object) -> Invocation:
    """A causal attention with more keys than queries, and heads that share a key."""
    tensors = (("query", (1, 3, 2, 8)), ("key", (1, 1, 8, 8)), ("value", (1, 1, 8, 8)))
    arguments = tuple((name, drawn(shape, dtype, n)) for n, (name, shape) in enumerate(tensors))
    given = {"is_causal": True, "enable_gqa": True, **more}
    return Invocation("aten.scaled_dot_product_attention.default", (*arguments, *given.items()))  # type: ignore[arg-type]


def test_the_function_body_outranks_the_evaluators_kernel() -> None:
    # The body computes the scale in float32, as ONNX Runtime does; only the evaluator's kernel does not.
    verdict = verdict_of(attention("float64"), opset=23)
    assert (verdict.outcome, verdict.blame, verdict.fault) == (Outcome.MISMATCH, "converter", "as-exact-as-float32")


def test_a_refusal_of_a_call_that_is_the_node_is_the_runtimes() -> None:
    heard = [
        Testimony(Role.OPERATOR, Finding.SAME, "own-operator", {"operator": "Attention"}),
        Testimony(Role.RUNTIME, Finding.REFUSES, "other-backend", {"witness": "openvino"}),
        Testimony(Role.MODEL, Finding.VALID, "checker"),
    ]
    assert decide(Outcome.ERROR, heard).blame == "backend"


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_integers_divided_by_zero_are_no_valid_node(operator: str) -> None:
    assert broken_precondition(defined(operator, np.array([3]), np.array([0])))["input"] == "B"
    assert not broken_precondition(defined(operator, np.array([3]), np.array([2])))


#: Scores that overflow on their way are left open; without its fusion of a scale, ONNX Runtime has PyTorch's.
FUSED_SCALE = """{"overload": "aten._scaled_dot_product_attention_math.default", "arguments": {"query": {"tensor": {
    "shape": [2, 7, 2], "dtype": "bfloat16", "strides": [14, 2, 1], "offset": 0,
    "recipe": [["any"], "plain", 467295]}}, "key": {"tensor": {"shape": [2, 33, 2], "dtype": "bfloat16",
    "strides": [66, 2, 1], "offset": 1, "recipe": [["any"], "wide", 523702]}}, "value": {"tensor": {
    "shape": [2, 33, 2], "dtype": "bfloat16", "strides": [132, 4, 2], "offset": 1,
    "recipe": [["any"], "tied", 397889]}}, "attn_mask": null, "dropout_mask": null, "enable_gqa": false}}"""


def test_a_runtime_that_contradicts_itself_is_blamed_for_what_a_text_leaves_open() -> None:
    verdict = verdict_of(Invocation.from_json(FUSED_SCALE))
    assert (verdict.outcome, verdict.component) == (Outcome.MISMATCH, "ort-cpu")
    assert verdict.place == "graph optimisation, MatMulScaleFusion"


def test_elements_of_two_causes_have_two_owners() -> None:
    # ONNX Runtime computes powers of int64 in float64, and the graph adds 1 to another element.
    call = Invocation("aten.pow.Tensor_Scalar", (("self", vector([55107, 5], "int64")), ("exponent", 4)))
    nodes = [
        helper.make_node("Pow", ["c0_i0", "four"], ["power"]),
        helper.make_node("Add", ["power", "off"], ["c0_o0"]),
    ]
    model = graph_of_nodes(call, nodes, {"four": np.array(4), "off": np.array([0, 1])})
    decision = examine(trial_of(call, model=model), frozenset(), lambda name: None)
    assert (decision.blame, decision.rule) == ("backend", "wrong-node")
    assert decision.rest is not None
    assert (decision.rest.blame, decision.rest.rule) == ("converter", "graph-asks-otherwise")


#: Coordinates of which some are infinite, and others that are finite and beyond any index.
INFINITE_COORDINATE = """{"overload": "aten.grid_sampler.default",
    "arguments": {"input": {"tensor": {"shape": [1, 2, 4, 2], "dtype":
    "float32", "strides": [0, 8, 2, 1], "offset": 0, "recipe": [["any"], "facing 0 12 1", 3577149111]}},
    "grid": {"tensor": {"shape": [1, 5, 3, 2], "dtype": "float32", "strides": [60, 12, 4, 2], "offset": 0,
    "recipe": [["any"], "facing 1 15 1", 3577149112]}}, "interpolation_mode": 1, "padding_mode": 1,
    "align_corners": true}}"""
HUGE_COORDINATE = """{"overload": "aten.grid_sampler.default",
    "arguments": {"input": {"tensor": {"shape": [2, 1, 2, 3, 5],
    "dtype": "float32", "strides": [30, 30, 15, 5, 1], "offset": 0, "recipe": [["any"], "facing 0 4 0",
    61369797]}}, "grid": {"tensor": {"shape": [2, 3, 3, 2, 3], "dtype": "float32", "strides": [54, 18, 6, 3,
    1], "offset": 0, "recipe": [["any"], "facing 1 4 0", 61369798]}}, "interpolation_mode": 1, "padding_mode":
    0, "align_corners": false}}"""


def test_a_kernel_that_mistakes_extremes_has_one_fault_whatever_shows() -> None:
    infinite, huge = (Invocation.from_json(text) for text in (INFINITE_COORDINATE, HUGE_COORDINATE))
    verdicts = [verdict_of(call, opset=20) for call in (infinite, huge)]
    assert {(verdict.component, verdict.place, verdict.fault) for verdict in verdicts} == {
        ("ort-cpu", "GridSample (mode=nearest)", "wrong-at-extremes")
    }


@pytest.mark.parametrize("operator", ["var", "var_mean", "std_mean"])
def test_the_optimiser_is_not_blamed_for_a_node_that_a_conversion_has_made_invalid(operator: str) -> None:
    # prims_var asks for the size of a dimension that a 0-d tensor lacks; constant folding trips over it.
    arguments = (("self", drawn((), "float32", 1)), ("dim", (-1,)), ("keepdim", True))
    verdict = verdict_of(Invocation(f"aten.{operator}.dim", (*arguments[:2], ("unbiased", True), arguments[2])))
    assert (verdict.stage, verdict.component, verdict.place) == ("convert", "torchlib", "prims_var")


def test_a_scalar_that_a_pass_rounds_is_no_fault_of_the_division() -> None:
    # The pass that makes dtypes explicit turns 1e-8 into float16's 0, by which aten_div divides faithfully.
    call = Invocation("aten.true_divide.Scalar", (("self", vector([0.0, 1.0], "float16")), ("other", 1e-8)))
    verdict = verdict_of(call)
    assert (verdict.component, verdict.place) == ("dynamo", "type promotion")


def test_an_antialiasing_kernel_that_moves_corner_pixels_is_pytorchs() -> None:
    image = drawn((1, 1, 3, 4), "float32", 1)
    arguments = (("self", image), ("output_size", (5, 7)), ("align_corners", True), ("scales_h", None))
    verdict = verdict_of(Invocation("aten._upsample_bilinear2d_aa.default", (*arguments, ("scales_w", None))))
    assert (verdict.blame, verdict.place) == ("pytorch", "kernel of aten._upsample_bilinearNd_aa")
    plain = verdict_of(Invocation("aten.upsample_bilinear2d.default", (*arguments, ("scales_w", None))))
    assert plain.outcome is Outcome.PASS
