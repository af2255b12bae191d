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
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.fx import Node

from harness.analyse.capture.call_capture import CannotKeep, functional
from harness.analyse.divergence.alone import Alone, run_alone
from harness.analyse.divergence.backend_values import BackendValues, OfExportedSlices, OfWholeModel, to_torch
from harness.analyse.divergence.departure import Departure, check
from harness.analyse.divergence.divergence_task import DivergeTask
from harness.analyse.divergence.graph import PyTorchGraph, Region, readers
from harness.compare import CLOSE, Stage, compare
from harness.convert import Converter, HasProgram
from harness.core import Array, OpOverload, build_tensors
from harness.execute import (
    Growth,
    LoadedModel,
    ModelProblem,
    Move,
    RoundingOracle,
    Step,
    cases_of,
    export_of,
    feeds_of,
    growth,
    quiet_call,
    run_model,
)
from harness.run import Backend, HasPlain

#: Bytes of checkpoints to a slice.
BUDGET = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """What was found.

    Attributes:
        model: Its name.
        converter: Name.
        backend: Name.
        change: In what the run's inputs differ from the example; "" for the example.
        kind: ``none`` where the result is right; ``operator`` where a value departs; ``accumulated`` where
            none does; ``optimisation`` where none does and the backend is right without its optimisations;
            ``unknown`` where none does of those that could be compared.
        problem: What is wrong with the end result; "" where it is right.
        module: Of the departure: the module, by its path.
        operators: The operators that it is the result of, the last first.
        node: The node of the PyTorch graph.
        onnx_node: The ONNX node.
        detail: How the value differs.
        alone: The operators by themselves.
        checked: Values compared.
        checkpoints: Values that could be.
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
    operators: tuple[str, ...] = ()
    node: str = ""
    onnx_node: str = ""
    detail: str = ""
    alone: tuple[Alone, ...] = ()
    checked: int = 0
    checkpoints: int = 0
    not_run: tuple[str, ...] = ()
    growth: Growth | None = None

    @property
    def verdict(self) -> str:
        """Whose fault it is, in a sentence."""
        if self.kind == "none":
            return "Nothing diverges."
        if self.kind == "unknown":
            return f"Nothing that could be compared departs: {self.checked} of {self.checkpoints} values."
        if self.kind == "accumulated":
            return (
                "No operator departs from what PyTorch makes of its inputs: the error is accumulated, or due "
                "to how the whole graph is optimised."
            )
        if self.kind == "optimisation":
            return (
                f"No operator departs by itself, and without its graph optimisations {self.backend} is "
                "right: it optimises the whole graph wrongly."
            )
        where = f" in {self.module}" if self.module else ""
        wrong = [alone.overload for alone in self.alone if alone.outcome == "mismatch"]
        unknown = [alone.overload for alone in self.alone if alone.outcome == "error"]
        first = f"First divergence: {self.operators[0]}{where}"
        if self.onnx_node:
            first += f" (ONNX node {self.onnx_node})"
        if wrong:
            return f"{first}. {' and '.join(wrong)} is wrong by itself, on the inputs that it has there."
        if unknown:
            return f"{first}. {' and '.join(unknown)} cannot be run by itself."
        if len(self.operators) > 1:
            return (
                f"{first}. Its {len(self.operators)} operators are right by themselves: fusing them is wrong."
            )
        return f"{first}. It is right by itself: what goes wrong is how it is exported among others."

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        data = asdict(self)
        data["verdict"] = self.verdict
        for alone, entry in zip(self.alone, data["alone"], strict=True):
            invocation = alone.invocation
            entry["case_id"] = invocation.case_id if invocation is not None else ""
            entry["invocation"] = invocation.json if invocation is not None else ""
        return data


class _Plain(RoundingOracle):
    """PyTorch's results without float64's beside them."""

    def __init__(self, expected: tuple[Array, ...]) -> None:
        super().__init__(expected, (), wide=_no_runs)


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
        task: Which.
        model: The model.
        converter: Started.
        backend: Started.
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
            proto = exported.model_proto
            program = exported.exported_program
        else:
            proto = converter.convert(request)
            program = _captured(model, inputs)
        assert program is not None
    except Exception as error:
        lines = str(error).strip().splitlines()
        raise ModelProblem(
            f"{model.name} cannot be exported with {task.converter}, so that no value can be compared: "
            f"{type(error).__name__}: {lines[0] if lines else ''}"
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
    scan = _scan(graph, values, alive, thorough=False)
    comparison = compare(CLOSE, _Plain(reference.expected), got)
    grown = None
    if scan.departure is None:
        comparison = compare(reference.judge, reference, got)
        grown = growth(task.case, task.backend, reference, got)
        if comparison.problem is not None:
            scan = _scan(graph, values, alive, thorough=True)
    problem = f"{comparison.problem}: {comparison.detail}" if comparison.problem is not None else ""
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
    region = scan.departure.region
    wrong = scan.departure.comparison

    def get(node: Node) -> Any:
        return scan.held[node.name] if node.name in scan.held else graph.value(node)

    return Divergence(
        kind="operator",
        module=region.module,
        operators=tuple(str(n.target) for n in reversed(region.operators)),
        node=region.node.name,
        onnx_node=values.onnx_node(region.node.name),
        detail=f"{wrong.problem}: {wrong.detail}",
        alone=tuple(run_alone(graph, region, get, converter, backend, task.settings.opset)),
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


def _scan(graph: PyTorchGraph, values: BackendValues, alive: Callable[[], None], *, thorough: bool) -> _Scan:
    """Compare checkpoint by checkpoint, up to the first that departs."""
    nodes = {node.name: node for node in graph.nodes}
    regions: dict[str, Region] = {}
    known: set[str] = set()
    for name in values.checkpoints:
        regions[name] = graph.region(nodes[name], known)
        known.add(name)
    order = {name: place for place, name in enumerate(values.checkpoints)}
    last = readers(tuple(regions.values()))
    scan = _Scan()
    get = lambda node: scan.held[node.name] if node.name in scan.held else graph.value(node)  # noqa: E731
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
