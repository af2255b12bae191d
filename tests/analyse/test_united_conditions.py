"""Symptoms in one conversion function are one defect if what they depend on is the same."""

from __future__ import annotations

from typing import Any

from converter_failures import CAST, INVALID, REJECTED, RUNNING, failed, groups
from harness_runs import vector

from harness.compare import Outcome, Stage
from harness.core import Argument, Literal, TensorSpec

RAN: dict[str, Any] = {"stage": Stage.RUN, "outcome": Outcome.ERROR}
EXPORTED: dict[str, Any] = {"stage": Stage.CONVERT, "outcome": Outcome.ERROR}
VALUES = "values: output 0: expected 1.0, got 2.0"
DIGITS = "values: output 0: expected 0.123456789012345, got 0.123456788"
LOST = "NaN positions: output 0: expected nan, got 1.5"
SHAPE = "shape: output 0: expected [1], got [2]"
DIFFER = "InferenceError: [ShapeInferenceError] Inferred shape and existing shape differ in dimension 0: "
SIZES = f"{DIFFER}(9) vs (8)"
INFERRED = "InferenceError: [ShapeInferenceError] Inference error(s): (op_type:{}, node name: n): "
SCALAR_TYPE = "SymbolicValueError: Cannot determine scalar type for this 'TensorType' instance."
UNDEFINED = INVALID.format("Sub") + CAST
COL2IM = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Col2Im node. Name:'n' "
    "Status Message: Compute 'input' dim[2] (6) does not match"
)
FLOATS, MATRIX = vector([0.5]), TensorSpec((1, 1), "float32", (1, 1), 0, Literal((0.5,)))
SINGLE = TensorSpec((), "float32", (), 0, Literal((0.5,)))
WHOLE = vector([1], "int32")

Symptom = tuple[str, dict[str, Any], dict[str, Argument]]


def count(*symptoms: Symptom, name: str = "cdist") -> int:
    """How many groups failures of one operator make, each of a graph of its own."""
    rows = [
        failed(f"aten.{name}.default", message, of=of, structure_id=str(n), case_id=f"{n:012}", **how)
        for n, (message, how, of) in enumerate(symptoms)
    ]
    return len(groups(*rows))


def of(*tensors: TensorSpec) -> dict[str, Argument]:
    return {f"x{n}": tensor for n, tensor in enumerate(tensors)}


def test_what_needs_the_same_unusual_call_is_one_defect() -> None:
    usual: list[Symptom] = [(VALUES, {}, of(FLOATS, FLOATS))] * 3
    ranks, scalars = of(FLOATS, MATRIX), of(SINGLE, SINGLE)
    assert count((SHAPE, {}, ranks), (SCALAR_TYPE, EXPORTED, ranks), *usual) == 2
    assert count((SHAPE, {}, scalars), (UNDEFINED, REJECTED, scalars), *usual) == 2
    # One of them needs it, and the other does not.
    assert count((SHAPE, {}, ranks), (SCALAR_TYPE, EXPORTED, of(FLOATS, FLOATS)), *usual) == 3
    # All that fails of the operator is such.
    assert count((SHAPE, {}, ranks), (SCALAR_TYPE, EXPORTED, ranks)) == 2


def test_a_cast_of_integers_that_is_missing_gives_wrong_numbers_and_dtypes_without_a_node() -> None:
    assert count((VALUES, {}, of(WHOLE)), (UNDEFINED, REJECTED, of(WHOLE))) == 1
    assert count((VALUES, {}, of(FLOATS)), (UNDEFINED, REJECTED, of(WHOLE))) == 2


def test_numbers_that_lose_digits_give_a_size_where_there_is_no_tensor() -> None:
    numbers: dict[str, Argument] = {"start": 0.1, "end": 4.9, "step": 0.3}
    assert count((DIGITS, {}, numbers), (SIZES, REJECTED, numbers), name="arange") == 1
    emptied = (
        "InferenceError: [ShapeInferenceError] Inferred shape and existing shape differ in dimension 0: (0) "
        "vs (1)"
    )
    assert count((VALUES, {}, numbers), (emptied, REJECTED, numbers), name="arange") == 1
    doubles = of(vector([0.5], "float64"))
    assert count((DIGITS, {}, doubles), (SIZES, REJECTED, doubles)) == 2


