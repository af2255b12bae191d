"""Failures grouped so that one defect is one group, those that users meet first.

`harness.causes.priority` has the formula of the order. What a specification leaves open comes last.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.cause import BEFORE_BACKEND, CAUSE_COLUMNS, RootCause
from harness.causes.known_issues import KnownIssue, call
from harness.causes.priority import (
    Pair,
    callers_of_failure,
    failing_pairs,
    failure_priority,
    model_use,
)
from harness.causes.rows import PROBLEMS, CodedRows, each_problem
from harness.causes.rules import RULES, CauseFacts, Rule, united
from harness.compare.verdict import SPEC, UNKNOWN, Outcome, Stage
from harness.core.invocation import InvalidInvocation, Invocation
from harness.generate.sources.use import callers_by_case
from harness.record.dictionary_encoding import Numbers
from harness.record.json_lines import Minimal

COLUMNS = (
    *("case_id", "overload", "family", "dtype", "converter", "backend", "stage", "outcome"),
    *("signature", "message", "invocation", "structure_id", "evidence", "diagnosis", "ordinary", "elements"),
    *("source", *CAUSE_COLUMNS, PROBLEMS),
)
FAILURES = [str(outcome) for outcome in Outcome if outcome.is_failure]
FAILED = pc.field("outcome").isin(FAILURES)
#: How a place is named where the function is known only to a run of the converter.
UNKNOWN_FUNCTION = "conversion of "


@dataclass(frozen=True, kw_only=True)
class OrdinaryFailures:
    """The cases of a group that are ordinary use of their operator.

    Attributes:
        cases: How many there are.
        case_id: The smallest one, as are invocation and message.
        invocation: JSON.
        message: Its failure in its own words.
        pairs: The overloads and dtypes of all of them.
    """

    cases: int
    case_id: str
    invocation: str
    message: str
    pairs: frozenset[Pair] = frozenset()

    @cached_property
    def call(self) -> str:
        """The smallest invocation as a person would write it."""
        return call(self.invocation)


class GroupKind(StrEnum):
    """What distinct failures come to: somebody's defect, what a component says that it does not support, what is
    nobody's yet, and what a specification allows."""

    DEFECT = "defect"
    GAP = "declared gap"
    UNDECIDED = "undecided"
    LEFT_OPEN = "left open"


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """Failures that look like one defect.

    Attributes:
        converter: The smallest case's, as are stage, outcome and signature.
        backend: Name; "" if the case failed before it got to one.
        cause: The root cause that tells most of it.
        causes: All root causes that are taken for one with it.
        file: Of the function that is wrong; "" where it is none, or not known.
        evidence: Of a record of an earlier version: what the smallest case's blame rests on.
        diagnosis: The smallest case's, as the record has it.
        cases: How many there are.
        overloads: In which operators, sorted, as are dtypes and converters.
        backends: In which backends, sorted; empty where none took part.
        case_id: The smallest ordinary case, or the smallest if none is ordinary: fewest tensor elements, then shortest
            JSON.
        invocation: The smallest case's, JSON.
        message: The smallest case's failure in its own words.
        ordinary: Those of its cases that are ordinary use of their operator; None where all are edge cases.
        minimal: What a case of the group was shrunk to and belongs to it, too; None where none was.
        known: Entries of the list of known defects that match.
        line: Of the converter, to which one of the cases was traced; None where none was.
        callers: How many models (`harness.causes.priority`) call one of its operators in a dtype of its ordinary
            cases, or of its edge cases where there are no others.
        priority: From 0 to 1; see `harness.causes.priority`.
    """

    converter: str
    backend: str
    stage: Stage
    outcome: Outcome
    signature: str
    cause: RootCause
    causes: frozenset[RootCause]
    cases: int
    overloads: tuple[str, ...]
    dtypes: tuple[str, ...]
    converters: tuple[str, ...]
    backends: tuple[str, ...]
    case_id: str
    invocation: str
    message: str
    file: str = ""
    evidence: str = ""
    diagnosis: str = ""
    detail: str = ""
    ordinary: OrdinaryFailures | None = None
    minimal: Minimal | None = None
    known: tuple[KnownIssue, ...] = ()
    callers: int = 0
    priority: float = 0.0

    @property
    def blame(self) -> str:
        """Whose defect it is: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``."""
        return self.cause.blame

    @property
    def kind(self) -> GroupKind:
        """What it comes to."""
        if self.blame == SPEC:
            return GroupKind.LEFT_OPEN
        if self.outcome is Outcome.UNSUPPORTED:
            return GroupKind.GAP
        return GroupKind.UNDECIDED if self.blame == UNKNOWN else GroupKind.DEFECT

    @property
    def rule(self) -> str:
        """The user's conversion functions that took part; "" for none."""
        return self.cause.rule

    @cached_property
    def call(self) -> str:
        """The smallest invocation as a person would write it."""
        return call(self.minimal.invocation if self.minimal else self.invocation)

    @property
    def ordinary_cases(self) -> int:
        """How many of its cases are ordinary use of their operator."""
        return self.ordinary.cases if self.ordinary else 0

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data, as ``conformance failures --json`` prints it."""
        names = ("outcome", "stage", "blame", "cases", "ordinary_cases", "rule", "callers", "priority", "file")
        spread = ("overloads", "dtypes", "converters", "backends")
        smallest = ("case_id", "converter", "backend", "signature", "message", "invocation")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: getattr(self.cause, name) for name in ("component", "place", "fault", "symptom", "choice")},
            **{name: getattr(self, name) for name in spread},
            "smallest": {name: getattr(self, name) for name in smallest},
            "minimal": minimal_data(self.minimal),
            "known": [issue.to_data() for issue in self.known],
        }


def minimal_data(minimal: Minimal | None) -> dict[str, Any] | None:
    """A shrunk case as plain JSON data."""
    if minimal is None:
        return None
    return {
        "case_id": minimal.minimal_id,
        "invocation": minimal.invocation,
        "message": minimal.message,
        "matters": list(minimal.matters),
        "elements": minimal.elements,
    }


def failure_groups(
    verdicts: pa.Table,
    minimal: Sequence[Minimal] = (),
    known: Sequence[KnownIssue] = (),
    *,
    by_overload: bool = False,
    rules: Sequence[Rule] = RULES,
) -> list[FailureGroup]:
    """Group the failures among a record's rows by cause, in order of priority; what the specification allows is last.

    A case with several problems is in the group of each.

    Args:
        verdicts: Rows of the record; only `COLUMNS` are looked at.
        minimal: Shrunk cases of the same run.
        known: Known defects, to be named with the groups that they match.
        by_overload: Whether the failures of each operator are grouped as if there were no other.
        rules: What unites root causes.
    """
    table = verdicts.select(COLUMNS)
    failed = pc.is_in(table["outcome"], pa.array(FAILURES))
    table, origin = each_problem(table if pc.all(failed).as_py() in (True, None) else table.filter(failed))
    rows = CodedRows(table)
    if not len(rows):
        return []
    causes, cause = rows.causes
    if by_overload:
        # The operator is part of the cause then.
        size = len(causes)
        packed, cause = np.unique(rows.numbers("overload") * size + cause, return_inverse=True)
        causes = [causes[old % size] for old in packed.tolist()]
        together = [[number] for number in range(len(causes))]
        together = _by_part(cause_facts(rows, causes, cause, origin), (packed // size).tolist())
    else:
        together = united(cause_facts(rows, causes, cause, origin), rules)
    group_of = np.empty(len(causes), dtype=np.int64)
    for number, members in enumerate(together):
        group_of[members] = number
    return sorted(_groups(rows, causes, cause, group_of[cause], together, minimal, known), key=_badness)


def _by_part(facts: Sequence[CauseFacts], parts: Sequence[int]) -> list[list[int]]:
    """Causes that are one defect where those of different parts have nothing to do with each other."""
    found = []
    for part in dict.fromkeys(parts):
        here = [number for number, its in enumerate(parts) if its == part]
        place = {number: n for n, number in enumerate(here)}
        own = [
            replace(facts[number], with_it=frozenset(place[n] for n in facts[number].with_it if n in place))
            for number in here
        ]
        found += [[here[n] for n in members] for members in united(own)]
    return found


def _groups(
    rows: CodedRows,
    causes: Sequence[RootCause],
    cause: Numbers,
    group: Numbers,
    together: Sequence[Sequence[int]],
    minimal: Sequence[Minimal],
    known: Sequence[KnownIssue],
) -> list[FailureGroup]:
    first = np.array([members[0] for members in together])
    smallest = rows.at(_examples(rows, cause)[first], rows.table.column_names)
    matching = _matching(rows, cause, known)
    spread = {name: _spread(rows, group, name) for name in ("overload", "dtype", "converter", "backend")}
    cases = _distinct(group, rows.numbers("case_id"))
    members = [frozenset(causes[n] for n in numbers) for numbers in together]
    shrunk = _shrunk(rows, group, spread["dtype"], minimal)
    ordinary, pairs, use = _ordinary(rows, group), failing_pairs(rows, group), model_use()
    usual = {number: of_group.pairs for number, of_group in ordinary.items()}
    seen, own = _calls_of_models(rows, group)
    as_made = callers_by_case(as_made=True)
    callers = [
        callers_of_failure(own.get(number, ()), usual.get(number, ()), pairs[number], use, seen, as_made)
        for number in range(len(together))
    ]
    return [
        FailureGroup(
            converter=row["converter"],
            backend="" if Stage(row["stage"]) in BEFORE_BACKEND else row["backend"],
            stage=Stage(row["stage"]),
            outcome=Outcome(row["outcome"]),
            signature=row["signature"],
            cause=causes[numbers[0]],
            causes=members[number],
            file=_file(row),
            evidence=row["evidence"],
            diagnosis=row["diagnosis"],
            detail=row["detail"],
            cases=cases[number],
            overloads=spread["overload"][number],
            dtypes=spread["dtype"][number],
            converters=spread["converter"][number],
            backends=spread["backend"][number],
            case_id=row["case_id"],
            invocation=row["invocation"],
            message=row["message"],
            ordinary=ordinary.get(number),
            minimal=min(shrunk[number], key=lambda m: (m.elements, len(m.invocation), m.minimal_id), default=None),
            known=tuple(dict.fromkeys(issue for n in numbers for issue in matching[n])),
            callers=callers[number].number,
            priority=failure_priority(Outcome(row["outcome"]), callers[number]),
        )
        for number, (numbers, row) in enumerate(zip(together, smallest, strict=True))
    ]


def _examples(rows: CodedRows, cause: Numbers) -> Numbers:
    """The place of the case that stands for each cause: the smallest ordinary one, or else the smallest."""
    found = rows.smallest(cause)
    places = np.flatnonzero(rows.ordinary)
    if len(places):
        causes, dense = np.unique(cause[places], return_inverse=True)
        found[causes] = rows.smallest(dense, places)
    return found


def _calls_of_models(rows: CodedRows, group: Numbers) -> tuple[Mapping[str, tuple[int, ...]], dict[int, set[str]]]:
    """The failing cases that are calls of models, with these models; and those of each group. None in a run that
    does not take cases from models: a drawn case that happens to be such a call says nothing of the others."""
    if "use" not in rows.words("source").to_pylist():
        return {}, {}
    known = callers_by_case()
    words = rows.words("case_id").to_pylist()
    models = {number: known[word] for number, word in enumerate(words) if word in known}
    cases = rows.numbers("case_id")
    own: dict[int, set[str]] = {}
    for place in np.flatnonzero(np.isin(cases, list(models))).tolist():
        own.setdefault(int(group[place]), set()).add(words[cases[place]])
    return {words[number]: its for number, its in models.items()}, own


def _file(row: Mapping[str, Any]) -> str:
    """Of the function that is wrong; "" for another place."""
    return str(json.loads(row["diagnosis"]).get("file", "")) if row["diagnosis"] else ""


def cause_facts(rows: CodedRows, causes: Sequence[RootCause], cause: Numbers, origin: Numbers) -> list[CauseFacts]:
    """What the rows of each root cause have in common; `origin` is the row of the record that each is about."""
    cases, structures, details = (rows.numbers(name) for name in ("case_id", "structure_id", "detail"))
    kinds = [detail.element for detail in rows.details]
    worst = np.array([Outcome(word).severity for word in rows.words("outcome").to_pylist()])
    with_it = _with_it(cause, origin, len(causes))
    order = np.argsort(cause, kind="stable")
    parts = np.split(order, np.searchsorted(cause[order], np.arange(1, len(causes))))
    return [
        CauseFacts(
            cause=causes[number],
            rows=len(part),
            severity=int(worst[rows.numbers("outcome")[part]].min()),
            cases=frozenset(cases[part].tolist()),
            structures=frozenset(structures[part].tolist()),
            with_it=with_it[number],
            elements=frozenset(filter(None, (kinds[n] for n in np.unique(details[part]).tolist()))),
        )
        for number, part in enumerate(parts)
    ]


def _with_it(cause: Numbers, origin: Numbers, count: int) -> list[frozenset[int]]:
    """The causes that one row of the record has at the same time with each."""
    found: list[set[int]] = [set() for _ in range(count)]
    rows, counts = np.unique(origin, return_counts=True)
    several = np.isin(origin, rows[counts > 1])
    by_row: defaultdict[int, set[int]] = defaultdict(set)
    for row, number in zip(origin[several].tolist(), cause[several].tolist(), strict=True):
        by_row[row].add(number)
    for numbers in by_row.values():
        for number in numbers:
            found[number] |= numbers - {number}
    return list(map(frozenset, found))


def _ordinary(rows: CodedRows, group: Numbers) -> dict[int, OrdinaryFailures]:
    """The ordinary cases among failed rows, by group; without the groups that have none."""
    places = np.flatnonzero(rows.ordinary)
    if not len(places):
        return {}
    groups, dense = np.unique(group[places], return_inverse=True)
    smallest = rows.at(rows.smallest(dense, places), ("case_id", "invocation", "message"))
    pairs = np.unique(np.stack([dense, rows.numbers("case_id")[places]]), axis=1)
    cases = np.bincount(pairs[0])
    of_ordinary = np.full(len(group), -1)
    of_ordinary[places] = group[places]
    named = failing_pairs(rows, of_ordinary)
    return {
        number: OrdinaryFailures(cases=count, pairs=frozenset(named[number]), **row)
        for number, count, row in zip(groups.tolist(), cases.tolist(), smallest, strict=True)
    }


def _distinct(group: Numbers, values: Numbers) -> list[int]:
    """How many different values each group has."""
    size = int(values.max()) + 1
    pairs = np.sort(group * size + values)
    counts: list[int] = np.bincount(pairs[np.diff(pairs, prepend=-1) > 0] // size).tolist()
    return counts


def _spread(rows: CodedRows, group: Numbers, name: str) -> list[tuple[str, ...]]:
    """The words of a column that each group has, sorted; of the backends those that took part."""
    words = rows.words(name).to_pylist()
    there = np.zeros((int(group.max()) + 1, len(words)), dtype=bool)
    part = np.ones(len(group), dtype=bool)
    if name == "backend":
        late = [Stage(stage) not in BEFORE_BACKEND for stage in rows.words("stage").to_pylist()]
        part = np.array(late)[rows.numbers("stage")]
    there[group[part], rows.numbers(name)[part]] = True
    return [tuple(sorted(words[n] for n in np.flatnonzero(line).tolist())) for line in there]


#: As a shrunk case names where it comes from.
_PLACE = ("case_id", "converter", "backend")


def _shrunk(
    rows: CodedRows, group: Numbers, dtypes: Sequence[tuple[str, ...]], minimal: Sequence[Minimal]
) -> defaultdict[int, list[Minimal]]:
    """The shrunk cases of each group, given its dtypes.

    A case may be shrunk to one that fails in the same words and belongs to another group.
    """
    by_place = {(m.case_id, m.converter, m.backend): m for m in minimal}
    of_them = pc.is_in(rows.words("case_id"), pa.array({m.case_id for m in minimal}, pa.string())).to_numpy(False)
    places = np.flatnonzero(of_them[rows.numbers("case_id")])
    found: defaultdict[int, list[Minimal]] = defaultdict(list)
    for number, row in zip(group[places].tolist(), rows.at(places, (*_PLACE, *_SAME)), strict=True):
        known = by_place.get(tuple(row[name] for name in _PLACE))
        if known is None or not all(getattr(known, name) == row[name] for name in _SAME):
            continue
        if _dtype(known.invocation) in (*dtypes[number], ""):
            found[number].append(known)
    return found


def _dtype(invocation: str) -> str:
    """Of an invocation; "" for one of another version."""
    try:
        return Invocation.from_json(invocation).dtype
    except InvalidInvocation:
        return ""


#: What a shrunk case has in common with the case that it was shrunk from, to be of its group.
_SAME = ("blame", "component", "place", "fault")


def _matching(rows: CodedRows, cause: Numbers, known: Sequence[KnownIssue]) -> list[list[KnownIssue]]:
    """The known defects of each cause, in the order of the rows that show them first."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, issue in enumerate(known):
        for place in rows.holding(issue.conditions(failure=True), cause):
            found[int(cause[place])].append((place, number))
    return [[known[number] for _, number in sorted(found[of])] for of in range(int(cause.max()) + 1)]


def _badness(group: FailureGroup) -> tuple[Any, ...]:
    where = group.overloads[0], group.converter, group.backend, group.signature
    kind = group.outcome.severity, not group.ordinary
    return group.blame == SPEC, -group.priority, *kind, -group.cases, *where
