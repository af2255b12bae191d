"""The rules of `harness.compare.nearness` with PyTorch as the oracle, and the kinds of being wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from labelled_failures import read_labels

from harness.compare.comparison import compare
from harness.compare.judge import ACCUMULATES, CLOSE, Judge
from harness.compare.output_comparison import OutputComparison
from harness.core.dtypes import Array
from harness.core.invocation import Enumerated, Invocation, Literal, TensorSpec, contiguous_strides
from harness.generate.case_library import load_cases
from harness.generate.operator_case import judge_of
from harness.pipeline.reference import run_reference

INF, NAN = float("inf"), float("nan")


def tensor(values: Sequence[float], shape: tuple[int, ...], dtype: str = "float32") -> TensorSpec:
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(values)))


def against_pytorch(invocation: Invocation, got: Array, judge: Judge = ACCUMULATES) -> OutputComparison:
    return compare(judge, run_reference(invocation), [got])


def test_a_product_of_matrices_that_overflows() -> None:
    big = 3e38
    case = Invocation(
        "aten.mm.default",
        (("self", tensor([big, big, -big, -big], (1, 4))), ("mat2", tensor([1.0] * 4, (4, 1)))),
    )
    for value in (0.0, INF, -INF, NAN):
        assert against_pytorch(case, np.full((1, 1), value, np.float32)).problem is None
    assert against_pytorch(case, np.full((1, 1), big, np.float32)).problem is not None


def test_infinities_elsewhere_do_not_matter() -> None:
    """The first row overflows in float64 itself, whatever the second holds."""
    big = 1.7e308
    case = Invocation(
        "aten.mm.default",
        (
            ("self", tensor([big, big, -big, -big, 1.0, INF, 1.0, 1.0], (2, 4), "float64")),
            ("mat2", tensor([1.0] * 4, (4, 1), "float64")),
        ),
    )
    for value in (INF, -INF, NAN):
        assert against_pytorch(case, np.array([[value], [INF]])).problem is None
    for value in (-INF, NAN):
        assert against_pytorch(case, np.array([[0.0], [value]])).problem is not None


def test_scales_count_by_their_magnitude() -> None:
    """A negative `alpha` or `beta` must not cancel terms in the sum of magnitudes."""
    case = Invocation(
        "aten.addmm.default",
        (
            ("self", tensor([1000.0], (1, 1))),
            ("mat1", tensor([1000.0], (1, 1))),
            ("mat2", tensor([1.0], (1, 1))),
            ("beta", -1),
            ("alpha", 1.0),
        ),
    )
    magnitude = run_reference(case).magnitude
    assert magnitude is not None
    assert magnitude[0] is not None
    assert magnitude[0].tolist() == [[2000.0]]


def test_scales_below_one_come_after_the_product() -> None:
    """alpha (mat1 @ mat2) overflows where (alpha mat1) @ mat2 does not; with alpha 0 that is NaN."""
    big = 3e38

    def case(alpha: float, summand: float) -> Invocation:
        tensors = (
            ("self", tensor([summand], (1, 1))),
            ("mat1", tensor([big], (1, 1))),
            ("mat2", tensor([2.0], (1, 1))),
        )
        return Invocation("aten.addmm.default", (*tensors, ("alpha", alpha)))

    for value in (INF, NAN):
        got = np.full((1, 1), value, np.float32)
        assert against_pytorch(case(0.25, 1.0), got).problem is None
        assert against_pytorch(case(0.0, 1.0), got).problem is None
    assert against_pytorch(case(0.25, 1.0), np.full((1, 1), big, np.float32)).problem is not None


# 3 and 6. What calls with inputs in the neighbourhood say


def pointwise(overload: str, value: float, dtype: str = "float32", **more: Any) -> Invocation:
    return Invocation(f"aten.{overload}", (("self", tensor([value], (1,), dtype)), *more.items()))


def test_rule_3_pytorchs_error_beside_the_case() -> None:
    """x·Φ(x) cancels where x is very negative, in PyTorch as elsewhere; by how much is a matter of luck."""
    case = pointwise("gelu.default", -5.0)
    oracle = run_reference(case)
    assert oracle.truth is not None
    assert oracle.truth[0] is not None
    assert oracle.sensitivity is not None
    assert oracle.sensitivity[0] is not None
    *_, (own,) = oracle.sensitivity[0].own_errors()
    (true,) = oracle.truth[0]
    assert 1e-9 < own < 1e-6
    assert compare(CLOSE, oracle, [np.array([true + 1.9 * own], np.float32)]).problem is None
    assert compare(CLOSE, oracle, [np.array([true + 20 * own], np.float32)]).problem == "values"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rule_6_an_ill_conditioned_call(dtype: str) -> None:
    """sin(x + u·x) differs from sin(x) by x·u·cos(x): at 10⁵ by much more than a last place."""
    value = 1e5
    case = pointwise("sin.default", value, dtype)
    unit = 2.0**-23 if dtype == "float32" else 2.0**-52
    allowed = 22 * 2.0 ** np.floor(np.log2(value)) * unit * abs(np.cos(value))
    (expected,) = run_reference(case).expected[0].astype(np.float64)
    for factor, problem in ((0.9, None), (1.2, "values")):
        got = np.array([expected + factor * allowed]).astype(dtype)
        assert against_pytorch(case, got, CLOSE).problem == problem
    # A well conditioned one stays strict.
    got = np.array([np.sin(0.1) + 0.9 * allowed]).astype(dtype)
    assert against_pytorch(pointwise("sin.default", 0.1, dtype), got, CLOSE).problem == "values"


def test_rule_6_excuses_no_jump() -> None:
    """The remainder of 3 by 1 is 0, however near 3 - u is."""
    case = pointwise("remainder.Scalar", 3.0, other=1.0)
    assert against_pytorch(case, np.array([1.0], np.float32), CLOSE).problem == "values"


# Kinds


def test_flushed_subnormals_are_told_apart() -> None:
    for overload, value, got in (("abs.default", -1e-40, 0.0), ("log2.default", 1e-40, -INF)):
        case = pointwise(overload, value)
        found = against_pytorch(case, np.array([got], np.float32), CLOSE)
        assert found.problem == "subnormals flushed to zero"
        assert against_pytorch(case, np.array([1.0], np.float32), CLOSE).problem == "values"
    # A result just below the normal numbers, of an input that is none.
    found = against_pytorch(pointwise("mul.Scalar", 2e-38, other=0.25), np.array([0.0], np.float32), CLOSE)
    assert found.problem == "subnormals flushed to zero"


def test_overflow_has_a_signature_of_its_own() -> None:
    case = Invocation("aten.hypot.default", (("self", tensor([3e30], (1,))), ("other", tensor([4e30], (1,)))))
    assert against_pytorch(case, np.array([INF], np.float32), CLOSE).problem == "overflow to infinity"
    assert against_pytorch(case, np.array([-INF], np.float32), CLOSE).problem == "infinities"


def test_integers_have_a_truth_too() -> None:
    """A quotient of integers and a sequence of Python numbers are computed in the default dtype."""
    quotient = Invocation(
        "aten.div.Tensor", (("self", tensor([1], (1,), "int64")), ("other", tensor([3], (1,), "int64")))
    )
    sequence = Invocation("aten.arange.default", (("end", 2.5),))
    half = Invocation("aten.arange.default", (("end", 3), ("dtype", Enumerated("dtype", "float16"))))
    for case, value in ((quotient, 1 / 3), (sequence, 0.0), (half, 0.0)):
        truth = run_reference(case).truth
        assert truth is not None
        assert truth[0] is not None
        assert truth[0].dtype == np.float64
        assert truth[0].reshape(-1)[0] == value


def test_asking_for_the_truth_changes_nothing() -> None:
    sequence = Invocation("aten.arange.default", (("end", 2.5),))
    assert run_reference(sequence).truth is not None
    assert torch.get_default_dtype() is torch.float32
    assert run_reference(sequence).expected[0].dtype == np.float32


def test_a_trapezoid_over_abscissae_is_held_to_its_terms() -> None:
    """A sum of terms of both signs overflows halfway in PyTorch, although its result is small."""
    load_cases()
    calls = [label.invocation for label in read_labels() if label.culprit == "false_alarm"]
    call = next(call for call in calls if call.overload == "aten.trapz.x")
    reference, judge = run_reference(call), judge_of(call)
    assert reference.truth is not None
    assert reference.truth[0] is not None
    got = reference.expected[0].copy()
    assert np.isinf(reference.expected[0][6, 7])
    for share, right in ((1e-5, True), (0.5, False)):
        got[6, 7] = reference.truth[0][6, 7] * (1 + share)
        assert (compare(judge, reference, [got]).problem is None) == right


@pytest.mark.parametrize("overload", ["aten.gru_cell.default", "aten.gru.input", "aten.gru.data"])
def test_a_gated_state_is_held_to_what_is_added_up_in_it(overload: str) -> None:
    """n + z·(h - n) keeps no digit of a state near zero that (1 - z)·n + z·h keeps: here z is 1."""
    load_cases()
    gates = [tensor([0.0, 30.0, 0.0], (3, 1)), tensor([0.0, 0.0, 0.0], (3, 1))]
    if overload == "aten.gru_cell.default":
        names = (("w_ih", gates[0]), ("w_hh", gates[1]), ("b_ih", None), ("b_hh", None))
        call = Invocation(overload, (("input", tensor([1.0], (1, 1))), ("hx", tensor([1e-9], (1, 1))), *names))
    else:
        shared: dict[str, Any] = {
            "params": tuple(gates),
            "has_biases": False,
            "num_layers": 1,
            "dropout": 0.0,
        }
        shared |= {"train": False, "bidirectional": False}
        packed = overload.endswith("data")
        given = (
            [("data", tensor([1.0], (1, 1))), ("batch_sizes", tensor([1], (1,), "int64"))]
            if packed
            else [("input", tensor([1.0], (1, 1, 1)))]
        )
        last = () if packed else (("batch_first", False),)
        call = Invocation(overload, (*given, ("hx", tensor([1e-9], (1, 1, 1))), *shared.items(), *last))
    reference, judge = run_reference(call), judge_of(call)
    for offset, right in ((1e-7, True), (1e-4, False)):
        got = [e + np.float32(offset) for e in reference.expected]
        assert (compare(judge, reference, got).problem is None) == right


def convolved(values: Sequence[float], weights: Sequence[float]) -> Invocation:
    arguments = (("input", tensor(values, (1, 1, len(values)))), ("weight", tensor(weights, (1, 1, len(weights)))))
    return Invocation("aten.conv1d.default", arguments)


def test_rule_5_a_product_overflows_against_an_infinite_term() -> None:
    """-inf + 3·(3e38): NaN where the product is rounded first, -inf in a fused multiply-add."""
    call = convolved([-np.inf, 3e38], [1.0, 3.0])
    for got, right in ((-np.inf, True), (np.nan, True), (np.inf, False), (0.0, False)):
        assert (against_pytorch(call, np.array([[[got]]], np.float32)).problem is None) is right
    # Finite terms that stay in range leave one answer.
    call = convolved([-np.inf, 3e37], [1.0, 3.0])
    assert against_pytorch(call, np.array([[[np.nan]]], np.float32)).problem == "NaN positions"
    # As does a product that overflows to the same infinity.
    call = convolved([-np.inf, -3e38], [1.0, 3.0])
    assert against_pytorch(call, np.array([[[np.nan]]], np.float32)).problem == "NaN positions"


def test_rule_5_a_scaled_product_overflows_against_an_infinite_term() -> None:
    arguments = {"self": [np.inf], "tensor1": [-3e38], "tensor2": [3.0]}
    specs = tuple((name, tensor(values, (1,))) for name, values in arguments.items())
    call = Invocation("aten.addcmul.default", (*specs, ("value", 1.0)))
    for got, right in ((np.inf, True), (np.nan, True), (-np.inf, False)):
        assert (against_pytorch(call, np.array([got], np.float32), judge_of(call)).problem is None) is right


def test_rule_7_a_definition_that_stays_in_range() -> None:
    """alpha·(v·w) is 0 where alpha·v is infinite before it is multiplied by zero."""
    largest = float(np.finfo(np.float64).max)
    call = Invocation(
        "aten.addr.default",
        (
            ("self", tensor([np.nan], (1, 1), "float64")),
            ("vec1", tensor([largest], (1,), "float64")),
            ("vec2", tensor([0.0], (1,), "float64")),
            ("beta", 0),
            ("alpha", 2.5),
        ),
    )
    for got, right in ((0.0, True), (np.nan, True), (1.0, False), (np.inf, False)):
        assert (against_pytorch(call, np.array([[got]]), judge_of(call)).problem is None) is right


def variance(values: Array) -> Invocation:
    spec = TensorSpec(values.shape, str(values.dtype), (1,), 0, Literal(tuple(values.astype(float).tolist())))
    return Invocation("aten.var.correction", (("self", spec), ("dim", None), ("correction", 1)))


@pytest.mark.parametrize("value", [0.1, 3333.3333, -7.7, 1e15])
def test_rule_6_the_variance_of_equal_elements_is_the_square_of_an_error(value: float) -> None:
    values = np.full(2049, value, np.float32)
    call = variance(values)
    rounding = np.sqrt(values.size) * 2.0**-24 * np.abs(values[0])
    assert against_pytorch(call, np.array(rounding**2, np.float32), judge_of(call)).problem is None
    assert against_pytorch(call, np.array(1e5 * rounding**2, np.float32), judge_of(call)).problem == "values"


def test_a_float64_variance_is_held_to_one_in_long_double() -> None:
    """PyTorch updates mean and variance element by element: its error grows with their number."""
    values = np.random.Generator(np.random.PCG64(3)).normal(0.6, 2.0, 20_000)
    exact = np.array(values.astype(np.longdouble).var(ddof=1), np.float64)
    call = variance(values)
    assert against_pytorch(call, exact, judge_of(call)).problem is None
    assert against_pytorch(call, exact * (1 + 1e-11), judge_of(call)).problem == "values"


def test_a_float64_variance_at_the_end_of_the_range_is_held_to_one_in_long_double() -> None:
    """PyTorch's updates add infinities: its variance is NaN, the true one infinite. Rows with NaN have no other."""
    rows = np.zeros((31, 15))
    rows[:, 1:3] = 1.7976931348623157e308, -1.7976931348623157e308
    rows[0, 5] = np.nan
    spec = TensorSpec((31, 15), "float64", (15, 1), 0, Literal(tuple(rows.ravel().tolist())))
    call = Invocation("aten.var.correction", (("self", spec), ("dim", (-1,)), ("correction", 1)))
    assert np.isnan(run_reference(call).expected[0]).all()
    exact = np.full(31, np.inf)
    assert against_pytorch(call, exact, judge_of(call)).problem is not None
    exact[0] = np.nan
    assert against_pytorch(call, exact, judge_of(call)).problem is None
    exact[1] = 1e308
    assert against_pytorch(call, exact, judge_of(call)).problem is not None


