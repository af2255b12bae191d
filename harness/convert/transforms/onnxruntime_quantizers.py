"""ONNX Runtime's quantisers to 8 bits: ``quantize-dynamic``, and ``quantize-static`` with the options of its name.

A static quantiser is calibrated with the inputs that the model will be run with. Inputs with infinities or NaN have no
range, so that they calibrate nothing.
"""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from harness.convert.transform import NotTransformable, Samples, TransformEntry, muted_advice, register
from harness.core.dtypes import PRECISION, Array
from harness.core.plugins import Unavailable, installed_version, missing_package
from harness.core.text import one_line

#: What ONNX Runtime says if it lacks a kernel, or a dtype.
_MISSING = re.compile(r"NOT_IMPLEMENTED|can't be converted to MLDataType")


def _probe() -> Unavailable | None:
    return missing_package("onnxruntime", "pip install 'aten-onnx-conformance[cpu]'")


def _quantise_dynamically(model: onnx.ModelProto) -> onnx.ModelProto:
    from onnxruntime.quantization import quantize_dynamic

    with muted_advice(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantised.onnx")
        quantize_dynamic(model, path)
        return onnx.load(path)


def _quantise_statically(
    model: onnx.ModelProto, samples: Samples, *, format_name: str, per_channel: bool, reduce_range: bool
) -> onnx.ModelProto:
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static

    usable = iter([sample for sample in samples if _has_range(sample)])

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> Mapping[str, Array] | None:
            return next(usable, None)

    if not any(map(_has_range, samples)):
        raise NotTransformable("no input has finite numbers only, so that nothing can be calibrated")
    with muted_advice(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quantised.onnx")
        options = {"quant_format": QuantFormat[format_name], "per_channel": per_channel, "reduce_range": reduce_range}
        try:
            quantize_static(model, path, Reader(), **options)
        except Exception as error:
            if _MISSING.search(str(error)):
                raise NotTransformable(f"its calibration runs the model: {one_line(error)}") from None
            raise
        return onnx.load(path)


def _has_range(sample: Mapping[str, Array]) -> bool:
    floats = [array for array in sample.values() if str(array.dtype) in PRECISION]
    return all(np.isfinite(array.astype(np.float64)).all() for array in floats)


def _version() -> str:
    return installed_version("onnxruntime", "onnxruntime-gpu")


register(
    TransformEntry(
        name="quantize-dynamic", probe=_probe, apply=_quantise_dynamically, version=_version, precision="int8"
    )
)
for _format, _channels, _reduced in itertools.product(("QDQ", "QOperator"), (False, True), (False, True)):
    _words = (
        "quantize-static",
        *(["qoperator"] if _format == "QOperator" else []),
        *(["per-channel"] if _channels else []),
        *(["reduce-range"] if _reduced else []),
    )
    register(
        TransformEntry(
            name="-".join(_words),
            probe=_probe,
            apply=partial(_quantise_statically, format_name=_format, per_channel=_channels, reduce_range=_reduced),
            version=_version,
            precision="int8",
            takes_samples=True,
        )
    )
