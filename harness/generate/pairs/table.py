"""Conditions that each call of an operator has, and the pairs of conditions that follow."""

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
    make_pair,
    presence,
    tensor_conditions,
    window_conditions,
)

Counts: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PairTable:
    """Calls of one operator and their conditions.

    Attributes:
        conditions: All that some call has.
        has: Call × condition.
    """

    conditions: tuple[Condition, ...]
    has: Mask

    @cached_property
    def pairs(self) -> Mask:
        """Condition × condition: which two make a pair, each pair once."""
        # A condition of all calls tells nothing in a pair; nor does the spelling of all calls that give an argument.
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
        # Conditions on different arguments always make a pair.
        for i, j in np.argwhere(np.triu(made & (subjects[:, None] == subjects[None, :]), 1)).tolist():
            made[i, j] = make_pair(self.conditions[i], self.conditions[j])
        return np.asarray(np.triu(made, 1), bool)

    def counts(self, calls: Sequence[int] | Mask | None = None) -> Counts:
        """Condition × condition: how many of these calls have both; all calls by default."""
        has = (self.has if calls is None else self.has[calls]).astype(np.float64)
        return np.triu((has.T @ has).astype(np.int64), 1)


def pair_table(calls: Iterable[Invocation]) -> PairTable:
    """Return the conditions of calls of one operator, without making a call."""
    calls = list(calls)
    names = sorted({name for call in calls for name, _ in call.arguments})
    places: dict[Condition, int] = {}
    rows: list[list[int]] = []
    for call in calls:
        given = {name for name, _ in call.arguments}
        omitted = [presence(name, "omitted") for name in names if name not in given]
        rows.append([places.setdefault(c, len(places)) for c in (*structure_conditions(call), *omitted)])
    has = np.zeros((len(rows), len(places)), bool)
    for number, row in enumerate(rows):
        has[number, row] = True
    return PairTable(tuple(places), has)


def structure_conditions(call: Invocation) -> list[Condition]:
    """Return the conditions of a call, omitted arguments left out."""
    found = [*tensor_conditions(call.arguments), *argument_conditions(call), *window_conditions(call)]
    if next(call.tensors(), None) is None:
        found.append(dtype_condition(call.dtype))
    return found
