"""ONNX Runtime's optimisations, saved to a model: ``ort-basic`` writes ONNX, ``ort-extended`` fused operators, too.

Its third level changes layouts for the machine that saves the model, so that such a model is not to be passed on.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import onnx

from harness.convert.transform import TransformEntry, register
from harness.core.plugins import Unavailable, installed_version, missing_package

_LEVELS = {"ort-basic": "ORT_ENABLE_BASIC", "ort-extended": "ORT_ENABLE_EXTENDED"}


def _probe() -> Unavailable | None:
    return missing_package("onnxruntime", "pip install 'aten-onnx-conformance[cpu]'")


def _optimise(model: onnx.ModelProto, *, level: str) -> onnx.ModelProto:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "optimised.onnx")
        options.optimized_model_filepath = str(path)
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return onnx.load(path)


for _name, _level in _LEVELS.items():
    register(
        TransformEntry(
            name=_name,
            probe=_probe,
            apply=partial(_optimise, level=_level),
            version=lambda: installed_version("onnxruntime", "onnxruntime-gpu"),
        )
    )
