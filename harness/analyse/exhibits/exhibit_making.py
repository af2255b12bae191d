"""Making one graph or one script. Runs in a process that a failing operator may take down."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import onnx
import onnx.printer
import torch

from harness.analyse.exhibits.selection import WantedGraph
from harness.analyse.repro.call import CallSource
from harness.analyse.repro.failure import failure_of
from harness.analyse.repro.script import write_script
from harness.compare import Verdict
from harness.convert import Converter, find_converter
from harness.core import Invocation
from harness.execute import Exportable, emitted_opset, export_request, run_reference
from harness.record import Graph, Minimal, RunInfo, Script

#: Characters of a graph's text at most: a page shows it.
_LENGTH = 20_000


def one_thread() -> None:
    """Prepare the process: it does one thing at a time."""
    torch.set_num_threads(1)


def make_graph(wanted: WantedGraph, opset: int | None) -> Graph:
    """Export a case and write the model as text.

    Args:
        wanted: The case.
        opset: To emit; None for the converter's own default.

    Raises:
        Exception: PyTorch's or the converter's own.
    """
    invocation = Invocation.from_json(wanted.invocation)
    member = Exportable.of(invocation, outputs=len(run_reference(invocation).expected))
    request = dataclasses.replace(
        export_request([member], opset=opset, dynamic=False),
        input_names=CallSource(invocation).names,
        output_names=tuple(f"output{number}" for number in range(member.outputs)),
    )
    model = _converter(wanted.converter).convert(request)
    for node in model.graph.node:
        # Where a node comes from is long, and of the harness.
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output):
        del value.metadata_props[:]
    del model.metadata_props[:], model.graph.metadata_props[:]
    text = onnx.printer.to_text(model)
    return Graph(
        overload=wanted.overload,
        converter=wanted.converter,
        converter_version=wanted.converter_version,
        case_id=wanted.case_id,
        opset=emitted_opset(model),
        node_types=tuple(sorted({node.op_type for node in model.graph.node})),
        text=text if len(text) <= _LENGTH else f"{text[:_LENGTH]}\n… {len(text) - _LENGTH:,} more characters",
    )


def make_script(run: Path, row: Verdict, minimals: list[Minimal], info: RunInfo) -> Script:
    """Write a failure as a script.

    Raises:
        NoScript: there is no stand-alone code for it.
        Exception: PyTorch's own.
    """
    text = write_script(failure_of(run, row, minimals, info))
    return Script(case_id=row.case_id, converter=row.converter, backend=row.backend, text=text)


@cache
def _converter(name: str) -> Converter:
    return find_converter(name).create(False)
