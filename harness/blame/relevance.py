"""Whether what a witness may still say could change the blame. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import combinations

from harness.blame.decide import decide, telling_findings
from harness.blame.testimony import Charge, Finding, Role, Testimony
from harness.compare import Outcome, Stage

#: What is testified, without words.
_Heard = frozenset[tuple[Role, Finding, bool]]
#: Of what other witnesses may say besides, so many things at once; no row asks for more.
_AT_ONCE = 2


def may_change(outcome: Outcome, heard: Sequence[Testimony], role: Role, others: Iterable[Role]) -> bool:
    """Whether a testimony of a witness in `role` may make another blame of `heard`, or of that and what
    witnesses in `others` may say."""
    known = frozenset((t.role, t.finding, t.independent) for t in heard)
    return _may_change(outcome, known, role, frozenset(others) - {role})


@cache
def _may_change(outcome: Outcome, known: _Heard, role: Role, others: frozenset[Role]) -> bool:
    besides = [(other, finding, True) for other in others for finding in telling_findings(outcome, other)]
    findings = telling_findings(outcome, role)
    return any(
        _blame(outcome, known | {*some, (role, finding, True)}) != _blame(outcome, known | {*some})
        for count in range(_AT_ONCE + 1)
        for some in combinations(besides, count)
        for finding in findings
    )


@cache
def _blame(outcome: Outcome, known: _Heard) -> str:
    stage = Stage.COMPARE if outcome is Outcome.MISMATCH else Stage.RUN
    said = [Testimony(role, finding, independent=independent) for role, finding, independent in known]
    return decide(Charge(stage, outcome, "", ""), said).blame
