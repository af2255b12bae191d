"""Excused elements are counted by rule, and no rule excuses what a text decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from harness_runs import vector
from recorded_rows import tensor

from harness.compare.comparison import compare
from harness.compare.output_comparison import OutputComparison, parse_excuses
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.generate.case_library import load_cases
from harness.generate.operator_case import judge_of
from harness.pipeline.case import CaseOracle
from harness.pipeline.reference import run_reference

NAN, INF = float("nan"), float("inf")


def answer(overload: str, **arguments: Any) -> CaseOracle:
    load_cases()
    return run_reference(Invocation(overload, tuple(arguments.items())))


def judged(reference: CaseOracle, got: Array) -> OutputComparison:
    return compare(judge_of(reference.invocation), reference, [got, *reference.expected[1:]])


@pytest.mark.parametrize("beta", [0.0, -0.0, 0])
def test_a_factor_of_zero_hides_no_nan(beta: float) -> None:
    empty = {"mat": tensor([], "float16", shape=(8, 0)), "vec": tensor([], "float16")}
    found = answer("aten.addmv.default", self=vector([NAN], "float16"), **empty, beta=beta, alpha=1)
    # "If beta is 0, then the content of input will be ignored, and nan and inf in it will not be propagated."
    assert (found.expected[0] == 0).all()
    wrong = judged(found, np.full(8, NAN, np.float16))
    assert (wrong.problem, wrong.mismatched_elements, wrong.excused) == ("NaN positions", 8, ())


def test_a_rule_that_excuses_is_named_with_the_elements() -> None:
    big = tensor([[3e38, 3e38], [-3e38, -3e38]])
    found = answer("aten.mm.default", self=big, mat2=tensor([[1.0, 1.0], [-1.0, 0.5]]))
    got = found.expected[0].copy()
    got[0, 0] += np.float32(1e31)
    comparison = judged(found, got)
    assert comparison.problem is None
    assert parse_excuses(comparison.excuses) == comparison.excused == (("nearness 4 (the terms' magnitudes)", 1),)


_OPEN: Mapping[str, tuple[str, dict[str, Any], list[int]]] = {
    "a shift by the width": ("bitwise_left_shift.Tensor", {"other": vector([1, 32], "int32")}, [1]),
    "a comparison": ("eq.Scalar", {"other": 2**32 + 1}, [0, 1]),
}


@pytest.mark.parametrize("name", _OPEN)
def test_what_pytorch_computes_and_no_text_says_is_no_pass(name: str) -> None:
    overload, others, open_ = _OPEN[name]
    found = answer(f"aten.{overload}", self=vector([1, 3], "int32"), **others)
    assert judged(found, found.expected[0]).problem is None
    for place in range(2):
        got = found.expected[0].copy()
        got[place] = not got[place] if got.dtype == bool else got[place] + 1
        comparison = judged(found, got)
        assert (comparison.problem, comparison.mismatched_elements) == ("values", 1)
        assert bool(comparison.unsettled) == (place in open_)


@pytest.mark.parametrize(("overload", "other"), [("pow.Tensor_Scalar", 31), ("mul.Scalar", 2**30)])
def test_an_integer_that_overflows_may_wrap_or_saturate(overload: str, other: int) -> None:
    name = "exponent" if overload.startswith("pow") else "other"
    found = answer(f"aten.{overload}", self=vector([1, 3], "int32"), **{name: other})
    saturated = np.array([found.expected[0][0], 2**31 - 1], np.int32)
    assert judged(found, saturated).excused == (("another of several right answers", 1),)
    assert judged(found, -saturated).mismatched_elements == 2


def test_defects_come_before_results_that_are_left_open() -> None:
    found = answer("aten.bitwise_left_shift.Tensor", self=vector([1, 3], "int32"), other=vector([1, 32], "int32"))
    comparison = judged(found, found.expected[0] + np.int32(1))
    assert [bool(problem.unsettled) for problem in comparison.problems] == [False, True]
    assert comparison.unsettled == ""
    assert "output 0[0]" in comparison.message


@pytest.mark.parametrize(
    ("mode", "padding", "coordinate", "kept"),
    [
        # "NaN values in grid would be interpreted as -1", and so they are beyond borders.
        (0, 1, NAN, True),
        (1, 2, NAN, True),
        # Outside is zero, however far.
        (0, 0, 1e30, True),
        (0, 0, NAN, False),
        (2, 1, INF, False),
        # Finite, and infinite where it is scaled to pixels.
        (2, 1, 3e38, False),
    ],
)
def test_a_coordinate_of_no_place_is_judged_only_if_the_text_defines_it(
    mode: int, padding: int, coordinate: float, kept: bool
) -> None:
    grid = tensor([[[[coordinate, 0.0], [0.5, 0.5]]]])
    found = answer(
        "aten.grid_sampler_2d.default",
        input=tensor(np.arange(1.0, 10.0).tolist(), shape=(1, 1, 3, 3)),
        grid=grid,
        interpolation_mode=mode,
        padding_mode=padding,
        align_corners=False,
    )
    got = found.expected[0].copy()
    got[0, 0, 0, 0] = 100.0
    assert bool(judged(found, got).problem)
    assert bool(judged(found, got).unsettled) is not kept


@pytest.mark.parametrize(
    ("coordinate", "other_pixel_is_right"),
    [
        # The centres of three pixels are at -2/3, 0 and 2/3; 1/3 is exact in no float.
        (0.0, False),
        (0.3, False),
        (float(np.float32(1 / 3)), True),
        # One last place above -1/2 of a width of two, where pixels meet at 0.
        (6e-8, True),
    ],
)
def test_the_nearest_of_two_pixels_is_open_where_rounding_decides(
    coordinate: float, other_pixel_is_right: bool
) -> None:
    width = 2 if coordinate == 6e-8 else 3
    found = answer(
        "aten.grid_sampler_2d.default",
        input=tensor([[[np.arange(1.0, 1.0 + width).tolist()]]]),
        grid=tensor([[[[coordinate, 0.0]]]]),
        interpolation_mode=1,
        padding_mode=0,
        align_corners=False,
    )
    [[[[pixel]]]] = found.expected[0]
    other = np.full_like(found.expected[0], pixel + 1 if pixel < width else pixel - 1)
    assert bool(judged(found, other).problem) is not other_pixel_is_right


def _resized(overload: str, image: Array, **more: Any) -> CaseOracle:
    spec = tensor(image.tolist(), "uint8")
    return answer(overload, self=spec, output_size=[4, 5], align_corners=False, **more)


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_bicubic2d"])
def test_pixels_are_rounded_and_not_cut_off(name: str) -> None:
    image = np.random.default_rng(0).integers(60, 200, (1, 1, 7, 9))
    found = _resized(f"aten.{name}.default", image)
    operator = getattr(torch.ops.aten, name).default
    real = operator(torch.from_numpy(image).double(), [4, 5], False).numpy()
    rounded = judged(found, np.round(real).astype(np.uint8))
    assert (rounded.problem, sum(number for _, number in rounded.excused)) == (
        None,
        (np.round(real) != found.expected[0]).sum(),
    )
    assert judged(found, np.floor(real).astype(np.uint8)).problem == "values"


def test_an_infinite_factor_decides_a_sum_of_which_other_terms_overflow() -> None:
    huge = float(np.finfo(np.float64).max)
    first, second = tensor([[1e300, 1.0]], "float64"), tensor([[huge], [-INF]], "float64")
    found = answer("aten.mm.default", self=first, mat2=second)
    # +inf, which is not an infinity but for the range of float64, and -inf, which is one.
    assert np.isnan(found.expected[0]).all()
    assert judged(found, np.array([[-INF]])).problem is None
    assert judged(found, np.array([[INF]])).problem is not None
    assert judged(found, np.array([[0.0]])).problem is not None


def test_a_subnormal_probability_times_an_infinite_weight_is_lost_as_documented() -> None:
    # 1 - x is 1 in float32, and its logarithm zero.
    given = {"target": vector([0.0, 0.0]), "weight": vector([INF, INF]), "reduction": 0}
    found = answer("aten.binary_cross_entropy.default", self=vector([1e-45, 0.5]), **given)
    assert judged(found, np.array([NAN, INF], np.float32)).excused == (("another of several right answers", 1),)
    assert judged(found, np.array([NAN, NAN], np.float32)).problem == "NaN positions"
    assert judged(found, np.array([0.0, INF], np.float32)).problem == "infinities"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_tie_between_two_steps_excuses_its_neighbours_alone(dtype: str) -> None:
    found = answer(
        "aten.fake_quantize_per_tensor_affine.default",
        self=vector([0.25, 0.4], dtype),
        scale=0.5,
        zero_point=0,
        quant_min=-128,
        quant_max=127,
    )
    assert found.expected[0].tolist() == [0.0, 0.5]
    assert judged(found, np.array([0.5, 0.5], dtype)).problem is None
    assert judged(found, np.array([1.0, 0.5], dtype)).problem == "values"
    assert judged(found, np.array([0.0, 1.0], dtype)).problem == "values"


def test_what_is_moved_does_not_overflow() -> None:
    found = answer("aten.flip.default", self=vector([1.0, 2.0]), dims=(0,))
    assert judged(found, np.array([2.0, INF], np.float32)).problem == "infinities"


def test_a_float64_beside_zero_has_the_last_places_of_float64() -> None:
    found = answer("aten.log1p.default", self=vector([2.0**-1022, 1e-60], "float64"))
    assert judged(found, np.zeros(2)).mismatched_elements == 2
    assert judged(found, found.expected[0] * (1 + 2.0**-50)).problem is None


@pytest.mark.parametrize(("places", "open_"), [([0.0, 3e38], False), ([0, 2**62], True)])
def test_between_floats_the_areas_below_integers_do_not_leave_their_range(places: list[float], open_: bool) -> None:
    heights, dtype = vector([2**40, 2], "int64"), "int64" if open_ else "float32"
    found = answer("aten.trapezoid.x", y=heights, x=vector(places, dtype), dim=-1)
    assert bool(judged(found, found.expected[0] * 2 + 1).unsettled) is open_


@pytest.mark.parametrize(("key", "open_"), [(2e37, True), (1e36, False)])
def test_attention_is_open_where_a_score_leaves_the_range(key: float, open_: bool) -> None:
    """Whether 40 · 2·10³⁷ · 0.125 is finite depends on when a kernel scales."""
    found = answer(
        "aten.scaled_dot_product_attention.default",
        query=tensor([[[[40.0]]]]),
        key=tensor([[[[key], [-key]]]]),
        value=tensor([[[[1.0], [2.0]]]]),
        scale=0.125,
    )
    judgement = judged(found, np.full_like(found.expected[0], 7.0))
    assert judgement.problem
    assert bool(judgement.unsettled) is open_
