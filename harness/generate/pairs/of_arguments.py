"""Conditions of the arguments of a call that are no tensors: flags, words, dims, numbers, lists."""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Iterator, Sequence

from harness.core import INT_RANGE, PARTS, PRECISION, Argument, Enumerated, Invocation, TensorSpec
from harness.generate.pairs.condition import Condition, ConditionKind

#: Names of integers that name a mode.
MODES = re.compile(r"reduction|mode|interpolation_mode|padding_mode")
#: Names of integers that name dimensions.
DIMS = re.compile(r"dim\d?|dims|axis\d?|\w+_dim|dims?_\w+|source|destination")
_LARGEST_EXPONENT = {"float64": 1024, "float32": 128, "float16": 16, "bfloat16": 128}
#: How well a dtype holds a number, the best first.
_FITS = ("exact in the dtype", "rounded in the dtype", "beyond the dtype")


def argument_conditions(call: Invocation) -> Iterator[Condition]:
    """Of each argument that holds no tensor."""
    first = next(call.tensors(), None)
    dtype = call.dtype
    for name, value in call.arguments:
        if isinstance(value, TensorSpec) or _holds_tensors(value):
            yield presence(name, "given")
        elif value is None:
            yield presence(name, "None")
        elif DIMS.fullmatch(name) and (numbers := _whole(value)) is not None:
            yield from _of_dims(name, value, numbers, first)
        elif isinstance(value, tuple):
            yield from _of_list(name, value)
        elif isinstance(value, bool | str | Enumerated) or MODES.fullmatch(name):
            shown = value.name if isinstance(value, Enumerated) else repr(value)
            yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name}={shown}")
            if isinstance(value, bool):
                yield Condition(ConditionKind.SPELLING, name, f"{name} spelled", f"{name} bool")
        elif isinstance(value, int | float | complex):
            yield from _of_number(name, value, dtype)


def presence(name: str, word: str) -> Condition:
    """That an argument is ``given``, ``omitted`` or ``None``."""
    return Condition(ConditionKind.PRESENCE, name, name, f"{name} {word}")


def _holds_tensors(value: Argument) -> bool:
    return isinstance(value, tuple) and any(isinstance(element, TensorSpec) for element in value)


def _whole(value: Argument) -> tuple[int, ...] | None:
    numbers = value if isinstance(value, tuple) else (value,)
    whole = tuple(n for n in numbers if isinstance(n, int) and not isinstance(n, bool))
    return whole if len(whole) == len(numbers) else None


def _of_dims(name: str, value: Argument, numbers: Sequence[int], first: TensorSpec | None) -> Iterator[Condition]:
    """How dims are counted, which they are, and how long."""
    shape = first.shape if first is not None else ()
    if isinstance(value, tuple):
        many = "empty" if not numbers else "one" if len(numbers) == 1 else "several"
        if len(numbers) == len(shape) > 1:
            many = "all"
        yield Condition(ConditionKind.DIMS, name, name, f"{name} {many}")
        if len(numbers) > 1:
            ordered = [d % len(shape) if shape else d for d in numbers]
            word = "in order" if ordered == sorted(ordered) else "out of order"
            yield Condition(ConditionKind.DIMS, name, f"{name} order", f"{name} {word}")
    if not numbers:
        return
    signs = {d < 0 for d in numbers}
    sign = "of both signs" if len(signs) > 1 else "negative" if True in signs else "positive"
    yield Condition(ConditionKind.DIMS, name, f"{name} sign", f"{name} {sign}")
    places = [d % len(shape) for d in numbers if -len(shape) <= d < len(shape)]
    if places:
        place = places[0]
        last = len(shape) - 1
        word = "only" if not last else "last" if place == last else "first" if not place else "inner"
        yield Condition(ConditionKind.DIMS, name, f"{name} place", f"{name} is {word}")
        least = min(shape[d] for d in places)
        # Of these two, by what is done along the dim, follow the size of the tensor.
        yield Condition(ConditionKind.SIZE, "", f"{name} length", f"{name} of size {min(least, 2)}{'+' * (least > 1)}")


def _of_list(name: str, value: tuple[Argument, ...]) -> Iterator[Condition]:
    numbers = [v for v in value if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(value) or not value:
        shown = ", ".join(repr(v) for v in value[:4])
        yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name}=[{shown}]" if value else f"{name} empty")
        return
    if any(n < 0 for n in numbers):
        word = "negative"
    elif len(set(numbers)) > 1:
        word = "with 0" if 0 in numbers else "uneven"
    elif numbers[0] in (0, 1):
        word = "zero" if not numbers[0] else "one"
    else:
        word = "below one" if numbers[0] < 1 else "even"
    yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name} {word}")
    if len(value) > 1 or word not in ("zero", "one"):
        several = "one number" if len(value) == 1 else "several numbers"
        yield Condition(ConditionKind.ATTRIBUTE, name, f"{name} length", f"{name} {several}")


def _of_number(name: str, value: int | float | complex, dtype: str) -> Iterator[Condition]:
    parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
    shown = _complex_class(value) if isinstance(value, complex) else _class_of(value)
    yield Condition(ConditionKind.ATTRIBUTE, name, name, f"{name} {shown}")
    yield Condition(ConditionKind.SPELLING, name, f"{name} spelled", f"{name} {type(value).__name__}")
    # What is 0 or 1 every dtype holds.
    telling = [part for part in parts if part not in (0, 1)]
    if telling and all(map(math.isfinite, parts)):
        fit = max((_fit(part, dtype) for part in telling), key=_FITS.index)
        yield Condition(ConditionKind.EXACTNESS, name, f"{name} in the dtype", f"{name} {fit}")


def _complex_class(value: complex) -> str:
    """What a complex number is like, of which each part may be lost by itself."""
    if cmath.isnan(value):
        return "with a part NaN"
    if cmath.isinf(value):
        return "with a part infinite"
    if not value:
        return "zero"
    return "of both parts" if value.real and value.imag else "real" if value.real else "imaginary"


def _class_of(value: int | float) -> str:
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+inf" if value > 0 else "-inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "zero"
    return "one" if value == 1 else "negative" if value < 0 else "positive"


def _fit(value: int | float, dtype: str) -> str:
    """Whether the dtype holds a number."""
    dtype = PARTS.get(dtype, dtype)
    if dtype in PRECISION:
        if isinstance(value, float):
            significand, exponent = math.frexp(abs(value))
            bits = int(math.ldexp(significand, 53))
        else:
            bits, exponent = abs(value), abs(value).bit_length()
        if exponent > _LARGEST_EXPONENT[dtype]:
            return "beyond the dtype"
        wide = (bits // (bits & -bits)).bit_length() > PRECISION[dtype]
        return "rounded in the dtype" if wide else "exact in the dtype"
    low, high = INT_RANGE.get(dtype, (0, 1))
    if not low <= value <= high:
        return "beyond the dtype"
    return "exact in the dtype" if value == int(value) else "rounded in the dtype"
