"""The first value of a model at which a backend departs from PyTorch.

A backend's values of a model's checkpoints, a slice of the graph at a time.

The operators of a departure, each exported and run alone on the values that it had in the model.

A divergence as a value, for people, as data, and as entries of the corpus.

Find the first divergence: the earliest exported value that PyTorch does not make of its inputs.

Every checkpoint is computed by PyTorch from the backend's own values of what it is computed from, and
compared. So errors that earlier operators made take no part, and where nothing departs, the end result's
error is what roundings add up to. The backend runs the graph in slices, each from its own values of those
before, and keeps no value longer than its last reader needs it: memory is bounded by a slice and what is live
beside it, and all slices together cost one run, where a bisection over the graph would cost one run for each
of its steps.

A value that is looked at cannot be fused away. Where none departs, and the backend is right without its
optimisations, the fault is one of fusing.
"""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import onnx
import torch
from onnx import helper
from torch.fx import Node

from harness.compare.comparison import compare
from harness.compare.judge import CLOSE
from harness.compare.verdict import Stage
from harness.convert.converter import Converter, ExportRequest, HasProgram, find_converter
from harness.core.described_tensor import describe_tensor
from harness.core.documents import describe_error
from harness.core.dtypes import Array
from harness.core.invocation import Invocation, TensorSpec
from harness.core.plugins import UnknownName
from harness.core.route import Route, route_label
from harness.core.tensors import build_tensors, output_tensors
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import OpOverload
from harness.generate.regressions.corpus_store import CorpusEntry
from harness.models.capture import CannotKeep, functional, invocation_of, module_path
from harness.models.departure import Departure, PyTorchGraph, Region, check, judged
from harness.models.divergence_task import DivergeTask
from harness.pipeline.model_cases import ModelStructure, cases_of
from harness.pipeline.model_loading import LoadedModel, ModelProblem
from harness.pipeline.model_reference import ModelReference, run_model
from harness.pipeline.model_task import ErrorGrowth, NoModel
from harness.pipeline.program import Exportable, convert_stage, export_alone, translate
from harness.pipeline.rounding_oracle import Move, RoundingOracle
from harness.pipeline.stages import StageFailure, named_feeds, run_artefact, run_or_raise
from harness.pipeline.submodel import outer_names
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Step
from harness.pipeline.torch_call import quiet_call
from harness.pipeline.worker import WorkerProcess
from harness.run.artefact import ONNX, AnyModel, Artefact
from harness.run.backend import Backend, HasPlain

#: Nodes of a slice that is exported by itself: an exporter's time grows faster than a graph.
_MOST_NODES = 60
#: Slices of a model that fail and are cut in two.
_MOST_HALVINGS = 24


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
        return dict(zip(wanted, run_or_raise(self._backend, model, feeds), strict=True))


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
        # Beside ONNX, runtimes take and give arrays in the order of memory that they were captured with, or refuse.
        self._is_contiguous = find_converter(converter.name).makes != ONNX
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
                    # What fails is one call, mostly; the others can be compared.
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
        model = convert_stage(self._converter, request)
        if isinstance(model, StageFailure):
            raise model.error
        nodes = () if isinstance(model, Artefact) else model.graph.node
        by_output = {value: node for node in nodes for value in node.output}
        for name in names:
            node = by_output.get(f"out_{name}")
            self._producer[name] = f"{node.op_type} {node.name}".strip() if node is not None else ""
        feeds = named_feeds(model, request.input_names, map(to_numpy, inputs))
        return dict(zip(names, run_or_raise(self._backend, model, feeds), strict=True))

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
    """A part cut in two; none where it cannot be: what takes one of several results stays with them."""
    middle = len(part) // 2
    while 0 < middle < len(part) and part[middle].target is operator.getitem:
        middle += 1
    return [part[:middle], part[middle:]] if 0 < middle < len(part) else []


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


#: Storage elements up to which an operator's arguments are kept as they are.
_EXACT = 64


@dataclass(frozen=True)
class Alone:
    """An operator by itself.

    Attributes:
        invocation: The call, with arguments like those that it had in the model; None where it is none.
        outcome: ``pass``, ``mismatch``, or ``error`` where it cannot be exported or run by itself.
        message: In what way it is wrong.
    """

    overload: str
    invocation: Invocation | None
    outcome: str
    message: str = ""


