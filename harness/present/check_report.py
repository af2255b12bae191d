"""The check of a model, as a report and as JSON: one screen says whether it survives, where it breaks, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from harness.causes.cause import root_cause
from harness.compare.diagnosis import Diagnosis
from harness.compare.signatures import informative_line
from harness.compare.verdict import TRANSFORM, Outcome, Stage, Verdict
from harness.convert.exporter_messages import raising_line
from harness.core.invocation import Invocation
from harness.core.route import FILE
from harness.core.text import count
from harness.models.capture import BRANCH, CAUSAL_MASK
from harness.models.check import ModelCheck, RouteCheck
from harness.models.preprocessing import PreprocessingFound
from harness.pipeline.model_oracle import RANDOM
from harness.pipeline.model_task import FixedSize, ModelRun, NodesJudged, Traced
from harness.pipeline.quantised import WITHIN_STEPS
from harness.present.accuracy_text import accuracy_text, range_loss_text
from harness.present.evidence import evidence, evidence_of_row, fault_text, place_text
from harness.present.model_run_text import divergence_sentence
from harness.present.preprocessing_text import preprocessing_lines
from harness.present.report import Note, Report, Row, Section

#: Calls that fail alone, of one way, that are shown.
_MOST_CALLS = 8


def check_report(found: ModelCheck, options: str = "", prepared: PreprocessingFound | None = None) -> Report:
    """Return the report of a check.

    Args:
        found: The results.
        options: Further options of the check, for the command that comes next.
        prepared: The comparison of two preprocessing functions; None if there is none.
    """
    failing = [way for way in found.ways if way.failure is not None]
    note = _headline(found, failing)
    lines = () if prepared is None else preprocessing_lines(prepared)
    sections = [Section(title="What goes in", rows=tuple(Row("preprocessing", line) for line in lines), noun="file")]
    sections += [Section(title="Routes", rows=tuple(map(_way_row, found.ways)), noun="route")]
    fixed = {size.name: size for way in found.ways for size in way.fixed_sizes}
    sections.append(Section(title="Sizes", rows=tuple(map(_fixed_row, fixed.values())), noun="size"))
    causes = _Causes(failing)
    if failing:
        sections.append(Section(title="Why", rows=tuple(causes.rows()), noun="cause"))
        sections.append(Section(title="How much", rows=tuple(_error_rows(failing)), noun="output"))
        sections.append(Section(title="What PyTorch asks for", rows=tuple(_asked_rows(failing)), noun="change"))
        sections.append(Section(title="What helps, tried", rows=tuple(_remedy_rows(found)), noun="change"))
    if found.state:
        sections.append(Section(title="State", rows=tuple(_state_rows(found)), noun="change"))
    return Report(
        title=found.name,
        before=(note,),
        sections=tuple(section for section in sections if section.rows),
        after=tuple(_next_steps(found, failing, options)),
    )


def _headline(found: ModelCheck, failing: Sequence[RouteCheck]) -> Note:
    idle = [way for way in found.ways if way.failure is None and not way.is_compared]
    if found.survives:
        return Note("survives", "green")
    if failing:
        of_all = f" on {len(failing)} of {count(len(found.ways), 'route')}" if len(found.ways) > 1 else ""
        more = f"; nothing was compared on {len(idle)}" if idle else ""
        return Note(f"fails{of_all}{more}", "red")
    if idle:
        of_all = f" on {len(idle)} of {count(len(found.ways), 'route')}" if len(found.ways) > 1 else ""
        return Note(f"unknown: nothing was compared{of_all}", "yellow")
    return Note("gives the right results, but loses the state that it keeps between calls", "yellow")


def way_name(way: RouteCheck) -> str:
    """Return ``dynamo → ort-cpu, dynamic, float16``."""
    dtype = f", {way.dtype}" if way.dtype else ""
    noise = ", noise as an input" if way.noise else ""
    return f"{way.route}, {way.route.shape_mode}{dtype}{noise}"


def _way_row(way: RouteCheck) -> Row:
    failure = way.failure
    if failure is not None:
        run = ModelRun.from_text(failure.model_run)
        inputs = f" with {run.change}" if run.change else ""
        passed = sum(o.outcome is Outcome.PASS for o in way.outcomes)
        of_all = f"; {passed} of {len(way.outcomes)} runs are right" if passed else ""
        # The fixed value is more informative than the failure that follows from it.
        message = informative_line(failure.message) if run.traced is None else failure.signature
        return Row(way_name(way), f"{failure.outcome} at {failure.stage}{inputs}{of_all}: {message}")
    outcomes = {o.outcome for o in way.outcomes}
    if outcomes and outcomes <= {Outcome.PASS, Outcome.INACCURATE}:
        growths = [ModelRun.from_text(o.model_run).growth for o in way.outcomes]
        errors = [growth.error for growth in growths if growth is not None]
        largest = f"; largest error {max(errors):.1e} of the largest element" if errors else ""
        steps = f", {WITHIN_STEPS}" if any(WITHIN_STEPS in o.excused for o in way.outcomes) else ""
        inexact = sum(o.outcome is Outcome.INACCURATE for o in way.outcomes)
        formula = f", {inexact} as exact as the operators' formulas but less exact than PyTorch" if inexact else ""
        random = f"; an output is {RANDOM}" if any(RANDOM in o.excused for o in way.outcomes) else ""
        cost = accuracy_text(way.accuracies) or largest
        return Row(way_name(way), f"survives, {count(len(way.outcomes), 'run')}{formula}{steps}{cost}{random}")
    if way.is_compared:
        return Row(way_name(way), ", ".join(sorted(map(str, outcomes))))
    return Row(way_name(way), f"nothing was compared: {_prevented(way)}")


def _prevented(way: RouteCheck) -> str:
    """Return the reason why no result of a way was compared."""
    verdict = way.outcomes[0]
    if verdict.outcome is Outcome.BUILT:
        return f"{way.route.backend} was built and cannot run here"
    return informative_line(verdict.message) or str(verdict.outcome)


class _Causes:
    """Causes of the failing ways: each cause once, with the ways that it breaks."""

    def __init__(self, failing: Sequence[RouteCheck]) -> None:
        self._failing = failing
        self._ways: dict[tuple[str, str], list[RouteCheck]] = {}
        self._rows: dict[tuple[str, str], Row] = {}

    def rows(self) -> Iterator[Row]:
        """Yield the causes in the order of the ways, and for each way the broadest first."""
        for way in self._failing:
            for row in _cause_rows(way):
                key = row.where, row.what
                self._ways.setdefault(key, []).append(way)
                self._rows.setdefault(key, row)
        for key, row in self._rows.items():
            ways = self._ways[key]
            where = "" if len(ways) == len(self._failing) else f" ({'; '.join(map(way_name, ways))})"
            yield replace(row, what=f"{row.what}{where}")


def _cause_rows(way: RouteCheck) -> Iterator[Row]:
    """Yield the causes of one way's failure, the broadest first; the whole model if no smaller cause is known."""
    failure, divergence = way.failure, way.divergence
    assert failure is not None
    if any(remedy.kind == "example" and remedy.helps for remedy in way.remedies):
        # All other failures follow from this one.
        yield Row(
            "the example", "torch.export fixes an open size whose example is 1, so that the export is right for 1"
        )
        return
    rows = [_call_row(verdict) for verdict in way.guilty_calls[:_MOST_CALLS]]
    if divergence is not None and divergence["kind"] == "operator":
        where = f" in {divergence['module']}" if divergence["module"] else ""
        node = f", ONNX node {divergence['onnx_node']}" if divergence["onnx_node"] else ""
        words = f"{divergence['operator']}{where}{node}: {divergence['detail'].splitlines()[0]}"
        rows.append(Row("first wrong value", words))
    if way.optimiser.owner:
        rows.append(_optimiser_row(way))
    if failure.stage is Stage.CONVERT and not rows:
        rows += [_foreign_row(overload, way.route.export) for overload in way.foreign]
    traced = ModelRun.from_text(failure.model_run).traced
    if traced is not None:
        rows.append(_traced_row(way, traced))
    if not rows:
        message = failure.message
        refused = failure.outcome is not Outcome.MISMATCH
        words = informative_line(message) if refused else failure.signature
        line = raising_line(message)
        blame = _owner(way)
        rows.append(
            Row(
                "the whole file" if way.route.converter == FILE else "the whole model",
                words,
                f"{blame}{f'at {line}' if line else _nothing_alone(way)}",
            )
        )
    yield from rows
    yield from (Row("note", note) for note in way.notes)


