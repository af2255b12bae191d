"""Compute the shapes that lists of index tensors select."""

from __future__ import annotations

from collections.abc import Sequence


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape of some that go together."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*padded, strict=True))


def selected(shape: Sequence[int], indexed: Sequence[bool], common: tuple[int, ...]) -> tuple[int, ...]:
    """The result's shape: indexed dims are replaced in place if they are neighbours, else in front."""
    places = [i for i, given in enumerate(indexed) if given]
    kept = [size for i, size in enumerate(shape) if i >= len(indexed) or not indexed[i]]
    neighbours = places[-1] - places[0] == len(places) - 1
    at = sum(not given for given in indexed[: places[0]]) if neighbours else 0
    return (*kept[:at], *common, *kept[at:])
