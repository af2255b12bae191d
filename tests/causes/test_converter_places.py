"""The function of a converter that is wrong, and what makes two symptoms one defect of it."""

from __future__ import annotations

from typing import Any

import pytest
from converter_failures import CAST, INVALID, REJECTED, RUNNING, failed, groups
from harness_runs import vector

from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Enumerated, Literal, TensorSpec
from harness.present.evidence import fault_text, group_place


def test_each_algorithm_of_a_function_has_defects_of_its_own() -> None:
    values, pair = "values: output 0: expected 1.0, got 2.0", {"self": vector([1.0]), "other": vector([2.0])}
    rows = [failed("aten.div.Tensor", values, of=pair, function="div")]
    for mode in ("floor", "trunc"):
        rows += [
            failed(f"aten.{name}.Tensor_mode", values, of={**pair, "rounding_mode": mode}, function="div")
            for name in ("div", "divide")
        ]
    found = {group_place(group).partition(" in ")[0]: len(group.overloads) for group in groups(*rows)}
    assert found == {
        "TorchScript: div": 1,
        "TorchScript: div (rounding_mode=floor)": 2,
        "TorchScript: div (rounding_mode=trunc)": 2,
    }


def test_a_pass_of_torchscripts_takes_0d_tensors_for_numbers_in_all_operators() -> None:
    float64 = "dtype: output 0: expected float64, got float32"
    several = {"self": vector([0.5], "float64")}
    single = {"self": TensorSpec((), "float64", (), 0, Literal((0.5,)))}
    rows = [failed(f"aten.{name}.default", float64, of=single) for name in ("log10", "celu")]
    complex128 = INVALID.format("Cast") + "output has unsupported type tensor(complex128)"
    rows += [failed(f"aten.{name}.default", complex128, **REJECTED) for name in ("maximum", "minimum")]
    found = {(group_place(group), len(group.overloads)) for group in groups(*rows)}
    assert found == {("torchscript: type promotion", 2)}
    assert len(groups(*rows)) == 2
    # Where a dtype is asked for, or there are tensors that are not numbers, it is the function's own.
    others = [failed("aten.log10.default", float64, of=several)]
    others += [failed("aten.linspace.Scalar_Tensor", float64, of={**single, "dtype": Enumerated("dtype", "float64")})]
    assert not any("promotion" in group_place(group) for group in groups(*others))


def test_torchscript_takes_no_bool_for_a_number_in_any_operator() -> None:
    assertion = 'RuntimeError: 0 INTERNAL ASSERT FAILED at "/a/torch/csrc/jit/ir/alias_analysis.cpp":623, x. '
    message = assertion + "We don't have an op for aten::{} but it isn't a special case. Argument types: {}, "
    how = {"stage": Stage.CONVERT, "outcome": Outcome.ERROR}
    rows = [failed(f"aten.{name}.Scalar", message.format(name, "Tensor, bool"), **how) for name in ("lt", "eq")]
    rows += [failed("aten.view.dtype", message.format("view", "Tensor, int"), **how)]
    rows += [failed("aten.zero.default", message.format("zeros_like", "Tensor"), **how)]
    assert {(fault_text(group.cause), len(group.overloads)) for group in groups(*rows)} == {
        ("does not accept a bool as a number", 2),
        ("has no aten::view for such arguments", 1),
        ("has no aten::zeros_like for such arguments", 1),
    }


def test_a_missing_cast_shows_as_operands_or_as_a_result_of_another_dtype() -> None:
    mixed = INVALID.format("ScatterND") + "updates has inconsistent type tensor(float)"
    dtype = "dtype: output 0: expected int64, got int32"
    name = "aten.slice_scatter.default"
    scatter: dict[str, Any] = {"converter": "dynamo", "function": "aten_slice_scatter"}
    assert len(groups(failed(name, mixed, **scatter, **REJECTED), failed(name, dtype, **scatter))) == 1


def test_where_a_cast_is_missing_a_node_is_not_defined_or_numbers_leave_their_dtype() -> None:
    """Both failures share a function and a cause; a failure that shows only one of the two signs may not."""
    name, undefined = "aten.celu.default", INVALID.format("Celu") + CAST
    celu: dict[str, Any] = {"function": "celu"}
    recast = failed(name, "values: output 0: expected -0.960382061663796, got -0.960382044315338", **celu)
    others = [
        failed(name, undefined, **REJECTED, **celu),
        # The last eight bits are right.
        failed(name, "values: output 0: expected -1261, got 19", **celu),
    ]
    [group] = groups(recast, *others)
    assert (fault_text(group.cause), group.cases) == ("computes in a different dtype than the call", 1)
    assert groups(others[0])[0].cause.fault == "undefined-dtype"
    inexact = failed(name, "infinities: output 0: expected 1.5, got inf", structure_id="b", case_id="b", **celu)
    assert len(groups(recast, *others, inexact)) == 2


