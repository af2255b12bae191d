"""Fails on the guilty value, and never comes back where a case is loaded alone once more, as witnesses do."""

from __future__ import annotations

import time
from typing import Any

import onnx

from planted import _guilty

_alone: list[tuple[int, ...]] = []


def prepare(model: onnx.ModelProto, device: str) -> _guilty.Prepared:
    """See the ONNX Backend API."""
    sizes = tuple(value.type.tensor_type.shape.dim[0].dim_value for value in model.graph.input)
    again = len(sizes) == 1 and sizes in _alone
    _alone.append(sizes)

    def crime() -> Any:
        if again:
            time.sleep(100_000)
        raise RuntimeError("planted: no such kernel for 13")

    return _guilty.Prepared(model, crime)
