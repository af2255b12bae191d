"""`yobx`: the exporter of yet-another-onnx-builder, which succeeds that of experimental-experiment.

A clone is installed, or put on ``PYTHONPATH``.
"""

from __future__ import annotations

from harness.convert.graph_builder import Exporter, plug_in

plug_in(
    Exporter(
        name="yobx",
        package="yobx",
        interpreter="yobx.torch.interpreter",
        needs=("onnxruntime", "optree", "scipy"),
        distribution="yet-another-onnx-builder",
        install="pip install git+https://github.com/xadupre/yet-another-onnx-builder optree",
        model=".proto",
    ),
    tracker="xadupre/yet-another-onnx-builder",
)
