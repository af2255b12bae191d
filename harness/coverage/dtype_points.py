"""Points of dtypes: each that PyTorch accepts, and pairs that it promotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product

from harness.core.dtypes import ALL, WIDE_UNSIGNED, is_float
from harness.core.invocation import Invocation, TensorSpec
from harness.coverage.points import (
    Acceptance,
    Point,
    SurveyedOperator,
    change_specs,
    family,
    kind_of,
    set_argument,
    specs,
    value_of,
)
from harness.generate.pairs.conditions import is_index
from harness.generate.promotion import REPRESENTATIVES, Promotion, kind_of_dtype

_NAME = re.compile(r"(\w+) (float|int|bool) with (\w+) (?:other )?(float|int|bool)")


def _swapped(invocation: Invocation, dtype: str) -> Invocation:
    """Return the call with another dtype for every tensor that has its main dtype."""
    main = invocation.dtype
    return invocation.map_tensors(lambda spec: replace(spec, dtype=dtype) if spec.dtype == main else spec)


def _has_several_elements(call: Invocation) -> bool:
    """Whether all tensors have more than one element: some kernels skip dtype checks on smaller inputs."""
    return all(spec.numel > 1 for spec in call.tensors())


def _has_result(base: Acceptance, answer: Acceptance) -> bool:
    return all(0 not in shape for shape in answer.shapes)


def _is_uniform(call: Invocation) -> bool:
    return len({spec.dtype for spec in call.tensors() if not is_index(spec)}) == 1


@family("dtypes")
def dtypes(subject: SurveyedOperator) -> Iterator[Point]:
    """Name each dtype that the harness knows."""
    if not subject.tensors:
        return
    # In combination with another dtype, a dtype is promoted, which proves nothing about the dtype itself.
    only_mixed = not any(map(_is_uniform, subject.samples))
    only_single = not any(map(_has_several_elements, subject.samples))
    for dtype in (*ALL, *WIDE_UNSIGNED):
        yield Point(
            name=f"dtype {dtype}",
            hit=lambda call, dtype=dtype: call.dtype == dtype,  # type: ignore[misc]
            variants=lambda base, dtype=dtype: (  # type: ignore[misc]
                (_swapped(base, dtype),)
                if (only_mixed or _is_uniform(base)) and (only_single or _has_several_elements(base))
                else ()
            ),
            confirm=_has_result,
        )


@family("promotion")
def promotion(subject: SurveyedOperator) -> Iterator[Point]:
    """Name tensors of different kinds, of one kind with different widths, and Scalars of another kind."""
    # The condition of `where` only selects, so its dtype is not promoted.
    first, *others = [name for name in subject.single_tensors if name != "condition"] or [""]
    if not first:
        yield from _points_in_lists(subject)
        return
    for other in others:
        if not any(is_float(spec.dtype) for s in subject.samples for spec in specs(s, other)):
            # Neither is the dtype of an index or a mask.
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
                hit=partial(_pairs_with_scalar, first, left, name, right),
                variants=lambda base, dtype=lefts[0], name=name, value=value: (  # type: ignore[misc]
                    set_argument(subject, _swapped(base, dtype), name, value),
                ),
            )


def _pairs(first: str, other: str, left: str, right: str, call: Invocation) -> bool:
    a, b = value_of(call, first), value_of(call, other)
    if not isinstance(a, TensorSpec) or not isinstance(b, TensorSpec) or a.dtype == b.dtype:
        return False
    return (kind_of_dtype(a.dtype), kind_of_dtype(b.dtype)) == (left, right)


def _paired(first: str, other: str, pair: tuple[str, str], base: Invocation) -> Iterator[Invocation]:
    if specs(base, first) and specs(base, other) and _has_several_elements(base):
        swapped = _swapped(base, pair[0])
        swapped = change_specs(swapped, (first,), lambda spec: replace(spec, dtype=pair[0]))
        yield change_specs(swapped, (other,), lambda spec: replace(spec, dtype=pair[1]))


def _pairs_with_scalar(first: str, left: str, name: str, right: str, call: Invocation) -> bool:
    tensor, value = value_of(call, first), value_of(call, name)
    return isinstance(tensor, TensorSpec) and kind_of_dtype(tensor.dtype) == left and type(value).__name__ == right


def _points_in_lists(subject: SurveyedOperator) -> Iterator[Point]:
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
        yield set_argument(subject, base, name, (replace(found[0], dtype=wide), *found[1:]))


def named(point: str) -> Promotion | None:
    """Return the promotion that a point with this name is about; None if it is about something else."""
    found = _NAME.fullmatch(point)
    return Promotion(*found.groups()) if found else None
