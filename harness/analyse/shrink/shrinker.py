"""Shrink one failure: single reductions many at a time, then Hypothesis over all of them in combination."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TypeAlias

from hypothesis import HealthCheck, Phase, Verbosity, find, settings, strategies as st
from hypothesis.errors import HypothesisWarning, NoSuchExample

from harness.analyse.shrink import paths
from harness.analyse.shrink.domains import Domains, domains_of
from harness.analyse.shrink.evaluate import ShrinkSubject, Test
from harness.analyse.shrink.paths import Rewrite
from harness.analyse.shrink.plainness import elements
from harness.analyse.shrink.reductions import ORIGINAL, reductions
from harness.analyse.shrink.steps import steps, value_steps
from harness.analyse.shrink.tensor_edits import literal
from harness.core import Invocation
from harness.generate import OPERATOR_CASES, invocations, provider

#: Steps that are tried at once: exports dear, values of one export cheap.
_STRUCTURES = 24
_VALUES = 256
#: Of the candidates that fail, how many are asked whose defect they are.
_CONFIRMED = 3
#: Candidates that Hypothesis may run for one failure, one export each.
_COMBINATIONS = 120
#: The operator case is asked for smaller calls where what is left is larger than this.
_LARGE = 8
#: Calls that it is asked for, those that Hypothesis tries while it shrinks one included.
_DRAWN = 80

_cost = attrgetter("cost")


def shrink(subject: ShrinkSubject, test: Test, domains: Domains) -> ShrinkSubject:
    """The plainest case that fails in the same way, as far as the budget reaches.

    Args:
        subject: The failure.
        test: Whether another case fails as it does.
        domains: The values that its operator allows.

    Returns:
        At worst `subject`; never one that `test` has not seen fail.
    """
    smallest = _shrink_greedily(subject, test, domains)
    if test.lethal or subject.exported is not None:
        return smallest
    if elements(smallest.invocation) > _LARGE and not test.spent:
        drawn = _drawn_smaller(smallest, test)
        if drawn is not None:
            its_domains = domains_of(drawn.invocation)
            other = _shrink_greedily(drawn, test, its_domains)
            if other.cost < smallest.cost:
                smallest, domains = other, its_domains
    return _combined(smallest, test, domains)


#: Makes what a step makes of a subject, None where it does not apply to it.
_Apply: TypeAlias = Callable[[ShrinkSubject, Rewrite], ShrinkSubject | None]


def _shrink_greedily(subject: ShrinkSubject, test: Test, domains: Domains) -> ShrinkSubject:
    """Something plainer that fails in the same way, such that no single step of it does.

    Or all that the budget allowed.
    """
    progress = True
    while progress and not test.spent:
        progress = False
        seen: set[tuple[str, str]] = set()
        for apply, most, proposed in (
            (ShrinkSubject.changed, _STRUCTURES, steps(subject.invocation)),
            (ShrinkSubject.with_values, _VALUES, value_steps(subject.invocation, domains)),
        ):
            while chunk := list(islice(proposed, 1 if test.lethal else most)):
                smaller = _best(subject, apply, chunk, test, seen)
                if smaller is not None:
                    subject, progress = smaller, True
                    test.way.append(subject)
                if test.spent:
                    return subject
    return subject


def _best(
    subject: ShrinkSubject, apply: _Apply, chunk: Sequence[Rewrite], test: Test, seen: set[tuple[str, str]]
) -> ShrinkSubject | None:
    """The plainest failing candidate, of single steps or of those that succeed taken together."""
    taken: dict[tuple[str, str], tuple[Rewrite, ShrinkSubject]] = {}
    for step in chunk:
        candidate = apply(subject, step)
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
        more = apply(combined[-1], step)
        if more is not None and more.cost < combined[-1].cost:
            combined.append(more)
    found = {s.key: s for s in (*test.failing(combined[1:]), *(s for _, s in good))}
    plainest = sorted(found.values(), key=_cost)[:_CONFIRMED]
    return next(filter(test.confirmed, plainest), None)


def _combined(subject: ShrinkSubject, test: Test, domains: Domains) -> ShrinkSubject:
    """Reductions that fail only together, by Hypothesis."""
    if test.spent:
        return subject
    written = subject.changed(partial(paths.map_tensors, change=literal))
    if written is None or not test.fails(written):
        return subject
    found = _find(
        reductions(written.invocation, domains),
        lambda invocation: ShrinkSubject(invocation).cost <= written.cost,
        test,
        evaluations=_COMBINATIONS,
        backend=ORIGINAL,
    )
    return min([subject, written, *found], key=_cost)


def _drawn_smaller(subject: ShrinkSubject, test: Test) -> ShrinkSubject | None:
    """A smaller failure among the operator case's own calls, which fit together by construction."""
    case = OPERATOR_CASES.get(subject.invocation.overload)
    if case is None or subject.invocation.dtype not in case.dtypes:
        return None
    size = elements(subject.invocation)
    found = _find(
        invocations(case, subject.invocation.dtype),
        lambda invocation: 0 < elements(invocation) < size,
        test,
        evaluations=_DRAWN,
        backend="hypothesis",
    )
    return min(found, key=_cost, default=None)


def _find(
    strategy: st.SearchStrategy[Invocation],
    wanted: Callable[[Invocation], bool],
    test: Test,
    *,
    evaluations: int,
    backend: str,
) -> list[ShrinkSubject]:
    """All that Hypothesis found failing on its way to the smallest that `strategy` can draw."""
    failing: dict[tuple[str, str], ShrinkSubject] = {}
    passing: set[tuple[str, str]] = set()
    most = test.evaluator.evaluations + evaluations

    def fails(invocation: Invocation) -> bool:
        subject = ShrinkSubject(invocation)
        if subject.key in failing:
            return True
        # What is refused for want of budget is refused for good: Hypothesis wants one answer to one question.
        refused = subject.key in passing or test.spent or test.evaluator.evaluations >= most
        if refused or not wanted(invocation) or not test.fails(subject):
            passing.add(subject.key)
            return False
        failing[subject.key] = subject
        return True

    with contextlib.suppress(NoSuchExample), warnings.catch_warnings(), provider.stream("shrink"):
        warnings.simplefilter("ignore", HypothesisWarning)
        find(
            strategy,
            fails,
            settings=settings(
                max_examples=evaluations,
                phases=[Phase.generate, Phase.shrink],
                database=None,
                deadline=None,
                verbosity=Verbosity.quiet,
                suppress_health_check=list(HealthCheck),
                backend=backend,
            ),
            random=random.Random(0),
        )
    return list(failing.values())
