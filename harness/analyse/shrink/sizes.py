"""Reductions of tensors' sizes and ranks, with the arguments that speak of them.

Sizes that belong together shrink together: those at one place counted from the end (broadcasting) or from
the beginning (batches, channels), and those that are equal, numbers among the arguments included.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeGuard

from harness.analyse.shrink import paths
from harness.analyse.shrink.paths import Rewrite
from harness.analyse.shrink.plainness import is_dim
from harness.analyse.shrink.tensor_edits import (
    element,
    element_type,
    is_special,
    keep,
    literal,
    numbers,
    with_numbers,
    without_dim,
)
from harness.core import Argument, Invocation, Literal, TensorSpec, build_tensor

#: Dimensions that shrink together.
Tied: TypeAlias = frozenset[tuple[paths.Path, int]]

#: Single elements of a call that are tried alone.
_SAMPLED = 40
#: Places along a dimension that are tried alone.
_PLACES = 33


def leaps(invocation: Invocation) -> Iterator[Rewrite]:
    """Large reductions: a single element of everything, small sizes everywhere, one dimension fewer."""
    for place in _sampled_places(invocation):
        yield partial(_single_element, place=place)
    for size in (1, 2, 3, 4):
        yield partial(paths.map_tensors, change=partial(_cut, size=size))
    yield partial(paths.map_tensors, change=not_empty)
    yield partial(paths.map_tensors, change=vector)
    for path in paths.tensors(invocation):
        yield paths.changing(path, vector)
    yield from _fewer_dims(invocation)


def single(invocation: Invocation) -> Iterator[Rewrite]:
    """Reductions of sizes that are tied to each other in one way."""
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
    """Groups of dimensions of one size above 1, the largest groups first."""
    groups: defaultdict[tuple[object, ...], set[tuple[paths.Path, int]]] = defaultdict(set)
    for path, spec in paths.tensors(invocation).items():
        for d, size in enumerate(spec.shape):
            if size > 1:
                groups["equal", size].add((path, d))
                groups["from the end", d - len(spec.shape), size].add((path, d))
                groups["from the beginning", d, size].add((path, d))
                groups["alone", path, d].add((path, d))
    return sorted(dict.fromkeys(map(frozenset, groups.values())), key=lambda tied: -len(tied))


def shrunk(invocation: Invocation, tied: Tied, kept: Sequence[int], *, arguments: bool = False) -> Invocation | None:
    """Only the places `kept` of tied dimensions; with `arguments`, numbers equal to their size follow."""
    tensors = paths.tensors(invocation)
    if not all(path in tensors and d < len(tensors[path].shape) for path, d in tied):
        return None
    size = _size(invocation, tied)
    if len(kept) >= size or kept[-1] >= size or any(tensors[p].shape[d] != size for p, d in tied):
        return None
    for path, d in sorted(tied, key=str):
        tensors[path] = keep(tensors[path], d, kept)
    changed = paths.with_tensors(invocation, tensors)
    if arguments:
        changed = paths.map_arguments(changed, partial(_followed, before=size, after=len(kept)))
    return changed


def _indexed(invocation: Invocation, tied: Tied, kept: Sequence[int]) -> Invocation | None:
    """Like `shrunk`, with every index into what goes away pointing to what stays."""
    changed = shrunk(invocation, tied, kept)
    if changed is None:
        return None
    place = {index: new for new, index in enumerate(kept)}

    def follow(spec: TensorSpec) -> TensorSpec:
        if not _is_index(spec):
            return spec
        pointed = [n for n in numbers(spec) if isinstance(n, int)]
        return with_numbers(spec, [place.get(n, min(n, len(kept) - 1)) for n in pointed])

    return paths.map_tensors(changed, follow)


def _is_index(spec: TensorSpec) -> bool:
    return spec.dtype in ("int64", "int32") and 0 < spec.storage_size <= 4096


def _size(invocation: Invocation, tied: Tied) -> int:
    path, d = min(tied, key=str)
    return paths.tensors(invocation)[path].shape[d]


def _kept(size: int) -> Iterator[tuple[int, ...]]:
    """Which places to keep, fewest first."""
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
    """Places in the shape that all tensors broadcast to; those that hold values apart come first."""
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
    tensors = paths.tensors(invocation)
    shape = _broadcast([spec.shape for spec in tensors.values()])
    if shape is None or len(shape) != len(place) or any(i >= n for i, n in zip(place, shape, strict=True)):
        return None
    changed = paths.with_tensors(invocation, {path: element(spec, place) for path, spec in tensors.items()})
    rank = max((len(spec.shape) for spec in tensors.values()), default=0)
    for d in range(rank - 1, 0, -1):
        changed = _with_dims(changed, d, d + 1)
    return changed


def _cut(spec: TensorSpec, size: int) -> TensorSpec:
    for d, n in enumerate(spec.shape):
        if n > size:
            spec = keep(spec, d, range(size))
    return spec


def not_empty(spec: TensorSpec) -> TensorSpec:
    """An empty tensor with one element where it had none."""
    if spec.numel:
        return spec
    shape = (1,) * len(spec.shape)
    one = Literal((element_type(spec.dtype)(1),))
    return replace(spec, shape=shape, strides=shape, offset=0, values=one)


# Ranks


def vector(spec: TensorSpec) -> TensorSpec:
    """A 0-d tensor as a vector of one; others as they are."""
    return replace(literal(spec), shape=(1,), strides=(1,)) if not spec.shape else spec


def _fewer_dims(invocation: Invocation) -> Iterator[Rewrite]:
    """One dimension less: of all tensors at one place from the end or the beginning, or of one alone."""
    tensors = paths.tensors(invocation)
    ranks = [len(spec.shape) for spec in tensors.values()]
    for from_end in (True, False):
        for place in range(max(ranks, default=0)):
            for lists in (False, True):
                yield partial(_without, place=place, from_end=from_end, lists=lists)
    if len(tensors) > 1:
        for path, spec in tensors.items():
            for d in range(len(spec.shape)):
                yield paths.changing(path, partial(_without_dim, dim=d))


def _without_dim(spec: TensorSpec, dim: int) -> TensorSpec | None:
    return without_dim(spec, dim) if dim < len(spec.shape) > 1 and spec.shape[dim] else None


def _without(invocation: Invocation, place: int, from_end: bool, lists: bool) -> Invocation | None:
    """Without the dimension `place` of every tensor that has it and another.

    It is counted from 0, with `from_end` backwards from the last. With `lists`, lists of a number per
    dimension lose theirs, too.
    """
    tensors = paths.tensors(invocation)
    changed: dict[paths.Path, TensorSpec] = {}
    for path, spec in tensors.items():
        rank = len(spec.shape)
        d = rank - 1 - place if from_end else place
        if rank > 1 and 0 <= d < rank:
            if not spec.shape[d]:
                return None
            changed[path] = without_dim(spec, d)
    if not changed:
        return None
    rank = len(next(iter(tensors.values())).shape)
    d = rank - 1 - place if from_end else place
    result = paths.with_tensors(invocation, changed)
    if lists:
        shorter = paths.map_arguments(result, partial(_shorter, rank=rank, dim=d))
        if shorter == result:
            return None
        result = shorter
    return _with_dims(result, d, rank)


def _shorter(name: str, argument: Argument, rank: int, dim: int) -> Argument:
    if isinstance(argument, tuple) and len(argument) == rank and not is_dim(name) and _integers(argument):
        return (*argument[:dim], *argument[dim + 1 :])
    return argument


def _integers(items: tuple[Argument, ...]) -> TypeGuard[tuple[int, ...]]:
    return all(type(item) is int for item in items)


def _with_dims(invocation: Invocation, removed: int, rank: int) -> Invocation:
    """Arguments that say dimensions of a tensor of `rank` say the same ones after one is `removed`."""

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

    return paths.map_arguments(invocation, change)
