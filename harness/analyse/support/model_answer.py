"""Whether the operators of a model pass in a recorded run, in the model's dtypes and with its attributes.

Ordinary cases decide; edge cases do only where there are no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.analyse.support.call_kinds import CallKind, call_kinds
from harness.analyse.support.model_calls import ModelCall
from harness.analyse.support.support_answer import deciding_kinds
from harness.core import count, listed


class Answer(StrEnum):
    """What a run says of an operator, the worst first."""

    FAILS = "fails"
    OPEN = "is not decided"
    PASSES = "passes"


@dataclass(frozen=True, kw_only=True)
class CallAnswer:
    """What a run says of one kind of call.

    Attributes:
        exact: Whether cases with its attributes decided.
        cases: How many cases decided; `failures` of them fail.
        how: The commonest failure; "" for none.
        case_id: A case of it.
    """

    call: ModelCall
    answer: Answer
    exact: bool
    cases: int
    failures: int
    how: str = ""
    case_id: str = ""

    @property
    def said(self) -> str:
        """``aten.celu.default(float64, alpha=2.0): 3 of 8 cases fail: mismatch at compare: … (case …)``."""
        if not self.cases:
            return f"{self.call}: no case has its dtypes"
        others = "no case has these attributes; with others " if self.call.complete else ""
        others = "" if self.exact else others or "its attributes are not known; "
        example = f": {self.how} (case {self.case_id})" if self.failures else ""
        fail = "fails" if self.cases == 1 else "fail"
        return f"{self.call}: {others}{self.failures} of {count(self.cases, 'case')} {fail}{example}"


@dataclass(frozen=True, kw_only=True)
class ModelAnswer:
    """What a run says of all operators of a model, with one converter and one backend."""

    converter: str
    backend: str
    calls: tuple[CallAnswer, ...]

    @property
    def operators(self) -> dict[str, Answer]:
        """Operator → the worst answer of its calls."""
        found: dict[str, Answer] = {}
        for one in sorted(self.calls, key=lambda call: list(Answer).index(call.answer)):
            found.setdefault(one.call.overload, one.answer)
        return found

    @property
    def lines(self) -> list[str]:
        """For people: ``7 of 9 operators pass in float32 with these attributes; 2 do not``, and which."""
        answers = Counter(self.operators.values())
        dtypes = dict.fromkeys(d for one in self.calls for d in one.call.dtypes.values() if d != "bool")
        inexact = {one.call.overload for one in self.calls if not one.exact and one.answer is Answer.PASSES}
        inexact = {name for name in inexact if self.operators[name] is Answer.PASSES}
        with_these = answers[Answer.PASSES] - len(inexact)
        attributes = " with these attributes"
        if inexact:
            attributes = f", {with_these} with these attributes and {len(inexact)} with others"
        words = [
            f"{answers[Answer.PASSES]} of {count(len(self.operators), 'operator')} "
            f"{'passes' if len(self.operators) == 1 else 'pass'} in "
            f"{listed(list(dtypes), 4)}{attributes}"
        ]
        for answer, one, more in ((Answer.FAILS, "does not", "do not"), (Answer.OPEN, "is", "are")):
            if answers[answer]:
                verb = one if answers[answer] == 1 else more
                words.append(f"{answers[answer]} {verb}{' not decided' if answer is Answer.OPEN else ''}")
        first = f"{self.converter} → {self.backend}: {'; '.join(words)}"
        worse = [one for one in self.calls if one.answer is not Answer.PASSES]
        worse.sort(key=lambda call: list(Answer).index(call.answer))
        return [first, *(f"  {one.answer}: {one.said}" for one in worse)]

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "converter": self.converter,
            "backend": self.backend,
            "operators": {name: str(answer) for name, answer in self.operators.items()},
            "calls": [
                {
                    "call": str(one.call),
                    "answer": str(one.answer),
                    "these_attributes": one.exact,
                    "cases": one.cases,
                    "failures": one.failures,
                    "how": one.how,
                    "case_id": one.case_id,
                }
                for one in self.calls
            ],
        }


def answers_for(calls: Sequence[ModelCall], run: Path) -> list[ModelAnswer]:
    """What a run says of a model's calls, per converter and backend.

    Raises:
        ResultsError: the run cannot be read.
    """
    places: dict[tuple[str, str], list[CallKind]] = {}
    for kind in call_kinds(run, sorted({call.overload for call in calls})):
        places.setdefault((kind.converter, kind.backend), []).append(kind)
    return [
        ModelAnswer(converter=converter, backend=backend, calls=tuple(_answer(call, kinds) for call in calls))
        for (converter, backend), kinds in sorted(places.items())
    ]


def _answer(call: ModelCall, kinds: Iterable[CallKind]) -> CallAnswer:
    alike = [kind for kind in kinds if kind.overload == call.overload and kind.has_dtypes(call)]
    pool = [kind for kind in alike if kind.has_attributes(call)]
    exact = bool(pool) and call.complete
    pool = pool or alike
    pool = list(deciding_kinds(pool))
    cases, failures = (sum(getattr(kind, name) for kind in pool) for name in ("cases", "failures"))
    worst = max(pool, key=lambda kind: kind.failures, default=None)
    if not failures or worst is None:
        answer = Answer.PASSES if pool else Answer.OPEN
        return CallAnswer(call=call, answer=answer, exact=exact, cases=cases, failures=0)
    return CallAnswer(
        call=call,
        answer=Answer.FAILS if exact or failures == cases else Answer.OPEN,
        exact=exact,
        cases=cases,
        failures=failures,
        how=worst.how,
        case_id=worst.case_id,
    )
