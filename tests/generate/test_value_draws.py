"""The further draws of a structure hold classes of values of the whole call."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest
import torch

from harness.core.dtypes import ALL, FLOATS
from harness.core.invocation import Invocation, Recipe, TensorSpec
from harness.core.tensors import build_tensor
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases, draw_examples
from harness.generate.scalars import ScalarClass, scalar_fit
from harness.plan.options import Options


@cache
def default_draws(overload: str, seed: int = 0) -> tuple[Invocation, ...]:
    """Return the draws of an operator in a plain `pytest harness`."""
    found = draw_examples(load_cases()[overload], seed=seed, examples=Options().examples)
    return tuple(invocation for drawn in found for invocation in drawn.invocations)


def held(call: Invocation) -> Iterator[tuple[str, TensorSpec, torch.Tensor]]:
    """Name, description and values of each tensor argument."""
    for name, argument in call.arguments:
        if isinstance(argument, TensorSpec):
            yield name, argument, build_tensor(argument)


def is_empty(call: Invocation) -> bool:
    """Whether no tensor has an element."""
    return not any(spec.numel for spec in call.tensors())


def classes(tensor: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return special value → mask of the elements of a floating tensor that have it."""
    info = torch.finfo(tensor.dtype)
    size = tensor.abs()
    return {
        "NaN": tensor.isnan(),
        "inf": tensor == torch.inf,
        "-inf": tensor == -torch.inf,
        "0": (tensor == 0) & ~tensor.signbit(),
        "-0": (tensor == 0) & tensor.signbit(),
        "largest": size == info.max,
        "subnormal": (size > 0) & (size < info.tiny),
    }


@pytest.mark.parametrize("overload", ["aten.add.Tensor", "aten.atan2.default", "aten.maximum.default"])
def test_operands_hold_nearly_every_pair_of_special_values(overload: str) -> None:
    met: set[tuple[str, str]] = set()
    for call in default_draws(overload) + default_draws(overload, seed=1):
        left, right = (tensor for *_, tensor in held(call))
        if left.is_floating_point() and right.is_floating_point():
            pairs = product(classes(left).items(), classes(right).items())
            met |= {(a, b) for (a, ours), (b, theirs) in pairs if (ours & theirs).any()}
    assert len(met) >= 48


def test_each_special_value_is_the_only_one_of_some_call_in_each_argument() -> None:
    alone: set[tuple[str, str]] = set()
    for call in (call for seed in range(4) for call in default_draws("aten.where.self", seed)):
        found = [
            (name, word)
            for name, _, tensor in held(call)
            if tensor.is_floating_point()
            for word, place in classes(tensor).items()
            if word != "0"
            for _ in range(int(place.sum()))
        ]
        if len(found) == 1:
            alone.add(found[0])
    for name in ("self", "other"):
        assert {word for argument, word in alone if argument == name} >= {"NaN", "inf", "-inf", "-0"}


def test_every_dtype_has_calls_without_and_with_special_values() -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    for call in default_draws("aten.mul.Tensor"):
        tensors = [tensor for *_, tensor in held(call) if tensor.is_floating_point()]
        if tensors and all(tensor.numel() for tensor in tensors):
            seen[call.dtype, any((~tensor.isfinite()).any() for tensor in tensors)] += 1
    dtypes = {dtype for dtype, _ in seen} & set(FLOATS)
    assert len(dtypes) >= 3
    assert all(seen[dtype, special] for dtype in dtypes for special in (True, False)), seen


@pytest.mark.parametrize("overload", ["aten.eq.Scalar", "aten.ge.Scalar", "aten.hardshrink.default"])
def test_elements_equal_the_scalar_in_every_dtype(overload: str) -> None:
    equal: set[str] = set()
    for call in (call for seed in range(6) for call in default_draws(overload, seed=seed)):
        ((_, spec, tensor),) = held(call)
        scalar = next((a for _, a in call.arguments if isinstance(a, int | float)), None)
        if scalar is not None and abs(scalar) < 2**31 and (tensor == scalar).any():
            equal.add(spec.dtype)
    assert set(load_cases()[overload].dtypes) & set(ALL) <= equal


def test_each_way_in_which_a_dtype_takes_a_scalar_comes() -> None:
    found: dict[str, set[ScalarClass]] = {}
    for call in (call for seed in range(8) for call in default_draws("aten.mul.Scalar", seed=seed)):
        number = dict(call.arguments)["other"]
        if isinstance(number, int | float) and math.isfinite(number):
            found.setdefault(call.dtype, set()).add(scalar_fit(number, call.dtype))
    assert found["uint8"] >= {ScalarClass.PLAIN, ScalarClass.ROUNDED, ScalarClass.BEYOND, ScalarClass.NEGATIVE}
    for dtype in ("float32", "float16", "bfloat16", "int32"):
        assert found[dtype] >= {ScalarClass.PLAIN, ScalarClass.ROUNDED, ScalarClass.BEYOND}


def test_a_scalar_of_a_call_without_elements_comes_with_elements_too() -> None:
    calls = [call for seed in range(4) for call in default_draws("aten.mul.Scalar", seed=seed)]
    filled = {dict(call.arguments)["other"] for call in calls if not is_empty(call)}
    empty = {dict(call.arguments)["other"] for call in calls if is_empty(call)}
    assert empty
    assert empty <= filled


