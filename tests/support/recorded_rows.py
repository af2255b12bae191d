"""Calls with literal values, and runs that hold them; kept apart, because a process that starts imports
little for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec, contiguous_strides
from harness.generate.call_traits import call_traits
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter


def tensor(
    values: Any, dtype: str = "", *, shape: Sequence[int] | None = None, strides: Sequence[int] | None = None
) -> TensorSpec:
    """Return a tensor with literal values.

    Args:
        values: A number, or lists within lists; a flat list of the storage if the shape or the strides are given.
        dtype: PyTorch's name; by default that of the first value, with 32 bits if it is not an integer.
        shape: Sizes, if they are not those of the lists.
        strides: Steps in elements; by default row-major.
    """
    sizes: list[int] = []
    flat = list(values) if isinstance(values, list | tuple) else [values]
    while flat and isinstance(flat[0], list | tuple):
        sizes.append(len(flat) // math.prod(sizes))
        flat = [value for part in flat for value in part]
    if isinstance(values, list | tuple):
        sizes.append(len(flat) // math.prod(sizes))
    dtypes = {bool: "bool", int: "int64", complex: "complex64"}
    dtype = dtype or dtypes.get(type(flat[0]) if flat else float, "float32")
    shape = tuple(sizes if shape is None else shape)
    return TensorSpec(shape, dtype, tuple(strides or contiguous_strides(shape)), 0, Literal(tuple(flat)))


def call(overload: str, **arguments: Any) -> Invocation:
    """Return a call of an operator; a list is a tensor of its values."""
    given = {name: tensor(value) if isinstance(value, list) else value for name, value in arguments.items()}
    return Invocation(overload, tuple(given.items()))


def vector(values: Sequence[complex], dtype: str = "float32") -> TensorSpec:
    """A tensor with one dimension and literal values."""
    return tensor(list(values), dtype)


def unary(overload: str, values: Sequence[float], dtype: str = "float32") -> Invocation:
    """A call with one tensor."""
    return Invocation(overload, (("self", vector(values, dtype)),))


def record_of(directory: Path, invocations: Sequence[Invocation], **changes: Any) -> Path:
    """A recorded run with one row per invocation, for `--replay`."""
    return recorded(directory, [row_of(invocation, **changes) for invocation in invocations])


def recorded(directory: Path, rows: Iterable[Verdict], info: RunInfo | None = None) -> Path:
    """Record a finished run in `directory`, and return the directory."""
    with RunWriter(directory, info or RunInfo.begin(seed=0, options={})) as writer:
        writer.write(rows)
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
