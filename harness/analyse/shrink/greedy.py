"""Take every single reduction that still fails, many at a time, until none does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.analyse.shrink.domains import Domains
from harness.analyse.shrink.evaluate import LETHAL, Test
from harness.analyse.shrink.plainness import Cost
from harness.analyse.shrink.steps import ReductionStep, steps
from harness.analyse.shrink.subject import ShrinkSubject

#: Steps that are tried at once: exports dear, values of one export cheap.
_STRUCTURES = 24
_VALUES = 256
#: Of the candidates that fail, how many are asked whose defect they are.
_CONFIRMED = 3


def shrink_greedily(subject: ShrinkSubject, test: Test, domains: Domains) -> ShrinkSubject:
    """Something plainer that fails in the same way, such that no single step fails; or all that the budget
    allowed.

    Args:
        subject: Fails.
        test: Whether another does.
        domains: The values that the operator allows.
    """
    progress = True
    while progress and not test.spent:
        progress = False
        seen: set[tuple[str, str]] = set()
        for chunk in _chunks(steps(subject.invocation, domains), alone=test.target.outcome in LETHAL):
            smaller = _best(subject, chunk, test, seen)
            if smaller is not None:
                subject, progress = smaller, True
                test.way.append(subject)
            if test.spent:
                break
    return subject


def _chunks(proposed: Iterator[ReductionStep], *, alone: bool) -> Iterator[list[ReductionStep]]:
    chunk: list[ReductionStep] = []
    for step in proposed:
        if chunk and step.values_only != chunk[0].values_only:
            yield chunk
            chunk = []
        chunk.append(step)
        if alone or len(chunk) == (_VALUES if step.values_only else _STRUCTURES):
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _best(
    subject: ShrinkSubject, chunk: Sequence[ReductionStep], test: Test, seen: set[tuple[str, str]]
) -> ShrinkSubject | None:
    """The plainest failing candidate, of single steps or of those that succeed taken together."""
    taken: dict[tuple[str, str], tuple[ReductionStep, ShrinkSubject]] = {}
    for step in chunk:
        candidate = apply(step, subject)
        if candidate is not None and candidate.key not in seen and candidate.cost < subject.cost:
            taken.setdefault(candidate.key, (step, candidate))
    seen.update(taken)
    failing = {s.key for s in test.failing([candidate for _, candidate in taken.values()])}
    good = sorted((pair for key, pair in taken.items() if key in failing), key=lambda pair: pair[1].cost)
    if not good:
        return None
    # Steps mostly do not hinder each other: each prefix of their combination is tried at once.
    combined = [good[0][1]]
    for step, _ in good[1:]:
        more = apply(step, combined[-1])
        if more is not None and more.cost < combined[-1].cost:
            combined.append(more)
    found = sorted(
        {s.key: s for s in (*test.failing(combined[1:]), *(s for _, s in good))}.values(), key=_cost
    )
    return next((s for s in found[:_CONFIRMED] if test.confirmed(s)), None)


def _cost(subject: ShrinkSubject) -> tuple[Cost, Cost]:
    return subject.cost


def apply(step: ReductionStep, subject: ShrinkSubject) -> ShrinkSubject | None:
    """What `step` makes of `subject`, None where it does not apply to it."""
    return subject.with_values(step.change) if step.values_only else subject.changed(step.change)
