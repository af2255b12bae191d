"""Run a few invocations again without recording them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from harness.compare.repeated import RUNS
from harness.compare.verdict import Verdict
from harness.core.dtypes import Array
from harness.core.invocation import InvalidInvocation, Invocation
from harness.core.isolation import IsolatedCalls
from harness.core.route import Route
from harness.generate.sources.recorded import Replayed
from harness.pipeline.model_task import model_word
from harness.pipeline.program import call_case
from harness.pipeline.run_case import run_case
from harness.pipeline.start import start
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options
from harness.plan.plan import make_plan
from harness.plan.unit import run_unit
from harness.record import store
from harness.record.json_lines import read_minimal
from harness.record.layout import ResultsError, reason
from harness.record.run_info import read_run_info, rule_files


@dataclass(frozen=True, kw_only=True)
class Again:
    """Invocations and the routes to run them on; empty converters or backends mean the defaults.

    `rules` are the files of the user's conversion functions that took part.
    """

    cases: tuple[Replayed, ...]
    converters: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    opset: int | None = None
    rules: tuple[str, ...] = ()


def recorded(run: Path, wanted: str) -> Again:
    """Return a case of a run, or what one of its cases was shrunk to, with the recorded routes.

    Raises:
        ResultsError: No case has that id (the message suggests similar ids), or the run cannot be read.
    """
    minimal = read_minimal(run)
    case_id = store.resolve_case(run, wanted, minimal)
    columns = ["invocation", "exported_invocation", "converter", "backend"]
    rows: list[dict[str, str]] = store.read(run, columns, pc.field("case_id") == case_id).to_pylist()
    originals = [case_id]
    if not rows:
        shrunk = [m for m in minimal if m.minimal_id == case_id]
        rows, originals = [asdict(m) for m in shrunk], [m.case_id for m in shrunk]
    try:
        cases = [Replayed.from_row(row["invocation"], row["exported_invocation"]) for row in rows]
    except InvalidInvocation as error:
        raise ResultsError(f"{run}: case {case_id} cannot be read: {error}") from None
    info = read_run_info(run)
    opset = info.options.get("opset")
    took_part = (pc.field("rule") != "") & pc.field("case_id").isin(originals)
    rules = rule_files(run, info) if store.read(run, ["rule"], took_part).num_rows else ()
    return Again(
        cases=tuple(dict.fromkeys(cases)),
        converters=tuple(dict.fromkeys(row["converter"] for row in rows)),
        backends=tuple(dict.fromkeys(row["backend"] for row in rows)),
        opset=opset if isinstance(opset, int) else None,
        rules=tuple(map(str, rules)),
    )


def recorded_model(run: Path, wanted: str) -> str | None:
    """Return the model that a recorded case is a run of, as the run's user named it; None for a call.

    Raises:
        ResultsError: No case has that id (the message suggests similar ids), or the run cannot be read.
    """
    case_id = store.resolve_case(run, wanted, read_minimal(run))
    return model_word(run, store.read(run, ["overload"], pc.field("case_id") == case_id)["overload"].to_pylist())


def recorded_rules(run: Path) -> tuple[Path, ...]:
    """Return the files of conversion functions that a run used.

    Raises:
        ResultsError: The run cannot be read.
    """
    return tuple(rule_files(run, read_run_info(run)))


def from_file(path: Path) -> Again:
    """Return the invocations in a file: one as JSON, or one per line.

    A line is an invocation, or an object with an invocation under ``invocation``, as in a corpus or ``minimal.jsonl``;
    the converters and backends that such objects name are used.

    Raises:
        ResultsError: The file cannot be read, or a line has no invocation.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ResultsError(f"cannot read {path}: {reason(error)}") from None
    try:
        values = [(1, json.loads(text))]
    except json.JSONDecodeError:
        lines = enumerate(text.splitlines(), 1)
        values = [(i, _parsed(path, i, line)) for i, line in lines if line.strip()]
    documents = [(i, item) for i, value in values for item in (value if isinstance(value, list) else [value])]
    if not documents:
        raise ResultsError(f"{path} holds no invocation")
    return Again(
        cases=tuple(dict.fromkeys(_replayed(path, number, data) for number, data in documents)),
        converters=_named(documents, "converter"),
        backends=_named(documents, "backend"),
    )


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise ResultsError(f"{path}:{number}: not JSON: {error}") from None


def _replayed(path: Path, number: int, data: Any) -> Replayed:
    whole = data if isinstance(data, dict) and "invocation" in data else {"invocation": data}
    try:
        exported = whole.get("exported") or whole.get("exported_invocation")
        return Replayed(_invocation(whole["invocation"]), _invocation(exported) if exported else None)
    except InvalidInvocation as error:
        raise ResultsError(f"{path}:{number}: {error}") from None


def _invocation(data: Any) -> Invocation:
    return Invocation.from_json(data) if isinstance(data, str) else Invocation.from_data(data)


def _named(documents: Sequence[tuple[int, Any]], key: str) -> tuple[str, ...]:
    names = [data.get(key) for _, data in documents if isinstance(data, dict)]
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def verdicts(again: Again, *, timeout: float = 60.0) -> Iterator[Verdict]:
    """Run everything again in a worker process and yield the verdicts; raises as `make_plan` does.

    A case with random results runs until it fails, since one run may be right by chance.
    """
    plan = make_plan(
        Options(
            replay=again.cases,
            converters=again.converters,
            backends=again.backends,
            opset=again.opset,
            rules=again.rules,
            runs=RUNS,
        )
    )
    with Supervisor(timeout=timeout) as supervisor:
        for unit in plan.units:
            for rows in run_unit(unit, supervisor):
                yield from rows


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """The outputs of one case: PyTorch's, those in float64 as in `Reference.truth`, and the backend's."""

    expected: tuple[Array, ...]
    truth: tuple[Array | None, ...] | None
    got: tuple[Array, ...]


def outputs(case: Replayed, route: Route) -> Outputs:
    """Run a case that reached the comparison, in a forked process, whose exporter is already imported.

    Raises:
        Exception: The error of whatever fails.
    """
    with IsolatedCalls(fork=True) as process:
        return process.call(_outputs, case, route)


def _outputs(case: Replayed, route: Route) -> Outputs:
    call = call_case(case.invocation, case.exported, runs=RUNS)
    run = run_case(call, start(route))
    if run.failure is not None:
        raise run.failure.error
    if run.outputs is None:
        raise RuntimeError(run.message or f"{route.backend} cannot run on this machine")
    return Outputs(expected=call.oracle.expected, truth=call.oracle.truth, got=run.outputs)
