"""Whether a failing program fails by one of its calls, or by their composition.

Each call is exported and run by itself, on the very values that it gets in the program. If one fails, the failure is
that call's. If none does, an exporter's or a runtime's treatment of several calls at once causes the failure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx

from harness.blame.failure_context import FailureContext
from harness.blame.first_divergence import Divergence
from harness.compare.verdict import Outcome, Stage
from harness.core.case_group import CaseGroup
from harness.core.program import Program, calls_behind
from harness.core.size_operators import is_size_operator
from harness.pipeline.chain import CallRun, is_chain, run_calls
from harness.pipeline.program import CallRunner
from harness.pipeline.reference import run_reference
from harness.pipeline.run_case import run_case
from harness.pipeline.torch_call import CallRejected
from harness.run.backend import REFERENCE


@dataclass(frozen=True)
class CallsAlone:
    """The results of a program's calls by themselves.

    Attributes:
        failing: The failure of the first call that fails as the program does; None if no call does.
        otherwise: Number of calls that fail in another way, or cannot be run by themselves.
    """

    failing: FailureContext | None
    otherwise: int


def run_calls_alone(context: FailureContext) -> CallsAlone:
    """Run each call of a failing program by itself, for the first that fails in the same way and explains the failure.

    A call that fails differently, such as by a last place where the program has no kernel, is not the reason.
    Nor is a call that no wrong output depends on, or a call of a wrong program whose result differs from the chain of
    its calls' results: a call that is off by a last place may be hidden by a composition that is off by much. If the
    program gives a result, a call for which the backend has no kernel is evaluated as ONNX defines it: an optimiser has
    done the same.
    """
    failure = context.failure
    is_mismatch = failure.outcome is Outcome.MISMATCH
    backends = [context.accused]
    if is_mismatch and context.is_onnx:
        backends.append(context.backend(REFERENCE))
    converter = context.converter(failure.converter)
    caller = CallRunner(run_case, converter, backends, context.route, failure.group.index)
    exported = failure.group.exported if context.route.dynamic else None
    calls: list[CallRun | None] = []
    failing: FailureContext | None = None
    otherwise = 0
    program = Program.of(context.invocation)
    places = [place for place, call in enumerate(program.calls) if not is_size_operator(call.overload)]
    wrong = calls_behind(program, failure.result.wrong_outputs or range(len(program.returns)))
    runs = run_calls(caller, context.invocation, exported, hands_on_wrong=is_mismatch)
    for place, alone in zip(places, runs, strict=False):
        calls.append(alone)
        if place not in wrong and not program.changes_in_place:
            continue
        if failing is not None or (alone is not None and alone.run.passes):
            continue
        found = failure_of_call(context, alone) if alone is not None else None
        if found is None or _way(found) != _way(context):
            otherwise += 1
        elif not is_mismatch:
            return CallsAlone(found, otherwise)
        else:
            failing = found
    if (
        failing is not None
        and context.got is not None
        and is_chain(calls, context.reference, context.got, context.judge) is False
    ):
        return CallsAlone(None, otherwise + 1)
    return CallsAlone(failing, otherwise)


def _way(context: FailureContext) -> tuple[Outcome, bool, str]:
    """Return the way a case fails: the same for all wrong values, and for a runtime's failures at any stage."""
    is_export = context.failure.stage is Stage.CONVERT
    if context.failure.stage is not Stage.COMPARE:
        return context.failure.outcome, is_export, ""
    problem = context.comparison.problem if context.comparison is not None else None
    return context.failure.outcome, is_export, problem if problem in ("dtype", "shape", "count") else ""


def failure_of_call(context: FailureContext, alone: CallRun) -> FailureContext:
    """Return the failure of a call by itself."""
    run, index = alone.run, context.failure.group.index
    group = CaseGroup.of(alone.exported, [alone.reference.invocation], index)
    found = replace(
        context.failure,
        result=replace(run, case=(index, 0), backend=alone.backend),
        route=replace(context.route, backend=alone.backend),
        group=group,
        source=None,
    )
    model = run.artefact if isinstance(run.artefact, onnx.ModelProto) else None
    return FailureContext(
        found, context.settings, context.converter, context.backend, {}, model=model, oracle=alone.reference
    )


def departing_call_alone(context: FailureContext, divergence: Divergence) -> FailureContext | None:
    """Return the failure of the call at which a model's wrong result begins; None if no call is wrong by itself.

    A large tensor is described by the range of its values, not by the values: PyTorch may reject a call whose arguments
    belong together, which does not explain the failure.
    """
    route = replace(context.route, dynamic=False)
    caller = CallRunner(run_case, context.converter(context.failure.converter), [context.accused], route)
    for call in divergence.failing_calls:
        try:
            reference = run_reference(call)
        except CallRejected:
            continue
        alone = caller.run_call(call, reference)
        if alone.run.outcome is Outcome.MISMATCH:
            return failure_of_call(context, alone)
    return None
