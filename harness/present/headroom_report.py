"""The headroom of a model in float16, as a report and as JSON data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from harness.core.text import count
from harness.pipeline.headroom import DTYPE, Headroom, KeptNode
from harness.present.report import Note, Report, Row, Section

#: Values that a report shows.
_MOST_SHOWN = 8


def headroom_report(found: Headroom, name: str, runtime: str) -> Report:
    """Return the report: the verdict, the largest values, the nodes to keep and the options that keep them."""
    beyond = sum(peak.share > 1 for peak in found.peaks)
    inputs = count(found.inputs, "input")
    note = Note(f"{_verdict(found, beyond)} ({inputs}, {count(found.nodes, 'node')})", _style(found))
    peaks = (
        Row(f"{peak.operator} {peak.node}", f"{peak.largest:,.6g}, {peak.share:.2g} times the largest {DTYPE}")
        for peak in found.peaks[:_MOST_SHOWN]
    )
    kept = (Row(f"{node.operator} {node.node}", _without(node)) for node in found.kept)
    sections = [Section(title="Largest values", rows=tuple(peaks), noun="value")]
    if found.kept:
        sections.append(Section(title="To keep in float32", rows=tuple(kept), noun="node"))
    after = tuple(map(Note, _advice(found, runtime)))
    return Report(title=f"{name} in {DTYPE}", before=(note,), sections=tuple(sections), after=after)


def _verdict(found: Headroom, beyond: int) -> str:
    if found.problem:
        return found.problem
    if found.kept:
        return f"right if {count(len(found.kept), 'node')} of {found.nodes} stay in float32"
    hidden = f", although {count(beyond, 'value')} leave its range: later steps hide that" if beyond else ""
    return f"fits{hidden}"


def _style(found: Headroom) -> str:
    return "red" if found.problem else "yellow" if found.kept else "green"


def _without(node: KeptNode) -> str:
    if math.isinf(node.error_without):
        return "without it, an output is infinite or NaN"
    return f"without it, an output is off by {node.error_without:.2g} of its largest element"


def _advice(found: Headroom, runtime: str) -> Iterator[str]:
    if found.problem:
        return
    error = f"off by {found.error:.1e} of the largest element as the graph asks (allowed {found.limit:.1e})"
    ran = f", {found.runtime_error:.1e} in {runtime}" if found.runtime_error is not None else ""
    yield error + (ran or f"; {runtime} does not run the graph")
    if found.unnamed:
        yield f"{count(found.unnamed, 'node')} of the graph without a name are called by their first result"
    if found.kept:
        yield converter_options([node.node for node in found.kept])
        yield engine_options([node.node for node in found.kept])


def converter_options(nodes: Sequence[str]) -> str:
    """Return the call of ONNX Runtime's float16 converter that keeps nodes in float32."""
    return f"convert_float_to_float16(model, keep_io_types=True, node_block_list={[*nodes]!r})"


def engine_options(nodes: Sequence[str]) -> str:
    """Return the options of trtexec that keep layers in float32."""
    layers = ",".join(f"{node}:fp32" for node in nodes)
    return f"trtexec --fp16 --precisionConstraints=obey --layerPrecisions={layers} --layerOutputTypes={layers}"


def headroom_data(found: Headroom) -> dict[str, Any]:
    """Return the headroom as JSON data, with the options as text."""
    nodes = [node.node for node in found.kept]
    options = {"converter": converter_options(nodes), "trtexec": engine_options(nodes)} if nodes else {}
    return {"dtype": DTYPE, **asdict(found), "options": options}
