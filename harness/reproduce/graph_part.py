"""The smallest part of the graph of a failing model or ONNX file that fails as the whole does.

1. Compute all values of the graph without optimisations, a node at a time. If no optimisation is guilty and a node
   is wrong or refused by itself, that node is the part.
2. Find the fewest nodes that still fail. Values of the other nodes become weights if they follow from weights
   alone, and inputs otherwise.
3. Put plain numbers in place of the values, if it fails with these, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

from harness.compare.verdict import Stage
from harness.convert.converter import HasUnoptimised
from harness.core.case_group import CaseGroup
from harness.core.dtypes import PRECISION, Array
from harness.core.fewest import fewest
from harness.core.invocation import MODEL, Invocation
from harness.core.numbers import distance
from harness.core.route import Route
from harness.core.text import one_line
from harness.pipeline.case import Case
from harness.pipeline.graph_oracle import Judges, expect, plain_form, steps_of_moderate_size
from harness.pipeline.graph_structure import GraphStructure
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_task import ModelSource, NoModel
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.judged_nodes import right_results
from harness.pipeline.nodes.node_steps import NodeStep, SteppedGraph, split_steps
from harness.pipeline.nodes.walk import WrongStep, walk
from harness.pipeline.program import export_alone
from harness.pipeline.run_case import run_case
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Step
from harness.pipeline.torch_call import CallRejected
from harness.pipeline.worker import WorkerProcess
from harness.run.backend import REFERENCE, Backend

Feeds: TypeAlias = "dict[str, Array]"
#: Whether a model fails with some inputs as the whole does.
Fails: TypeAlias = "Callable[[onnx.ModelProto, Feeds], bool]"


@dataclass(frozen=True, kw_only=True)
class GraphPart:
    """A graph that fails, with its inputs.

    Attributes:
        name: The name of the model or file that it is a part of.
        backend: The name of the backend that it fails in.
        model: The serialised model.
        inputs: Name → array.
        stage: ``load``, ``run`` or ``compare``.
        message: The runtime's message, or a description of the wrong result.
        ends_process: Whether the runtime crashes, or does not answer.
        expected: The right outputs; empty if the runtime refuses the graph.
        output: Index of a wrong output, if results are wrong.
        element: The first wrong element; None if the shape or the dtype is wrong.
        allowed: Largest allowed difference between a number and the right one.
        passes: Optimisations of the runtime without which it is right; `optimiser` says whether leaving out all
            of them helps.
        exporter: Whether the exporter's optimiser breaks the graph, instead of the runtime's.
        nodes: Number of nodes of the whole graph.
    """

    name: str = ""
    backend: str = ""
    model: bytes
    inputs: Mapping[str, Array] = field(default_factory=dict)
    stage: str
    message: str = ""
    expected: tuple[Array, ...] = ()
    output: int = 0
    element: tuple[int, ...] | None = None
    allowed: float = 0.0
    optimiser: bool = False
    exporter: bool = False
    passes: tuple[str, ...] = ()
    nodes: int = 0
    ends_process: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        """Names of the operators, in order, each once."""
        return tuple(dict.fromkeys(node.op_type for node in self.proto.graph.node))

    @property
    def proto(self) -> onnx.ModelProto:
        """The model."""
        return onnx.load_model_from_string(self.model)


@dataclass(frozen=True, kw_only=True)
class PartTask:
    """A failing run of a model or an ONNX file, whose graph is to be cut down.

    Attributes:
        source: The model or file.
        route: The whole route, up to the backend.
        exported: The inputs that it is exported with.
        invocation: The inputs that it fails with.
        optimiser: ``runtime`` or ``exporter``, whose optimiser breaks the graph; "" for none.
        passes: The passes of that, without which the graph is right.
    """

    handler: ClassVar[str] = "harness.reproduce.graph_part:carry_out"

    source: ModelSource
    route: Route
    exported: Invocation
    invocation: Invocation
    optimiser: str = ""
    passes: tuple[str, ...] = ()


def find_part(task: PartTask, supervisor: Supervisor) -> GraphPart | None:
    """Return the smallest part that fails; None if there is none, or if the search ended the process.

    Raises:
        ModelProblem: the model cannot be exported again.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    for message in list(supervisor.serve_alone(task)):
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, GraphPart):
            return message
    return None


