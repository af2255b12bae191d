"""onnx-simplifier: constants folded and passes of onnxoptimizer, as its command line applies them."""

from __future__ import annotations

import onnx

from harness.convert.transform import TransformEntry, register
from harness.core.plugins import Unavailable, installed_version, missing_package


def _probe() -> Unavailable | None:
    return missing_package("onnxsim", "pip install 'aten-onnx-conformance[transforms]'")


def _simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxsim

    simplified: onnx.ModelProto = onnxsim.simplify(model)[0]
    return simplified


register(TransformEntry(name="onnxsim", probe=_probe, apply=_simplify, version=lambda: installed_version("onnxsim")))
