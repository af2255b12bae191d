"""Failures that a converter is blamed for, and the groups that they make."""

from __future__ import annotations

from typing import Any

from harness_runs import vector
from recorded_rows import row_of

from harness.analyse import FailureGroup, failure_groups
from harness.compare import Outcome, Stage, Verdict, normalise
from harness.core import Invocation
from harness.record import to_table

INVALID = "InferenceError: [ShapeInferenceError] (op_type:{}, node name: n): "
CAST = "X typestr: T, has unsupported type: tensor(int16)"
WRONG: dict[str, Any] = {"stage": Stage.COMPARE, "outcome": Outcome.MISMATCH}
REJECTED: dict[str, Any] = {"stage": Stage.CHECK, "outcome": Outcome.ERROR}
RUNNING = "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running {}"
EVIDENCE = "The graph that the converter emits asks for something else."


def failed(
    overload: str, message: str, converter: str = "torchscript", of: Any = None, **changes: Any
) -> Verdict:
    """A failure that the converter is blamed for, of a call with some arguments."""
    arguments = of or {"self": vector([0.5, 1.5])}
    call = Invocation(overload, tuple(arguments.items()))
    how = {**WRONG, "backend": "ort-cpu", "evidence": EVIDENCE, "blame": "converter", **changes}
    how["converter"] = how.get("converter", converter)
    return row_of(call, message=message, signature=normalise(message), **how)


def groups(*rows: Verdict) -> list[FailureGroup]:
    return failure_groups(to_table(rows, "run"))
