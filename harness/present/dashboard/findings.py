"""Find argument values with which an operator fails, from the record: ``fails with ceil_mode=True``."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from harness.record.dictionary_encoding import Numbers

#: Fewest calls of different structure with a property, and without it, that say anything.
_ENOUGH = 3
#: By how much the failing share must differ between cases with a property and the rest.
_DIFFERENCE = 0.5
#: Or how unlikely it must be that all failing cases have a property by chance.
_CHANCE = 1e-3
_MOST = 3


@dataclass(frozen=True, kw_only=True)
class FailingProperty:
    """A property of calls with which they fail more often than without.

    Attributes:
        property: ``ceil_mode=True``, ``self is empty``.
        sentence: The finding in words, without the counts.
        fails: Failing calls among the `cases` with the property.
        other_fails: Failing calls among the `other_cases` without it.
    """

    property: str
    sentence: str
    fails: int
    cases: int
    other_fails: int
    other_cases: int


@dataclass(frozen=True)
class RecordedCall:
    """One recorded call.

    Attributes:
        structure: Shared by calls that differ in values only: these speak for one call, not for many.
        invocation: JSON.
    """

    structure: str
    invocation: str
    fails: bool


def findings(calls: Sequence[RecordedCall]) -> list[FailingProperty]:
    """Return properties that failing calls of one operator share and others lack, clearest first.

    The calls are those of one column that pass, and those that fail in one way.
    """
    if not calls:
        return []
    kinds: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for one in calls:
        kind = kinds[one.structure, one.invocation]
        kind[0] += 1
        kind[1] += one.fails
    cases, fails = (np.array(numbers, dtype=np.int64) for numbers in zip(*kinds.values(), strict=True))
    if fails.sum() in (0, cases.sum()):
        return []
    places: dict[str, int] = {}
    words = [[places.setdefault(word, len(places)) for word in properties(call)] for _, call in kinds]
    having = np.zeros((len(places), len(kinds)), dtype=np.int64)
    for number, theirs in enumerate(words):
        having[theirs, number] = 1
    _, structure = np.unique([structure for structure, _ in kinds], return_inverse=True)
    of_structure = np.eye(int(structure.max()) + 1, dtype=np.int64)[structure]

    def counts(rows: Numbers) -> Iterator[_Counts]:
        both = (np.sum(some @ of_structure > 0, axis=1) for some in (rows, rows * (fails > 0)))
        numbers = (rows @ cases, rows @ fails, *both)
        return itertools.starmap(_Counts, zip(*(number.tolist() for number in numbers), strict=True))

    found: list[tuple[FailingProperty, bytes]] = []
    for word, row, with_it, without in zip(places, having, counts(having), counts(1 - having), strict=True):
        finding = _finding(word, with_it, without)
        if finding is not None:
            found.append((finding, row.tobytes()))
    # Of properties that say the same of the same cases, the plainest is enough.
    found.sort(key=lambda pair: (-_clarity(pair[0]), len(pair[0].property), pair[0].property))
    kept: dict[bytes, FailingProperty] = {}
    for finding, having_it in found:
        kept.setdefault(having_it, finding)
    return list(kept.values())[:_MOST]


@dataclass(frozen=True)
class _Counts:
    """Numbers of calls, of failing calls, and of the structures of each."""

    cases: int
    fails: int
    structures: int
    failing_structures: int


def _finding(word: str, having: _Counts, rest: _Counts) -> FailingProperty | None:
    if min(having.structures, rest.structures) < _ENOUGH or having.fails < rest.fails:
        # It says little about the failures.
        return None
    share = having.cases / (having.cases + rest.cases)
    by_chance = share**having.failing_structures if not rest.fails else 1.0
    if having.fails / having.cases - rest.fails / rest.cases < _DIFFERENCE and by_chance > _CHANCE:
        return None
    if having.fails == having.cases:
        how = "fails if and only if called with" if not rest.fails else "always fails this way with"
    else:
        how = "fails this way only with" if not rest.fails else "usually fails this way with"
    return FailingProperty(
        property=word,
        sentence=f"{how} {word}",
        fails=having.fails,
        cases=having.cases,
        other_fails=rest.fails,
        other_cases=rest.cases,
    )


def _clarity(found: FailingProperty) -> float:
    return found.fails / found.cases - found.other_fails / found.other_cases


@lru_cache(maxsize=4096)
def properties(invocation: str) -> tuple[str, ...]:
    """Return the properties of a call's arguments; none for a call of another version."""
    try:
        arguments = json.loads(invocation)["arguments"]
        return tuple(dict.fromkeys(_argument_properties(arguments)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()


def _argument_properties(arguments: Mapping[str, Any]) -> Iterator[str]:
    shapes = []
    for name, value in arguments.items():
        if isinstance(value, dict) and "tensor" in value:
            spec = value["tensor"]
            shapes.append(tuple(spec["shape"]))
            yield from _tensor_properties(name, spec)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{name} of {len(value)} tensors" if len(value) > 1 else f"{name} of one tensor"
        else:
            yield from _value_properties(name, value)
    if len(shapes) > 1:
        yield "tensors of one shape" if len(set(shapes)) == 1 else "tensors of different shapes"


def _tensor_properties(name: str, spec: Mapping[str, Any]) -> Iterator[str]:
    shape = spec["shape"]
    yield f"{name} of {spec['dtype']}"
    yield (f"{name} without dimensions" if not shape else f"{name} of {len(shape)} dimension{'s'[: len(shape) > 1]}")
    if math.prod(shape) == 0:
        yield f"{name} empty"
    if 1 in shape:
        yield f"{name} with a dimension of size 1"
    if spec.get("offset") or not _is_contiguous(shape, spec.get("strides", [])):
        yield f"{name} not contiguous"


def _value_properties(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        # A dtype, a layout, or a number that JSON does not have.
        yield f"{name}={' '.join(map(str, value.values()))}"
        return
    yield f"{name}={_written(value)}"
    if value is not None:
        yield f"{name} given"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if value < 0:
            yield f"{name} negative"
        if isinstance(value, float) and not value.is_integer():
            yield f"{name} with a fraction"
    if isinstance(value, list):
        yield f"{name} of {len(value)} numbers" if len(value) != 1 else f"{name} of one number"
        if any(isinstance(n, int | float) and n < 0 for n in value):
            yield f"{name} with a negative number"


def _written(value: Any) -> str:
    return f"[{', '.join(map(repr, value))}]" if isinstance(value, list) else repr(value)


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size > 1 and stride != expected:
            return False
        expected *= max(size, 1)
    return True
