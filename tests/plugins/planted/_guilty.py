"""ONNX Runtime behind the ONNX Backend API, with a crime at one kind of input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

#: Running a model on an input that holds this value sets the crime off.
VALUE = 13.25
#: Loading or exporting with an input of this size in any dimension does.
SIZE = 29


class Prepared:
    """A prepared model of the ONNX Backend API."""

    def __init__(self, model: onnx.ModelProto, crime: Callable[[], Any]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._names = [value.name for value in model.graph.input]
        self._session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._crime = crime

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One output per output of the model."""
        if any((array == VALUE).any() for array in inputs):
            self._crime()
        outputs: list[np.ndarray] = self._session.run(None, dict(zip(self._names, inputs, strict=True)))
        return outputs


def at_run(crime: Callable[[], Any]) -> Callable[[onnx.ModelProto, str], Prepared]:
    """A `prepare` whose model commits `crime` when it runs on the guilty value."""
    return lambda model, device: Prepared(model, crime)


def at_load(crime: Callable[[], Any]) -> Callable[[onnx.ModelProto, str], Prepared]:
    """A `prepare` that commits `crime` itself where an input has the guilty size."""

    def prepare(model: onnx.ModelProto, device: str) -> Prepared:
        shapes = [value.type.tensor_type.shape.dim for value in model.graph.input]
        if any(dim.dim_value == SIZE for shape in shapes for dim in shape):
            crime()
        return Prepared(model, lambda: None)

    return prepare
