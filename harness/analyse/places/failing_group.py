"""The failures of a record that one change of a converter is to repair."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from harness.analyse.failure_key import Cause, cause_of
from harness.analyse.grouping import COLUMNS, FAILED, failure_groups
from harness.analyse.places.of_failure import can_be_placed
from harness.compare import CONVERTER, Outcome, Verdict
from harness.core import InvalidInvocation, Invocation, count
from harness.execute import PREFIX
from harness.record import read_located, read_minimal, read_run_info, resolve_case, store

#: Failing cases that are looked at, and passing ones that a change is tried on first.
MOST, PASSING = 512, 8
#: A longer word is a case, even if it has digits alone.
_DIGITS = 4


class CannotFix(Exception):
    """The failure is none that a change of a converter can repair; says why in a line."""


@dataclass(frozen=True, kw_only=True)
class FailingGroup:
    """Failures that look like one defect of a converter.

    Attributes:
        failing: The smallest of them first, those that differ most from each other in front; at most `MOST`.
        passing: Some cases of the same operators that pass.
        total: How many cases fail in all.
        opset: That the run emitted; None for the converter's default.
        seed: Of the run's draws.
        examples: Cases per operator that the run drew.
        values: Of these with the same structure; None for the usual number.
    """

    converter: str
    backend: str
    overloads: tuple[str, ...]
    failing: tuple[Invocation, ...]
    passing: tuple[Invocation, ...]
    total: int
    opset: int | None
    seed: int
    examples: int
    values: int | None


def failing_group(run: Path, target: str) -> FailingGroup:
    """The failures that a user names.

    Args:
        target: The number of an entry of ``conformance failures``, or the id of a case: it stands for the
            failures of its operator that look like its own.

    Raises:
        CannotFix: a change of a converter cannot repair them.
        ResultsError: there is no such case, or the run cannot be read.
    """
    if target.isdecimal() and len(target) <= _DIGITS:
        return _of_number(run, int(target))
    return _of_case(run, resolve_case(run, target))


def _of_case(run: Path, case_id: str) -> FailingGroup:
    rows = list(store.verdicts(run, pc.field("case_id") == case_id))
    if not rows:
        minimal = next(m for m in read_minimal(run) if m.minimal_id == case_id)
        rows = list(store.verdicts(run, pc.field("case_id") == minimal.case_id))
    verdict = next((row for row in rows if can_be_placed(row)), None)
    if verdict is None:
        raise CannotFix(f"case {case_id[:8]}: {_why_not(rows)}")
    same = (pc.field("overload") == verdict.overload) & (pc.field("converter") == verdict.converter)
    rows = list(store.verdicts(run, same & (pc.field("backend") == verdict.backend)))
    return _group(run, rows, verdict, frozenset([cause_of(vars(verdict))]))


def _of_number(run: Path, number: int) -> FailingGroup:
    table = store.read(run, list(COLUMNS), FAILED, encoded=True)
    # As `conformance failures` numbers them.
    groups = failure_groups(table, read_minimal(run), located=read_located(run))
    if not 0 < number <= len(groups):
        raise CannotFix(f"there is no failure {number}: `conformance failures` lists {len(groups)}")
    group = groups[number - 1]
    rows = list(store.verdicts(run, pc.field("case_id") == group.case_id))
    verdict = next((r for r in rows if can_be_placed(r) and cause_of(vars(r)) in group.causes), None)
    if group.blame != CONVERTER or verdict is None:
        why = _blamed(group.blame) if group.blame != CONVERTER else _why_not(rows)
        raise CannotFix(f"failure {number}, {group.cause or group.signature}: {why}")
    same = pc.field("overload").isin(group.overloads) & (pc.field("converter") == verdict.converter)
    found = list(store.verdicts(run, same & (pc.field("backend") == verdict.backend)))
    return _group(run, found, verdict, group.causes)


def _group(run: Path, rows: Sequence[Verdict], like: Verdict, causes: Collection[Cause]) -> FailingGroup:
    """The failures of some causes among rows; those that pass are among the rows.

    Args:
        like: One of the failures.
    """
    failing: list[Verdict] = []
    passing: list[Verdict] = []
    for row in rows:
        if row.shape_mode != like.shape_mode or row.rule:
            continue
        if row.outcome is Outcome.PASS:
            passing.append(row)
        elif row.outcome.is_failure and cause_of(vars(row)) in causes:
            failing.append(row)
    # A case in which more is wrong passes with no single change.
    alone = [row for row in failing if not row.problems] or failing
    info = read_run_info(run)
    chosen = _various(alone)
    return FailingGroup(
        converter=like.converter,
        backend=like.backend,
        overloads=tuple(sorted({invocation.overload for invocation in chosen})),
        failing=tuple(chosen[:MOST]),
        passing=tuple(_various(passing)[:PASSING]),
        total=len(failing),
        opset=_number(info.options.get("opset")),
        seed=info.seed,
        examples=_number(info.options.get("examples")) or 128,
        values=_number(info.options.get("values")),
    )


def _various(rows: Sequence[Verdict]) -> list[Invocation]:
    """Their invocations: of each operator and dtype the smallest, then the next, and so on."""
    turns: dict[tuple[str, str], int] = {}
    ranked: list[tuple[int, int, Invocation]] = []
    seen: set[str] = set()
    for row in sorted(rows, key=lambda row: (len(row.invocation), row.case_id)):
        # One of another version cannot be read.
        with contextlib.suppress(InvalidInvocation):
            invocation = Invocation.from_json(row.invocation)
            kind = invocation.overload, invocation.dtype
            turns[kind] = turns.get(kind, -1) + 1
            # Structures that were seen come last: they are exported alike.
            again = int(invocation.structure_id in seen)
            seen.add(invocation.structure_id)
            ranked.append((again, turns[kind], invocation))
    return [invocation for _, _, invocation in sorted(ranked, key=lambda one: one[:2])]


def _why_not(rows: Sequence[Verdict]) -> str:
    failed = [row for row in rows if row.outcome.is_failure]
    if not failed:
        return "it did not fail"
    if any(row.overload.startswith(PREFIX) for row in failed):
        return "it is a whole model; find its operator with `conformance diverge`"
    of_converter = [row for row in failed if row.blame == CONVERTER]
    if not of_converter:
        return _blamed(failed[0].blame)
    if any(row.rule for row in of_converter):
        return "a rule of yours took part, and only the converter's own functions are changed here"
    return f"{count(len(of_converter), 'failure')} with dynamic shapes, and only fixed ones are tried here"


def _blamed(blame: str) -> str:
    whose = {"backend": "the backend's", "pytorch": "PyTorch's", "spec": "left open by the specification"}
    said = whose.get(blame, "of unknown origin")
    return f"the failure is {said}, and only a converter's can be repaired here"


def _number(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None
