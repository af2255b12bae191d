"""Shrink one failure to the smallest invocation that fails in the same way.

Single reductions are tried many at a time, then Hypothesis tries all of them in combination. Candidates run in a
worker process, many per export.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TypeAlias

from hypothesis import HealthCheck, Phase, Verbosity, find, settings, strategies as st
from hypothesis.errors import HypothesisWarning, NoSuchExample
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.dtypes import PRECISION
from harness.core.invocation import Argument, Invocation, TensorSpec
from harness.core.program import is_program
from harness.generate import provider
from harness.generate.draws import invocations
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.provider import StableProvider
from harness.generate.sources.recorded import FromRecord, Replayed
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import Unit, run_unit
from harness.reproduce.edits import (
    Domains,
    PlainNumber,
    Rewrite,
    allowed,
    compact,
    contiguous,
    domains_of,
    is_plain_layout,
    keeps_values,
    literal,
    map_tensors,
    numbers,
    omit_argument,
    optional_arguments,
    replace_argument,
    replace_numbers,
    replace_tensors,
    tensors_of,
)
from harness.reproduce.plainness import Cost, alternatives, cost, elements
from harness.reproduce.program_shrink import plainer_programs
from harness.reproduce.reductions import (
    all_reductions,
    everywhere_in,
    plainer_arguments,
    plainer_dtypes,
    plainer_elements,
    plainer_everywhere,
    shrunk,
    ties,
    value_steps,
)

#: Most candidates that are evaluated together.
_TOGETHER = 96
#: Blame that proves nothing.
_OPEN = frozenset({"", "unknown"})


def cost_of(case: Replayed) -> tuple[Cost, Cost]:
    """Return the cost of a case for its reader, the less the plainer; the exported invocation counts last."""
    return cost(case.invocation), () if case.exported is None else cost(case.exported)


def _manner(verdict: Verdict) -> tuple[Stage, Outcome, str]:
    return verdict.stage, verdict.outcome, verdict.signature


def _is_gross(verdict: Verdict) -> bool | None:
    """Whether more than half of the significant bits are wrong in the worst element.

    None if no error was measured: other shapes, NaN against numbers, integers.
    """
    ulp, precision = verdict.max_ulp_error, PRECISION.get(verdict.dtype)
    if verdict.outcome is not Outcome.MISMATCH or not ulp or precision is None or math.isnan(ulp):
        return None
    return bool(ulp > 2.0 ** (precision / 2))


class Budget:
    """The limits for shrinking one failure: `seconds` from now on, and a number of candidates to run."""

    def __init__(self, seconds: float, evaluations: int = 100_000) -> None:
        self._end = time.monotonic() + seconds
        self.evaluations_left = evaluations

    @property
    def seconds_left(self) -> float:
        """Return the seconds left; the result may be negative."""
        return self._end - time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether nothing more may be run."""
        return self.evaluations_left <= 0 or self.seconds_left <= 0

    def set_aside(self, part: float) -> float:
        """Keep a part of the seconds that are left for later; how many those are."""
        seconds = max(0.0, self.seconds_left) * part
        self._end -= seconds
        return seconds

    def give_back(self, seconds: float) -> None:
        """Return reserved seconds to the budget."""
        self._end += seconds


