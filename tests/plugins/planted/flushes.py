"""Replaces subnormal results by zeros, as GPUs and fast-math kernels do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from planted import _guilty


class _Flushing(_guilty.Prepared):
    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One output per output of the model."""
        outputs = super().run(inputs)
        return [np.where(np.abs(o) < np.finfo(o.dtype).tiny, o.dtype.type(0), o) for o in outputs]


def prepare(model: onnx.ModelProto, device: str) -> _Flushing:
    """Load a model."""
    return _Flushing(model, lambda: None)
