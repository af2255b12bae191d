"""A backend's values of a model's checkpoints, a slice of the graph at a time."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import helper
from torch.fx import Node

from harness.analyse.divergence.graph import PyTorchGraph
from harness.convert import Converter, ExportRequest
from harness.core import Array
from harness.execute import outer_names, to_numpy
from harness.run import Backend

#: Nodes of a slice that is exported by itself: an exporter's time grows faster than a graph.
_MOST_NODES = 60


@dataclass(frozen=True)
class Slice:
    """A part of the graph that the backend has run.

    Attributes:
        values: Node name → value, of its checkpoints, in the order in which they were computed.
        failure: Why they are PyTorch's instead of the backend's; "" where they are the backend's.
    """

    values: Mapping[str, Array]
    failure: str = ""


class BackendValues(Protocol):
    """Where a backend's values come from."""

    #: Names of the nodes that have one, in the order in which slices give them.
    checkpoints: tuple[str, ...]

    def slices(self) -> Iterator[Slice]:
        """Run the graph from its beginning, a slice at a time; each takes the backend's own values of those
        before it, so that all of them together cost one run."""

    def onnx_node(self, name: str) -> str:
        """The ONNX node that computes a checkpoint, for people: operator type and name."""


class OfWholeModel:
    """Values of the model as it was exported, whose values are named like the nodes of the PyTorch graph.

    `sizes` is from `PyTorchGraph.sizes`; a slice holds `budget` bytes of checkpoints.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        graph: PyTorchGraph,
        backend: Backend,
        feeds: Mapping[str, Array],
        sizes: Mapping[str, int],
        budget: int,
    ) -> None:
        self._model = model
        self._backend = backend
        self._feeds = dict(feeds)
        outputs = zip((o.name for o in model.graph.output), graph.outputs, strict=True)
        self._renamed = {name: node.name for name, node in outputs}
        self._producer: dict[str, onnx.NodeProto] = {}
        self._parts: list[list[onnx.NodeProto]] = [[]]
        self._initialisers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._types = {v.name: v for v in (*model.graph.value_info, *model.graph.output)}
        checkpoints, filled = [], 0
        for node in model.graph.node:
            self._parts[-1].append(node)
            for value in node.output:
                name = self._node_name(value)
                if name in sizes and name not in self._producer:
                    self._producer[name] = node
                    checkpoints.append(name)
                    filled += sizes[name]
            if filled > budget:
                self._parts.append([])
                filled = 0
        self.checkpoints = tuple(checkpoints)

    def _node_name(self, value: str) -> str:
        return self._renamed.get(value, value)

    def onnx_node(self, name: str) -> str:
        """See `BackendValues`."""
        node = self._producer[name]
        return f"{node.op_type} {node.name}".strip()

    def slices(self) -> Iterator[Slice]:
        """See `BackendValues`."""
        needed: list[set[str]] = [set() for _ in self._parts]
        later: set[str] = set()
        for i in reversed(range(len(self._parts))):
            needed[i] = set(later)
            later |= {name for node in self._parts[i] for name in outer_names(node)}
        held: dict[str, Array] = dict(self._feeds)
        for part, after in zip(self._parts, needed, strict=True):
            if not part:
                continue
            produced = [name for node in part for name in node.output if name]
            wanted = [n for n in produced if n in after or self._node_name(n) in self._producer]
            outputs = self._run(part, wanted, held)
            named = {self._node_name(name): array for name, array in outputs.items()}
            yield Slice({name: array for name, array in named.items() if name in self._producer})
            held = {name: array for name, array in {**held, **outputs}.items() if name in after}

    def _run(
        self, part: Sequence[onnx.NodeProto], wanted: Sequence[str], held: Mapping[str, Array]
    ) -> dict[str, Array]:
        if not wanted:
            return {}
        model = onnx.ModelProto()
        model.ir_version = self._model.ir_version
        model.opset_import.extend(self._model.opset_import)
        model.functions.extend(self._model.functions)
        model.graph.name = "slice"
        model.graph.node.extend(part)
        read = {name for node in part for name in outer_names(node)}
        model.graph.initializer.extend(t for name, t in self._initialisers.items() if name in read)
        feeds = {name: array for name, array in held.items() if name in read}
        for name, array in feeds.items():
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            model.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        for name in wanted:
            model.graph.output.append(self._types.get(name) or onnx.ValueInfoProto(name=name))
        session = self._backend.load(model, None)
        return dict(zip(wanted, session.run(feeds), strict=True))


class OfExportedSlices:
    """Values of slices of the PyTorch graph that are exported one by one, with any converter.

    `sizes` and `budget` are as for `OfWholeModel`; `opset` is None for the converter's own.
    """

    def __init__(
        self,
        graph: PyTorchGraph,
        converter: Converter,
        backend: Backend,
        sizes: Mapping[str, int],
        budget: int,
        opset: int | None,
    ) -> None:
        self._graph = graph
        self._converter = converter
        self._backend = backend
        self._opset = opset
        self._producer: dict[str, str] = {}
        self._parts: list[list[Node]] = [[]]
        filled = 0
        for node in graph.nodes:
            full = filled > budget or len(self._parts[-1]) >= _MOST_NODES
            # What takes one of several results stays with them.
            if full and node.target is not operator.getitem:
                self._parts.append([])
                filled = 0
            self._parts[-1].append(node)
            filled += sizes.get(node.name, 0)
        self.checkpoints = tuple(n.name for part in self._parts for n in part if n.name in sizes)

    def onnx_node(self, name: str) -> str:
        """See `BackendValues`."""
        return self._producer.get(name, "")

    def slices(self) -> Iterator[Slice]:
        """See `BackendValues`."""
        known = set(self.checkpoints)
        last = {s.name: i for i, part in enumerate(self._parts) for n in part for s in n.all_input_nodes}
        held: dict[str, torch.Tensor] = {}
        for i, part in enumerate(self._parts):
            names = [node.name for node in part if node.name in known]
            try:
                done = Slice(self._run(part, names, held))
            except Exception as error:
                said = f"{part[0].name} … {part[-1].name}: {first_line(error)}"
                done = Slice(self._computed(part, names, held), said)
            yield done
            found = done.values
            strides = self._graph.strides
            held.update({name: to_torch(found[name], strides.get(name)) for name in names})
            held = {name: tensor for name, tensor in held.items() if last.get(name, -1) > i}

    def _run(self, part: Sequence[Node], names: Sequence[str], held: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        program, sources = self._module(part, names)
        inputs = [held[s.name] if s.name in held else self._graph.value(s) for s in sources]
        request = ExportRequest(
            program=program,
            inputs=tuple(t.clone() for t in inputs),
            input_names=tuple(f"in_{s.name}" for s in sources),
            output_names=tuple(f"out_{name}" for name in names),
            opset=self._opset,
        )
        model = self._converter.convert(request)
        by_output = {value: node for node in model.graph.node for value in node.output}
        for name in names:
            node = by_output.get(f"out_{name}")
            self._producer[name] = f"{node.op_type} {node.name}".strip() if node is not None else ""
        taken = {value.name for value in model.graph.input}
        feeds = {
            name: to_numpy(tensor) for name, tensor in zip(request.input_names, inputs, strict=True) if name in taken
        }
        outputs = self._backend.load(model, None).run(feeds)
        return dict(zip(names, outputs, strict=True))

    def _module(self, part: Sequence[Node], names: Sequence[str]) -> tuple[torch.fx.GraphModule, list[Node]]:
        """A part as a program; what it takes beside weights, which are its own."""
        graph, root = torch.fx.Graph(), torch.nn.Module()
        inside, copies = set(part), dict[Node, Node]()
        outer = dict.fromkeys(s for node in part for s in node.all_input_nodes if s not in inside)
        sources = [s for s in outer if s.op == "call_function" or self._graph.is_input(s)]
        for source in sources:
            copies[source] = graph.placeholder(source.name)
        for source in (s for s in outer if s not in copies):
            root.register_buffer(source.name, self._graph.value(source))
            copies[source] = graph.get_attr(source.name)
        for node in part:
            copies[node] = graph.node_copy(node, lambda n: copies[n])
        graph.output(tuple(copies[node] for node in part if node.name in names))
        return torch.fx.GraphModule(root, graph).eval(), sources

    def _computed(
        self, part: Sequence[Node], names: Sequence[str], held: Mapping[str, torch.Tensor]
    ) -> dict[str, Array]:
        env = self._graph.compute(part, lambda n: held[n.name] if n.name in held else self._graph.value(n))
        return {node.name: to_numpy(env[node]) for node in part if node.name in names}


def first_line(error: Exception) -> str:
    """The error's type and the first line of its words."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def to_torch(array: Array, strides: tuple[int, ...] | None = None) -> torch.Tensor:
    """The tensor that `to_numpy` gave an array of; it shares the array's memory where that can be.

    Args:
        array: In row-major order.
        strides: That the tensor had; what views it needs them. Those of a tensor that overlaps itself are not
            restored.
    """
    shape = array.shape
    # A 0-d array gets a dimension by this.
    array = np.ascontiguousarray(array if array.flags.writeable else np.array(array))
    if array.dtype == ml_dtypes.bfloat16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    tensor = tensor.reshape(shape)
    if strides is None or len(strides) != len(shape) or strides == tensor.stride():
        return tensor
    if not _is_dense(shape, strides):
        return tensor
    return torch.empty_strided(shape, strides, dtype=tensor.dtype).copy_(tensor)


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie without gaps or overlaps, in whatever order of dimensions."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True
