"""Single reductions of an invocation, the most effective first.

A step is a function, so that those that succeed one by one can be taken together: it may find another
invocation than the one it was proposed for, and gives None where it no longer applies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from harness.analyse.shrink import paths, sizes
from harness.analyse.shrink.domains import Domains, allowed, keeps_values
from harness.analyse.shrink.plainness import DTYPES, ELEMENTS, alternatives, is_dim, number
from harness.analyse.shrink.tensor_edits import (
    PlainNumber,
    cast,
    compact,
    contiguous,
    element_type,
    is_plain_layout,
    is_special,
    literal,
    numbers,
    with_numbers,
)
from harness.core import Argument, Enumerated, Invocation, TensorSpec, is_float

Rewrite: TypeAlias = Callable[[Invocation], "Invocation | None"]

#: Elements of a tensor that are made plain one by one, and values written for all of them at once.
_ELEMENTS = 64
_AT_ONCE = 4096


@dataclass(frozen=True)
class ReductionStep:
    """One reduction.

    Attributes:
        change: Makes it.
        values_only: Whether it changes tensor values alone, so that the export stays the same.
    """

    change: Rewrite
    values_only: bool = False


def steps(invocation: Invocation, domains: Domains) -> Iterator[ReductionStep]:
    """Reductions of `invocation` to try.

    Args:
        invocation: What fails.
        domains: The values that its operator allows.
    """
    yield ReductionStep(lambda i: paths.map_tensors(i, literal))
    yield ReductionStep(lambda i: paths.map_tensors(i, contiguous))
    for kept in (None, *sorted(paths.optional(invocation.overload) & {n for n, _ in invocation.arguments})):
        for plain in (1, 2, None):
            yield ReductionStep(lambda i, kept=kept, plain=plain: _nothing_but(i, kept, plain))  # type: ignore[misc]
    for change in sizes.leaps(invocation):
        yield ReductionStep(change)
    yield from _arguments(invocation)
    yield from _layouts(invocation)
    yield from _dtypes(invocation)
    for change in sizes.single(invocation):
        yield ReductionStep(change)
    yield from _values(invocation, domains)


def _nothing_but(invocation: Invocation, kept: str | None, plain: int | None) -> Invocation:
    """Every optional argument but `kept` left out, and `plain` for the numbers of the others."""
    optional = paths.optional(invocation.overload)
    for name in optional - {kept}:
        invocation = paths.without_argument(invocation, name)
    if plain is not None:
        for name, argument in invocation.arguments:
            if name not in optional and not is_dim(name):
                invocation = paths.with_argument(invocation, name, _all(argument, plain))
    return invocation


def _all(argument: Argument, plain: int) -> Argument:
    """`argument` with `plain` for each of its numbers."""
    if isinstance(argument, tuple):
        return tuple(_all(item, plain) for item in argument)
    return retyped(argument, plain)


# Arguments


def _arguments(invocation: Invocation) -> Iterator[ReductionStep]:
    optional = paths.optional(invocation.overload)
    for name, argument in invocation.arguments:
        if name in optional:
            yield ReductionStep(lambda i, name=name: paths.without_argument(i, name))  # type: ignore[misc]
        for plainer in plainer_arguments(name, argument):
            yield ReductionStep(_replacing(name, argument, plainer))


def retyped(argument: Argument, plain: int) -> Argument:
    """The number `plain` in the type of `argument`; `argument` itself where that is no number."""
    if type(argument) is float:
        return float(plain)
    return plain if type(argument) is int else argument


def _replacing(name: str, before: Argument, after: Argument) -> Rewrite:
    def change(invocation: Invocation) -> Invocation | None:
        if dict(invocation.arguments).get(name) != before:
            return None
        return paths.with_argument(invocation, name, after)

    return change


def plainer_arguments(name: str, argument: Argument) -> Iterator[Argument]:
    """Plainer values for an argument that is no tensor, the plainest first."""
    if isinstance(argument, bool):
        if argument:
            yield False
    elif isinstance(argument, int | float):
        yield from plainer_numbers(argument, alternatives(name))
    elif isinstance(argument, Enumerated) and argument.kind == "dtype" and argument.name in DTYPES:
        yield from (Enumerated("dtype", d) for d in DTYPES[: DTYPES.index(argument.name)])
    elif isinstance(argument, tuple) and argument:
        yield from _plainer_lists(name, argument)


def _plainer_lists(name: str, items: tuple[Argument, ...]) -> Iterator[Argument]:
    if all(type(item) is int or type(item) is float for item in items) and not is_dim(name):
        for plain in alternatives(name)[:3]:
            same = tuple(retyped(item, plain) for item in items)
            if same != items:
                yield same
    if len(items) > 1:
        yield items[:1]
        for i in range(min(len(items), 16)):
            yield (*items[:i], *items[i + 1 :])
    for i, item in enumerate(items[:16]):
        if not isinstance(item, TensorSpec):
            for plainer in plainer_arguments(name, item):
                yield (*items[:i], plainer, *items[i + 1 :])


def plainer_numbers(value: int | float, order: tuple[int, ...]) -> Iterator[int | float]:
    """Numbers of the same type that are plainer than `value`, the plainest first."""
    least = number(value, order)
    tried: list[int | float] = [type(value)(plain) for plain in order]
    if isinstance(value, float) and not is_special(value):
        tried += [0.5, -0.5, 1.5]
        if abs(value) < 1e6:
            tried += [float(round(value)), round(value * 2) / 2, round(value, 1)]
        power = 10.0 ** math.floor(math.log10(abs(value))) if value else 1.0
        tried += [power, 10 * power, -power, float(f"{value:.0e}"), float(f"{value:.1e}")]
    elif isinstance(value, int):
        tried += [value // 2, -(-value // 2), -value, value - 1]
        if abs(value) > 16:
            tried += [1 << (abs(value).bit_length() - 1), 1 << abs(value).bit_length()]
    for plain in dict.fromkeys(tried):
        # A zero of the wrong sign is a value that code treats apart.
        if number(plain, order) < least and not is_special(plain):
            yield plain


# Layouts and dtypes


def _layouts(invocation: Invocation) -> Iterator[ReductionStep]:
    for path, spec in paths.tensors(invocation).items():
        if not is_plain_layout(spec):
            for simplify in (contiguous, compact):
                yield ReductionStep(lambda i, path=path, simplify=simplify: _at(i, path, simplify))  # type: ignore[misc]


def _at(
    invocation: Invocation, path: paths.Path, change: Callable[[TensorSpec], TensorSpec | None]
) -> Invocation | None:
    spec = paths.tensors(invocation).get(path)
    changed = None if spec is None else change(spec)
    return None if changed is None else paths.with_tensors(invocation, {path: changed})


def _dtypes(invocation: Invocation) -> Iterator[ReductionStep]:
    tensors = paths.tensors(invocation)
    for dtype in dict.fromkeys(spec.dtype for spec in tensors.values()):
        for plainer in plainer_dtypes(dtype):
            yield ReductionStep(lambda i, a=dtype, b=plainer: everywhere_in(i, a, b))  # type: ignore[misc]
    for path, spec in tensors.items():
        for plainer in plainer_dtypes(spec.dtype):
            yield ReductionStep(lambda i, path=path, to=plainer: _at(i, path, lambda s: cast(s, to)))  # type: ignore[misc]


def plainer_dtypes(dtype: str) -> tuple[str, ...]:
    """Dtypes to try in its place; a float stays one, and nothing becomes a bool."""
    rank = DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES)
    return tuple(d for d in DTYPES[:rank] if d != "bool" and (is_float(d) or not is_float(dtype)))


def everywhere_in(invocation: Invocation, before: str, after: str) -> Invocation | None:
    """Every tensor and every `dtype` argument of one dtype in another."""
    changed = {p: cast(s, after) for p, s in paths.tensors(invocation).items() if s.dtype == before}
    if not changed or None in changed.values():
        return None
    invocation = paths.with_tensors(invocation, {p: s for p, s in changed.items() if s is not None})
    for name, argument in invocation.arguments:
        if argument == Enumerated("dtype", before):
            invocation = paths.with_argument(invocation, name, Enumerated("dtype", after))
    return invocation


# Values


def _values(invocation: Invocation, domains: Domains) -> Iterator[ReductionStep]:
    for path, spec in paths.tensors(invocation).items():
        rules = domains.get(path[0], ())
        if keeps_values(rules) or not spec.numel or spec.storage_size > _AT_ONCE:
            continue
        before = numbers(spec)
        for after in [*plainer_everywhere(spec.dtype, before), *plainer_somewhere(spec.dtype, before)]:
            if allowed(rules, spec.dtype, after):
                yield ReductionStep(_writing(path, before, after), values_only=True)


def _writing(path: paths.Path, before: tuple[PlainNumber, ...], after: tuple[PlainNumber, ...]) -> Rewrite:
    """Writes those elements of `after` that differ from `before`."""
    changed = {i: b for i, (a, b) in enumerate(zip(before, after, strict=True)) if a is not b}

    def change(invocation: Invocation) -> Invocation | None:
        spec = paths.tensors(invocation).get(path)
        if spec is None:
            return None
        now = list(numbers(spec))
        if len(now) != len(before):
            return None
        for place, value in changed.items():
            now[place] = value
        return paths.with_tensors(invocation, {path: with_numbers(spec, now)})

    return change


def plainer_everywhere(dtype: str, before: tuple[PlainNumber, ...]) -> Iterator[tuple[PlainNumber, ...]]:
    """All elements plain, and all but those that code treats apart."""
    kind = element_type(dtype)
    for plain in (0, 1, 2):
        yield tuple(kind(plain) for _ in before)
        yield tuple(n if is_special(n) else kind(plain) for n in before)
    if kind is not bool:
        yield tuple(kind(i % 8) for i in range(len(before)))
        yield tuple(kind(i % 8 + 1) for i in range(len(before)))
    if kind is float:
        yield tuple(
            float(round(n)) if isinstance(n, float) and not is_special(n) and abs(n) < 1e6 else n
            for n in before
        )


def plainer_somewhere(dtype: str, before: tuple[PlainNumber, ...]) -> Iterator[tuple[PlainNumber, ...]]:
    """One element plainer."""
    if len(before) > _ELEMENTS:
        return
    for i, value in enumerate(before):
        for plainer in plainer_elements(value):
            yield (*before[:i], plainer, *before[i + 1 :])


def plainer_elements(value: PlainNumber) -> Iterator[PlainNumber]:
    """Values for one element, the plainest first."""
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int | float):
        yield from plainer_numbers(value, ELEMENTS)
