"""Cut a user's ONNX file into small graphs, which are seeds for mutants.

1. Sizes that the file leaves open are two, the same everywhere.
2. A window begins at each node and takes further nodes in their order if they read what it computes.
3. Its inputs are the values that it does not compute. So are large weights: a record keeps no more than small ones.
4. Of windows with the same operators and edges the first is kept; the rarest kinds of windows come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx
from onnx import helper
from onnx.inliner import inline_local_functions

from harness.core.invocation import GRAPH
from harness.generate.graph_seeds import NotWritable, graph_invocation
from harness.generate.shapes import MAX_ELEMENTS

#: Nodes of a window; fusions of attention look at more, those of everything else at fewer.
_NODES = 8
#: Elements of an input or a value of a window, at most.
_LARGEST = 1 << 18
#: Windows of a file, at most.
_MOST = 64
_OPEN_SIZE = 2


class BadModel(Exception):
    """A file that cannot be cut; the message is for people."""


def cut_windows(path: Path) -> Mapping[str, onnx.ModelProto]:
    """Return windows of a file by the overload of their graphs: ``graph.NAME-3`` begins at the fourth node.

    Raises:
        BadModel: the file is no valid ONNX model, or has no part that can be changed.
    """
    try:
        model = onnx.load(path)
        if model.functions:
            model = inline_local_functions(model)
        _close_sizes(model.graph)
        onnx.checker.check_model(model, full_check=True)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except FileNotFoundError:
        raise BadModel(f"{path}: file not found") from None
    except Exception as error:
        raise BadModel(f"{path}: no valid ONNX model: {str(error).strip().splitlines()[0]}") from None
    windows = list(_Cut(model).windows())
    kinds = Counter(kind for window in windows for kind in window.operators)
    first = {window.structure: window for window in reversed(windows)}
    rarest = sorted(first.values(), key=lambda w: (min(kinds[o] for o in w.operators), w.place))[:_MOST]
    if not rarest:
        raise BadModel(f"{path}: no part of it has values of known and small sizes")
    return {f"{GRAPH}{path.stem}-{window.place}": window.model for window in rarest}


def _close_sizes(graph: onnx.GraphProto) -> None:
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if not dim.HasField("dim_value"):
                dim.dim_value = _OPEN_SIZE
    del graph.value_info[:]


@dataclass(frozen=True)
class _Window:
    """A part of a file.

    Attributes:
        place: The place of its first node in the file.
        model: The part as a model.
        operators: Its operators, in order.
        structure: Its operators with the places of the nodes that they read from.
    """

    place: int
    model: onnx.ModelProto
    operators: Sequence[str]
    structure: object


class _Cut:
    """Cuts a model whose types are inferred."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._model, self._nodes = model, list(graph.node)
        self._weights = {tensor.name: tensor for tensor in graph.initializer}
        self._types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
        readers: dict[str, set[int]] = {}
        for place, node in enumerate(self._nodes):
            for name in node.input:
                readers.setdefault(name, set()).add(place)
        self._readers, self._returned = readers, {value.name for value in graph.output}

    def windows(self) -> Iterator[_Window]:
        """Yield a window for each node at which one can begin."""
        for place in range(len(self._nodes)):
            chosen = self._choose(place)
            model = self._build(chosen)
            if model is None:
                continue
            try:
                graph_invocation(model, GRAPH + "window")
            except NotWritable:
                continue
            operators = [f"{self._nodes[i].domain}.{self._nodes[i].op_type}" for i in chosen]
            yield _Window(place, model, operators, self._structure(chosen, operators))

    def _choose(self, start: int) -> list[int]:
        chosen, made = [start], set(self._nodes[start].output)
        for place in range(start + 1, len(self._nodes)):
            if len(chosen) == _NODES:
                break
            if not made.isdisjoint(self._nodes[place].input):
                chosen.append(place)
                made.update(self._nodes[place].output)
        return chosen

    def _structure(self, chosen: Sequence[int], operators: Sequence[str]) -> object:
        makers = {name: number for number, i in enumerate(chosen) for name in self._nodes[i].output}
        edges = tuple(tuple(makers.get(name, -1) for name in self._nodes[i].input) for i in chosen)
        return tuple(operators), edges

    def _build(self, chosen: Collection[int]) -> onnx.ModelProto | None:
        """Return the chosen nodes as a model; None if a value has no known size, or too many elements."""
        nodes = [self._nodes[i] for i in chosen]
        made = {name for node in nodes for name in node.output if name}
        if any(attribute.HasField("g") for node in nodes for attribute in node.attribute):
            return None
        read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
        held = [name for name in read if name in self._weights and prod(self._weights[name].dims) <= MAX_ELEMENTS]
        outside = [name for name in made if name in self._returned or self._readers.get(name, set()) - set(chosen)]
        taken, given = [name for name in read if name not in held], outside or list(nodes[-1].output)
        known = {name: value for name in (*taken, *given) if (value := self._declared(name)) is not None}
        if not taken or len(known) < len({*taken, *given}):
            return None
        inputs, outputs = [known[name] for name in taken], [known[name] for name in given]
        graph = helper.make_graph(nodes, "window", inputs, outputs, [self._weights[name] for name in held])
        return helper.make_model(graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version)

    def _declared(self, name: str) -> onnx.ValueInfoProto | None:
        if name in self._weights:
            tensor = self._weights[name]
            kind = helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        elif name in self._types:
            kind = self._types[name]
        else:
            return None
        sizes = kind.tensor_type.shape.dim
        is_known = kind.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in sizes)
        if not is_known or prod(dim.dim_value for dim in sizes) > _LARGEST:
            return None
        return onnx.ValueInfoProto(name=name, type=kind)
