"""A root cause is a place and what is wrong with it, whichever operators show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from recorded_rows import row_of
from rich.console import Console

from harness.analyse import FailureGroup, failure_groups
from harness.analyse.grouping import render
from harness.blame.decide import at_once, decide
from harness.blame.testimony import Charge, Finding, Role, Testimony
from harness.compare import Outcome, Stage, Verdict, normalise
from harness.convert import conversion_functions
from harness.core import Invocation
from harness.core.invocation import Literal, TensorSpec
from harness.record import LocatedFailure, to_table

INVALID = "InferenceError: [ShapeInferenceError] "


def failure(
    number: int, overload: str, message: str, *said: Testimony, blame: str = "", **changes: Any
) -> Verdict:
    """A failed row, with the evidence that blame writes for what witnesses said."""
    how: dict[str, Any] = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH, "converter": "dynamo"}
    how |= {"backend": "ort-cpu", **changes}
    charge = Charge(how["stage"], how["outcome"], how["converter"], how["backend"], message)
    decision = at_once(charge) or decide(charge, said)
    call = Invocation(overload, (("self", TensorSpec((1,), "float32", (1,), 0, Literal((0.5,)))),))
    return row_of(
        call,
        case_id=f"{number:012x}",
        structure_id=how.pop("structure_id", f"{number:012x}"),
        message=message,
        signature=normalise(message),
        blame=blame or decision.blame,
        evidence=decision.evidence,
        **how,
    )


def nodes(finding: Finding, words: str) -> Testimony:
    return Testimony(Role.NODES, finding, words)


def wrong_node(node: str, taken: str, right: str, got: str) -> Testimony:
    """As `harness.blame.witnesses.node_by_node` says it."""
    words = f"ort-cpu computes {node} wrongly: of {taken} its definition gives {right}, it gives {got}."
    return nodes(
        Finding.WRONG, f"{words} With the definition's result in its place the graph gives PyTorch's."
    )


def groups(*rows: Verdict) -> list[FailureGroup]:
    return failure_groups(to_table(rows, "run"))


def places(*rows: Verdict) -> set[tuple[str, str]]:
    return {(group.place, group.cause) for group in groups(*rows)}


SIGMOID = wrong_node("Sigmoid (node 0; float32)", "float32 [[-5.5]]", "0.00407014 at [0,0]", "0.00407015")
SIGMOID_LATER = wrong_node("Sigmoid (node 3; float32)", "float32[2, 5]", "0.5 at [1,0]", "0.5000001")
MAX_NAN = wrong_node("Max (node 0; float32, float32)", "float32 [nan], float32 [1.]", "nan at [0]", "1.0")
MAX_LONG = wrong_node("Max (node 2; int64, int64)", "int64 [5], int64 [1]", "5 at [0]", "2147483649")


def test_a_wrong_kernel_is_one_defect_under_every_operator_and_converter() -> None:
    rows = [
        failure(1, "aten.sigmoid.default", "values: output 0: expected 1, got 2", SIGMOID),
        failure(2, "aten.silu.default", "values: output 0: expected 3, got 4", SIGMOID_LATER),
        failure(
            3,
            "aten.gru.input",
            "NaN positions: output 1: expected nan, got 4",
            SIGMOID,
            converter="torchscript",
        ),
    ]
    [group] = groups(*rows)
    assert (group.place, group.cause) == ("ort-cpu: Sigmoid", "is inexact")
    assert group.overloads == ("aten.gru.input", "aten.sigmoid.default", "aten.silu.default")
    assert group.converters == ("dynamo", "torchscript")
    assert group.to_data()["place"] == group.place


def test_a_kernel_may_have_two_defects() -> None:
    rows = [
        failure(1, "aten.maximum.default", "NaN positions: output 0: expected nan, got 1", MAX_NAN),
        failure(2, "aten.maximum.default", "values: output 0: expected 5, got 1", MAX_LONG),
        failure(3, "aten.clamp_min.Tensor", "values: output 0: expected 5, got 1", MAX_LONG),
    ]
    assert places(*rows) == {
        ("ort-cpu: Max", "loses NaN"),
        ("ort-cpu: comparisons of integers", "gives wrong integers"),
    }


@pytest.mark.parametrize(
    ("node", "taken", "right", "got", "place", "wrong"),
    [
        ("Exp (node 0; float32)", "float32[3]", "inf at [0]", "3.4e+38", "Exp", "loses infinities"),
        ("Exp (node 0; float32)", "float32 9.", "3e+38", "inf", "Exp", "makes infinities of numbers"),
        ("Div (node 0; float16, float16)", "float16 1.", "1.5", "nan", "Div", "makes NaN of numbers"),
        ("Abs (node 0; float16)", "float16[1, 15]", "-0.0 at [1,8]", "0.0", "Abs", "loses the sign of zero"),
        ("Exp (node 0; float32)", "float32 -88.0", "6.0e-39", "0.0", "Exp", "takes small numbers for zero"),
        ("Tan (node 0; float32)", "float32[3]", "1.5 at [0]", "-1.5", "Tan", "gives wrong numbers"),
        ("Not (node 0; bool)", "bool [True]", "False at [0]", "True", "Not", "gives wrong truth values"),
        ("Relu (node 0; bfloat16)", "bfloat16 [3]", "3 at [0]", "-3", "Relu", "gives wrong numbers"),
        ("Mean (node 1; int64)", "int64 [3]", "int64[1]", "float32[1]", "Mean", "gives a wrong dtype"),
        ("Tile (node 1; int64, int64)", "int64 [3]", "int64[2]", "int64[1]", "Tile", "gives a wrong shape"),
        (
            *("ReduceSum (node 4; float64, int64)", "float64[2, 0], int64 [-1]", "float64[2]"),
            *("float64[2, 1]", "reductions", "goes wrong with tensors without elements"),
        ),
        (
            *("ReduceMax (node 0; float64, int64; keepdims=1)", "float64 [nan], int64[0]", "nan at [0]"),
            *("1.0", "ReduceMax", "loses NaN"),
        ),
        (
            *("Resize (node 0; float32; antialias=0, mode=nearest)", "float32[3]", "0.5 at [1]", "-2.0"),
            *("Resize (mode=nearest)", "gives wrong numbers"),
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_kernel_is_read_from_the_evidence(
    node: str, taken: str, right: str, got: str, place: str, wrong: str
) -> None:
    words = "values: output 0: expected 1, got 2"
    row = failure(1, "aten.any_name.default", words, wrong_node(node, taken, right, got))
    assert places(row) == {(f"ort-cpu: {place}", wrong)}


def test_a_refusal_names_the_kernel_that_is_missing_or_else_the_node() -> None:
    missing = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Where(16)"
    inlined = "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running If node. x"
    alone = "ort-cpu does not run {} (node 0; int16) by itself, which is valid and has a defined result: no."
    clip, grid = alone.format("Clip"), alone.format("AffineGrid")
    valid = Testimony(Role.MODEL, Finding.VALID, "The ONNX checker accepts the model.")
    how = {"stage": Stage.LOAD, "outcome": Outcome.UNSUPPORTED}
    rows = [
        failure(1, "aten.clamp.default", missing, nodes(Finding.VALID, clip), valid, **how),
        failure(2, "aten.where.self", missing, valid, **how),
    ]
    [group] = groups(*rows)
    assert (group.place, len(group.overloads)) == ("ort-cpu: Where", 2)
    how = {"stage": Stage.RUN, "outcome": Outcome.ERROR}
    [group] = groups(failure(3, "aten.affine.default", inlined, nodes(Finding.VALID, grid), **how))
    assert group.place == "ort-cpu: AffineGrid"


@pytest.mark.parametrize(
    ("converter", "overloads", "place"),
    [
        ("dynamo", ("aten.add.Tensor", "aten.add.Scalar"), "torchlib: aten_add"),
        ("dynamo", ("aten.linalg_cross.default", "aten.cross.default"), "torchlib: aten_cross"),
        (
            "torchscript",
            ("aten.upsample_nearest1d.default", "aten.upsample_bilinear2d.vec"),
            "TorchScript: _interpolate in torch/onnx/",
        ),
        ("torchscript", ("aten.mean.dim", "aten.prod.dim_int"), "TorchScript: _reduce_with_dtype in "),
    ],
)
def test_operators_that_one_function_translates_have_one_place(
    converter: str, overloads: tuple[str, ...], place: str
) -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    rows = [
        failure(n, name, "shape: output 0: expected [1], got []", same, converter=converter)
        for n, name in enumerate((*overloads, "aten.celu.default"))
    ]
    found = {group.overloads: group for group in groups(*rows)}
    assert set(found) == {tuple(sorted(overloads)), ("aten.celu.default",)}
    assert found[tuple(sorted(overloads))].place.startswith(place)


def test_a_place_names_the_functions_of_the_operators_that_fail() -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    [group] = groups(failure(1, "aten.avg_pool2d.default", "shape: output 0: expected [1], got []", same))
    assert group.place == "torchlib: aten_avg_pool2d in onnxscript/function_libs/torch_lib/ops/nn.py"
    console = Console(width=100, color_system=None)
    with console.capture() as shown:
        console.print(render([group]))
    assert "torchlib: aten_avg_pool2d in nn.py: gives too few dimensions " in shown.get()
    rejected = INVALID + "(op_type:Floor, node name: n): T, has unsupported type: tensor(int8)"
    how = {"stage": Stage.CHECK, "outcome": Outcome.ERROR}
    [group] = groups(failure(1, "aten.floor.default", rejected, **how))
    assert group.place.startswith("torchlib: aten_floor in ")
    # Nothing that either calls emits it: some step of the exporter does.
    inserted = rejected.replace("Floor", "NonZero")
    rows = [failure(1, "aten.floor.default", inserted, **how)]
    assert groups(*rows)[0].place.startswith("dynamo: NonZero nodes of aten_floor in ")
    rows += [failure(2, "aten.trunc.default", inserted, **how)]
    [group] = groups(*rows)
    assert group.place == "dynamo: NonZero nodes"


def test_sixteen_bits_that_stay_float32_are_a_matter_of_type_promotion() -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    words = "dtype: output 0: expected {}, got float32"
    rows = [
        failure(1, "aten.amax.default", words.format("float16"), same),
        failure(2, "aten.cosine_similarity.default", words.format("bfloat16"), same),
    ]
    [group] = groups(*rows)
    assert (group.place, group.cause) == ("dynamo: type promotion", "leaves 16-bit results in float32")
    others = [failure(3, "aten.amax.default", words.format("float64"), same)]
    others += [failure(4, "aten.log10.default", words.format("float16"), same, converter="torchscript")]
    assert len(groups(*rows, *others)) == 3


def test_numbers_of_the_call_that_lose_bits_are_one_defect_and_computing_in_float32_is_the_functions() -> (
    None
):
    rounded = Testimony(
        Role.NARROWED, Finding.SAME, "The graph has 0.7 as float32, 0.69999: with that it is."
    )
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    words = "values: output 0: expected 0.123456789012345, got 0.123456788"
    rows = [
        failure(1, "aten.add.Tensor", words, rounded, same),
        failure(2, "aten.lerp.Scalar", words, rounded, same),
        failure(3, "aten.log2.default", words, same),
        failure(4, "aten.log2.default", "values: output 0: expected 1.2345678, got 0.5", same),
    ]
    rows.append(failure(5, "aten.log2.default", "dtype: output 0: expected float64, got float32", same))
    few = "computes in another dtype than the call"
    log2 = "torchlib: aten_log2 in onnxscript/function_libs/torch_lib/ops/core.py"
    assert places(*rows) == {("dynamo: numbers of the call", few), (log2, few), (log2, "values")}


def test_a_graph_that_is_wrong_in_several_ways_is_one_defect() -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    values, nan = "values: output 0: expected 1, got 2", "NaN positions: output 0: expected 1, got nan"
    rows = [
        failure(1, "aten.roll.default", values, same, structure_id="a"),
        failure(2, "aten.roll.default", nan, same, structure_id="a"),
    ]
    [group] = groups(*rows)
    assert group.cases == 2
    assert len(groups(rows[0], failure(2, "aten.roll.default", nan, same, structure_id="b"))) == 2
    other = failure(3, "aten.celu.default", nan, same, structure_id="a")
    assert len(groups(rows[0], other)) == 2


def test_pytorchs_defects_are_in_a_kernel_or_in_a_decomposition() -> None:
    graph = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    program = Testimony(
        Role.PROGRAM, Finding.CONTRADICTS, "PyTorch decomposes it, and gives that for itself."
    )
    meta = Testimony(Role.META, Finding.CONTRADICTS, "PyTorch's own shape and dtype rules say the same.")
    inexact = Testimony(Role.FLOAT64, Finding.CONTRADICTS, "In float64 PyTorch's own result is off by 9 ULP.")
    words = "values: output 0: expected 1, got 2"
    rows = [
        failure(1, "aten.trace.default", words, graph, program),
        failure(2, "aten.trace.default", words, graph, inexact),
        failure(3, "aten.trace.default", words, meta),
    ]
    assert {group.place for group in groups(*rows)} == {
        "PyTorch: decomposition of aten.trace",
        "PyTorch: kernel of aten.trace",
        "PyTorch: shape and dtype rules of aten.trace",
    }


def test_what_is_left_open_is_one_question_whichever_operators_ask_it() -> None:
    silent = (
        "The specification of ONNX ReduceMax (opset 20) does not mention NaN. ReduceMax (node 0; float64): x."
    )
    later = silent.replace("opset 20", "opset 18")
    quote = (
        "ONNX ReduceMean: “Reduction over an empty set of values yields undefined.”. ReduceMean (node 5; x)."
    )
    words = "values: output 0: expected 1, got 2"
    rows = [
        failure(1, "aten.max.dim", words, nodes(Finding.OPEN, silent)),
        failure(2, "aten.amax.default", words, nodes(Finding.OPEN, later)),
        failure(3, "aten.std.dim", words, nodes(Finding.OPEN, quote)),
    ]
    assert places(*rows) == {
        ("ONNX: ReduceMax", "does not mention NaN"),
        ("ONNX: ReduceMean", "“Reduction over an empty set of values yields undefined.”"),
    }


def test_nothing_is_one_defect_across_blames() -> None:
    words = "values: output 0: expected 1, got 2"
    blames = ("converter", "backend", "pytorch", "spec", "unknown")
    rows = [failure(n, "aten.celu.default", words, SIGMOID, blame=one) for n, one in enumerate(blames)]
    found = groups(*rows)
    assert sorted(group.blame for group in found) == sorted(blames)
    assert len({group.place for group in found}) > 3


def test_the_conversion_functions_are_found_where_they_are() -> None:
    for converter, overload in (("dynamo", "aten.celu.default"), ("torchscript", "aten.celu")):
        found = conversion_functions(converter)[overload]
        assert found.name.removeprefix("aten_") == "celu"
    # A converter that is another's has functions, too, of which nothing is known here.
    assert conversion_functions("yobx") == {}


def test_what_is_taken_apart_is_at_the_function_that_a_case_was_traced_to() -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    words = "shape: output 0: expected [1], got []"
    rows = [
        failure(1, "aten.cdist.default", words, same),
        failure(2, "aten.linalg_vector_norm.default", words, same),
    ]
    traced = LocatedFailure(
        case_id=rows[0].case_id,
        converter="dynamo",
        backend="ort-cpu",
        signature="shape",
        function="aten_linalg_vector_norm",
        file="onnxscript/function_libs/torch_lib/ops/linalg.py",
        line=354,
    )
    assert {group.place for group in groups(*rows)} == {
        "dynamo: conversion of aten.cdist",
        "torchlib: aten_linalg_vector_norm in onnxscript/function_libs/torch_lib/ops/linalg.py",
    }
    [group] = failure_groups(to_table(rows, "run"), located=[traced])
    assert group.place.startswith("torchlib: aten_linalg_vector_norm in ")
    assert (len(group.overloads), group.line) == (2, traced)
    elsewhere = replace(traced, signature="values")
    assert len(failure_groups(to_table(rows, "run"), located=[elsewhere])) == 2


def test_what_is_noticed_at_another_stage_is_the_same_defect() -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    rejected = f"{INVALID}Inference error(s): (op_type:Reshape, node name: n): Invalid position of 2."
    failed = (
        "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Reshape node. Name:'r' x"
    )
    how: dict[str, Any] = {"outcome": Outcome.ERROR, "converter": "torchscript", "blame": "converter"}
    rows = [
        failure(1, "aten.reshape.default", rejected, stage=Stage.CHECK, **how),
        failure(2, "aten.reshape.default", failed, stage=Stage.RUN, **how),
    ]
    [group] = groups(*rows)
    assert group.cause == "makes shapes that do not fit"
    rows = [
        failure(1, "aten.silu.default", "values: output 0: expected 3e-05, got 2e-05", same),
        failure(
            2, "aten.silu.default", "subnormals flushed to zero: output 0: expected 5e-07, got 0.0", same
        ),
    ]
    assert len(groups(*rows)) == 1


def test_dimensions_that_are_lost_and_that_are_kept_are_two_defects() -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    shapes = ("expected [1, 1], got []", "expected [], got [1, 1]", "expected [2, 3], got [3, 3]")
    rows = [
        failure(n, "aten.mean.dim", f"shape: output 0: {words}", same, converter="torchscript")
        for n, words in enumerate(shapes)
    ]
    causes = {group.cause for group in groups(*rows)}
    assert causes == {"gives too few dimensions", "gives too many dimensions", "shape"}


def test_operators_looked_at_one_by_one_stay_apart() -> None:
    words = "values: output 0: expected 1, got 2"
    rows = [
        failure(1, "aten.sigmoid.default", words, SIGMOID),
        failure(2, "aten.silu.default", words, SIGMOID),
    ]
    assert len(groups(*rows)) == 1
    assert len(failure_groups(to_table(rows, "run"), by_overload=True)) == 2


def test_operators_that_are_not_promoted_under_another_name_are_one_defect() -> None:
    same = nodes(Finding.SAME, "With its only node as the operator's definition has it, it is wrong.")
    mixed = f"{INVALID}(op_type:Less, node name: node_less_12): B has inconsistent type tensor(float16)"
    rows = [
        failure(1, "aten.divide.Tensor", "dtype: output 0: expected float32, got int8", same),
        failure(2, "aten.multiply.Scalar", "values: output 0: expected 0.5, got 0.0", same),
        failure(3, "aten.less.Tensor", mixed, stage=Stage.CHECK, outcome=Outcome.ERROR),
    ]
    [group] = groups(*rows)
    assert (group.place, group.outcome) == ("dynamo: type promotion", Outcome.MISMATCH)
    # Under its own name, and where no number is promoted, an operator has other defects.
    others = [
        failure(4, "aten.mul.Scalar", "values: output 0: expected 0.5, got 0.0", same),
        failure(5, "aten.arctan2.default", "values: output 0: expected 0.5, got 0.0", same),
    ]
    assert len(groups(*rows, *others)) == 3


def test_a_number_of_inputs_that_no_node_may_have_is_one_defect_of_all_that_emit_it() -> None:
    words = (
        "ValidationError: Node(n1) with schema(::SequenceConstruct:11) has input size 0 not in range [min=1]."
    )
    how: dict[str, Any] = {"stage": Stage.CHECK, "outcome": Outcome.ERROR}
    rows = [
        failure(n, f"aten.{name}.Tensor", words, **how) for n, name in enumerate(("split", "unsafe_split"))
    ]
    [group] = groups(*rows)
    assert group.place == "dynamo: SequenceConstruct nodes"
    # Each chooses the dtypes of what it puts into a sequence.
    words = f"{INVALID}(op_type:SequenceConstruct, node name: n): T has unsupported type: tensor(int8)"
    rows = [
        failure(n, f"aten.{name}.Tensor", words, **how) for n, name in enumerate(("split", "unsafe_split"))
    ]
    assert len(groups(*rows)) == 2
