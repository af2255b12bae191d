"""Whether a failing program fails by one of its calls, or by their composition.

Each call is exported and run by itself, on the very values that it gets in the program. If one fails, the failure is
that call's. If none does, it is the composition's: of what an exporter or a runtime makes of several calls at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from harness.blame.failure_context import FailureContext
from harness.blame.testimony import Failure
from harness.compare.comparison import compare
from harness.compare.verdict import Outcome, Stage
from harness.core.invocation import Argument, Invocation, Literal, Result, TensorSpec, Weight, contiguous_strides
from harness.core.program import Program, with_arguments
from harness.core.tensors import ProgramSteps, bind, build_tensors
from harness.execute.program import Exportable, export_alone
from harness.execute.reference import run_reference
from harness.execute.run_steps import StepFailure, outputs_or_failure
from harness.execute.task import Group
from harness.execute.torch_call import quiet_call

#: Elements of a value above which a call is not run by itself: its values would be written out.
_MOST = 4096


def calls_alone(invocation: Invocation) -> Iterator[Invocation]:
    """Each call of a program by itself, each once, with the values that it gets there as its inputs."""
    program, call = Program.of(invocation), bind(invocation)
    assert isinstance(call.target, ProgramSteps)
    with quiet_call():
        results = call.target.results(build_tensors(invocation))

    def valued(argument: Argument) -> Argument:
        if isinstance(argument, Weight):
            return argument.spec
        return _spec(results[argument.call][argument.output]) if isinstance(argument, Result) else argument

    seen = set()
    for step in program.calls:
        alone = with_arguments(step, valued)
        if alone.json not in seen:
            seen.add(alone.json)
            yield alone


def _spec(tensor: torch.Tensor) -> TensorSpec:
    shape = tuple(tensor.shape)
    values = tuple(tensor.contiguous().flatten().tolist())
    return TensorSpec(shape, str(tensor.dtype).removeprefix("torch."), contiguous_strides(shape), 0, Literal(values))


@dataclass(frozen=True)
class CallsAlone:
    """What the calls of a program come to by themselves.

    Attributes:
        failing: The failure of the first that fails as the program does; None where none does.
        otherwise: How many fail in another way, or cannot be run by themselves.
    """

    failing: FailureContext | None
    otherwise: int


def run_calls_alone(context: FailureContext) -> CallsAlone:
    """Run each call of a failing program by itself, up to the first that fails in the same way.

    A call that fails otherwise, such as by a last place where the program has no kernel, is not the reason.
    """
    otherwise = 0
    for alone in calls_alone(context.invocation):
        if any(spec.numel > _MOST for spec in alone.tensors()):
            otherwise += 1
            continue
        try:
            found = _alone(context, alone)
        except Exception:
            # PyTorch does not take it by itself, or it cannot be exported: that is no result to compare.
            otherwise += 1
            continue
        if found is not None and _way(found) == _way(context):
            return CallsAlone(found, otherwise)
        otherwise += found is not None
    return CallsAlone(None, otherwise)


def _way(context: FailureContext) -> tuple[Outcome, str]:
    """In which way a case fails; the same for all kinds of wrong values, and where a runtime fails early or late."""
    problem = context.comparison.problem if context.comparison is not None else None
    return context.failure.outcome, problem if problem in ("dtype", "shape", "count") else ""


def _alone(context: FailureContext, alone: Invocation) -> FailureContext | None:
    """The failure of one call; None where it passes."""
    failure, settings = context.failure, context.settings
    reference = run_reference(alone)
    structure = Exportable.of(alone, [alone], outputs=len(reference.expected), index=failure.group.index)
    model = export_alone(context.converter(failure.converter), structure, opset=settings.opset)
    got = outputs_or_failure(context.backend(failure.backend), model, structure.feeds(model, reference.feeds))
    if isinstance(got, StepFailure):
        stage, outcome, message = got.stage, got.outcome, str(got.error)
    else:
        comparison = compare(reference.judge, reference, got)
        if comparison.problem is None:
            return None
        stage, outcome, message = Stage.COMPARE, Outcome.MISMATCH, comparison.message
    found: Failure = replace(
        failure,
        group=Group(failure.group.index, alone, ((0, alone),)),
        case=0,
        stage=stage,
        outcome=outcome,
        message=message,
        model=model.SerializeToString(),
        outputs=(),
    )
    return FailureContext(found, settings, context.converter, context.backend, {})
