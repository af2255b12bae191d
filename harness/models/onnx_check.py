"""Whether an ONNX file survives in a runtime, and if not, at which node or by which optimisation.

1. Draw inputs from the file's signature: sizes for its open dimensions that it runs at, and values. Or take the given
   ones.
2. Load and run it as a user would, and without optimisations. Where both run, their results have to agree up to
   what moving inputs and weights by some last places explains.
3. Where they differ, or only the optimised one fails, find the fewest passes that have to be left out, by halving.
4. Run every node by itself without optimisations, on the runtime's own values, and compare it with its definition:
   the first node that fails or gives something else is the place.
5. A node that ONNX's own rules reject is the file's fault; any other is the runtime's.
6. On request, cut out the smallest part of the graph that fails as the whole does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
from onnx import numpy_helper

from harness.blame.nodes.definition import Definition, not_of_rank, out_of_range
from harness.blame.nodes.judged_nodes import right_results
from harness.blame.nodes.kernel_fault import node_facts, wrong_node
from harness.blame.nodes.node_steps import SteppedGraph, in_steps
from harness.blame.nodes.walk import WrongStep, walk
from harness.compare.judge import CLOSE
from harness.compare.nearness import tolerance_of
from harness.compare.verdict import Stage
from harness.convert.converter import HasUnoptimised
from harness.core.documents import one_line
from harness.core.dtypes import PRECISION, Array
from harness.core.fewest import fewest
from harness.core.route import Route
from harness.models.graph_part import Feeds, GraphPart, renamed, smallest_part, with_plain_numbers
from harness.models.onnx_inputs import (
    SIZES,
    FixedSize,
    Sizes,
    drawn_inputs,
    fixed_sizes,
    open_sizes,
    other_sizes,
    read_inputs,
    running_sizes,
)
from harness.pipeline.model_cases import ModelStructure, cases_of
from harness.pipeline.model_loading import ModelProblem
from harness.pipeline.model_reference import run_model
from harness.pipeline.model_task import ModelSource, NoModel
from harness.pipeline.program import export_alone
from harness.pipeline.stages import StageFailure, load_stage, run_artefact, run_stage
from harness.pipeline.supervisor import Death, Supervisor
from harness.pipeline.task import Step
from harness.pipeline.worker import WorkerProcess
from harness.run.backend import REFERENCE, Backend, BackendSession, HasGraphPasses, HasPlain, ShapeRange

#: Nodes above which, and elements of a node's values above which, a definition is not evaluated.
_MOST_NODES, _MOST_ELEMENTS = 3000, 4_000_000
#: Runs with moved inputs and weights, by how many roundings, and how many times their spread is allowed.
_RUNS, _ROUNDINGS, _SPREAD = 3, 4.0, 16.0


@dataclass(frozen=True, kw_only=True)
class OnnxTask:
    """A file to check with one backend.

    Attributes:
        inputs: Names a file of inputs; "" for drawn ones.
        shrink: Whether to look for the smallest part of the graph that fails.
    """

    handler: ClassVar[str] = "harness.models.onnx_check:carry_out"

    path: str
    backend: str
    inputs: str = ""
    shrink: bool = False


@dataclass(frozen=True, kw_only=True)
class ExportedTask:
    """One run of a model whose export is to be checked as a file is, and shrunk.

    Attributes:
        exporter: Whether the exporter's optimiser breaks it: the graph is shrunk as it was before that.
    """

    handler: ClassVar[str] = "harness.models.onnx_check:carry_out_exported"

    source: ModelSource
    route: Route
    case: int
    exporter: bool = False


@dataclass(frozen=True)
class OnnxRun:
    """One run of a file.

    Attributes:
        inputs: Name → shape, and how the values were made, for people.
        stage: ``load``, ``run`` or ``compare``.
        outcome: ``pass``, ``error`` or ``mismatch``.
        message: In what way it fails.
    """

    inputs: str
    stage: str
    outcome: str
    message: str = ""


@dataclass(frozen=True)
class OnnxNode:
    """A node that fails or is wrong by itself.

    Attributes:
        name: In the file.
        facts: As `harness.blame.nodes.kernel_fault` has them.
        invalid: Why ONNX rejects it; nothing where it does not.
        error: What the backend says; "" where it gives a wrong result.
        origin: The PyTorch call that an exporter noted on it; "" for none.
    """

    name: str
    facts: Mapping[str, Any]
    invalid: Mapping[str, Any]
    error: str = ""
    origin: str = ""


@dataclass(frozen=True, kw_only=True)
class OnnxCheck:
    """What became of a file with one backend.

    Attributes:
        node: The first that fails or is wrong by itself; None where none does.
        wrong_nodes: How many are wrong by themselves.
        judged: Nodes that were compared with their definition, of `nodes`.
        passes: Without which all is right; `optimiser` says whether leaving all out helps.
        part: The smallest part that fails, where that was asked for and one was found.
        fixed: Sizes that the file declares open and that its constants fix.
        invalid: Why ONNX's checker rejects the file, where it could not be looked into; "" for nothing.
    """

    path: str
    backend: str
    runs: tuple[OnnxRun, ...]
    node: OnnxNode | None = None
    wrong_nodes: int = 0
    judged: int = 0
    nodes: int = 0
    optimiser: bool = False
    passes: tuple[str, ...] = ()
    part: GraphPart | None = None
    fixed: tuple[FixedSize, ...] = ()
    invalid: str = ""

    @property
    def survives(self) -> bool:
        """Whether all runs are right, and every judged node is what its definition gives."""
        return self.node is None and all(run.outcome == "pass" for run in self.runs)


def check_onnx(task: OnnxTask | ExportedTask, supervisor: Supervisor) -> OnnxCheck:
    """Check a file, or the export of a model.

    Raises:
        ModelProblem: it cannot be read, or no inputs can be made for it.
        harness.pipeline.supervisor.WorkerFailed: no worker process can be started.
    """
    stage, name = "", task.path if isinstance(task, OnnxTask) else task.source.word
    for message in list(supervisor.serve_alone(task)):
        if isinstance(message, NoModel):
            raise ModelProblem(message.message)
        if isinstance(message, OnnxCheck):
            return message
        if isinstance(message, Step):
            stage = str(message.stage)
        if isinstance(message, Death):
            run = OnnxRun("", stage, str(message.outcome), message.message)
            backend = task.backend if isinstance(task, OnnxTask) else task.route.backend
            return OnnxCheck(path=name, backend=backend, runs=(run,), invalid=_invalid(task))
    raise ModelProblem(f"{name} could not be checked")


def _invalid(task: OnnxTask | ExportedTask) -> str:
    """Why ONNX's checker rejects a file, in one line; "" where it does not, or for a model that is exported."""
    if isinstance(task, ExportedTask):
        return ""
    try:
        onnx.checker.check_model(task.path)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return one_line(error)[:300]
    return ""