def run_alone(
    graph: PyTorchGraph,
    region: Region,
    get: Callable[[Node], Any],
    converter: Converter,
    backend: Backend,
    route: Route,
) -> list[Alone]:
    """Each operator of a region on the values that PyTorch gives it there."""
    with quiet_call():
        env = graph.compute(region.nodes, get)

    def value(node: Node) -> Any:
        return env[node] if node in env else get(node)

    return [_one(graph, node, value, converter, backend, route) for node in region.operators]


def _one(
    graph: PyTorchGraph,
    node: Node,
    value: Callable[[Node], Any],
    converter: Converter,
    backend: Backend,
    route: Route,
) -> Alone:
    overload = str(node.target)
    tensors: list[torch.Tensor] = []

    def describe(tensor: torch.Tensor, place: str) -> TensorSpec:
        tensors.append(tensor)
        return describe_tensor(tensor, place, exact=_EXACT)

    try:
        assert isinstance(node.target, OpOverload)
        invocation = invocation_of(
            node.target, torch.fx.map_arg(node.args, value), torch.fx.map_arg(node.kwargs, value), describe
        )
    except CannotKeep as reason:
        return Alone(overload, None, "error", str(reason))
    try:
        with quiet_call():
            results = output_tensors(graph.call(node, value))
        structure = Exportable.of(invocation, outputs=len(results), tensors=tensors)
        model = export_alone(converter, structure, replace(route, dynamic=False))
        got = run_or_raise(backend, model, structure.feeds(model, [to_numpy(t) for t in tensors]))
    except Exception as error:
        return Alone(overload, invocation, "error", describe_error(error))
    alone = Region(node, (node,), tuple(node.all_input_nodes))
    comparison = judged(graph, alone, value, tuple(map(to_numpy, results)), got)
    return Alone(overload, invocation, "mismatch" if comparison.problem else "pass", comparison.message)


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """What was found.

    Attributes:
        change: In what the run's inputs differ from the example; "" for the example.
        kind: ``none`` where the result is right; ``operator`` where a value departs; ``accumulated`` where
            none does; ``optimisation`` where none does and the backend is right without its optimisations;
            ``unknown`` where none does of those that could be compared.
        problem: What is wrong with the end result; "" where it is right.
        module: Of the departure: the module of `operator`, by its path.
        operator: Which operator departs: of several the first that is wrong by itself, else the last.
        operators: The operators that the value is the result of, the last first.
        node: Of the PyTorch graph.
        detail: How the value differs.
        alone: The operators by themselves.
        checked: Values compared, of the `checkpoints` that could be.
        not_run: Slices that could not be exported or run by themselves, in words.
        growth: How errors grew over the whole; None where that cannot be said.
    """

    model: str
    converter: str
    backend: str
    change: str
    kind: str
    problem: str
    module: str = ""
    operator: str = ""
    operators: tuple[str, ...] = ()
    node: str = ""
    onnx_node: str = ""
    detail: str = ""
    alone: tuple[Alone, ...] = ()
    checked: int = 0
    checkpoints: int = 0
    not_run: tuple[str, ...] = ()
    growth: ErrorGrowth | None = None

    @property
    def failing_calls(self) -> tuple[Invocation, ...]:
        """The calls of the departure that are wrong by themselves."""
        wrong = (alone.invocation for alone in self.alone if alone.outcome == "mismatch")
        return tuple(call for call in wrong if call is not None)

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        data = asdict(self)
        for alone, entry in zip(self.alone, data["alone"], strict=True):
            invocation = alone.invocation
            entry["case_id"] = invocation.case_id if invocation is not None else ""
            entry["invocation"] = invocation.json if invocation is not None else ""
        return data


def divergence_entries(found: Divergence) -> list[CorpusEntry]:
    """The operators of a departure, to be run by themselves from now on."""
    where = f" ({found.module})" if found.module else ""
    note = f"first divergence of {found.model}{where}, {route_label(found.converter, found.backend)}"
    return [
        CorpusEntry(invocation=alone.invocation, origin="captured", note=note)
        for alone in found.alone
        if alone.invocation is not None
    ]


#: Bytes of checkpoints to a slice.
BUDGET = 256 * 2**20


@contextlib.contextmanager
def _no_runs() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
    def compute(move: Move) -> Sequence[torch.Tensor]:
        raise NotImplementedError("float64 is not asked")

    yield compute


