"""The first divergence of a model: the earliest exported value that PyTorch does not make of its inputs.

1. PyTorch computes every checkpoint (see `harness.pipeline.intermediate_values`) from the backend's own values of its
   inputs, and the two are compared. So errors of earlier operators take no part, and if no value departs, the end
   result's error is the sum of roundings.
2. The operators of the first region that departs are run alone, on the values that they had in the model.
3. A value that is looked at cannot be fused away. If none departs, and the backend is right without its
   optimisations, the fault is one of fusing.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.fx import Node

from harness.compare.comparison import compare
from harness.compare.judge import CLOSE
from harness.compare.nearness import tolerance_of
from harness.compare.output_comparison import OutputComparison
from harness.convert.converter import Converter, HasProgram
from harness.convert.provenance import emitted
from harness.core.described_tensor import describe_tensor
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Invocation, TensorSpec
from harness.core.numbers import are_same
from harness.core.route import Route
from harness.core.tensors import build_tensors, output_tensors
from harness.core.text import describe_error, first_line
from harness.core.torch_arrays import to_numpy
from harness.core.torch_operators import OpOverload
from harness.generate.operator_case import OPERATOR_CASES
from harness.pipeline.captured_calls import CannotKeep, functional, invocation_of, module_path
from harness.pipeline.intermediate_values import (
    BackendValues,
    OfExportedSlices,
    OfWholeModel,
    PyTorchGraph,
    Region,
    to_torch,
)
from harness.pipeline.model_cases import ModelStructure
from harness.pipeline.model_loading import LoadedModel
from harness.pipeline.model_oracle import ModelOracle
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.rounding_oracle import Move, RoundingOracle
from harness.pipeline.run_graph import run_graph
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.torch_call import quiet_call
from harness.run.artefact import AnyModel, Artefact
from harness.run.backend import Backend, HasPlain

#: Elements that are compared at once.
_PIECE = 1 << 21


@dataclass(frozen=True)
class Departure:
    """A value that its inputs do not explain, compared with PyTorch's result for the same inputs."""

    region: Region
    comparison: OutputComparison


def check(
    graph: PyTorchGraph, region: Region, get: Callable[[Node], Any], got: Array, *, thorough: bool
) -> Departure | None:
    """Compare a checkpoint's value with PyTorch's result for the backend's own values of its sources.

    Args:
        get: The values of the region's sources.
        got: The backend's value.
        thorough: Judge each element; else a value is passed over whose largest error is within the tolerance
            of its largest element, which costs a fraction.
    """
    with quiet_call():
        value = graph.compute(region.nodes, get)[region.node]
    expected = to_numpy(value)
    if expected.dtype == got.dtype and expected.shape == got.shape and _is_close(expected, got, thorough):
        return None
    comparison = judged(graph, region, get, (expected,), (got,))
    return Departure(region, comparison) if comparison.problem is not None else None


def judged(
    graph: PyTorchGraph,
    region: Region,
    get: Callable[[Node], Any],
    expected: tuple[Array, ...],
    got: Sequence[Array],
) -> OutputComparison:
    """Compare a checkpoint's value element by element, by the rules for models or by its operator's own rules."""

    @contextmanager
    def wide() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
        def compute(move: Move) -> Sequence[torch.Tensor]:
            given = {node: get(node) for node in region.sources}
            moved = {node: move(v.double()) if _is_floating(v) else v for node, v in given.items()}
            return output_tensors(graph.compute(region.nodes, moved.__getitem__)[region.node])

        yield compute

    dtypes = {str(a.dtype) for a in expected}
    dtypes |= {str(v.dtype).removeprefix("torch.") for n in region.sources if isinstance(v := get(n), torch.Tensor)}
    oracle = RoundingOracle(expected, dtypes, wide)
    calls = region.operators
    if len(calls) == 1 and calls[0] is region.node:
        case = OPERATOR_CASES.get(str(calls[0].target))
        if case is not None and case.judge.rules:
            oracle.arguments = _arguments(calls[0], get)
            return compare(case.judge, oracle, got)
    return compare(oracle.judge, oracle, got)


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _arguments(node: Node, get: Callable[[Node], Any]) -> Mapping[str, Any]:
    schema = node.target._schema.arguments  # type: ignore[union-attr]

    def plain(value: Any) -> Any:
        return to_numpy(value) if isinstance(value, torch.Tensor) else value

    args = torch.fx.map_arg(node.args, lambda n: plain(get(n)))
    kwargs = torch.fx.map_arg(node.kwargs, lambda n: plain(get(n)))
    return {a.name: v for a, v in zip(schema, args, strict=False)} | dict(kwargs)


