"""onnxslim: constants folded, subgraphs shared, patterns fused."""

from __future__ import annotations

import onnx

from harness.convert.transform import TransformEntry, register
from harness.core.plugins import Unavailable, installed_version, missing_package


def _probe() -> Unavailable | None:
    return missing_package("onnxslim", "pip install 'aten-onnx-conformance[transforms]'")


def _slim(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxslim

    slimmed: onnx.ModelProto = onnxslim.slim(model)
    return slimmed


register(TransformEntry(name="onnxslim", probe=_probe, apply=_slim, version=lambda: installed_version("onnxslim")))
