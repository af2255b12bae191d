"""What became of a model, as a report and as JSON: one screen says whether it survives, where it breaks, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.compare.verdict import Outcome, Verdict
from harness.core.documents import count, plain
from harness.core.invocation import Invocation
from harness.models.check import ModelCheck, Way
from harness.present.evidence import evidence_of_row
from harness.present.report import Note, Report, Row, Section

#: Calls that fail alone, of one way, that are shown.
_MOST_CALLS = 8


def check_report(found: ModelCheck) -> Report:
    """The report of a check."""
    failing = [way for way in found.ways if way.failure is not None]
    verdict = "survives" if found.survives else "does not survive"
    if found.survives:
        note = Note(f"{verdict} {_ways(len(found.ways))}", "green")
    elif not failing:
        note = Note("gives the right results, but forgets what it keeps between calls", "yellow")
    else:
        note = Note(f"{verdict} {len(failing)} of {_ways(len(found.ways))}", "red")
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
        return Row(way_name(way), f"survives, {count(len(way.outcomes), 'run')}{largest}")
    return Row(way_name(way), ", ".join(sorted(map(str, outcomes))))


def _why(way: Way) -> Iterator[Section]:
    """Where one way breaks, and whose fault that is."""
    failure, divergence = way.failure, way.divergence
    assert failure is not None
    rows = []
    if failure.traced is not None:
        rows.append(Row("tracing", f"{failure.traced.what} is specialised to the example", failure.traced.evidence))
    if divergence is not None and divergence.kind == "operator":
        where = f" in {divergence.module}" if divergence.module else ""
        node = f", ONNX node {divergence.onnx_node}" if divergence.onnx_node else ""
        rows.append(
            Row("first wrong value", f"{divergence.operator}{where}{node}: {divergence.detail.splitlines()[0]}")
        )
    rows += [_call_row(verdict) for verdict in way.calls[:_MOST_CALLS]]
    if way.optimiser.owner:
        rows.append(_optimiser_row(way))
    if not rows:
        rows.append(Row("the whole model", plain(failure.verdict.message, 400), _nothing_alone(way)))
    rows += [Row("not known", note) for note in way.notes]
    yield Section(title=f"Why: {way_name(way)}", rows=tuple(rows), noun="cause")


def _call_row(verdict: Verdict) -> Row:
    call = Invocation.from_json(verdict.invocation)
    blame = {"converter": verdict.converter, "backend": verdict.backend}.get(verdict.blame, verdict.blame)
    place = f": {verdict.component}, {verdict.place}" if verdict.place else ""
    why = f"blame: {blame or 'unknown'}{place}. {evidence_of_row(vars(verdict))}"
    return Row(f"{call} fails alone", f"{verdict.outcome} at {verdict.stage}: {verdict.signature}", why)


def _optimiser_row(way: Way) -> Row:
    passes = way.optimiser.passes
    named = f"without {' and '.join(passes)} the result is right" if passes else "without it the result is right"
    if way.optimiser.owner == "exporter":
        return Row(f"the optimiser of {way.converter}", named, "export with optimize=False, or leave out these passes")
    if not passes:
        return Row(f"the optimiser of {way.backend}", named, "load it with graph optimisations off")
    options = f"InferenceSession(..., disabled_optimizers={list(passes)})"
    return Row(f"the optimiser of {way.backend}", named, options)


def _nothing_alone(way: Way) -> str:
    if way.divergence is not None:
        return way.divergence.verdict
    return "each of its calls passes alone" if not way.calls else ""


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
    if any(way.calls for way in failing):
        backend, converter = failing[0].backend, failing[0].converter
        file = f"{found.name}.jsonl"
        yield Note(
            f"next: conformance capture {found.word} --out {file} && pytest harness --source corpus:{file} "
            f"--converter {converter} --backend {backend}"
        )


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
