"""Exports that are right for the inputs that they were made with and for no others: specialised by tracing.

Two things are baked in: which way the program went, and sizes. The first shows in PyTorch itself: for the
failing inputs it calls other operators, or with other weights, than for the example. The second shows in the
export: at the failing sizes, a static export is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnx
import torch

from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter
from harness.core.invocation import Invocation
from harness.core.tensors import build_tensors
from harness.core.torch_operators import TorchDispatchMode
from harness.pipeline.models.model_cases import cases_of, export_of, feeds_of
from harness.pipeline.models.model_judge import judge_outputs
from harness.pipeline.models.model_loading import LoadedModel
from harness.pipeline.models.model_reference import ModelReference
from harness.pipeline.models.model_task import ModelCase, ModelTask, Traced
from harness.pipeline.run_steps import outputs_of
from harness.pipeline.task import Result
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
    """The operators that PyTorch calls for these inputs, with the weights that they take."""
    tensors = build_tensors(invocation)
    with quiet_call(), _Path(model.program) as noted:
        model.program(*tensors)
    steps: list[str] = noted.steps
    return steps


def other_path(model: LoadedModel, example: Invocation, other: Invocation) -> str:
    """Where the model goes another way for `other` than for `example`, for people; "" where it does not."""
    ours, theirs = path(model, example), path(model, other)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return f"PyTorch calls {b} where it called {a} for the exported inputs (call {i + 1})"
    if len(ours) != len(theirs):
        return f"PyTorch makes {len(theirs)} calls where it made {len(ours)} for the exported inputs"
    return ""


def explanations(
    model: LoadedModel,
    cases: Sequence[ModelCase],
    references: Mapping[int, ModelReference],
    results: Mapping[tuple[int, str], Result],
    converter: Converter,
    backends: Mapping[str, Backend],
    task: ModelTask,
    exported: AnyModel | None,
) -> Iterator[Traced]:
    """Which of the failures are of tracing; `exported` is None where the export failed."""
    failed = {key: r for key, r in results.items() if r.outcome.is_failure}
    if any(r.stage is Stage.CONVERT and r.outcome is Outcome.ERROR for r in failed.values()):
        yield from _refused(model, failed)
        return
    late = (Stage.RUN, Stage.COMPARE)
    for backend in backends:
        first = results.get((0, backend))
        if first is None or first.outcome is not Outcome.PASS:
            continue
        confirmed: bool | None = None
        for (index, name), result in failed.items():
            if name != backend or result.stage not in late:
                continue
            way = other_path(model, cases[0].invocation, cases[index].invocation)
            if way:
                yield Traced(case=index, backend=backend, what=CONTROL_FLOW, evidence=f"{way}.")
            elif cases[index].resized:
                if confirmed is None:
                    confirmed = _passes_alone(model, references[index], converter, backends[backend], task)
                if confirmed:
                    message = "A static export at these sizes passes."
                    fixed = _fixed_sizes(model, exported)
                    yield Traced(case=index, backend=backend, what=SIZES, evidence=message, fixed=fixed)


def _fixed_sizes(model: LoadedModel, exported: AnyModel | None) -> tuple[tuple[str, int], ...]:
    """The open sizes of inputs that are numbers in an ONNX graph."""
    if not isinstance(exported, onnx.ModelProto):
        return ()
    shapes = {value.name: value.type.tensor_type.shape.dim for value in exported.graph.input}
    return tuple(
        (name, dim)
        for name, dims in zip(model.input_names, model.dynamic_dims, strict=True)
        for dim in sorted(dims)
        if name in shapes and shapes[name][dim].HasField("dim_value")
    )


def _refused(model: LoadedModel, failed: Mapping[tuple[int, str], Result]) -> Iterator[Traced]:
    """An exporter that does not trace says that it cannot decide; whether that is so shows in PyTorch."""
    example, *others = cases_of(model, dynamic=False)
    for other in others:
        way = other_path(model, example.invocation, other.invocation)
        if way:
            for index, backend in failed:
                message = f"With {other.change}, {way}."
                yield Traced(case=index, backend=backend, what=CONTROL_FLOW, evidence=message)
            return


def _passes_alone(
    model: LoadedModel, reference: ModelReference, converter: Converter, backend: Backend, task: ModelTask
) -> bool:
    """Whether an export made with the failing inputs is right for them."""
    try:
        request = export_of(model, False, task.settings.opset, build_tensors(reference.invocation))
        proto = converter.convert(request)
        outputs = outputs_of(backend, proto, feeds_of(model, reference, proto))
    except Exception:
        return False
    return judge_outputs(reference, outputs, task.settings.tolerance).problem is None