def _is_close(expected: Array, got: Array, thorough: bool) -> bool:
    """Whether no closer look is needed; in pieces, since a value may take a good part of the memory."""
    dtype = str(expected.dtype)
    if dtype not in PRECISION:
        return bool(np.array_equal(expected, got))
    tolerance = tolerance_of(CLOSE, dtype)
    e, g = expected.reshape(-1), got.reshape(-1)
    scale, worst = 0.0, 0.0
    for start in range(0, max(e.size, 1), _PIECE):
        piece, other = (array[start : start + _PIECE].astype(np.float64) for array in (e, g))
        same = are_same(piece, other)
        with np.errstate(all="ignore"):
            error = np.where(same, 0.0, np.abs(other - piece))
        if not np.isfinite(error).all():
            return False
        if thorough and (error > tolerance.allowed(piece)).any():
            return False
        finite = piece[np.isfinite(piece)]
        scale = max(scale, float(np.abs(finite).max(initial=0.0)))
        worst = max(worst, float(error.max(initial=0.0)))
    return thorough or worst <= float(tolerance.allowed(np.asarray(scale)))


#: Storage elements up to which an operator's arguments are kept as they are.
_EXACT = 64


@dataclass(frozen=True)
class Alone:
    """The result of an operator of a model that was exported and run by itself.

    Attributes:
        overload: The operator's name.
        invocation: The call, with arguments like those that it had in the model; None if an invocation cannot
            hold them.
        outcome: ``pass``, ``mismatch``, or ``error`` if it cannot be exported or run by itself.
        message: The problem of the result, or the error.
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
    """Export and run each operator of a region by itself, on the values that PyTorch gives it there."""
    with quiet_call():
        env = graph.compute(region.nodes, get)

    def value(node: Node) -> Any:
        return env[node] if node in env else get(node)

    return [_run_operator(graph, node, value, converter, backend, route) for node in region.operators]


def _run_operator(
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
        structure = CallStructure(invocation, outputs=len(results), examples=tuple(tensors))
        model = export_alone(converter, structure, replace(route, dynamic=False))
        feeds = structure.feeds(model, [to_numpy(t) for t in tensors])
        got = run_graph(backend, model, feeds).outputs_or_raise()
    except Exception as error:
        return Alone(overload, invocation, "error", describe_error(error))
    alone = Region(node, (node,), tuple(node.all_input_nodes))
    comparison = judged(graph, alone, value, tuple(map(to_numpy, results)), got)
    return Alone(overload, invocation, "mismatch" if comparison.problem else "pass", comparison.message)


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The place where a model's result goes wrong, or the reason why it has no single place.

    Attributes:
        backend: The name of the backend that ran the model.
        kind: ``none`` if the result is right; ``operator`` if a value departs; ``accumulated`` if
            none does; ``optimisation`` if none does and the backend is right without its optimisations;
            ``unknown`` if none of the comparable values does.
        problem: The problem of the end result; "" if it is right.
        module: The path of the module that calls `operator`; "" if no value departs, as for those below.
        operator: The operator that departs: the first that is wrong by itself, else the last.
        operators: The operators that compute the value, the last first.
        node: The name of the value in the PyTorch graph.
        onnx_node: The node that makes the value in the ONNX graph.
        detail: The difference between the value and the right one.
        alone: The results of `operators` by themselves, in the order in which the model calls them.
        checked: The number of values that were compared.
        checkpoints: The number of values that could be.
        not_run: Slices that could not be exported or run by themselves, in words.
    """

    backend: str
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

    @property
    def failing_calls(self) -> tuple[Invocation, ...]:
        """The calls of the departure that are wrong by themselves."""
        wrong = (alone.invocation for alone in self.alone if alone.outcome == "mismatch")
        return tuple(call for call in wrong if call is not None)

    def to_data(self) -> dict[str, Any]:
        """Return the divergence as JSON data."""
        data = asdict(self)
        for alone, entry in zip(self.alone, data["alone"], strict=True):
            invocation = alone.invocation
            entry["case_id"] = invocation.case_id if invocation is not None else ""
            entry["invocation"] = invocation.json if invocation is not None else ""
        return data


#: Bytes of checkpoints to a slice.
BUDGET = 256 * 2**20


@contextlib.contextmanager
def _no_runs() -> Iterator[Callable[[Move], Sequence[torch.Tensor]]]:
    def compute(move: Move) -> Sequence[torch.Tensor]:
        raise NotImplementedError("float64 is not asked")

    yield compute


@dataclass
class _Scan:
    """The state of one pass over the checkpoints."""

    departure: Departure | None = None
    held: dict[str, torch.Tensor] = field(default_factory=dict)
    checked: int = 0
    not_run: list[str] = field(default_factory=list)

    def value(self, graph: PyTorchGraph, node: Node) -> Any:
        """Return the backend's value of a checkpoint, or the value of a placeholder or an attribute."""
        return self.held[node.name] if node.name in self.held else graph.value(node)


