"""Arguments that never meet in operator cases, and the smallest shapes, are drawn, too."""

from __future__ import annotations

from functools import cache

import pytest

from harness.core.invocation import Invocation, Recipe, TensorSpec
from harness.core.tensors import build_tensor
from harness.generate.case_library import load_cases
from harness.generate.draw import OMIT, Draw
from harness.generate.draws import draw_examples
from harness.generate.operator_case import Arguments, OperatorCase


@cache
def drawn(overload: str, seed: int = 0) -> tuple[Invocation, ...]:
    found = draw_examples(load_cases()[overload], seed=seed, examples=256)
    return tuple(call for one in found for call in one.invocations)


def firsts(case: OperatorCase) -> list[Invocation]:
    return [one.invocations[0] for one in draw_examples(case, seed=0, examples=128)]


def test_an_argument_of_one_branch_comes_in_the_other_branch() -> None:
    def scaled_in_one_branch(d: Draw) -> Arguments:
        other, scaled = d.tensor((2, 3)), d.boolean()
        # Only a promoted operand has a scale.
        return {
            "self": d.tensor((2, 3)),
            "other": d.tensor((3,)) if scaled else other,
            "alpha": d.choose(2, 0.5) if scaled else OMIT,
        }

    case = OperatorCase(overload="aten.add.Tensor", family="t", dtypes=("float32",), arguments=scaled_in_one_branch)
    met = {
        (call_shape(call), "alpha" in dict(call.arguments), dict(call.arguments).get("alpha")) for call in firsts(case)
    }
    assert {alpha for shape, given, alpha in met if shape == (2, 3) and given} >= {2, 0.5}
    # Signs are not left to the operator case.
    assert any(isinstance(alpha, int | float) and alpha < 0 for _, _, alpha in met)
    # A given argument stays as it was drawn, and so do calls without it.
    assert any(shape == (2, 3) and not given for shape, given, _ in met)


def call_shape(call: Invocation) -> tuple[int, ...]:
    other = dict(call.arguments)["other"]
    assert isinstance(other, TensorSpec)
    return other.shape


def test_a_case_without_smallest_shapes_gets_one_of_each() -> None:
    case = OperatorCase(
        overload="aten.relu.default",
        family="t",
        dtypes=("float32",),
        arguments=lambda d: {"self": d.tensor((d.size(2, 5), d.size(2, 5)))},
    )
    shapes = [next(call.tensors()).shape for call in firsts(case)]
    assert shapes.count(()) == 1
    assert sum(0 in shape for shape in shapes) == 1
    assert shapes.count((1, 1)) == 1


def test_dividends_are_multiples_of_their_divisors_and_numbers_beside_them() -> None:
    exact = aside = 0
    calls = (call for name in ("remainder.Tensor", "fmod.Tensor", "div.Tensor_mode") for call in drawn(f"aten.{name}"))
    for call in calls:
        left, right = (build_tensor(spec) for spec in call.tensors())
        if left.dtype == right.dtype and left.shape == right.shape and left.is_floating_point() and left.numel() > 4:
            quotient = left.double() / right.double()
            times = quotient.round()
            is_near = ((quotient - times).abs() < 4e-3) & (times != 0) & (times.abs() < 20)
            exact += bool((is_near & (quotient == times)).sum() > 1)
            aside += bool((is_near & (quotient != times)).sum() > 1)
    assert exact > 5
    assert aside > 2


@pytest.mark.parametrize(
    ("dtype", "style", "above"),
    [
        ("int32", "large 0", 2**24),
        ("int64", "large 1", 2**53),
        ("float64", "large 0", 2**24),
        ("float32", "large 0", 2**23),
    ],
)
def test_large_integers_are_odd_just_above_a_power_of_two(dtype: str, style: str, above: int) -> None:
    spec = TensorSpec((64,), dtype, (1,), 0, Recipe(("any",), style, 5))
    size = build_tensor(spec).abs()
    assert bool(((size > above) & (size < above + 64) & (size % 2 == 1)).all())


def test_sums_and_products_take_large_integers_in_every_wide_dtype() -> None:
    names = (
        "sum.default",
        "sum.dim_IntList",
        "add.Tensor",
        "mul.Tensor",
        "cumsum.default",
        "mm.default",
        "dot.default",
    )
    dtypes = {
        spec.dtype
        for name in names
        for seed in range(2)
        for call in drawn(f"aten.{name}", seed)
        for spec in call.tensors()
        if isinstance(spec.values, Recipe) and spec.values.style.startswith("large")
    }
    assert dtypes >= {"float32", "float64", "float16", "int32", "int64"}


def test_a_row_of_a_mask_is_all_true_or_all_false() -> None:
    rows = set()
    for call in (call for seed in range(3) for call in drawn("aten.masked_fill.Scalar", seed)):
        mask = build_tensor(list(call.tensors())[1])
        if mask.dim() > 1 and mask.shape[-1] > 2 and 0 < int(mask.sum()) < mask.numel():
            whole = {int(row.sum()) for row in mask.reshape(-1, mask.shape[-1])}
            rows |= {"true"} if mask.shape[-1] in whole else set()
            rows |= {"false"} if 0 in whole else set()
    assert rows == {"true", "false"}
