"""Which conditions each of some calls of one operator has, and so which pairs of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from harness.core.invocation import Invocation
from harness.generate.pairs.conditions import (
    Condition,
    ConditionKind,
    argument_conditions,
    dtype_condition,
    facing,
    make_pair,
    presence,
    tensor_conditions,
    value_conditions,
    window_conditions,
)

Counts: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
_Places: TypeAlias = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]


@dataclass(frozen=True, eq=False)
class PairTable:
    """Calls of one operator and their conditions.

    Attributes:
        conditions: All that some call has, those of values last.
        has: Call × condition.
        facing: Per call, what faces what in the tensors that are broadcast together.
    """

    conditions: tuple[Condition, ...]
    has: Mask
    facing: tuple[tuple[_Faced, ...], ...]

    @cached_property
    def pairs(self) -> Mask:
        """Condition × condition: which two make a pair, each pair once."""
        # What all calls have says nothing together with anything, nor how all that give an argument spell it.
        always = [bool(column.all()) for column in self.has.T]
        of_kinds = Counter(condition.about for condition in self.conditions)
        telling = [
            place
            for place, condition in enumerate(self.conditions)
            if not always[place]
            and (
                of_kinds[condition.about] > 1 or condition.kind not in (ConditionKind.SPELLING, ConditionKind.EXACTNESS)
            )
        ]
        about, subjects = (
            np.array([names.index(getattr(c, name)) for c in self.conditions])
            for name in ("about", "subject")
            for names in [list(dict.fromkeys(getattr(c, name) for c in self.conditions))]
        )
        made = np.zeros((len(self.conditions),) * 2, bool)
        made[np.ix_(telling, telling)] = True
        made &= about[:, None] != about[None, :]
        # What is about different arguments makes a pair always.
        for i, j in np.argwhere(np.triu(made & (subjects[:, None] == subjects[None, :]), 1)).tolist():
            made[i, j] = make_pair(self.conditions[i], self.conditions[j])
        return np.asarray(np.triu(made, 1), bool)

    @cached_property
    def with_values(self) -> Mask:
        """Condition × condition: which pairs depend on the values of tensors."""
        of_values = np.array([c.is_of_values for c in self.conditions], bool)
        return np.asarray(np.logical_or.outer(of_values, of_values), bool)

    def counts(self, calls: Sequence[int] | Mask | None = None) -> Counts:
        """Condition × condition: how many of these calls have both; all calls by default.

        Two classes of elements count together where they face each other, if their tensors are broadcast.
        """
        rows = np.arange(len(self.has)) if calls is None else np.atleast_1d(np.arange(len(self.has))[calls])
        has = self.has[rows].astype(np.float64)
        found = (has.T @ has).astype(np.int64)
        for row in rows.tolist():
            for one in self.facing[row]:
                found[one.held] -= 1
                found[one.met] += 1
        return np.triu(found, 1)


@dataclass(frozen=True, eq=False)
class _Faced:
    """Of two tensors of a call: all pairs of the classes that they hold, and those that face each other."""

    held: _Places
    met: _Places


def pair_table(
    structures: Iterable[Sequence[Invocation]], *, values: bool = True, known: Sequence[Condition] = ()
) -> PairTable:
    """The conditions of calls, those of a structure together; no call is made.

    Args:
        structures: Calls that differ in the values of their tensors only.
        values: Whether to look at these values.
        known: Conditions that come first, in this order, so that counts of several tables can be added.
    """
    groups = [list(group) for group in structures if group]
    of_group = [structure_conditions(group[0]) for group in groups]
    names = sorted(
        {name for group in groups for name, _ in group[0].arguments}
        | {condition.subject for condition in known if condition.kind is ConditionKind.PRESENCE}
    )
    places: dict[Condition, int] = {condition: place for place, condition in enumerate(known)}
    rows: list[list[int]] = []
    # Those of the structure first: with them a table without values begins alike.
    for group, found in zip(groups, of_group, strict=True):
        given = {name for name, _ in group[0].arguments}
        found += [presence(name, "omitted") for name in names if name not in given]
        row = [places.setdefault(condition, len(places)) for condition in found]
        rows += [row] * len(group)
    calls = [call for group in groups for call in group]
    if values:
        rows = [
            row + [places.setdefault(c, len(places)) for c in value_conditions(call.arguments)]
            for row, call in zip(rows, calls, strict=True)
        ]
    has = np.zeros((len(rows), len(places)), bool)
    for number, row in enumerate(rows):
        has[number, row] = True
    by_name = {condition.name: place for condition, place in places.items() if condition.is_of_values}
    faced = tuple(_faced(call, by_name) for call in calls) if values else ((),) * len(calls)
    return PairTable(tuple(places), has, faced)


def structure_conditions(call: Invocation) -> list[Condition]:
    """The conditions of a call that do not depend on the values of its tensors, omitted arguments left out."""
    found = [*tensor_conditions(call.arguments), *argument_conditions(call), *window_conditions(call)]
    if next(call.tensors(), None) is None:
        found.append(dtype_condition(call.dtype))
    return found


def _faced(call: Invocation, places: dict[str, int]) -> tuple[_Faced, ...]:
    found = []
    for one in facing(call.arguments):
        block = _upper((places[a], places[b]) for a in one.left for b in one.right)
        found.append(_Faced(block, _upper((places[a], places[b]) for a, b in one.pairs)))
    return tuple(found)


def _upper(pairs: Iterable[tuple[int, int]]) -> _Places:
    """The places of pairs above the diagonal."""
    found = np.array([sorted(pair) for pair in pairs], np.intp).reshape(-1, 2)
    return found[:, 0], found[:, 1]
