"""Whether the operators of a model pass in a recorded run, in the model's dtypes and with its attributes.

Ordinary cases decide; edge cases do only where there are no others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.analyse.explain.model_calls import ModelCall, plain_value
from harness.analyse.ordinary_use import ORDINARY_COLUMNS, ordinary_rows
from harness.compare import Outcome
from harness.core import Argument, Enumerated, Invocation, TensorSpec, count, listed, overload
from harness.record import store

_COLUMNS = ("case_id", "overload", "converter", "backend", "stage", "outcome", "blame", "signature")


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
    names = sorted({call.overload for call in calls})
    table = store.read(run, [*_COLUMNS, *ORDINARY_COLUMNS], pc.field("overload").isin(names))
    rows = [
        {**row, "ordinary": ordinary, "parsed": Invocation.from_json(row["invocation"])}
        for row, ordinary in zip(table.to_pylist(), ordinary_rows(table).tolist(), strict=True)
        if row["outcome"] != Outcome.SKIP
    ]
    places = sorted({(row["converter"], row["backend"]) for row in rows})
    return [
        ModelAnswer(
            converter=converter,
            backend=backend,
            calls=tuple(
                _answer(call, [r for r in rows if (r["converter"], r["backend"]) == (converter, backend)])
                for call in calls
            ),
        )
        for converter, backend in places
    ]


def _answer(call: ModelCall, rows: Iterable[Mapping[str, Any]]) -> CallAnswer:
    alike = [r for r in rows if r["overload"] == call.overload and _same_dtypes(call, r["parsed"])]
    pool = [row for row in alike if _same_attributes(call, row["parsed"])]
    exact = bool(pool) and call.complete
    pool = pool or alike
    pool = [row for row in pool if row["ordinary"]] or pool
    failed = [row for row in pool if Outcome(row["outcome"]).is_failure and row["blame"] != "spec"]
    if not failed:
        answer = Answer.PASSES if pool else Answer.OPEN
        return CallAnswer(call=call, answer=answer, exact=exact, cases=len(pool), failures=0)
    kinds = Counter(f"{row['outcome']} at {row['stage']}: {row['signature']}" for row in failed)
    how = kinds.most_common(1)[0][0]
    return CallAnswer(
        call=call,
        answer=Answer.FAILS if exact or len(failed) == len(pool) else Answer.OPEN,
        exact=exact,
        cases=len(pool),
        failures=len(failed),
        how=how,
        case_id=next(
            r["case_id"] for r in failed if how == f"{r['outcome']} at {r['stage']}: {r['signature']}"
        ),
    )


def _same_dtypes(call: ModelCall, case: Invocation) -> bool:
    given = dict(case.arguments)
    return all(next(_dtypes(given.get(name)), "") == dtype for name, dtype in call.dtypes.items())


def _dtypes(argument: Argument) -> Iterator[str]:
    if isinstance(argument, TensorSpec):
        yield argument.dtype
    elif isinstance(argument, tuple):
        for element in argument:
            yield from _dtypes(element)


def _same_attributes(call: ModelCall, case: Invocation) -> bool:
    given = {name: _value(argument) for name, argument in case.arguments}
    for argument in overload(call.overload)._schema.arguments:
        if argument.name in call.attributes and argument.name not in given:
            given[argument.name] = plain_value(argument.default_value)
    return all(given.get(name) == value for name, value in call.attributes.items())


def _value(argument: Argument) -> Any:
    if isinstance(argument, Enumerated):
        return argument.name if argument.kind == "device" else f"torch.{argument.name}"
    if isinstance(argument, tuple):
        return [_value(element) for element in argument]
    return argument