def test_sizes_do_not_fit_when_a_model_is_checked_or_run() -> None:
    indices = INFERRED.format("GatherND") + (
        "[ShapeInferenceError] Last dimension of `indices` input tensor in GatherND op must not be larger"
    )
    invalid = RUNNING.format("GatherND node. Name:'n' Status Message: invalid index found, index = 2")
    axis = INFERRED.format("Concat") + "[ShapeInferenceError] Negative dimension value on Concat axis"
    mul = INFERRED.format("Mul") + "[ShapeInferenceError] Incompatible dimensions"
    split = (
        "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Split node. Name:'n' "
        "Status Message: Invalid num_outputs value of 3. Size of dimension being split is 2"
    )
    vectors = of(FLOATS)
    assert count((indices, REJECTED, vectors), (invalid, RAN, vectors)) == 1
    rejected, ran = ({**how, "converter": "dynamo"} for how in (REJECTED, RAN))
    assert (
        count((axis, rejected, vectors), (mul, rejected, vectors), (split, ran, vectors), name="cross") == 1
    )
    assert count((split, RAN, vectors), (mul, REJECTED, of(SINGLE))) == 2
    ranks = INFERRED.format("GatherND") + (
        "[ShapeInferenceError] Both `data` and `indices` input tensors in GatherND op need to have rank "
        "larger than 0."
    )
    assert count((ranks, REJECTED, vectors), (invalid, RAN, vectors)) == 2


def test_a_node_that_is_wrong_computes_other_elements_or_is_not_run() -> None:
    vectors = of(FLOATS)
    assert count((VALUES, {}, vectors), (LOST, {}, vectors), (COL2IM, RAN, vectors), name="col2im") == 1
    assert count((VALUES, {}, vectors), (COL2IM, RAN, of(SINGLE)), name="col2im") == 2


def test_element_types_that_differ_are_a_missing_cast_as_other_dtypes_are() -> None:
    element = INFERRED.format("SequenceConstruct") + (
        "[TypeInferenceError] Element type of inputs are expected to be the same."
    )
    undefined = INVALID.format("SequenceConstruct") + CAST
    vectors = of(FLOATS)
    assert count((element, REJECTED, vectors), (undefined, REJECTED, vectors)) == 1
    assert count((element, REJECTED, vectors), (VALUES, {}, vectors)) == 2
    starts = INFERRED.format("Slice") + (
        "[ShapeInferenceError] Only supports `int32_t` or `int64_t` inputs for starts/ends/axes/steps"
    )
    [group] = groups(failed("aten.flip.default", starts, **REJECTED))
    assert group.cause == "gives nodes dtypes that they are not defined for"


def test_a_dtype_that_is_ignored_is_another_than_the_calls() -> None:
    ignoring = "The graph that dynamo emits ignores an argument of the call. Without `{}` PyTorch gives it."
    narrow = "dtype: output 0: expected float64, got float32"
    for argument, expected in (("dtype", 1), ("half_to_float", 2)):
        how = {"evidence": ignoring.format(argument), "converter": "dynamo"}
        symptoms = (VALUES, how, of(FLOATS)), (narrow, {"converter": "dynamo"}, of(FLOATS))
        assert count(*symptoms, name="log_softmax") == expected


def test_what_an_export_asks_of_data_is_put_in_numbers_or_in_dtypes() -> None:
    asked = (
        "in aten.take: GuardOnDataDependentSymNode: Could not extract specialized integer from {} {} ({}). x"
    )
    rows = [
        (
            asked.format("data-dependent expression", said, said),
            {**EXPORTED, "converter": "dynamo"},
            of(tensor),
        )
        for said, tensor in (("u0", FLOATS), ("zuf0", WHOLE))
    ]
    assert count(*rows, name="take") == 1


def test_a_kernel_that_refuses_models_of_more_operators_is_no_conversion_functions_slip() -> None:
    refused = RUNNING.format("CumSum node. Name:'n' Status Message: Cannot apply CumSum operator on a scalar")
    alone = (
        "ort-cpu fails on a valid node. ort-cpu does not run CumSum (node 0) by itself, which is valid and "
        "has a defined result: x"
    )
    wrong = failed("aten.cumsum.default", refused, **RAN)
    own, others = (
        failed(f"aten.{name}.default", refused, converter="dynamo", blame="backend", evidence=alone, **RAN)
        for name in ("cumsum", "cumprod")
    )
    assert len(groups(wrong, own)) == 1
    assert len(groups(wrong, own, others)) == 2


def test_values_are_wrong_for_the_argument_that_is_ignored() -> None:
    evidence = (
        "The graph that torchscript emits ignores an argument of the call. Without `scales` PyTorch gives."
    )
    ignored = (VALUES, {"evidence": evidence}, {**of(FLOATS), "scales_h": 2.0})
    for given, groups_ in ((1.5, 1), (None, 2)):
        rounded: Symptom = (VALUES, {}, {**of(WHOLE), "scale_factors": given})
        assert count(ignored, rounded, name="upsample_bicubic2d") == groups_
    # An argument that is not there may show in any elements, or in those that have no room.
    for wrong in (LOST, "overflow to infinity: output 0: expected 1.0, got inf"):
        for given, groups_ in ((1.5, 1), (None, 2)):
            other: Symptom = (wrong, {}, {**of(WHOLE), "scale_factors": given})
            assert count(ignored, other, name="upsample_bicubic2d") == groups_
    elsewhere: Symptom = (SHAPE, {}, {**of(WHOLE), "scale_factors": 1.5})
    assert count(ignored, elsewhere, name="upsample_bicubic2d") == 2