def carry_out(task: PartTask, worker: WorkerProcess) -> None:
    """Cut a graph down in a worker, and send the part."""
    worker.send(Step(Stage.CONVERT, task.route.backend, ()))

    def alive() -> None:
        worker.send(Step(Stage.COMPARE, None, ()))

    try:
        group = CaseGroup.of(task.exported, [task.invocation])
        structure = worker.structure(group, task.source, task.route, task.route.backend, alive=alive)
        oracle = structure.oracle(task.invocation)
        converter, _ = worker.converter(task.route)
        if task.optimiser == "exporter" and isinstance(converter, HasUnoptimised):
            converter = converter.unoptimised()
        graph = export_alone(converter, structure.returning(len(oracle.expected)), task.route)
        backend = worker.start(task.route.backend)
        search = _Search(task, backend, worker.start(REFERENCE), alive)
        part = search.smallest(graph, structure.feeds(graph, oracle.feeds))
    except (ModelProblem, CallRejected) as problem:
        worker.send(NoModel(str(problem)))
    except Exception as error:
        worker.send(NoModel(f"{task.source.word} cannot be exported: {type(error).__name__}: {one_line(error)}"))
    else:
        if part is not None:
            worker.send(part)


@dataclass(frozen=True)
class _Search:
    """Looks for the smallest part of one graph in one backend."""

    task: PartTask
    backend: Backend
    evaluator: Backend
    alive: Callable[[], None]

    @cached_property
    def plain(self) -> Backend:
        """The backend without optimisations."""
        return plain_form(self.backend)

    def smallest(self, model: onnx.ModelProto, feeds: Feeds) -> GraphPart | None:
        """Return the smallest part that fails; None if the graph does not fail once it is put together again."""
        graph = split_steps(model)
        self.alive()
        if not self.task.optimiser:
            found = walk(graph, feeds, self.plain, self.evaluator, only=steps_of_moderate_size(graph, feeds))
            alone = [*(step.definition for step in found.failing), *(step.definition for step in found.wrong)]
            if alone:
                return self._node_alone(alone[0], len(graph.steps))
        values = walk(graph, feeds, self.plain, self.evaluator, corrected=False).values
        known = [s for s in graph.steps if all(name in values for name in (*s.inputs, *s.outputs))]
        cut = _Cut(graph, values, _follows_from_weights(graph))

        def fails(part: onnx.ModelProto, inputs: Feeds) -> bool:
            return self._failure(part, inputs) is not None

        chosen = fewest(known, lambda steps: fails(*cut.part(steps)))
        if not chosen:
            return None
        part = self._failure(*use_plain_numbers(*cut.part(chosen), fails))
        if part is None:
            return None
        by_optimiser = bool(self.task.optimiser)
        exporter = self.task.optimiser == "exporter"
        part = replace(part, optimiser=by_optimiser, exporter=exporter, passes=self.task.passes)
        return _renamed(replace(part, nodes=len(graph.steps)))

    def _failure(self, model: onnx.ModelProto, feeds: Feeds) -> GraphPart | None:
        """Return how a part fails; None if it does not, or if it also fails without the guilty optimiser."""
        self.alive()
        structure = GraphStructure(model)
        arrays = [feeds[name] for name in structure.input_names]
        oracle = expect(model, arrays, Judges(self.backend, self.evaluator), _PART)
        if self.task.optimiser and not oracle.is_runtimes:
            return None
        artefact = model
        if self.task.optimiser == "exporter":
            import onnxscript.optimizer

            artefact = onnxscript.optimizer.optimize(model)
        run = run_case(Case(structure, oracle, artefact=artefact), StartedRoute(self.task.route, backend=self.backend))
        content = model.SerializeToString()
        if run.stage is Stage.CHECK:
            return None
        if run.failure is not None:
            message = one_line(run.failure.error)
            return GraphPart(model=content, inputs=feeds, stage=str(run.stage), message=message)
        if run.comparison is None or run.outputs is None or not run.comparison.problems:
            return None
        part = GraphPart(
            model=content,
            inputs=feeds,
            stage=str(run.stage),
            message=run.comparison.message,
            expected=oracle.expected,
        )
        return _locate_error(part, run.outputs, [oracle.allowed(i) for i in range(len(oracle.expected))])

    def _node_alone(self, definition: Definition, nodes: int) -> GraphPart | None:
        """Return a node that the runtime refuses, or computes in another way than its definition says."""

        def failure(model: onnx.ModelProto, feeds: Feeds) -> GraphPart | None:
            self.alive()
            found = walk(split_steps(model), feeds, self.plain, self.evaluator)
            content = model.SerializeToString()
            if found.failing:
                refused = found.failing[0].failure
                message = one_line(refused.error)
                return GraphPart(model=content, inputs=feeds, stage=str(refused.stage), message=message)
            return _wrong_node(content, feeds, found.wrong[0]) if found.wrong else None

        def fails(model: onnx.ModelProto, feeds: Feeds) -> bool:
            return failure(model, feeds) is not None

        part = failure(*use_plain_numbers(definition.model, definition.fed, fails))
        return None if part is None else replace(part, nodes=nodes)


