"""Float16 by ONNX Runtime's converter and by onnxconverter-common's, each with and without float32 inputs and outputs.

Both are applied as their documentation applies them to a model in memory: nothing is sorted or mended afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import onnx

from harness.convert.transform import NotTransformable, TransformEntry, register
from harness.core.plugins import Unavailable, installed_version, missing_package


def _convert_by_onnxruntime(model: onnx.ModelProto, *, keep_io: bool) -> onnx.ModelProto:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    half: onnx.ModelProto = convert_float_to_float16(model, keep_io_types=keep_io)
    return half


def _convert_by_common(model: onnx.ModelProto, *, keep_io: bool) -> onnx.ModelProto:
    from onnxconverter_common.float16 import convert_float_to_float16

    try:
        half: onnx.ModelProto = convert_float_to_float16(model, keep_io_types=keep_io)
    except ValueError as error:
        if "already converted" in str(error):
            raise NotTransformable(str(error)) from None
        raise
    return half


def _probe_onnxruntime() -> Unavailable | None:
    return missing_package("onnxruntime", "pip install 'aten-onnx-conformance[cpu]'")


def _probe_common() -> Unavailable | None:
    return missing_package("onnxconverter_common", "pip install 'aten-onnx-conformance[transforms]'")


def _register(
    name: str,
    probe: Callable[[], Unavailable | None],
    convert: Callable[..., onnx.ModelProto],
    version: Callable[[], str],
) -> None:
    for suffix, keep_io in (("", False), ("-keep-io", True)):
        register(
            TransformEntry(
                name=name + suffix,
                probe=probe,
                apply=partial(convert, keep_io=keep_io),
                version=version,
                precision="float16",
            )
        )


_register(
    "float16",
    _probe_onnxruntime,
    _convert_by_onnxruntime,
    lambda: installed_version("onnxruntime", "onnxruntime-gpu"),
)
_register("float16-common", _probe_common, _convert_by_common, lambda: installed_version("onnxconverter-common"))
