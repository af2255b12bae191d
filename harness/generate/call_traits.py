"""Traits of a call: its size, whether models could make it, and conditions that defects depend on.

Computed from the invocation when a case is drawn, and recorded as columns; nothing reads them from JSON.

A case is **ordinary** if a model could well make its call. All of this holds:

- Its tensors are float32, float16 or int64, and so is a dtype that it asks for. A mask may be bool, and so
  may all tensors of an operator on truth values (``logical_not``, ``any``).
- No tensor has a size of 0, and not every one is 0-d.
- Each tensor is contiguous, or contiguous with its dimensions in another order.
- Its values are finite and of everyday size: those of a recipe of an everyday style or of a domain that
  leaves no choice (indices, offsets), or numbers that the next point allows.
- Its numbers are finite and at most five digits large. None is negative zero or, but for 0, smaller than
  1e-12. A fill value may also be a usual fill of masks, -inf or the lowest float32; an ``end`` may be
  the largest int64.

A call like one that a real model makes is ordinary, too (`harness.generate.recorded_use`); the record says which
of the two it is. All others are **edge** cases: they find defects that a model rarely meets. This rule is frozen, so
that shares of runs of different dates are of the same kind of case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from harness.core.dtypes import INT_RANGE, LARGEST, is_float
from harness.core.invocation import Argument, Enumerated, Invocation, Literal, Recipe, TensorSpec, Weight

#: Conditions of a call, in this order: a tensor has no dimensions; all have none, and no dtype is asked for;
#: one has no elements; tensors have different ranks; all are of integers or truth values; there is none; some
#: are complex; there are tensors and none of float64; some are of float64 and some of shorter floats.
CONDITIONS = (
    *("scalar", "only-scalars", "empty", "ranks", "whole", "no-tensor"),
    *("complex", "no-float64", "mixed-precision"),
)
_PLAIN_DTYPES = frozenset({"float32", "float16", "int64"})
_SHORT_FLOATS = frozenset({"float32", "float16", "bfloat16"})
#: Dtypes that a call may ask for and be ordinary.
_RARE_DTYPE = re.compile(r"float64|bfloat16|float8\w*|complex\w*|u?int8|u?int16|u?int32|uint64|u?q\w+")
_TRUTH = re.compile(r"aten\.(?:logical_|bitwise_(?:and|or|not|xor)|all\.|any\.|__i?(?:and|or|xor)__)")
#: Domains of `harness.core.values` whose values a style chooses freely.
_FREE_DOMAINS = frozenset({"any", "finite", "at_least", "nonzero", "ascending", "descending"})
#: Styles that hold special values, extremes or either zero.
_EDGE_STYLES = re.compile(r"mixed|one|special|wide|saturating|(?:facing|every|alone|row|near) .*|equal [1-9]\d*")
#: Arguments that choose among the algorithms of an operator.
_CHOOSING = frozenset({"rounding_mode", "reduce", "approximate", "mode"})
#: Numbers of everyday size are smaller.
_LARGE = 100_000
_SMALLEST = 1e-12


@dataclass(frozen=True)
class CallTraits:
    """The traits of a call that the record keeps.

    Attributes:
        ordinary: Whether a model could well make the call, by the rule.
        elements: Number of elements of all its tensors together.
        conditions: The members of `CONDITIONS` that it meets.
        choice: The algorithm that it selects, such as ``rounding_mode=floor``; "" if there is only one.
    """

    ordinary: bool
    elements: int
    conditions: tuple[str, ...]
    choice: str

    @property
    def text(self) -> str:
        """The conditions as the record has them, with blanks between."""
        return " ".join(self.conditions)


@lru_cache(maxsize=4096)
def call_traits(invocation: Invocation) -> CallTraits:
    """Return the traits of a call."""
    specs = list(invocation.tensors())
    met = _conditions(invocation, specs)
    return CallTraits(
        ordinary=is_ordinary(invocation),
        elements=sum(spec.numel for spec in specs),
        conditions=tuple(name for name in CONDITIONS if name in met),
        choice=_choice(invocation),
    )


def is_everyday(invocation: Invocation) -> bool:
    """Whether the call would be ordinary in float32 or int64: everyday values in a rarer dtype."""

    def plainer(spec: TensorSpec) -> TensorSpec:
        if is_float(spec.dtype) or spec.dtype.startswith("float8"):
            return spec if spec.dtype == "float16" else replace(spec, dtype="float32")
        return spec if spec.dtype == "bool" or spec.dtype.startswith("complex") else replace(spec, dtype="int64")

    return is_ordinary(invocation.map_tensors(plainer), asked_dtypes=False)


def is_ordinary(invocation: Invocation, *, asked_dtypes: bool = True) -> bool:
    """Whether a model could well make the call; `asked_dtypes` to look at dtypes that it asks for, too."""
    specs = list(invocation.tensors())
    if specs and all(not spec.shape for spec in specs):
        return False
    dtypes = {spec.dtype for spec in specs}
    if not dtypes <= _PLAIN_DTYPES | {"bool"}:
        return False
    if specs and not dtypes & _PLAIN_DTYPES and not _TRUTH.match(invocation.overload):
        return False
    if any(0 in spec.shape for spec in specs) or not has_everyday_tensors(invocation):
        return False
    if not all(map(_has_everyday_weights, invocation.arguments)):
        return False
    return all(_is_everyday_argument(name, a, asked_dtypes) for name, a in invocation.arguments)


def has_everyday_tensors(invocation: Invocation) -> bool:
    """Whether a call's tensors lie without gaps in memory and hold numbers of everyday size."""
    return all(_dense(spec.shape, spec.strides) and _has_everyday_values(spec) for spec in invocation.tensors())


