"""ONNX's version converter: ``opset-N`` writes a model in another operator set."""

from __future__ import annotations

from functools import partial

import onnx

from harness.convert.transform import TransformEntry, register
from harness.core.plugins import installed_version

#: The oldest operator set that runtimes of today still test.
_OLDEST = 9


def _convert(model: onnx.ModelProto, *, opset: int) -> onnx.ModelProto:
    return onnx.version_converter.convert_version(model, opset)


for _opset in range(_OLDEST, onnx.defs.onnx_opset_version() + 1):
    register(
        TransformEntry(
            name=f"opset-{_opset}",
            probe=lambda: None,
            apply=partial(_convert, opset=_opset),
            version=lambda: installed_version("onnx"),
        )
    )
