"""The rules of `harness.compare.nearness` with PyTorch as the oracle, and the kinds of being wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from labelled_failures import read_labels
from recorded_rows import call, tensor

from harness.compare.comparison import compare
from harness.compare.judge import ACCUMULATES, CLOSE, Judge
from harness.compare.output_comparison import OutputComparison
from harness.core.dtypes import Array
from harness.core.invocation import Enumerated, Invocation, TensorSpec
from harness.generate.case_library import load_cases
from harness.generate.operator_case import judge_of
from harness.pipeline.reference import run_reference

INF, NAN = float("inf"), float("nan")


def against_pytorch(invocation: Invocation, got: Array, judge: Judge = ACCUMULATES) -> OutputComparison:
    return compare(judge, run_reference(invocation), [got])


def test_a_product_of_matrices_that_overflows() -> None:
    big = 3e38
    case = call("aten.mm.default", self=tensor([[big, big, -big, -big]]), mat2=tensor([[1.0]] * 4))
    for value in (0.0, INF, -INF, NAN):
        assert against_pytorch(case, np.full((1, 1), value, np.float32)).problem is None
    assert against_pytorch(case, np.full((1, 1), big, np.float32)).problem is not None


def test_infinities_elsewhere_do_not_matter() -> None:
    """The first row overflows in float64 itself, whatever the second holds."""
    big = 1.7e308
    rows = tensor([[big, big, -big, -big], [1.0, INF, 1.0, 1.0]], "float64")
    case = call("aten.mm.default", self=rows, mat2=tensor([[1.0]] * 4, "float64"))
    for value in (INF, -INF, NAN):
        assert against_pytorch(case, np.array([[value], [INF]])).problem is None
    for value in (-INF, NAN):
        assert against_pytorch(case, np.array([[0.0], [value]])).problem is not None


def test_scales_count_by_their_magnitude() -> None:
    """A negative `alpha` or `beta` must not cancel terms in the sum of magnitudes."""
    large, one = tensor([[1000.0]]), tensor([[1.0]])
    case = call("aten.addmm.default", self=large, mat1=large, mat2=one, beta=-1, alpha=1.0)
    magnitude = run_reference(case).magnitude
    assert magnitude is not None
    assert magnitude[0] is not None
    assert magnitude[0].tolist() == [[2000.0]]


def test_scales_below_one_come_after_the_product() -> None:
    """alpha (mat1 @ mat2) overflows where (alpha mat1) @ mat2 does not; with alpha 0 that is NaN."""
    big = 3e38

    def case(alpha: float, summand: float) -> Invocation:
        tensors = {"self": tensor([[summand]]), "mat1": tensor([[big]]), "mat2": tensor([[2.0]])}
        return call("aten.addmm.default", **tensors, alpha=alpha)

    for value in (INF, NAN):
        got = np.full((1, 1), value, np.float32)
        assert against_pytorch(case(0.25, 1.0), got).problem is None
        assert against_pytorch(case(0.0, 1.0), got).problem is None
    assert against_pytorch(case(0.25, 1.0), np.full((1, 1), big, np.float32)).problem is not None


# 3 and 6. What calls with inputs in the neighbourhood say


def pointwise(overload: str, value: float, dtype: str = "float32", **more: Any) -> Invocation:
    return call(f"aten.{overload}", self=tensor([value], dtype), **more)


def test_rule_3_allows_pytorchs_error_at_neighbouring_inputs() -> None:
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
    case = call("aten.hypot.default", self=[3e30], other=[4e30])
    assert against_pytorch(case, np.array([INF], np.float32), CLOSE).problem == "overflow to infinity"
    assert against_pytorch(case, np.array([-INF], np.float32), CLOSE).problem == "infinities"


def test_integers_have_a_truth_too() -> None:
    """A quotient of integers and a sequence of Python numbers are computed in the default dtype."""
    quotient = call("aten.div.Tensor", self=[1], other=[3])
    sequence = call("aten.arange.default", end=2.5)
    half = call("aten.arange.default", end=3, dtype=Enumerated("dtype", "float16"))
    for case, value in ((quotient, 1 / 3), (sequence, 0.0), (half, 0.0)):
        truth = run_reference(case).truth
        assert truth is not None
        assert truth[0] is not None
        assert truth[0].dtype == np.float64
        assert truth[0].reshape(-1)[0] == value


def test_asking_for_the_truth_changes_nothing() -> None:
    sequence = call("aten.arange.default", end=2.5)
    assert run_reference(sequence).truth is not None
    assert torch.get_default_dtype() is torch.float32
    assert run_reference(sequence).expected[0].dtype == np.float32


def test_a_trapezoid_over_abscissae_is_held_to_its_terms() -> None:
    """A sum of terms of both signs overflows halfway in PyTorch, although its result is small."""
    load_cases()
    calls = [label.invocation for label in read_labels() if label.culprit == "false_alarm"]
    case = next(each for each in calls if each.overload == "aten.trapz.x")
    reference, judge = run_reference(case), judge_of(case)
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
    gates = (tensor([[0.0], [30.0], [0.0]]), tensor([[0.0]] * 3))
    if overload == "aten.gru_cell.default":
        weights = dict(zip(("w_ih", "w_hh"), gates, strict=True))
        case = call(overload, input=tensor([[1.0]]), hx=tensor([[1e-9]]), **weights, b_ih=None, b_hh=None)
    else:
        shared = {"params": gates, "has_biases": False, "num_layers": 1, "dropout": 0.0}
        shared |= {"train": False, "bidirectional": False}
        if overload.endswith("data"):
            case = call(overload, data=tensor([[1.0]]), batch_sizes=[1], hx=tensor([[[1e-9]]]), **shared)
        else:
            case = call(overload, input=tensor([[[1.0]]]), hx=tensor([[[1e-9]]]), **shared, batch_first=False)
    reference, judge = run_reference(case), judge_of(case)
    for offset, right in ((1e-7, True), (1e-4, False)):
        got = [e + np.float32(offset) for e in reference.expected]
        assert (compare(judge, reference, got).problem is None) == right


def convolved(values: Sequence[float], weights: Sequence[float]) -> Invocation:
    return call("aten.conv1d.default", input=tensor([[list(values)]]), weight=tensor([[list(weights)]]))


def test_rule_5_a_product_overflows_against_an_infinite_term() -> None:
    """-inf + 3·(3e38): NaN where the product is rounded first, -inf in a fused multiply-add."""
    case = convolved([-np.inf, 3e38], [1.0, 3.0])
    for got, right in ((-np.inf, True), (np.nan, True), (np.inf, False), (0.0, False)):
        assert (against_pytorch(case, np.array([[[got]]], np.float32)).problem is None) is right
    # Finite terms that stay in range leave one answer.
    case = convolved([-np.inf, 3e37], [1.0, 3.0])
    assert against_pytorch(case, np.array([[[np.nan]]], np.float32)).problem == "NaN positions"
    # As does a product that overflows to the same infinity.
    case = convolved([-np.inf, -3e38], [1.0, 3.0])
    assert against_pytorch(case, np.array([[[np.nan]]], np.float32)).problem == "NaN positions"


def test_rule_5_a_scaled_product_overflows_against_an_infinite_term() -> None:
    case = call("aten.addcmul.default", self=[np.inf], tensor1=[-3e38], tensor2=[3.0], value=1.0)
    for got, right in ((np.inf, True), (np.nan, True), (-np.inf, False)):
        assert (against_pytorch(case, np.array([got], np.float32), judge_of(case)).problem is None) is right


def test_rule_7_a_definition_that_stays_in_range() -> None:
    """alpha·(v·w) is 0 where alpha·v is infinite before it is multiplied by zero."""
    largest = float(np.finfo(np.float64).max)
    values = {"self": [[np.nan]], "vec1": [largest], "vec2": [0.0]}
    tensors = {name: tensor(value, "float64") for name, value in values.items()}
    case = call("aten.addr.default", **tensors, beta=0, alpha=2.5)
    for got, right in ((0.0, True), (np.nan, True), (1.0, False), (np.inf, False)):
        assert (against_pytorch(case, np.array([[got]]), judge_of(case)).problem is None) is right


def variance(values: Array) -> Invocation:
    spec = tensor(values.astype(float).tolist(), str(values.dtype))
    return call("aten.var.correction", self=spec, dim=None if values.ndim == 1 else (-1,), correction=1)


@pytest.mark.parametrize("value", [0.1, 3333.3333, -7.7, 1e15])
def test_rule_6_the_variance_of_equal_elements_is_the_square_of_an_error(value: float) -> None:
    values = np.full(2049, value, np.float32)
    case = variance(values)
    rounding = np.sqrt(values.size) * 2.0**-24 * np.abs(values[0])
    assert against_pytorch(case, np.array(rounding**2, np.float32), judge_of(case)).problem is None
    assert against_pytorch(case, np.array(1e5 * rounding**2, np.float32), judge_of(case)).problem == "values"


def test_a_float64_variance_is_held_to_one_in_long_double() -> None:
    """PyTorch updates mean and variance element by element: its error grows with their number."""
    values = np.random.Generator(np.random.PCG64(3)).normal(0.6, 2.0, 20_000)
    exact = np.array(values.astype(np.longdouble).var(ddof=1), np.float64)
    case = variance(values)
    assert against_pytorch(case, exact, judge_of(case)).problem is None
    assert against_pytorch(case, exact * (1 + 1e-11), judge_of(case)).problem == "values"


def test_a_float64_variance_at_the_end_of_the_range_is_held_to_one_in_long_double() -> None:
    """PyTorch's updates add infinities: its variance is NaN, the true one infinite. Rows with NaN have no other."""
    rows = np.zeros((31, 15))
    rows[:, 1:3] = 1.7976931348623157e308, -1.7976931348623157e308
    rows[0, 5] = np.nan
    case = variance(rows)
    assert np.isnan(run_reference(case).expected[0]).all()
    exact = np.full(31, np.inf)
    assert against_pytorch(case, exact, judge_of(case)).problem is not None
    exact[0] = np.nan
    assert against_pytorch(case, exact, judge_of(case)).problem is None
    exact[1] = 1e308
    assert against_pytorch(case, exact, judge_of(case)).problem is not None