@dataclass
class _Scan:
    """One pass over the checkpoints."""

    departure: Departure | None = None
    held: dict[str, torch.Tensor] = field(default_factory=dict)
    checked: int = 0
    not_run: list[str] = field(default_factory=list)

    def value(self, graph: PyTorchGraph, node: Node) -> Any:
        """What the backend made of a checkpoint, and else the graph's own."""
        return self.held[node.name] if node.name in self.held else graph.value(node)


def diverge(
    task: DivergeTask,
    model: LoadedModel,
    converter: Converter,
    backend: Backend,
    send: Callable[[Any], None],
    budget: int = BUDGET,
) -> Divergence:
    """Look into one run of a model.

    Args:
        converter: Started, as is the backend.
        send: Takes a `Step` whenever one is done, so that a slow search is not taken for a hang.
        budget: Bytes of values to a slice.

    Raises:
        ModelProblem: it cannot be examined: the model is not captured, or the backend does not run here.
    """
    cases = cases_of(model, task.route.dynamic)
    if task.case >= len(cases):
        raise ModelProblem(f"{model.name} has {len(cases)} runs here, and no run {task.case}")
    alive, case = partial(send, Step(Stage.COMPARE, None, ())), cases[task.case]
    alive()
    reference = run_model(model, case.invocation, task.settings.tolerance, alive)
    alive()
    inputs = build_tensors(case.invocation)
    proto, program = _exported(task, ModelStructure(model, len(reference.expected)), converter, inputs)
    alive()
    structure = ModelStructure(model, len(reference.expected))
    feeds = structure.feeds(proto, reference.feeds)
    got = _result(backend, proto, feeds)
    alive()
    graph = PyTorchGraph.of_program(program, inputs)
    values: BackendValues
    if isinstance(converter, HasProgram) and not isinstance(proto, Artefact):
        values = OfWholeModel(proto, graph, backend, feeds, graph.sizes(), budget)
    else:
        values = OfExportedSlices(graph, converter, backend, graph.sizes(), budget, task.route)
    scan, problem, grown = _search(reference, got, graph, values)
    common: dict[str, Any] = {
        "model": model.name,
        "converter": task.route.export,
        "backend": task.route.backend,
        "change": case.change,
        "problem": problem,
        "checked": scan.checked,
        "checkpoints": len(values.checkpoints),
        "not_run": tuple(scan.not_run),
        "growth": grown,
    }
    if scan.departure is None:
        unoptimised = partial(_is_right_unoptimised, backend, proto, feeds, reference)
        return Divergence(kind=_kind_without_departure(problem, scan, unoptimised), **common)
    get = partial(scan.value, graph)
    alone = run_alone(graph, scan.departure.region, get, converter, backend, task.route)
    return _of_operator(scan.departure, alone, values, common)


def _result(backend: Backend, model: AnyModel, feeds: Mapping[str, Array]) -> Sequence[Array]:
    """What the backend computes for the whole model."""
    outputs = run_artefact(backend, model, feeds)
    if isinstance(outputs, StageFailure):
        raise ModelProblem(f"{backend.name} gives no value to compare: {first_line(outputs.error)}")
    return outputs


def _search(
    reference: ModelReference, got: Sequence[Array], graph: PyTorchGraph, values: BackendValues
) -> tuple[_Scan, str, ErrorGrowth | None]:
    """The checkpoints that were compared, what is wrong with the end result, and how errors grew.

    What is far off is found at a fraction of the cost; only then is every element looked at, and the end result
    judged by what roundings explain, which takes several runs in float64.
    """
    scan = scan_checkpoints(graph, values, reference.alive, thorough=False)
    if scan.departure is not None:
        return scan, compare(CLOSE, RoundingOracle(reference.expected, (), wide=_no_runs), got).message, None
    comparison = reference.compare(got)
    grown = reference.error_growth(got)
    if comparison.problem is not None:
        scan = scan_checkpoints(graph, values, reference.alive, thorough=True)
    return scan, comparison.message, grown


def _is_right_unoptimised(
    backend: Backend, model: AnyModel, feeds: Mapping[str, Array], reference: ModelReference
) -> bool:
    if not isinstance(backend, HasPlain):
        return False
    plain = run_artefact(backend.plain(), model, feeds)
    return not isinstance(plain, StageFailure) and reference.compare(plain).problem is None


