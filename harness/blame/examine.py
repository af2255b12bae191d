"""Ask the witnesses about one failure and assign blame. Runs in the worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from harness.blame.composition import departing_call_alone, run_calls_alone
from harness.blame.decide import LOSES_ALIAS, OPTIMISED, WRONG_NODE, decide, decide_directly, decide_transform
from harness.blame.failure_context import FailureContext
from harness.blame.first_divergence import NoValues, find_first_divergence
from harness.blame.lost_alias import find_lost_alias
from harness.blame.testimony import Failure
from harness.blame.transforms import find_guilty_transform
from harness.blame.witness import Turn, Witness
from harness.blame.witnesses import witnesses_of
from harness.blame.witnesses.emission import REJECTED_NODE, UNFOLDABLE_NODE
from harness.blame.witnesses.passes import BROKEN_EXPORT, ask_runtime_passes
from harness.blame.witnesses.pytorch import repeat_call
from harness.blame.witnesses.runtimes import ask_without_optimisations
from harness.compare.diagnosis import (
    CALL_ALONE,
    COMPOSED,
    DIVERGENCE,
    NO_DIVERGENCE,
    OTHERWISE,
    Diagnosis,
    Finding,
    Role,
    Testimony,
)
from harness.compare.drawn import draws
from harness.compare.verdict import BACKEND, CONVERTER, SPEC, UNKNOWN, Outcome, Stage
from harness.core.program import Program, is_composed, is_program
from harness.core.text import one_line
from harness.pipeline.model_oracle import ModelOracle
from harness.pipeline.started_route import StartedRoute
from harness.run.backend import DeviceLost


def examine(context: FailureContext, dead: frozenset[str], announce: Callable[[str], None]) -> Diagnosis:
    """Find the component to blame for a failure.

    `announce` is called with the name of each witness before it is asked; `dead` do not survive that.
    """
    if context.route.transforms and context.failure.stage is not Stage.TRANSFORM:
        announce(_TRANSFORMS)
        before = () if _TRANSFORMS in dead else find_guilty_transform(context)
        if before:
            return decide_transform(_examined(context.after_transform(), dead, announce), before)
        context = context.without_transforms()
    if is_program(context.invocation) and _ALIASES not in dead:
        announce(_ALIASES)
        alias = find_lost_alias(context)
        if alias is not None:
            facts = {"converter": context.failure.converter, "backend": context.failure.backend, **alias.facts}
            composed = {COMPOSED: len(Program.of(context.invocation).calls), OTHERWISE: 0}
            return Diagnosis(CONVERTER, LOSES_ALIAS, {**facts, **composed}, (alias,))
    if is_program(context.invocation) and _CALLS not in dead:
        announce(_CALLS)
        alone = run_calls_alone(context)
        if alone.failing is not None:
            invocation = alone.failing.invocation
            decision = examine(alone.failing, dead, announce)
            facts = {**decision.facts, CALL_ALONE: invocation.overload}
            return replace(decision, call=invocation.json, facts=facts)
        decision = _examined(context, dead, announce)
        composed = {COMPOSED: len(Program.of(context.invocation).calls), OTHERWISE: alone.otherwise}
        return replace(decision, facts={**decision.facts, **composed})
    if context.python_model and context.failure.outcome is Outcome.MISMATCH and _DIVERGENCE not in dead:
        announce(_DIVERGENCE)
        return _examined_model(context, dead, announce)
    decision = _examined(context, dead, announce)
    if decision.rule == WRONG_NODE and context.rest is not None:
        # Its definition leaves elements wrong: they have another cause. The cause of most comes first.
        rest = _examined(context.rest, dead, announce)
        return replace(decision, rest=rest) if context.explains_most else replace(rest, rest=decision)
    return decision


def _examined_model(context: FailureContext, dead: frozenset[str], announce: Callable[[str], None]) -> Diagnosis:
    """Diagnose a model's wrong result: blame the call at which it begins, if the call is wrong by itself."""
    facts: dict[str, Any] = {}
    converter = context.converter(context.failure.converter)
    try:
        assert isinstance(context.reference, ModelOracle)
        found = find_first_divergence(context.reference, StartedRoute(context.route, converter, context.accused))
        facts[DIVERGENCE] = found.to_data()
        alone = departing_call_alone(context, found)
        if alone is not None:
            decision = examine(alone, dead, announce)
            call = alone.invocation
            return replace(decision, call=call.json, facts={**decision.facts, **facts, CALL_ALONE: call.overload})
    except NoValues as problem:
        facts[NO_DIVERGENCE] = str(problem)
    decision = _examined(context, dead, announce)
    return replace(decision, facts={**decision.facts, **facts})


