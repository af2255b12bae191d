"""The protocol of sources: a request for invocations of one operator, and groups of cases as the answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation

#: The name of the source of nodes that the texts of their operators forbid.
FORBIDDEN = "forbidden"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to a source.

    Attributes:
        overload: Dotted name.
        dynamic: Whether the exports are to have dynamic dimensions.
        seed: Seed of all draws.
        examples: Approximate number of cases wanted.
        values: Value draws per exported structure, the first included, if the source draws; None for the usual
            number.
        dtypes: The only dtypes allowed; None for all.
        resize: Maximum number of other valid sizes for each invocation, found by asking PyTorch.
    """

    overload: str
    dynamic: bool
    seed: int
    examples: int
    values: int | None
    dtypes: tuple[str, ...] | None
    resize: Callable[[Sequence[Invocation], int], list[tuple[Invocation, ...]]]


@dataclass(frozen=True)
class Notice:
    """Something that a person should hear of, once, at the end of the run.

    Attributes:
        kind: ``uncovered`` (an operator without a case), or another, whose text is printed as it is.
        text: A line, or the name of one thing of many.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class SourceFinding:
    """A source's answer."""

    groups: tuple[CaseGroup, ...] = ()
    notices: tuple[Notice, ...] = ()


class Source(Protocol):
    """A source of invocations: a plain value, which finds the same ones in every process."""

    @property
    def name(self) -> str:
        """Return the source's name in the record."""

    def overloads(self) -> Collection[str]:
        """Return the operators that it may have invocations of."""

    def find(self, request: Request) -> SourceFinding:
        """Return the invocations of one operator; empty for an unknown operator.

        Raises:
            harness.record.layout.ResultsError: a file cannot be read.
        """


def grouped(pairs: Sequence[tuple[Invocation, Invocation | None]]) -> tuple[CaseGroup, ...]:
    """Group invocations by their exported invocation, in the order of the first of each.

    Args:
        pairs: An invocation, and the invocation to export for it; None for the invocation itself, whose export
            serves all that have its structure.
    """
    together: dict[str, list[tuple[Invocation, Invocation | None]]] = {}
    for invocation, exported in pairs:
        key = invocation.structure_id if exported is None else exported.case_id
        together.setdefault(key, []).append((invocation, exported))
    return tuple(
        CaseGroup.of(members[0][1] or members[0][0], [invocation for invocation, _ in members])
        for members in together.values()
    )


#: Sizes that a dynamic export is run with in addition to its own: larger, 1, 0, two alike, two unlike.
SIZES_PER_EXPORT = 5


def resized(request: Request, bases: Sequence[Invocation]) -> tuple[CaseGroup, ...]:
    """Return dynamic exports of `bases`, each with at most `SIZES_PER_EXPORT` other sizes.

    A case whose sizes cannot change has nothing dynamic to test and is left out.
    """
    variants = request.resize(bases, SIZES_PER_EXPORT)
    return tuple(CaseGroup.of(base, (base, *found)) for base, found in zip(bases, variants, strict=True) if found)
