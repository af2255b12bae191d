"""The distinct failures of a recorded run, each with the case to begin shrinking from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.analyse.shrink.plainness import elements
from harness.causes.cause import SEVERITY
from harness.causes.groups import FAILED
from harness.compare import Outcome, Stage
from harness.core import InvalidInvocation, Invocation
from harness.execute import PREFIX, refuse_model
from harness.record import store

_COLUMNS = (
    *("case_id", "overload", "converter", "backend", "shape_mode", "rule"),
    *("stage", "outcome", "signature", "invocation", "exported_invocation"),
)
#: What is the same for all cases of a failure, its backend apart.
_ALIKE = ("overload", "converter", "shape_mode", "stage", "outcome", "signature")
#: Before these a backend has taken no part: what fails there fails for every backend.
_OF_BACKEND = frozenset({Stage.LOAD, Stage.RUN, Stage.COMPARE})


@dataclass(frozen=True, kw_only=True)
class RecordedFailure:
    """One distinct failure of one operator; its fields are columns of the record.

    Attributes:
        case_id: The recorded case with the fewest elements, then the shortest JSON.
        backend: The first by name where the failure comes before any.
        cases: How many cases fail so.
    """

    case_id: str
    overload: str
    converter: str
    backend: str
    shape_mode: str
    rule: str
    stage: Stage
    outcome: Outcome
    signature: str
    invocation: str
    exported_invocation: str
    cases: int


def failures(results_dir: Path, *, case_id: str | None = None) -> list[RecordedFailure]:
    """Worst first; operators take turns among failures that are equally bad, so that none hides another.

    Raises:
        ResultsError: the run cannot be read.
    """
    where = FAILED if case_id is None else FAILED & (pc.field("case_id") == case_id)
    found: dict[tuple[Any, ...], RecordedFailure] = {}
    sizes: dict[str, tuple[int, int]] = {}
    members: defaultdict[tuple[Any, ...], set[str]] = defaultdict(set)
    for batch in store.read(results_dir, _COLUMNS, where).to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            if case_id is not None:
                refuse_model(case_id, row["overload"], "shrunk")
            size = _size(row)
            if size is None or row["overload"].startswith(PREFIX):
                continue
            key = _key(row)
            members[key].add(row["case_id"])
            best = found.get(key)
            sizes[row["case_id"]] = size
            if best is None or (size, row["backend"]) < (sizes[best.case_id], best.backend):
                found[key] = RecordedFailure(
                    **{**row, "stage": Stage(row["stage"]), "outcome": Outcome(row["outcome"])}, cases=0
                )
    counted = [replace(failure, cases=len(members[key])) for key, failure in found.items()]
    return list(_in_turn(counted))


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    backend = row["backend"] if Stage(row["stage"]) in _OF_BACKEND else ""
    return backend, *(row[n] for n in _ALIKE)


def _size(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Elements and characters; None for an invocation of another version."""
    try:
        return elements(Invocation.from_json(row["invocation"])), len(row["invocation"])
    except InvalidInvocation:
        return None


def _in_turn(found: Sequence[RecordedFailure]) -> Iterator[RecordedFailure]:
    def commonest(failure: RecordedFailure) -> tuple[int, str, str, str, str]:
        return -failure.cases, failure.overload, failure.converter, failure.backend, failure.signature

    for outcome in SEVERITY:
        queues: defaultdict[str, list[RecordedFailure]] = defaultdict(list)
        for failure in sorted((f for f in found if f.outcome is outcome), key=commonest):
            queues[failure.overload].append(failure)
        for turn in zip_longest(*queues.values()):
            yield from filter(None, turn)
