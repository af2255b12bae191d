"""ONNX's reference evaluator, with a sum that keeps a dimension without elements, as ONNX Runtime's did to 1.31."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class ReduceSum(OpRun):
    """A sum that leaves data without elements as they are."""

    op_domain = ""

    def _run(self, data: Any, axes: Any = None, keepdims: int = 1, noop_with_empty_axes: int = 0) -> tuple[Any]:
        if not data.size:
            return (data,)
        return (np.asarray(data.sum(axis=None if axes is None else tuple(axes), keepdims=bool(keepdims)), data.dtype),)


class Prepared:
    """A prepared model of the ONNX Backend API."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._names = [value.name for value in model.graph.input]
        self._evaluator = ReferenceEvaluator(model, new_ops=[ReduceSum])

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One output per output of the model."""
        outputs = self._evaluator.run(None, dict(zip(self._names, inputs, strict=True)))
        return [np.asarray(output) for output in outputs]


def prepare(model: onnx.ModelProto, device: str = "CPU", **more: Any) -> Prepared:
    """Prepare a model; the entry point of the ONNX Backend API."""
    return Prepared(model)
