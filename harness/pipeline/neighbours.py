"""Put a drawn node among neighbours that leave its values as they are.

A runtime may compute a node otherwise where another node reads or makes its values: it joins the two, computes in
place, or takes another kernel. The kinds of neighbours:

- ``identity``: an Identity before each input and behind each output.
- ``cast``: a Cast to a wider dtype and one back before each input and behind each output. Both are exact.
- ``reader``: a second reader of each input, which two Casts compute, and of each output.
- ``twice``: the same node a second time, with the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import onnx
from onnx import TensorProto, helper

from harness.pipeline.stages import emitted_opset

_Value = TypeVar("_Value")

#: Dtype → a dtype that holds all of its values.
_WIDER: Mapping[int, int] = {
    TensorProto.FLOAT16: TensorProto.FLOAT,
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.FLOAT: TensorProto.DOUBLE,
    TensorProto.BOOL: TensorProto.INT32,
    TensorProto.INT8: TensorProto.INT32,
    TensorProto.UINT8: TensorProto.INT32,
    TensorProto.INT16: TensorProto.INT32,
    TensorProto.UINT16: TensorProto.INT32,
    TensorProto.INT32: TensorProto.INT64,
    TensorProto.UINT32: TensorProto.INT64,
}
#: The operator set in which Cast names its dtype by a number.
_NUMBERED = 6


def add_neighbours(model: onnx.ModelProto, kind: str, dtypes: Mapping[str, int]) -> None:
    """Surround the nodes of a graph with neighbours.

    Args:
        model: The graph, which is changed; its further outputs are the copies of `copied_values`.
        kind: The kind of neighbours.
        dtypes: Value → dtype, of the inputs and of those outputs whose dtype is known.

    Raises:
        ValueError: no kind of neighbours has that name.
    """
    graph = model.graph
    outputs = [value.name for value in graph.output]
    around = _Surroundings(graph, dtypes if (emitted_opset(model) or 1) >= _NUMBERED else {})
    if kind == "identity":
        around.lead_in("identity")
        around.lead_out(outputs, "identity")
    elif kind == "cast":
        around.lead_in("cast")
        around.lead_out(outputs, "cast")
    elif kind == "reader":
        read = around.lead_in("cast")
        around.copy([*outputs, *read])
    elif kind == "twice":
        around.repeat(outputs)
    else:
        raise ValueError(f"no neighbours are called {kind!r}")


def copied_values(kind: str, outputs: int, inputs: int) -> tuple[int, ...]:
    """Return what each further output of a surrounded node copies: the place of an output, or -1 for the first input,
    -2 for the second, and so on."""
    if kind not in ("reader", "twice"):
        return ()
    return (*range(outputs), *(-1 - place for place in range(inputs if kind == "reader" else 0)))


def append_copies(
    values: Sequence[_Value], copies: Sequence[int], of_input: Callable[[int], _Value]
) -> tuple[_Value, ...]:
    """Return facts of the outputs of a node, with those of the copies behind them.

    Args:
        values: A fact of each output of the node.
        copies: See `copied_values`.
        of_input: Returns the fact of an input, by its place.
    """
    return (*values, *(values[place] if place >= 0 else of_input(-1 - place) for place in copies))


class _Surroundings:
    """Adds nodes before and behind those of a graph."""

    def __init__(self, graph: onnx.GraphProto, dtypes: Mapping[str, int]) -> None:
        self._graph = graph
        self._dtypes = dtypes

    def lead_in(self, kind: str) -> list[str]:
        """Let the nodes read each input through neighbours; return the values that these compute, in order."""
        graph = self._graph
        renamed = {value.name: f"{value.name}_near" for value in graph.input}
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
        for node in nodes:
            node.input[:] = [renamed.get(name, name) for name in node.input]
        before = [node for name, near in renamed.items() for node in self._chain(name, near, kind, name)]
        del graph.node[:]
        graph.node.extend([*before, *nodes])
        return list(renamed.values())

    def lead_out(self, outputs: Sequence[str], kind: str) -> None:
        """Compute each output by a neighbour."""
        graph, renamed = self._graph, {name: f"{name}_near" for name in outputs}
        for node in graph.node:
            node.input[:] = [renamed.get(name, name) for name in node.input]
            node.output[:] = [renamed.get(name, name) for name in node.output]
        for name, near in renamed.items():
            graph.node.extend(self._chain(near, name, kind, name))

    def copy(self, names: Sequence[str]) -> None:
        """Return values once more, each through an Identity."""
        for name in names:
            copy = f"{name}_copy"
            self._graph.node.append(helper.make_node("Identity", [name], [copy], name=f"{copy}_node"))
            self._graph.output.append(onnx.ValueInfoProto(name=copy))

    def repeat(self, outputs: Sequence[str]) -> None:
        """Compute the outputs once more by nodes of the same kind."""
        made = {name: f"{name}_again" for node in self._graph.node for name in node.output if name}
        for node in list(self._graph.node):
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            copy.name = f"{node.name}_again" if node.name else ""
            copy.input[:] = [made.get(name, name) for name in node.input]
            copy.output[:] = [made.get(name, name) for name in node.output]
            self._graph.node.append(copy)
        self._graph.output.extend(onnx.ValueInfoProto(name=made[name]) for name in outputs)

    def _chain(self, start: str, end: str, kind: str, typed: str) -> list[onnx.NodeProto]:
        dtype = self._dtypes.get(typed, 0)
        if kind == "identity" or dtype not in _WIDER:
            return [helper.make_node("Identity", [start], [end], name=f"{end}_node")]
        wide = f"{end}_wide"
        there = helper.make_node("Cast", [start], [wide], name=f"{wide}_node", to=_WIDER[dtype])
        return [there, helper.make_node("Cast", [wide], [end], name=f"{end}_node", to=dtype)]
