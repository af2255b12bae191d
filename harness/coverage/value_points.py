"""Points of values: the classes of numbers at which kernels go wrong, and the positions that indices refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import numpy as np

from harness.core.dtypes import INT_RANGE, PRECISION, is_float
from harness.core.invocation import Invocation, Literal, Recipe, TensorSpec
from harness.core.styles import STYLES, special_floats
from harness.coverage.points import Point, SurveyedOperator, change_specs, family, reshaped, specs
from harness.generate.pairs.conditions import computed, is_index

_SMALLEST_NORMAL = {"float64": 2.0**-1022, "float32": 2.0**-126, "float16": 2.0**-14, "bfloat16": 2.0**-126}
_LARGEST = {dtype: max(v for v in special_floats(dtype) if v < np.inf) for dtype in PRECISION}

_Test: TypeAlias = Callable[[str], bool]
_Example: TypeAlias = Callable[[str], float]

#: Class of floating-point numbers → an example of it for a dtype.
FLOATS: dict[str, _Example] = {
    "NaN": lambda dtype: float("nan"),
    "+inf": lambda dtype: float("inf"),
    "-inf": lambda dtype: float("-inf"),
    "-0": lambda dtype: -0.0,
    "subnormal": lambda dtype: _SMALLEST_NORMAL[dtype] / 2,
    "largest": lambda dtype: _LARGEST[dtype],
    "half": lambda dtype: 2.5,
    "tie": lambda dtype: 1.0,
}
INTS: dict[str, _Example] = {
    "negative": lambda dtype: -1,
    "zero": lambda dtype: 0,
    "positive": lambda dtype: 1,
    "smallest": lambda dtype: INT_RANGE[dtype][0],
    "largest": lambda dtype: INT_RANGE[dtype][1],
}


@lru_cache(maxsize=4096)
def classes(spec: TensorSpec) -> frozenset[str]:
    """Return the classes that some number of the tensor belongs to."""
    if not spec.numel:
        return frozenset()
    held = computed(spec)
    if is_float(spec.dtype):
        finite = held[np.isfinite(held)]
        size = np.abs(finite)
        tests = {
            "NaN": np.isnan(held).any(),
            "+inf": (held == np.inf).any(),
            "-inf": (held == -np.inf).any(),
            "-0": (np.signbit(held) & (held == 0)).any(),
            "subnormal": ((size > 0) & (size < _SMALLEST_NORMAL[spec.dtype])).any(),
            "largest": (size == _LARGEST[spec.dtype]).any(),
            "half": ((finite - np.floor(finite)) == 0.5).any(),
            "tie": spec.numel > 1 and len(np.unique(finite)) < len(finite),
        }
    elif spec.dtype in INT_RANGE:
        low, high = INT_RANGE[spec.dtype]
        tests = {
            "negative": (held < 0).any(),
            "zero": (held == 0).any(),
            "positive": (held > 0).any(),
            "smallest": (held == low).any(),
            "largest": (held == high).any(),
        }
    else:
        tests = {"true": held.any(), "false": not held.all()}
    return frozenset(name for name, true in tests.items() if true)


@family("values")
def number_classes(subject: SurveyedOperator) -> Iterator[Point]:
    """Name each class of numbers for each tensor that may hold them and does not hold indices."""
    for name in subject.tensors:
        seen = [s for sample in subject.samples for s in specs(sample, name) if not is_index(s)]
        if any(is_float(spec.dtype) for spec in seen):
            for word, example in FLOATS.items():
                yield _class(name, word, example, is_float)
        if any(spec.dtype in INT_RANGE for spec in seen):
            for word, example in INTS.items():
                yield _class(name, f"{word} integer", example, INT_RANGE.__contains__)
    for style in STYLES if subject.tensors else ():
        yield Point(
            name=f"style {style}",
            hit=lambda call, style=style: any(  # type: ignore[misc]
                isinstance(spec.values, Recipe) and spec.values.style == style for spec in call.tensors()
            ),
            variants=lambda base: (),
        )


def _class(name: str, word: str, example: _Example, of: _Test) -> Point:
    flag = word.removesuffix(" integer")
    return Point(
        name=f"{name} {word}",
        hit=lambda call: any(of(s.dtype) and flag in classes(s) for s in specs(call, name)),
        variants=lambda base: _holding(name, word, example, of, base),
    )


def _holding(name: str, word: str, example: _Example, of: _Test, base: Invocation) -> Iterator[Invocation]:
    if word == "negative integer" and any(s.dtype.startswith("uint") for s in specs(base, name)):
        return
    if any(of(s.dtype) and s.numel > 1 and not is_index(s) for s in specs(base, name)):
        yield change_specs(base, (name,), lambda s: _filled(s, example(s.dtype)) if of(s.dtype) else s)


@family("indices")
def indices(subject: SurveyedOperator) -> Iterator[Point]:
    """Name indices that repeat, are negative, are the first or last, are few, are none, or are int32."""
    for name in subject.tensors:
        if not any(is_index(s) for sample in subject.samples for s in specs(sample, name)):
            continue
        for word, hit, change in (
            ("repeated", _has_repeats, partial(_filled, value=0)),
            ("negative", lambda s: (computed(s) < 0).any(), partial(_filled, value=-1)),
            ("first", lambda s: (computed(s) == 0).any(), partial(_filled, value=0)),
            (
                "last",
                lambda s: (computed(s) == _extent(s) - 1).any(),
                lambda s: _filled(s, _extent(s) - 1),
            ),
            ("fewer than places", lambda s: 0 < s.numel < _extent(s), partial(_set_last_size, 1)),
            ("none", lambda s: not s.numel, partial(_set_last_size, 0)),
            ("int32", lambda s: s.dtype == "int32", lambda s: replace(s, dtype="int32")),
        ):
            yield Point(
                name=f"{name} {word}",
                hit=lambda call, name=name, hit=hit: any(  # type: ignore[misc]
                    is_index(s) and hit(s) for s in specs(call, name)
                ),
                variants=partial(_changed, name, change),
            )


def _changed(name: str, change: object, base: Invocation) -> Iterator[Invocation]:
    if any(is_index(s) and s.numel > 1 for s in specs(base, name)):
        yield change_specs(base, (name,), change)  # type: ignore[arg-type]


def _extent(spec: TensorSpec) -> int:
    assert isinstance(spec.values, Recipe)
    return int(spec.values.domain[1])


def _has_repeats(spec: TensorSpec) -> bool:
    return spec.numel > 1 and len(np.unique(computed(spec))) < spec.numel


def _filled(spec: TensorSpec, value: Any) -> TensorSpec:
    return replace(spec, values=Literal((value,) * spec.storage_size))


def _set_last_size(size: int, spec: TensorSpec) -> TensorSpec:
    return reshaped(spec, (*spec.shape[:-1], size))