def test_rule_4_a_window_is_held_to_its_cosines() -> None:
    load_cases()
    call = Invocation(
        "aten.blackman_window.default", (("window_length", 127), ("dtype", Enumerated("dtype", "float64")))
    )
    reference = run_reference(call)
    (window,) = reference.expected
    # Symmetric, by a formula that cancels to 2e-4 of terms of a half.
    assert compare(judge_of(call), reference, [np.r_[window[:1], window[:0:-1]]]).problem is None
    assert compare(judge_of(call), reference, [np.asarray(np.blackman(127))]).problem == "values"
    assert compare(judge_of(call), reference, [window.astype(np.float32).astype(np.float64)]).problem == "values"


def test_no_bound_is_known_where_an_infinity_is_interpolated() -> None:
    load_cases()
    arguments = (
        ("input", tensor([1.0, INF, INF], (1, 1, 3))),
        ("output_size", (5,)),
        ("align_corners", True),
        ("scale_factors", None),
    )
    reference = run_reference(Invocation("aten.upsample_linear1d.vec", arguments))
    (expected,) = reference.expected
    assert expected[0, 0, 3] == INF
    judge = judge_of(reference.invocation)
    # As PyTorch's own definition has it: x1 + (x2 - x1)·w.
    got = np.where(np.arange(5) == 3, NAN, expected).astype(np.float32)
    assert compare(judge, reference, [got]).problem == "NaN positions"


