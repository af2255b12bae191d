"""Failures that are diagnosed without a witness."""

from __future__ import annotations

from dataclasses import replace

from harness.blame.decide import SPECIALISED, decide_directly
from harness.blame.root_cause import diagnose
from harness.compare.diagnosis import Diagnosis, Finding, Role, Testimony
from harness.compare.verdict import CONVERTER, SPEC, UNKNOWN, Outcome, Stage
from harness.convert.exporter_messages import ends_in_optimiser
from harness.core.invocation import Invocation
from harness.core.program import is_composed
from harness.core.route import Route
from harness.pipeline.case_run import CaseRun


def not_examined(result: CaseRun, invocation: Invocation, route: Route) -> CaseRun:
    """Return a failure with the diagnosis that no witness examined it."""
    decision = decide_at_once(result, route) or Diagnosis(UNKNOWN, "not-examined")
    further = tuple(not_examined(problem, invocation, route) for problem in result.further)
    return add_diagnosis(replace(result, further=further), invocation, route, decision)


def add_diagnosis(result: CaseRun, invocation: Invocation, route: Route, decision: Diagnosis) -> CaseRun:
    """Return a failure with a decision, and the component, place and fault that follow from it."""
    diagnosis = diagnose(result, invocation, route.converter, decision)
    return replace(result, blame=decision.blame, diagnosis=diagnosis)


def decide_at_once(result: CaseRun, route: Route) -> Diagnosis | None:
    """Return the decision on a failure that needs no witness; None if it needs some."""
    if result.blame == SPEC:
        why = result.comparison.unsettled if result.comparison else ""
        left_open = Testimony(Role.SPECIFICATION, Finding.OPEN, "left-open", {"why": why})
        return Diagnosis(SPEC, "left-open", testimony=(left_open,))
    if result.model_run.traced is not None:
        return Diagnosis(CONVERTER, SPECIALISED, {"converter": route.converter, "what": result.model_run.traced.what})
    return decide_directly(result, route)


def may_have_other_culprit(result: CaseRun, invocation: Invocation) -> bool:
    """Whether a failure that is decided at once may be an optimiser's, or that of one of a program's calls."""
    if result.is_of_harness or result.model_run.traced is not None:
        return False
    if result.outcome not in (Outcome.ERROR, Outcome.UNSUPPORTED):
        return False
    if result.stage is Stage.CONVERT:
        return is_composed(invocation.overload) or ends_in_optimiser(result.message)
    return result.stage is Stage.CHECK
