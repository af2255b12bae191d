"""Writing the graphs and scripts of a run; each is made in a process that an operator may take down."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import ParamSpec, TypeVar

import onnx
import onnx.printer
import torch

from harness.analyse.exhibits.selection import WantedGraph, wanted_failures, wanted_graphs
from harness.analyse.places.source_code import emitting_place
from harness.analyse.repro.call import CallSource
from harness.analyse.repro.failure import failure_of
from harness.analyse.repro.script import write_script
from harness.compare import Verdict
from harness.convert import Converter, EmittedGraph, emitted, find_converter
from harness.core import Invocation, IsolatedCalls
from harness.execute import Exportable, emitted_opset, export_request, run_reference
from harness.record import (
    Graph,
    Minimal,
    RunInfo,
    Script,
    append_line,
    read_graphs,
    read_minimal,
    read_run_info,
    read_scripts,
)

P = ParamSpec("P")
R = TypeVar("R")

#: How ONNX's text has a node of the graph itself.
_NODE = re.compile(r" {3}[^ <].* = ")
#: Characters of a graph's text at most: a page shows it.
_LENGTH = 20_000


@dataclass
class Written:
    """How many were written, and what could not be made → why, in a line."""

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
    """Write ``graphs.jsonl`` and ``scripts.jsonl`` of a run; what is there already is not made again.

    Args:
        overloads: Only these operators; None for all.
        again: Make also what is there.
        timeout: Seconds for each.
        progress: Called with a label of what is made next.

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
            label = f"script of {row.case_id}, {row.converter} → {row.backend}"
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
    """What the function makes in the process; None where it fails, dies or hangs, which is noted."""
    try:
        return process.call(function, *args, **kwargs)
    except Exception as error:
        written.failed[label] = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return None


def make_graph(wanted: WantedGraph, opset: int | None) -> Graph:
    """Export a case and write the model as text; `opset` is None for the converter's own default."""
    invocation = Invocation.from_json(wanted.invocation)
    member = Exportable.of(invocation, outputs=len(run_reference(invocation).expected))
    request = dataclasses.replace(
        export_request([member], opset=opset, dynamic=False),
        input_names=CallSource(invocation).names,
        output_names=tuple(f"output{number}" for number in range(member.outputs)),
    )
    graph = emitted(_converter(wanted.converter), request)
    model = graph.model
    for node in model.graph.node:
        # Where a node comes from is long, and of the harness.
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    del model.metadata_props[:], model.graph.metadata_props[:]
    text = _with_places(onnx.printer.to_text(model), graph)
    return Graph(
        overload=wanted.overload,
        converter=wanted.converter,
        converter_version=wanted.converter_version,
        case_id=wanted.case_id,
        opset=emitted_opset(model),
        node_types=tuple(sorted({node.op_type for node in model.graph.node})),
        text=text if len(text) <= _LENGTH else f"{text[:_LENGTH]}\n… {len(text) - _LENGTH:,} more characters",
    )


def _with_places(text: str, graph: EmittedGraph) -> str:
    """The text of a model with the line of the converter behind each node, where nodes are told apart."""
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


@cache
def _converter(name: str) -> Converter:
    return find_converter(name).create(False)
