"""Failures grouped so that one defect is one group, those that users meet first.

`harness.analyse.priority` has the formula of the order. What a specification leaves open comes last.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.analyse.blamed_place import BEFORE_BACKEND
from harness.analyse.call_conditions import call_conditions
from harness.analyse.coded_rows import CodedRows
from harness.analyse.converter_place import told_place
from harness.analyse.failure_key import SPEECHLESS, Cause, cause_of
from harness.analyse.known_issues import KnownIssue, call as call
from harness.analyse.located_causes import located_causes
from harness.analyse.ordinary_failures import OrdinaryFailures, ordinary_failures
from harness.analyse.priority import failing_pairs, failure_priority
from harness.analyse.problem_rows import PROBLEMS, each_problem
from harness.analyse.united_causes import SEVERITY, FailedRows, severity, united_causes
from harness.analyse.united_conditions import ignored_arguments
from harness.analyse.use_weights import model_use
from harness.compare import Outcome, Stage
from harness.core import InvalidInvocation, Invocation, count, listed, plain, shown
from harness.record import LocatedFailure, Minimal, Numbers

COLUMNS = (
    *("case_id", "overload", "family", "dtype", "converter", "backend", "stage"),
    *("outcome", "blame", "evidence", "signature", "message", "rule", "invocation", "structure_id"),
    PROBLEMS,
)
FAILURES = [str(outcome) for outcome in Outcome if outcome.is_failure]
FAILED = pc.field("outcome").isin(FAILURES)
#: As a shrunk case names where it comes from.
_PLACE = ("case_id", "converter", "backend")

#: Of a file, for a terminal.
_FOLDERS = re.compile(r"(?<= in )\S+/")
#: Nobody's defect: the specification leaves the result open.
SPEC = "spec"


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """Failures that look like one defect.

    Attributes:
        converter: The smallest case's, as are stage, outcome and signature.
        backend: Name; "" if the case failed before it got to one.
        blame: Whose defect it is: ``converter``, ``backend``, ``pytorch``, ``spec`` or ``unknown``.
        evidence: What the smallest case's blame rests on.
        place: Where the defect is: ``ort-cpu: Sigmoid``.
        cause: What is wrong there, in words.
        cases: How many there are.
        overloads: In which operators, sorted, as are dtypes and converters.
        backends: In which backends, sorted; empty where none took part.
        case_id: The smallest case: fewest tensor elements, then shortest JSON.
        invocation: The smallest case's, JSON.
        message: The smallest case's failure in its own words.
        ordinary: Those of its cases that are ordinary use of their operator; None where all are edge cases.
        minimal: What a case of the group was shrunk to and belongs to it, too; None where none was.
        known: Entries of the list of known defects that match.
        causes: What `harness.analyse.failure_key.cause_of` says of its rows: several where one wrong model
            fails in several ways.
        rule: The user's conversion functions that took part, the same in all rows; "" for none.
        line: Of the converter, that one of the cases comes of; None where none was looked for or found.
        callers: How many models (`harness.analyse.use_weights`) call one of its operators in a dtype of its
            ordinary cases, or of its edge cases where there are no others.
        priority: From 0 to 1; see `harness.analyse.priority`.
    """

    converter: str
    backend: str
    stage: Stage
    outcome: Outcome
    signature: str
    blame: str
    evidence: str
    place: str
    cause: str
    cases: int
    overloads: tuple[str, ...]
    dtypes: tuple[str, ...]
    converters: tuple[str, ...]
    backends: tuple[str, ...]
    case_id: str
    invocation: str
    message: str
    ordinary: OrdinaryFailures | None = None
    minimal: Minimal | None = None
    known: tuple[KnownIssue, ...] = ()
    causes: frozenset[Cause] = frozenset()
    rule: str = ""
    line: LocatedFailure | None = None
    callers: int = 0
    priority: float = 0.0

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
        names = (
            "outcome",
            "stage",
            "blame",
            "place",
            "cause",
            "cases",
            "ordinary_cases",
            "rule",
            "callers",
            "priority",
        )
        spread = ("overloads", "dtypes", "converters", "backends")
        smallest = ("case_id", "converter", "backend", "signature", "message", "evidence", "invocation")
        return {
            **{name: getattr(self, name) for name in (*names, *spread)},
            "smallest": {name: getattr(self, name) for name in smallest},
            "line": asdict(self.line) if self.line else None,
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


def render(groups: Sequence[FailureGroup], limit: int | None = 10) -> RenderableType:
    """The groups, worst first, for a terminal, with what distinguishes each and its smallest case.

    No more than `limit` are shown; all for None.
    """
    return Group(*_blocks(groups, limit))


def _blocks(groups: Sequence[FailureGroup], limit: int | None) -> Iterator[RenderableType]:
    defects = [group for group in groups if group.blame != SPEC]
    left_open = [group for group in groups if group.blame == SPEC]
    if defects:
        yield Text(f"{count(len(defects), 'distinct failure')}, worst first", style="bold")
    yield from _numbered(defects, limit, start=1)
    if left_open:
        title = f"{count(len(left_open), 'difference')} that the specification leaves open: nobody's defect"
        yield Text(title, style="bold")
    shown_defects = len(defects) if limit is None else min(limit, len(defects))
    yield from _numbered(left_open, None if limit is None else limit - shown_defects, start=len(defects) + 1)


def _numbered(groups: Sequence[FailureGroup], limit: int | None, start: int) -> Iterator[RenderableType]:
    for number, group in enumerate(groups[:limit], start=start):
        yield from _block(number, group)
    hidden = Counter(group.outcome for group in groups[len(groups) if limit is None else limit :])
    if hidden:
        kinds = ", ".join(f"{hidden[outcome]} {outcome}" for outcome in SEVERITY if hidden[outcome])
        yield Text(f"and {hidden.total()} more: {kinds}", style="bold")


def _block(number: int, group: FailureGroup) -> Iterator[RenderableType]:
    path = listed(group.converters, 3)
    if group.backends:
        path += f" → {listed(group.backends, 4)}"
    more = "" if group.blame in ("", "unknown") else f", blame: {group.blame}"
    more += f", by the rule {plain(group.rule)}" if group.rule else ""
    yield Text.assemble(
        f"{number:>3} ",
        (str(group.outcome), "bold red"),
        f" at {group.stage}, {plain(path)}, {count(group.cases, 'case')}",
        f" ({group.ordinary_cases:,} ordinary), " if group.ordinary else ", ",
        plain(listed(group.dtypes, 6)),
        f", called by {count(group.callers, 'model')}" if group.callers else "",
        more,
    )
    said = group.message if group.outcome in SPEECHLESS else group.signature
    wrong = f": {group.cause}" if group.outcome in SPEECHLESS else ""
    details: list[RenderableType] = [
        shown(f"{_FOLDERS.sub('', group.place)}{wrong}", style="bold", limit=240),
        shown(f"{count(len(group.overloads), 'operator')}: {listed(group.overloads, 4)}", style="cyan"),
        shown(said or group.signature or group.message, limit=240),
    ]
    which = f"minimal: {group.minimal.minimal_id}" if group.minimal else f"smallest: {group.case_id}"
    details += [shown(f"{which} {group.call}", limit=400)]
    if group.minimal and group.minimal.matters:
        details += [shown("; ".join(group.minimal.matters), limit=240)]
    # A link is there to be clicked or copied.
    links = (f"known: {plain(issue.link)}" for issue in group.known[:3])
    details += [Text(link, no_wrap=True, overflow="ignore") for link in links]
    yield Padding(Group(*details), (0, 0, 0, 4), expand=False)


def failure_groups(
    verdicts: pa.Table,
    minimal: Sequence[Minimal] = (),
    known: Sequence[KnownIssue] = (),
    *,
    located: Sequence[LocatedFailure] = (),
    by_overload: bool = False,
) -> list[FailureGroup]:
    """Group the failures among a record's rows by their cause, in order of priority, those of nobody last.

    A case with several problems is in the group of each.

    Args:
        verdicts: Rows of the record; only `COLUMNS` are looked at.
        minimal: Shrunk cases of the same run.
        known: Known defects, to be named with the groups that they match.
        located: Lines of converters that cases of the same runs were traced to.
        by_overload: Whether the failures of each operator are grouped as if there were no other.
    """
    table = verdicts.select(COLUMNS)
    failed = pc.is_in(table["outcome"], pa.array(FAILURES))
    table, origin = each_problem(table if pc.all(failed).as_py() in (True, None) else table.filter(failed))
    rows = CodedRows(table)
    if not len(rows):
        return []
    placed = located_causes(rows, located)
    if by_overload:
        placed = placed.by_overload(rows.numbers("overload"))
    causes, cause = placed.causes, placed.cause
    case, structure = rows.numbers("case_id"), rows.numbers("structure_id")
    looked_at = FailedRows(
        cause=cause,
        case=case,
        structure=structure,
        origin=origin,
        overload=rows.numbers("overload"),
        converter=rows.numbers("converter"),
        conditions=call_conditions(rows, cause, len(causes), ignored_arguments(one.words for one in causes)),
    )
    united = united_causes(causes, placed.parts, looked_at)
    group_of = np.empty(len(causes), dtype=np.int64)
    for number, together in enumerate(united):
        group_of[together] = number
    group = group_of[cause]
    smallest = rows.at(rows.smallest(cause)[[first for first, *_ in united]], table.column_names)
    matching = _matching(rows, cause, known)
    spread = {name: _spread(rows, group, name) for name in ("overload", "dtype", "converter", "backend")}
    cases = _distinct(group, case)
    members = [frozenset[Cause]().union(*(placed.before[n] for n in together)) for together in united]
    shrunk = _shrunk(rows, group, members, spread["dtype"], minimal)
    ordinary, pairs, use = ordinary_failures(rows, group), failing_pairs(rows, group), model_use()
    usual = {number: of_group.pairs for number, of_group in ordinary.items()}
    found = [
        FailureGroup(
            converter=row["converter"],
            backend="" if Stage(row["stage"]) in BEFORE_BACKEND else row["backend"],
            stage=Stage(row["stage"]),
            outcome=Outcome(row["outcome"]),
            signature=row["signature"],
            blame=causes[together[0]].blame,
            evidence=row["evidence"],
            place=_place(causes[together[0]], row["converter"], spread["overload"][number]),
            cause=causes[together[0]].words,
            cases=cases[number],
            overloads=spread["overload"][number],
            dtypes=spread["dtype"][number],
            converters=spread["converter"][number],
            backends=spread["backend"][number],
            case_id=row["case_id"],
            invocation=row["invocation"],
            message=row["message"],
            ordinary=ordinary.get(number),
            minimal=min(
                shrunk[number], key=lambda m: (m.elements, len(m.invocation), m.minimal_id), default=None
            ),
            known=tuple(dict.fromkeys(issue for one in together for issue in matching[one])),
            causes=members[number],
            rule=row["rule"],
            line=next((placed.lines[n] for n in together if n in placed.lines), None),
            callers=len(use.callers(usual.get(number) or pairs[number])),
            priority=failure_priority(Outcome(row["outcome"]), usual.get(number, ()), pairs[number], use),
        )
        for number, (together, row) in enumerate(zip(united, smallest, strict=True))
    ]
    return sorted(found, key=_badness)


def _place(cause: Cause, converter: str, overloads: Sequence[str]) -> str:
    """Where a defect is, for people."""
    if cause.blame != "converter" or cause.rule:
        return str(cause.place)
    return told_place(cause.place, converter, overloads)


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


def _shrunk(
    rows: CodedRows,
    group: Numbers,
    causes: Sequence[frozenset[Cause]],
    dtypes: Sequence[tuple[str, ...]],
    minimal: Sequence[Minimal],
) -> defaultdict[int, list[Minimal]]:
    """The shrunk cases of each group, given its causes and dtypes.

    A case may be shrunk to one that fails alike and belongs to another group, by its dtype or its blame.
    """
    by_place = {(m.case_id, m.converter, m.backend): m for m in minimal}
    of_them = pc.is_in(rows.words("case_id"), pa.array({m.case_id for m in minimal}, pa.string())).to_numpy(
        False
    )
    places = np.flatnonzero(of_them[rows.numbers("case_id")])
    found: defaultdict[int, list[Minimal]] = defaultdict(list)
    for number, row in zip(group[places].tolist(), rows.at(places, (*_PLACE, "rule")), strict=True):
        found_here = by_place.get(tuple(row[name] for name in _PLACE))
        if (
            found_here is not None
            and cause_of({**vars(found_here), "rule": row["rule"]}) in causes[number]
            and _dtype(found_here.invocation) in (*dtypes[number], "")
        ):
            found[number].append(found_here)
    return found


def _dtype(invocation: str) -> str:
    """Of an invocation; "" for one of another version."""
    try:
        return Invocation.from_json(invocation).dtype
    except InvalidInvocation:
        return ""


def _matching(rows: CodedRows, cause: Numbers, known: Sequence[KnownIssue]) -> list[list[KnownIssue]]:
    """The known defects of each cause, in the order of the rows that show them first."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for number, issue in enumerate(known):
        for place in rows.holding(issue.conditions(failure=True), cause):
            found[int(cause[place])].append((place, number))
    return [[known[number] for _, number in sorted(found[of])] for of in range(int(cause.max()) + 1)]


def _badness(group: FailureGroup) -> tuple[Any, ...]:
    where = group.overloads[0], group.converter, group.backend, group.signature
    kind = severity(group.outcome), not group.ordinary
    return group.blame == SPEC, -group.priority, *kind, -group.cases, *where