def test_rule_4_a_window_is_held_to_its_cosines() -> None:
    load_cases()
    case = call("aten.blackman_window.default", window_length=127, dtype=Enumerated("dtype", "float64"))
    reference = run_reference(case)
    (window,) = reference.expected
    # Symmetric, by a formula that cancels to 2e-4 of terms of a half.
    assert compare(judge_of(case), reference, [np.r_[window[:1], window[:0:-1]]]).problem is None
    assert compare(judge_of(case), reference, [np.asarray(np.blackman(127))]).problem == "values"
    assert compare(judge_of(case), reference, [window.astype(np.float32).astype(np.float64)]).problem == "values"


def test_no_bound_is_known_where_an_infinity_is_interpolated() -> None:
    load_cases()
    sizes = {"output_size": (5,), "align_corners": True, "scale_factors": None}
    reference = run_reference(call("aten.upsample_linear1d.vec", input=tensor([[[1.0, INF, INF]]]), **sizes))
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
    case = call("aten.trapezoid.x", y=tensor(y.tolist(), "float64"), x=tensor(x.tolist()), dim=0)
    reference = run_reference(case)
    distances = np.diff(x, axis=0)
    terms = (y[1:] + y[:-1]) * distances / 2
    backwards = np.asarray([sum(terms[::-1].ravel())])
    assert compare(judge_of(case), reference, [backwards]).problem is None
    # Float64 computes the distances in float64, too: what PyTorch gives is not near to that.
    assert reference.truth is not None
    assert reference.truth[0] is not None
    away = reference.expected[0] - reference.truth[0]
    assert np.abs(away) > 1e-9
    assert compare(judge_of(case), reference, [reference.expected[0] + away / 100]).problem == "values"


