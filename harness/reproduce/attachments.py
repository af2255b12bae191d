"""Make the graphs and scripts that a run's pages show.

Which exports and which failures of a run are worth it is chosen here. Each is made in a process that an operator may
take down.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import onnx
import onnx.printer
import pyarrow as pa
import pyarrow.compute as pc
import torch

from harness.causes.groups import FAILED, failure_groups
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.provenance import EmittedGraph, emitted
from harness.core.invocation import InvalidInvocation, Invocation
from harness.core.isolation import IsolatedCalls
from harness.core.route import Route, route_label
from harness.locate.source_code import emitting_place
from harness.pipeline.program import CallStructure, call_case, export_request
from harness.pipeline.run_case import make_artefact
from harness.pipeline.stages import emitted_opset
from harness.pipeline.start import start_converter
from harness.pipeline.started_route import StartedRoute
from harness.record import store
from harness.record.json_lines import (
    Graph,
    Minimal,
    Script,
    append_line,
    read_graphs,
    read_minimal,
    read_scripts,
)
from harness.record.parquet import to_verdicts
from harness.record.run_info import RunInfo, read_run_info
from harness.reproduce.call_source import CallSource
from harness.reproduce.failure import failure_of
from harness.reproduce.script import write_script

_COLUMNS = (
    "overload",
    "converter",
    "converter_version",
    "case_id",
    "stage",
    "outcome",
    "rule",
    "invocation",
    "exported_invocation",
    "dtype",
)
_EXPORTED = {str(stage) for stage in (Stage.TRANSFORM, Stage.CHECK, Stage.LOAD, Stage.RUN, Stage.COMPARE)}


@dataclass(frozen=True)
class WantedGraph:
    """A case whose export (of the JSON `invocation`) shows the graph that a converter makes of an operator."""

    overload: str
    converter: str
    converter_version: str
    case_id: str
    invocation: str


def wanted_graphs(run: Path, overloads: Collection[str] | None = None) -> list[WantedGraph]:
    """Per operator and converter the plainest case that was exported: passing, float32, small, not empty.

    `overloads` is None for all.
    """
    best: dict[tuple[str, str], tuple[tuple[Any, ...], Mapping[str, Any]]] = {}
    for batch in store.read(run, list(_COLUMNS)).to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            if (
                row["rule"]
                or row["stage"] not in _EXPORTED
                or (overloads is not None and row["overload"] not in overloads)
            ):
                continue
            key, rank = (row["overload"], row["converter"]), _plainness(row)
            if key not in best or rank < best[key][0]:
                best[key] = rank, row
    return [
        WantedGraph(
            row["overload"],
            row["converter"],
            row["converter_version"],
            row["case_id"],
            row["exported_invocation"] or row["invocation"],
        )
        for _, (_, row) in sorted(best.items())
    ]


def _plainness(row: Mapping[str, Any]) -> tuple[Any, ...]:
    try:
        shapes = [spec.shape for spec in Invocation.from_json(row["invocation"]).tensors()]
    except InvalidInvocation:
        shapes = [()]
    empty = any(0 in shape for shape in shapes)
    return (
        row["outcome"] != Outcome.PASS,
        row["stage"] == Stage.CHECK,
        empty,
        row["dtype"] != "float32",
        # Missing dimensions, or dimensions of size 1, hide their treatment.
        any(not shape or 1 in shape for shape in shapes),
        len(row["invocation"]),
        row["case_id"],
    )


def wanted_failures(run: Path, overloads: Collection[str] | None = None) -> list[Verdict]:
    """Return the smallest row of each failure of each operator, or that of its shrunk case.

    Not where a user's rule took part: a script knows nothing of it. `overloads` is None for all.
    """
    table = store.read(run, where=FAILED & (pc.field("rule") == "")).combine_chunks().sort_by("overload")
    minimals = read_minimal(run)
    found: list[Verdict] = []
    start = 0
    for name, rows in itertools.groupby(table["overload"].to_pylist()):
        count = sum(1 for _ in rows)
        if overloads is None or name in overloads:
            mine = [minimal for minimal in minimals if minimal.overload == name]
            found += _select_failures(table.slice(start, count), mine)
        start += count
    return found


def _select_failures(rows: pa.Table, minimals: Sequence[Minimal]) -> Iterator[Verdict]:
    places: dict[tuple[str, str, str], int] = {}
    columns = (rows[name].to_pylist() for name in ("case_id", "converter", "backend"))
    for number, key in enumerate(zip(*columns, strict=True)):
        places.setdefault(key, number)
    for group in failure_groups(rows, minimals):
        minimal = group.minimal
        place = places.get((minimal.case_id, minimal.converter, minimal.backend)) if minimal else None
        if place is None:
            # Before any backend every backend has the same failure.
            place = next(
                number
                for (case_id, converter, backend), number in places.items()
                if (case_id, converter) == (group.case_id, group.converter) and group.backend in ("", backend)
            )
        yield next(to_verdicts(rows.slice(place, 1)))


P = ParamSpec("P")
R = TypeVar("R")

#: How ONNX's text has a node of the graph itself.
_NODE = re.compile(r" {3}[^ <].* = ")
#: Characters of a graph's text at most: a page shows it.
_LENGTH = 20_000


@dataclass
class Written:
    """Counts of the written graphs and scripts, and the reason for each that could not be made, in a line."""

    graphs: int = 0
    scripts: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def write_evidence(
    run: Path,
    *,
    overloads: Collection[str] | None = None,
    again: bool = False,
    timeout: float = 60.0,
    progress: Callable[[str], None] = lambda words: None,
) -> Written:
    """Write ``graphs.jsonl`` and ``scripts.jsonl`` of a run; existing entries are not made again.

    Args:
        overloads: The only operators to write for; None for all.
        again: Whether to make existing graphs and scripts again.
        timeout: Seconds for each.
        progress: Called with a label before each.

    Raises:
        ResultsError: the run cannot be read, or its directory not written.
    """
    info, minimals = read_run_info(run), read_minimal(run)
    given = info.options.get("opset")
    opset = given if isinstance(given, int) else None
    done_graphs = set() if again else set(read_graphs(run))
    done_scripts = set() if again else set(read_scripts(run))
    written = Written()
    with IsolatedCalls(timeout=timeout, prepare=partial(torch.set_num_threads, 1), fork=True) as process:
        for graph in wanted_graphs(run, overloads):
            if (graph.overload, graph.converter) in done_graphs:
                continue
            label = f"graph of {graph.overload} by {graph.converter}"
            progress(label)
            made = _made(process, written, label, make_graph, graph, opset)
            if made is not None:
                append_line(run, made)
                written.graphs += 1
        for row in wanted_failures(run, overloads):
            if (row.case_id, row.converter, row.backend) in done_scripts:
                continue
            label = f"script of {row.case_id}, {route_label(row.converter, row.backend)}"
            progress(label)
            mine = [minimal for minimal in minimals if minimal.case_id == row.case_id]
            script = _made(process, written, label, make_script, run, row, mine, info)
            if script is not None:
                append_line(run, script)
                written.scripts += 1
    return written


def _made(
    process: IsolatedCalls,
    written: Written,
    label: str,
    function: Callable[P, R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R | None:
    """Call the function in the process; return None, and note the error, if it fails, dies or hangs."""
    try:
        return process.call(function, *args, **kwargs)
    except Exception as error:
        written.failed[label] = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return None


def make_graph(wanted: WantedGraph, opset: int | None) -> Graph:
    """Export a case and write the model as text; `opset` is None for the converter's own default."""
    invocation = Invocation.from_json(wanted.invocation)
    case, route = call_case(invocation), Route.parse(wanted.converter)
    member = CallStructure(invocation, outputs=len(case.oracle.expected))
    request = dataclasses.replace(
        export_request([member], dataclasses.replace(route, opset=route.opset or opset)),
        input_names=CallSource(invocation).names,
        output_names=tuple(f"output{number}" for number in range(member.outputs)),
    )
    graph = emitted(start_converter(route), request)
    run = make_artefact(dataclasses.replace(case, artefact=graph.model), StartedRoute(route))
    if run.failure is not None:
        raise run.failure.error
    model = run.artefact
    assert isinstance(model, onnx.ModelProto)
    for node in model.graph.node:
        # Where a node comes from is long, and of the harness.
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    del model.metadata_props[:], model.graph.metadata_props[:]
    text = onnx.printer.to_text(model)
    if not route.transforms:
        text = _annotate_nodes(text, graph)
    return Graph(
        overload=wanted.overload,
        converter=wanted.converter,
        converter_version=wanted.converter_version,
        case_id=wanted.case_id,
        opset=emitted_opset(model),
        node_types=tuple(sorted({node.op_type for node in model.graph.node})),
        text=text if len(text) <= _LENGTH else f"{text[:_LENGTH]}\n… {len(text) - _LENGTH:,} more characters",
    )


def _annotate_nodes(text: str, graph: EmittedGraph) -> str:
    """Return the text of a model with the line of the converter after each node, if nodes can be told apart."""
    lines = text.splitlines()
    of_nodes = [i for i, line in enumerate(lines) if _NODE.match(line)]
    if len(of_nodes) != len(graph.lines):
        return text
    for place, emitting in zip(of_nodes, graph.lines, strict=True):
        lines[place] += f"  # {emitting_place(emitting)}" if emitting else ""
    return "\n".join(lines)


def make_script(run: Path, row: Verdict, minimals: list[Minimal], info: RunInfo) -> Script:
    """Write a failure as a script."""
    text = write_script(failure_of(run, row, minimals, info))
    return Script(case_id=row.case_id, converter=row.converter, backend=row.backend, text=text)
