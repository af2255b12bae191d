"""Symptoms of one slip are one defect, and slips of one function that have nothing in common are several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from converter_failures import CAST, INVALID, REJECTED, RUNNING, WRONG, failed, groups
from harness_runs import vector

from harness.compare import Outcome, Stage


def dtype(right: str, wrong: str) -> str:
    return f"dtype: output 0: expected {right}, got {wrong}"


LOST, VALUES = "NaN positions: output 0: expected nan, got 1.0", "values: output 0: expected 1.0, got 2.0"
DIFFER = "InferenceError: [ShapeInferenceError] (op_type:Sqrt, node name: n): [ShapeInferenceError] Inferred "
RANKS = DIFFER.replace("Sqrt", "Reshape") + "shape and existing shape differ in rank: "
SIZES = "InferenceError: [ShapeInferenceError] Inferred shape and existing shape differ in dimension 0: "
OPEN = (
    "The graph that torchscript emits rests on what the specification leaves open, which the call does not. "
    "ONNX Cast: “fixed point: undefined if OOR.”. The graph asks Cast for another float."
)
SHAPE = "shape: output 0: expected [1], got [2]"
RESHAPE = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. Name:'n' "
    "Status Message: The input tensor cannot be reshaped to the requested shape."
)
SCATTER = RUNNING.format("ScatterND node. Name:'n' Status Message: invalid indice found, indice = 1")
DIVIDED = "/onnxruntime_src/div.cc:1 Compute Integer division by zero"
EXPORTED: dict[str, Any] = {"stage": Stage.CONVERT, "outcome": Outcome.ERROR}
REFUSED: dict[str, Any] = {"stage": Stage.RUN, "outcome": Outcome.ERROR}
BOTH = ("std.dim", "var.dim")


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        # What a wrapper gives is wrong wherever the wrapped function is called.
        ([(name, "shape: output 0: expected [1], got []", WRONG) for name in BOTH], 1),
        (
            [
                ("std.dim", f"{DIFFER}shape and existing shape differ in rank: (0) vs (1)", REJECTED),
                ("var.dim", "shape: output 0: expected [1], got []", WRONG),
            ],
            1,
        ),
        (
            [
                ("std.dim", f"{DIFFER}shape and existing shape differ in rank: (2) vs (1)", REJECTED),
                ("var.dim", "shape: output 0: expected [1], got []", WRONG),
            ],
            2,
        ),
        # Constants are folded, or not.
        (
            [
                (
                    "__rshift__.Tensor",
                    f"[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Div node. "
                    f"Name:'n' Status Message: {DIVIDED}",
                    {"stage": Stage.RUN, "outcome": Outcome.ERROR},
                ),
                (
                    "__rshift__.Tensor",
                    f"[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: {DIVIDED}",
                    {"stage": Stage.LOAD, "outcome": Outcome.ERROR},
                ),
            ],
            1,
        ),
        # A helper has a node for each of the operators that it is for.
        (
            [
                ("max.default", INVALID.format("ReduceMax") + CAST, REJECTED),
                ("max.dim", INVALID.format("ReduceMax") + CAST, REJECTED),
                ("max.other", INVALID.format("Max") + CAST, REJECTED),
            ],
            2,
        ),
        # A dtype of the call is ignored in one operator, and none is given in another one.
        (
            [
                ("normal.Tensor_Tensor", dtype("float64", "float32"), WRONG),
                ("normal.float_float", dtype("float32", "float64"), WRONG),
            ],
            2,
        ),
        ([("sub.Tensor", dtype(*pair), WRONG) for pair in (("int8", "int32"), ("int32", "int8"))], 1),
        # Another rank may come of the sizes, but not where nothing has the shape that is asked for.
        (
            [
                ("reshape.default", f"{RANKS}(0) vs (2)", REJECTED),
                ("reshape.default", RESHAPE, REFUSED),
            ],
            2,
        ),
        (
            [
                ("masked_scatter.default", "shape: output 0: expected [3], got [1]", WRONG),
                ("masked_scatter.default", SCATTER, REFUSED),
            ],
            1,
        ),
        # What is left out is not of a wrong size.
        ([("cat.default", f"{SIZES}{pair}", REJECTED) for pair in ("(0) vs (2)", "(2) vs (3)")], 2),
        ([("cat.default", f"{SIZES}{pair}", REJECTED) for pair in ("(4) vs (2)", "(2) vs (3)")], 1),
        # Out of range a cast gives anything.
        ([("div.Tensor_mode", message, {**WRONG, "evidence": OPEN}) for message in (LOST, VALUES)], 1),
        # A comparison loses NaN, whatever else is wrong.
        ([("logit.default", LOST, WRONG), ("logit.default", VALUES, WRONG)], 2),
        # A call without a kernel for traced tensors is each operator's own lack.
        (
            [
                (f"{name}.default", "RuntimeError: Cannot access data pointer of Tensor", EXPORTED)
                for name in ("_shape_as_tensor", "_pad_packed_sequence")
            ],
            2,
        ),
    ],
)  # fmt: skip
def test_one_slip_has_several_symptoms_and_one_helper_several_slips(
    rows: list[tuple[str, str, dict[str, Any]]], count: int
) -> None:
    found = [
        failed(f"aten.{name}", message, **{"structure_id": f"{n}", "case_id": f"{n:012}", **how})
        for n, (name, message, how) in enumerate(rows)
    ]
    assert len(groups(*found)) == count


def test_an_export_ends_where_a_function_of_pytorchs_asks_for_data() -> None:
    said = (
        "TorchExportError: This is step 1/3 GuardOnDataDependentSymNode: Could not guard on data\n"
        "Caused by: (_decomp/decompositions.py:3846 in {})"
    )
    names = {"rnn_tanh": "one_layer_rnn", "gru": "one_layer_rnn", "lstm": "one_layer_lstm"}
    rows = [
        failed(f"aten.{name}.data", said.format(function), converter="dynamo", **EXPORTED)
        for name, function in names.items()
    ]
    found = {group.place: len(group.overloads) for group in groups(*rows)}
    file = "torch/_decomp/decompositions.py"
    assert found == {
        f"dynamo: torch.export, one_layer_rnn in {file}": 2,
        f"dynamo: torch.export, one_layer_lstm in {file}": 1,
    }


def test_bfloat16_that_becomes_complex_is_a_pass_of_torchscripts() -> None:
    how = EXPORTED
    scalar = "RuntimeError: ScalarType {} is an unexpected tensor scalar type"
    rows = [failed("aten.lerp.Scalar", scalar.format("ComplexDouble"), **how)]
    rows += [
        failed(
            "aten.fmod.Tensor",
            INVALID.format("Cast") + "output has unsupported type tensor(complex128)",
            **REJECTED,
        )
    ]
    assert {group.place for group in groups(*rows)} == {"torchscript: type promotion"}
    of_complex = {"self": vector([1j], "complex64")}
    rows += [failed("aten.lerp.Scalar", scalar.format("ComplexDouble"), of=of_complex, **how)]
    rows += [failed("aten.logit.default", "OnnxExporterError: Unknown torch or scalar type: 'UInt16'", **how)]
    found = {group.place: len(group.overloads) for group in groups(*rows)}
    assert found["torchscript: type promotion"] == 2
    # It looks dtypes up in a table of C++'s, and in one of Python's.
    export = "torchscript: export of {} in torch/onnx/_internal/torchscript_exporter/symbolic_opset9.py"
    assert found == {"torchscript: type promotion": 2, **{export.format(f): 1 for f in ("lerp", "logit")}}


def test_a_runtime_refuses_the_models_of_an_operator_for_one_reason_whoever_is_blamed() -> None:
    refused = RUNNING.format("CumSum node. Name:'n' Status Message: Cannot apply CumSum operator on a scalar")
    how: dict[str, Any] = {"stage": Stage.RUN, "outcome": Outcome.ERROR}
    one = failed("aten.cumsum.default", refused, **how)
    alone = (
        "ort-cpu fails on a valid node. ort-cpu does not run CumSum (node 0) by itself, which is valid and "
        "has a defined result: x"
    )
    other = replace(one, converter="dynamo", blame="backend", evidence=alone)
    assert len(groups(one, other)) == 1
    assert len(groups(one, replace(other, overload="aten.logcumsumexp.default"))) == 2
    # What nobody is blamed for is the one thing that somebody is blamed for.
    shape = failed("aten.cdist.default", "shape: output 0: expected [1], got []")
    unknown = replace(shape, blame="unknown", message="shape: output 0: expected [2], got [3]", case_id="2")
    [group] = groups(shape, unknown)
    assert (group.blame, group.cases) == ("converter", 2)
    assert len(groups(shape, replace(shape, blame="pytorch"), unknown)) == 3


def test_a_pass_does_one_thing_whatever_elements_show_it() -> None:
    broken = (
        "dynamo's optimiser breaks the graph: it is right before it. dynamo's export gives PyTorch's result "
        "without its pass{} of dynamo's optimiser."
    )

    def after(message: str, passes: str) -> dict[str, Any]:
        return {"message": message, "converter": "dynamo", "evidence": broken.format(passes)}

    nan = "NaN positions: output 0: expected 1.0, got nan"
    of = "aten._batch_norm_no_update.default"
    one, other, another = (
        failed(of, **after(message, passes), case_id=f"{n:012}")
        for n, (message, passes) in enumerate(
            [(VALUES, " RewritePass"), (nan, " RewritePass"), (nan, " FoldConstantsPass")]
        )
    )
    assert len(groups(one, other)) == 1
    assert len(groups(one, another)) == 2


def test_a_number_is_rounded_by_the_exporter_and_an_attribute_by_the_function_that_has_it() -> None:
    rounded = (
        "The graph that dynamo emits computes at lower precision than the call. The graph has 0.1 as "
        "float32, 0.10000000149011612: with that, PyTorch gives ort-cpu's result."
    )
    how = {"message": VALUES, "evidence": rounded, "converter": "dynamo"}
    numbers = [failed(f"aten.{name}", **how) for name in ("add.Tensor", "sub.Tensor", "celu.default")]
    [group] = groups(*numbers)
    assert group.place == "dynamo: numbers of the call"
    attributes = [failed(f"aten.{name}.default", **how) for name in ("layer_norm", "group_norm")]
    assert len({group.place for group in groups(*numbers, *attributes)}) == 3
    # Each symbolic function of TorchScript's has its own way with numbers.
    assert len(groups(*(replace(row, converter="torchscript") for row in numbers[1:]))) == 2


def test_corners_that_are_aligned_have_a_formula_of_their_own() -> None:
    names = ("_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default")
    for name in names:
        rows = [
            failed(
                f"aten.{name}", VALUES, of={"self": vector([0.5]), "align_corners": aligned}, case_id=str(n)
            )
            for n, aligned in enumerate((False, True))
        ]
        assert len(groups(*rows)) == 2
        # The shape of a result is nothing of the formula.
        assert len(groups(*(replace(row, message=SHAPE, signature="shape") for row in rows))) == 1


def test_a_second_operand_of_another_dtype_was_not_promoted() -> None:
    second = INVALID.format("Less").replace("node name: n", "node name: node_less_4") + (
        "B typestr: T, has unsupported type: tensor(int64)"
    )
    rows = [failed(f"aten.{name}.Tensor", second, "dynamo", **REJECTED) for name in ("less", "greater")]
    [group] = groups(*rows)
    assert group.place == "dynamo: type promotion"
    [group] = groups(
        failed("aten.less.Tensor", second.replace("B typestr", "A typestr"), "dynamo", **REJECTED)
    )
    assert group.place.startswith("torchlib: aten_lt")


def test_arithmetic_that_is_put_another_way_has_an_infinity_for_nan() -> None:
    infinite = "NaN positions: output 0: expected nan, got inf"
    [group] = groups(failed("aten.floor_divide.default", infinite))
    assert group.cause == "leaves the range of its numbers"
    [group] = groups(failed("aten.floor_divide.default", LOST))
    assert group.cause == "loses NaN"


def test_what_one_converter_is_blamed_for_is_not_the_others() -> None:
    message = RUNNING.format(
        "ScatterElements node. Name:'n' Status Message: Indices vs updates dimensions differ"
    )
    how = {"stage": Stage.RUN, "outcome": Outcome.ERROR}
    blamed = failed("aten.scatter.src", message, "torchscript", **how)
    for converter, count in (("dynamo", 2), ("torchscript", 1)):
        unknown = failed("aten.scatter.src", message, converter, **how, blame="unknown", case_id="b" * 12)
        assert len(groups(blamed, unknown)) == count
