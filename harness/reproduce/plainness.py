"""The order of invocations by plainness: shrinking never goes up.

Fewest elements come first, then fewest arguments given, lowest rank, row-major layout, plainest dtypes, plainest
numbers. Empty and 0-d tensors are not plainer than a vector of one element: they are edge cases of their own.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from harness.core.invocation import (
    Argument,
    Enumerated,
    Input,
    Invocation,
    Literal,
    Result,
    TensorSpec,
    Weight,
)
from harness.reproduce.edits import PlainNumber, is_plain_layout

Cost: TypeAlias = tuple[float, ...]

#: The plainest first.
DTYPES = (
    *("float32", "int64", "bool", "float64", "float16", "bfloat16"),
    *("int32", "uint8", "int16", "int8"),
)
#: In the order in which they are tried. An attribute of 0 mostly switches something off, and one of 1 is
#: mostly the default; 0 is the first of dimensions and the plainest value of an element.
ELEMENTS: tuple[int, ...] = (0, 1, 2, -1, 3, -2, 4)
ATTRIBUTES: tuple[int, ...] = (1, 2, 0, 3, -1, 4, -2)
DIMS: tuple[int, ...] = (0, 1, -1, 2, -2, 3, -3)
#: Arguments that say dimensions though their names do not.
_DIMS = frozenset({"source", "destination", "index", "start", "end"})


def is_dim(name: str) -> bool:
    """Whether an argument of that name says dimensions."""
    return name.startswith("dim") or name.endswith(("dim", "dims", "axis")) or name in _DIMS


def alternatives(name: str) -> tuple[int, ...]:
    """Return numbers to try for an argument of that name, plainest first."""
    return DIMS if is_dim(name) else ATTRIBUTES


def elements(invocation: Invocation) -> int:
    """Tensor elements in all."""
    return sum(spec.numel for spec in invocation.tensors())


def cost(invocation: Invocation) -> Cost:
    """Smaller is plainer; the invocation's own text decides between equals, by length."""
    tensors = list(invocation.tensors())
    return (
        sum(_weight(spec) for spec in tensors),
        len(invocation.arguments) + len(tensors),
        sum(len(spec.shape) or 1.5 for spec in tensors),
        sum(_layout(spec) for spec in tensors),
        sum(_dtype(spec.dtype) for spec in tensors),
        sum(_argument(name, argument) for name, argument in invocation.arguments),
        sum(number(n, ELEMENTS) for spec in tensors for n in _written_numbers(spec)),
        len(invocation.json),
    )


def _weight(spec: TensorSpec) -> int:
    return spec.numel or 1 + math.prod(max(size, 1) for size in spec.shape)


def _layout(spec: TensorSpec) -> int:
    excess = max(0, spec.storage_size - spec.numel)
    return 0 if is_plain_layout(spec) else 1 + (spec.offset > 0) + excess


def _dtype(name: str) -> int:
    return DTYPES.index(name) if name in DTYPES else len(DTYPES)


def _written_numbers(spec: TensorSpec) -> tuple[PlainNumber, ...]:
    # A recipe is plainer than nothing but itself; greedy steps write every tensor out.
    return spec.values.values if isinstance(spec.values, Literal) else (math.pi,) * spec.storage_size


def _argument(name: str, argument: Argument) -> float:
    if isinstance(argument, TensorSpec | Weight | Result | Input) or argument is None:
        return 0
    if isinstance(argument, tuple):
        return sum(1 + _argument(name, element) for element in argument)
    if isinstance(argument, Enumerated):
        return _dtype(argument.name) if argument.kind == "dtype" else 1
    return 1 if isinstance(argument, str) else number(argument, alternatives(name))


def number(value: PlainNumber, order: tuple[int, ...]) -> float:
    """Return the distance of a number from plain: members of `order`, then integers, halves, decimals, the rest."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, complex):
        return 40 + number(value.real, order) + number(value.imag, order)
    if math.isnan(value):
        return 30
    if math.isinf(value):
        return 28 + (value < 0)
    if value == 0 and math.copysign(1.0, value) < 0:
        return 26
    if value in order:
        return order.index(int(value))
    if value == int(value) and abs(value) < 1e6:
        return len(order) + math.log2(max(abs(value), 1)) / 4 + (value < 0) / 8
    if value == int(value) and math.frexp(abs(value))[0] == 0.5:
        return 13 + (value < 0) / 8
    return 14 + min(len(repr(value)), 24) / 2 + (value < 0) / 8 + min(abs(value), 9) / 99
