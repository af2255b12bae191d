"""ONNX's version converter: ``opset-N`` writes a model in another operator set.

A refusal is unsupported: an operator that the other set does not have, or not for the model's dtype, and a version for
which the converter has no adapter.
"""

from __future__ import annotations

import re
from functools import partial

import onnx

from harness.convert.transform import NotTransformable, TransformEntry, register
from harness.core.plugins import installed_version

#: The oldest operator set that runtimes of today still test.
_OLDEST = 9

#: How the converter words a refusal, behind the assertion of its own source that fails.
_REFUSAL = re.compile(r"No Previous Version of|No Adapter|is unallowed for Opset Version")


def _convert(model: onnx.ModelProto, *, opset: int) -> onnx.ModelProto:
    try:
        return onnx.version_converter.convert_version(model, opset)
    except RuntimeError as error:
        if _REFUSAL.search(str(error)):
            raise NotTransformable(str(error)) from None
        raise


for _opset in range(_OLDEST, onnx.defs.onnx_opset_version() + 1):
    register(
        TransformEntry(
            name=f"opset-{_opset}",
            probe=lambda: None,
            apply=partial(_convert, opset=_opset),
            version=lambda: installed_version("onnx"),
        )
    )
