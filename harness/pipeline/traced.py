"""Exports that are right for the inputs that they were made with and for no others: specialised by tracing.

Two things are baked in: which way the program went, and sizes. The first shows in PyTorch itself: for the
failing inputs it calls other operators, or with other weights, than for the example. The second shows in the
export: at the failing sizes, a static export is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import torch

from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.tensors import build_tensors
from harness.core.torch_operators import TorchDispatchMode
from harness.pipeline.case import Case, CaseOracle
from harness.pipeline.case_run import CaseRun
from harness.pipeline.model_cases import ModelStructure, cases_of
from harness.pipeline.model_loading import LoadedModel
from harness.pipeline.model_task import Traced
from harness.pipeline.run_case import run_case
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.torch_call import quiet_call
from harness.run.artefact import AnyModel
from harness.run.backend import Backend

CONTROL_FLOW, SIZES = "control flow", "sizes"


class _Path(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Takes note of which operators are called with which weights."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._names = {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
        self.steps: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        weights = [self._names[id(a)] for a in args if id(a) in self._names]
        self.steps.append(str(func) + "".join(f" with {name.removeprefix('model.')}" for name in weights))
        return func(*args, **(kwargs or {}))


def path(model: LoadedModel, invocation: Invocation) -> list[str]:
    """Return the operators that PyTorch calls for these inputs, with the weights that they take."""
    tensors = build_tensors(invocation)
    with quiet_call(), _Path(model.program) as noted:
        model.program(*tensors)
    steps: list[str] = noted.steps
    return steps


def other_path(model: LoadedModel, example: Invocation, other: Invocation) -> str:
    """Describe where the model takes another path for `other` than for `example`; "" if it does not."""
    ours, theirs = path(model, example), path(model, other)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"PyTorch calls {b} where it called {a} for the exported inputs (call {i + 1})"
    if len(ours) != len(theirs):
        return f"PyTorch makes {len(theirs)} calls where it made {len(ours)} for the exported inputs"
    return ""


@dataclass(frozen=True)
class ModelFailures:
    """The failures in the runs of a model.

    Attributes:
        model: The model.
        route: Its route, up to the backends.
        converter: The route's converter, started.
        backends: The backends by name, started.
        cases: Index → inputs; the example is 0.
        oracles: Index → PyTorch's answer, for the runs that it accepts.
        results: The result of each run in each backend.
    """

    model: LoadedModel
    route: Route
    converter: Converter
    backends: Mapping[str, Backend]
    cases: Mapping[int, Invocation]
    oracles: Mapping[int, CaseOracle]
    results: Sequence[CaseRun]


def explain_by_tracing(failures: ModelFailures, exported: AnyModel | None) -> Iterator[CaseRun]:
    """Yield the failures that tracing causes, with the reason; `exported` is None if the export failed."""
    failed = [r for r in failures.results if r.outcome.is_failure]
    if any(r.stage is Stage.CONVERT and r.outcome is Outcome.ERROR for r in failed):
        yield from _refused(failures.model, failed)
        return
    passing = {r.backend for r in failures.results if r.case[1] == 0 and r.outcome is Outcome.PASS}
    confirmed: dict[str, bool] = {}
    for result in failed:
        if result.backend not in passing or result.stage not in (Stage.RUN, Stage.COMPARE):
            continue
        example, here = failures.cases[0], failures.cases[result.case[1]]
        way = other_path(failures.model, example, here)
        if way:
            yield _explained(result, Traced(CONTROL_FLOW, f"{way}."))
        elif [s.shape for s in example.tensors()] != [s.shape for s in here.tensors()]:
            if result.backend not in confirmed:
                confirmed[result.backend] = _passes_alone(failures, result)
            if confirmed[result.backend]:
                fixed = _fixed_sizes(failures.model, exported)
                yield _explained(result, Traced(SIZES, "A static export at these sizes passes.", fixed))


def _explained(result: CaseRun, traced: Traced) -> CaseRun:
    return replace(result, model_run=replace(result.model_run, traced=traced))


def _fixed_sizes(model: LoadedModel, exported: AnyModel | None) -> tuple[tuple[str, int], ...]:
    """Return the open sizes of inputs that are numbers in an ONNX graph."""
    if not isinstance(exported, onnx.ModelProto):
        return ()
    shapes = {value.name: value.type.tensor_type.shape.dim for value in exported.graph.input}
    return tuple(
        (name, dim)
        for name, dims in zip(model.input_names, model.dynamic_dims, strict=True)
        for dim in sorted(dims)
        if name in shapes and shapes[name][dim].HasField("dim_value")
    )


def _refused(model: LoadedModel, failed: Sequence[CaseRun]) -> Iterator[CaseRun]:
    """Yield the failures of an exporter that refuses to decide at tracing time, if other inputs take another path in
    PyTorch."""
    example, *others = cases_of(model, dynamic=False)
    for other in others:
        way = other_path(model, example.invocation, other.invocation)
        if way:
            traced = Traced(CONTROL_FLOW, f"With {other.change}, {way}.")
            yield from (_explained(result, traced) for result in failed)
            return


def _passes_alone(failures: ModelFailures, result: CaseRun) -> bool:
    """Whether a static export that is made with the failing inputs is right for them."""
    oracle = failures.oracles[result.case[1]]
    inputs = build_tensors(oracle.invocation)
    structure = ModelStructure(failures.model, len(oracle.expected), inputs=inputs)
    route = replace(failures.route, dynamic=False)
    started = StartedRoute(route, failures.converter, failures.backends[result.backend])
    return run_case(Case(structure, oracle), started).passes
