"""PyTorch's decomposition of an operator is blamed for its part in a failure."""

from __future__ import annotations

import numpy as np
import pytest
from failure_contexts import trial_of, words_of
from harness_runs import vector

from harness.blame.examine import examine
from harness.blame.failure_context import FailureContext
from harness.compare.diagnosis import Diagnosis
from harness.compare.verdict import Outcome
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.pipeline.definition import defined_outputs


def blamed(context: FailureContext) -> Diagnosis:
    return examine(context, frozenset(), lambda name: None)


def tensor(shape: tuple[int, ...], values: list[float], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(values)))


def test_a_decomposition_that_the_exporter_leaves_alone_is_not_to_blame() -> None:
    # Both make a copy of the source of it; the exporter has a conversion of its own.
    call = Invocation(
        "aten.slice_scatter.default",
        (("self", vector([1, 2], "int64")), ("src", vector([3, 4], "int32")), ("dim", 0), ("end", None)),
    )
    decision = blamed(trial_of(call, backend="onnx-reference"))
    assert decision.blame == "converter"
    assert "but dynamo translates the operator itself" in words_of(decision)


@pytest.mark.parametrize(("beta", "blame"), [(2.0, "pytorch"), (0.1, "converter")])
def test_a_graph_is_no_worse_than_a_definition_that_it_repeats_and_worse_where_it_adds(beta: float, blame: str) -> None:
    # The kernel leaves out an infinite product of weight zero; the graph has its scale as a float32.
    call = Invocation(
        "aten.addmv.default",
        (
            ("self", vector([3.0, 3.0], "float64")),
            ("mat", tensor((2, 1), [float("inf"), 1.0], "float64")),
            ("vec", vector([1.0], "float64")),
            ("beta", beta),
            ("alpha", 0.0),
        ),
    )
    decision = blamed(trial_of(call, backend="onnx-reference"))
    assert decision.blame == blame
    assert "PyTorch's decomposition of the operator gives onnx-reference's result" in words_of(decision)


def test_a_decomposition_that_does_not_run_in_pytorch_either_is_pytorchs() -> None:
    # It reads beyond an image that is one pixel wide.
    call = Invocation(
        "aten.upsample_bilinear2d.default",
        (
            ("self", tensor((1, 1, 1, 1), [7.0])),
            ("output_size", (1, 3)),
            ("align_corners", False),
            ("scales_h", 1.5),
            ("scales_w", 1.0),
        ),
    )
    decision = blamed(trial_of(call, outcome=Outcome.ERROR))
    assert decision.blame == "pytorch"
    assert "and fails on that itself: IndexError" in words_of(decision)


def test_what_a_composite_call_decomposes_to_is_to_blame_though_float64_confirms_the_kernel() -> None:
    # x1 + (x2 - x1)·w of two equal infinities is NaN in the decomposition, and the infinity in the kernel.
    call = Invocation(
        "aten.upsample_linear1d.vec",
        (
            ("input", tensor((1, 1, 3), [1.0, float("inf"), float("inf")])),
            ("output_size", (5,)),
            ("align_corners", True),
            ("scale_factors", None),
        ),
    )
    decision = blamed(trial_of(call))
    assert decision.blame == "pytorch"
    assert "PyTorch's decomposition of the operator gives ort-cpu's result" in words_of(decision)


def test_the_parts_of_a_composite_call_have_definitions_that_stay_in_range() -> None:
    # Its kernel multiplies an overflown variance's inverse by the mean, and ends in NaN; its definition gives zeros.
    values = [3.4028234663852886e38, 2.0, -1.0, 1.0]
    call = Invocation("aten.group_norm.default", (("input", tensor((1, 1, 4), values)), ("num_groups", 1)))
    context = trial_of(call)
    assert np.isnan(context.reference.expected[0]).all()
    assert context.comparison is not None
    assert context.comparison.problem is None


def test_parts_without_definitions_define_nothing() -> None:
    call = Invocation("aten.special_expm1.default", (("self", vector([1.0, 2.0])),))
    assert defined_outputs(call) is None