def _traced_row(way: RouteCheck, traced: Traced) -> Row:
    if traced.what != "sizes":
        return Row("the export", "right for the example's path only", traced.evidence)
    if not traced.fixed:
        return Row("the export", "right for the example's sizes only", traced.evidence)
    owner = "torch.export" if way.captures else way.route.export
    sizes = ", ".join(f"dimension {dim} of {name}" for name, dim in traced.fixed)
    blame = f"blame: {'PyTorch' if way.captures else way.route.export}. "
    return Row("the export", f"{owner} fixes {sizes} at the example's size", f"{blame}{traced.evidence}")


def _foreign_row(overload: str, converter: str) -> Row:
    namespace, packet, _ = overload.split(".")
    what = f"{converter} has no conversion of it unless you give one"
    rule = f'a function under @{converter}("{namespace}::{packet}") in a file that --rules names'
    return Row(f"{overload}, an operator of another library", what, rule)


def _owner(way: RouteCheck) -> str:
    """Return the component to blame for the failure of a whole model, and the evidence; only this if none is."""
    blame = f"blame: {_component(way.owner, way)}. " if way.owner else ""
    if way.owner == "pytorch":
        return f"{blame}torch.export, which the converter begins with, fails on the model. "
    diagnosis = Diagnosis.from_row(vars(way.failure)) if way.failure is not None else None
    return f"{blame}{evidence(diagnosis)} " if diagnosis is not None else blame


