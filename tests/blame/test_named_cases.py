"""Calls whose culprit was once named wrongly, with the culprit that a look at the sources gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
from harness_runs import literal_unit

from harness.core.invocation import Enumerated, Invocation, Literal, TensorSpec
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import find_groups, run_part


@pytest.fixture(scope="module")
def supervisor() -> Iterator[Supervisor]:
    """A worker for all cases of this file."""
    with Supervisor(timeout=60) as started:
        yield started


def tensor(values: list[Any], *shape: int, dtype: str = "float32") -> TensorSpec:
    """A row-major tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return TensorSpec(shape, dtype, tuple(reversed(strides)), 0, Literal(tuple(values)))


def call(overload: str, **arguments: Any) -> Invocation:
    """A call of an operator."""
    return Invocation(overload, tuple(arguments.items()))


#: The culprit of a case that passes.
PASSES = ("", "", "")
#: Call, whose failure it is, component, place.
CASES = {
    # The optimiser drops numbers of up to 1e-8: https://github.com/microsoft/onnxscript, identity rules.
    "an identity that is none": (
        call("aten.subtract.Scalar", self=tensor([0.0, 1.0], 2), other=1e-30),
        ("converter", "dynamo", "optimiser, identity of Sub"),
    ),
    # The axis is wrong before the optimiser, too; the checker sees it only once constants are folded.
    "an axis of a number": (
        call("aten.pairwise_distance.default", x1=tensor([1.0], dtype="float32"), x2=tensor([2.0], dtype="float32")),
        ("converter", "torchlib", "aten_linalg_vector_norm"),
    ),
    # The maximum of nothing is the least integer, which is true as a bool; the call is decomposed to it.
    "a call inside": (
        call("aten.isin.Scalar_Tensor", element=3.0, test_elements=tensor([], 0, 2)),
        ("converter", "torchlib", "aten_any_dim"),
    ),
    # PyTorch's kernel reads one column wrongly; the graph gives what is documented.
    "one column": (
        call(
            "aten._upsample_bicubic2d_aa.default",
            self=tensor([-2.0, -2.0, -1000.0], 1, 1, 3, 1),
            output_size=(7, 1),
            align_corners=False,
        ),
        PASSES,
    ),
    # A zero point of int32 is to be 0, and the scale is rounded to float32.
    "a zero point": (
        call(
            "quantized_decomposed.dequantize_per_tensor.default",
            input=tensor([1, 2], 2, dtype="int32"),
            scale=0.037,
            zero_point=127,
            quant_min=-128,
            quant_max=127,
            dtype=Enumerated("dtype", "int32"),
            out_dtype=Enumerated("dtype", "float64"),
        ),
        ("converter", "torchlib", "quantized_decomposed_dequantize_per_tensor"),
    ),
    # The exporter's own pass makes a half a float32 before it is compared; PyTorch makes the number a half.
    "a promotion": (
        call("aten.less_equal.Scalar", self=tensor([-0.33325195, 1.0], 2, dtype="float16"), other=-0.3333333333333333),
        ("converter", "dynamo", "type promotion"),
    ),
    # The kernel computes x * (w / s) + (b - mean * w / s), which is inf - inf; the graph gives the documented formula.
    "an infinite weight": (
        call(
            "aten.group_norm.default",
            input=tensor([1.0, 2.0, 3.0, 5.0], 2, 2),
            num_groups=1,
            weight=tensor([math.inf, 1.0], 2),
            bias=tensor([0.0, 0.0], 2),
        ),
        PASSES,
    ),
    # In rational arithmetic the first number is left of the edge at 0.
    "an edge between bins": (
        call("aten.histc.default", self=tensor([-1e-30, 0.5], 2), bins=4, min=-2, max=2),
        PASSES,
    ),
    # What an attribute of ONNX cannot hold is lost by the choice of the operator.
    "an epsilon in float64": (
        call(
            "aten.layer_norm.default",
            input=tensor([0.1, 0.2, 0.4], 1, 3, dtype="float64"),
            normalized_shape=(3,),
            weight=tensor([1.0, 1.0, 1.0], 3, dtype="float64"),
            eps=0.1,
        ),
        ("converter", "torchlib", "aten_layer_norm"),
    ),
}


@pytest.mark.parametrize(("case", "culprit"), CASES.values(), ids=CASES)
def test_the_culprit_is_named(case: Invocation, culprit: tuple[str, str, str], supervisor: Supervisor) -> None:
    unit = literal_unit([case], backends=["ort-cpu"])
    ((source, groups),) = find_groups(unit, supervisor, print)
    (verdict,) = (v for part in run_part(unit, supervisor, source, groups) for v in part)
    assert (verdict.blame, verdict.component, verdict.place) == culprit
