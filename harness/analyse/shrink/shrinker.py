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
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS

from harness.analyse.shrink import paths
from harness.analyse.shrink.domains import Domains, allowed, domains_of, keeps_values
from harness.analyse.shrink.evaluate import ShrinkSubject, Test
from harness.analyse.shrink.paths import Rewrite
from harness.analyse.shrink.plainness import alternatives, elements
from harness.analyse.shrink.sizes import shrunk, ties
from harness.analyse.shrink.steps import (
    everywhere_in,
    plainer_arguments,
    plainer_dtypes,
    plainer_elements,
    plainer_everywhere,
    steps,
    value_steps,
)
from harness.analyse.shrink.tensor_edits import (
    PlainNumber,
    compact,
    contiguous,
    is_plain_layout,
    literal,
    numbers,
    with_numbers,
)
from harness.core import Argument, Invocation, TensorSpec
from harness.generate import OPERATOR_CASES, StableProvider, invocations, provider

#: A Hypothesis backend, for `settings(backend=…)`.
_ORIGINAL = "harness-original"
#: Elements of a tensor that are chosen one by one.
_ELEMENTS = 16
#: Alternatives of one argument: each is a choice that Hypothesis tries to lower.
_ALTERNATIVES = 24
_OMITTED = object()

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

    At worst it is `subject`, and never one that `test` has not seen fail. `domains` are the values that the
    operator allows.
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
        backend=_ORIGINAL,
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


# What Hypothesis chooses from: it shrinks every choice towards the first alternative, so each list of
# alternatives has the plainest first and what the invocation has last.


class OriginalProvider(StableProvider):
    """Chooses the last alternative always, so that Hypothesis begins with the invocation itself."""

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **_: object) -> int:
        """The end of the range."""
        return max_value if max_value is not None else (min_value or 0)


AVAILABLE_PROVIDERS[_ORIGINAL] = f"{__name__}.{OriginalProvider.__name__}"


def reductions(original: Invocation, domains: Domains) -> st.SearchStrategy[Invocation]:
    """Invocations plainer than `original` in any combination of ways, `original` itself among them.

    The values of its tensors must be written out; `domains` are those that its operator allows.
    """

    @st.composite
    def strategy(draw: st.DrawFn) -> Invocation:
        invocation = original
        for name, argument in original.arguments:
            chosen = draw(st.sampled_from(_alternatives(original.overload, name, argument)))
            if chosen is _OMITTED:
                invocation = paths.without_argument(invocation, name)
            else:
                invocation = paths.with_argument(invocation, name, chosen)  # type: ignore[arg-type]
        invocation = _smaller(draw, invocation)
        for dtype in dict.fromkeys(spec.dtype for spec in invocation.tensors()):
            chosen_dtype = draw(st.sampled_from((*plainer_dtypes(dtype), dtype)))
            invocation = everywhere_in(invocation, dtype, chosen_dtype) or invocation
        for path, spec in paths.tensors(invocation).items():
            layouts = () if is_plain_layout(spec) else (contiguous(spec), compact(spec))
            laid = draw(st.sampled_from((*layouts, spec)))
            valued = _plainer_values(draw, laid, domains.get(path[0], ()))
            invocation = paths.with_tensors(invocation, {path: valued})
        return invocation

    return strategy()


def _alternatives(overload: str, name: str, argument: Argument) -> Sequence[object]:
    plainer: list[object] = [_OMITTED] if name in paths.optional(overload) else []
    if type(argument) is int or type(argument) is float:
        # One argument may get less plain where another gets plainer for it.
        plainer += [type(argument)(n) for n in alternatives(name) if n != argument]
    elif not isinstance(argument, TensorSpec):
        plainer += list(plainer_arguments(name, argument))[:_ALTERNATIVES]
    return (*plainer, argument)


def _smaller(draw: st.DrawFn, invocation: Invocation) -> Invocation:
    for tied in ties(invocation):
        path, dim = min(tied, key=str)
        spec = paths.tensors(invocation).get(path)
        if spec is None or dim >= len(spec.shape):
            continue
        size = spec.shape[dim]
        count = draw(st.integers(min(1, size), size))
        first = draw(st.integers(0, size - count))
        if count < size:
            invocation = shrunk(invocation, tied, range(first, first + count)) or invocation
    return invocation


def _plainer_values(draw: st.DrawFn, spec: TensorSpec, rules: Sequence[tuple[str | int | float, ...]]) -> TensorSpec:
    spec = literal(spec)
    before = numbers(spec)
    if keeps_values(rules) or not before:
        return spec
    options = [v for v in plainer_everywhere(spec.dtype, before) if allowed(rules, spec.dtype, v)]
    after: tuple[PlainNumber, ...] = draw(st.sampled_from((*options, before)))
    if after is before and len(before) <= _ELEMENTS:
        after = tuple(
            draw(st.sampled_from((*(v for v in plainer_elements(n) if allowed(rules, spec.dtype, (v,))), n)))
            for n in before
        )
    return with_numbers(spec, after) if allowed(rules, spec.dtype, after) else spec
