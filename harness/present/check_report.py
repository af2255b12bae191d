"""What became of a model, as a report and as JSON: one screen says whether it survives, where it breaks, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from harness.causes.cause import root_cause
from harness.compare.signatures import informative_line
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.exporter_messages import raising_line
from harness.core.documents import count
from harness.core.invocation import Invocation
from harness.execute.models.quantised import WITHIN_STEPS
from harness.models.check import ModelCheck, Way
from harness.models.onnx_check import OnnxCheck, OnnxRun
from harness.present.evidence import evidence_of_row, fault_text, invalid_text, node_text, place_text
from harness.present.report import Note, Report, Row, Section

#: Calls that fail alone, of one way, that are shown.
_MOST_CALLS = 8


def check_report(found: ModelCheck) -> Report:
    """The report of a check."""
    failing = [way for way in found.ways if way.failure is not None]
    verdict = "survives" if found.survives else "does not survive"
    if found.survives:
        note = Note(verdict, "green")
    elif not failing:
        note = Note("gives the right results, but forgets what it keeps between calls", "yellow")
    else:
        of_all = f" {len(failing)} of {_ways(len(found.ways))}" if len(found.ways) > 1 else ""
        note = Note(f"{verdict}{of_all}", "red")
    sections = [Section(title="Ways", rows=tuple(map(_way_row, found.ways)), noun="way")]
    sections += [section for way in failing for section in _why(way)]
    if found.state:
        sections.append(Section(title="State", rows=tuple(_state_rows(found)), noun="change"))
    return Report(
        title=found.name,
        before=(note,),
        sections=tuple(sections),
        after=tuple(_next_steps(found, failing)),
    )


def _ways(number: int) -> str:
    return count(number, "way")


def way_name(way: Way) -> str:
    """``dynamo → ort-cpu, dynamic, float16``."""
    dtype = f", {way.dtype}" if way.dtype else ""
    return f"{way.converter} → {way.backend}, {way.shape_mode}{dtype}"


def _way_row(way: Way) -> Row:
    failure = way.failure
    if failure is not None:
        verdict = failure.verdict
        inputs = f" with {failure.case.change}" if failure.case.change else ""
        passed = sum(o.verdict.outcome is Outcome.PASS for o in way.outcomes)
        of_all = f"; {passed} of {len(way.outcomes)} runs are right" if passed else ""
        return Row(way_name(way), f"{verdict.outcome} at {verdict.stage}{inputs}{of_all}")
    outcomes = {o.verdict.outcome for o in way.outcomes}
    if outcomes == {Outcome.PASS}:
        errors = [o.growth.error for o in way.outcomes if o.growth is not None]
        largest = f"; largest error {max(errors):.1e} of the largest element" if errors else ""
        steps = f", {WITHIN_STEPS}" if any(WITHIN_STEPS in o.verdict.excused for o in way.outcomes) else ""
        return Row(way_name(way), f"survives, {count(len(way.outcomes), 'run')}{steps}{largest}")
    return Row(way_name(way), ", ".join(sorted(map(str, outcomes))))


def _why(way: Way) -> Iterator[Section]:
    """Where one way breaks, and whose fault that is."""
    failure, divergence = way.failure, way.divergence
    assert failure is not None
    rows = []
    if failure.traced is not None:
        what = (
            "right at the example's sizes only"
            if failure.traced.what == "sizes"
            else "right for the example's path only"
        )
        rows.append(Row("the export", what, failure.traced.evidence))
    if divergence is not None and divergence.kind == "operator":
        where = f" in {divergence.module}" if divergence.module else ""
        node = f", ONNX node {divergence.onnx_node}" if divergence.onnx_node else ""
        rows.append(
            Row("first wrong value", f"{divergence.operator}{where}{node}: {divergence.detail.splitlines()[0]}")
        )
    # First what ends where the model does.
    calls = sorted(way.calls, key=lambda call: call.stage is not failure.verdict.stage)
    rows += [_call_row(verdict) for verdict in calls[:_MOST_CALLS]]
    if way.optimiser.owner:
        rows.append(_optimiser_row(way))
    if not rows:
        message = failure.verdict.message
        refused = failure.verdict.outcome is not Outcome.MISMATCH
        words = informative_line(message) if refused else failure.verdict.signature
        line = raising_line(message)
        rows.append(Row("the whole model", words, f"at {line}" if line else _nothing_alone(way)))
    rows += [Row("note", note) for note in way.notes]
    yield Section(title=f"Why: {way_name(way)}", rows=tuple(rows), noun="cause")


def _call_row(verdict: Verdict) -> Row:
    call = Invocation.from_json(verdict.invocation)
    row = {**vars(verdict), "stage": verdict.stage, "outcome": verdict.outcome}
    cause = root_cause(row)
    sizes = ", exported at other sizes" if verdict.exported_invocation else ""
    what = f"{verdict.outcome} at {verdict.stage} when it runs alone{sizes}. {place_text(cause)} {fault_text(cause)}"
    blame = {"converter": verdict.converter, "backend": verdict.backend, "pytorch": "PyTorch"}
    return Row(str(call), what, f"blame: {blame.get(verdict.blame, verdict.blame)}. {evidence_of_row(row)}")


def _optimiser_row(way: Way) -> Row:
    if way.optimiser.owner == "runtime":
        return _without(way.backend, way.optimiser.passes)
    passes = way.optimiser.passes
    named = f"without {' and '.join(passes)} the result is right" if passes else "without it the result is right"
    return Row(f"the optimiser of {way.converter}", named, "export with optimize=False, or leave out these passes")


def _without(backend: str, passes: Sequence[str]) -> Row:
    """That a runtime is right without some of its optimisations."""
    where = f"the optimiser of {backend}"
    if not passes:
        return Row(where, "without its optimisations the result is right", "load it with graph optimisations off")
    options = f"InferenceSession(..., disabled_optimizers={list(passes)})"
    return Row(where, f"without {' and '.join(passes)} the result is right", options)


def _nothing_alone(way: Way) -> str:
    if way.divergence is not None:
        return way.divergence.verdict
    return "" if way.failure and way.failure.verdict.stage is Stage.CONVERT else "each of its calls passes alone"


def _state_rows(found: ModelCheck) -> Iterator[Row]:
    state = found.state
    for name in state.names:
        yield Row(name, "a call changes it; an exported graph does not keep the change for the next call")
    for name in state.inputs:
        yield Row(name, "a call writes into this input; an exported graph does not")
    if state.changes_result:
        yield Row("second call", "the same inputs give another result than in the first call")


def _next_steps(found: ModelCheck, failing: list[Way]) -> Iterator[Note]:
    for why in found.left_out:
        yield Note(f"not tried alone: {why}")
    if failing:
        yield Note(f"next: conformance repro {found.word}{_of_way(failing[0])}")


def _of_way(way: Way) -> str:
    """The options that a way is asked for by, where they are not the default ones."""
    converter = "" if way.converter == "dynamo" else f" --converter {way.converter}"
    backend = "" if way.backend == "ort-cpu" else f" --backend {way.backend}"
    return f"{converter}{backend}{f' --also {way.dtype}' if way.dtype else ''}"


def onnx_report(checks: Sequence[OnnxCheck]) -> Report:
    """The report of a check of an ONNX file."""
    survives = all(check.survives for check in checks)
    runs = tuple(Row(check.backend, _run_text(run), run.inputs) for check in checks for run in check.runs)
    sections = [Section(title="Runs", rows=runs, noun="run")]
    for check in checks:
        rows = tuple(_onnx_rows(check))
        if rows:
            sections.append(Section(title=f"Why: {check.backend}", rows=rows, noun="cause"))
    judged = (
        Note(f"{check.backend}: {check.judged} of {count(check.nodes, 'node')} compared with their definitions")
        for check in checks
        if check.nodes
    )
    return Report(
        title=checks[0].path,
        before=(Note("survives" if survives else "does not survive", "green" if survives else "red"),),
        sections=tuple(sections),
        after=(*judged, *(Note(f"next: conformance repro {c.path}{_of_backend(c)}") for c in checks if _is_shown(c))),
    )


def _is_shown(check: OnnxCheck) -> bool:
    return not check.survives and not (check.node is not None and check.node.invalid)


def _of_backend(check: OnnxCheck) -> str:
    return "" if check.backend == "ort-cpu" else f" --backend {check.backend}"


def _run_text(run: OnnxRun) -> str:
    return "runs" if run.outcome == "pass" else f"{run.outcome} at {run.stage}: {run.message}"


def _onnx_rows(check: OnnxCheck) -> Iterator[Row]:
    if check.optimiser:
        yield _without(check.backend, check.passes)
    node = check.node
    if node is None:
        return
    facts = node.facts
    origin = f"; from {node.origin}" if node.origin else ""
    where = f"{node_text(facts['node'])}{f' {node.name!r}' if node.name else ''}{origin}"
    if node.invalid:
        why = invalid_text(node.invalid)
        yield Row(where, node.error or "gives something else than its definition", f"the file is wrong: {why}")
    elif node.error:
        yield Row(where, f"fails by itself: {node.error}", f"blame: {check.backend}; the node is valid")
    else:
        more = f"; {count(check.wrong_nodes - 1, 'more node')} wrong by themselves" if check.wrong_nodes > 1 else ""
        where_wrong = f" at [{','.join(map(str, facts['place']))}]" if facts.get("place") else ""
        what = (
            f"for {', '.join(facts['inputs'])}, its definition gives {facts.get('right', 'more results')}{where_wrong}"
        )
        yield Row(where, f"{what}, {check.backend} gives {facts.get('got', 'others')}{more}", f"blame: {check.backend}")


def onnx_data(checks: Sequence[OnnxCheck]) -> dict[str, Any]:
    """The same as JSON."""
    return {
        "model": checks[0].path,
        "survives": all(check.survives for check in checks),
        "backends": [{**asdict(replace(check, part=None)), "survives": check.survives} for check in checks],
    }


def check_data(found: ModelCheck) -> dict[str, Any]:
    """A check as JSON."""
    return {
        "model": found.name,
        "word": found.word,
        "survives": found.survives,
        "calls": found.calls,
        "left_out": list(found.left_out),
        "state": {
            "changed": list(found.state.names),
            "inputs_written": list(found.state.inputs),
            "second_call_differs": found.state.changes_result,
        },
        "ways": [_way_data(way) for way in found.ways],
    }


def _way_data(way: Way) -> dict[str, Any]:
    divergence = way.divergence
    return {
        "converter": way.converter,
        "backend": way.backend,
        "shapes": way.shape_mode,
        "dtype": way.dtype or None,
        "survives": way.failure is None,
        "runs": [
            {
                "change": o.case.change,
                "stage": str(o.verdict.stage),
                "outcome": str(o.verdict.outcome),
                "message": o.verdict.message,
                "error": o.growth.error if o.growth else None,
                "traced": o.traced.what if o.traced else None,
            }
            for o in way.outcomes
        ],
        "first_wrong_value": divergence.to_data() if divergence is not None else None,
        "calls": [
            {
                "call": str(Invocation.from_json(v.invocation)),
                "case_id": v.case_id,
                "stage": str(v.stage),
                "outcome": str(v.outcome),
                "blame": v.blame,
                "component": v.component,
                "place": v.place,
                "message": v.message,
                "evidence": evidence_of_row(vars(v)),
            }
            for v in way.calls
        ],
        "optimiser": {"owner": way.optimiser.owner, "passes": list(way.optimiser.passes)},
        "notes": list(way.notes),
    }
