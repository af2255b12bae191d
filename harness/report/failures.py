"""Failures grouped so that one defect is one group, worst first."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from harness.invocation import InvalidInvocation, Invocation
from harness.report.plain import count, listed, plain, shown
from harness.verdict.verdict import Outcome, Stage

COLUMNS = (
    "case_id",
    "overload",
    "dtype",
    "converter",
    "backend",
    "stage",
    "outcome",
    "blame",
    "signature",
    "message",
    "invocation",
)
#: What the specification leaves open is nobody's failure.
FAILED = pc.field("outcome").isin([str(outcome) for outcome in Outcome if outcome.is_failure]) & (
    pc.field("blame") != "spec"
)

#: Worst first. Silently wrong numbers reach a user's users; a crash or a hang takes the program with it
#: but is noticed; an error is noticed and explained; a gap that is admitted comes last.
SEVERITY = (Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT, Outcome.ERROR, Outcome.UNSUPPORTED)

#: What these say is the same for every defect ("values", "killed by SIGSEGV"): only the operator tells.
_SPEECHLESS = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT})
#: Where the backend has no part in the failure yet.
_BEFORE_BACKEND = frozenset({Stage.REFERENCE, Stage.CONVERT, Stage.CHECK})

_Key: TypeAlias = tuple[str, str, Stage, Outcome, str, str]


@dataclass(frozen=True, kw_only=True)
class FailureGroup:
    """Failures that look like one defect.

    Attributes:
        converter: Its name.
        backend: Its name; "" where the case failed before it got to one.
        stage: Where the cases ended.
        outcome: How.
        signature: What they have in common.
        cases: How many there are.
        overloads: In which operators, sorted.
        dtypes: In which dtypes, sorted.
        case_id: The smallest case: fewest tensor elements, then shortest JSON.
        invocation: The smallest case's, JSON.
        message: The smallest case's failure in its own words.
    """

    converter: str
    backend: str
    stage: Stage
    outcome: Outcome
    signature: str
    cases: int
    overloads: tuple[str, ...]
    dtypes: tuple[str, ...]
    case_id: str
    invocation: str
    message: str

    @cached_property
    def call(self) -> str:
        """The smallest invocation as a person would write it."""
        try:
            return str(Invocation.from_json(self.invocation))
        except InvalidInvocation:
            return self.invocation


def failure_groups(verdicts: pa.Table) -> list[FailureGroup]:
    """Group the failures among a record's rows; only `COLUMNS` are looked at.

    The key is converter, backend (from loading on), stage, outcome and signature; where the outcome has
    no message of its own (mismatch, crash, timeout), the operator too.
    """
    sizes: dict[str, tuple[float, int]] = {}
    members: defaultdict[_Key, set[str]] = defaultdict(set)
    overloads: defaultdict[_Key, set[str]] = defaultdict(set)
    dtypes: defaultdict[_Key, set[str]] = defaultdict(set)
    smallest: dict[_Key, Mapping[str, Any]] = {}
    for row in _rows(verdicts.select(COLUMNS).filter(FAILED)):
        key = _key(row)
        members[key].add(row["case_id"])
        overloads[key].add(row["overload"])
        dtypes[key].add(row["dtype"])
        if row["case_id"] not in sizes:
            sizes[row["case_id"]] = _size(row["invocation"])
        best = smallest.get(key)
        if best is None or _order(row, sizes) < _order(best, sizes):
            smallest[key] = row
    groups = [
        FailureGroup(
            converter=key[0],
            backend=key[1],
            stage=key[2],
            outcome=key[3],
            signature=key[4],
            cases=len(members[key]),
            overloads=tuple(sorted(overloads[key])),
            dtypes=tuple(sorted(dtypes[key])),
            case_id=row["case_id"],
            invocation=row["invocation"],
            message=row["message"],
        )
        for key, row in smallest.items()
    ]
    return sorted(groups, key=_badness)


def render(groups: Sequence[FailureGroup], limit: int = 10) -> RenderableType:
    """The groups for a terminal, with what distinguishes each and its smallest case.

    Args:
        groups: Worst first.
        limit: Most groups to show.
    """
    return Group(*_blocks(groups, limit))


def _blocks(groups: Sequence[FailureGroup], limit: int) -> Iterator[RenderableType]:
    if groups:
        yield Text(f"{count(len(groups), 'distinct failure')}, worst first", style="bold")
    for number, group in enumerate(groups[:limit], start=1):
        path = f"{group.converter} → {group.backend}" if group.backend else group.converter
        yield Text.assemble(
            f"{number:>3} ",
            (str(group.outcome), "bold red"),
            f" at {group.stage}, {plain(path)}, {count(group.cases, 'case')}, ",
            plain(listed(group.dtypes, 6)),
        )
        said = group.message if group.outcome in _SPEECHLESS else group.signature
        details = Group(
            shown(listed(group.overloads, 4), style="cyan"),
            shown(said or group.signature or group.message, limit=240),
            shown(f"smallest: {group.case_id} {group.call}", limit=400),
        )
        yield Padding(details, (0, 0, 0, 4))
    hidden = Counter(group.outcome for group in groups[limit:])
    if hidden:
        kinds = ", ".join(f"{hidden[outcome]} {outcome}" for outcome in SEVERITY if hidden[outcome])
        yield Text(f"and {hidden.total()} more: {kinds}", style="bold")


def _rows(table: pa.Table) -> Iterator[Mapping[str, Any]]:
    for batch in table.to_batches(max_chunksize=1024):
        yield from batch.to_pylist()


def _key(row: Mapping[str, Any]) -> _Key:
    stage, outcome = Stage(row["stage"]), Outcome(row["outcome"])
    backend = "" if stage in _BEFORE_BACKEND else row["backend"]
    packet = row["overload"].rpartition(".")[0] if outcome in _SPEECHLESS else ""
    return row["converter"], backend, stage, outcome, row["signature"], packet


def _size(invocation: str) -> tuple[float, int]:
    """Tensor elements and characters; an invocation of another version sorts last."""
    try:
        elements: float = sum(spec.numel for spec in Invocation.from_json(invocation).tensors())
    except InvalidInvocation:
        elements = math.inf
    return elements, len(invocation)


def _order(row: Mapping[str, Any], sizes: Mapping[str, tuple[float, int]]) -> tuple[float, int, str, str]:
    return (*sizes[row["case_id"]], row["case_id"], row["backend"])


def _badness(group: FailureGroup) -> tuple[int, int, str, str, str, str]:
    severity = SEVERITY.index(group.outcome)
    return severity, -group.cases, group.overloads[0], group.converter, group.backend, group.signature
