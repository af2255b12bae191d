"""Principles of blame, each by a recorded failure that was blamed otherwise and was labelled by hand."""

from __future__ import annotations

import numpy as np
import pytest
from harness_runs import verdict_of
from test_nodes import defined

from harness.blame.decide import decide
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
