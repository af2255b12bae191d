"""The failures of a group that ordinary use of an operator meets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from harness.analyse.coded_rows import CodedRows
from harness.analyse.known_issues import call
from harness.analyse.ordinary_use import ordinary_rows
from harness.analyse.priority import failing_pairs
from harness.analyse.use_weights import Pair
from harness.record import Numbers


@dataclass(frozen=True, kw_only=True)
class OrdinaryFailures:
    """Those of one group.

    Attributes:
        cases: How many there are.
        case_id: The smallest one, as are invocation and message.
        invocation: JSON.
        message: Its failure in its own words.
        pairs: The overloads and dtypes of all of them.
    """

    cases: int
    case_id: str
    invocation: str
    message: str
    pairs: frozenset[Pair] = frozenset()

    @cached_property
    def call(self) -> str:
        """The smallest invocation as a person would write it."""
        return call(self.invocation)


def ordinary_failures(rows: CodedRows, group: Numbers) -> dict[int, OrdinaryFailures]:
    """The ordinary cases among failed rows, by group; without the groups that have none.

    Args:
        rows: With `harness.analyse.ordinary_use.ORDINARY_COLUMNS`, too.
        group: Each row's group, a number from 0.
    """
    places = np.flatnonzero(ordinary_rows(rows.table))
    if not len(places):
        return {}
    groups, dense = np.unique(group[places], return_inverse=True)
    smallest = rows.at(rows.smallest(dense, places), ("case_id", "invocation", "message"))
    pairs = np.unique(np.stack([dense, rows.numbers("case_id")[places]]), axis=1)
    cases = np.bincount(pairs[0])
    of_ordinary = np.full(len(group), -1)
    of_ordinary[places] = group[places]
    named = failing_pairs(rows, of_ordinary)
    return {
        number: OrdinaryFailures(cases=count, pairs=frozenset(named[number]), **row)
        for number, count, row in zip(groups.tolist(), cases.tolist(), smallest, strict=True)
    }
