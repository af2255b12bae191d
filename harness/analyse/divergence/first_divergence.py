"""Find the first divergence: the earliest exported value that PyTorch does not make of its inputs.

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from harness.analyse.capture.call_capture import CannotKeep, functional, module_path
from harness.analyse.divergence.alone import run_alone
from harness.analyse.divergence.backend_values import (
    BackendValues,
    OfExportedSlices,
    OfWholeModel,
    first_line,
    to_torch,
)
from harness.analyse.divergence.departure import Departure, check
from harness.analyse.divergence.divergence_account import Divergence
from harness.analyse.divergence.divergence_task import DivergeTask
from harness.analyse.divergence.graph import PyTorchGraph, Region
from harness.compare import CLOSE, Stage, compare
from harness.convert import Converter, HasProgram
from harness.core import OpOverload, UnknownName, build_tensors
from harness.execute import (
    Death,
    LoadedModel,
    ModelProblem,
    Move,
    NoModel,
    RoundingOracle,
    Step,
    Supervisor,
    WorkerProcess,
    cases_of,
    export_of,
    feeds_of,
    growth,
    load_model,
    quiet_call,
    run_model,
)
from harness.run import Backend, HasPlain

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
        ModelProblem: it cannot be looked into: the model is not captured, or the backend does not run here.
    """
    cases = cases_of(model, task.settings.dynamic)
    if task.case >= len(cases):
        raise ModelProblem(f"{model.name} has {len(cases)} runs here, and no run {task.case}")

    def alive() -> None:
        send(Step(Stage.COMPARE, None, ()))

    case = cases[task.case]
    alive()
    reference = run_model(model, case.invocation)
    reference.alive = alive
    alive()
    inputs = build_tensors(case.invocation)
    try:
        request = export_of(model, task.settings.dynamic, task.settings.opset)
        if isinstance(converter, HasProgram):
            exported = converter.program(request)
            proto, program = exported.model_proto, exported.exported_program
        else:
            proto, program = converter.convert(request), _captured(model, inputs)
        assert program is not None
    except Exception as error:
        raise ModelProblem(
            f"{model.name} cannot be exported with {task.converter}, so that no value can be compared: "
            f"{first_line(error)}"
        ) from error
    alive()
    session = backend.load(proto, None)
    if not session.runnable:
        raise ModelProblem(f"{task.backend} builds and does not run here: there is no value to compare")
    got = session.run(feeds_of(model, reference, proto))
    del session
    alive()
    graph = PyTorchGraph.of_program(program, inputs)
    sizes = graph.sizes()
    values: BackendValues
    if isinstance(converter, HasProgram):
        values = OfWholeModel(proto, graph, backend, feeds_of(model, reference, proto), sizes, budget)
    else:
        values = OfExportedSlices(graph, converter, backend, sizes, budget, task.settings.opset)
    # What is far off is found at a fraction of the cost; only then is every element looked at, and the end
    # result judged by what roundings explain, which takes several runs in float64.
    scan = scan_checkpoints(graph, values, alive, thorough=False)
    comparison = compare(CLOSE, RoundingOracle(reference.expected, (), wide=_no_runs), got)
    grown = None
    if scan.departure is None:
        comparison = compare(reference.judge, reference, got)
        grown = growth(task.case, task.backend, reference, got)
        if comparison.problem is not None:
            scan = scan_checkpoints(graph, values, alive, thorough=True)
    problem = comparison.message
    common: dict[str, Any] = {
        "model": model.name,
        "converter": task.converter,
        "backend": task.backend,
        "change": case.change,
        "problem": problem,
        "checked": scan.checked,
        "checkpoints": len(values.checkpoints),
        "not_run": tuple(scan.not_run),
        "growth": grown,
    }
    if scan.departure is None:
        kind = "accumulated" if problem else "none"
        if problem and scan.not_run:
            kind = "unknown"
        elif problem and isinstance(backend, HasPlain):
            plain = backend.plain().load(proto, None).run(feeds_of(model, reference, proto))
            if compare(reference.judge, reference, plain).problem is None:
                kind = "optimisation"
        return Divergence(kind=kind, **common)
    region, wrong = scan.departure.region, scan.departure.comparison
    get = partial(scan.value, graph)
    alone = run_alone(graph, region, get, converter, backend, task.settings.opset)
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
        program = torch.export.export(model.program, inputs, strict=False)
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
        harness.execute.supervisor.WorkerFailed: no worker process can be started.
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
    converter, _ = worker.converter(task.converter, task.settings)
    backend = worker.start(task.backend)
    worker.send(Step(Stage.REFERENCE, None, ()))
    try:
        worker.send(diverge(task, load_model(task.word), converter, backend, worker.send))
    except (ModelProblem, UnknownName) as problem:
        worker.send(NoModel(str(problem)))
