"""Points of arguments that are not tensors: bools, optionals, words, modes, dims, dtypes, numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from harness.core.dtypes import ALL
from harness.core.invocation import Argument, Enumerated, Invocation, Recipe
from harness.coverage.points import (
    Point,
    SurveyedOperator,
    family,
    kind_of,
    omit_argument,
    reshaped,
    set_argument,
    value_of,
)
from harness.generate.pairs.conditions import DIMS, MODES

#: Every string that some ATen operator accepts as an argument; PyTorch is asked which operator accepts which.
WORDS = (
    *("none", "mean", "sum", "prod", "amax", "amin", "max", "min"),
    *("trunc", "floor", "tanh", "valid", "same", "left", "right", "ij", "xy"),
    *("linear", "lower", "higher", "midpoint", "nearest", "bilinear", "bicubic", "trilinear", "area"),
    *("constant", "reflect", "replicate", "circular", "zeros", "border", "reflection"),
    *("fro", "nuc", "reduced", "complete", "r", "L", "U", "backward", "ortho", "forward"),
    *("gelsd", "gels", "gelsy", "gelss", "sum_to_size", "nearest-exact"),
)


def _effective(argument: Any, invocation: Invocation) -> Any:
    """Return the value that the call uses: the default if the argument is omitted."""
    default = argument.default_value if argument.has_default_value() else None
    return dict(invocation.arguments).get(argument.name, default)


def _equals(argument: Any, value: object, invocation: Invocation) -> bool:
    found = _effective(argument, invocation)
    return type(found) is type(value) and found == value


@family("bools")
def bools(subject: SurveyedOperator) -> Iterator[Point]:
    """Name both values of each bool."""
    for argument in subject.arguments:
        if kind_of(argument) == "bool":
            for value in (True, False):
                yield _settable(subject, argument, value)


def _settable(subject: SurveyedOperator, argument: Any, value: Argument) -> Point:
    shown = value.name if isinstance(value, Enumerated) else repr(value)
    return Point(
        name=f"{argument.name}={shown}",
        hit=partial(_equals, argument, value),
        variants=lambda base: (set_argument(subject, base, argument.name, value),),
    )


@family("optionals")
def optionals(subject: SurveyedOperator) -> Iterator[Point]:
    """Name giving and omitting each argument that has a default or may be None."""
    for argument in subject.arguments:
        name = argument.name
        if not argument.has_default_value() and not str(argument.type).startswith("Optional["):
            continue
        yield Point(
            name=f"{name} given",
            hit=lambda call, name=name: value_of(call, name) is not None,  # type: ignore[misc]
            variants=partial(_given, subject, argument),
        )
        if argument.has_default_value():
            yield Point(
                name=f"{name} omitted",
                hit=lambda call, name=name: value_of(call, name) is None,  # type: ignore[misc]
                variants=lambda base, name=name: (omit_argument(base, name),),  # type: ignore[misc]
            )


def _given(subject: SurveyedOperator, argument: Any, base: Invocation) -> Iterator[Invocation]:
    for value in _values(kind_of(argument), base):
        yield set_argument(subject, base, argument.name, value)


def _values(kind: str, base: Invocation) -> Iterator[Argument]:
    """Yield plain values of a type."""
    if kind == "Tensor":
        for spec in islice(base.tensors(), 1):
            yield spec
            for shape in ((), *((size,) for size in set(spec.shape))):
                yield replace(reshaped(spec, shape), values=Recipe(("any",), "plain", 0))
    elif kind == "dtype":
        yield from (Enumerated("dtype", name) for name in ("float32", "int64"))
    elif kind.startswith("List["):
        element = kind[len("List[") : -1]
        if element in ("int", "float", "bool"):
            for value in _values(element, base):
                yield (value,)
                yield (value, value)
    else:
        yield from {
            "bool": (True, False),
            "int": (1, 0, 2),
            "float": (0.5, 1.0),
            "number": (1, 0.5),
            "str": ("mean", "none"),
        }.get(kind, ())


@family("words")
def words(subject: SurveyedOperator) -> Iterator[Point]:
    """Name each string and each mode that an argument may take."""
    for argument in subject.arguments:
        if kind_of(argument) == "str":
            for word in WORDS:
                yield _settable(subject, argument, word)
        elif kind_of(argument) == "int" and MODES.fullmatch(argument.name):
            for mode in (0, 1, 2):
                yield _settable(subject, argument, mode)


@family("dtype arguments")
def dtype_arguments(subject: SurveyedOperator) -> Iterator[Point]:
    """Name each dtype that an argument may take."""
    for argument in subject.arguments:
        if kind_of(argument) == "dtype":
            for dtype in ALL:
                yield _settable(subject, argument, Enumerated("dtype", dtype))


def _ints(value: Argument) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return tuple(v for v in value if isinstance(v, int))
    return (value,) if isinstance(value, int) and not isinstance(value, bool) else ()


@family("dims")
def dims(subject: SurveyedOperator) -> Iterator[Point]:
    """Name negative and other dims; for lists also several dims and none."""
    for argument in subject.arguments:
        name, kind = argument.name, kind_of(argument)
        if kind not in ("int", "List[int]") or not DIMS.fullmatch(name):
            continue
        for word, sign in (("negative", -1), ("positive", 1)):
            yield Point(
                name=f"{name} {word}",
                hit=lambda call, name=name, sign=sign: any(  # type: ignore[misc]
                    (v < 0) == (sign < 0) for v in _ints(value_of(call, name))
                ),
                variants=partial(_turned, subject, name, kind, sign),
            )
        if kind == "List[int]":
            for word, wanted in (("empty", 0), ("several", 2)):
                yield Point(
                    name=f"{name} {word}",
                    hit=lambda call, name=name, wanted=wanted: (  # type: ignore[misc]
                        isinstance(found := value_of(call, name), tuple) and min(len(found), 2) == wanted
                    ),
                    variants=lambda base, name=name, wanted=wanted: (  # type: ignore[misc]
                        set_argument(subject, base, name, tuple(range(wanted))),
                    ),
                )


def _turned(subject: SurveyedOperator, name: str, kind: str, sign: int, base: Invocation) -> Iterator[Invocation]:
    """Yield the call with its dims counted from the other end."""
    value = value_of(base, name)
    ranks = sorted({len(spec.shape) for spec in base.tensors()}, reverse=True)[:1] or [1]
    for rank in (max(ranks[0], 1), ranks[0] + 1):
        turned = tuple(v - rank if v >= 0 > sign else v + rank if v < 0 < sign else v for v in _ints(value))
        if turned and any((v < 0) == (sign < 0) for v in turned):
            yield set_argument(subject, base, name, turned if kind == "List[int]" else turned[0])
    if not _ints(value):
        plain = -1 if sign < 0 else 0
        yield set_argument(subject, base, name, (plain,) if kind == "List[int]" else plain)


@family("signs")
def signs(subject: SurveyedOperator) -> Iterator[Point]:
    """Name the signs of Scalars, and of integers that are neither dims nor modes."""
    for argument in subject.arguments:
        name, kind = argument.name, kind_of(argument)
        is_plain_int = kind == "int" and not DIMS.fullmatch(name) and not MODES.fullmatch(name)
        if kind != "number" and not is_plain_int:
            continue
        for word, value in (("negative", -1), ("zero", 0), ("positive", 1)):
            yield Point(
                name=f"{name} {word}",
                hit=partial(_has_sign, argument, value),
                variants=lambda base, name=name, value=value: (  # type: ignore[misc]
                    set_argument(subject, base, name, value),
                ),
            )


def _has_sign(argument: Any, sign: int, invocation: Invocation) -> bool:
    found = _effective(argument, invocation)
    return isinstance(found, int | float) and (found > 0) - (found < 0) == sign and found == found
