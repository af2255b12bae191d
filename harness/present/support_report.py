"""Answers of `conformance supports` as reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.compare.signatures import informative_line
from harness.core.route import route_label
from harness.core.text import count
from harness.present.evidence import fault_text, place_text
from harness.present.report import Note, Report, Row, Section
from harness.support.answer import Failing, OperatorSupport, Support, SupportLevel

_STYLES = {SupportLevel.SUPPORTED: "green", SupportLevel.PARTLY: "yellow", SupportLevel.UNSUPPORTED: "red"}


def support_report(answer: Support) -> Report:
    """Return one answer: each operator with its failures and their conditions."""
    way = route_label(answer.converter, answer.backend)
    note = Note(f"{answer.level} with {way}", _STYLES.get(answer.level, ""))
    sections = (Section(title="Calls", rows=tuple(support_rows(answer.operators)), noun="operator"),)
    after = (Note(answer.problem),) if answer.problem else ()
    return Report(title=answer.asked, before=(note,), sections=sections if answer.operators else (), after=after)


def support_table(operators: Sequence[OperatorSupport], title: str) -> Report:
    """Return a run's answer, the operators that fail most first."""
    worst = sorted(operators, key=lambda o: (o.passing / max(o.cases, 1), o.overload))
    whole = sum(o.level is SupportLevel.SUPPORTED for o in operators)
    note = Note(f"{whole} of {count(len(operators), 'operator')} pass all their cases")
    rows = tuple(support_rows(worst))
    return Report(title=title, before=(note,), sections=(Section(title="Operators", rows=rows, noun="operator"),))


def support_rows(operators: Sequence[OperatorSupport]) -> Iterator[Row]:
    """Return a row each: the counts, and the reasons for failures."""
    for operator in operators:
        passed = f"{operator.level}, {operator.passing} of {count(operator.cases, 'call')} pass"
        yield Row(f"{operator.overload} {operator.dtype}", passed, "; ".join(map(_failing_text, operator.failing)))


def _failing_text(failing: Failing) -> str:
    when = f"if {failing.condition}" if failing.condition else count(failing.cases, "call")
    what = f"{place_text(failing.cause)} {fault_text(failing.cause)}".strip()
    return f"fails {when}: {what or informative_line(failing.message)} ({failing.outcome} at {failing.stage})"