def test_scalars_of_every_wide_dtype_are_such_as_a_narrower_one_does_not_hold() -> None:
    calls = [call for seed in range(3) for call in default_draws("aten.eq.Scalar", seed)]
    numbers = {(call.dtype, dict(call.arguments)["other"]) for call in calls}
    for dtype, narrower in (("float64", torch.float32), ("float32", torch.float16), ("int64", torch.float64)):
        assert any(
            isinstance(number, int | float)
            and torch.tensor(float(number), dtype=torch.float64).to(narrower).item() != number == number
            for held_by, number in numbers
            if held_by == dtype
        ), dtype


def test_indices_repeat_are_all_equal_in_either_order_and_at_the_ends() -> None:
    seen: set[str] = set()
    for call in default_draws("aten.scatter_add.default"):
        index = next(tensor for name, _, tensor in held(call) if name == "index").reshape(-1)
        if len(index) > 2:
            steps = index.diff()
            distinct = len(set(index.tolist()))
            seen |= {"equal"} if distinct == 1 else {"repeated"} if distinct < len(index) else {"distinct"}
            if distinct > 1:
                seen |= {"ascending"} if (steps >= 0).all() else {"descending"} if (steps <= 0).all() else {"mixed"}
    assert seen == {"equal", "repeated", "distinct", "ascending", "descending", "mixed"}
    signs = {
        bool((tensor < 0).any())
        for call in default_draws("aten.take.default")
        for name, _, tensor in held(call)
        if name == "index" and tensor.numel()
    }
    assert signs == {True, False}


def test_masks_select_all_none_one_and_every_second_element() -> None:
    seen: set[str] = set()
    for call in default_draws("aten.masked_fill.Scalar"):
        mask = next(tensor for name, _, tensor in held(call) if name == "mask")
        if mask.numel() > 3:
            share = int(mask.sum()) / mask.numel()
            seen.add("all" if share == 1 else "none" if share == 0 else "one" if mask.sum() == 1 else "some")
    assert seen == {"all", "none", "one", "some"}


def test_structures_with_few_values_take_turns_with_the_classes() -> None:
    found = draw_cases(load_cases()["aten.add.Tensor"], seed=3, structures=60, values=2)
    styles = [
        {spec.values.style.split()[0] for spec in drawn.invocations[-1].tensors() if isinstance(spec.values, Recipe)}
        for drawn in found
    ]
    assert sum("facing" in some for some in styles) >= 10
    assert sum("alone" in some for some in styles) >= 5
    assert sum(bool(some & {"equal", "row", "ordered", "hot", "alternating"}) for some in styles) >= 5


def test_a_budget_is_kept_to_the_case() -> None:
    case = load_cases()["aten.add.Tensor"]
    for examples in (1, 2, 8, 24, 50):
        found = draw_examples(case, seed=0, examples=examples)
        assert sum(len(drawn.invocations) for drawn in found) == examples
    few = draw_examples(case, seed=0, examples=24)
    more = draw_examples(case, seed=0, examples=48)
    assert [drawn.invocations for drawn in few] == [drawn.invocations for drawn in more[: len(few)]]


@pytest.mark.parametrize(
    ("overload", "counts"),
    [
        ("aten.mul.Tensor", {24: (12, 24), 128: (64, 128), 256: (128, 256), 512: (256, 512)}),
        ("aten.mean.dim", {24: (12, 24), 256: (160, 320)}),
        ("aten.acosh.default", {24: (6, 24), 128: (32, 128), 256: (64, 256), 512: (128, 512)}),
        ("aten.lstm_cell.default", {24: (6, 24), 128: (32, 128), 256: (32, 256), 512: (64, 512)}),
        ("aten.gru.input", {24: (12, 24), 128: (64, 128), 256: (128, 256), 512: (256, 512)}),
        ("aten._cdist_forward.default", {24: (6, 24), 128: (32, 128), 256: (32, 128), 512: (64, 256)}),
    ],
)
def test_operators_have_their_share_of_large_budgets(overload: str, counts: dict[int, tuple[int, int]]) -> None:
    for examples, (structures, cases) in counts.items():
        found = draw_examples(load_cases()[overload], seed=0, examples=examples)
        # Calls without elements have one draw each, and more structures come in place of the others.
        assert len(found) >= structures
        assert sum(len(drawn.invocations) for drawn in found) == cases
        assert all(len(drawn.invocations) == 1 for drawn in found if is_empty(drawn.invocations[0]))


@pytest.mark.parametrize("overload", ["aten.add.Tensor", "aten.lstm_cell.default", "aten.arange.start"])
def test_a_large_budget_has_the_cases_of_a_small_one(overload: str) -> None:
    small, large = (
        {
            call.case_id
            for drawn in draw_examples(load_cases()[overload], seed=0, examples=n)
            for call in drawn.invocations
        }
        for n in (24, 256)
    )
    assert small < large


def test_what_has_no_values_to_vary_has_more_structures() -> None:
    found = draw_examples(load_cases()["aten.logspace.default"], seed=0, examples=128)
    assert len(found) == 64


def test_one_tensor_holds_all_its_special_values_in_some_call() -> None:
    most = max(
        len({repr(number) for number in tensor.reshape(-1).tolist()})
        for call in default_draws("aten.exp.default")
        for _, _, tensor in held(call)
        if tensor.is_floating_point() and tensor.isnan().any() and tensor.isinf().any()
    )
    assert most > 45