class NoValues(Exception):
    """Why no value can be compared, in one line for a person."""


def find_first_divergence(reference: ModelOracle, started: StartedRoute, budget: int = BUDGET) -> Divergence:
    """Return where one run of a model goes wrong.

    Args:
        reference: PyTorch's answer to the run. Its `alive` is called whenever a step is done.
        started: The model's route.
        budget: Bytes of values to a slice.

    Raises:
        NoValues: the model cannot be exported or captured, or the backend gives no result.
    """
    assert started.backend is not None
    backend, alive = started.backend, reference.alive
    inputs = build_tensors(reference.invocation)
    structure = ModelStructure(reference.model, len(reference.expected))
    exported, program = _translated(started, structure, inputs)
    alive()
    feeds = structure.feeds(exported, reference.feeds)
    run = run_graph(backend, exported, feeds)
    if run.failure is not None:
        raise NoValues(f"{backend.name} gives no value to compare: {first_line(run.failure.error)}")
    got = run.outputs_or_raise()
    alive()
    graph = PyTorchGraph.bind(program, inputs)
    values: BackendValues
    assert started.converter is not None
    if isinstance(started.converter, HasProgram) and not isinstance(exported, Artefact):
        values = OfWholeModel(exported, graph, backend, feeds, graph.sizes(), budget)
    else:
        values = OfExportedSlices(graph, started.converter, backend, graph.sizes(), budget, started.route)
    scan, problem = _search(reference, got, graph, values)
    common: dict[str, Any] = {
        "backend": backend.name,
        "problem": problem,
        "checked": scan.checked,
        "checkpoints": len(values.checkpoints),
        "not_run": tuple(scan.not_run),
    }
    if scan.departure is None:
        unoptimised = partial(_is_right_unoptimised, started, exported, feeds, reference)
        return Divergence(kind=_kind_without_departure(problem, scan, unoptimised), **common)
    get = partial(scan.value, graph)
    alone = run_alone(graph, scan.departure.region, get, started.converter, backend, started.route)
    return _operator_divergence(scan.departure, alone, values, common)


def _search(
    reference: ModelOracle,
    got: Sequence[Array],
    graph: PyTorchGraph,
    values: BackendValues,
) -> tuple[_Scan, str]:
    """Compare the checkpoints, and return the scan and the problem of the end result ("" if it is right).

    The first scan finds large errors at a fraction of the cost. Only if it finds none is every element compared,
    and the end result judged by the effect of roundings, which takes several runs in float64.
    """
    scan = scan_checkpoints(graph, values, reference.alive, thorough=False)
    if scan.departure is not None:
        return scan, compare(CLOSE, RoundingOracle(reference.expected, (), wide=_no_runs), got).message
    comparison = reference.compare(got)
    if comparison.problem is not None:
        scan = scan_checkpoints(graph, values, reference.alive, thorough=True)
    return scan, comparison.message


def _is_right_unoptimised(
    started: StartedRoute, model: AnyModel, feeds: Mapping[str, Array], reference: ModelOracle
) -> bool:
    if not isinstance(started.backend, HasPlain):
        return False
    plain = run_graph(started.backend.plain(), model, feeds).outputs
    return plain is not None and reference.compare(plain).problem is None


def _kind_without_departure(problem: str, scan: _Scan, unoptimised_is_right: Callable[[], bool]) -> str:
    """Return the `Divergence.kind` of a model none of whose values departs."""
    if not problem:
        return "none"
    if scan.not_run:
        return "unknown"
    return "optimisation" if unoptimised_is_right() else "accumulated"


def _translated(
    started: StartedRoute, structure: ModelStructure, inputs: tuple[torch.Tensor, ...]
) -> tuple[AnyModel, torch.export.ExportedProgram]:
    """Return the model's export, and the program that it is compared with."""
    assert started.converter is not None
    try:
        if isinstance(started.converter, HasProgram):
            graph = emitted(started.converter, structure.request(started.route))
            return graph.model, graph.program or _captured(structure.model, inputs)
        return export_alone(started.converter, structure, started.route), _captured(structure.model, inputs)
    except Exception as error:
        raise NoValues(
            f"{structure.model.name} cannot be exported with {started.route.converter}, so that no value can be "
            f"compared: {first_line(error)}"
        ) from error


def _operator_divergence(
    departure: Departure, alone: Sequence[Alone], values: BackendValues, common: Mapping[str, Any]
) -> Divergence:
    """Return the divergence at the guilty operator of a departure's region."""
    region, wrong = departure.region, departure.comparison
    wrong_alone = (n for n, result in zip(region.operators, alone, strict=True) if result.outcome == "mismatch")
    # A constant is folded into its reader, which is the node that shows the fault.
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
    """Return the model's calls, composites whole; calls that write into an argument are replaced by functional ones."""
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
