"""Compare a backend's intermediate values of a model with PyTorch's graph of it.

A *checkpoint* is a node of PyTorch's graph whose value the backend gives. The nodes between a checkpoint and the
checkpoints and inputs that it is computed from are its *region*: one operator mostly, several if an exporter or its
optimiser fused them.

The backend runs the graph in slices, each from its own values of the slices before, and keeps no value longer than its
last reader needs it: memory is bounded by a slice and the live values around it, and all slices together cost one run.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import helper
from torch.fx import Node

from harness.convert.converter import Converter, ExportRequest, find_converter, tensor_inputs
from harness.core.dtypes import Array
from harness.core.route import Route
from harness.core.text import first_line
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import OpOverload
from harness.pipeline.captured_calls import module_path
from harness.pipeline.run_graph import run_graph
from harness.pipeline.stages import named_feeds
from harness.pipeline.submodel import outer_names
from harness.pipeline.torch_call import quiet_call
from harness.run.artefact import ONNX, Artefact
from harness.run.backend import Backend


@dataclass(frozen=True)
class Region:
    """A checkpoint and the nodes that compute it from others.

    Attributes:
        node: The checkpoint.
        nodes: All of the region, the checkpoint last.
        sources: Checkpoints and placeholders that these read, each once.
    """

    node: Node
    nodes: tuple[Node, ...]
    sources: tuple[Node, ...]

    @property
    def operators(self) -> tuple[Node, ...]:
        """Calls of operators in it, without those that only take one of several results."""
        return tuple(n for n in self.nodes if isinstance(n.target, OpOverload))

    @property
    def module(self) -> str:
        """The module that the checkpoint comes from, by its path."""
        return next((path for n in reversed(self.nodes) if (path := module_path(n))), "")


class PyTorchGraph:
    """A graph of ATen calls, with the values of its placeholders.

    Args:
        graph: A graph made by `torch.export`.
        placeholders: Node name → value; weights, constants and inputs.
        attributes: Values of ``get_attr`` nodes, by target.
        inputs: Names of the placeholders that are inputs.
    """

    def __init__(
        self,
        graph: torch.fx.Graph,
        placeholders: Mapping[str, Any],
        attributes: torch.nn.Module,
        inputs: Iterable[str],
    ) -> None:
        self.graph = graph
        self.nodes = tuple(n for n in graph.nodes if n.op == "call_function")
        results: Any = graph.output_node().args[0]
        self.outputs: tuple[Node, ...] = tuple(n for n in results if isinstance(n, Node))
        self._placeholders = dict(placeholders)
        self._attributes = attributes
        self._inputs = frozenset(inputs)
        #: Node name → strides of its value, once `sizes` has been asked for.
        self.strides: dict[str, tuple[int, ...]] = {}

    @classmethod
    def bind(cls, program: torch.export.ExportedProgram, inputs: Sequence[torch.Tensor]) -> PyTorchGraph:
        """Return the graph of an exported program with values for its inputs."""
        signature = program.graph_signature
        state = {**program.state_dict, **program.constants}
        named = {
            **signature.inputs_to_parameters,
            **signature.inputs_to_buffers,
            **signature.inputs_to_lifted_tensor_constants,
        }
        placeholders = [n.name for n in program.graph.nodes if n.op == "placeholder"]
        given = [name for name, _ in tensor_inputs(program)]
        values = {name: state[named[name]].detach() for name in placeholders if name in named}
        # Flags and sizes that the user passes are constants of the program.
        values |= {
            n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder" and n.name not in named
        }
        values |= zip(given, inputs, strict=True)
        return cls(program.graph, values, program.graph_module, given)

    def is_input(self, node: Node) -> bool:
        """Whether a node is an input of the model, rather than a weight."""
        return node.name in self._inputs

    def value(self, node: Node) -> Any:
        """Return the value of a placeholder or an attribute."""
        if node.op == "get_attr":
            return operator.attrgetter(str(node.target))(self._attributes)
        return self._placeholders[node.name]

    def sizes(self) -> dict[str, int]:
        """Node name → bytes of its value, of the nodes whose value is one tensor; runs the graph once."""
        sizes: dict[str, int] = {}
        last_use = {source: node for node in self.nodes for source in node.all_input_nodes}
        env: dict[Node, Any] = {}
        with quiet_call():
            for node in self.nodes:
                value = self.call(node, lambda n: env[n] if n in env else self.value(n))
                if isinstance(value, torch.Tensor):
                    sizes[node.name] = value.numel() * value.element_size()
                    self.strides[node.name] = value.stride()
                env[node] = value
                for source in node.all_input_nodes:
                    if last_use[source] is node:
                        env.pop(source, None)
                if node not in last_use:
                    env.pop(node, None)
        return sizes

    def call(self, node: Node, get: Callable[[Node], Any]) -> Any:
        """Compute the value of one call."""
        args = torch.fx.map_arg(node.args, get)
        kwargs = torch.fx.map_arg(node.kwargs, get)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def region(self, node: Node, checkpoints: set[str]) -> Region:
        """Return the region of a checkpoint."""
        nodes: list[Node] = []
        sources: dict[Node, None] = {}
        seen: set[Node] = set()

        def visit(n: Node) -> None:
            seen.add(n)
            for source in n.all_input_nodes:
                if source in seen:
                    continue
                if source.op == "call_function" and source.name not in checkpoints:
                    visit(source)
                else:
                    sources[source] = None
            nodes.append(n)

        visit(node)
        return Region(node, tuple(nodes), tuple(sources))

    def compute(self, nodes: Iterable[Node], get: Callable[[Node], Any]) -> dict[Node, Any]:
        """Compute the values of nodes in their order, from the values that they read."""
        env: dict[Node, Any] = {}
        for node in nodes:
            env[node] = self.call(node, lambda n: env[n] if n in env else get(n))
        return env


#: Nodes of a slice that is exported by itself: an exporter's time grows faster than a graph.
_MOST_NODES = 60
#: Slices of a model that fail and are cut in two.
_MOST_HALVINGS = 24


@dataclass(frozen=True)
class Slice:
    """A part of the graph that the backend has run.

    Attributes:
        values: Node name → value, of its checkpoints, in the order in which they were computed.
        failure: Why they are PyTorch's instead of the backend's; "" if they are the backend's.
    """

    values: Mapping[str, Array]
    failure: str = ""


class BackendValues(Protocol):
    """A source of a backend's values."""

    #: Names of the nodes that have one, in the order in which slices give them.
    checkpoints: tuple[str, ...]

    def slices(self) -> Iterator[Slice]:
        """Run the graph from its beginning, a slice at a time; each takes the backend's own values of those
        before it, so that all of them together cost one run."""

    def onnx_node(self, name: str) -> str:
        """Describe the ONNX node that computes a checkpoint: operator type and name."""


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
        return dict(zip(wanted, run_graph(self._backend, model, feeds).outputs_or_raise(), strict=True))


