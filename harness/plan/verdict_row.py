"""A worker's result as a row of the record: with what the session knows of who took part."""

from __future__ import annotations

from harness.blame import signature
from harness.compare import CaseProblem, Diagnosis, Verdict, problems_text
from harness.core import Invocation
from harness.execute import Result, Supervisor
from harness.generate import call_traits


def verdict_of(
    result: Result,
    invocation: Invocation,
    exported: Invocation,
    supervisor: Supervisor,
    *,
    source: str,
    family: str,
    shape_mode: str,
    converter: str,
    converter_version: str,
) -> Verdict:
    """The verdict on one case with one backend, whose version and device the supervisor knows.

    `family` is the operator case's, "" where there is none; `shape_mode` is ``static`` or ``dynamic``.
    """
    backend = supervisor.backends.get(result.backend)
    comparison, traits = result.comparison, call_traits(invocation)
    return Verdict(
        case_id=invocation.case_id,
        overload=invocation.overload,
        family=family,
        dtype=invocation.dtype,
        shape_mode=shape_mode,
        source=source,
        converter=converter,
        converter_version=converter_version,
        opset=result.opset,
        backend=result.backend,
        backend_version=backend.version if backend else "",
        device=backend.device if backend else "",
        stage=result.stage,
        outcome=result.outcome,
        blame=result.blame,
        signature=signature(result),
        message=result.message,
        rule=result.rule,
        max_abs_error=comparison.max_abs_error if comparison else None,
        max_rel_error=comparison.max_rel_error if comparison else None,
        max_ulp_error=comparison.max_ulp_error if comparison else None,
        needed_rtol=comparison.needed_rtol if comparison else None,
        needed_atol=comparison.needed_atol if comparison else None,
        mismatched_elements=comparison.mismatched_elements if comparison else 0,
        total_elements=comparison.total_elements if comparison else 0,
        convert_ms=result.convert_ms,
        load_ms=result.load_ms,
        run_ms=result.run_ms,
        placement=result.placement,
        excused=comparison.excuses if comparison else "",
        problems=problems_text([_problem(one) for one in (result, *result.further)]),
        **_columns(result.diagnosis),
        ordinary=traits.ordinary,
        elements=traits.elements,
        conditions=traits.text,
        structure_id=invocation.structure_id,
        exported_id=exported.case_id,
        invocation=invocation.json,
        exported_invocation="" if shape_mode == "static" else exported.json,
    )


def _problem(result: Result) -> CaseProblem:
    return CaseProblem(
        stage=str(result.stage),
        outcome=str(result.outcome),
        signature=signature(result),
        message=result.message,
        blame=result.blame,
        **_columns(result.diagnosis),
    )


def _columns(diagnosis: Diagnosis | None) -> dict[str, str]:
    """The columns that say what a diagnosis says."""
    if diagnosis is None:
        return {}
    return {
        "blame_rule": diagnosis.rule,
        "component": diagnosis.component,
        "place": diagnosis.place,
        "fault": diagnosis.fault,
        "detail": diagnosis.detail.text,
        "diagnosis": diagnosis.json,
    }
