"""Exports that are right for the inputs that they were made with and for no others: specialised by tracing.

Two things are baked in: which way the program went, and sizes. The first shows in PyTorch itself: for the
failing inputs it calls other operators, or with other weights, than for the example. The second shows in the
export: at the failing sizes, a static export is right.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from harness.blame.failure_context import FailureContext
from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Invocation
from harness.core.tensors import build_tensors
from harness.core.torch_operators import TorchDispatchMode
from harness.pipeline.case import Case
from harness.pipeline.model_cases import ModelStructure, cases_of
from harness.pipeline.model_loading import LoadedModel
from harness.pipeline.model_task import Traced
from harness.pipeline.run_case import run_case
from harness.pipeline.started_route import StartedRoute
from harness.pipeline.torch_call import quiet_call

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


def find_traced_path(context: FailureContext, *, example_passes: bool) -> Traced | None:
    """Return the path or size that tracing fixed, if that is the cause of a model's failure.

    Args:
        context: The failure.
        example_passes: Whether the run with the exported example passes in the same backend.
    """
    model, failure = context.python_model, context.failure
    if model is None:
        return None
    if failure.stage is Stage.CONVERT and failure.outcome is Outcome.ERROR:
        return context.cached_per_operator("the path that the export refuses", lambda: _refused_path(model))
    if not example_passes or failure.stage not in (Stage.RUN, Stage.COMPARE):
        return None
    example, here = failure.group.exported, context.invocation
    way = other_path(model, example, here)
    if way:
        return Traced(CONTROL_FLOW, f"{way}.")
    if [s.shape for s in example.tensors()] == [s.shape for s in here.tensors()]:
        return None
    name = f"a static export in {failure.backend}"
    if not context.cached_per_operator(name, lambda: _passes_alone(context, model)):
        return None
    return Traced(SIZES, "A static export at these sizes passes.", _fixed_sizes(context, model))


def _refused_path(model: LoadedModel) -> Traced | None:
    """Return the first other inputs for which the model takes another path, in words; an exporter that refuses to
    decide at tracing time refuses for that."""
    example, *others = cases_of(model, dynamic=False)
    for other in others:
        way = other_path(model, example.invocation, other.invocation)
        if way:
            return Traced(CONTROL_FLOW, f"With {other.change}, {way}.")
    return None


def _fixed_sizes(context: FailureContext, model: LoadedModel) -> tuple[tuple[str, int], ...]:
    """Return the open sizes of inputs that are numbers in the exported graph; none of an artefact of another kind."""
    shapes = {value.name: value.type.tensor_type.shape.dim for value in context.model.graph.input}
    return tuple(
        (name, dim)
        for name, dims in zip(model.input_names, model.dynamic_dims, strict=True)
        for dim in sorted(dims)
        if name in shapes and shapes[name][dim].HasField("dim_value")
    )


def _passes_alone(context: FailureContext, model: LoadedModel) -> bool:
    """Whether a static export that is made with the failing inputs is right for them."""
    oracle = context.reference
    structure = ModelStructure(model, len(oracle.expected), inputs=build_tensors(oracle.invocation))
    route = replace(context.route, dynamic=False)
    started = StartedRoute(route, context.converter(route.converter), context.accused)
    return run_case(Case(structure, oracle), started).passes
