"""Group failures so that one defect is one group, ordered by how much it affects users.

The order is by `harness.causes.priority`; what a specification leaves undefined comes last.
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

from harness.causes.cause import CAUSE_COLUMNS, RootCause
from harness.causes.failure_match import call_text
from harness.causes.known_issues import KnownIssue
from harness.causes.model_use import Pair, model_use
from harness.causes.priority import callers_of_failure, failing_pairs, failure_priority
from harness.causes.rows import PROBLEMS, CodedRows, each_problem
from harness.causes.rules import RULES, CauseFacts, Rule, merge_causes
from harness.compare.verdict import BEFORE_BACKEND, SPEC, UNKNOWN, Outcome, Stage
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
#: Prefix of the place when the conversion function can only be determined by running the converter.
UNKNOWN_FUNCTION = "conversion of "


@dataclass(frozen=True, kw_only=True)
class OrdinaryFailures:
    """The cases of a group that are ordinary use of their operator.

    Attributes:
        cases: The number of cases.
        case_id: The id of the smallest case.
        invocation: The smallest case's invocation, as JSON.
        message: The smallest case's failure message.
        overload: The smallest case's operator, which may be another than the group's, like the next four.
        stage: The stage at which it ended.
        outcome: How it ended.
        converter: Its converter.
        backend: Its backend; "" if none was involved.
        pairs: The overloads and dtypes of all cases.
    """

    cases: int
    case_id: str
    invocation: str
    message: str
    overload: str
    stage: str
    outcome: str
    converter: str
    backend: str
    pairs: frozenset[Pair] = frozenset()

    @cached_property
    def call(self) -> str:
        """The smallest invocation as a person would write it."""
        return call_text(self.invocation)


class GroupKind(StrEnum):
    """The kind of a group of failures: a defect of a component, a declared gap, not decided, or allowed by a
    specification."""

    DEFECT = "defect"
    GAP = "declared gap"
    UNDECIDED = "undecided"
    LEFT_OPEN = "left open"


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """Failures that look like one defect.

    Attributes:
        converter: The smallest case's converter.
        backend: The smallest case's backend; "" if the case failed before the backend was involved.
        stage: The smallest case's stage, like `outcome` and `signature`.
        cause: The most informative root cause.
        causes: All root causes that were merged with it.
        cases: The number of cases.
        overloads: The affected operators, sorted, like `dtypes` and `converters`.
        backends: The affected backends, sorted; empty if none was involved.
        case_id: The smallest ordinary case, or the smallest if none is ordinary: fewest tensor elements, then shortest
            JSON.
        invocation: The smallest case's invocation, as JSON.
        message: The smallest case's failure message.
        overload: The smallest case's operator.
        file: The file of the wrong function; "" if the place is not a function or its file is unknown.
        evidence: Only in records of an early version: the evidence for the smallest case's blame.
        diagnosis: The smallest case's diagnosis, as recorded.
        detail: The smallest case's detail, as recorded.
        ordinary: The cases that are ordinary use of their operator; None if all are edge cases.
        minimal: The smallest case that a case of the group was shrunk to and that belongs to the group too; else None.
        known: Matching known issues.
        callers: The number of models (`harness.causes.model_use`) that call one of the operators in a dtype of the
            ordinary cases, or of the edge cases if there are no ordinary ones.
        priority: A number from 0 to 1; see `harness.causes.priority`.
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
    overload: str
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
        """The blamed component: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``."""
        return self.cause.blame

    @property
    def kind(self) -> GroupKind:
        """The kind of the group."""
        if self.blame == SPEC:
            return GroupKind.LEFT_OPEN
        if self.outcome is Outcome.UNSUPPORTED:
            return GroupKind.GAP
        return GroupKind.UNDECIDED if self.blame == UNKNOWN else GroupKind.DEFECT

    @property
    def rule(self) -> str:
        """The user's conversion functions that took part; "" if there are none."""
        return self.cause.rule

    @cached_property
    def call(self) -> str:
        """The smallest invocation as a person would write it."""
        return call_text(self.minimal.invocation if self.minimal else self.invocation)

    @property
    def ordinary_cases(self) -> int:
        """The number of cases that are ordinary use of their operator."""
        return self.ordinary.cases if self.ordinary else 0

    @property
    def usual(self) -> FailureGroup | OrdinaryFailures:
        """The case to show first: the smallest ordinary one if models meet the failure, or else the smallest."""
        return self.ordinary if self.callers and self.ordinary else self

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data, as ``conformance failures --json`` prints it."""
        names = ("outcome", "stage", "blame", "cases", "ordinary_cases", "rule", "callers", "priority", "file")
        spread = ("overloads", "dtypes", "converters", "backends")
        smallest = ("case_id", "converter", "backend", "signature", "message", "invocation")
        return {
            **{name: getattr(self, name) for name in names},
            "owner": self.cause.owner,
            **{name: getattr(self.cause, name) for name in ("component", "place", "fault", "symptom", "choice")},
            **{name: getattr(self, name) for name in spread},
            "smallest": {name: getattr(self, name) for name in smallest},
            "minimal": minimal_data(self.minimal),
            "known": [issue.to_data() for issue in self.known],
        }


def minimal_data(minimal: Minimal | None) -> dict[str, Any] | None:
    """Return a shrunk case as plain JSON data."""
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
    """Group the failures among a record's rows by cause, by priority; those that a specification allows come last.

    A case with several problems is in the group of each.

    Args:
        verdicts: Rows of the record with at least `COLUMNS`.
        minimal: Shrunk cases of the same run.
        known: Known issues to match with the groups.
        by_overload: Group each operator's failures separately.
        rules: The rules that merge root causes.
    """
    table = verdicts.select(COLUMNS)
    failed = pc.is_in(table["outcome"], pa.array(FAILURES))
    table, origin = each_problem(table if pc.all(failed).as_py() in (True, None) else table.filter(failed))
    rows = CodedRows(table)
    if not len(rows):
        return []
    causes, cause = rows.causes
    if by_overload:
        # The operator becomes part of the cause.
        size = len(causes)
        packed, cause = np.unique(rows.numbers("overload") * size + cause, return_inverse=True)
        causes = [causes[old % size] for old in packed.tolist()]
        merged = _merge_by_part(cause_facts(rows, causes, cause, origin), (packed // size).tolist())
    else:
        merged = merge_causes(cause_facts(rows, causes, cause, origin), rules)
    group_of = np.empty(len(causes), dtype=np.int64)
    for number, members in enumerate(merged):
        group_of[members] = number
    return sorted(_groups(rows, causes, cause, group_of[cause], merged, minimal, known), key=_sort_key)


def _merge_by_part(facts: Sequence[CauseFacts], parts: Sequence[int]) -> list[list[int]]:
    """Merge causes that are one defect, separately for each part."""
    merged = []
    for part in dict.fromkeys(parts):
        numbers = [number for number, its in enumerate(parts) if its == part]
        place = {number: n for n, number in enumerate(numbers)}
        members_facts = [
            replace(facts[number], simultaneous=frozenset(place[n] for n in facts[number].simultaneous if n in place))
            for number in numbers
        ]
        merged += [[numbers[n] for n in members] for members in merge_causes(members_facts)]
    return merged


def _groups(
    rows: CodedRows,
    causes: Sequence[RootCause],
    cause: Numbers,
    group: Numbers,
    merged: Sequence[Sequence[int]],
    minimal: Sequence[Minimal],
    known: Sequence[KnownIssue],
) -> list[FailureGroup]:
    first = np.array([members[0] for members in merged])
    smallest = rows.at(_examples(rows, cause)[first], rows.table.column_names)
    matching = _matching(rows, cause, known)
    spread = {name: _spread(rows, group, name) for name in ("overload", "dtype", "converter", "backend")}
    cases = _distinct(group, rows.numbers("case_id"))
    members = [frozenset(causes[n] for n in numbers) for numbers in merged]
    shrunk = _shrunk(rows, group, spread["dtype"], minimal)
    ordinary, pairs, use = _ordinary(rows, group), failing_pairs(rows, group), model_use()
    usual = {number: failures.pairs for number, failures in ordinary.items()}
    models_by_case, model_calls = _calls_of_models(rows, group)
    as_made = callers_by_case(as_made=True)
    callers = [
        callers_of_failure(
            model_calls.get(number, ()), usual.get(number, ()), pairs[number], use, models_by_case, as_made
        )
        for number in range(len(merged))
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
            overload=row["overload"],
            ordinary=ordinary.get(number),
            minimal=min(shrunk[number], key=lambda m: (m.elements, len(m.invocation), m.minimal_id), default=None),
            known=tuple(dict.fromkeys(issue for n in numbers for issue in matching[n])),
            callers=callers[number].number,
            priority=failure_priority(Outcome(row["outcome"]), callers[number]),
        )
        for number, (numbers, row) in enumerate(zip(merged, smallest, strict=True))
    ]


def _examples(rows: CodedRows, cause: Numbers) -> Numbers:
    """Return the row that represents each cause: the smallest ordinary case, or else the smallest case."""
    examples = rows.smallest(cause)
    places = np.flatnonzero(rows.ordinary)
    if len(places):
        causes, dense = np.unique(cause[places], return_inverse=True)
        examples[causes] = rows.smallest(dense, places)
    return examples


def _calls_of_models(rows: CodedRows, group: Numbers) -> tuple[Mapping[str, tuple[int, ...]], dict[int, set[str]]]:
    """Return the failing cases that are calls of models, with these models, and the ids of such cases in each group.

    Both are empty for a run that does not take cases from models: a drawn case that equals a model's call by chance
    would not represent the others.
    """
    if "use" not in rows.words("source").to_pylist():
        return {}, {}
    known = callers_by_case()
    words = rows.words("case_id").to_pylist()
    models = {number: known[word] for number, word in enumerate(words) if word in known}
    cases = rows.numbers("case_id")
    by_group: dict[int, set[str]] = {}
    for place in np.flatnonzero(np.isin(cases, list(models))).tolist():
        by_group.setdefault(int(group[place]), set()).add(words[cases[place]])
    return {words[number]: its for number, its in models.items()}, by_group


def _file(row: Mapping[str, Any]) -> str:
    """Return the file of the wrong function; "" for any other place."""
    return str(json.loads(row["diagnosis"]).get("file", "")) if row["diagnosis"] else ""


def cause_facts(rows: CodedRows, causes: Sequence[RootCause], cause: Numbers, origin: Numbers) -> list[CauseFacts]:
    """Return what the rows of each root cause have in common; `origin` maps each row to its row in the record."""
    cases, structures, details = (rows.numbers(name) for name in ("case_id", "structure_id", "detail"))
    kinds = [detail.element for detail in rows.details]
    mixed = np.array([detail.has_wrong_numbers for detail in rows.details])
    worst = np.array([Outcome(word).severity for word in rows.words("outcome").to_pylist()])
    simultaneous = _simultaneous_causes(cause, origin, len(causes))
    order = np.argsort(cause, kind="stable")
    parts = np.split(order, np.searchsorted(cause[order], np.arange(1, len(causes))))
    return [
        CauseFacts(
            cause=causes[number],
            rows=len(part),
            severity=int(worst[rows.numbers("outcome")[part]].min()),
            cases=frozenset(cases[part].tolist()),
            structures=frozenset(structures[part].tolist()),
            simultaneous=simultaneous[number],
            elements=frozenset(kinds[n] for n in np.unique(details[part]).tolist()),
            has_wrong_numbers=bool(2 * mixed[details[part]].sum() > len(part)),
        )
        for number, part in enumerate(parts)
    ]


def _simultaneous_causes(cause: Numbers, origin: Numbers, count: int) -> list[frozenset[int]]:
    """Return for each cause the other causes that occur in the same row of the record."""
    simultaneous: list[set[int]] = [set() for _ in range(count)]
    rows, counts = np.unique(origin, return_counts=True)
    several = np.isin(origin, rows[counts > 1])
    by_row: defaultdict[int, set[int]] = defaultdict(set)
    for row, number in zip(origin[several].tolist(), cause[several].tolist(), strict=True):
        by_row[row].add(number)
    for numbers in by_row.values():
        for number in numbers:
            simultaneous[number] |= numbers - {number}
    return list(map(frozenset, simultaneous))


def _ordinary(rows: CodedRows, group: Numbers) -> dict[int, OrdinaryFailures]:
    """Return the ordinary cases among failed rows by group, without groups that have none."""
    places = np.flatnonzero(rows.ordinary)
    if not len(places):
        return {}
    groups, dense = np.unique(group[places], return_inverse=True)
    names = ("case_id", "invocation", "message", "overload", "stage", "outcome", "converter", "backend")
    smallest = rows.at(rows.smallest(dense, places), names)
    pairs = np.unique(np.stack([dense, rows.numbers("case_id")[places]]), axis=1)
    cases = np.bincount(pairs[0])
    ordinary_group = np.full(len(group), -1)
    ordinary_group[places] = group[places]
    named = failing_pairs(rows, ordinary_group)
    return {
        number: OrdinaryFailures(cases=count, pairs=frozenset(named[number]), **row)
        for number, count, row in zip(groups.tolist(), cases.tolist(), smallest, strict=True)
    }


def _distinct(group: Numbers, values: Numbers) -> list[int]:
    """Return the number of distinct values in each group."""
    size = int(values.max()) + 1
    pairs = np.sort(group * size + values)
    counts: list[int] = np.bincount(pairs[np.diff(pairs, prepend=-1) > 0] // size).tolist()
    return counts


def _spread(rows: CodedRows, group: Numbers, name: str) -> list[tuple[str, ...]]:
    """Return the distinct values of a column in each group, sorted; for backends only those that were involved."""
    words = rows.words(name).to_pylist()
    present = np.zeros((int(group.max()) + 1, len(words)), dtype=bool)
    part = np.ones(len(group), dtype=bool)
    if name == "backend":
        late = [Stage(stage) not in BEFORE_BACKEND for stage in rows.words("stage").to_pylist()]
        part = np.array(late)[rows.numbers("stage")]
    present[group[part], rows.numbers(name)[part]] = True
    return [tuple(sorted(words[n] for n in np.flatnonzero(line).tolist())) for line in present]


#: The columns by which a shrunk case refers to the recorded one.
_PLACE = ("case_id", "converter", "backend")


def _shrunk(
    rows: CodedRows, group: Numbers, dtypes: Sequence[tuple[str, ...]], minimal: Sequence[Minimal]
) -> defaultdict[int, list[Minimal]]:
    """Return the shrunk cases of each group, given the groups' dtypes.

    A case may be shrunk to one that fails with the same message but belongs to another group.
    """
    by_place = {(m.case_id, m.converter, m.backend): m for m in minimal}
    is_shrunk = pc.is_in(rows.words("case_id"), pa.array({m.case_id for m in minimal}, pa.string())).to_numpy(False)
    places = np.flatnonzero(is_shrunk[rows.numbers("case_id")])
    by_group: defaultdict[int, list[Minimal]] = defaultdict(list)
    for number, row in zip(group[places].tolist(), rows.at(places, (*_PLACE, *_SAME)), strict=True):
        shrunk = by_place.get(tuple(row[name] for name in _PLACE))
        if shrunk is None or not all(getattr(shrunk, name) == row[name] for name in _SAME):
            continue
        if _dtype(shrunk.invocation) in (*dtypes[number], ""):
            by_group[number].append(shrunk)
    return by_group


def _dtype(invocation: str) -> str:
    """Return an invocation's dtype; "" if another version wrote it."""
    try:
        return Invocation.from_json(invocation).dtype
    except InvalidInvocation:
        return ""


#: What a shrunk case must have in common with the recorded one to belong to its group.
_SAME = ("blame", "component", "place", "fault")


def _matching(rows: CodedRows, cause: Numbers, known: Sequence[KnownIssue]) -> list[list[KnownIssue]]:
    """Return the known issues of each cause, in the order of the first rows that match them."""
    by_cause: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, issue in enumerate(known):
        for place in rows.matching(issue.conditions(failure=True), cause):
            by_cause[int(cause[place])].append((place, number))
    return [[known[number] for _, number in sorted(by_cause[c])] for c in range(int(cause.max()) + 1)]


def _sort_key(group: FailureGroup) -> tuple[Any, ...]:
    where = group.overloads[0], group.converter, group.backend, group.signature
    kind = group.outcome.severity, not group.ordinary
    # A failure of a model's own call comes before one that is only drawn, whatever the operator's use.
    return group.blame == SPEC, not group.callers, -group.priority, *kind, -group.cases, *where