def test_rule_4_a_float64_integral_over_float32_distances_may_be_summed_in_any_order() -> None:
    load_cases()
    rng = np.random.default_rng(3)
    y = rng.uniform(-4, 4, (6, 1))
    x = rng.uniform(-4, 4, (6, 1)).astype(np.float32)
    call = Invocation(
        "aten.trapezoid.x",
        (
            ("y", tensor([float(v) for v in y.ravel()], (6, 1), "float64")),
            ("x", tensor([float(v) for v in x.ravel()], (6, 1))),
            ("dim", 0),
        ),
    )
    reference = run_reference(call)
    distances = np.diff(x, axis=0)
    terms = (y[1:] + y[:-1]) * distances / 2
    backwards = np.asarray([sum(terms[::-1].ravel())])
    assert compare(judge_of(call), reference, [backwards]).problem is None
    # Float64 computes the distances in float64, too: what PyTorch gives is not near to that.
    assert reference.truth is not None
    assert reference.truth[0] is not None
    away = reference.expected[0] - reference.truth[0]
    assert np.abs(away) > 1e-9
    assert compare(judge_of(call), reference, [reference.expected[0] + away / 100]).problem == "values"


def test_rule_6_a_place_is_rounded_as_a_number_of_at_least_one_is() -> None:
    load_cases()
    call = Invocation(
        "aten.grid_sampler_2d.default",
        (
            ("input", tensor([float(v) for v in range(-8, 8)], (1, 1, 4, 4))),
            ("grid", tensor([1e-4, -1e-4], (1, 1, 1, 2))),
            ("interpolation_mode", 0),
            ("padding_mode", 0),
            ("align_corners", False),
        ),
    )
    reference = run_reference(call)
    (expected,) = reference.expected
    assert compare(judge_of(call), reference, [(expected + 4e-7).astype(np.float32)]).problem is None
    assert compare(judge_of(call), reference, [(expected + 4e-5).astype(np.float32)]).problem == "values"


