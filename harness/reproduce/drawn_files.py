"""A recorded graph as a file with its inputs, which is reproduced as a user's file is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pyarrow.compute as pc

from harness.core.invocation import Invocation, is_exported
from harness.record import store
from harness.record.json_lines import read_minimal
from harness.record.layout import ResultsError


def recorded_graph(run: Path, wanted: str) -> Invocation | None:
    """Return the graph of a recorded case; None if the case is of PyTorch.

    Args:
        run: The run.
        wanted: A case id, or an unambiguous beginning of one.

    Raises:
        ResultsError: no case has that id.
    """
    case_id = store.resolve_case(run, wanted, read_minimal(run))
    row = next(iter(store.verdicts(run, pc.field("case_id") == case_id)), None)
    if row is None or not is_exported(row.overload):
        return None
    return Invocation.from_json(row.invocation)


def save_graph(invocation: Invocation, stem: Path) -> tuple[Path, Path]:
    """Write a graph and its inputs to ``STEM.onnx`` and ``STEM.npz``, and return both paths.

    Raises:
        ResultsError: an input is of strings, or of a dtype that NumPy's files do not keep.
    """
    from harness.core.onnx_arrays import build_array
    from harness.pipeline.drawn_graph import build_graph
    from harness.pipeline.graph_structure import signature

    model = build_graph(invocation)
    arrays = [build_array(spec) for spec in invocation.tensors()]
    for array in arrays:
        if array.dtype.isbuiltin != 1 or array.dtype.kind == "O":
            raise ResultsError(f"case {invocation.case_id} has an input of {array.dtype}, which no .npz file holds")
    places = stem.with_suffix(".onnx"), stem.with_suffix(".npz")
    onnx.save(model, places[0])
    named: dict[str, Any] = {value.name: array for value, array in zip(signature(model), arrays, strict=True)}
    np.savez(places[1], **named)
    return places