#: The name of the run of a part; it is never shown.
_PART = Invocation(f"{MODEL}part", ())


def _locate_error(part: GraphPart, outputs: Sequence[Array], allowed: Sequence[Array]) -> GraphPart:
    """Return a part with its first wrong output and element, and the allowed difference there."""
    for i, (expected, got) in enumerate(zip(part.expected, outputs, strict=False)):
        if expected.shape != got.shape or expected.dtype != got.dtype:
            return replace(part, output=i)
        wrong = distance(got, expected) > allowed[i]
        if wrong.any():
            place = tuple(int(n) for n in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            return replace(part, output=i, element=place, allowed=float(allowed[i][place]))
    return part


def _wrong_node(content: bytes, feeds: Feeds, fault: WrongStep) -> GraphPart:
    expected = right_results(fault.definition)
    part = GraphPart(model=content, inputs=feeds, stage=str(Stage.COMPARE), expected=tuple(expected))
    for i, (got, wrong, right) in enumerate(zip(fault.got, fault.wrong, expected, strict=False)):
        if got.shape != right.shape or got.dtype != right.dtype:
            return replace(part, output=i)
        if wrong.any():
            place = tuple(int(n) for n in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            # The allowed difference must be less than the error, so that the part still fails.
            apart = float(distance(got, right)[place])
            return replace(part, output=i, element=place, allowed=apart / 2 if np.isfinite(apart) else 0.0)
    return part


def _follows_from_weights(graph: SteppedGraph) -> frozenset[str]:
    found = set(graph.constants)
    for step in graph.steps:
        if found.issuperset(step.inputs):
            found.update(step.outputs)
    return frozenset(found)


@dataclass(frozen=True)
class _Cut:
    """A graph whose nodes can be left out; `fixed` names the values that follow from weights alone."""

    graph: SteppedGraph
    values: Mapping[str, Array]
    fixed: frozenset[str]

    def part(self, steps: Sequence[NodeStep]) -> tuple[onnx.ModelProto, Feeds]:
        """Return a graph of some steps, and its inputs."""
        chosen = sorted(steps, key=lambda step: step.index)
        made = [name for step in chosen for name in step.outputs]
        read = dict.fromkeys(name for step in chosen for name in step.inputs if name not in made)
        part = onnx.ModelProto()
        part.ir_version = self.graph.model.ir_version
        part.opset_import.extend(self.graph.model.opset_import)
        part.graph.name = "part"
        part.graph.node.extend(node for step in chosen for node in step.nodes)
        inputs: Feeds = {}
        for name in read:
            if name in self.fixed:
                part.graph.initializer.append(numpy_helper.from_array(self.values[name], name))
            else:
                inputs[name] = self.values[name]
                part.graph.input.append(self._described(name))
        part.graph.output.extend(map(self._described, self._leaving(chosen, made)))
        return part, inputs

    def _described(self, name: str) -> onnx.ValueInfoProto:
        array = self.values[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    def _leaving(self, chosen: Sequence[NodeStep], made: Sequence[str]) -> list[str]:
        """Return the values that other steps read; if they read none, all values that these steps do not read."""
        inside = {step.index for step in chosen}
        read_elsewhere = {name for step in self.graph.steps if step.index not in inside for name in step.inputs}
        read_elsewhere |= {output.name for output in self.graph.model.graph.output}
        read_here = {name for step in chosen for name in step.inputs}
        leaving = [name for name in made if name in read_elsewhere]
        return leaving or [name for name in made if name not in read_here]


def use_plain_numbers(model: onnx.ModelProto, inputs: Feeds, fails: Fails) -> tuple[onnx.ModelProto, Feeds]:
    """Replace numbers by a pattern that a line of code makes, in all arrays at once or in one after the other."""
    weights = [tensor.name for tensor in model.graph.initializer]
    for names in ((*inputs, *weights), *((name,) for name in (*inputs, *weights))):
        tried = _patterned(model, inputs, frozenset(names))
        if tried is not None and fails(*tried):
            model, inputs = tried
    return model, inputs


def _patterned(model: onnx.ModelProto, inputs: Feeds, names: frozenset[str]) -> tuple[onnx.ModelProto, Feeds] | None:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    fed = {name: pattern(array) if name in names and _is_drawn(array) else array for name, array in inputs.items()}
    is_changed = any(fed[name] is not inputs[name] for name in inputs)
    for tensor in changed.graph.initializer:
        if tensor.name in names and _is_drawn(array := numpy_helper.to_array(tensor)):
            tensor.CopyFrom(numpy_helper.from_array(pattern(array), tensor.name))
            is_changed = True
    return (changed, fed) if is_changed else None


def _is_drawn(array: Array) -> bool:
    return array.size > 1 and str(array.dtype) in PRECISION


def pattern(array: Array) -> Array:
    """Return multiples of a quarter between -1.5 and 1.5 in the array's form; any floating dtype has them."""
    numbers = (np.arange(array.size) * 7 % 13 - 6) / 4
    return numbers.reshape(array.shape).astype(array.dtype)


def _renamed(part: GraphPart) -> GraphPart:
    """Replace an exporter's names by short ones: ``x0`` for inputs, ``w0`` for weights, ``y0`` for outputs."""
    model = part.proto
    graph = model.graph
    names = {value.name: f"x{i}" for i, value in enumerate(graph.input)}
    names |= {tensor.name: f"w{i}" for i, tensor in enumerate(graph.initializer)}
    names |= {value.name: f"y{i}" for i, value in enumerate(graph.output)}
    inner = dict.fromkeys(name for node in graph.node for name in node.output if name and name not in names)
    names |= {name: f"v{i}" for i, name in enumerate(inner)}
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        # Names in a body are its own.
        return part
    for value in (*graph.input, *graph.initializer, *graph.output):
        value.name = names[value.name]
    for i, node in enumerate(graph.node):
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        node.name = f"node{i}"
    fed = {names[name]: array for name, array in part.inputs.items()}
    return replace(part, model=model.SerializeToString(), inputs=fed)
