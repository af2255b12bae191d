"""Calls whose verdict was once wrong, from start to end, with what a look at the sources gives."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from harness_runs import literal_unit
from recorded_rows import call, tensor

from harness.compare.verdict import Outcome, Verdict
from harness.core.invocation import Enumerated, Invocation, Recipe, TensorSpec, contiguous_strides
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import run_unit


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    """A worker for all cases of this file."""
    with Supervisor(timeout=60) as started:
        yield started


def drawn(
    shape: tuple[int, ...], style: str, seed: int, dtype: str = "float32", strides: tuple[int, ...] = ()
) -> TensorSpec:
    """Return a tensor with drawn values."""
    return TensorSpec(shape, dtype, strides or contiguous_strides(shape), 0, Recipe(("any",), style, seed))


def attention(query: TensorSpec, key: TensorSpec, value: TensorSpec, **more: Any) -> Invocation:
    return call("aten.scaled_dot_product_attention.default", query=query, key=key, value=value, **more)


def owned(blame: str, component: str, place: str) -> dict[str, Any]:
    """Return the facts of a failure."""
    return {"blame": blame, "component": component, "place": place}


PASSES = {"outcome": Outcome.PASS}
#: Facts of a result that is as exact as its operator's own formula, each step rounded.
INACCURATE = {"outcome": Outcome.INACCURATE, "component": "ort-cpu", "fault": "inaccurate"}
MISMATCH = {"outcome": Outcome.MISMATCH}
EXTREMES = {"component": "ort-cpu", "place": "GridSample (mode=nearest)", "fault": "wrong-at-extremes"}
SMALL = [-0.0123, -0.0313, -0.0007, 2.0]
RESIZED = {
    "self": drawn((1, 1, 3, 4), "plain", 1),
    "output_size": (5, 7),
    "align_corners": True,
    "scales_h": None,
    "scales_w": None,
}
#: Call, and facts of its verdict.
CASES: dict[str, tuple[Invocation, Mapping[str, Any]]] = {
    # The optimiser drops numbers of up to 1e-8: https://github.com/microsoft/onnxscript, identity rules.
    "an identity that is none": (
        call("aten.subtract.Scalar", self=[0.0, 1.0], other=1e-30),
        owned("converter", "dynamo", "optimiser, identity of Sub"),
    ),
    # The axis is wrong before the optimiser, too; the checker sees it only once constants are folded.
    "an axis of a number": (
        call("aten.pairwise_distance.default", x1=tensor(1.0), x2=tensor(2.0)),
        owned("converter", "torchlib", "aten_linalg_vector_norm"),
    ),
    # The maximum of nothing is the least integer, which is true as a bool; the call is decomposed to it.
    "a call inside": (
        call("aten.isin.Scalar_Tensor", element=3.0, test_elements=tensor([], shape=(0, 2))),
        owned("converter", "torchlib", "aten_any_dim"),
    ),
    # PyTorch's kernel reads one column wrongly; the graph gives what is documented.
    "one column": (
        call(
            "aten._upsample_bicubic2d_aa.default",
            self=tensor([[[[-2.0], [-2.0], [-1000.0]]]]),
            output_size=(7, 1),
            align_corners=False,
        ),
        PASSES,
    ),
    # A zero point of int32 is to be 0, and the scale is rounded to float32.
    "a zero point": (
        call(
            "quantized_decomposed.dequantize_per_tensor.default",
            input=tensor([1, 2], "int32"),
            scale=0.037,
            zero_point=127,
            quant_min=-128,
            quant_max=127,
            dtype=Enumerated("dtype", "int32"),
            out_dtype=Enumerated("dtype", "float64"),
        ),
        owned("converter", "torchlib", "quantized_decomposed_dequantize_per_tensor"),
    ),
    # The exporter's own pass makes a half a float32 before it is compared; PyTorch makes the number a half.
    "a promotion": (
        call("aten.less_equal.Scalar", self=tensor([-0.33325195, 1.0], "float16"), other=-0.3333333333333333),
        owned("converter", "dynamo", "type promotion"),
    ),
    # The same pass turns 1e-8 into float16's 0, by which aten_div divides faithfully.
    "a scalar that a pass rounds": (
        call("aten.true_divide.Scalar", self=tensor([0.0, 1.0], "float16"), other=1e-8),
        owned("converter", "dynamo", "type promotion"),
    ),
    # The kernel computes x * (w / s) + (b - mean * w / s), which is inf - inf; the graph gives the documented formula.
    "an infinite weight": (
        call(
            "aten.group_norm.default",
            input=tensor([[1.0, 2.0], [3.0, 5.0]]),
            num_groups=1,
            weight=[math.inf, 1.0],
            bias=[0.0, 0.0],
        ),
        PASSES,
    ),
    # In rational arithmetic the first number is left of the edge at 0.
    "an edge between bins": (call("aten.histc.default", self=[-1e-30, 0.5], bins=4, min=-2, max=2), PASSES),
    # What an attribute of ONNX cannot hold is lost by the choice of the operator.
    "an epsilon in float64": (
        call(
            "aten.layer_norm.default",
            input=tensor([[0.1, 0.2, 0.4]], "float64"),
            normalized_shape=(3,),
            weight=tensor([1.0, 1.0, 1.0], "float64"),
            eps=0.1,
        ),
        owned("converter", "torchlib", "aten_layer_norm"),
    ),
    # prims_var asks for the size of a dimension that a 0-d tensor lacks; constant folding trips over it.
    **{
        f"{operator} of a number": (
            call(f"aten.{operator}.dim", self=tensor(0.5), dim=(-1,), unbiased=True, keepdim=True),
            {"stage": "convert", "component": "torchlib", "place": "prims_var"},
        )
        for operator in ("var", "var_mean", "std_mean")
    },
    "antialiasing moves corner pixels": (
        call("aten._upsample_bilinear2d_aa.default", **RESIZED),
        {"blame": "pytorch", "place": "kernel of aten._upsample_bilinearNd_aa"},
    ),
    "corner pixels stay": (call("aten.upsample_bilinear2d.default", **RESIZED), PASSES),
    # Scores that overflow on their way are left open; without its fusion of a scale, ONNX Runtime has PyTorch's.
    "a runtime that contradicts itself": (
        call(
            "aten._scaled_dot_product_attention_math.default",
            query=drawn((2, 7, 2), "plain", 467295, "bfloat16"),
            key=TensorSpec((2, 33, 2), "bfloat16", (66, 2, 1), 1, Recipe(("any",), "wide", 523702)),
            value=TensorSpec((2, 33, 2), "bfloat16", (132, 4, 2), 1, Recipe(("any",), "tied", 397889)),
            attn_mask=None,
            dropout_mask=None,
            enable_gqa=False,
        ),
        {**MISMATCH, "component": "ort-cpu", "place": "graph optimisation, MatMulScaleFusion"},
    ),
    # Formulas rounded step by step.
    "Elu": (call("aten.elu.default", self=SMALL), {**INACCURATE, "place": "Elu"}),
    "Celu": (call("aten.celu.default", self=SMALL), {**INACCURATE, "place": "Celu"}),
    "Gelu": (
        call("aten.gelu.default", self=[-3.9, -4.4, -4.8, -5.1], approximate="tanh"),
        {**INACCURATE, "place": "Gelu (approximate=tanh)"},
    ),
    # torchlib leaves `input_scale` out.
    "a dropped argument of Elu": (
        call("aten.elu.default", self=[-0.5, -1.5, 2.0], input_scale=3.0),
        {**MISMATCH, "component": "torchlib"},
    ),
    # Softmax in float32, and its result cast to the float64 that is asked for.
    "computed in a narrower dtype": (
        call("aten.softmax.int", self=[0.3, 1.2, -0.7], dim=0, dtype=Enumerated("dtype", "float64")),
        MISMATCH,
    ),
    # The largest of a row has no rounding: else a difference to it is anything.
    "a dropped argument of large numbers": (
        call(
            "aten.cross_entropy_loss.default",
            self=drawn((7, 2), "wide", 498568742),
            target=TensorSpec((7,), "int64", (1,), 0, Recipe(("index_or", 2, -100), "alternating 1", 498568743)),
            reduction=2,
            label_smoothing=1.0,
        ),
        MISMATCH,
    ),
    "NaN for a number": (
        attention(
            drawn((2, 3, 3, 8), "one", 885060, "float16", (72, 8, 24, 1)),
            drawn((2, 3, 33, 8), "one", 330764, "float16", (792, 264, 1, 33)),
            drawn((2, 3, 33, 8), "one", 292366, "float16", (8, 528, 16, 1)),
            attn_mask=None,
            scale=None,
        ),
        MISMATCH,
    ),
}
#: The same of exports with a later opset: the opset, the call, and facts of its verdict.
LATER: dict[str, tuple[int, Invocation, Mapping[str, Any]]] = {
    # The function body computes the scale in float32, as ONNX Runtime does; only the evaluator's kernel does not.
    "a function body outranks the evaluator": (
        23,
        attention(
            *(drawn(shape, "plain", n, "float64") for n, shape in enumerate([(1, 3, 2, 8), *[(1, 1, 8, 8)] * 2])),
            is_causal=True,
            enable_gqa=True,
        ),
        {**MISMATCH, "blame": "converter", "fault": "as-exact-as-float32"},
    ),
    # Coordinates of which some are infinite, and others that are finite and beyond any index.
    "an infinite coordinate": (
        20,
        call(
            "aten.grid_sampler.default",
            input=drawn((1, 2, 4, 2), "facing 0 12 1", 3577149111, strides=(0, 8, 2, 1)),
            grid=drawn((1, 5, 3, 2), "facing 1 15 1", 3577149112, strides=(60, 12, 4, 2)),
            interpolation_mode=1,
            padding_mode=1,
            align_corners=True,
        ),
        EXTREMES,
    ),
    "a huge coordinate": (
        20,
        call(
            "aten.grid_sampler.default",
            input=drawn((2, 1, 2, 3, 5), "facing 0 4 0", 61369797, strides=(30, 30, 15, 5, 1)),
            grid=drawn((2, 3, 3, 2, 3), "facing 1 4 0", 61369798, strides=(54, 18, 6, 3, 1)),
            interpolation_mode=1,
            padding_mode=0,
            align_corners=False,
        ),
        EXTREMES,
    ),
}


def ended(supervisor: Supervisor, case: Invocation, opset: int | None = None) -> Verdict:
    """Return the verdict of a call through dynamo and ONNX Runtime."""
    unit = literal_unit([case], backends=["ort-cpu"], opset=opset)
    ((verdict,),) = run_unit(unit, supervisor)
    return verdict


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_is_that_of_a_look_at_the_sources(name: str, supervisor: Supervisor) -> None:
    case, facts = CASES[name]
    assert facts.items() <= vars(ended(supervisor, case)).items()


@pytest.mark.parametrize("name", LATER)
def test_the_verdict_with_a_later_opset_is_that_of_a_look_at_the_sources(name: str, supervisor: Supervisor) -> None:
    opset, case, facts = LATER[name]
    assert facts.items() <= vars(ended(supervisor, case, opset)).items()


def test_a_case_has_a_problem_of_each_owner(supervisor: Supervisor) -> None:
    # Some scores overflow on their way, which ONNX leaves open; others are wrong.
    case = attention(
        drawn((2, 2, 7, 4), "wide", 727472, "float16", (112, 56, 8, 2)),
        drawn((2, 2, 8, 4), "halves", 215752, "float16", (4, 64, 8, 1)),
        drawn((2, 2, 8, 4), "saturating", 987810, "float16", (64, 32, 4, 1)),
    )
    problems = json.loads(ended(supervisor, case, 23).problems)
    assert [(p["outcome"], p["blame"]) for p in problems] == [("mismatch", "converter"), ("mismatch", "spec")]
