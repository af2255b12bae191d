"""What a wrong element comes of is told by what else is wrong in the same place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from converter_failures import REJECTED, RUNNING, WRONG, failed, groups
from harness_runs import vector

from harness.compare import Outcome, Stage
from harness.core import Literal, TensorSpec

CAST = (
    "The graph that torchscript emits computes at lower precision than the call. Where it is wrong, "
    "ort-cpu's result is that of a cast to float32, which the graph has."
)
ROUNDED = (
    "The graph that torchscript emits computes at lower precision than the call. The graph has 3.3 as "
    "float32, 3.2999999523162842: with that, PyTorch gives ort-cpu's result."
)
CONSTANT = "dynamo computes the result itself, for a constant of the graph. It has no node."
#: As exact as float32, what is left of such a number, a double that is off by less, and a float32.
DIGITS = "values: output 0: expected 0.123456789012345, got 0.123456788"
CANCELLED = "values: output 0[1]: expected 0.0, got 7.66053886991358e-15"
SLIGHT = "values: output 0: expected 0.22244424131235, got 0.22244424131230"
INEXACT = "values: output 0: expected 0.25539565, got 0.25539446"
OTHER = "values: output 0: expected 1.0, got 2.0"
HUGE = "overflow to infinity: output 0: expected 1.797693134862315e+308, got inf"
INFINITE = "overflow to infinity: output 0: expected 1.5, got inf"
NAN, LOST = (f"NaN positions: output 0: expected {e}, got {g}" for e, g in (("1.5", "nan"), ("nan", "1.5")))
END = "NaN positions: output 0: expected nan, got -9.223372e+18"
UNBOUNDED = "infinities: output 0: expected inf, got 65504.0"
DTYPE = "dtype: output 0: expected float64, got float32"
BOUNDS = RUNNING.format(
    "Gather node. Name:'n' Status Message: indices element out of data bounds, idx=-15 must be within the "
    "inclusive range [-9,8]"
)
RAN: dict[str, Any] = {"stage": Stage.RUN, "outcome": Outcome.ERROR}
SCALAR = TensorSpec((), "float32", (), 0, Literal((0.5,)))
DOUBLE, SINGLE = vector([0.5], "float64"), vector([0.5], "float32")


def count(*messages: str | tuple[str, dict[str, Any]], name: str = "logit", of: Any = None) -> int:
    """How many groups failures of one operator make, each of a graph of its own."""
    pairs = [(one, {}) if isinstance(one, str) else one for one in messages]
    rows = [
        failed(
            f"aten.{name}.default",
            message,
            of=of or {"self": DOUBLE},
            **{**WRONG, "structure_id": str(n), "case_id": f"{n:012}", **how},
        )
        for n, (message, how) in enumerate(pairs)
    ]
    return len(groups(*rows))


def test_digits_that_are_lost_go_with_the_dtype_and_else_with_what_cancels_out() -> None:
    assert count(DIGITS, DTYPE) == 1
    assert count(DIGITS, CANCELLED) == count(DIGITS, SLIGHT) == 1
    assert count(DIGITS, OTHER) == count(OTHER, CANCELLED, DIGITS) == 2
    # No float32 of a float32 call has fewer digits for it.
    assert count(DIGITS, INEXACT) == 2
    # A result that has the digits nowhere is no sign of a larger dtype.
    assert count(DIGITS, "dtype: output 0: expected float16, got float32") == 2


def test_digits_are_lost_by_the_dtype_where_the_call_has_shorter_ones() -> None:
    other_dtype = "computes in another dtype than the call"
    short = failed("aten.softmax.int", DIGITS, of={"self": SINGLE})
    assert [group.cause for group in groups(short)] == [other_dtype]
    double = failed("aten.softmax.int", DIGITS, of={"self": DOUBLE})
    assert [group.cause for group in groups(double)] == ["is as exact as float32"]
    # Where a part of the call has no more, they are not lost.
    mixed = {"self": SINGLE, "target": DOUBLE}
    assert count(DIGITS, OTHER, of=mixed) == count(DIGITS, INFINITE, of=mixed) == 1
    assert count(DIGITS, DTYPE, of=mixed) == 1


def test_numbers_that_float32_lacks_are_infinite_by_a_cast_and_not_by_a_number_that_is_rounded() -> None:
    assert count((DIGITS, {"evidence": CAST}), HUGE) == 1
    assert count((DIGITS, {"evidence": CAST}), INFINITE) == 2
    assert count((DIGITS, {"evidence": ROUNDED}), HUGE) == count(DIGITS, HUGE) == 2


def test_a_formula_that_is_not_stable_is_inexact_and_leaves_the_range() -> None:
    assert count(INFINITE, NAN) == 1
    assert count(INFINITE, INEXACT) == count(NAN, SLIGHT) == count(INFINITE, CANCELLED) == 1
    assert count(INFINITE, "values: output 0[5]: expected -17.52, got -17.33") == 1
    # Of two numbers about 1 next to nothing is left.
    assert count(INFINITE, "values: output 0: expected 6.4e-08, got 1.2e-07") == 1
    assert count(INEXACT, OTHER) == 1
    assert count(INFINITE, OTHER) == count(INFINITE, DIGITS) == count(INFINITE, LOST) == 2
    # A bound that is not there leaves nothing.
    assert count(INFINITE, UNBOUNDED) == 2


def test_a_result_that_is_made_up_is_wrong_in_all_ways() -> None:
    made_up = {"evidence": CONSTANT, "converter": "dynamo"}
    assert count((LOST, made_up), (OTHER, made_up)) == 1
    assert count((LOST, {"converter": "dynamo"}), (OTHER, {"converter": "dynamo"})) == 2


def test_what_is_no_integer_is_wrong_in_all_ways_after_a_cast_to_integers() -> None:
    rests = {
        "evidence": "The graph that torchscript emits rests on what the specification leaves open, which the "
        "call does not. ONNX Cast: “undefined if OOR.”. The graph asks Cast for another float."
    }
    large = "values: output 0: expected -1.7014117e+38, got -9.223372e+18"
    assert count(END, OTHER) == count(large, END) == count((NAN, rests), large) == 1
    assert count(LOST, OTHER) == count((NAN, rests), OTHER) == 2
    # They are integers themselves.
    assert count("values: output 0: expected 9223372036854775807, got 2147483647", LOST) == 2


def test_an_index_that_is_out_of_bounds_is_a_wrong_one() -> None:
    assert count(OTHER, (BOUNDS, RAN), name="index") == 1
    assert count("shape: output 0: expected [], got [1]", (BOUNDS, RAN), name="index") == 2


def test_a_kernel_looks_at_its_inputs_or_finds_that_they_do_not_fit() -> None:
    invalid = RUNNING.format("Pad node. Name:'n' Status Message: Pad reflect requires axis length >= 2")
    failing = invalid.replace("2 : INVALID_ARGUMENT", "1 : FAIL").replace("axis length", "extent")
    assert count((invalid, RAN), (failing, RAN), name="reflection_pad1d") == 1


@pytest.mark.parametrize(
    "ending",
    ["IndexError: list index out of range", "SymbolicValueError: Cannot determine scalar type for this 'x'"],
)
def test_an_export_loses_its_way_where_there_are_no_dimensions(ending: str) -> None:
    rank = (
        "InferenceError: [ShapeInferenceError] Inference error(s): (op_type:LogSoftmax, node name: n): "
        "[ShapeInferenceError] Input rank must be >= 1 for LogSoftmax."
    )
    converted = {"stage": Stage.CONVERT, "outcome": Outcome.ERROR}
    both = (ending, converted), (rank, REJECTED)
    assert count(*both, name="log_softmax", of={"self": SCALAR}) == 1
    assert count(*both, name="log_softmax") == 2


def test_a_result_without_elements_was_left_out_whatever_else_is_empty() -> None:
    shape = "shape: output 0: expected [{}], got [{}]"
    assert count(shape.format("1", "0"), shape.format("1, 0, 4", "0, 0, 4")) == 1
    assert count(shape.format("1", "0"), shape.format("0, 2", "0, 3")) == 2


KERNEL = (
    "ort-cpu computes a node wrongly by its operator's definition. ort-cpu computes {} (node 0; {}) wrongly: "
    "of {}[3, {}] its definition gives {} at [0], it gives {}. With the definition's result in its place the "
    "graph gives PyTorch's."
)
FOLDED = (
    "ort-cpu's graph optimisation: right with optimisations off. ort-cpu gives PyTorch's result without its "
    "pass ConstantFolding."
)


def kernels(*found: tuple[str, str, str]) -> int:
    """How many defects a kernel has that is wrong for a dtype, by what it should give and what it gives."""
    said = [KERNEL.format("DFT", dtype, dtype, 2, right, got) for dtype, right, got in found]
    rows = [failed("aten.fft_fft.default", OTHER, case_id=f"{n:012}") for n in range(len(said))]
    return len(
        groups(*(replace(row, blame="backend", evidence=one) for row, one in zip(rows, said, strict=True)))
    )


def test_a_kernel_that_is_inexact_has_little_left_of_small_numbers() -> None:
    near, off = ("float32", "1.5", "1.50001"), ("float32", "1.5", "1.75")
    gone, tiny = ("float32", "-4.5e-28", "0.0"), ("float32", "1.2e-40", "0.0")
    assert kernels(near, off) == kernels(near, gone) == kernels(near, tiny) == 1
    assert kernels(off, tiny) == kernels(near, ("float32", "1.5", "nan")) == 2
    # A double that is as exact as float32 was computed in it.
    assert kernels(near, ("float64", "2.28878559050952", "2.28878562201605")) == 2
    assert kernels(("float32", "1.5", "inf"), ("float32", "1.5", "nan")) == 1


def test_what_is_wrong_by_folding_constants_is_wrong_by_the_kernel() -> None:
    empty = KERNEL.format("MatMul", "float32", "float32", 0, "0.0", "nan")
    folded = failed("aten.matmul.default", OTHER, blame="backend", evidence=FOLDED)
    kernel = replace(folded, evidence=empty, case_id="2")
    [group] = groups(folded, kernel)
    assert group.place == "ort-cpu: MatMul"
    assert len(groups(folded, replace(kernel, overload="aten.mm.default"))) == 2
    # Of two kernels it may be either.
    assert len(groups(folded, kernel, replace(kernel, evidence=empty.replace("MatMul", "Gemm")))) == 3


def test_an_integer_that_a_float_rounds_goes_with_digits_of_float32() -> None:
    rounded = "values: output 0: expected 739515026119738, got 739515052326912"
    smaller = "values: output 0: expected 214748364, got 214748368"
    assert count(rounded, smaller, of={"self": vector([1], "int64")}) == 1
    # So does a double that float32 has no number for.
    tiny = "subnormals flushed to zero: output 0: expected 2.225073858507201e-308, got 0.0"
    assert count((DIGITS, {"evidence": CAST}), tiny) == 1
    assert count((OTHER, {}), rounded, of={"self": vector([1], "int64")}) == 2


def test_a_kernel_is_inexact_in_float64_in_one_way() -> None:
    wrong = (
        "ort-cpu computes a node wrongly by its operator's definition. ort-cpu computes Sigmoid (node 0; "
        "{0}) wrongly: of {0} -5.5 its definition gives {1}, it gives {2}. With the definition's result in "
        "its place the graph gives PyTorch's."
    )
    degrees = {
        "exact": ("float64", "0.004070137715896128", "0.004070137715896038"),
        "narrow": ("float64", "3.368250145181467e-09", "3.368250123259031e-09"),
        "short": ("float32", "0.0040701376", "0.0040701371"),
    }
    said = {
        name: (DIGITS, {"evidence": wrong.format(*told), "blame": "backend"})
        for name, told in degrees.items()
    }
    assert count(said["exact"], said["narrow"], name="sigmoid") == 1
    assert count(said["short"], said["narrow"], name="sigmoid") == 2


def test_what_is_off_by_a_rounding_of_one_is_no_float32() -> None:
    # log(sigmoid(x)) loses the digits of one end, and the other.
    cancelled = "values: output 0: expected -3.398267813720959e-09, got -3.3982678950837486e-09"
    assert count(cancelled, INFINITE, name="log_sigmoid") == 1
    assert count(DIGITS, INFINITE, name="log_sigmoid") == 2
