"""What the page of one operator shows: failures with their evidence, findings, graphs, cases."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

import pyarrow as pa

from harness.analyse import SPEC, FailureGroup, KnownIssue, call, failure_groups
from harness.compare import Outcome, Stage
from harness.core import InvalidInvocation, Invocation, without_escapes
from harness.present.call_text import torch_call
from harness.present.dashboard.embed import endless
from harness.present.dashboard.findings import RecordedCall, findings
from harness.record import Graph, Minimal, Script

COLUMNS = (
    "case_id", "overload", "family", "dtype", "shape_mode", "converter", "converter_version", "opset",
    "backend", "stage", "outcome", "blame", "evidence", "signature", "message", "invocation",
    "exported_invocation", "structure_id", "rule", "max_abs_error", "max_ulp_error", "mismatched_elements",
    "total_elements",
)  # fmt: skip
#: Cases of one group, and cases in all, that an operator's page lists.
_OF_A_GROUP, _IN_ALL = 12, 240
#: Findings that it lists.
_FINDINGS = 16
_EXPECTED = re.compile(r"expected (?P<expected>.+?), got (?P<got>.+)", re.DOTALL)
#: A message longer than this is cut: it is in the record.
_WORDS = 2_000


@dataclass(frozen=True)
class Beside:
    """What lies beside the rows of a run.

    Attributes:
        graphs: (overload, converter) → graph.
        scripts: (case id, converter, backend) → script.
    """

    minimal: Sequence[Minimal] = ()
    known: Sequence[KnownIssue] = ()
    graphs: Mapping[tuple[str, str], Graph] | None = None
    scripts: Mapping[tuple[str, str, str], Script] | None = None


def operator_data(
    overload: str, rows: pa.Table, beside: Beside, wanted: Collection[str] = ()
) -> dict[str, Any]:
    """Everything that the page of an operator shows of one run, out of its rows with `COLUMNS`.

    `wanted` are case ids that other views link to, beside those of failures.
    """
    listed = rows.to_pylist()
    minimal = [m for m in beside.minimal if m.overload == overload]
    known = [issue for issue in beside.known if issue.covers(overload)]
    groups = failure_groups(rows, minimal, known)
    rules = {(row["case_id"], row["converter"]): row["rule"] for row in listed if row["rule"]}
    cases = _Cases(listed)
    for group in groups:
        cases.add(group.case_id)
        if group.ordinary:
            cases.add(group.ordinary.case_id)
        cases.add_group(group)
    for case_id in wanted:
        cases.add(case_id)
    return {
        "groups": [
            _group(group, beside, rules.get((group.case_id, group.converter), "")) for group in groups
        ],
        "findings": _findings(listed),
        "graphs": list(_graphs(overload, listed, beside.graphs or {})),
        "cases": cases.data(),
        "omitted": cases.omitted,
    }


def _group(group: FailureGroup, beside: Beside, rule: str) -> dict[str, Any]:
    data = group.to_data()
    smallest = data["smallest"]
    minimal = group.minimal
    said = minimal.message if minimal else group.message
    source = minimal.case_id if minimal else group.case_id
    converter, backend = (
        (minimal.converter, minimal.backend) if minimal else (group.converter, smallest["backend"])
    )
    script = _script(beside.scripts or {}, source, converter, backend)
    matched = _EXPECTED.search(said)
    return {
        **{name: data[name] for name in _GROUP},
        "case": group.case_id,
        "shown": minimal.minimal_id if minimal else group.case_id,
        "call": group.call,
        "ordinary": group.ordinary
        and {"cases": group.ordinary.cases, "case": group.ordinary.case_id, "call": group.ordinary.call},
        "torch": _torch(minimal.invocation if minimal else group.invocation),
        "message": said[:_WORDS],
        "evidence": (minimal.evidence if minimal else group.evidence)[:_WORDS],
        "expected": matched["expected"][:_WORDS] if matched else "",
        "got": matched["got"][:_WORDS] if matched else "",
        "matters": list(minimal.matters) if minimal else [],
        "shrunk": minimal is not None,
        "script": script.text if script else "",
        "where": [converter, backend],
        "rule": rule,
    }


_GROUP = ("outcome", "stage", "blame", "cause", "cases", "dtypes", "converters", "backends", "known")


def _script(
    scripts: Mapping[tuple[str, str, str], Script], case_id: str, converter: str, backend: str
) -> Script | None:
    """The script of a case; of a failure that comes before any backend, whichever was named with it."""
    exact = scripts.get((case_id, converter, backend))
    if exact is not None or backend:
        return exact
    return next((s for (c, v, _), s in scripts.items() if (c, v) == (case_id, converter)), None)


def _findings(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Per converter and way of failing, what these failures have and what passes has not, clearest first.

    Calls that fail in other ways say nothing of this one, as most end earlier: each finding says how many
    they are.
    """
    passed: defaultdict[tuple[str, str], list[RecordedCall]] = defaultdict(list)
    failed: defaultdict[tuple[str, str], defaultdict[tuple[str, str, str], list[RecordedCall]]]
    failed = defaultdict(lambda: defaultdict(list))
    for row in rows:
        column = row["converter"], row["backend"]
        if row["outcome"] == Outcome.PASS:
            passed[column].append(RecordedCall(row["structure_id"], row["invocation"], False))
        elif Outcome(row["outcome"]).is_failure and row["blame"] != SPEC:
            way = row["outcome"], row["stage"], row["signature"]
            failed[column][way].append(RecordedCall(row["structure_id"], row["invocation"], True))
    by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (converter, backend), ways in sorted(failed.items()):
        for way, theirs in ways.items():
            apart = sum(map(len, ways.values())) - len(theirs)
            for found in findings([*theirs, *passed[converter, backend]]):
                place = converter, *way, apart
                said = {**dict(zip(_PLACE, place, strict=True)), **asdict(found)}
                one = by_key.setdefault((*place, *astuple(found)), {"backends": [], **said})
                if backend not in one["backends"]:
                    one["backends"].append(backend)

    def clarity(one: dict[str, Any]) -> tuple[float, int]:
        return one["other_fails"] / one["other_cases"] - one["fails"] / one["cases"], -one["fails"]

    return sorted(by_key.values(), key=clarity)[:_FINDINGS]