class Evaluator:
    """Runs candidates in one place and remembers the verdict on each.

    Args:
        place: Operator, converter, backend and settings with which they are run.
        supervisor: Keeps the worker process.
        budget: When it is spent, nothing more is run.
    """

    def __init__(self, place: Unit, supervisor: Supervisor, budget: Budget) -> None:
        self.budget = budget
        self.evaluations = 0
        self._place = place
        self._supervisor = supervisor
        self._known: dict[tuple[str, str], Verdict] = {}
        self._blamed: dict[tuple[str, str], Verdict] = {}
        #: Recent seconds per candidate, to fit a batch into the rest of the budget.
        self._pace = 0.05

    def verdicts(self, subjects: Iterable[Replayed], *, together: bool = True) -> list[Verdict | None]:
        """Return the verdict on each of `subjects`; None for those that the budget does not reach.

        Args:
            subjects: Candidates.
            together: Whether several may share a worker's task; apart, one that kills the worker costs no
                search for the guilty.
        """
        wanted = list(subjects)
        new = list({s.key: s for s in wanted if s.key not in self._known}.values())
        while new and not self.budget.spent:
            # At most two seconds, so that a spent budget is noticed.
            fitting = int(min(self.budget.seconds_left, 2.0) / self._pace)
            count = max(1, min(fitting, _TOGETHER, self.budget.evaluations_left)) if together else 1
            started = time.monotonic()
            self._known.update(self._evaluated(new[:count], blame=False))
            self._pace = max(0.001, 0.5 * self._pace + 0.5 * (time.monotonic() - started) / len(new[:count]))
            new = new[count:]
        return [self._known.get(subject.key) for subject in wanted]

    def blamed(self, subject: Replayed) -> Verdict | None:
        """Return the verdict on `subject` with its blame; None if the budget does not reach it."""
        if subject.key not in self._blamed and not self.budget.spent:
            self._blamed.update(self._evaluated([subject], blame=True))
        return self._blamed.get(subject.key)

    def _evaluated(self, subjects: Sequence[Replayed], *, blame: bool) -> dict[tuple[str, str], Verdict]:
        settings = replace(self._place.settings, blame=blame)
        unit = replace(self._place, sources=(FromRecord(tuple(subjects)),), settings=settings)
        self.evaluations += len(subjects)
        self.budget.evaluations_left -= len(subjects)
        return {
            (verdict.invocation, verdict.exported_invocation): verdict
            for verdicts in run_unit(unit, self._supervisor)
            for verdict in verdicts
        }


class Test:
    """Whether candidates fail as the original does.

    Args:
        evaluator: Runs the candidates.
        original: The original's verdict.
        careful: Whether `confirmed` compares the blame of a candidate, too.

    Attributes:
        lethal: Whether each failing candidate costs a worker process.
        way: Member reductions, in order.
    """

    __test__ = False  # Not for pytest.

    def __init__(self, evaluator: Evaluator, original: Verdict, *, careful: bool = False) -> None:
        self.evaluator = evaluator
        self.original = original
        self.lethal = original.outcome in (Outcome.CRASH, Outcome.TIMEOUT)
        self.careful = careful
        self.way: list[Replayed] = []

    @property
    def spent(self) -> bool:
        """Whether nothing more may be run."""
        return self.evaluator.budget.spent

    def failing(self, subjects: Sequence[Replayed]) -> list[Replayed]:
        """Return the candidates that fail as the original does, whatever their blame.

        Values that are wrong by rounding and values that are wrong altogether are different failures although
        both are called wrong.
        """
        return self._where(
            subjects,
            lambda verdict: (
                _manner(verdict) == _manner(self.original)
                and len({_is_gross(verdict), _is_gross(self.original)} - {None}) < 2
            ),
        )

    def passing(self, subjects: Sequence[Replayed]) -> set[tuple[str, str]]:
        """Return the keys of the candidates that pass."""
        return {s.key for s in self._where(subjects, lambda verdict: verdict.outcome is Outcome.PASS)}

    def _where(self, subjects: Sequence[Replayed], wanted: Callable[[Verdict], bool]) -> list[Replayed]:
        found = self.evaluator.verdicts(subjects, together=not self.lethal)
        return [s for s, v in zip(subjects, found, strict=True) if v is not None and wanted(v)]

    def fails(self, subject: Replayed) -> bool:
        """Whether this one does, and is confirmed."""
        return bool(self.failing([subject])) and self.confirmed(subject)

    def confirmed(self, subject: Replayed) -> bool:
        """Whether to continue from a failing candidate: always, unless blame is asked for at each step."""
        return not self.careful or self.is_blamed_alike(subject)

    def is_blamed_alike(self, subject: Replayed) -> bool:
        """Whether the witnesses blame whom they blamed for the original, where both say whom.

        Not where the budget is spent.
        """
        verdict = self.evaluator.blamed(subject)
        if verdict is None:
            return False
        blamed = {verdict.blame, self.original.blame}
        return len(blamed) == 1 or bool(blamed & _OPEN)


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
#: Number of failing candidates whose blame is compared.
_CONFIRMED = 3
#: Candidates that Hypothesis may run for one failure, one export each.
_COMBINATIONS = 120
#: If the rest is larger than this, the operator case is asked for smaller calls.
_LARGE = 8
#: Calls that it is asked for, those that Hypothesis tries while it shrinks one included.
_DRAWN = 80


