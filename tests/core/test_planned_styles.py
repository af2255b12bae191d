"""Values that are planned element by element: what each holds, in every dtype and domain."""

from __future__ import annotations

import hashlib
import math
from itertools import product

import numpy as np
import pytest

from harness.core.dtypes import ALL, FLOATS, INT_RANGE, SIGNED_INTS, WIDE_UNSIGNED
from harness.core.invocation import Recipe, TensorSpec
from harness.core.styles import facing_numbers, lone_numbers, special_numbers
from harness.core.tensors import build_tensor
from harness.core.values import compute

PLANNED = (
    *(
        "facing 0 4 0",
        "facing 1 12 1",
        "every 7",
        "alone 0 0 0",
        "alone 5 1 1",
        "alone 3 2 0",
        "equal 0",
        "equal 3",
    ),
    *("row 1 4", "ordered 1", "ordered -1", "hot 1", "hot 0", "alternating 0", "near 0.5", "near 3 -1.25"),
    *("near nan", "near True", "near inf 0", "facing 1 2 0 0.5", "every 3 7"),
)


def drawn(style: str, dtype: str, count: int, *domain: str | float, seed: int = 5) -> list[float]:
    """The values as PyTorch gets them."""
    spec = TensorSpec((count,), dtype, (1,), 0, Recipe(domain or ("any",), style, seed))
    found: list[float] = build_tensor(spec).tolist()
    return found


@pytest.mark.parametrize("dtype", [*ALL, *WIDE_UNSIGNED])
def test_two_facing_tensors_hold_every_pair_of_special_values(dtype: str) -> None:
    kinds = len(facing_numbers(dtype))
    left, right, third = (drawn(f"facing {slope} {slope} 0", dtype, kinds**2) for slope in range(3))
    assert len({repr(pair) for pair in zip(left, right, strict=True)}) == kinds**2
    if kinds > 2:
        assert len({repr(pair) for pair in zip(left, third, strict=True)}) == kinds**2
        assert len({repr(pair) for pair in zip(right, third, strict=True)}) == kinds**2
    # A smaller tensor holds a part of them, another one with another shift.
    few = {repr(pair) for pair in zip(drawn("facing 0 0 1", dtype, 2), drawn("facing 1 1 1", dtype, 2), strict=True)}
    assert len(few) == 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_tensor_holds_every_special_value(dtype: str) -> None:
    numbers = special_numbers(dtype)
    found = {repr(number) for number in drawn("every 3", dtype, len(numbers))}
    assert {"nan", "inf", "-inf", "0.0", "-0.0"} <= found
    assert len(found) > 0.9 * len(numbers)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("where", "place"), [(0, 0), (1, 8)])
def test_one_special_value_is_alone(dtype: str, where: int, place: int) -> None:
    for which, number in enumerate(lone_numbers(dtype)):
        found = drawn(f"alone {which} {where} 0", dtype, 9)
        assert repr(found.pop(place)) == repr(number)
        assert all(abs(v) <= 4 and math.copysign(1, v) * v > 0 for v in found)


def test_elements_equal_a_scalar_or_are_next_to_it() -> None:
    tenth = drawn("near 0.1", "float64", 20)[::2]
    assert {0.1, math.nextafter(0.1, 1), math.nextafter(0.1, 0)} <= set(tenth)
    rounded = drawn("near 0.1", "float32", 20)[::2]
    assert {float(np.float32(0.1)), float(np.nextafter(np.float32(0.1), np.float32(1)))} <= set(rounded)
    assert {2**53, 2**53 + 1, 2**53 + 2} <= set(drawn(f"near {2**53 + 1}", "int64", 20)[::2])
    assert {2, 3} <= set(drawn("near 2.5", "int32", 20)[::2])
    assert {"0.0", "-0.0"} <= set(map(repr, drawn("near -0.0", "float16", 20)[::2]))
    assert all(math.isnan(v) for v in drawn("near nan", "float32", 20)[::2])
    assert {1 - 2**-11, 1 + 2**-10} <= set(drawn("near 1", "float16", 20))
    assert {65504.0, math.inf, -math.inf} == set(drawn("near 100000", "float16", 20)[::2])
    assert set(drawn("near 1000", "int8", 20)[::2]) == {127}
    assert {1.0, 2.0} <= set(drawn("near 1.0 2", "bfloat16", 40)[::2])


@pytest.mark.parametrize("dtype", [*ALL, *WIDE_UNSIGNED])
@pytest.mark.parametrize("style", PLANNED)
def test_domains_hold_whatever_the_style(style: str, dtype: str) -> None:
    low, high = (0, 1) if dtype == "bool" else (0, 9) if dtype not in (*FLOATS, *SIGNED_INTS) else (-3, 9)
    for count in (0, 1, 5, 40):
        assert all(low <= v <= high for v in drawn(style, dtype, count, "range", low, high))
        assert all(math.isfinite(v) for v in drawn(style, dtype, count, "finite"))
        if dtype in INT_RANGE:
            assert 0 not in drawn(style, dtype, count, "nonzero")
        rows = np.array(drawn(style, dtype, count // 5 * 5, "ascending", 5)).reshape(-1, 5)
        assert (rows[:, 1:] >= rows[:, :-1]).all()


@pytest.mark.parametrize("style", ["equal 0", "equal 1", "equal 2", "equal 3", "ordered 1", "ordered -1"])
@pytest.mark.parametrize("size", [1, 2, 7])
def test_indices_stay_inside_and_keep_their_pattern(style: str, size: int) -> None:
    for domain, least in (("index", 0), ("signed_index", -size)):
        found = drawn(style, "int64", 12, domain, size)
        assert all(least <= v < size for v in found)
        if style.startswith("equal"):
            assert len(set(found)) == 1
        else:
            assert found == sorted(found, reverse=style.endswith("-1"))
    assert drawn("equal 2", "int64", 4, "index_or", size, -100) == [-100] * 4
    distinct = drawn("ordered -1", "int64", size, "unique", size, size)
    assert distinct == list(range(size))[::-1]


def test_the_widest_unsigned_integers_have_no_negative_number() -> None:
    assert min(drawn("equal 11", "uint64", 4, "range", -9, 9)) >= 0


def test_both_ends_and_all_places_come_in_turn() -> None:
    assert set(drawn("alternating 0", "int32", 12, "signed_index", 7)) == {0, 6, -7}
    assert drawn("facing 0", "int64", 9, "index", 7) == [0, 1, 2, 3, 4, 5, 6, 0, 1]
    assert drawn("facing 1", "int64", 3, "index", 7) == [6, 5, 4]


def test_planned_values_never_change() -> None:
    # Records and goldens hold recipes: a change here gives them other values. Give a new style a new name.
    digest = hashlib.sha256()
    for style, dtype in product(PLANNED, (*ALL, *WIDE_UNSIGNED)):
        digest.update(compute(Recipe(("any",), style, 77), dtype, 40).tobytes())
    for style in ("equal 1", "ordered -1", "alternating 1", "facing 1", "hot 0"):
        digest.update(compute(Recipe(("signed_index", 9), style, 77), "int64", 40).tobytes())
    assert digest.hexdigest() == "bbfa1b64a40e13dd4a8431dafe18cb2bc106717c90a68b671c472619a1da1e76"


def test_a_style_that_nobody_knows_is_an_error() -> None:
    for style in ("no_such", "no_such 1"):
        with pytest.raises(KeyError):
            compute(Recipe(("any",), style, 1), "float32", 3)