def carry_out(task: OnnxTask, worker: WorkerProcess) -> None:
    """Check a file in a worker, and send what was found."""
    worker.send(Step(Stage.LOAD, task.backend, ()))
    try:
        model = onnx.load(task.path)
        given = read_inputs(Path(task.inputs), model) if task.inputs else None
        worker.send(_trial(task.path, model, task.backend, worker).check(given, shrink=task.shrink))
    except ModelProblem as problem:
        worker.send(NoModel(str(problem)))
    except Exception as error:
        worker.send(NoModel(f"{task.path} cannot be checked: {type(error).__name__}: {one_line(error)}"))


def carry_out_exported(task: ExportedTask, worker: WorkerProcess) -> None:
    """Export a model in a worker, check the export as a file, and send what was found."""
    worker.send(Step(Stage.CONVERT, task.route.backend, ()))
    try:
        loaded = worker.model(task.source)
        case = cases_of(loaded, task.route.dynamic)[task.case]
        reference = run_model(loaded, case.invocation)
        converter, _ = worker.converter(task.route)
        if task.exporter and isinstance(converter, HasUnoptimised):
            converter = converter.unoptimised()
        structure = ModelStructure(loaded, len(reference.expected))
        exported = export_alone(converter, structure, task.route)
        feeds = structure.feeds(exported, reference.feeds)
        trial = _trial(task.source.word, exported, task.route.backend, worker, exporter=task.exporter)
        worker.send(trial.check(feeds, shrink=True))
    except ModelProblem as problem:
        worker.send(NoModel(str(problem)))
    except Exception as error:
        worker.send(NoModel(f"{task.source.word} cannot be exported: {type(error).__name__}: {one_line(error)}"))