def shrink(subject: Replayed, test: Test, domains: Domains) -> Replayed:
    """Return the plainest case that fails in the same way, as far as the budget reaches.

    At worst it is `subject`, and never one that `test` has not seen fail. `domains` are the values that the
    operator allows.
    """
    if is_program(subject.invocation):
        return _shrink_program(subject, test)
    smallest = _shrink_greedily(subject, test, domains)
    if test.lethal or subject.exported is not None:
        return smallest
    if elements(smallest.invocation) > _LARGE and not test.spent:
        drawn = _drawn_smaller(smallest, test)
        if drawn is not None:
            its_domains = domains_of(drawn.invocation)
            other = _shrink_greedily(drawn, test, its_domains)
            if cost_of(other) < cost_of(smallest):
                smallest, domains = other, its_domains
    return _combined(smallest, test, domains)


def _shrink_program(subject: Replayed, test: Test) -> Replayed:
    """Return the fewest calls that fail in the same way, with the same blame."""
    while not test.spent:
        tried = (Replayed(plainer) for plainer in plainer_programs(subject.invocation))
        smaller = None
        while smaller is None and not test.spent and (chunk := list(islice(tried, 1 if test.lethal else _STRUCTURES))):
            smaller = next((found for found in test.failing(chunk) if test.is_blamed_alike(found)), None)
        if smaller is None:
            return subject
        subject = smaller
        test.way.append(subject)
    return subject


#: Applies a reduction to a subject; returns None if it does not apply to it.
_Apply: TypeAlias = Callable[[Replayed, Rewrite], Replayed | None]


def _shrink_greedily(subject: Replayed, test: Test, domains: Domains) -> Replayed:
    """Something plainer that fails in the same way, such that no single step of it does.

    Or all that the budget allowed.
    """
    progress = True
    while progress and not test.spent:
        progress = False
        seen: set[tuple[str, str]] = set()
        for apply, most, proposed in (
            (Replayed.changed, _STRUCTURES, all_reductions(subject.invocation)),
            (Replayed.change_run_invocation, _VALUES, value_steps(subject.invocation, domains)),
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
    subject: Replayed, apply: _Apply, chunk: Sequence[Rewrite], test: Test, seen: set[tuple[str, str]]
) -> Replayed | None:
    """Return the plainest failing candidate, of single steps or of those that succeed taken together."""
    taken: dict[tuple[str, str], tuple[Rewrite, Replayed]] = {}
    before = cost_of(subject)
    for step in chunk:
        candidate = apply(subject, step)
        if candidate is not None and candidate.key not in seen and cost_of(candidate) < before:
            taken.setdefault(candidate.key, (step, candidate))
    seen.update(taken)
    failing = {s.key for s in test.failing([candidate for _, candidate in taken.values()])}
    good = sorted((pair for key, pair in taken.items() if key in failing), key=lambda pair: cost_of(pair[1]))
    if not good:
        return None
    # Steps mostly do not hinder each other: each prefix of their combination is tried at once.
    combined = [good[0][1]]
    for step, _ in good[1:]:
        more = apply(combined[-1], step)
        if more is not None and cost_of(more) < cost_of(combined[-1]):
            combined.append(more)
    found = {s.key: s for s in (*test.failing(combined[1:]), *(s for _, s in good))}
    plainest = sorted(found.values(), key=cost_of)[:_CONFIRMED]
    return next(filter(test.confirmed, plainest), None)


