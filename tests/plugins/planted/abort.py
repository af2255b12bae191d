"""Aborts, as a failed C++ assertion does, when it runs on the guilty value; says something of all others."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import onnx

from planted import _guilty


def _crime() -> None:
    os.write(2, b"terminate called after throwing an instance of 'planted::Error'\n")
    os.abort()


class _Talkative(_guilty.Prepared):
    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One output per output of the model."""
        outputs = super().run(inputs)
        os.write(2, b"warning: of an innocent case\n")
        return outputs


def prepare(model: onnx.ModelProto, device: str) -> _Talkative:
    """Prepare a model; the entry point of the ONNX Backend API."""
    return _Talkative(model, _crime)