def sampled_grid(image: TensorSpec, grid: TensorSpec, mode: int) -> Invocation:
    given = {"interpolation_mode": mode, "padding_mode": 0, "align_corners": False}
    return call("aten.grid_sampler_2d.default", input=image, grid=grid, **given)


def test_rule_6_a_place_is_rounded_as_a_number_of_at_least_one_is() -> None:
    load_cases()
    image = tensor([float(v) for v in range(-8, 8)], shape=(1, 1, 4, 4))
    case = sampled_grid(image, tensor([[[[1e-4, -1e-4]]]]), mode=0)
    reference = run_reference(case)
    (expected,) = reference.expected
    assert compare(judge_of(case), reference, [(expected + 4e-7).astype(np.float32)]).problem is None
    assert compare(judge_of(case), reference, [(expected + 4e-5).astype(np.float32)]).problem == "values"


def test_an_infinite_place_lies_outside_where_no_weight_is_taken_from_it() -> None:
    load_cases()
    case = sampled_grid(tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), tensor([[[[INF, 0.5], [NAN, 0.5]]]]), mode=1)
    reference = run_reference(case)
    assert reference.expected[0][0, 0, 0, 0] == 0.0
    wrong = compare(judge_of(case), reference, [np.asarray([[[[3.0, reference.expected[0][0, 0, 0, 1]]]]], np.float32)])
    assert wrong.problems[0].unsettled == ""
    nan = compare(judge_of(case), reference, [np.asarray([[[[0.0, 3.0]]]], np.float32)])
    assert nan.problems[0].unsettled != ""


def test_rule_5_one_huge_term_hides_what_the_others_overflow_to() -> None:
    # 8.5e38 - 1.2e77: in float32 the sum of two infinities, in float64 the second term alone.
    big = 3.4028234663852886e38
    case = call("aten.mm.default", self=tensor([[big, -big]]), mat2=tensor([[2.5], [big]]))
    for value in (-INF, NAN):
        assert against_pytorch(case, np.full((1, 1), value, np.float32)).problem is None
    assert against_pytorch(case, np.full((1, 1), -big, np.float32)).problem is not None
