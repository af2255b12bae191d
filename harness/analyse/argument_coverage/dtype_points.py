"""Points of dtypes: each that PyTorch takes, and pairs that it promotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from harness.analyse.argument_coverage.point import (
    Acceptance,
    Point,
    SurveyedOperator,
    family,
    kind_of,
    specs,
    value_of,
    with_argument,
    with_specs,
)
from harness.core import ALL, WIDE_UNSIGNED, Invocation, TensorSpec, is_float
from harness.generate import REPRESENTATIVES, Promotion, is_index, kind_of_dtype

_NAME = re.compile(r"(\w+) (float|int|bool) with (\w+) (?:other )?(float|int|bool)")


def _swapped(invocation: Invocation, dtype: str) -> Invocation:
    """The call with its main dtype, wherever a tensor has it, replaced."""
    main = invocation.dtype
    return invocation.map_tensors(lambda spec: replace(spec, dtype=dtype) if spec.dtype == main else spec)


def _is_telling(call: Invocation) -> bool:
    """Whether kernels have something to do: of one element, or none, some look at no dtype."""
    return all(spec.numel > 1 for spec in call.tensors())


def _has_result(base: Acceptance, answer: Acceptance) -> bool:
    return all(0 not in shape for shape in answer.shapes)


def _is_uniform(call: Invocation) -> bool:
    return len({spec.dtype for spec in call.tensors() if not is_index(spec)}) == 1


@family("dtypes")
def dtypes(subject: SurveyedOperator) -> Iterator[Point]:
    """Each dtype that the harness knows."""
    if not subject.tensors:
        return
    # Beside a tensor of another dtype a dtype is promoted, which says nothing of the dtype itself.
    only_mixed = not any(map(_is_uniform, subject.samples))
    only_single = not any(map(_is_telling, subject.samples))
    for dtype in (*ALL, *WIDE_UNSIGNED):
        yield Point(
            name=f"dtype {dtype}",
            hit=lambda call, dtype=dtype: call.dtype == dtype,  # type: ignore[misc]
            variants=lambda base, dtype=dtype: (  # type: ignore[misc]
                (_swapped(base, dtype),)
                if (only_mixed or _is_uniform(base)) and (only_single or _is_telling(base))
                else ()
            ),
            confirm=_has_result,
        )


@family("promotion")
def promotion(subject: SurveyedOperator) -> Iterator[Point]:
    """Tensors of different kinds, tensors of one kind and different width, Scalars of another kind."""
    first, *others = subject.single_tensors or ("",)
    if not first:
        yield from _in_lists(subject)
        return
    for other in others:
        if not any(is_float(spec.dtype) for s in subject.samples for spec in specs(s, other)):
            # An index, a mask: its dtype is no matter of promotion.
            continue
        for (left, lefts), (right, rights) in product(REPRESENTATIVES.items(), repeat=2):
            pair = (lefts[0], rights[left == right])
            if pair[0] != pair[1]:
                yield Point(
                    name=f"{first} {left} with {other} {'other ' * (left == right)}{right}",
                    hit=partial(_pairs, first, other, left, right),
                    variants=partial(_paired, first, other, pair),
                    confirm=_has_result,
                )
    scalars = (("float", 0.5), ("int", 2), ("bool", True))
    numbers = [a.name for a in subject.arguments if kind_of(a) == "number"]
    for name, (left, lefts), (right, value) in product(numbers, REPRESENTATIVES.items(), scalars):
        if left != right:
            yield Point(
                name=f"{first} {left} with {name} {right}",
                hit=partial(_with_scalar, first, left, name, right),
                variants=lambda base, dtype=lefts[0], name=name, value=value: (  # type: ignore[misc]
                    with_argument(subject, _swapped(base, dtype), name, value),
                ),
            )


def _pairs(first: str, other: str, left: str, right: str, call: Invocation) -> bool:
    a, b = value_of(call, first), value_of(call, other)
    if not isinstance(a, TensorSpec) or not isinstance(b, TensorSpec) or a.dtype == b.dtype:
        return False
    return (kind_of_dtype(a.dtype), kind_of_dtype(b.dtype)) == (left, right)


def _paired(first: str, other: str, pair: tuple[str, str], base: Invocation) -> Iterator[Invocation]:
    if specs(base, first) and specs(base, other) and _is_telling(base):
        swapped = _swapped(base, pair[0])
        swapped = with_specs(swapped, (first,), lambda spec: replace(spec, dtype=pair[0]))
        yield with_specs(swapped, (other,), lambda spec: replace(spec, dtype=pair[1]))


def _with_scalar(first: str, left: str, name: str, right: str, call: Invocation) -> bool:
    tensor, value = value_of(call, first), value_of(call, name)
    return isinstance(tensor, TensorSpec) and kind_of_dtype(tensor.dtype) == left and type(value).__name__ == right


def _in_lists(subject: SurveyedOperator) -> Iterator[Point]:
    for name in subject.tensors:
        yield Point(
            name=f"{name} of several dtypes",
            hit=lambda call, name=name: len({spec.dtype for spec in specs(call, name)}) > 1,  # type: ignore[misc]
            variants=partial(_mixed, subject, name),
        )


def _mixed(subject: SurveyedOperator, name: str, base: Invocation) -> Iterator[Invocation]:
    found = specs(base, name)
    if len(found) > 1:
        wide = "float64" if found[0].dtype != "float64" else "float32"
        yield with_argument(subject, base, name, (replace(found[0], dtype=wide), *found[1:]))


def named(point: str) -> Promotion | None:
    """The promotion that a point of that name is about, if it is about one."""
    found = _NAME.fullmatch(point)
    return Promotion(*found.groups()) if found else None