def test_pytorch_has_one_defect_of_the_elements_of_a_kernel_or_decomposition() -> None:
    words = (
        "values: output 0: expected 1.0, got 2.0",
        "overflow to infinity: output 0: expected 1.0, got inf",
    )
    rows = [
        failed(f"aten.{name}.default", message, blame="pytorch", blame_rule="kernel-against-decomposition")
        for name in ("var", "std_mean")
        for message in words
    ]
    [group] = groups(*rows)
    assert group_place(group) == "PyTorch: kernel or decomposition of aten.var"


def test_symbolic_functions_round_numbers_each_in_its_own_way() -> None:
    rounded = Testimony(Role.NARROWED, Finding.SAME, "rounded-arguments", {"numbers": [[0.1, 0.1]], "backend": "b"})
    values = "values: output 0: expected 0.123456789012345, got 0.123456788"
    rows = [
        failed(f"aten.{name}.default", values, blame_rule="fewer-bits", testimony=(rounded,))
        for name in ("celu", "batch_norm")
    ]
    assert len(groups(*rows)) == 2


@pytest.mark.parametrize(
    ("overloads", "messages", "how", "cause"),
    [
        (
            ("aten.cross.default",),
            (
                INVALID.format("Concat") + "Inferred shape and existing shape differ in dimension 0: (1) vs (2)",
                INVALID.format("Reshape") + "[ShapeInferenceError] Invalid position of 0.",
            ),
            {**REJECTED, "function": "cross"},
            "makes incompatible shapes",
        ),
        (
            ("aten.conv2d.default", "aten.conv_transpose2d.input"),
            (
                INVALID.format("Conv") + "[ShapeInferenceError] Attribute strides has incorrect size",
                INVALID.format("ConvTranspose") + "[ShapeInferenceError] Attribute pads has incorrect size",
            ),
            {**REJECTED, "function": "_convolution"},
            "gives lists of a wrong length",
        ),
        (
            ("aten.masked_scatter.default",),
            (
                RUNNING.format("ScatterND node. Name:'a' Status Message: invalid indice found, indice = 7"),
                RUNNING.format("ScatterND node. Name:'a' Status Message: last dimension of indices must be 1"),
            ),
            {"stage": Stage.RUN, "outcome": Outcome.ERROR},
            "passes invalid inputs to ScatterND",
        ),
        (
            ("aten.randint_like.Tensor",),
            tuple(
                f"SymbolicValueError: expected a constant value of the 'low' argument, got '1 in (%0 {of})'"
                for of in (": Char(0, 2, requires_grad=0, device=cpu)", "= prim::Param()")
            ),
            {"stage": Stage.CONVERT, "outcome": Outcome.ERROR},
            "",
        ),
        (
            ("aten.randint.low_generator",),
            (
                "ValueError: only one element tensors can be converted to Python scalars",
                "TypeError: iteration over a 0-d tensor",
            ),
            {"stage": Stage.CONVERT, "outcome": Outcome.ERROR},
            "takes a tensor for a number",
        ),
        (
            ("aten.max.dim",),
            (INVALID.format("ReduceMax") + CAST, INVALID.format("ArgMax") + CAST),
            {**REJECTED, "converter": "dynamo", "function": "aten_max_dim"},
            "gives nodes dtypes that they are not defined for",
        ),
        (
            ("aten.dequantize.self",),
            tuple(
                f"SymbolicValueError: the output of `%0 : Long({shape}device=cpu) = prim::Param()` is no"
                for shape in ("3, 8, strides=[8, 1], ", "")
            ),
            {"stage": Stage.CONVERT, "outcome": Outcome.ERROR},
            "",
        ),
    ],
)
def test_which_check_fails_first_makes_no_other_defect(
    overloads: tuple[str, ...], messages: tuple[str, ...], how: dict[str, Any], cause: str
) -> None:
    pairs = [(one, message) for one in overloads for message in messages]
    pairs = pairs if len(overloads) == 1 else list(zip(overloads, messages, strict=True))
    [group] = groups(*(failed(one, message, **how) for one, message in pairs))
    assert cause in fault_text(group.cause)


def test_wrong_elements_come_of_an_ignored_argument() -> None:
    values, structure = "values: output 0: expected 317518570, got -111978158", {"structure_id": "a"}
    ignored = Testimony(Role.IGNORED, Finding.SAME, "ignored-argument", {"argument": "scales", "backend": "b"})
    how: dict[str, Any] = {"blame_rule": "ignored-argument", "testimony": (ignored,), **structure}
    one = failed("aten.softplus.default", values, **how)
    other = failed("aten.softplus.default", values, **structure)
    assert len(groups(one, other)) == 1
