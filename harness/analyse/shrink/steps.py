"""Single reductions of an invocation, the most effective first.

A step is a function, so that those that succeed one by one can be taken together: it may find another
invocation than the one it was proposed for, and gives None where it no longer applies.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from harness.analyse.shrink import paths, sizes
from harness.analyse.shrink.domains import Domains, allowed, keeps_values
from harness.analyse.shrink.paths import Rewrite
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

#: Elements of a tensor that are made plain one by one, and values written for all of them at once.
_ELEMENTS = 64
_AT_ONCE = 4096


def steps(invocation: Invocation) -> Iterator[Rewrite]:
    """Reductions of `invocation` to try, but for those of `value_steps`."""
    yield partial(paths.map_tensors, change=literal)
    yield partial(paths.map_tensors, change=contiguous)
    given = {name for name, _ in invocation.arguments}
    for kept in (None, *sorted(paths.optional(invocation.overload).keys() & given)):
        for plain in (1, 2, None):
            yield partial(_nothing_but, kept=kept, plain=plain)
    yield from sizes.leaps(invocation)
    yield from _arguments(invocation)
    for path, spec in paths.tensors(invocation).items():
        if not is_plain_layout(spec):
            yield paths.changing(path, contiguous)
            yield paths.changing(path, compact)
    yield from _dtypes(invocation)
    yield from sizes.single(invocation)


def _nothing_but(invocation: Invocation, kept: str | None, plain: int | None) -> Invocation:
    """Every optional argument but `kept` left out, and `plain` for the numbers of the others."""
    optional = paths.optional(invocation.overload)
    for name in optional.keys() - {kept}:
        invocation = paths.without_argument(invocation, name)
    if plain is None:
        return invocation
    return paths.map_arguments(invocation, lambda name, a: a if name in optional or is_dim(name) else _all(a, plain))


def _all(argument: Argument, plain: int) -> Argument:
    """`argument` with `plain` for each of its numbers."""
    if isinstance(argument, tuple):
        return tuple(_all(item, plain) for item in argument)
    return _retyped(argument, plain)


# Arguments


def _arguments(invocation: Invocation) -> Iterator[Rewrite]:
    optional = paths.optional(invocation.overload)
    for name, argument in invocation.arguments:
        if name in optional:
            yield partial(paths.without_argument, name=name)
        for plainer in plainer_arguments(name, argument):
            yield partial(_replaced, name=name, before=argument, after=plainer)


def _retyped(argument: Argument, plain: int) -> Argument:
    """The number `plain` in the type of `argument`; `argument` itself where that is no number."""
    return type(argument)(plain) if type(argument) is float or type(argument) is int else argument


def _replaced(invocation: Invocation, name: str, before: Argument, after: Argument) -> Invocation | None:
    if dict(invocation.arguments).get(name) != before:
        return None
    return paths.with_argument(invocation, name, after)


def plainer_arguments(name: str, argument: Argument) -> Iterator[Argument]:
    """Plainer values for an argument that is no tensor, the plainest first."""
    if isinstance(argument, bool | int | float):
        yield from _plainer_numbers(argument, alternatives(name))
    elif isinstance(argument, Enumerated) and argument.kind == "dtype" and argument.name in DTYPES:
        yield from (Enumerated("dtype", d) for d in DTYPES[: DTYPES.index(argument.name)])
    elif isinstance(argument, tuple) and argument:
        yield from _plainer_lists(name, argument)


def _plainer_lists(name: str, items: tuple[Argument, ...]) -> Iterator[Argument]:
    if all(type(item) is int or type(item) is float for item in items) and not is_dim(name):
        every = (tuple(_retyped(item, plain) for item in items) for plain in alternatives(name)[:3])
        yield from (same for same in every if same != items)
    if len(items) > 1:
        yield items[:1]
        for i in range(min(len(items), 16)):
            yield (*items[:i], *items[i + 1 :])
    for i, item in enumerate(items[:16]):
        if not isinstance(item, TensorSpec):
            for plainer in plainer_arguments(name, item):
                yield (*items[:i], plainer, *items[i + 1 :])


def _plainer_numbers(value: int | float, order: tuple[int, ...]) -> Iterator[int | float]:
    """Numbers of the same type that are plainer than `value`, the plainest first."""
    if isinstance(value, bool):
        yield from [False] * value
        return
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
    # A zero of the wrong sign is a value that code treats apart.
    yield from (n for n in dict.fromkeys(tried) if number(n, order) < least and not is_special(n))


# Dtypes


def _dtypes(invocation: Invocation) -> Iterator[Rewrite]:
    tensors = paths.tensors(invocation)
    for dtype in dict.fromkeys(spec.dtype for spec in tensors.values()):
        for plainer in plainer_dtypes(dtype):
            yield partial(everywhere_in, before=dtype, after=plainer)
    for path, spec in tensors.items():
        for plainer in plainer_dtypes(spec.dtype):
            yield paths.changing(path, partial(cast, dtype=plainer))


def plainer_dtypes(dtype: str) -> tuple[str, ...]:
    """Dtypes to try in its place; a float stays one, and nothing becomes a bool."""
    rank = DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES)
    return tuple(d for d in DTYPES[:rank] if d != "bool" and (is_float(d) or not is_float(dtype)))


def everywhere_in(invocation: Invocation, before: str, after: str) -> Invocation | None:
    """Every tensor and every `dtype` argument of one dtype in another."""
    changed: dict[paths.Path, TensorSpec] = {}
    for path, spec in paths.tensors(invocation).items():
        if spec.dtype == before:
            written = cast(spec, after)
            if written is None:
                return None
            changed[path] = written
    if not changed:
        return None
    old, new = Enumerated("dtype", before), Enumerated("dtype", after)
    return paths.map_arguments(
        paths.with_tensors(invocation, changed), lambda _, argument: new if argument == old else argument
    )


# Values


def value_steps(invocation: Invocation, domains: Domains) -> Iterator[Rewrite]:
    """Reductions that change tensor values alone, within `domains`, so that the export stays the same."""
    for path, spec in paths.tensors(invocation).items():
        rules = domains.get(path[0], ())
        if keeps_values(rules) or not spec.numel or spec.storage_size > _AT_ONCE:
            continue
        before = numbers(spec)
        for after in [*plainer_everywhere(spec.dtype, before), *_plainer_somewhere(before)]:
            if allowed(rules, spec.dtype, after):
                yield paths.changing(path, partial(_written, before=before, after=after))


def _written(spec: TensorSpec, before: tuple[PlainNumber, ...], after: tuple[PlainNumber, ...]) -> TensorSpec | None:
    """Those elements of `after` that differ from `before` in `spec`."""
    now = numbers(spec)
    if len(now) != len(before):
        return None
    triples = zip(now, before, after, strict=True)
    return with_numbers(spec, [n if a is b else b for n, a, b in triples])


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
            float(round(n)) if isinstance(n, float) and not is_special(n) and abs(n) < 1e6 else n for n in before
        )


def _plainer_somewhere(before: tuple[PlainNumber, ...]) -> Iterator[tuple[PlainNumber, ...]]:
    """One element plainer."""
    if len(before) <= _ELEMENTS:
        for i, value in enumerate(before):
            for plainer in plainer_elements(value):
                yield (*before[:i], plainer, *before[i + 1 :])


def plainer_elements(value: PlainNumber) -> Iterator[PlainNumber]:
    """Values for one element, the plainest first."""
    if not isinstance(value, complex):
        yield from _plainer_numbers(value, ELEMENTS)