def _examined(context: FailureContext, dead: frozenset[str], announce: Callable[[str], None]) -> Diagnosis:
    """Diagnose a call, or a program as a whole."""
    failure = context.failure
    known = decide_directly(failure.result, failure.route)
    if known is not None:
        # The failures that never reach a runtime.
        emitter = {Stage.CHECK: [REJECTED_NODE], Stage.CONVERT: [UNFOLDABLE_NODE]}.get(failure.stage, [])
        asked = [BROKEN_EXPORT, *emitter]
        statements = tuple(_hear(asked, context, dead, announce))
        is_optimisers = any(t.finding is Finding.RIGHT for t in statements)
        return replace(known, rule=OPTIMISED if is_optimisers else known.rule, testimony=statements)
    if failure.result.blame == SPEC:
        # The elements are open: only the runtime itself can contradict them.
        return _decided(failure, [*_hear([ask_without_optimisations, ask_runtime_passes], context, dead, announce)])
    announce(_AGAIN)
    if _AGAIN in dead:
        return Diagnosis(UNKNOWN, "crashes-when-repeated")
    heard: list[Testimony] = []
    if _passes_alone(context):
        if draws(context.judge):
            return Diagnosis(UNKNOWN, "drawn-at-random")
        alone = {"backend": failure.backend}
        heard += _hear([repeat_call], context, dead, announce)
        return _decided(failure, [*heard, Testimony(Role.ALONE, Finding.RIGHT, "alone", alone)])
    for turn in Turn:
        asked = [w for w in witnesses_of(context.settings) if w.turn is turn]
        blame = _decided(failure, heard).blame
        if turn is Turn.FIRST or blame == UNKNOWN or (turn is Turn.GRAPH and blame != BACKEND):
            heard += _hear(asked, context, dead, announce)
    if any(t.role is Role.PROGRAM and t.finding is Finding.SAME for t in heard):
        # The program is wrong before any conversion function sees it.
        heard = [t for t in heard if t.role is not Role.EMISSION]
    return _decided(failure, heard)


def _decided(failure: Failure, heard: Sequence[Testimony]) -> Diagnosis:
    composed = is_composed(dict(failure.group.cases)[failure.case].overload)
    return decide(failure.outcome, heard, converter=failure.converter, backend=failure.backend, is_composed=composed)


#: Stands for the model before each of the route's transforms.
_TRANSFORMS = "the model before its transforms"
#: Stands for the calls of a program, run by themselves.
_CALLS = "the calls alone"
_ALIASES = "copies in place of views"
#: Stands for the search for the first value of a model that departs from PyTorch's.
_DIVERGENCE = "the first divergence"
#: Stands for the failing backend itself, which is run again.
_AGAIN = "the failing backend again"


def _passes_alone(context: FailureContext) -> bool:
    if context.failure.outcome is Outcome.UNSUPPORTED:
        return False
    return context.comparison is not None and context.comparison.problem is None


def _hear(
    asked: Iterable[Witness], context: FailureContext, dead: frozenset[str], announce: Callable[[str], None]
) -> Iterable[Testimony]:
    for witness in asked:
        # "One call" is one of PyTorch's: a node of ONNX is none.
        is_call = context.has_program and not context.is_composed
        if (witness.of_one_call and not is_call) or not (context.is_onnx or witness.of_any_artefact):
            continue
        if (context.is_transformed or not context.has_program) and witness.of_pytorch:
            # No converter has made this graph.
            continue
        if witness.name in dead:
            yield Testimony(Role.RUNTIME, Finding.DIED, "witness-died", {"witness": witness.name})
            continue
        announce(witness.name)
        try:
            yield from list(witness.testify(context))
        except DeviceLost:
            raise
        except Exception as error:
            facts = {"witness": witness.name, "error": f"{type(error).__name__}: {one_line(error)}"[:200]}
            yield Testimony(Role.ABSENT, Finding.RAISED, "witness-raised", facts)
