"""Cases that share one export."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self, TypeAlias

from harness.core.invocation import Invocation

#: (group index, case index within the group): names a case within a task.
MemberKey: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class CaseGroup:
    """Cases that share one export, from their draw to their verdicts.

    Attributes:
        exported: The invocation whose shapes are exported.
        cases: Case index → invocation to run. For a static export all have the structure of `exported`; for a dynamic
            one they differ in shapes. A group that has lost cases keeps the indices of the others.
        index: Unique within a task; it names the group's inputs and outputs in an export of many groups.
        is_forbidden: Whether the cases only count if the text of their operator forbids them: it is enough that the
            runtime survives them.
    """

    exported: Invocation
    cases: tuple[tuple[int, Invocation], ...]
    index: int = 0
    is_forbidden: bool = False

    @classmethod
    def of(cls, exported: Invocation, invocations: Iterable[Invocation] | None = None, index: int = 0) -> Self:
        """Return a group of invocations, numbered from 0; without any, `exported` is its only case."""
        return cls(exported, tuple(enumerate((exported,) if invocations is None else invocations)), index)

    @property
    def invocations(self) -> tuple[Invocation, ...]:
        """The invocations to run."""
        return tuple(invocation for _, invocation in self.cases)
