"""Failures grouped so that one defect is one group, worst first."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.analyse.failure_key import BEFORE_BACKEND, SPEECHLESS, Cause, cause_of
from harness.analyse.known_issues import KnownIssue, call as call
from harness.compare import Outcome, Stage
from harness.core import InvalidInvocation, Invocation, count, listed, plain, shown
from harness.record import Minimal

COLUMNS = (
    *("case_id", "overload", "family", "dtype", "converter", "backend", "stage"),
    *("outcome", "blame", "evidence", "signature", "message", "invocation"),
)
FAILED = pc.field("outcome").isin([str(outcome) for outcome in Outcome if outcome.is_failure])

#: Worst first. Silently wrong numbers reach a user's users; a crash or a hang takes the program with it
#: but is noticed; an error is noticed and explained; a declared gap comes last.
SEVERITY = (Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR, Outcome.UNSUPPORTED)

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
        cause: What all have in common, in words.
        cases: How many there are.
        overloads: In which operators, sorted, as are dtypes and converters.
        backends: In which backends, sorted; empty where none took part.
        case_id: The smallest case: fewest tensor elements, then shortest JSON.
        invocation: The smallest case's, JSON.
        message: The smallest case's failure in its own words.
        minimal: What a case of the group was shrunk to; None where none was.
        known: Entries of the list of known defects that match.
        causes: What `harness.analyse.failure_key.cause_of` says of its rows: several where one wrong model
            fails in several ways.
    """

    converter: str
    backend: str
    stage: Stage
    outcome: Outcome
    signature: str
    blame: str
    evidence: str
    cause: str
    cases: int
    overloads: tuple[str, ...]
    dtypes: tuple[str, ...]
    converters: tuple[str, ...]
    backends: tuple[str, ...]
    case_id: str
    invocation: str
    message: str
    minimal: Minimal | None = None
    known: tuple[KnownIssue, ...] = ()
    causes: frozenset[Cause] = frozenset()

    @cached_property
    def call(self) -> str:
        """The smallest invocation as a person would write it."""
        return call(self.minimal.invocation if self.minimal else self.invocation)

    def to_data(self) -> dict[str, Any]:
        """Plain JSON data, as ``conformance failures --json`` prints it."""
        names = ("outcome", "stage", "blame", "cause", "cases")
        spread = ("overloads", "dtypes", "converters", "backends")
        smallest = ("case_id", "converter", "backend", "signature", "message", "evidence", "invocation")
        return {
            **{name: getattr(self, name) for name in (*names, *spread)},
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
    blame = () if group.blame in ("", "unknown") else (f", blame: {group.blame}",)
    yield Text.assemble(
        f"{number:>3} ",
        (str(group.outcome), "bold red"),
        f" at {group.stage}, {plain(path)}, {count(group.cases, 'case')}, ",
        plain(listed(group.dtypes, 6)),
        *blame,
    )
    said = group.message if group.outcome in SPEECHLESS else group.signature
    details: list[RenderableType] = [
        shown(listed(group.overloads, 4), style="cyan"),
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


@dataclass
class _Members:
    """A group that is being filled."""

    cause: Cause
    smallest: Mapping[str, Any]
    cases: set[str] = field(default_factory=set)
    overloads: set[str] = field(default_factory=set)
    dtypes: set[str] = field(default_factory=set)
    converters: set[str] = field(default_factory=set)
    backends: set[str] = field(default_factory=set)
    #: Case, converter and backend, as a shrunk case names where it comes from.
    places: set[tuple[str, str, str]] = field(default_factory=set)
    causes: set[Cause] = field(default_factory=set)
    known: dict[KnownIssue, None] = field(default_factory=dict)

    def add(self, row: Mapping[str, Any]) -> None:
        self.cases.add(row["case_id"])
        self.overloads.add(row["overload"])
        self.dtypes.add(row["dtype"])
        self.converters.add(row["converter"])
        if Stage(row["stage"]) not in BEFORE_BACKEND:
            self.backends.add(row["backend"])
        self.places.add((row["case_id"], row["converter"], row["backend"]))

    def take(self, other: _Members) -> None:
        """Everything of another group that is the same defect."""
        for name in ("cases", "overloads", "dtypes", "converters", "backends", "places", "causes"):
            getattr(self, name).update(getattr(other, name))
        self.known.update(other.known)


def failure_groups(
    verdicts: pa.Table, minimal: Sequence[Minimal] = (), known: Sequence[KnownIssue] = ()
) -> list[FailureGroup]:
    """Group the failures among a record's rows by their cause, worst first, those of nobody last.

    Args:
        verdicts: Rows of the record; only `COLUMNS` are looked at.
        minimal: Shrunk cases of the same run.
        known: Known defects, to be named with the groups that they match.
    """
    sizes: dict[str, tuple[float, int]] = {}
    groups: dict[Cause, _Members] = {}
    batches = verdicts.select(COLUMNS).filter(FAILED).to_batches(max_chunksize=1024)
    for row in chain.from_iterable(batch.to_pylist() for batch in batches):
        cause = cause_of(row)
        if row["case_id"] not in sizes:
            sizes[row["case_id"]] = _size(row["invocation"])
        group = groups.setdefault(cause, _Members(cause, row))
        if _order(row, sizes) < _order(group.smallest, sizes):
            group.smallest = row
        group.add(row)
        group.causes.add(cause)
        group.known |= {issue: None for issue in known if issue not in group.known and issue.matches(row)}
    shrunk = {(m.case_id, m.converter, m.backend): m for m in minimal}
    found = [_finish(members, shrunk) for members in _united(list(groups.values()))]
    return sorted(found, key=_badness)


def _united(groups: list[_Members]) -> list[_Members]:
    """Groups that show one wrong model in several backends as one.

    A converter's wrong model may give wrong numbers in one backend and an error in another: where the
    same case does both, it is one defect of the converter.
    """
    kept: list[_Members] = []
    by_place: defaultdict[tuple[str, str], list[_Members]] = defaultdict(list)
    for group in sorted(groups, key=lambda g: (_severity(g.cause.outcome), g.cause)):
        cause = group.cause
        if cause.blame != "converter" or Stage(cause.stage) in BEFORE_BACKEND:
            kept.append(group)
            continue
        alike = by_place[cause.converter, cause.operator]
        same = [other for other in alike if other.cases & group.cases]
        if not same:
            alike.append(group)
            kept.append(group)
            continue
        first, *others = same
        for other in (group, *others):
            first.take(other)
            if other is not group:
                alike.remove(other)
                kept.remove(other)
    return kept


def _finish(members: _Members, shrunk: Mapping[tuple[str, str, str], Minimal]) -> FailureGroup:
    row, cause = members.smallest, members.cause
    smaller = [shrunk[place] for place in members.places & shrunk.keys()]
    return FailureGroup(
        converter=row["converter"],
        backend="" if Stage(row["stage"]) in BEFORE_BACKEND else row["backend"],
        stage=Stage(row["stage"]),
        outcome=Outcome(row["outcome"]),
        signature=row["signature"],
        blame=cause.blame,
        evidence=row["evidence"],
        cause=cause.words,
        cases=len(members.cases),
        overloads=tuple(sorted(members.overloads)),
        dtypes=tuple(sorted(members.dtypes)),
        converters=tuple(sorted(members.converters)),
        backends=tuple(sorted(members.backends)),
        case_id=row["case_id"],
        invocation=row["invocation"],
        message=row["message"],
        minimal=min(smaller, key=lambda m: (m.elements, len(m.invocation), m.minimal_id), default=None),
        known=tuple(members.known),
        causes=frozenset(members.causes),
    )


def _size(invocation: str) -> tuple[float, int]:
    """Tensor elements and characters; an invocation of another version sorts last."""
    try:
        elements: float = sum(spec.numel for spec in Invocation.from_json(invocation).tensors())
    except InvalidInvocation:
        elements = math.inf
    return elements, len(invocation)


def _order(row: Mapping[str, Any], sizes: Mapping[str, tuple[float, int]]) -> tuple[Any, ...]:
    return (*sizes[row["case_id"]], row["case_id"], row["converter"], row["backend"])


def _severity(outcome: str) -> int:
    return SEVERITY.index(Outcome(outcome))


def _badness(group: FailureGroup) -> tuple[Any, ...]:
    where = group.overloads[0], group.converter, group.backend, group.signature
    return group.blame == SPEC, _severity(group.outcome), -group.cases, *where
