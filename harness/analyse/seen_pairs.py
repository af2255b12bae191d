"""How many pairs of conditions the recorded cases of an operator have, of those that could come together.

A condition is what a case's tensors or other arguments are, each by itself: a dtype, a rank, a layout, a
flag, a negative number. Any two that the record has of two different things could come together in one case.
"No failure found" says the more, the more of these pairs some case has. Tensor values take no part in it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.compare import Outcome
from harness.record import store

#: Ranks and lengths from here on count as one.
_MANY = 4


@dataclass(frozen=True)
class SeenPairs:
    """Pairs of conditions that some case has, out of the possible ones."""

    seen: int
    possible: int

    @classmethod
    def together(cls, parts: Iterable[SeenPairs]) -> SeenPairs:
        """Of several operators."""
        known = list(parts)
        return cls(sum(one.seen for one in known), sum(one.possible for one in known))

    def __str__(self) -> str:
        """``71% of pairs``; "" where nothing varies."""
        return f"{100 * self.seen // self.possible}% of pairs" if self.possible else ""


def read_seen_pairs(run: Path, overloads: Collection[str]) -> dict[str, SeenPairs]:
    """What the cases of some operators have that were judged: overload → pairs.

    Raises:
        ResultsError: the run cannot be read.
    """
    if not overloads:
        return {}
    where = pc.field("overload").isin(list(overloads)) & (pc.field("outcome") != str(Outcome.SKIP))
    # Cases of one structure differ in the values of their tensors only.
    rows = store.read(run, ["overload", "structure_id", "invocation"], where)
    calls: defaultdict[str, dict[str, str]] = defaultdict(dict)
    columns = (rows[name].to_pylist() for name in ("overload", "structure_id", "invocation"))
    for overload, structure, invocation in zip(*columns, strict=True):
        calls[overload][structure or invocation] = invocation
    return {overload: seen_pairs(some.values()) for overload, some in calls.items()}


def seen_pairs(invocations: Iterable[str]) -> SeenPairs:
    """Those of the calls of one operator, as the record has them."""
    found = [dict(_conditions(_arguments(text))) for text in invocations]
    # What only some calls have is left out by the others.
    names = sorted({name for conditions in found for name in conditions})
    seen: set[tuple[object, ...]] = set()
    alone: defaultdict[str, set[object]] = defaultdict(set)
    for conditions in found:
        whole = [(name, conditions.get(name)) for name in names]
        for name, value in whole:
            alone[name].add(value)
        seen.update(combinations(whole, 2))
    possible = sum(len(alone[a]) * len(alone[b]) for a, b in combinations(names, 2))
    return SeenPairs(len(seen), possible)


def _arguments(text: str) -> Mapping[str, Any]:
    """Of a call by their names; none of what is no call of an operator, such as a whole model."""
    try:
        given = json.loads(text)["arguments"]
    except (ValueError, LookupError, TypeError):
        return {}
    return given if isinstance(given, dict) else {}


def _conditions(arguments: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """What the arguments of a call are, each by a name that all calls of the operator share."""
    tensors: list[Mapping[str, Any]] = []
    for name, value in arguments.items():
        held = list(_tensors(value))
        if not held:
            yield name, _kind(value)
            continue
        if isinstance(value, list):
            yield f"{name} length", min(len(value), _MANY)
        for place, tensor in enumerate(held[:2]):
            yield from _of_tensor(f"{name} {place}", tensor, tensors[0] if tensors else None)
            tensors.append(tensor)


def _of_tensor(
    name: str, tensor: Mapping[str, Any], first: Mapping[str, Any] | None
) -> Iterator[tuple[str, object]]:
    """Of a tensor; dtype and shape of a later one only as far as they differ from those of the first."""
    shape, strides = tensor.get("shape", []), tensor.get("strides", [])
    yield f"{name} layout", _is_contiguous(shape, strides)
    if first is None:
        yield f"{name} dtype", tensor.get("dtype")
        yield f"{name} rank", min(len(shape), _MANY)
        yield f"{name} size", 0 if 0 in shape else 1 if 1 in shape else 2
    else:
        yield f"{name} dtype", tensor.get("dtype") == first.get("dtype")
        yield f"{name} shape", shape == first.get("shape")


def _tensors(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, dict) and "tensor" in value:
        yield value["tensor"]
    elif isinstance(value, list):
        for element in value:
            yield from _tensors(element)


def _kind(value: Any) -> object:
    """Of an argument that is no tensor: itself where it is one of few, else what sort of number it is."""
    if isinstance(value, list):
        return len(value[:_MANY]), *sorted({str(_kind(element)) for element in value})
    if isinstance(value, int | float) and not isinstance(value, bool) and value not in (0, 1):
        return "negative" if value < 0 else "fraction" if value != int(value) else "larger"
    return json.dumps(value)


def _is_contiguous(shape: list[int], strides: list[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=False):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
