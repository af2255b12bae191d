"""Of which run each operator's page shows the evidence, and which runs have pages of their own beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.present.dashboard.coded import CodedRun

#: Rows of pages of their own, for each row of the run that is shown first; with more the site becomes large.
_BESIDE = 0.5
#: Odd numbers with which keys and states are mixed.
_KEY, _STATE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class EvidenceChoice:
    """The runs of the evidence, by the numbers of operators.

    Attributes:
        of: Operator → the run whose evidence stands for all runs in which its cases ended in the same way. It
            is the one that is shown first, or the newest that has it.
        own: Run → operators whose cases ended otherwise in it, with pages of their own.
        unlike: Run → such operators without, since there would be too many.
    """

    of: dict[int, int]
    own: dict[int, list[int]]
    unlike: dict[int, list[int]]

    @property
    def runs(self) -> set[int]:
        """Those of which some page shows the evidence."""
        return {*self.of.values(), *(run for run, operators in self.own.items() if operators)}


def choose_evidence(coded: Sequence[CodedRun], shown: int) -> EvidenceChoice:
    """Choose for all runs, oldest first; `shown` is the one that is shown first."""
    ways = [_ways(run) for run in coded]
    of: dict[int, int] = {}
    for number in [*range(len(coded)), *([shown] if shown >= 0 else [])]:
        of.update(dict.fromkeys(ways[number], number))
    own: dict[int, list[int]] = {}
    unlike: dict[int, list[int]] = {}
    room = len(coded[shown]) * _BESIDE if coded else 0
    for number in reversed(range(len(coded))):
        theirs = [operator for operator, way in ways[number].items() if way != ways[of[operator]][operator]]
        rows = int(np.isin(coded[number].operator, theirs).sum())
        fits = rows <= room
        room -= rows if fits else 0
        own[number], unlike[number] = (theirs, []) if fits else ([], theirs)
    return EvidenceChoice(of, own, unlike)


def _ways(run: CodedRun) -> dict[int, int]:
    """Operator → a number that is the same for runs in which the same cases of it ended in the same way."""
    with np.errstate(over="ignore"):
        key, state = run.key.astype(np.uint64), run.state.astype(np.uint64) + np.uint64(1)
        mixed: npt.NDArray[np.uint64] = (key * _KEY) ^ (state * _STATE)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * _STATE
        order = np.argsort(run.operator, kind="stable")
        operators, firsts = np.unique(run.operator[order], return_index=True)
        sums = np.add.reduceat(mixed[order], firsts) if len(order) else mixed
    return dict(zip(operators.tolist(), sums.tolist(), strict=True))
