"""Failures as blame records them, and the groups that they make."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from harness_runs import vector
from recorded_rows import row_of

from harness.blame.root_cause import diagnose
from harness.causes.groups import FailureGroup, failure_groups
from harness.compare.diagnosis import Diagnosis, Finding, Role, Testimony
from harness.compare.output_comparison import OutputComparison, OutputProblem
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.pipeline.case_run import CaseRun
from harness.plan.unit import _columns
from harness.present.evidence import fault_text, group_place
from harness.record.parquet import to_table

INVALID = "InferenceError: [ShapeInferenceError] (op_type:{}, node name: n): "
CAST = "X typestr: T, has unsupported type: tensor(int16)"
WRONG: dict[str, Any] = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH}
REJECTED: dict[str, Any] = {"stage": Stage.CHECK, "outcome": Outcome.ERROR}
RUNNING = "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running {}"
_PROBLEM = re.compile(r"([\w ]+): output (\d+)[^:]*: expected (.*), got (.*)")


def failed(
    overload: str,
    message: str,
    converter: str = "torchscript",
    of: Any = None,
    *,
    blame: Any = "converter",
    blame_rule: Any = "graph-asks-otherwise",
    testimony: Any = (),
    function: str = "",
    **changes: Any,
) -> Verdict:
    """A failure of a call with some arguments, diagnosed as blame does it.

    `function` makes what is wrong, as an export has shown.
    """
    if function:
        library = "torchlib" if converter == "dynamo" else "TorchScript"
        facts = {"library": library, "function": function, "file": f"{library}.py", "overload": overload}
        testimony = (*testimony, Testimony(Role.EMISSION, Finding.SAME, "emitting-function", facts))
    arguments = of or {"self": vector([0.5, 1.5])}
    call = Invocation(overload, tuple(arguments.items()))
    how = {**WRONG, "backend": "ort-cpu", "converter": converter, **changes}
    problem = _problem(message, call.dtype) if how["stage"] is Stage.COMPARE else None
    result = CaseRun(
        case=(0, 0),
        backend=how["backend"],
        stage=how["stage"],
        outcome=how["outcome"],
        message=message,
        rule=how.get("rule", ""),
        comparison=OutputComparison(problems=(problem,)) if problem else None,
    )
    decision = Diagnosis(blame, blame_rule, testimony=testimony)
    diagnosis = diagnose(result, call, how["converter"], decision)
    return row_of(call, message=message, signature=result.signature, blame=blame, **_columns(diagnosis), **how)


def _problem(message: str, dtype: str) -> OutputProblem:
    """Return the problem that `compare` describes with a message."""
    kind, output, *texts = _PROBLEM.fullmatch(message).groups()  # type: ignore[union-attr]
    expected, got = (_value(kind, text) for text in texts)
    if any(len(re.sub(r"\D", "", text)) > 13 for text in texts):
        dtype = "float64"
    elif all(re.fullmatch(r"-?\d+", text) for text in texts):
        dtype = "int64"
    return OutputProblem(kind, message, (int(output),), expected=expected, got=got, dtype=dtype)


def _value(kind: str, text: str) -> Any:
    if kind == "dtype":
        return text
    if kind == "shape":
        return [int(size) for size in re.findall(r"\d+", text)]
    return {"True": True, "False": False}.get(text) if text in ("True", "False") else float(text.split(" ")[0])


def groups(*rows: Verdict) -> list[FailureGroup]:
    """Return the groups of rows in a report."""
    return failure_groups(to_table([replace(row) for row in rows], "run"))


def places(*rows: Verdict) -> set[tuple[str, str]]:
    """Return the places of the defects, and their faults in words."""
    return {(group_place(group), fault_text(group.cause)) for group in groups(*rows)}