class OfExportedSlices:
    """Values of slices of the PyTorch graph that are exported one by one, with any converter.

    `sizes` and `budget` are as for `OfWholeModel`.
    """

    def __init__(
        self,
        graph: PyTorchGraph,
        converter: Converter,
        backend: Backend,
        sizes: Mapping[str, int],
        budget: int,
        route: Route,
    ) -> None:
        self._graph = graph
        self._converter = converter
        self._backend = backend
        self._opset = route.opset
        # Runtimes other than ONNX's take and give arrays in the memory order of the capture, or refuse.
        self._is_contiguous = find_converter(converter.name).makes != ONNX
        self._producer: dict[str, str] = {}
        self._parts: list[list[Node]] = [[]]
        filled = 0
        for node in graph.nodes:
            full = filled > budget or len(self._parts[-1]) >= _MOST_NODES
            # A node that takes one of several results stays with them.
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
        order = {node: place for place, node in enumerate(node for part in self._parts for node in part)}
        last = {s.name: order[n] for n in order for s in n.all_input_nodes}
        held: dict[str, torch.Tensor] = {}
        pending, halvings = self._parts[::-1], _MOST_HALVINGS
        while pending:
            part = pending.pop()
            names = [node.name for node in part if node.name in known]
            try:
                done = Slice(self._run(part, names, held))
            except Exception as error:
                halves = _halves(part) if halvings else []
                if halves:
                    # Usually one call fails; the others can be compared.
                    halvings -= 1
                    pending += halves[::-1]
                    continue
                message = f"{part[0].name} … {part[-1].name}: {first_line(error)}"
                done = Slice(self._computed(part, names, held), message)
            yield done
            found = done.values
            strides = self._graph.strides
            held.update({name: to_torch(found[name], strides.get(name)) for name in names})
            held = {name: tensor for name, tensor in held.items() if last.get(name, -1) > order[part[-1]]}

    def _run(self, part: Sequence[Node], names: Sequence[str], held: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        program, sources = self._module(part, names)
        inputs = [held[s.name] if s.name in held else self._graph.value(s) for s in sources]
        if self._is_contiguous:
            inputs = [tensor.contiguous() for tensor in inputs]
        request = ExportRequest(
            program=program,
            inputs=tuple(t.clone() for t in inputs),
            input_names=tuple(f"in_{s.name}" for s in sources),
            output_names=tuple(f"out_{name}" for name in names),
            opset=self._opset,
        )
        model = self._converter.convert(request)
        nodes = () if isinstance(model, Artefact) else model.graph.node
        by_output = {value: node for node in nodes for value in node.output}
        for name in names:
            node = by_output.get(f"out_{name}")
            self._producer[name] = f"{node.op_type} {node.name}".strip() if node is not None else ""
        feeds = named_feeds(model, request.input_names, map(to_numpy, inputs))
        return dict(zip(names, run_graph(self._backend, model, feeds).outputs_or_raise(), strict=True))

    def _module(self, part: Sequence[Node], names: Sequence[str]) -> tuple[torch.fx.GraphModule, list[Node]]:
        """Return a part as a program, and the nodes that it takes apart from its own weights."""
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
        results = [copies[node] for node in part if node.name in names]
        if self._is_contiguous:
            results = [graph.call_function(torch.ops.aten.contiguous.default, (result,)) for result in results]
        graph.output(tuple(results))
        return torch.fx.GraphModule(root, graph).eval(), sources

    def _computed(
        self, part: Sequence[Node], names: Sequence[str], held: Mapping[str, torch.Tensor]
    ) -> dict[str, Array]:
        env = self._graph.compute(part, lambda n: held[n.name] if n.name in held else self._graph.value(n))
        return {node.name: to_numpy(env[node]) for node in part if node.name in names}


def _halves(part: list[Node]) -> list[list[Node]]:
    """Cut a part in two, or return none if it cannot be cut: a reader of several results stays with them."""
    middle = len(part) // 2
    while 0 < middle < len(part) and part[middle].target is operator.getitem:
        middle += 1
    return [part[:middle], part[middle:]] if 0 < middle < len(part) else []


def to_torch(array: Array, strides: tuple[int, ...] | None = None) -> torch.Tensor:
    """Return the tensor from which `to_numpy` made an array; it shares the array's memory if possible.

    Args:
        array: The array in row-major order.
        strides: The tensor's strides, which its views need. Strides of a tensor that overlaps itself are not
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
