"""Which of some candidates fail as the original does: run in a worker process, many per export."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from harness.analyse.shrink.plainness import Cost, cost
from harness.compare import Outcome, Stage, Verdict
from harness.core import PRECISION, Invocation
from harness.execute import Supervisor
from harness.generate import Replayed
from harness.plan import Unit, run_unit

#: Most candidates that are evaluated together.
_TOGETHER = 96
#: Blame that says nothing.
_OPEN = frozenset({"", "unknown"})


@dataclass(frozen=True)
class ShrinkSubject(Replayed):
    """What is shrunk: an invocation, and with it the one whose shapes are exported where that is another."""

    exported: Invocation | None = None

    @cached_property
    def key(self) -> tuple[str, str]:
        """Its identity, as a verdict has it."""
        return self.invocation.json, "" if self.exported is None else self.exported.json

    @cached_property
    def cost(self) -> tuple[Cost, Cost]:
        """Smaller is plainer; what is exported counts after what is run."""
        return cost(self.invocation), () if self.exported is None else cost(self.exported)

    def changed(self, change: Callable[[Invocation], Invocation | None]) -> ShrinkSubject | None:
        """Both invocations changed in the same way; None where one cannot be."""
        subject = self.with_values(change)
        if subject is None or self.exported is None:
            return subject
        exported = change(self.exported)
        return None if exported is None else ShrinkSubject(subject.invocation, exported)

    def with_values(self, change: Callable[[Invocation], Invocation | None]) -> ShrinkSubject | None:
        """The invocation that is run changed; values take no part in an export."""
        invocation = change(self.invocation)
        return None if invocation is None else ShrinkSubject(invocation, self.exported)


def _manner(verdict: Verdict) -> tuple[Stage, Outcome, str]:
    return verdict.stage, verdict.outcome, verdict.signature


def _is_gross(verdict: Verdict) -> bool | None:
    """Whether more than half of the significant bits are wrong in the worst element.

    None where no error was measured: other shapes, NaN against numbers, integers.
    """
    ulp, precision = verdict.max_ulp_error, PRECISION.get(verdict.dtype)
    if verdict.outcome is not Outcome.MISMATCH or not ulp or precision is None or math.isnan(ulp):
        return None
    return bool(ulp > 2.0 ** (precision / 2))


class Budget:
    """What shrinking one failure may cost: `seconds` from now on, and runs of so many candidates."""

    def __init__(self, seconds: float, evaluations: int = 100_000) -> None:
        self._end = time.monotonic() + seconds
        self.evaluations_left = evaluations

    @property
    def seconds_left(self) -> float:
        """May be negative."""
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
        """Make what was set aside available."""
        self._end += seconds


class Evaluator:
    """Runs candidates in one place and remembers what became of each.

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
        #: Seconds that one candidate took of late, to fit a batch into what is left.
        self._pace = 0.05

    def verdicts(self, subjects: Iterable[ShrinkSubject], *, together: bool = True) -> list[Verdict | None]:
        """What became of each of `subjects`; None for those that the budget does not reach.

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

    def blamed(self, subject: ShrinkSubject) -> Verdict | None:
        """What became of `subject`, and whose defect it is; None where the budget does not reach."""
        if subject.key not in self._blamed and not self.budget.spent:
            self._blamed.update(self._evaluated([subject], blame=True))
        return self._blamed.get(subject.key)

    def _evaluated(self, subjects: Sequence[ShrinkSubject], *, blame: bool) -> dict[tuple[str, str], Verdict]:
        settings = replace(self._place.settings, blame=blame)
        unit = replace(self._place, replay=tuple(subjects), settings=settings)
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
        evaluator: Runs them.
        original: What became of the original.
        careful: Whether `confirmed` asks whose defect a candidate is.

    Attributes:
        lethal: Whether each failing candidate costs a worker process.
        way: What was gone on with, plainer and plainer.
    """

    __test__ = False  # Not for pytest.

    def __init__(self, evaluator: Evaluator, original: Verdict, *, careful: bool = False) -> None:
        self.evaluator = evaluator
        self.original = original
        self.lethal = original.outcome in (Outcome.CRASH, Outcome.TIMEOUT)
        self.careful = careful
        self.way: list[ShrinkSubject] = []

    @property
    def spent(self) -> bool:
        """Whether nothing more may be run."""
        return self.evaluator.budget.spent

    def failing(self, subjects: Sequence[ShrinkSubject]) -> list[ShrinkSubject]:
        """Those that fail as the original does, whoever is to blame.

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

    def passing(self, subjects: Sequence[ShrinkSubject]) -> set[tuple[str, str]]:
        """The keys of those that pass."""
        return {s.key for s in self._where(subjects, lambda verdict: verdict.outcome is Outcome.PASS)}

    def _where(self, subjects: Sequence[ShrinkSubject], wanted: Callable[[Verdict], bool]) -> list[ShrinkSubject]:
        found = self.evaluator.verdicts(subjects, together=not self.lethal)
        return [s for s, v in zip(subjects, found, strict=True) if v is not None and wanted(v)]

    def fails(self, subject: ShrinkSubject) -> bool:
        """Whether this one does, and is confirmed."""
        return bool(self.failing([subject])) and self.confirmed(subject)

    def confirmed(self, subject: ShrinkSubject) -> bool:
        """Whether a failing candidate may be gone on with: always, unless blame is asked for step by step."""
        return not self.careful or self.is_blamed_alike(subject)

    def is_blamed_alike(self, subject: ShrinkSubject) -> bool:
        """Whether the witnesses blame whom they blamed for the original, where both say whom.

        Not where the budget is spent.
        """
        verdict = self.evaluator.blamed(subject)
        if verdict is None:
            return False
        blamed = {verdict.blame, self.original.blame}
        return len(blamed) == 1 or bool(blamed & _OPEN)