def _component(blame: str, way: RouteCheck | Verdict) -> str:
    """Return the name of the component to blame."""
    verdict = way.failure if isinstance(way, RouteCheck) else way
    if blame == TRANSFORM and verdict is not None:
        return f"the transform {verdict.place}"
    converter = way.route.export if isinstance(way, RouteCheck) else way.converter
    backend = way.route.backend if isinstance(way, RouteCheck) else way.backend
    return {"converter": converter, "backend": backend, "pytorch": "PyTorch"}.get(blame, blame)


def _error_rows(failing: Sequence[RouteCheck]) -> Iterator[Row]:
    """Yield the errors of the outputs in each way's worst run."""
    for way in failing:
        errors = [ModelRun.from_text(o.model_run).output_errors for o in way.outcomes]
        worst = max(filter(None, errors), key=lambda outputs: max(e.error / e.allowed for e in outputs), default=())
        for error in worst:
            if error.error > error.allowed:
                off = "has NaN or infinities elsewhere" if math.isinf(error.error) else f"off by {error.error:.2g}"
                by = "" if math.isinf(error.error) else f", {error.error / error.allowed:,.0f} times the tolerance"
                of = f" (largest element {error.largest:.3g}, tolerance {error.allowed:.2g}{by})"
                yield Row(f"output {error.output}, {error.form}", f"{off}{of}", way_name(way))


#: The option for each kind of change.
_CHANGES = {
    "converter": "--converter {}",
    "opset": "--opset {}",
    "backend": "--backend {}",
    "dtype": "in {}",
    "example": "with an example of {}",
}


#: Obstacle of a capture → what to write, and why.
_ASKED = {
    BRANCH: (
        "torch.cond(condition, if_true, if_false, operands) or torch.where(condition, a, b)",
        "a branch depends on the data, and an export can take one path only",
    ),
    CAUSAL_MASK: (
        "tgt_is_causal=True or False (is_causal= of an encoder) beside the mask",
        "without it PyTorch's layer branches on whether the mask is causal, which an export cannot know",
    ),
}


def _asked_rows(failing: Sequence[RouteCheck]) -> Iterator[Row]:
    """Yield PyTorch's own remedy for a model that `torch.export` cannot capture."""
    for obstacle in dict.fromkeys(way.obstacle for way in failing if way.obstacle and way.captures):
        line = next((raising_line(w.failure.message) for w in failing if w.obstacle == obstacle and w.failure), "")
        what, why = _ASKED[obstacle]
        yield Row(what, why, f"at {line}" if line else "")


def _remedy_rows(found: ModelCheck) -> Iterator[Row]:
    """Yield the changes that make a failing way right, or those that were tried in vain."""
    for way in found.ways:
        helpful = [remedy for remedy in way.remedies if remedy.helps]
        others = [_CHANGES[r.kind].format(r.value) for r in way.remedies if not r.helps]
        for remedy in helpful:
            yield Row(_CHANGES[remedy.kind].format(remedy.value), "every run is right", way_name(way))
        if others and not helpful:
            yield Row("nothing that was tried", ", ".join(others), way_name(way))


