"""onnx's evaluator with the integer product of a processor without VNNI: pairs of products are added in 16 bits.

The same as ``vpmaddubsw`` does; ONNX Runtime's kernel for AVX2 gives these numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun


class MatMulInteger(OpRun):
    """``A * B`` of unsigned and signed numbers of 8 bits, without zero points."""

    def _run(self, a: Any, b: Any, *zeros: Any) -> tuple[Any]:
        products = a.astype(np.int32)[..., :, None] * b.astype(np.int32)
        if products.shape[-2] % 2:
            products = np.concatenate([products, np.zeros_like(products[..., :1, :])], -2)
        pairs = products.reshape(*products.shape[:-2], -1, 2, products.shape[-1]).sum(-2)
        return (np.clip(pairs, -(2**15), 2**15 - 1).sum(-2).astype(np.int32),)


class _Prepared:
    def __init__(self, model: onnx.ModelProto) -> None:
        self._evaluator = ReferenceEvaluator(model, new_ops=[MatMulInteger])
        self._names = [value.name for value in model.graph.input]

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """One output per output of the model."""
        return list(self._evaluator.run(None, dict(zip(self._names, inputs, strict=True))))


def prepare(model: onnx.ModelProto, device: str) -> _Prepared:
    """Load a model."""
    return _Prepared(model)