def _kind_without_departure(problem: str, scan: _Scan, unoptimised_is_right: Callable[[], bool]) -> str:
    """What a wrong or right result is where every value is explained by its inputs."""
    if not problem:
        return "none"
    if scan.not_run:
        return "unknown"
    return "optimisation" if unoptimised_is_right() else "accumulated"


def _exported(
    task: DivergeTask, structure: ModelStructure, converter: Converter, inputs: tuple[torch.Tensor, ...]
) -> tuple[AnyModel, torch.export.ExportedProgram]:
    """The model's export, and the program that it is compared with."""
    try:
        exported = translate(converter, structure.request(task.route))
        program = exported.program or _captured(structure.model, inputs)
    except Exception as error:
        raise ModelProblem(
            f"{structure.model.name} cannot be exported with {task.route.converter}, so that no value can be compared: "
            f"{first_line(error)}"
        ) from error
    return exported.model, program


def _of_operator(
    departure: Departure, alone: Sequence[Alone], values: BackendValues, common: Mapping[str, Any]
) -> Divergence:
    """The divergence of the operator in a departure's region that is guilty."""
    region, wrong = departure.region, departure.comparison
    wrong_alone = (n for n, one in zip(region.operators, alone, strict=True) if one.outcome == "mismatch")
    # What is constant is folded into its reader, which is where it shows.
    guilty = next(wrong_alone, region.operators[-1])
    return Divergence(
        kind="operator",
        module=module_path(guilty) or region.module,
        operator=str(guilty.target),
        operators=tuple(str(n.target) for n in reversed(region.operators)),
        node=region.node.name,
        onnx_node=values.onnx_node(region.node.name),
        detail=wrong.message,
        alone=tuple(alone),
        **common,
    )


def _captured(model: LoadedModel, inputs: tuple[torch.Tensor, ...]) -> torch.export.ExportedProgram:
    """The model's calls, composites whole; those that write into an argument as those that do not."""
    with quiet_call():
        program = copy.deepcopy(model.call(inputs, dynamic=False).captured())
    for node in program.graph.nodes:
        if isinstance(node.target, OpOverload) and node.target._schema.is_mutable:
            with contextlib.suppress(CannotKeep):
                node.target = functional(node.target)
    return program


def scan_checkpoints(graph: PyTorchGraph, values: BackendValues, alive: Callable[[], None], *, thorough: bool) -> _Scan:
    """Compare checkpoint by checkpoint, up to the first that departs."""
    nodes = {node.name: node for node in graph.nodes}
    regions: dict[str, Region] = {}
    known: set[str] = set()
    for name in values.checkpoints:
        regions[name] = graph.region(nodes[name], known)
        known.add(name)
    order = {name: place for place, name in enumerate(values.checkpoints)}
    last = {source.name: place for place, region in enumerate(regions.values()) for source in region.sources}
    scan = _Scan()
    get = partial(scan.value, graph)
    for part in values.slices():
        alive()
        if part.failure:
            scan.not_run.append(part.failure)
        for name, array in part.values.items():
            scan.checked += not part.failure
            if not part.failure:
                scan.departure = check(graph, regions[name], get, array, thorough=thorough)
            if scan.departure is not None:
                return scan
            if name in last:
                scan.held[name] = to_torch(array, graph.strides.get(name))
            for source in regions[name].sources:
                if last[source.name] <= order[name]:
                    scan.held.pop(source.name, None)
            alive()
    return scan


def find_divergence(task: DivergeTask, supervisor: Supervisor) -> Divergence:
    """Where a run of a model goes wrong.

    Raises:
        ModelProblem: that cannot be found out; the message says why.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
        LookupError: an unknown converter or backend.
    """
    # All messages are taken: what is left in the pipe would be taken for an answer to the next task.
    for message in list(supervisor.serve_alone(task)):
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, Death):
            raise ModelProblem(f"the search for the first divergence ended: {message.message}")
        if isinstance(message, Divergence):
            return message
    raise ModelProblem("the search for the first divergence gave no answer")


def carry_out(task: DivergeTask, worker: WorkerProcess) -> None:
    """Find the divergence in a worker, and send it."""
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        # First: a rule may be for an operator that the model's file defines.
        model = worker.model(task.source)
        converter, _ = worker.converter(task.route)
        worker.send(diverge(task, model, converter, worker.start(task.route.backend), worker.send))
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
