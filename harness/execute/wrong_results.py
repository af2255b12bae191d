"""All that is wrong with the outputs of a case, each as a failure of its own that can be looked into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from harness.compare import SPEC, UNKNOWN, Outcome, OutputComparison, OutputProblem, Stage
from harness.core import Array
from harness.execute.task import Result


def wrong_results(
    result: Result,
    comparison: OutputComparison,
    expected: Sequence[Array],
    got: Sequence[Array],
    model: bytes = b"",
) -> tuple[Result, ...]:
    """A result for each problem that a comparison found, the first one first.

    Args:
        result: Says which case it is, with what and how fast.
        comparison: Of `got` with `expected`.
        expected: PyTorch's outputs.
        got: The backend's.
        model: What was run, serialised; b"" where nothing will be looked into.
    """
    forms = {
        i: e.dtype
        for i, (e, g) in enumerate(zip(expected, got, strict=False))
        if e.dtype != g.dtype and "c" not in (e.dtype.kind, g.dtype.kind)
    }
    first, *others = comparison.problems
    found = [_failure(result, first, model)]
    for problem in others:
        own = model if problem.kind in ("dtype", "shape") else with_cast_outputs(model, forms)
        found.append(replace(_failure(result, problem, own), outputs=problem.outputs))
    return tuple(found)


def _failure(result: Result, problem: OutputProblem, model: bytes) -> Result:
    return replace(
        result,
        stage=Stage.COMPARE,
        outcome=Outcome.MISMATCH,
        blame=SPEC if problem.unsettled else UNKNOWN,
        message=problem.message,
        comparison=OutputComparison(problems=(problem,)),
        model=model,
    )


def with_cast_outputs(model: bytes, dtypes: Mapping[int, np.dtype[Any]]) -> bytes:
    """A serialised model with a ``Cast`` to a dtype behind some of its outputs, by place.

    What is wrong with values that come in a wrong dtype can be looked into like any other wrong result then.
    """
    if not model or not dtypes:
        return model
    changed = onnx.load_model_from_string(model)
    for place, dtype in dtypes.items():
        output = changed.graph.output[place]
        element = onnx.helper.np_dtype_to_tensor_dtype(dtype)
        name = f"{output.name}_cast"
        changed.graph.node.append(onnx.helper.make_node("Cast", [output.name], [name], to=element))
        output.name = name
        output.type.tensor_type.elem_type = element
    return bytes(changed.SerializeToString())