def test_an_infinite_place_lies_outside_where_no_weight_is_taken_from_it() -> None:
    load_cases()
    call = Invocation(
        "aten.grid_sampler_2d.default",
        (
            ("input", tensor([1.0, 2.0, 3.0, 4.0], (1, 1, 2, 2))),
            ("grid", tensor([INF, 0.5, NAN, 0.5], (1, 1, 2, 2))),
            ("interpolation_mode", 1),
            ("padding_mode", 0),
            ("align_corners", False),
        ),
    )
    reference = run_reference(call)
    assert reference.expected[0][0, 0, 0, 0] == 0.0
    wrong = compare(judge_of(call), reference, [np.asarray([[[[3.0, reference.expected[0][0, 0, 0, 1]]]]], np.float32)])
    assert wrong.problems[0].unsettled == ""
    nan = compare(judge_of(call), reference, [np.asarray([[[[0.0, 3.0]]]], np.float32)])
    assert nan.problems[0].unsettled != ""


def test_rule_5_one_huge_term_hides_what_the_others_overflow_to() -> None:
    # 8.5e38 - 1.2e77: in float32 the sum of two infinities, in float64 the second term alone.
    big = 3.4028234663852886e38
    case = Invocation(
        "aten.mm.default",
        (("self", tensor([big, -big], (1, 2))), ("mat2", tensor([2.5, big], (2, 1)))),
    )
    for value in (-INF, NAN):
        assert against_pytorch(case, np.full((1, 1), value, np.float32)).problem is None
    assert against_pytorch(case, np.full((1, 1), -big, np.float32)).problem is not None
