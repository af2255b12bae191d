"""Answer whether calls of operators survive a route, and on what that depends if some of them do not.

1. Verdicts on calls of an operator are counted, except those that a specification leaves undefined.
2. Failures with the same root cause count as one failure. Its condition is a feature of the arguments that all of its
   calls have and no passing call has, such as ``dim=None``.
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
    """The share of calls that pass: all, some or none; or no call was run."""

    SUPPORTED = "supported"
    PARTLY = "partly"
    UNSUPPORTED = "unsupported"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Failing:
    """Calls that fail for the same root cause.

    Attributes:
        cause: Component, place and fault.
        cases: The number of calls.
        outcome: The first call's outcome.
        stage: The stage at which the first call ended.
        condition: A feature that all of them have and no passing call has; "" if there is none.
        call: The first call, as JSON.
        message: The first call's message.
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
    """The results of an operator's calls in one dtype, the most frequent failure first."""

    overload: str
    dtype: str
    passing: int
    cases: int
    failing: tuple[Failing, ...] = ()

    @property
    def level(self) -> SupportLevel:
        """The level that the counts imply."""
        return level_of(self.passing, self.cases)


@dataclass(frozen=True, repr=False)
class Support:
    """The answer to one question.

    Attributes:
        asked: The operator or model, as the user named it.
        converter: The converter.
        backend: The backend.
        operators: Results by overload and dtype, in the order of the calls.
        problem: Why nothing, or not everything, could be run; "" if all was.
    """

    asked: str
    converter: str
    backend: str
    operators: tuple[OperatorSupport, ...]
    problem: str = ""

    @property
    def level(self) -> SupportLevel:
        """The level over all operators."""
        passing, cases = (sum(getattr(o, name) for o in self.operators) for name in ("passing", "cases"))
        level = level_of(passing, cases)
        return SupportLevel.UNKNOWN if self.problem and level is SupportLevel.SUPPORTED else level

    def __bool__(self) -> bool:
        return self.level is SupportLevel.SUPPORTED

    def __repr__(self) -> str:
        passing, cases = (sum(getattr(o, name) for o in self.operators) for name in ("passing", "cases"))
        return f"<{self.asked} by {self.converter} in {self.backend}: {self.level}, {passing} of {cases} cases pass>"

    def to_frame(self) -> pandas.DataFrame:
        """Return a row for each operator and dtype, with its most frequent failure.

        Raises:
            ModuleNotFoundError: pandas is not installed.
        """
        import pandas

        return pandas.DataFrame([_frame_row(operator) for operator in self.operators])

    def _repr_html_(self) -> str | None:
        """Return the form that notebooks show; None without pandas, so that they show the plain form."""
        try:
            table: str | None = self.to_frame().to_html(index=False)
        except ModuleNotFoundError:
            return None
        return f"<p>{html.escape(repr(self))}</p>{table}"

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data."""
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
    """Return the level for a number of passing cases out of all cases."""
    if not cases:
        return SupportLevel.UNKNOWN
    if passing == cases:
        return SupportLevel.SUPPORTED
    return SupportLevel.PARTLY if passing else SupportLevel.UNSUPPORTED


def operator_support(rows: Iterable[Mapping[str, Any]]) -> list[OperatorSupport]:
    """Count verdicts by overload and dtype, in their order.

    Args:
        rows: Verdicts as mappings of the record's columns.
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
    """Return the first feature that all failing calls and no passing one have; "" if none, or if nothing passes."""
    if not passing:
        return ""
    common = set(failing[0]).intersection(*failing)
    elsewhere = {feature for features_ in passing for feature in features_}
    return next((feature for feature in failing[0] if feature in common and feature not in elsewhere), "")


def features(call: str) -> tuple[str, ...]:
    """Return the features of a call's arguments as a person would name them, the most informative first.

    Examples are ``dim=None`` and ``self of rank 0``.
    """
    others, tensors = list[str](), list[str]()
    for name, value in Invocation.from_json(call).arguments:
        if isinstance(value, TensorSpec):
            tensors += _tensor_features(name, value)
        else:
            others += _value_features(name, value)
    return (*others, *tensors)


def _tensor_features(name: str, spec: TensorSpec) -> list[str]:
    names = [f"{name} of rank {len(spec.shape)}", f"{name} of {spec.dtype}"]
    if 0 in spec.shape:
        names.insert(0, f"{name} without elements")
    if not spec.is_contiguous:
        names.append(f"{name} not contiguous")
    return names


def _value_features(name: str, value: Argument) -> list[str]:
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