def _has_everyday_weights(argument: Any) -> bool:
    """Whether the weights in an argument hold numbers of everyday size, or "to the end" as slices write it."""
    if isinstance(argument, Weight):
        values = argument.spec.values
        is_end = isinstance(values, Literal) and values.values == (INT_RANGE["int64"][1],)
        return is_end or _has_everyday_values(argument.spec)
    return not isinstance(argument, tuple) or all(map(_has_everyday_weights, argument))


def _conditions(invocation: Invocation, specs: list[TensorSpec]) -> set[str]:
    ranks, dtypes = {len(spec.shape) for spec in specs}, {spec.dtype for spec in specs}
    asks = any(_asks_for_dtype(argument) for _, argument in invocation.arguments)
    holds = {
        "scalar": 0 in ranks,
        "only-scalars": ranks == {0} and not asks,
        "empty": any(0 in spec.shape for spec in specs),
        "ranks": len(ranks) > 1,
        "whole": bool(specs) and not any(re.match("float|bfloat|complex", dtype) for dtype in dtypes),
        "no-tensor": not specs,
        "complex": any(dtype.startswith("complex") for dtype in dtypes),
        "no-float64": bool(specs) and "float64" not in dtypes,
        "mixed-precision": "float64" in dtypes and not dtypes.isdisjoint(_SHORT_FLOATS),
    }
    return {name for name, met in holds.items() if met}


def _asks_for_dtype(argument: Argument) -> bool:
    return isinstance(argument, Enumerated) and argument.kind == "dtype"


def _choice(invocation: Invocation) -> str:
    for name, argument in invocation.arguments:
        if name in _CHOOSING and isinstance(argument, str):
            return f"{name}={argument}"
        if name == "align_corners" and argument is True:
            return f"{name}=true"
    return ""


def _dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether a tensor is contiguous once its dimensions are sorted."""
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _has_everyday_values(spec: TensorSpec) -> bool:
    if isinstance(spec.values, Literal):
        return all(map(_is_everyday_number, spec.values.values))
    assert isinstance(spec.values, Recipe)
    domain, *parameters = spec.values.domain
    if not all(map(_is_everyday_number, parameters)):
        return False
    style, edge = spec.values.style, bool(_EDGE_STYLES.fullmatch(spec.values.style))
    if spec.dtype in ("float32", "float16"):
        if domain in _FREE_DOMAINS:
            return not edge and style != "halves"
        # In a range, all but plain values are its ends and special values.
        return domain != "range" or not (edge or style in ("halves", "tied", "decimals"))
    return not (spec.dtype == "int64" and domain in _FREE_DOMAINS and edge)


def _numbers(argument: Any) -> Iterator[Any]:
    if isinstance(argument, tuple):
        for element in argument:
            yield from _numbers(element)
    elif isinstance(argument, int | float | complex) and not isinstance(argument, bool):
        yield argument


def _is_everyday_argument(name: str, argument: Argument, asked_dtypes: bool) -> bool:
    if isinstance(argument, Enumerated):
        if argument.kind == "dtype":
            return not (asked_dtypes and _RARE_DTYPE.fullmatch(argument.name))
        return not argument.name.startswith(("sparse", "jagged", "_mkldnn"))
    if name in ("value", "fill_value") and argument in (-math.inf, -LARGEST["float32"]):
        return True
    if name == "end" and argument == INT_RANGE["int64"][1]:
        return True
    if name == "size" and isinstance(argument, tuple) and 0 in argument:
        return False
    return all(map(_is_everyday_number, _numbers(argument)))


def _is_everyday_number(number: Any) -> bool:
    if isinstance(number, str | bool):
        return True
    if isinstance(number, complex):
        return False
    if isinstance(number, float) and (not math.isfinite(number) or (number == 0 and math.copysign(1, number) < 0)):
        return False
    return bool(number == 0 or _SMALLEST <= abs(number) < _LARGE)
