"""Shrink one failure: single reductions many at a time, then Hypothesis over all of them in combination."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, find, settings, strategies as st
from hypothesis.errors import HypothesisWarning, NoSuchExample

from harness.analyse.shrink import paths
from harness.analyse.shrink.domains import Domains, domains_of
from harness.analyse.shrink.evaluate import LETHAL, Test
from harness.analyse.shrink.greedy import shrink_greedily
from harness.analyse.shrink.plainness import elements
from harness.analyse.shrink.reductions import ORIGINAL, reductions
from harness.analyse.shrink.subject import ShrinkSubject
from harness.analyse.shrink.tensor_edits import literal
from harness.core import Invocation
from harness.generate import OPERATOR_CASES, invocations, provider

#: Candidates that Hypothesis may run for one failure, one export each.
_COMBINATIONS = 120
#: The operator case is asked for smaller calls where what is left is larger than this.
_LARGE = 8
#: Calls that it is asked for, those that Hypothesis tries while it shrinks one included.
_DRAWN = 80


def shrink(subject: ShrinkSubject, test: Test, domains: Domains) -> ShrinkSubject:
    """The plainest case that fails in the same way, as far as the budget reaches.

    Args:
        subject: The failure.
        test: Whether another case fails as it does.
        domains: The values that its operator allows.

    Returns:
        At worst `subject`; never one that `test` has not seen fail.
    """
    smallest = shrink_greedily(subject, test, domains)
    if test.target.outcome in LETHAL or subject.exported is not None:
        return smallest
    if elements(smallest.invocation) > _LARGE and not test.spent:
        drawn = _drawn_smaller(smallest, test)
        if drawn is not None:
            its_domains = domains_of(drawn.invocation)
            other = shrink_greedily(drawn, test, its_domains)
            if other.cost < smallest.cost:
                smallest, domains = other, its_domains
    return _combined(smallest, test, domains)


def _combined(subject: ShrinkSubject, test: Test, domains: Domains) -> ShrinkSubject:
    """Reductions that fail only together, by Hypothesis."""
    if test.spent:
        return subject
    written = subject.changed(lambda i: paths.map_tensors(i, literal))
    if written is None or not test.fails(written):
        return subject
    found = _find(
        reductions(written.invocation, domains),
        lambda invocation: ShrinkSubject(invocation).cost <= written.cost,
        test,
        evaluations=_COMBINATIONS,
        backend=ORIGINAL,
    )
    return min([subject, written, *found], key=lambda s: s.cost)


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
    return min(found, key=lambda s: s.cost, default=None)


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

    options: dict[str, Any] = {"backend": backend}
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
                **options,
            ),
            random=random.Random(0),
        )
    return list(failing.values())
