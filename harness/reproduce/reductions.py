"""Reductions: smaller and plainer forms of an invocation, which shrinking tries, the most effective first.

A reduction is a function, so that reductions that succeed one by one can be combined: it may be applied to another
invocation than the one it was proposed for, and returns None if it does not apply there.

Sizes that belong together shrink together: those at one place counted from the end (broadcasting) or from the
beginning (batches, channels), and those that are equal, numbers among the arguments included.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeGuard

from harness.core.dtypes import is_float
from harness.core.invocation import (
    Argument,
    Enumerated,
    Invocation,
    Literal,
    TensorSpec,
)
from harness.core.tensors import build_tensor
from harness.reproduce.edits import (
    Domains,
    Path,
    PlainNumber,
    Rewrite,
    allowed,
    cast,
    changing,
    compact,
    contiguous,
    drop_dim,
    element,
    element_type,
    is_plain_layout,
    is_special,
    keep,
    keeps_values,
    literal,
    map_arguments,
    map_tensors,
    numbers,
    omit_argument,
    optional_arguments,
    replace_argument,
    replace_numbers,
    replace_tensors,
    tensors_of,
)
from harness.reproduce.plainness import DTYPES, ELEMENTS, alternatives, is_dim, number

#: Dimensions that shrink together.
Tied: TypeAlias = frozenset[tuple[Path, int]]

#: Single elements of a call that are tried alone.
_SAMPLED = 40
#: Places along a dimension that are tried alone.
_PLACES = 33


def large_reductions(invocation: Invocation) -> Iterator[Rewrite]:
    """Large reductions: a single element of everything, small sizes everywhere, one dimension fewer."""
    for place in _sampled_places(invocation):
        yield partial(_single_element, place=place)
    for size in (1, 2, 3, 4):
        yield partial(map_tensors, change=partial(_cut, size=size))
    yield partial(map_tensors, change=not_empty)
    yield partial(map_tensors, change=vector)
    for path in tensors_of(invocation):
        yield changing(path, vector)
    yield from _fewer_dims(invocation)


def size_reductions(invocation: Invocation) -> Iterator[Rewrite]:
    """Yield reductions of sizes that are tied to each other in one way."""
    indices = any(_is_index(spec) for spec in invocation.tensors())
    for tied in ties(invocation):
        size = _size(invocation, tied)
        mentioned = any(_mentions(n, a, size) for n, a in invocation.arguments)
        for kept in _kept(size):
            yield partial(shrunk, tied=tied, kept=kept)
            if mentioned:
                yield partial(shrunk, tied=tied, kept=kept, arguments=True)
            if indices:
                yield partial(_indexed, tied=tied, kept=kept)


def ties(invocation: Invocation) -> list[Tied]:
    """Return groups of dimensions of one size above 1, the largest groups first."""
    groups: defaultdict[tuple[object, ...], set[tuple[Path, int]]] = defaultdict(set)
    for path, spec in tensors_of(invocation).items():
        for d, size in enumerate(spec.shape):
            if size > 1:
                groups["equal", size].add((path, d))
                groups["from the end", d - len(spec.shape), size].add((path, d))
                groups["from the beginning", d, size].add((path, d))
                groups["alone", path, d].add((path, d))
    return sorted(dict.fromkeys(map(frozenset, groups.values())), key=lambda tied: -len(tied))


def shrunk(invocation: Invocation, tied: Tied, kept: Sequence[int], *, arguments: bool = False) -> Invocation | None:
    """Keep only the places `kept` of tied dimensions; with `arguments`, numbers equal to their size follow."""
    tensors = tensors_of(invocation)
    if not all(path in tensors and d < len(tensors[path].shape) for path, d in tied):
        return None
    size = _size(invocation, tied)
    if len(kept) >= size or kept[-1] >= size or any(tensors[p].shape[d] != size for p, d in tied):
        return None
    for path, d in sorted(tied, key=str):
        tensors[path] = keep(tensors[path], d, kept)
    changed = replace_tensors(invocation, tensors)
    if arguments:
        changed = map_arguments(changed, partial(_followed, before=size, after=len(kept)))
    return changed


def _indexed(invocation: Invocation, tied: Tied, kept: Sequence[int]) -> Invocation | None:
    """Like `shrunk`, with every index to a dropped place pointing to a kept one."""
    changed = shrunk(invocation, tied, kept)
    if changed is None:
        return None
    place = {index: new for new, index in enumerate(kept)}

    def follow(spec: TensorSpec) -> TensorSpec:
        if not _is_index(spec):
            return spec
        pointed = [n for n in numbers(spec) if isinstance(n, int)]
        return replace_numbers(spec, [place.get(n, min(n, len(kept) - 1)) for n in pointed])

    return map_tensors(changed, follow)


def _is_index(spec: TensorSpec) -> bool:
    return spec.dtype in ("int64", "int32") and 0 < spec.storage_size <= 4096


def _size(invocation: Invocation, tied: Tied) -> int:
    path, d = min(tied, key=str)
    return tensors_of(invocation)[path].shape[d]


def _kept(size: int) -> Iterator[tuple[int, ...]]:
    """Yield the places to keep, fewest first."""
    for i in range(min(size, _PLACES)):
        yield (i,)
    for count in dict.fromkeys((2, 3, 4, size // 4, size // 2, size - 1)):
        if 1 < count < size:
            yield tuple(range(count))
            yield tuple(range(size - count, size))
    if 2 < size <= 8:
        for i in range(1, size - 1):
            yield tuple(j for j in range(size) if j != i)


def _mentions(name: str, argument: Argument, size: int) -> bool:
    if isinstance(argument, tuple):
        return any(_mentions(name, item, size) for item in argument)
    return type(argument) is int and argument == size and not is_dim(name)


def _followed(name: str, argument: Argument, before: int, after: int) -> Argument:
    if isinstance(argument, tuple):
        return tuple(_followed(name, item, before, after) for item in argument)
    return after if _mentions(name, argument, before) else argument


# Everything at once


def _sampled_places(invocation: Invocation) -> list[tuple[int, ...]]:
    """Return places in the shape that all tensors broadcast to; those with distinct values come first."""
    tensors = list(invocation.tensors())
    shape = _broadcast([spec.shape for spec in tensors])
    if shape is None or not 1 < math.prod(shape) <= 4096:
        return []
    places = list(itertools.product(*map(range, shape)))
    whole = [build_tensor(spec).expand(shape) for spec in tensors]
    stride = max(1, len(places) // 256)
    # One place for all that hold the same values.
    by_values = {tuple(repr(tensor[place].item()) for tensor in whole): place for place in places[::stride]}
    apart = [p for p in by_values.values() if any(is_special(tensor[p].item()) for tensor in whole)]
    rest = [p for p in by_values.values() if p not in apart]
    return [*rest[: _SAMPLED // 2], *apart[: _SAMPLED // 2]]


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    rank = max(map(len, shapes), default=0)
    common: list[int] = []
    for d in range(-rank, 0):
        found = {shape[d] for shape in shapes if len(shape) >= -d} - {1}
        if len(found) > 1 or 0 in found:
            return None
        common.append(*(found or {1}))
    return tuple(common)


def _single_element(invocation: Invocation, place: tuple[int, ...]) -> Invocation | None:
    tensors = tensors_of(invocation)
    shape = _broadcast([spec.shape for spec in tensors.values()])
    if shape is None or len(shape) != len(place) or any(i >= n for i, n in zip(place, shape, strict=True)):
        return None
    changed = replace_tensors(invocation, {path: element(spec, place) for path, spec in tensors.items()})
    rank = max((len(spec.shape) for spec in tensors.values()), default=0)
    for d in range(rank - 1, 0, -1):
        changed = _renumber_dims(changed, d, d + 1)
    return changed


def _cut(spec: TensorSpec, size: int) -> TensorSpec:
    for d, n in enumerate(spec.shape):
        if n > size:
            spec = keep(spec, d, range(size))
    return spec


def not_empty(spec: TensorSpec) -> TensorSpec:
    """Give an empty tensor one element along each dimension that had none."""
    if spec.numel:
        return spec
    shape = (1,) * len(spec.shape)
    one = Literal((element_type(spec.dtype)(1),))
    return replace(spec, shape=shape, strides=shape, offset=0, values=one)


# Ranks


def vector(spec: TensorSpec) -> TensorSpec:
    """Return a 0-d tensor as a vector of one; others unchanged."""
    return replace(literal(spec), shape=(1,), strides=(1,)) if not spec.shape else spec


def _fewer_dims(invocation: Invocation) -> Iterator[Rewrite]:
    """Yield invocations with one dimension less: of all tensors at one place from the end or the beginning, or of
    one."""
    tensors = tensors_of(invocation)
    ranks = [len(spec.shape) for spec in tensors.values()]
    for from_end in (True, False):
        for place in range(max(ranks, default=0)):
            for lists in (False, True):
                yield partial(_without, place=place, from_end=from_end, lists=lists)
    if len(tensors) > 1:
        for path, spec in tensors.items():
            for d in range(len(spec.shape)):
                yield changing(path, partial(_drop_dim, dim=d))


def _drop_dim(spec: TensorSpec, dim: int) -> TensorSpec | None:
    return drop_dim(spec, dim) if dim < len(spec.shape) > 1 and spec.shape[dim] else None


def _without(invocation: Invocation, place: int, from_end: bool, lists: bool) -> Invocation | None:
    """Drop the dimension `place` of every tensor that has it and another.

    It is counted from 0, with `from_end` backwards from the last. With `lists`, lists of a number per
    dimension lose theirs, too.
    """
    tensors = tensors_of(invocation)
    changed: dict[Path, TensorSpec] = {}
    for path, spec in tensors.items():
        rank = len(spec.shape)
        d = rank - 1 - place if from_end else place
        if rank > 1 and 0 <= d < rank:
            if not spec.shape[d]:
                return None
            changed[path] = drop_dim(spec, d)
    if not changed:
        return None
    rank = len(next(iter(tensors.values())).shape)
    d = rank - 1 - place if from_end else place
    result = replace_tensors(invocation, changed)
    if lists:
        shorter = map_arguments(result, partial(_shorter, rank=rank, dim=d))
        if shorter == result:
            return None
        result = shorter
    return _renumber_dims(result, d, rank)


def _shorter(name: str, argument: Argument, rank: int, dim: int) -> Argument:
    if isinstance(argument, tuple) and len(argument) == rank and not is_dim(name) and _integers(argument):
        return (*argument[:dim], *argument[dim + 1 :])
    return argument


def _integers(items: tuple[Argument, ...]) -> TypeGuard[tuple[int, ...]]:
    return all(type(item) is int for item in items)


def _renumber_dims(invocation: Invocation, removed: int, rank: int) -> Invocation:
    """Change dim arguments of a tensor of `rank` so that they name the same dims after one is `removed`."""

    def moved(dim: int) -> int:
        place = dim + rank if dim < 0 else dim
        place = min(place - (place > removed), rank - 2)
        return place - (rank - 1) if dim < 0 else place

    def change(name: str, argument: Argument) -> Argument:
        if not is_dim(name):
            return argument
        if type(argument) is int and -rank <= argument < rank:
            return moved(argument)
        if isinstance(argument, tuple) and _integers(argument):
            return tuple(moved(item) for item in argument if item % rank != removed)
        return argument

    return map_arguments(invocation, change)


#: Elements of a tensor that are made plain one by one, and values written for all of them at once.
_ELEMENTS = 64
_AT_ONCE = 4096


def all_reductions(invocation: Invocation) -> Iterator[Rewrite]:
    """Yield reductions of `invocation` to try, except those of `value_steps`."""
    yield partial(map_tensors, change=literal)
    yield partial(map_tensors, change=contiguous)
    given = {name for name, _ in invocation.arguments}
    for kept in (None, *sorted(optional_arguments(invocation.overload).keys() & given)):
        for plain in (1, 2, None):
            yield partial(_nothing_but, kept=kept, plain=plain)
    yield from large_reductions(invocation)
    yield from _arguments(invocation)
    for path, spec in tensors_of(invocation).items():
        if not is_plain_layout(spec):
            yield changing(path, contiguous)
            yield changing(path, compact)
    yield from _dtypes(invocation)
    yield from size_reductions(invocation)


def _nothing_but(invocation: Invocation, kept: str | None, plain: int | None) -> Invocation:
    """Leave out every optional argument but `kept`, and use `plain` for the numbers of the others."""
    optional = optional_arguments(invocation.overload)
    for name in optional.keys() - {kept}:
        invocation = omit_argument(invocation, name)
    if plain is None:
        return invocation
    return map_arguments(invocation, lambda name, a: a if name in optional or is_dim(name) else _all(a, plain))


def _all(argument: Argument, plain: int) -> Argument:
    """Return `argument` with `plain` for each of its numbers."""
    if isinstance(argument, tuple):
        return tuple(_all(item, plain) for item in argument)
    return _retyped(argument, plain)


# Arguments


def _arguments(invocation: Invocation) -> Iterator[Rewrite]:
    optional = optional_arguments(invocation.overload)
    for name, argument in invocation.arguments:
        if name in optional:
            yield partial(omit_argument, name=name)
        for plainer in plainer_arguments(name, argument):
            yield partial(_replaced, name=name, before=argument, after=plainer)


def _retyped(argument: Argument, plain: int) -> Argument:
    """Return the number `plain` in the type of `argument`; `argument` itself if that is not a number."""
    return type(argument)(plain) if type(argument) is float or type(argument) is int else argument


def _replaced(invocation: Invocation, name: str, before: Argument, after: Argument) -> Invocation | None:
    if dict(invocation.arguments).get(name) != before:
        return None
    return replace_argument(invocation, name, after)


def plainer_arguments(name: str, argument: Argument) -> Iterator[Argument]:
    """Plainer values for an argument that is not a tensor, the plainest first."""
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
    """Yield numbers of the same type that are plainer than `value`, the plainest first."""
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
    tensors = tensors_of(invocation)
    for dtype in dict.fromkeys(spec.dtype for spec in tensors.values()):
        for plainer in plainer_dtypes(dtype):
            yield partial(everywhere_in, before=dtype, after=plainer)
    for path, spec in tensors.items():
        for plainer in plainer_dtypes(spec.dtype):
            yield changing(path, partial(cast, dtype=plainer))


def plainer_dtypes(dtype: str) -> tuple[str, ...]:
    """Return dtypes to try instead; a float stays a float, and no dtype becomes bool."""
    rank = DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES)
    return tuple(d for d in DTYPES[:rank] if d != "bool" and (is_float(d) or not is_float(dtype)))


def everywhere_in(invocation: Invocation, before: str, after: str) -> Invocation | None:
    """Change every tensor and every `dtype` argument of one dtype to another."""
    changed: dict[Path, TensorSpec] = {}
    for path, spec in tensors_of(invocation).items():
        if spec.dtype == before:
            written = cast(spec, after)
            if written is None:
                return None
            changed[path] = written
    if not changed:
        return None
    old, new = Enumerated("dtype", before), Enumerated("dtype", after)
    return map_arguments(replace_tensors(invocation, changed), lambda _, argument: new if argument == old else argument)


# Values


def value_steps(invocation: Invocation, domains: Domains) -> Iterator[Rewrite]:
    """Yield reductions that change tensor values alone, within `domains`, so that the export stays the same."""
    for path, spec in tensors_of(invocation).items():
        rules = domains.get(path[0], ())
        if keeps_values(rules) or not spec.numel or spec.storage_size > _AT_ONCE:
            continue
        before = numbers(spec)
        for after in [*plainer_everywhere(spec.dtype, before), *_plainer_somewhere(before)]:
            if allowed(rules, spec.dtype, after):
                yield changing(path, partial(_written, before=before, after=after))


def _written(spec: TensorSpec, before: tuple[PlainNumber, ...], after: tuple[PlainNumber, ...]) -> TensorSpec | None:
    """Write the elements of `after` that differ from `before` into `spec`."""
    now = numbers(spec)
    if len(now) != len(before):
        return None
    triples = zip(now, before, after, strict=True)
    return replace_numbers(spec, [n if a is b else b for n, a, b in triples])


def plainer_everywhere(dtype: str, before: tuple[PlainNumber, ...]) -> Iterator[tuple[PlainNumber, ...]]:
    """Yield invocations with all elements plain, and with all but the special values plain."""
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
    """Yield invocations with one element plainer."""
    if len(before) <= _ELEMENTS:
        for i, value in enumerate(before):
            for plainer in plainer_elements(value):
                yield (*before[:i], plainer, *before[i + 1 :])


def plainer_elements(value: PlainNumber) -> Iterator[PlainNumber]:
    """Yield values for one element, the plainest first."""
    if not isinstance(value, complex):
        yield from _plainer_numbers(value, ELEMENTS)
