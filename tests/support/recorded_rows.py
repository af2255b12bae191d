"""Calls with literal values, and runs that hold them; kept apart, because a process that starts imports
little for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.generate.call_traits import call_traits
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter


def vector(values: Sequence[complex], dtype: str = "float32") -> TensorSpec:
    """A tensor with one dimension and literal values."""
    shape = (len(values),)
    return TensorSpec(shape, dtype, contiguous_strides(shape), 0, Literal(tuple(values)))


def unary(overload: str, values: Sequence[float], dtype: str = "float32") -> Invocation:
    """A call with one tensor."""
    return Invocation(overload, (("self", vector(values, dtype)),))


def record_of(directory: Path, invocations: Sequence[Invocation], **changes: Any) -> Path:
    """A recorded run with one row per invocation, for `--replay`."""
    info = RunInfo.begin(seed=0, options={})
    with RunWriter(directory, info) as writer:
        writer.write(row_of(invocation, **changes) for invocation in invocations)
    store.finish(directory, 0)
    return directory


def row_of(invocation: Invocation, /, **changes: Any) -> Verdict:
    """A row of a record; a pass but for `changes`."""
    traits = call_traits(invocation)
    fields: dict[str, Any] = {
        "ordinary": traits.ordinary,
        "elements": traits.elements,
        "conditions": traits.text,
        "case_id": invocation.case_id,
        "overload": invocation.overload,
        "family": "",
        "dtype": invocation.dtype,
        "shape_mode": "static",
        "source": "generated",
        "converter": "dynamo",
        "converter_version": "",
        "opset": None,
        "backend": "ort-cpu",
        "backend_version": "",
        "device": "cpu",
        "stage": Stage.COMPARE,
        "outcome": Outcome.PASS,
        "invocation": invocation.json,
    }
    return Verdict(**{**fields, **changes})
