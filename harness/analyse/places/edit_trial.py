"""What becomes of failing and passing cases with a change of a converter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.analyse.places.applied_edit import CannotApply, Holders, applied_edit
from harness.analyse.places.edit import Edit
from harness.analyse.places.observed_case import Bench
from harness.analyse.places.source_code import SourceCode
from harness.compare import Outcome, Stage
from harness.core import Invocation

#: Stages at which a graph is refused.
_REFUSING = (Stage.CHECK, Stage.LOAD, Stage.RUN)
_STAGES = (Stage.CONVERT, Stage.CHECK, Stage.LOAD, Stage.RUN, Stage.COMPARE)
#: What is said of results whose elements cannot be compared.
_OF_FORM = ("number of outputs", "dtype", "shape")
#: Failing cases that a change is tried on first; the others only if it makes something of these.
_FIRST = 3

#: How far a case got: its stage, whether its elements were compared, and what was said.
_Reached: TypeAlias = tuple[int, bool, str]


@dataclass(frozen=True)
class TriedEdit:
    """What became of the failing cases with a change.

    Attributes:
        passed: Numbers of those that pass.
        further: Numbers of those that get further than without it, and fail.
        changed: Whether something else is said of one of the others.
        breaks: Whether a passing case fails with it, as far as was looked; True where it cannot be applied.
        every: How many failing cases there are.
    """

    edit: Edit
    passed: frozenset[int]
    further: frozenset[int]
    changed: bool
    breaks: bool
    every: int

    @property
    def repairs(self) -> bool:
        """Whether all is well with it."""
        return len(self.passed) == self.every and not self.breaks


@dataclass(frozen=True)
class EditTrial:
    """Failing and passing cases, and what runs them.

    Attributes:
        reached: How far each failing case gets without a change.
        optimising: With the converter's optimiser.
        evaluator: Runs what the backend has no kernel for; None to do without.
        known: The functions of the converter.
        users: Passing cases of other operators whose conversion calls a function.
    """

    failing: Sequence[Invocation]
    passing: Sequence[Invocation]
    reached: Mapping[str, _Reached]
    bench: Bench
    optimising: Bench
    evaluator: Bench | None
    source: SourceCode
    known: Holders
    users: Callable[[str], Sequence[Invocation]]

    @classmethod
    def of(
        cls,
        failing: Sequence[Invocation],
        passing: Sequence[Invocation],
        bench: Bench,
        optimising: Bench,
        evaluator: Bench | None,
        source: SourceCode,
        known: Holders,
        users: Callable[[str], Sequence[Invocation]],
    ) -> EditTrial:
        """Of the cases, which are run once without a change."""
        reached = {call.case_id: _reached(*bench.outcome(call)[:3]) for call in failing}
        return cls(failing, passing, reached, bench, optimising, evaluator, source, known, users)

    def of_edit(self, edit: Edit, *, thorough: bool) -> TriedEdit:
        """What becomes of the cases with a change.

        Args:
            thorough: Whether it matters what becomes of the rest where one case fails.
        """
        nothing = TriedEdit(edit, frozenset(), frozenset(), False, True, len(self.failing))
        function = edit.function(self.source)
        if function is None:
            return nothing
        try:
            with applied_edit(edit.statement.file, function, self.known):
                found = self._of_failing(edit, thorough=thorough)
                if found.breaks or not (found.passed or found.further or found.changed):
                    return found
                breaks = not all(self.passes(call) for call in self.passing)
            if not breaks and found.repairs:
                # What others call may be right for them as it is. They are looked for without the change.
                users = self.users(edit.statement.function)
                with applied_edit(edit.statement.file, function, self.known):
                    breaks = not all(self.passes(call) for call in users)
        except CannotApply:
            return nothing
        return TriedEdit(edit, found.passed, found.further, found.changed, breaks, found.every)

    def _of_failing(self, edit: Edit, *, thorough: bool) -> TriedEdit:
        """What becomes of the failing cases with a change that is in place, as if it broke nothing."""
        passed, further, changed = set(), set(), False
        for number, call in enumerate(self.failing):
            ended = self.bench.outcome(call)[:3]
            reached, before = _reached(*ended), self.reached[call.case_id]
            if ended[1] is Outcome.PASS or self._passes_otherwise(call, *ended):
                passed.add(number)
                continue
            if not thorough:
                return TriedEdit(edit, frozenset(), frozenset(), False, True, len(self.failing))
            if reached[:2] > before[:2]:
                further.add(number)
            changed |= reached[:2] == before[:2] and reached[2] != before[2] and before[0] < len(_STAGES) - 1
            if number == _FIRST - 1 and not (passed or further or changed):
                break
        return TriedEdit(edit, frozenset(passed), frozenset(further), changed, False, len(self.failing))

    def passes(self, call: Invocation) -> bool:
        """Whether a case passes as things are now."""
        ended = self.bench.outcome(call)[:3]
        return ended[1] is Outcome.PASS or self._passes_otherwise(call, *ended)

    def _passes_otherwise(self, call: Invocation, stage: Stage, outcome: Outcome, message: str) -> bool:
        """Whether a failing case passes where more is done with its graph."""
        before = self.reached.get(call.case_id)
        # Whoever passes without a change has to go on in the same way.
        if before is None or stage not in _REFUSING or message == before[2]:
            return False
        return any(bench.outcome(call)[1] is Outcome.PASS for bench in self._otherwise(outcome))

    def _otherwise(self, outcome: Outcome) -> Iterator[Bench]:
        # Some graphs are accepted only once the optimiser has been over them.
        yield self.optimising
        # A right graph may be one that the backend has no kernel for.
        if outcome is Outcome.UNSUPPORTED and self.evaluator is not None:
            yield self.evaluator


def _reached(stage: Stage, outcome: Outcome, message: str) -> _Reached:
    return _STAGES.index(stage), stage is Stage.COMPARE and not message.startswith(_OF_FORM), message
