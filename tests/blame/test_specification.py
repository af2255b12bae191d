"""A graph that assumes something other than the specification says is to blame."""

from __future__ import annotations

import numpy as np
import pytest
from failure_contexts import graph_of_nodes, trial_of, words_of
from harness_runs import unary, vector
from onnx import helper

from harness.blame.examine import examine
from harness.compare.verdict import Outcome
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, Literal, TensorSpec


def test_an_infinite_bound_asks_what_the_bound_that_is_left_out_is() -> None:
    call = Invocation("aten.clamp_min.default", (("self", vector([1.0, -2.0, 0.5])), ("min", float("inf"))))
    decision = examine(trial_of(call, converter="torchscript"), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "They default to numeric_limits::lowest() and numeric_limits::max()" in words_of(decision)


def test_what_a_weight_of_zero_makes_of_an_infinity_is_open() -> None:
    # At the corner of the image, which is infinite: PyTorch leaves its neighbours out.
    image = TensorSpec((1, 1, 2, 2), "float32", (4, 4, 2, 1), 0, Literal((1.0, 2.0, 3.0, float("inf"))))
    place = TensorSpec((1, 1, 1, 2), "float32", (2, 2, 2, 1), 0, Literal((1.0, 1.0)))
    call = Invocation(
        "aten.grid_sampler_2d.default",
        (
            *(("input", image), ("grid", place)),
            *(("interpolation_mode", 0), ("padding_mode", 1), ("align_corners", True)),
        ),
    )
    decision = examine(trial_of(call), frozenset(), lambda name: None)
    assert decision.blame == "spec"
    assert "does not mention infinities and NaN whose weight is zero" in words_of(decision)


def test_whether_a_random_number_may_be_the_upper_boundary_is_open() -> None:
    call = Invocation("aten.rand_like.default", (("self", vector([0.0] * 500, "float16")),))
    decision = examine(trial_of(call), frozenset(), lambda name: None)
    assert decision.blame == "spec"
    assert "Upper boundary of the output values." in words_of(decision)


def test_where_the_only_pixel_along_an_axis_is_is_open_and_the_shape_of_a_grid_is_not() -> None:
    theta = TensorSpec((1, 2, 3), "float32", (6, 3, 1), 0, Literal((1.0, 0.5, 0.0, 0.25, 2.0, 1.0)))
    call = Invocation(
        "aten.affine_grid_generator.default",
        (("theta", theta), ("size", (1, 1, 1, 2)), ("align_corners", True)),
    )
    decision = examine(trial_of(call, converter="torchscript"), frozenset(), lambda name: None)
    assert decision.blame == "spec"
    assert "to refer to the centers of the corner pixels" in words_of(decision)
    # Another layout of the same numbers.
    pytest.importorskip("openvino")
    context = trial_of(call, converter="torchscript", backend="openvino")
    assert context.comparison is not None
    assert "shape" in str(context.comparison.message)
    assert examine(context, frozenset(), lambda name: None).blame == "backend"


def test_a_graph_of_another_shape_is_the_converters_although_a_node_of_it_fails() -> None:
    # The graph splits the last dimension in three, where PyTorch takes the first that has a size of three.
    pytest.importorskip("openvino")
    factor = TensorSpec((3, 2), "int32", (2, 1), 0, Literal((1, 2, 3, 4, 5, 6)))
    call = Invocation("aten.cross.default", (("self", factor), ("other", factor), ("dim", None)))
    context = trial_of(call, backend="openvino", outcome=Outcome.ERROR)
    decision = examine(context, frozenset(), lambda name: None)
    assert "openvino does not run Split" in words_of(decision)
    assert decision.blame == "converter"
    assert "the graph's result has the shape [3, 1]; PyTorch's has [3, 2]" in words_of(decision)


def test_what_an_evaluator_lacks_in_a_narrow_dtype_is_defined_by_a_wider_one() -> None:
    # `exp(x) - 1`; ONNX Runtime has no Sub of bfloat16.
    call = unary("aten.expm1.default", [2.0**-12, 1.0], "bfloat16")
    decision = examine(trial_of(call, backend="onnx-reference"), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "Evaluating each of its 2 nodes exactly per the ONNX specification" in words_of(decision)


PAIRS = TensorSpec((3, 2), "complex64", (2, 1), 0, Literal((1j, 2.0, 3j, 4.0, 5j, 6.0)))


def test_an_input_that_has_a_dimension_which_the_text_denies_it_is_not_valid() -> None:
    call = Invocation("aten.cumsum.default", (("self", vector([1.0, 2.0])), ("dim", 0)))
    axis = {"axis": np.array([0], np.int64)}
    model = graph_of_nodes(call, [helper.make_node("CumSum", ["c0_i0", "axis"], ["c0_o0"])], axis)
    context = trial_of(call, model=model, backend="onnx-reference", outcome=Outcome.ERROR)
    decision = examine(context, frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "its input axis has the shape [1], and ONNX's text says “A 0-D tensor”" in words_of(decision)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            # The graph is an identity of real numbers.
            Invocation("aten.fft_ifft2.default", (("self", PAIRS), ("s", None), ("dim", ()), ("norm", None))),
            "The graph declares c0_i0 with the shape [3, 2]; it has [3, 2, 2].",
        ),
        (
            Invocation(
                "aten.scatter_add.default",
                (
                    ("self", vector([1.0, 2.0, 3.0])),
                    ("dim", 0),
                    ("index", vector([0], "int64")),
                    ("src", vector([5.0, 7.0])),
                ),
            ),
            "ONNX ScatterElements: the updates have the “same rank and shape as indices”",
        ),
    ],
    ids=["the rank of an input", "the shape of updates"],
)
def test_a_model_that_only_the_reference_evaluator_takes_is_not_valid(call: Invocation, words: str) -> None:
    decision = examine(trial_of(call, outcome=Outcome.ERROR), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert words in words_of(decision)


def test_one_random_number_is_not_enough_for_many_elements() -> None:
    mean = TensorSpec((), "float32", (), 0, Literal((0.0,)))
    call = Invocation("aten.normal.Tensor_Tensor", (("mean", mean), ("std", vector([1.0] * 300))))
    decision = examine(trial_of(call), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "The graph draws 1 numbers for the 300 elements" in words_of(decision)


def test_an_input_that_lacks_a_dimension_which_the_text_asks_for_is_not_valid() -> None:
    number = TensorSpec((), "float32", (), 0, Literal((1.0,)))
    call = Invocation("aten.clone.default", (("self", number),))
    held: dict[str, Array] = {"place": np.zeros((1, 0), np.int64), "new": np.array([2.0], np.float32)}
    model = graph_of_nodes(call, [helper.make_node("ScatterND", ["c0_i0", "place", "new"], ["c0_o0"])], held)
    decision = examine(trial_of(call, model=model, outcome=Outcome.ERROR), frozenset(), lambda name: None)
    assert decision.blame == "converter"
    assert "its input data has the shape [], and ONNX's text says “Tensor of rank r >= 1.”" in words_of(decision)