def _call_row(verdict: Verdict) -> Row:
    call = Invocation.from_json(verdict.invocation)
    row = {**vars(verdict), "stage": verdict.stage, "outcome": verdict.outcome}
    cause = root_cause(row)
    sizes = ", exported at other sizes" if verdict.exported_invocation else ""
    ending = "wrong result" if verdict.outcome is Outcome.MISMATCH else f"{verdict.outcome} at {verdict.stage}"
    what = f"{ending} on its own{sizes}. {place_text(cause)} {fault_text(cause)}"
    return Row(str(call), what, f"blame: {_component(verdict.blame, verdict)}. {evidence_of_row(row)}")


def _optimiser_row(way: RouteCheck) -> Row:
    if way.optimiser.owner == "runtime":
        return _pass_row(way.route.backend, way.optimiser.passes)
    passes = way.optimiser.passes
    named = f"the result is right until it applies {passes[0]}" if passes else "without it the result is right"
    return Row(f"the optimiser of {way.route.export}", named, "export with optimize=False")


def _pass_row(backend: str, passes: Sequence[str]) -> Row:
    """Return the row about the optimisations without which a runtime is right."""
    where = f"the optimiser of {backend}"
    if not passes:
        return Row(where, "without its optimisations the result is right", "load it with graph optimisations off")
    options = f"InferenceSession(..., disabled_optimizers={list(passes)})"
    return Row(where, f"without {' and '.join(passes)} the result is right", options)


def _nothing_alone(way: RouteCheck) -> str:
    if way.divergence is not None:
        return divergence_sentence(way.divergence)
    if not way.calls_made or (way.failure and way.failure.stage is Stage.CONVERT):
        return ""
    return (
        f"Each of the {count(way.calls_made, 'call')} that {'was' if way.calls_made == 1 else 'were'} run alone passes."
    )


def _state_rows(found: ModelCheck) -> Iterator[Row]:
    state = found.state
    for name in state.names:
        yield Row(name, "a call changes it; an exported graph does not keep the change for the next call")
    for name in state.inputs:
        yield Row(name, "a call writes into this input; an exported graph does not")
    if state.changes_result:
        yield Row("second call", "the same inputs give another result than in the first call")


def _next_steps(found: ModelCheck, failing: list[RouteCheck], options: str) -> Iterator[Note]:
    for why in found.left_out:
        yield Note(f"not tried alone: {why}")
    if found.trains:
        yield Note(
            f"{found.name} was given in training mode, where it gives another result. It was checked in evaluation "
            "mode, since exports are for inference: call .eval() on it to say so"
        )
    yield from map(Note, found.notes)
    for way in found.ways:
        if way.range_loss is not None:
            text = range_loss_text(way.range_loss, way.route.backend, survives=way.survives)
            yield Note(f"{way_name(way)}: {text}", "yellow")
    yield from (_nodes_note(way, way.nodes) for way in found.ways if way.nodes is not None)
    if failing and failing[0].invalid_node is None:
        yield Note(f"next: conformance repro {found.word}{_way_options(failing[0])}{options}")


def _way_options(way: RouteCheck) -> str:
    """Return the options that ask for a way, as far as they are not the default ones."""
    converter = "" if way.route.export in ("dynamo", FILE) else f" --converter {way.route.export}"
    backend = "" if way.route.backend == "ort-cpu" else f" --backend {way.route.backend}"
    return f"{converter}{backend}{f' --also {way.dtype}' if way.dtype else ''}"


def _fixed_row(fixed: FixedSize) -> Row:
    by = f" by {' or '.join(fixed.by)}" if fixed.by else ""
    return Row(fixed.name, f"declared open, and fixed at {fixed.size}{by}")


def _nodes_note(way: RouteCheck, nodes: NodesJudged) -> Note:
    wrong = f", {nodes.wrong} of them wrong" if nodes.wrong else ""
    of = count(nodes.nodes, "node")
    unjudged = "; not compared: " + "; ".join(_unjudged_groups(nodes)) if nodes.unjudged else ""
    return Note(f"{way.route.backend}: {nodes.judged} of {of} compared with their definitions{wrong}{unjudged}")


