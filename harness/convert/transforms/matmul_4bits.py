"""ONNX Runtime's quantiser of weights to 4 bits, ``int4``: MatMul with a constant matrix becomes MatMulNBits.

``int4-level-1`` to ``int4-level-4`` ask the kernel to compute in at least float32, float16, bfloat16 or int8.
"""

from __future__ import annotations

from functools import partial

import onnx

from harness.convert.transform import TransformEntry, muted_advice, register
from harness.core.plugins import Unavailable, installed_version, missing_package

#: The smallest block that ONNX Runtime's kernels take: small matrices have several, too.
_BLOCK = 16
_LEVELS = (None, 1, 2, 3, 4)


def _probe() -> Unavailable | None:
    return missing_package("onnxruntime", "pip install 'aten-onnx-conformance[cpu]'")


def _quantise(model: onnx.ModelProto, *, level: int | None) -> onnx.ModelProto:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantiser = MatMulNBitsQuantizer(model, block_size=_BLOCK, is_symmetric=True, accuracy_level=level)
    with muted_advice():
        quantiser.process()
    quantised: onnx.ModelProto = quantiser.model.model
    return quantised


for _level in _LEVELS:
    register(
        TransformEntry(
            name="int4" if _level is None else f"int4-level-{_level}",
            probe=_probe,
            apply=partial(_quantise, level=_level),
            version=lambda: installed_version("onnxruntime", "onnxruntime-gpu"),
            precision="int4",
        )
    )