def _combined(subject: Replayed, test: Test, domains: Domains) -> Replayed:
    """Find reductions that fail only together, by Hypothesis."""
    if test.spent:
        return subject
    written = subject.changed(partial(map_tensors, change=literal))
    if written is None or not test.fails(written):
        return subject
    found = _find(
        reductions(written.invocation, domains),
        lambda invocation: cost(invocation) <= cost(written.invocation),
        test,
        evaluations=_COMBINATIONS,
        backend=_ORIGINAL,
    )
    return min([subject, written, *found], key=cost_of)


def _drawn_smaller(subject: Replayed, test: Test) -> Replayed | None:
    """Draw a smaller failure among the operator case's own calls, which are valid by construction."""
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
    return min(found, key=cost_of, default=None)


def _find(
    strategy: st.SearchStrategy[Invocation],
    wanted: Callable[[Invocation], bool],
    test: Test,
    *,
    evaluations: int,
    backend: str,
) -> list[Replayed]:
    """Return all failing invocations that Hypothesis met on its way to the smallest that `strategy` can draw."""
    failing: dict[tuple[str, str], Replayed] = {}
    passing: set[tuple[str, str]] = set()
    most = test.evaluator.evaluations + evaluations

    def fails(invocation: Invocation) -> bool:
        subject = Replayed(invocation)
        if subject.key in failing:
            return True
        # A refusal for lack of budget is final: Hypothesis expects one answer to one question.
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


# The alternatives that Hypothesis chooses from: it shrinks every choice towards the first, so each list has the
# plainest alternative first and the invocation's own last.


class OriginalProvider(StableProvider):
    """Chooses the last alternative always, so that Hypothesis begins with the invocation itself."""

    def draw_integer(self, min_value: int | None = None, max_value: int | None = None, **_: object) -> int:
        """Return the end of the range."""
        return max_value if max_value is not None else (min_value or 0)


AVAILABLE_PROVIDERS[_ORIGINAL] = f"{__name__}.{OriginalProvider.__name__}"


def reductions(original: Invocation, domains: Domains) -> st.SearchStrategy[Invocation]:
    """Return a strategy for invocations plainer than `original` in any combination of ways, `original` itself included.

    The values of its tensors must be written out; `domains` are those that its operator allows.
    """

    @st.composite
    def strategy(draw: st.DrawFn) -> Invocation:
        invocation = original
        for name, argument in original.arguments:
            chosen = draw(st.sampled_from(_alternatives(original.overload, name, argument)))
            if chosen is _OMITTED:
                invocation = omit_argument(invocation, name)
            else:
                invocation = replace_argument(invocation, name, chosen)  # type: ignore[arg-type]
        invocation = _smaller(draw, invocation)
        for dtype in dict.fromkeys(spec.dtype for spec in invocation.tensors()):
            chosen_dtype = draw(st.sampled_from((*plainer_dtypes(dtype), dtype)))
            invocation = everywhere_in(invocation, dtype, chosen_dtype) or invocation
        for path, spec in tensors_of(invocation).items():
            layouts = () if is_plain_layout(spec) else (contiguous(spec), compact(spec))
            laid = draw(st.sampled_from((*layouts, spec)))
            valued = _plainer_values(draw, laid, domains.get(path[0], ()))
            invocation = replace_tensors(invocation, {path: valued})
        return invocation

    return strategy()


def _alternatives(overload: str, name: str, argument: Argument) -> Sequence[object]:
    plainer: list[object] = [_OMITTED] if name in optional_arguments(overload) else []
    if type(argument) is int or type(argument) is float:
        # One argument may get less plain where another gets plainer for it.
        plainer += [type(argument)(n) for n in alternatives(name) if n != argument]
    elif not isinstance(argument, TensorSpec):
        plainer += list(plainer_arguments(name, argument))[:_ALTERNATIVES]
    return (*plainer, argument)


def _smaller(draw: st.DrawFn, invocation: Invocation) -> Invocation:
    for tied in ties(invocation):
        path, dim = min(tied, key=str)
        spec = tensors_of(invocation).get(path)
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
    return replace_numbers(spec, after) if allowed(rules, spec.dtype, after) else spec