def _trial(name: str, model: onnx.ModelProto, backend: str, worker: WorkerProcess, *, exporter: bool = False) -> _Trial:
    def announce(stage: Stage) -> None:
        worker.send(Step(stage, None, ()))

    started = worker.start(backend)
    runs = _OptimisedFirst(started) if exporter else started
    return _Trial(name, model, backend, runs, worker.start(REFERENCE), announce)


class _OptimisedFirst:
    """A backend that gets what onnxscript's optimiser makes of a graph; plainly, it gets the graph."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.name, self.device, self.version = backend.name, backend.device, backend.version

    def narrows(self, dtype: str) -> str | None:
        """As the backend does."""
        return self._backend.narrows(dtype)

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """See `harness.run.backend.Backend.load`."""
        import onnxscript.optimizer

        return self._backend.load(onnxscript.optimizer.optimize(model), shapes)

    def plain(self) -> Backend:
        """See `harness.run.backend.HasPlain`."""
        return self._backend


class _Trial:
    """One model in one backend."""

    def __init__(
        self,
        path: str,
        model: onnx.ModelProto,
        name: str,
        backend: Backend,
        evaluator: Backend,
        announce: Callable[[Stage], None],
    ) -> None:
        self._path, self._model, self._name = path, model, name
        self._backend, self._evaluator, self._announce = backend, evaluator, announce
        self._alive = partial(announce, Stage.COMPARE)
        self._plain = backend.plain() if isinstance(backend, HasPlain) else backend
        #: Known once inputs have been drawn.
        self._fixed: tuple[FixedSize, ...] = ()

    def check(self, given: Feeds | None, *, shrink: bool = False) -> OnnxCheck:
        """Run it, and look at what fails."""
        feeds = [("given inputs", given)] if given is not None else list(self._drawn())
        runs, failing = [], None
        for name, inputs in feeds:
            self._alive()
            run = self._run(name, inputs)
            runs.append(run)
            if run.outcome != "pass" and failing is None:
                failing = inputs
        inputs = failing if failing is not None else feeds[0][1]
        found: dict[str, Any] = {}
        if failing is not None:
            found = self._guilty_passes(failing)
        if not found.get("optimiser"):
            found |= self._nodes(inputs)
        definition = found.pop("definition", None)
        part = None
        if shrink and definition is not None:
            part = self._node_alone(definition, found["nodes"])
        elif shrink and failing is not None:
            part = self._smallest(failing, found)
        return OnnxCheck(path=self._path, backend=self._name, runs=tuple(runs), part=part, fixed=self._fixed, **found)

    def _drawn(self) -> Iterator[tuple[str, Feeds]]:
        """Inputs that the unoptimised file runs with: values, other values, other sizes."""
        names = open_sizes(self._model)
        if not names:
            for seed, name in enumerate(("drawn values", "other values")):
                yield name, drawn_inputs(self._model, {}, seed)
            return
        session = load_stage(self._plain, self._model, None)

        def runs(sizes: Sizes) -> bool:
            self._alive()
            inputs = drawn_inputs(self._model, sizes, 0)
            return not isinstance(session, StageFailure) and not isinstance(run_stage(session, inputs), StageFailure)

        sizes = None if isinstance(session, StageFailure) else running_sizes(self._model, runs)
        if sizes is None:
            # What the runtime says of the file is the answer.
            yield f"open sizes {SIZES[0]}", drawn_inputs(self._model, dict.fromkeys(names, SIZES[0]), 0)
            return
        yield _named(sizes), drawn_inputs(self._model, sizes, 0)
        other = other_sizes(sizes, (), runs)
        if other is None:
            self._fixed = tuple(fixed_sizes(self._model, sizes, runs))
            other = other_sizes(sizes, self._fixed, runs)
        if other is not None:
            yield _named(other), drawn_inputs(self._model, other, 0)
        yield "other values", drawn_inputs(self._model, sizes, 1)

    def _run(self, name: str, inputs: Feeds) -> OnnxRun:
        shapes = ", ".join(f"{n} {a.dtype}{list(a.shape)}" for n, a in inputs.items())
        label = f"{name}: {shapes}" if shapes else name
        self._announce(Stage.LOAD)
        session = load_stage(self._backend, self._model, None)
        self._announce(Stage.RUN)
        got = session if isinstance(session, StageFailure) else run_stage(session, inputs)
        self._announce(Stage.COMPARE)
        if isinstance(got, StageFailure):
            return OnnxRun(label, str(got.stage), "error", one_line(got.error)[:400])
        plain = run_artefact(self._plain, self._model, inputs)
        if isinstance(plain, StageFailure):
            return OnnxRun(label, "compare", "pass")
        wrong = self._difference(self._model, inputs, plain, got)
        return OnnxRun(label, "compare", "mismatch" if wrong else "pass", wrong.message if wrong else "")

    def _difference(
        self, model: onnx.ModelProto, inputs: Feeds, plain: Sequence[Array], got: Sequence[Array]
    ) -> _Difference | None:
        """In what optimised results differ first by more than roundings explain; None for nothing."""
        spread: list[Array] | None = None
        for i, (expected, array) in enumerate(zip(plain, got, strict=True)):
            if expected.dtype != array.dtype or expected.shape != array.shape:
                now, plainly = (f"{a.dtype}{list(a.shape)}" for a in (array, expected))
                return _Difference(f"output {i}: {now}, without optimisations {plainly}", i)
            if np.array_equal(expected, array, equal_nan=str(expected.dtype) in PRECISION):
                continue
            spread = spread if spread is not None else self._spread(model, inputs, plain)
            allowed = _allowed(expected, spread[i])
            wrong = _distance(array, expected) > allowed
            if wrong.any():
                place = tuple(int(n) for n in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
                where = f"[{','.join(map(str, place))}]"
                message = f"output {i}{where}: {array[place]}, without optimisations {expected[place]}"
                return _Difference(message, i, place, float(allowed[place]))
        return None

    def _spread(self, model: onnx.ModelProto, inputs: Feeds, plain: Sequence[Array]) -> list[Array]:
        """Element by element, how far the results move with inputs and weights that are moved by some roundings."""
        moved = [np.zeros(a.shape) for a in plain]
        for seed in range(_RUNS):
            self._alive()
            random = np.random.default_rng(seed)
            altered = onnx.ModelProto()
            altered.CopyFrom(model)
            for tensor in altered.graph.initializer:
                array = numpy_helper.to_array(tensor)
                if str(array.dtype) in PRECISION:
                    tensor.CopyFrom(numpy_helper.from_array(_moved(array, random), tensor.name))
            outputs = run_artefact(self._plain, altered, {n: _moved(a, random) for n, a in inputs.items()})
            if isinstance(outputs, StageFailure):
                continue
            for i, (now, then) in enumerate(zip(outputs, plain, strict=True)):
                if now.shape == then.shape:
                    moved[i] = np.maximum(moved[i], _distance(now, then))
        return moved

    def _guilty_passes(self, inputs: Feeds) -> dict[str, Any]:
        backend = self._backend
        plain = run_artefact(self._plain, self._model, inputs)
        if backend is self._plain or isinstance(plain, StageFailure):
            return {}
        if not isinstance(backend, HasGraphPasses):
            return {"optimiser": True}

        def is_right(names: Sequence[str]) -> bool:
            self._alive()
            got = run_artefact(backend.without(names), self._model, inputs)
            return not isinstance(got, StageFailure) and not self._difference(self._model, inputs, plain, got)

        return {"optimiser": True, "passes": fewest(backend.passes(), is_right)}

    def _smallest(self, inputs: Feeds, found: Mapping[str, Any]) -> GraphPart | None:
        """The smallest part that fails as the whole does."""

        def fails(model: onnx.ModelProto, feeds: Feeds) -> bool:
            self._alive()
            return self._failure_of(model, feeds, plainly_right=bool(found.get("optimiser"))) is not None

        graph = in_steps(self._model)
        smallest = smallest_part(graph, inputs, self._plain, self._evaluator, fails)
        if smallest is None:
            return None
        part = self._failure_of(*smallest, plainly_right=bool(found.get("optimiser")))
        if part is None:
            return None
        facts = {name: found[name] for name in ("optimiser", "passes") if name in found}
        return renamed(replace(part, nodes=len(graph.steps), **facts))

    def _failure_of(self, model: onnx.ModelProto, feeds: Feeds, *, plainly_right: bool) -> GraphPart | None:
        """How a part fails; None where it does not, or fails without optimisations and may not."""
        got = run_artefact(self._backend, model, feeds)
        plain = run_artefact(self._plain, model, feeds) if plainly_right or not isinstance(got, StageFailure) else got
        serialised = model.SerializeToString()
        if isinstance(plain, StageFailure):
            if plainly_right:
                return None
            stage, message = str(plain.stage), one_line(plain.error)
            return GraphPart(model=serialised, inputs=feeds, stage=stage, message=message)
        if isinstance(got, StageFailure):
            message = one_line(got.error)
            return GraphPart(model=serialised, inputs=feeds, stage=str(got.stage), message=message)
        wrong = self._difference(model, feeds, plain, got)
        if wrong is None:
            return None
        return GraphPart(
            model=serialised,
            inputs=feeds,
            stage=str(Stage.COMPARE),
            message=wrong.message,
            expected=tuple(plain),
            output=wrong.output,
            element=wrong.element,
            allowed=wrong.allowed,
        )

    def _nodes(self, inputs: Feeds) -> dict[str, Any]:
        """The first node that fails or is wrong by itself."""
        graph = in_steps(self._model)
        if len(graph.steps) > _MOST_NODES:
            return {"nodes": len(graph.steps)}
        few = _small_steps(graph, self._model, inputs, self._plain)
        self._alive()
        found = walk(graph, inputs, self._plain, self._evaluator, only=few)
        unjudged = {step.index for step, _ in found.unjudged}
        judged = len(few - unjudged)
        facts = {"nodes": len(graph.steps), "judged": judged, "wrong_nodes": len(found.wrong)}
        if found.failing:
            failing = found.failing[0]
            definition, error = failing.definition, one_line(failing.failure.error)[:400]
            node = _node(
                graph, definition.step.index, {"node": node_facts(definition)}, _rejected(graph, definition), error
            )
            return {**facts, "node": node, "definition": definition}
        if found.wrong:
            fault = found.wrong[0]
            invalid = out_of_range(fault.definition)
            node = _node(graph, fault.definition.step.index, wrong_node(fault), invalid)
            return {**facts, "node": node, "definition": fault.definition}
        return facts

    def _node_alone(self, definition: Definition, nodes: int) -> GraphPart | None:
        """A node that the runtime refuses, or computes in another way than its definition says."""

        def failure(model: onnx.ModelProto, feeds: Feeds) -> GraphPart | None:
            self._alive()
            found = walk(in_steps(model), feeds, self._plain, self._evaluator)
            if found.failing:
                return _refused_node(model, feeds, found.failing[0].failure)
            return _wrong_node(model, feeds, found.wrong[0]) if found.wrong else None

        def fails(model: onnx.ModelProto, feeds: Feeds) -> bool:
            return failure(model, feeds) is not None

        part = failure(*with_plain_numbers(definition.model, definition.fed, fails))
        return None if part is None else replace(part, nodes=nodes)


def _named(sizes: Sizes) -> str:
    """``N 3, T 8``; ``open sizes 2`` where all are the same."""
    different = set(sizes.values())
    if len(different) == 1:
        return f"open sizes {different.pop()}"
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


@dataclass(frozen=True)
class _Difference:
    """Where results differ: message, output, the first wrong element (None for the form) and what is allowed there."""

    message: str
    output: int
    element: tuple[int, ...] | None = None
    allowed: float = 0.0


def _refused_node(model: onnx.ModelProto, feeds: Feeds, failure: StageFailure) -> GraphPart:
    serialised = model.SerializeToString()
    return GraphPart(model=serialised, inputs=feeds, stage=str(failure.stage), message=one_line(failure.error))


def _wrong_node(model: onnx.ModelProto, feeds: Feeds, fault: WrongStep) -> GraphPart:
    expected = right_results(fault.definition)
    part = GraphPart(model=model.SerializeToString(), inputs=feeds, stage=str(Stage.COMPARE), expected=tuple(expected))
    for i, (got, wrong, right) in enumerate(zip(fault.got, fault.wrong, expected, strict=False)):
        if got.shape != right.shape or got.dtype != right.dtype:
            return replace(part, output=i)
        if wrong.any():
            place = tuple(int(n) for n in np.unravel_index(int(np.argmax(wrong)), wrong.shape))
            # Less than the half of what is wrong is allowed.
            distance = float(_distance(got, right)[place])
            return replace(part, output=i, element=place, allowed=distance / 2 if np.isfinite(distance) else 0.0)
    return part


def _node(
    graph: SteppedGraph, index: int, facts: Mapping[str, Any], invalid: Mapping[str, Any], error: str = ""
) -> OnnxNode:
    nodes = [node for node in graph.model.graph.node if node.op_type != "Constant"]
    node = nodes[index] if index < len(nodes) else onnx.NodeProto()
    notes = {entry.key: entry.value for entry in node.metadata_props}
    return OnnxNode(node.name, facts, invalid, error, notes.get("pkg.torch.onnx.fx_node", ""))


def _rejected(graph: SteppedGraph, definition: Any) -> Mapping[str, Any]:
    """Why ONNX rejects a node with the inputs that it gets; nothing where it does not."""
    try:
        onnx.shape_inference.infer_shapes(
            graph.alone(definition.step, definition.inputs), check_type=True, strict_mode=True, data_prop=True
        )
    except onnx.shape_inference.InferenceError as error:
        return {"error": one_line(error)[:200]}
    return not_of_rank(definition) or out_of_range(definition)


def _small_steps(graph: SteppedGraph, model: onnx.ModelProto, inputs: Feeds, plain: Backend) -> set[int]:
    """Indices of the steps whose definitions are evaluated: those of moderate size, as shape inference sees them."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(graph.model)
    for value in fixed.graph.input:
        if value.name in inputs:
            for dim, size in zip(value.type.tensor_type.shape.dim, inputs[value.name].shape, strict=False):
                dim.dim_value = size
    try:
        inferred = onnx.shape_inference.infer_shapes(fixed, data_prop=True)
    except Exception:
        # Beyond protobuf's limit, or invalid: each node says so itself.
        inferred = fixed
    sizes = {
        v.name: int(np.prod([dim.dim_value or 1 for dim in v.type.tensor_type.shape.dim]))
        for v in (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    }
    return {
        step.index
        for step in graph.steps
        if sum(sizes.get(name, 0) for name in (*step.inputs, *step.outputs)) <= _MOST_ELEMENTS
    }


def _moved(array: Array, random: np.random.Generator) -> Array:
    if str(array.dtype) not in PRECISION:
        return array
    unit = _ROUNDINGS * 2.0 ** -PRECISION[str(array.dtype)]
    factors = 1.0 + unit * random.uniform(-1.0, 1.0, array.shape)
    return np.asarray(array.astype(np.float64) * factors).astype(array.dtype)


def _distance(a: Array, b: Array) -> Array:
    """Infinite where the one is not finite and the other something else."""
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        return np.where(same, 0.0, np.nan_to_num(np.abs(x - y), nan=np.inf, posinf=np.inf))


def _allowed(expected: Array, spread: Array) -> Array:
    """How far numbers may be from the expected ones by roundings."""
    dtype = str(expected.dtype)
    if dtype not in PRECISION:
        # What moves with a rounding is a choice that roundings decide.
        return np.where(spread > 0, np.inf, 0.0)
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    tolerance = tolerance_of(CLOSE, dtype)
    return np.asarray(tolerance.allowed(np.asarray(finite.max(initial=0.0))) + _SPREAD * spread)
