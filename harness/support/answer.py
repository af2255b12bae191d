"""Whether calls of operators survive a way, and on what it depends where some of them do not.

1. Verdicts on calls of an operator are counted; those that a specification leaves open count for neither.
2. Failures of one root cause are one failure here, with its condition: a feature of their arguments that all of its
   calls have and no call that passes, such as ``dim=None``.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from harness.causes.cause import RootCause, root_cause
from harness.compare.verdict import SPEC, Outcome
from harness.core.invocation import Argument, Enumerated, Invocation, TensorSpec

if TYPE_CHECKING:
    import pandas


class SupportLevel(StrEnum):
    """How many of the calls pass: all, some, none; or none were run."""

    SUPPORTED = "supported"
    PARTLY = "partly"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Failing:
    """Calls that fail of one root cause.

    Attributes:
        cause: Component, place and fault.
        cases: How many.
        outcome: Of the first.
        stage: Where the first ended.
        condition: What all of them have and no call that passes; "" for nothing.
        call: The first, as JSON.
        message: What was said of it.
    """

    cause: RootCause
    cases: int
    outcome: str
    stage: str
    condition: str
    call: str
    message: str


@dataclass(frozen=True)
class OperatorSupport:
    """What became of an operator's calls in one dtype, the most frequent failure first."""

    overload: str
    dtype: str
    passing: int
    cases: int
    failing: tuple[Failing, ...] = ()

    @property
    def level(self) -> SupportLevel:
        """What the counts say."""
        return level_of(self.passing, self.cases)


@dataclass(frozen=True, repr=False)
class Support:
    """The answer to one question.

    Attributes:
        asked: What, as the user named it.
        operators: By overload and dtype, in the order of the calls.
        problem: Why nothing, or not all, could be run; "" for nothing.
    """

    asked: str
    converter: str
    backend: str
    operators: tuple[OperatorSupport, ...]
    problem: str = ""

    @property
    def level(self) -> SupportLevel:
        """Over all operators."""
        passing, cases = (sum(getattr(o, name) for o in self.operators) for name in ("passing", "cases"))
        level = level_of(passing, cases)
        return SupportLevel.UNKNOWN if self.problem and level is SupportLevel.SUPPORTED else level

    def __bool__(self) -> bool:
        return self.level is SupportLevel.SUPPORTED

    def __repr__(self) -> str:
        passing, cases = (sum(getattr(o, name) for o in self.operators) for name in ("passing", "cases"))
        return f"<{self.asked} by {self.converter} in {self.backend}: {self.level}, {passing} of {cases} cases pass>"

    def to_frame(self) -> pandas.DataFrame:
        """A row for each operator and dtype; of several failures the most frequent.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        import pandas

        return pandas.DataFrame([_frame_row(operator) for operator in self.operators])

    def _repr_html_(self) -> str | None:
        """How a notebook shows it; None for the plain form, where pandas is not installed."""
        try:
            table: str | None = self.to_frame().to_html(index=False)
        except ModuleNotFoundError:
            return None
        return f"<p>{html.escape(repr(self))}</p>{table}"

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        calls = [{**asdict(operator), "level": str(operator.level)} for operator in self.operators]
        return {
            "asked": self.asked,
            "converter": self.converter,
            "backend": self.backend,
            "level": str(self.level),
            "problem": self.problem,
            "calls": calls,
        }


def _frame_row(operator: OperatorSupport) -> dict[str, Any]:
    first = operator.failing[0] if operator.failing else None
    return {
        "operator": operator.overload,
        "dtype": operator.dtype,
        "passing": operator.passing,
        "cases": operator.cases,
        "level": str(operator.level),
        "fails_if": first.condition if first else "",
        "outcome": first.outcome if first else "",
        "component": first.cause.component if first else "",
        "place": first.cause.place if first else "",
    }


def level_of(passing: int, cases: int) -> SupportLevel:
    """What so many passes of so many cases say."""
    if not cases:
        return SupportLevel.UNKNOWN
    if passing == cases:
        return SupportLevel.SUPPORTED
    return SupportLevel.PARTLY if passing else SupportLevel.UNSUPPORTED


def operator_support(rows: Iterable[Mapping[str, Any]]) -> list[OperatorSupport]:
    """The counts of verdicts, by overload and dtype in their order.

    Args:
        rows: Verdicts, as mappings of the record's columns.
    """
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        outcome = Outcome(row["outcome"])
        if (outcome is Outcome.PASS or outcome.is_failure) and row["blame"] != SPEC:
            groups.setdefault((row["overload"], row["dtype"]), []).append(row)
    return [_support(overload, dtype, cases) for (overload, dtype), cases in groups.items()]


def _support(overload: str, dtype: str, rows: Sequence[Mapping[str, Any]]) -> OperatorSupport:
    passing = [features(row["invocation"]) for row in rows if row["outcome"] == Outcome.PASS]
    failing: dict[RootCause, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["outcome"] != Outcome.PASS:
            failing.setdefault(root_cause(row), []).append(row)
    causes = [
        Failing(
            cause=cause,
            cases=len(cases),
            outcome=str(cases[0]["outcome"]),
            stage=str(cases[0]["stage"]),
            condition=_condition([features(row["invocation"]) for row in cases], passing),
            call=cases[0]["invocation"],
            message=cases[0]["message"],
        )
        for cause, cases in failing.items()
    ]
    causes.sort(key=lambda failure: -failure.cases)
    return OperatorSupport(overload, dtype, len(passing), len(rows), tuple(causes))


def _condition(failing: Sequence[Sequence[str]], passing: Sequence[Sequence[str]]) -> str:
    """The first feature that all failing calls have and no passing one; "" where nothing passes, or for none."""
    if not passing:
        return ""
    common = set(failing[0]).intersection(*failing)
    elsewhere = {feature for features_ in passing for feature in features_}
    return next((feature for feature in failing[0] if feature in common and feature not in elsewhere), "")


def features(call: str) -> tuple[str, ...]:
    """What a person would name of a call's arguments, those that say most first: ``dim=None``, ``self of rank 0``."""
    given, tensors = list[str](), list[str]()
    for name, value in Invocation.from_json(call).arguments:
        if isinstance(value, TensorSpec):
            tensors += _of_tensor(name, value)
        else:
            given += _of_number(name, value)
    return (*given, *tensors)


def _of_tensor(name: str, spec: TensorSpec) -> list[str]:
    found = [f"{name} of rank {len(spec.shape)}", f"{name} of {spec.dtype}"]
    if 0 in spec.shape:
        found.insert(0, f"{name} without elements")
    if not spec.is_contiguous:
        found.append(f"{name} not contiguous")
    return found


def _of_number(name: str, value: Argument) -> list[str]:
    if value is None or isinstance(value, bool | str):
        return [f"{name}={value}"]
    if isinstance(value, Enumerated):
        return [f"{name}={value.name}"]
    if isinstance(value, tuple):
        sizes = [f"{name} given", f"{name} of {len(value)} elements" if value else f"{name}=[]"]
        return [*sizes[1:], sizes[0]]
    if isinstance(value, int | float):
        sign = "negative" if value < 0 else "zero" if value == 0 else "positive"
        return [f"{name}={value}", f"{name} {sign}", f"{name} given"]
    return [f"{name} given"]
