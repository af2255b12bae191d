"""Which of some candidates fail as the original does: run in a worker process, many per export."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from harness.analyse.shrink.shrink_target import Target
from harness.analyse.shrink.subject import ShrinkSubject
from harness.compare import Outcome, Verdict
from harness.execute import Settings, Supervisor
from harness.plan import Unit, run_unit

#: What costs a worker process each time that it happens.
LETHAL = frozenset({Outcome.CRASH, Outcome.TIMEOUT})
#: Most candidates that are evaluated together.
_TOGETHER = 96


@dataclass(frozen=True, kw_only=True)
class FailurePlace:
    """Where a case failed.

    Attributes:
        overload: Its operator.
        converter: Its converter.
        backend: Its backend.
        shape_mode: ``static`` or ``dynamic``.
        settings: How it was exported.
    """

    overload: str
    converter: str
    backend: str
    shape_mode: str = "static"
    settings: Settings = field(default_factory=Settings)


class Budget:
    """What shrinking one failure may cost.

    Args:
        seconds: From now on.
        evaluations: Candidates that are run.
    """

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
        place: Where they are run.
        supervisor: Keeps the worker process.
        budget: When it is spent, nothing more is run.
    """

    def __init__(self, place: FailurePlace, supervisor: Supervisor, budget: Budget) -> None:
        self.place = place
        self.budget = budget
        self.evaluations = 0
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
            count = self._affordable() if together else 1
            self._run(new[:count])
            new = new[count:]
        return [self._known.get(subject.key) for subject in wanted]

    def blamed(self, subject: ShrinkSubject) -> Verdict | None:
        """What became of `subject`, and whose defect it is; None where the budget does not reach."""
        if subject.key not in self._blamed and not self.budget.spent:
            self._blamed.update(self._evaluated([subject], blame=True))
        return self._blamed.get(subject.key)

    def _affordable(self) -> int:
        # At most two seconds, so that a spent budget is noticed.
        fitting = int(min(self.budget.seconds_left, 2.0) / self._pace)
        return max(1, min(fitting, _TOGETHER, self.budget.evaluations_left))

    def _run(self, subjects: Sequence[ShrinkSubject]) -> None:
        started = time.monotonic()
        self._known.update(self._evaluated(subjects, blame=False))
        pace = (time.monotonic() - started) / len(subjects)
        self._pace = max(0.001, 0.5 * self._pace + 0.5 * pace)

    def _evaluated(self, subjects: Sequence[ShrinkSubject], *, blame: bool) -> dict[tuple[str, str], Verdict]:
        unit = Unit(
            overload=self.place.overload,
            converter=self.place.converter,
            backends=(self.place.backend,),
            shape_mode=self.place.shape_mode,
            replay=tuple(subject.replayed for subject in subjects),
            settings=replace(self.place.settings, blame=blame),
        )
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
        target: The original's failure.
        careful: Whether `confirmed` asks whose defect a candidate is.

    Attributes:
        way: What was gone on with, plainer and plainer.
    """

    __test__ = False  # Not for pytest.

    def __init__(self, evaluator: Evaluator, target: Target, *, careful: bool = False) -> None:
        self.evaluator = evaluator
        self.target = target
        self.careful = careful
        self.way: list[ShrinkSubject] = []

    @property
    def spent(self) -> bool:
        """Whether nothing more may be run."""
        return self.evaluator.budget.spent

    def failing(self, subjects: Sequence[ShrinkSubject]) -> list[ShrinkSubject]:
        """Those that fail as the original does."""
        together = self.target.outcome not in LETHAL
        found = self.evaluator.verdicts(subjects, together=together)
        return [s for s, v in zip(subjects, found, strict=True) if v is not None and self.target.is_met_by(v)]

    def fails(self, subject: ShrinkSubject) -> bool:
        """Whether this one does, and is confirmed."""
        return bool(self.failing([subject])) and self.confirmed(subject)

    def confirmed(self, subject: ShrinkSubject) -> bool:
        """Whether a failing candidate may be gone on with: always, unless blame is asked for step by step."""
        return not self.careful or self.is_blamed_alike(subject)

    def is_blamed_alike(self, subject: ShrinkSubject) -> bool:
        """Whether the witnesses blame whom they blamed for the original; not where the budget is spent."""
        verdict = self.evaluator.blamed(subject)
        return verdict is not None and self.target.is_blamed_alike(verdict)