_WHY_UNJUDGED = {
    "too-large": "more elements than are evaluated",
    "not-reached": "behind a node whose result is unknown",
    "another-version": "no evaluator has the operator's meaning at this opset",
    "no-definition": "there is no definition of it here",
    "evaluator-fails": "its definition cannot be evaluated",
    "another-form": "onnx's evaluator and shape inference disagree",
    "too-many-numbers": "too many numbers to rank",
}
#: Unjudged nodes of one operator that are named.
_MOST_NAMED = 3


def _unjudged_groups(nodes: NodesJudged) -> Iterator[str]:
    """Yield ``2 MatMulNBits (qkv, out): its definition cannot be evaluated (…)`` for each operator and reason."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for node in nodes.unjudged:
        groups.setdefault((node.operator, node.why, node.detail), []).append(node.name)
    for (operator, why, detail), names in groups.items():
        more = ", …" if len(names) > _MOST_NAMED else ""
        what = f" ({detail})" if detail else ""
        yield f"{len(names)} {operator} ({', '.join(names[:_MOST_NAMED])}{more}): {_WHY_UNJUDGED[why]}{what}"


def check_data(found: ModelCheck, prepared: PreprocessingFound | None = None) -> dict[str, Any]:
    """Return a check as JSON data."""
    return {
        "model": found.name,
        "word": found.word,
        "survives": found.survives,
        "preprocessing": asdict(prepared) if prepared is not None else None,
        "left_out": list(found.left_out),
        "notes": list(found.notes),
        "given_in_training_mode": found.trains,
        "state": {
            "changed": list(found.state.names),
            "inputs_written": list(found.state.inputs),
            "second_call_differs": found.state.changes_result,
        },
        "ways": [_way_data(way) for way in found.ways],
    }


def _divergence_data(data: Mapping[str, Any]) -> dict[str, Any]:
    return {**data, "verdict": divergence_sentence(data)}


def _run_data(verdict: Verdict) -> dict[str, Any]:
    run = ModelRun.from_text(verdict.model_run)
    return {
        "change": run.change,
        "stage": str(verdict.stage),
        "outcome": str(verdict.outcome),
        "message": verdict.message,
        "excused": verdict.excused,
        "error": run.growth.error if run.growth else None,
        "traced": run.traced.what if run.traced else None,
        "fixed": [list(place) for place in run.traced.fixed] if run.traced else [],
        "outputs": [asdict(error) for error in run.output_errors],
    }


def _way_data(way: RouteCheck) -> dict[str, Any]:
    divergence = way.divergence
    return {
        "converter": way.route.export,
        "backend": way.route.backend,
        "shapes": way.route.shape_mode,
        "dtype": way.dtype or None,
        "noise_as_input": way.noise,
        "survives": way.survives,
        "compared": way.is_compared,
        "runs": [_run_data(o) for o in way.outcomes],
        "first_wrong_value": _divergence_data(divergence) if divergence is not None else None,
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
            for v in way.guilty_calls
        ],
        "remedies": [asdict(remedy) for remedy in way.remedies],
        "owner": way.owner,
        "obstacle": way.obstacle,
        "cause": _cause_data(way),
        "optimiser": {"owner": way.optimiser.owner, "passes": list(way.optimiser.passes)},
        "notes": list(way.notes),
        "fixed_sizes": [asdict(size) for size in way.fixed_sizes],
        "accuracy": [{"inputs": inputs, **asdict(accuracy)} for inputs, accuracy in way.accuracies],
        "range_loss": asdict(way.range_loss) if way.range_loss is not None else None,
        "nodes": asdict(way.nodes) if way.nodes is not None else None,
    }


def _cause_data(way: RouteCheck) -> dict[str, Any] | None:
    diagnosis = Diagnosis.from_row(vars(way.failure)) if way.failure is not None else None
    if diagnosis is None:
        return None
    return {
        "component": diagnosis.component,
        "place": diagnosis.place,
        "fault": diagnosis.fault,
        "symptom": diagnosis.detail.symptom,
        "rule": diagnosis.rule,
        "evidence": evidence(diagnosis),
        "node": next((dict(t.facts) for t in diagnosis.testimony if "node" in t.facts), None),
    }
