"""The data of one operator's page: failures with their evidence, findings, graphs, cases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.causes.failure_match import call_text
from harness.causes.groups import FailureGroup
from harness.compare.diagnosis import recorded_difference
from harness.compare.output_comparison import parse_excuses
from harness.compare.verdict import SPEC, Outcome, Stage
from harness.core.invocation import InvalidInvocation, Invocation
from harness.core.text import strip_escapes
from harness.coverage.seen_pairs import recorded_ends, tried_pairs
from harness.present.call_text import torch_call
from harness.present.dashboard.embed import endless
from harness.present.dashboard.findings import RecordedCall, findings
from harness.present.evidence import evidence_of_row, fault_text, group_evidence, group_place
from harness.present.run_counts import placement_text
from harness.record.dictionary_encoding import numbered_column
from harness.record.json_lines import Graph, Script

COLUMNS = (
    "case_id", "dtype", "shape_mode", "converter", "converter_version", "opset", "backend", "stage",
    "outcome", "blame", "signature", "message", "invocation", "structure_id", "rule", "max_abs_error",
    "max_ulp_error", "mismatched_elements", "total_elements", "placement", "excused",
)  # fmt: skip
#: Columns of rows, decoded: names and numbers.
Rows: TypeAlias = Mapping[str, npt.NDArray[np.object_]]
_PASS, _CONVERT = str(Outcome.PASS), str(Stage.CONVERT)
_FAILURES = frozenset(str(outcome) for outcome in Outcome if outcome.is_failure)
#: Cases of one group, and cases in all, that an operator's page lists.
_OF_A_GROUP, _IN_ALL = 12, 240
#: Findings that it lists.
_FINDINGS = 16
#: A message longer than this is cut: it is in the record.
_WORDS = 2_000


@dataclass(frozen=True)
class Attachments:
    """Data of a run that its rows lack.

    Attributes:
        groups: Overload → its failures.
        graphs: (overload, converter) → graph.
        scripts: (case id, converter, backend) → script.
    """

    groups: Mapping[str, Sequence[FailureGroup]] = field(default_factory=dict)
    graphs: Mapping[tuple[str, str], Graph] = field(default_factory=dict)
    scripts: Mapping[tuple[str, str, str], Script] = field(default_factory=dict)


def decoded(rows: pa.Table) -> Rows:
    """Return the columns of rows with `COLUMNS`, dictionary-encoded or not, as arrays for fast selection."""
    found = {}
    for name in COLUMNS:
        if pa.types.is_string(rows.schema.field(name).type) or pa.types.is_dictionary(rows.schema.field(name).type):
            numbers, words = numbered_column(rows[name])
            found[name] = np.array(words.to_pylist(), dtype=object)[numbers]
        else:
            found[name] = np.array(rows[name].to_pylist(), dtype=object)
    return found


def operator_data(overload: str, rows: Rows, attachments: Attachments, wanted: Collection[str] = ()) -> dict[str, Any]:
    """Return everything that the page of an operator shows of one run.

    `wanted` are the ids of cases other than failures that other views link to.
    """
    groups = attachments.groups.get(overload, ())
    listed = zip(rows["case_id"], rows["converter"], rows["rule"], strict=True)
    rules = {(case_id, converter): rule for case_id, converter, rule in listed if rule}
    cases = _Cases(rows)
    for group in groups:
        cases.add(group.case_id)
        if group.ordinary:
            cases.add(group.ordinary.case_id)
        cases.add_group(group)
    for case_id in wanted:
        cases.add(case_id)
    return {
        "groups": [_group(group, attachments, rules.get((group.case_id, group.converter), "")) for group in groups],
        "findings": _findings(rows),
        "pairs": _pairs(rows),
        "graphs": list(_graphs(overload, rows, attachments.graphs)),
        "cases": cases.data(),
        "omitted": cases.omitted,
    }


def _group(group: FailureGroup, attachments: Attachments, rule: str) -> dict[str, Any]:
    data = {**group.to_data(), "place": group_place(group), "cause": fault_text(group.cause)}
    smallest = data["smallest"]
    minimal = group.minimal
    message = minimal.message if minimal else group.message
    source = minimal.case_id if minimal else group.case_id
    converter, backend = (minimal.converter, minimal.backend) if minimal else (group.converter, smallest["backend"])
    script = _script(attachments.scripts, source, converter, backend)
    difference = recorded_difference(minimal.diagnosis if minimal else group.diagnosis)
    return {
        **{name: data[name] for name in _GROUP},
        "case": group.case_id,
        "shown": minimal.minimal_id if minimal else group.case_id,
        "call": group.call,
        "ordinary": group.ordinary
        and {"cases": group.ordinary.cases, "case": group.ordinary.case_id, "call": group.ordinary.call},
        "torch": _torch(minimal.invocation if minimal else group.invocation),
        "message": message[:_WORDS],
        "evidence": (evidence_of_row(vars(minimal)) if minimal else group_evidence(group))[:_WORDS],
        "expected": difference.expected[:_WORDS],
        "got": difference.got[:_WORDS],
        "matters": list(minimal.matters) if minimal else [],
        "shrunk": minimal is not None,
        "script": script.text if script else "",
        "where": [converter, backend],
        "rule": rule,
    }


_GROUP = ("outcome", "stage", "blame", "owner", "place", "cause", "cases", "dtypes", "converters", "backends", "known")


def _script(
    scripts: Mapping[tuple[str, str, str], Script], case_id: str, converter: str, backend: str
) -> Script | None:
    """Return the script of a case; for a failure before any backend, the script of any backend."""
    exact = scripts.get((case_id, converter, backend))
    if exact is not None or backend:
        return exact
    return next((s for (c, v, _), s in scripts.items() if (c, v) == (case_id, converter)), None)


def _findings(rows: Rows) -> list[dict[str, Any]]:
    """Per converter and way of failing, return properties of the failures that passing calls lack, clearest first.

    Calls that fail in other ways prove nothing, as most end earlier: each finding says how many
    they are.
    """
    passed: defaultdict[tuple[str, str], list[RecordedCall]] = defaultdict(list)
    failed: defaultdict[tuple[str, str], defaultdict[tuple[str, str, str], list[RecordedCall]]]
    failed = defaultdict(lambda: defaultdict(list))
    names = ("converter", "backend", "outcome", "stage", "signature", "blame", "structure_id")
    columns = zip(*(rows[name] for name in names), _structure_invocations(rows), strict=True)
    for converter, backend, outcome, stage, signature, blame, structure, invocation in columns:
        if outcome == _PASS:
            passed[converter, backend].append(RecordedCall(structure, invocation, False))
        elif outcome in _FAILURES and blame != SPEC:
            failing = RecordedCall(structure, invocation, True)
            failed[converter, backend][outcome, stage, signature].append(failing)
    by_key: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (converter, backend), ways in sorted(failed.items()):
        for way, theirs in ways.items():
            apart = sum(map(len, ways.values())) - len(theirs)
            for found in findings([*theirs, *passed[converter, backend]]):
                place = converter, *way, apart
                fields = {**dict(zip(_PLACE, place, strict=True)), **asdict(found)}
                one = by_key.setdefault((*place, *astuple(found)), {"backends": [], **fields})
                if backend not in one["backends"]:
                    one["backends"].append(backend)

    def clarity(one: dict[str, Any]) -> tuple[float, int]:
        return one["other_fails"] / one["other_cases"] - one["fails"] / one["cases"], -one["fails"]

    return sorted(by_key.values(), key=clarity)[:_FINDINGS]


def _pairs(rows: Rows) -> dict[str, Any] | None:
    """Return the pairs tried together: the cells of the lower triangle in order, a digit of `Tried` each."""
    tried = tried_pairs(recorded_ends(rows))
    if not tried.seen.possible:
        return None
    cells = "".join(str(state) for i, row in enumerate(tried.tried.tolist()) for state in row[:i])
    return {"names": tried.names, "about": tried.about, "cells": cells}


_PLACE = ("converter", "outcome", "stage", "signature", "apart")


def _structure_invocations(rows: Rows) -> list[str]:
    """Return, per row, one invocation of its structure; others differ from it only in the values of tensors."""
    first: dict[str, str] = {}
    pairs = zip(rows["structure_id"], rows["invocation"], strict=True)
    # A row of an old version names no structure.
    return [first.setdefault(structure or invocation, invocation) for structure, invocation in pairs]


def _graphs(overload: str, rows: Rows, graphs: Mapping[tuple[str, str], Graph]) -> Iterator[dict[str, Any]]:
    """Yield, per converter, its graph, or a summary of its exports."""
    by_converter: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for place, (case_id, converter) in enumerate(zip(rows["case_id"], rows["converter"], strict=True)):
        by_converter[converter][case_id] = place
    for converter, mine in sorted(by_converter.items()):
        places = list(mine.values())
        stages = rows["stage"][places]
        refused = Counter(rows["signature"][places][stages == _CONVERT])
        graph = graphs.get((overload, converter))
        shown = mine.get(graph.case_id) if graph else None
        yield {
            "converter": converter,
            "version": rows["converter_version"][places[0]],
            "opsets": sorted({*rows["opset"][places]} - {None}),
            "cases": len(mine),
            "converted": sum(stage not in (Stage.CONVERT, Stage.REFERENCE) for stage in stages),
            "refused": sorted(refused.items(), key=lambda item: (-item[1], item[0]))[:4],
            "text": graph.text if graph else "",
            "nodes": list(graph.node_types) if graph else [],
            "case": graph.case_id if graph else "",
            "call": "" if shown is None else call_text(rows["invocation"][shown]),
        }


class _Cases:
    """The cases that a page lists, each with all its rows."""

    def __init__(self, rows: Rows) -> None:
        self._columns = rows
        self._rows: defaultdict[str, list[int]] = defaultdict(list)
        self._failing: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
        names = ("case_id", "stage", "outcome", "signature", "converter")
        for row, (case_id, *place) in enumerate(zip(*(rows[name] for name in names), strict=True)):
            self._rows[case_id].append(row)
            if place[1] in _FAILURES:
                self._failing[tuple(place)].append(case_id)
        self._chosen: dict[str, None] = {}
        self.omitted = 0

    def add(self, case_id: str) -> None:
        """List a case, if the operator has it."""
        if case_id in self._rows:
            self._chosen[case_id] = None

    def add_group(self, group: FailureGroup) -> None:
        """List the smallest cases that fail as the group's smallest does."""
        ids = self._failing[str(group.stage), str(group.outcome), group.signature, group.converter]
        by_size = sorted(dict.fromkeys(ids), key=lambda i: (self._length(i), i))
        room = max(0, _IN_ALL - len(self._chosen))
        for case_id in by_size[: min(_OF_A_GROUP, room)]:
            self.add(case_id)

    def data(self) -> list[dict[str, Any]]:
        """Return the cases for the page; `omitted` counts the failures that are not listed."""
        failing = {case_id for ids in self._failing.values() for case_id in ids}
        self.omitted = len(failing - self._chosen.keys())
        return [self._case(case_id) for case_id in self._chosen]

    def _length(self, case_id: str) -> int:
        return len(self._columns["invocation"][self._rows[case_id][0]])

    def _case(self, case_id: str) -> dict[str, Any]:
        places = self._rows[case_id]
        columns, first = self._columns, places[0]
        return {
            "id": case_id,
            "dtype": columns["dtype"][first],
            "call": call_text(columns["invocation"][first]),
            "rows": [
                {
                    **{name: columns[name][row] for name in _ENDED},
                    "shapes": columns["shape_mode"][row],
                    "message": strip_escapes(columns["message"][row])[: _WORDS // 4],
                    "ulp": endless(columns["max_ulp_error"][row]),
                    "abs": endless(columns["max_abs_error"][row]),
                    "wrong": columns["mismatched_elements"][row],
                    "elements": columns["total_elements"][row],
                    # Few rows have it, and the page is to stay small.
                    **({"placement": placement} if (placement := placement_text(columns["placement"][row])) else {}),
                    **({"accepted": rules} if (rules := list(parse_excuses(columns["excused"][row]))) else {}),
                }
                for row in places
            ],
        }


_ENDED = ("converter", "backend", "stage", "outcome", "blame")


def _torch(invocation: str) -> str:
    try:
        return torch_call(Invocation.from_json(invocation))
    except (InvalidInvocation, ValueError, KeyError, OverflowError):
        return ""