_PLACE = ("converter", "outcome", "stage", "signature", "apart")


def _graphs(
    overload: str, rows: Sequence[Mapping[str, Any]], graphs: Mapping[tuple[str, str], Graph]
) -> Iterator[dict[str, Any]]:
    """Per converter, its graph, or what became of its exports."""
    for converter in sorted({row["converter"] for row in rows}):
        mine = {row["case_id"]: row for row in rows if row["converter"] == converter}
        refused: defaultdict[str, int] = defaultdict(int)
        for row in mine.values():
            if row["stage"] == Stage.CONVERT:
                refused[row["signature"]] += 1
        graph = graphs.get((overload, converter))
        shown = mine.get(graph.case_id) if graph else None
        yield {
            "converter": converter,
            "version": next((row["converter_version"] for row in mine.values()), ""),
            "opsets": sorted({row["opset"] for row in mine.values() if row["opset"] is not None}),
            "cases": len(mine),
            "converted": sum(row["stage"] not in (Stage.CONVERT, Stage.REFERENCE) for row in mine.values()),
            "refused": sorted(refused.items(), key=lambda item: (-item[1], item[0]))[:4],
            "text": graph.text if graph else "",
            "nodes": list(graph.node_types) if graph else [],
            "case": graph.case_id if graph else "",
            "call": call(shown["invocation"]) if shown else "",
        }


class _Cases:
    """The cases that a page lists, each with all its rows."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._rows: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
        self._failing: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        for row in rows:
            self._rows[row["case_id"]].append(row)
            if Outcome(row["outcome"]).is_failure:
                place = row["stage"], row["outcome"], row["signature"], row["converter"]
                self._failing[place].append(row["case_id"])
        self._chosen: dict[str, None] = {}
        self.omitted = 0

    def add(self, case_id: str) -> None:
        """List a case, if the operator has it."""
        if case_id in self._rows:
            self._chosen[case_id] = None

    def add_group(self, group: FailureGroup) -> None:
        """List the smallest cases that fail as the group's smallest does."""
        ids = self._failing[str(group.stage), str(group.outcome), group.signature, group.converter]
        by_size = sorted(dict.fromkeys(ids), key=lambda i: (len(self._rows[i][0]["invocation"]), i))
        room = max(0, _IN_ALL - len(self._chosen))
        for case_id in by_size[: min(_OF_A_GROUP, room)]:
            self.add(case_id)

    def data(self) -> list[dict[str, Any]]:
        """As the page reads them; what failed and is not listed is counted in `omitted`."""
        failing = {case_id for ids in self._failing.values() for case_id in ids}
        self.omitted = len(failing - self._chosen.keys())
        return [self._case(case_id) for case_id in self._chosen]

    def _case(self, case_id: str) -> dict[str, Any]:
        rows = self._rows[case_id]
        return {
            "id": case_id,
            "dtype": rows[0]["dtype"],
            "call": call(rows[0]["invocation"]),
            "rows": [
                {
                    **{name: row[name] for name in ("converter", "backend", "stage", "outcome", "blame")},
                    "shapes": row["shape_mode"],
                    "message": without_escapes(row["message"])[: _WORDS // 4],
                    "ulp": endless(row["max_ulp_error"]),
                    "abs": endless(row["max_abs_error"]),
                    "wrong": row["mismatched_elements"],
                    "elements": row["total_elements"],
                }
                for row in rows
            ],
        }


def _torch(invocation: str) -> str:
    try:
        return torch_call(Invocation.from_json(invocation))
    except (InvalidInvocation, ValueError, KeyError, OverflowError):
        return ""
