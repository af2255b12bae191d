"""A page for every failing case: its call, its results on every route, whom each failure is blamed on, and its history.

The cases lie in files by the first digits of their ids, of which the page loads one. A text that cases of a file share
is stored once. A failure that has its diagnosis from another case names that case, whose page has the evidence.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from harness.causes.cause import CAUSE_COLUMNS, root_cause
from harness.causes.failure_match import call_text
from harness.causes.groups import FAILED
from harness.compare.verdict import Outcome
from harness.core.invocation import InvalidInvocation, Invocation
from harness.core.text import strip_escapes
from harness.present.call_text import torch_call
from harness.present.dashboard.embed import endless
from harness.present.dashboard.evidence import UnreadableRun
from harness.present.dashboard.site_model import SiteModel
from harness.present.evidence import evidence_of_row, fault_text, place_text
from harness.present.run_counts import placement_text
from harness.record import store
from harness.record.json_lines import read_scripts
from harness.record.layout import ResultsError

#: Digits of a case id that name its file.
_DIGITS = 2
#: A text longer than this is cut: it is in the record.
_LONGEST = 2_000
#: The same for messages, which are many, and for those of declared gaps, which say it in their first words.
_MESSAGE, _GAP = 500, 160
_COLUMNS = (
    *("case_id", "overload", "dtype", "converter", "backend", "stage", "outcome", "shape_mode", "invocation"),
    *("signature", "message", "evidence", "diagnosis", "model_run", "placement"),
    *("max_abs_error", "max_ulp_error", "mismatched_elements", "total_elements", *CAUSE_COLUMNS),
)
#: Route of a result: converter and backend.
_Route = tuple[str, str]


@dataclass
class _Texts:
    """The texts of a file; cases have their numbers."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text[:_LONGEST], len(self.numbers))


def case_files(built: SiteModel, run: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the first digits of ids and the file of such failing cases, of the operators that a run is the evidence of.

    Raises:
        UnreadableRun: the run turns out to be damaged.
    """
    directory, operators = built.runs[run].directory, _operators(built, run)
    try:
        where = FAILED & pc.field("overload").isin(operators)
        failing = pc.unique(store.read(directory, ["case_id"], where, encoded=True)["case_id"].cast(pa.string()))
        rows = store.read(directory, list(_COLUMNS), pc.field("case_id").isin(failing), encoded=True)
        scripts = {(c, v, b): script.text for (c, v, b), script in read_scripts(directory).items()}
    except ResultsError as error:
        raise UnreadableRun(built.runs[run], error) from None
    history = _history(built, run, failing)
    prefixes = pc.utf8_slice_codeunits(rows["case_id"].cast(pa.string()), 0, _DIGITS)
    for prefix in sorted(pc.unique(prefixes).to_pylist()):
        by_case: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows.filter(pc.equal(prefixes, prefix)).to_pylist():
            by_case[row["case_id"]].append(row)
        texts = _Texts()
        cases = {
            case_id: _case(theirs, texts, scripts, history.get(case_id, {})) for case_id, theirs in by_case.items()
        }
        yield prefix, {"cases": cases, "texts": list(texts.numbers)}


def _operators(built: SiteModel, run: int) -> list[str]:
    words = built.words.operators.words
    shown = [number for number, evidence in built.evidence.of.items() if evidence == run]
    return [words[number] for number in (*shown, *built.evidence.own.get(run, ()))]


def _case(
    rows: Sequence[Mapping[str, Any]],
    texts: _Texts,
    scripts: Mapping[tuple[str, str, str], str],
    history: Mapping[_Route, list[tuple[int, str, str]]],
) -> dict[str, Any]:
    first = rows[0]
    # A call that nothing converts is told by its name: values say no more.
    is_gap = all(row["outcome"] == Outcome.UNSUPPORTED for row in rows)
    found = {
        "operator": first["overload"],
        "dtype": first["dtype"],
        "call": texts.number(call_text(first["invocation"])),
        "rows": [_row(row, texts) for row in rows],
    }
    if not is_gap and (torch := _torch(first["invocation"])):
        found["torch"] = texts.number(torch)
    theirs = (scripts.get((row["case_id"], row["converter"], row["backend"]), "") for row in rows)
    script = next(filter(None, theirs), "")
    ended = [[converter, backend, *end] for (converter, backend), ends in history.items() for end in ends]
    return {**found, **({"script": script} if script else {}), **({"history": ended} if ended else {})}


def _row(row: Mapping[str, Any], texts: _Texts) -> dict[str, Any]:
    found: dict[str, Any] = {name: row[name] for name in ("converter", "backend", "stage", "outcome")}
    found["shapes"] = row["shape_mode"]
    numbers = {
        "ulp": endless(row["max_ulp_error"]),
        "abs": endless(row["max_abs_error"]),
        "wrong": row["mismatched_elements"],
        "elements": row["total_elements"],
    }
    found |= {name: number for name, number in numbers.items() if number is not None}
    if row["placement"]:
        found["placement"] = placement_text(row["placement"])
    if row["message"]:
        most = _GAP if row["outcome"] == Outcome.UNSUPPORTED else _MESSAGE
        found["message"] = texts.number(strip_escapes(row["message"])[:most])
    if Outcome(row["outcome"]).is_failure:
        cause = root_cause(row)
        diagnosis = json.loads(row["diagnosis"]) if row["diagnosis"] else {}
        found["owner"] = cause.owner
        found["place"] = texts.number(place_text(cause, diagnosis.get("file", "")))
        found["fault"] = texts.number(fault_text(cause))
        if diagnosis.get("inherited_from"):
            found["same"] = diagnosis["inherited_from"]
        else:
            found["evidence"] = texts.number(evidence_of_row(row))
    return found


def _torch(invocation: str) -> str:
    try:
        return torch_call(Invocation.from_json(invocation))
    except (InvalidInvocation, ValueError, KeyError, OverflowError):
        return ""


def _history(built: SiteModel, run: int, failing: pa.Array) -> dict[str, dict[_Route, list[tuple[int, str, str]]]]:
    """Return case id → route → the run, stage and outcome of each other run that has the case, oldest first."""
    found: dict[str, dict[_Route, list[tuple[int, str, str]]]] = {}
    asked = np.array(failing.to_pylist(), dtype=np.str_)
    names, states = built.words.column_names, built.words.states
    for number, coded in enumerate(built.coded):
        if number == run:
            continue
        for place in np.flatnonzero(np.isin(coded.case, asked)).tolist():
            state = states[int(coded.state[place])]
            by_route = found.setdefault(str(coded.case[place]), {})
            ends = by_route.setdefault(names[int(coded.column[place])], [])
            ends.append((number, state.stage, state.outcome))
    return found
