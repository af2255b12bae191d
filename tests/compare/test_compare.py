"""Every numbered rule of `harness.compare.nearness`, both ways: right is accepted, just wrong is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from harness.compare.comparison import compare
from harness.compare.judge import ACCUMULATES, CLOSE, EXACT, IEEE, Judge, Mask
from harness.compare.nearness import Sensitivity, tolerance_of
from harness.compare.tolerances import DEFAULT
from harness.core.dtypes import Array

INF, NAN = float("inf"), float("nan")
DTYPES: dict[str, Any] = {
    "float64": np.float64,
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
LARGEST = {
    "float64": float(np.finfo(np.float64).max),
    "float32": float(np.finfo(np.float32).max),
    "float16": 65504.0,
    "bfloat16": (2.0 - 2.0**-7) * 2.0**127,
}
floats = pytest.mark.parametrize("dtype", DTYPES)
narrow = pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "float64"])


@dataclass(frozen=True)
class Said:
    """An oracle with given answers."""

    expected: tuple[Array, ...]
    truth: tuple[Array | None, ...] | None = None
    magnitude: tuple[Array | None, ...] | None = None
    unscaled: tuple[Array | None, ...] | None = None
    marked: tuple[Array | None, ...] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    sensitivity: tuple[Sensitivity | None, ...] | None = None
    flushed: tuple[Array, ...] | None = None
    definition: tuple[Array, ...] | None = None
    finite_terms: tuple[None, None] = (None, None)


def array(values: npt.ArrayLike, dtype: str) -> Array:
    return np.atleast_1d(np.asarray(values, dtype=np.float64)).astype(DTYPES[dtype])


def judged(
    expected: float,
    got: float,
    dtype: str = "float32",
    *,
    truth: float | None = None,
    magnitude: float | None = None,
    judge: Judge | None = None,
    inputs: Sequence[float] = (1.0,),
) -> str | None:
    """Return the problem of one element; None if it is right."""
    if judge is None:
        judge = CLOSE if magnitude is None else ACCUMULATES
    oracle = Said(
        (array(expected, dtype),),
        None if truth is None else (array(truth, "float64"),),
        None if magnitude is None else (array(magnitude, "float64"),),
        None,
        (array(1.0 if np.isfinite(inputs).all() else INF, "float64"),),
        {"self": array(inputs, dtype)},
    )
    return compare(judge, oracle, [array(got, dtype)]).problem


# Before any rule: structure


def test_number_shape_and_dtype_must_agree() -> None:
    one = np.zeros((2, 3), np.float32)
    oracle = Said((one,))
    assert compare(CLOSE, oracle, [one]).problem is None
    assert compare(CLOSE, oracle, [one, one]).problem == "number of outputs"
    assert compare(CLOSE, oracle, [one.T]).problem == "shape"
    assert compare(CLOSE, oracle, [one.astype(np.float64)]).problem == "dtype"
    # An array without elements has a shape anyway.
    empty = np.zeros((0, 3), np.float32)
    assert compare(CLOSE, Said((empty,)), [empty.reshape(3, 0)]).problem == "shape"


def test_integers_and_booleans_must_be_equal() -> None:
    for dtype in (np.int8, np.int64, np.bool_):
        one = np.array([0, 1], dtype)
        assert compare(CLOSE, Said((one,)), [one.copy()]).problem is None
        assert compare(CLOSE, Said((one,)), [one[::-1].copy()]).problem == "values"
    # 2**53 and its successor are one number in float64.
    big = np.array([2**53])
    assert compare(CLOSE, Said((big,)), [big + 1]).problem == "values"


# 7. Where float64 has no answer


@floats
@pytest.mark.parametrize("expected", [0.0, 1.0, -3.0, 96.0])
def test_rule_7_accepts_what_is_near_pytorch(dtype: str, expected: float) -> None:
    tolerance = DEFAULT[dtype]
    allowed = tolerance.atol + tolerance.rtol * abs(expected)
    # In steps of the dtype itself, so that rounding the numbers decides nothing.
    step = abs(float(np.spacing(array(expected, dtype)).astype(np.float64)[0])) if expected else allowed / 8
    inside, outside = np.floor(allowed / step) * step, (np.floor(allowed / step) + 2) * step
    assert judged(expected, expected, dtype) is None
    assert judged(expected, expected + (0.9 * inside if expected == 0 else inside), dtype) is None
    assert judged(expected, expected - (0.9 * inside if expected == 0 else inside), dtype) is None
    assert judged(expected, expected + outside, dtype) == "values"
    assert judged(expected, expected - outside, dtype) == "values"


# 1. PyTorch's result but for the last places


@floats
@pytest.mark.parametrize("expected", [1.0, -3.0, 1e-4])
def test_rule_1_accepts_the_last_places_and_no_more(dtype: str, expected: float) -> None:
    """However small a number is; and a float64 result that was computed in float32 is wrong."""
    (rounded,) = array(expected, dtype).astype(np.float64)
    allowed = tolerance_of(CLOSE, dtype).rtol * abs(rounded)
    for sign in (-1, 1):
        inside, outside = rounded + 0.7 * sign * allowed, rounded + 2.5 * sign * allowed
        assert judged(rounded, inside, dtype, truth=rounded) is None
        assert judged(rounded, outside, dtype, truth=rounded) == "values"
    assert judged(1 / 3, float(np.float32(1 / 3)), "float64", truth=1 / 3) == "values"


@floats
def test_rule_1_accepts_the_same_nan_and_infinities(dtype: str) -> None:
    for value in (NAN, INF, -INF):
        assert judged(value, value, dtype) is None
    assert judged(NAN, 1.0, dtype) == "NaN positions"
    assert judged(1.0, NAN, dtype) == "NaN positions"
    assert judged(INF, NAN, dtype) == "NaN positions"
    assert judged(INF, -INF, dtype) == "infinities"
    assert judged(INF, LARGEST[dtype], dtype) == "infinities"
    assert judged(LARGEST[dtype], INF, dtype) == "overflow to infinity"


def test_an_exact_judge_has_no_tolerance() -> None:
    assert judged(1.0, 1.0 + 2**-23) is None
    assert judged(1.0, 1.0 + 2**-23, judge=EXACT) == "values"
    assert judged(NAN, NAN, judge=EXACT) is None
    # The truth excuses nothing either.
    assert judged(1.0, 2.0, judge=EXACT, truth=2.0) == "values"


def test_the_sign_of_zero_counts_if_the_judge_asks_for_it() -> None:
    assert judged(0.0, -0.0, judge=CLOSE) is None
    for judge in (IEEE, EXACT):
        assert judged(0.0, -0.0, judge=judge) == "sign of zero"
        assert judged(-0.0, -0.0, judge=judge) is None
    # Within the tolerance of zero it is not a zero, and has no wrong sign.
    assert judged(0.0, -1e-7, judge=IEEE) is None


# 2. Within the tolerance of the truth


@floats
def test_rule_2_accepts_what_is_near_the_truth(dtype: str) -> None:
    # PyTorch is off by a half; the backend is right, or as wrong the other way.
    assert judged(1.5, 1.0, dtype, truth=1.0) is None
    assert judged(1.5, 1.0, dtype) == "values"
    assert judged(1.5, 0.4375, dtype, truth=1.0) == "values"


@narrow
def test_rule_2_accepts_infinities_of_the_truth_rounded(dtype: str) -> None:
    beyond = 4.0 * LARGEST[dtype]
    assert judged(LARGEST[dtype], INF, dtype, truth=beyond) is None
    assert judged(LARGEST[dtype], -INF, dtype, truth=beyond) == "infinities"
    assert judged(LARGEST[dtype], INF, dtype, truth=LARGEST[dtype] / 2) == "overflow to infinity"
    # PyTorch overflows on the way, the result does not.
    assert judged(INF, 1.0, dtype, truth=1.0) is None
    assert judged(INF, 2.0, dtype, truth=1.0) == "infinities"
    assert judged(NAN, NAN, dtype, truth=1.0) is None
    assert judged(1.0, NAN, dtype, truth=NAN) is None
    assert judged(1.0, NAN, dtype, truth=1.0) == "NaN positions"


def test_a_truth_of_another_shape_is_none() -> None:
    oracle = Said((array(1.5, "float32"),), (array([1.0, 1.0], "float64"),))
    assert compare(CLOSE, oracle, [array(1.0, "float32")]).problem == "values"


# 3. No further from the truth than PyTorch


@floats
def test_rule_3_accepts_what_is_no_further_than_pytorch(dtype: str) -> None:
    assert judged(1.5, 0.5, dtype, truth=1.0) is None
    assert judged(1.5, 0.75, dtype, truth=1.0) is None
    assert judged(1.5, 0.4375, dtype, truth=1.0) == "values"
    # An infinite distance excuses no finite number.
    assert judged(INF, 7.0, dtype, truth=1.0) == "infinities"
    assert judged(NAN, 7.0, dtype, truth=1.0) == "NaN positions"


@floats
def test_rule_3_where_pytorch_leaves_the_range(dtype: str) -> None:
    for expected in (INF, -INF, NAN):
        for got in (INF, -INF, NAN):
            assert judged(expected, got, dtype, truth=1.0) is None
    # Not where PyTorch stays within it, nor where the truth itself is infinite or NaN.
    for got in (INF, -INF, NAN):
        assert judged(1.0, got, dtype, truth=1.0) is not None
    assert judged(INF, -INF, dtype, truth=INF) == "infinities"
    assert judged(INF, NAN, dtype, truth=INF) == "NaN positions"
    assert judged(NAN, INF, dtype, truth=NAN) == "NaN positions"


# 4. Sums of products


@floats
def test_rule_4_the_error_scales_with_the_terms(dtype: str) -> None:
    tolerance, terms = tolerance_of(CLOSE, dtype), 1024.0
    allowed = tolerance.atol + tolerance.rtol * terms
    # The terms cancel to nothing; what is left may be off by their tolerance.
    assert judged(0.0, 0.95 * allowed, dtype, truth=0.0, magnitude=terms) is None
    assert judged(0.0, -0.95 * allowed, dtype, truth=0.0, magnitude=terms) is None
    assert judged(0.0, 1.05 * allowed, dtype, truth=0.0, magnitude=terms) == "values"
    # Only for operators that accumulate.
    assert judged(0.0, 0.95 * allowed, dtype, truth=0.0, magnitude=terms, judge=CLOSE) == "values"


def test_rule_4_takes_the_judges_own_terms() -> None:
    def terms(arguments: Mapping[str, Any]) -> Array:
        assert arguments["self"].dtype == np.float64
        return np.asarray(abs(arguments["self"]) * 2)

    judge = Judge(terms=terms)
    allowed = 1.3e-6 * 2048
    assert judged(0.0, 0.95 * allowed, truth=0.0, judge=judge, inputs=[-1024.0]) is None
    assert judged(0.0, 1.05 * allowed, truth=0.0, judge=judge, inputs=[-1024.0]) == "values"


# 5. Overflow that depends on the order of summation


@narrow
def test_rule_5_both_signs_overflow(dtype: str) -> None:
    """max + max - max - max: 0, inf, -inf or NaN, by the order."""
    largest = LARGEST[dtype]
    for expected in (0.0, INF, -INF, NAN):
        for got in (0.0, INF, -INF, NAN):
            assert judged(expected, got, dtype, truth=0.0, magnitude=4 * largest) is None
    assert judged(INF, largest / 2, dtype, truth=0.0, magnitude=4 * largest) == "infinities"
    # Only for operators that accumulate.
    assert judged(0.0, NAN, dtype, truth=0.0, magnitude=4 * largest, judge=CLOSE) == "NaN positions"
    assert judged(0.0, INF, dtype, truth=0.0, magnitude=4 * largest, judge=CLOSE) == "overflow to infinity"


@narrow
def test_rule_5_one_sign_overflows(dtype: str) -> None:
    """max + max - max: max or inf, but never -inf, and no NaN without it."""
    largest = LARGEST[dtype]
    assert judged(largest, INF, dtype, truth=largest, magnitude=3 * largest) is None
    assert judged(INF, largest, dtype, truth=largest, magnitude=3 * largest) is None
    assert judged(-largest, -INF, dtype, truth=-largest, magnitude=3 * largest) is None
    # Terms of the other sign that sum to 3/4 of the largest overflow in no order.
    assert judged(INF, -INF, dtype, truth=1.5 * largest, magnitude=3 * largest) == "infinities"
    assert judged(INF, NAN, dtype, truth=1.5 * largest, magnitude=3 * largest) == "NaN positions"
    assert judged(-INF, NAN, dtype, truth=-1.5 * largest, magnitude=3 * largest) == "NaN positions"


@narrow
def test_rule_5_at_the_edge_of_overflow(dtype: str) -> None:
    largest, rtol = LARGEST[dtype], DEFAULT[dtype].rtol
    just = 2 * largest / (1 + rtol)
    assert judged(0.0, INF, dtype, truth=0.0, magnitude=just * (1 + 1e-9)) is None
    assert judged(0.0, INF, dtype, truth=0.0, magnitude=just * (1 - 1e-9)) == "overflow to infinity"
    assert judged(0.0, NAN, dtype, truth=0.0, magnitude=just * (1 - 1e-9)) == "NaN positions"


def test_rule_5_where_float64_overflows_itself() -> None:
    largest = LARGEST["float64"]
    for truth in (INF, NAN, 0.0):
        for got in (INF, -INF, NAN):
            assert judged(0.0, got, "float64", truth=truth, magnitude=INF, inputs=[largest] * 4) is None
    assert judged(0.0, 1.0, "float64", truth=NAN, magnitude=INF, inputs=[largest] * 4) == "values"


@floats
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
def test_rule_5_does_not_apply_to_infinite_inputs(dtype: str, bad: float) -> None:
    """1 + inf has one right answer, however it is summed."""
    magnitude = abs(bad)
    assert judged(bad, bad, dtype, truth=bad, magnitude=magnitude, inputs=[1.0, bad]) is None
    wrong = [got for got in (INF, -INF, NAN) if not np.array_equal(got, bad, equal_nan=True)]
    for got in wrong:
        assert judged(bad, got, dtype, truth=bad, magnitude=magnitude, inputs=[1.0, bad]) is not None


def test_rule_5_is_decided_element_by_element() -> None:
    """An infinity among the inputs of another element takes nothing from the one that overflows, and the
    other way round; where float64 overflows, too."""
    for dtype, known in (("float32", 4.0), ("float64", INF)):
        largest = LARGEST[dtype]
        oracle = Said(
            (array([NAN, INF], dtype),),
            (array([NAN, INF], "float64"),),
            (array([min(known * largest, INF), INF], "float64"),),
            None,
            (array([4.0, INF], "float64"),),
            {"self": array([[largest, largest, -largest, -largest], [1.0, INF, 1.0, 1.0]], dtype)},
        )
        if dtype == "float32":
            oracle = replace(oracle, truth=(array([0.0, INF], "float64"),))
        assert compare(ACCUMULATES, oracle, [array([-INF, INF], dtype)]).problem is None
        assert compare(ACCUMULATES, oracle, [array([-INF, NAN], dtype)]).problem == "NaN positions"
        assert compare(ACCUMULATES, oracle, [array([-INF, -INF], dtype)]).problem is not None


@narrow
def test_rule_5_scales_applied_after_the_sum(dtype: str) -> None:
    """alpha (max + max), alpha = 1/4: max / 2, or alpha inf."""
    largest = LARGEST[dtype]

    def scaled(got: float, alpha: float, unscaled: float) -> str | None:
        half, magnitude = array(largest / 2, dtype), array(largest / 2, "float64")
        arguments = {"self": array(largest, dtype), "alpha": alpha}
        marked, unscaled_ = array(1.0, "float64"), array(unscaled, "float64")
        oracle = Said((half,), (magnitude,), (magnitude,), (unscaled_,), (marked,), arguments)
        return compare(ACCUMULATES, oracle, [array(got, dtype)]).problem

    for got in (INF, -INF, NAN):
        assert scaled(got, 0.25, 2 * largest) is None
        # The sum does not overflow either, or nothing makes it smaller.
        assert scaled(got, 0.25, largest / 2) is not None
        assert scaled(got, 1.0, 2 * largest) is not None
    assert scaled(largest, 0.25, 2 * largest) == "values"


# Undefined elements, rules of outputs, and the numbers reported


def test_undefined_elements_are_not_compared() -> None:
    def first(arguments: Mapping[str, Any], expected: Sequence[Array]) -> list[Mask | None]:
        return [np.arange(expected[0].size) == 0]

    judge = Judge(undefined=first)
    oracle = Said((array([1.0, 2.0], "float32"),))
    kept = compare(judge, oracle, [array([NAN, 2.0], "float32")])
    assert kept.problem is None
    assert kept.total_elements == 1
    assert compare(judge, oracle, [array([1.0, NAN], "float32")]).problem == "NaN positions"


def test_errors_are_measured_on_passes_too() -> None:
    found = compare(CLOSE, Said((array([1.0, 0.0], "float32"),)), [array([1.0 + 2**-22, 1e-6], "float32")])
    assert found.problem is None
    assert found.max_ulp_error is not None
    assert found.max_abs_error == pytest.approx(1e-6)
    assert found.max_rel_error == 2**-22
    # An element near zero counts in the smallest normal number's ulps.
    assert found.max_ulp_error > 2


def test_the_first_wrong_element_is_named() -> None:
    found = compare(CLOSE, Said((array([1.0, 2.0, 3.0], "float32"),)), [array([1.0, 2.5, 3.5], "float32")])
    assert found.message == "values: output 0[1]: expected 2.0, got 2.5"
    assert (found.mismatched_elements, found.total_elements) == (2, 3)
