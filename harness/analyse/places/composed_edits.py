"""Two or three changes at once, where one of them does not repair all.

A change is worth another one if with it some of the failing cases pass, or get further, and no passing case
fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.analyse.places.edit import Edit
from harness.analyse.places.edit_trial import TriedEdit

#: Changes that others are added to.
_SEEDS = 6
#: Changes at once.
_MOST = 3


class Seeds:
    """The changes that do something for the failing cases, and harm no passing one."""

    def __init__(self) -> None:
        self._tried: list[TriedEdit] = []

    def add(self, tried: TriedEdit) -> None:
        """Take a change into account."""
        if not tried.breaks and (tried.passed or tried.further or tried.changed):
            self._tried.append(tried)

    def partial(self) -> list[Edit]:
        """Those with which some cases pass: of each number of cases the first that was tried."""
        best: dict[frozenset[int], Edit] = {}
        for tried in sorted(self._tried, key=lambda one: (-len(one.passed), len(one.edit.changes))):
            if tried.passed:
                best.setdefault(tried.passed, tried.edit)
        return list(best.values())

    def composed(self, others: Sequence[Edit]) -> Iterator[Edit]:
        """Pairs of a change that does something and another one, those of two that do something first; then
        what is added to the pairs that do more than both.

        Args:
            others: Changes that were tried alone.
        """
        singles = [one.edit for one in sorted(self._tried, key=_worth)]
        every = list({id(edit): edit for edit in (*singles, *others)}.values())
        for parts in range(1, _MOST):
            chosen = _best([one for one in self._tried if one.edit.parts == parts])
            for other in every:
                for seed in chosen:
                    if _goes_with(seed.edit, other):
                        yield seed.edit.and_then(other)


def _best(tried: Sequence[TriedEdit]) -> list[TriedEdit]:
    """The likeliest to repair all with one more; of those that do the same for the same cases only two."""
    chosen: list[TriedEdit] = []
    for one in sorted(tried, key=_worth):
        alike = [c for c in chosen if (c.passed, c.further) == (one.passed, one.further)]
        if len(alike) < 2 and len(chosen) < _SEEDS:
            chosen.append(one)
    return chosen


def _worth(one: TriedEdit) -> tuple[int, int]:
    return -len(one.passed), -len(one.further)


def _goes_with(edit: Edit, other: Edit) -> bool:
    """Whether both can be done to one function."""
    here, there = edit.statement, other.statement
    same = (here.file, here.function) == (there.file, there.function)
    return same and edit is not other and not (edit.begin and other.begin)
