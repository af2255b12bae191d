"""ONNX graphs as text, and files of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, parser


def onnx_model(
    inputs: str, outputs: str, nodes: str, *, opset: int = 20, ir: int = 10, domain: str = "", **weights: Any
) -> onnx.ModelProto:
    """Return a model: ``onnx_model("float[n,4] x", "float y", "h = MatMul (x, w) y = Relu (h)", w=...)``.

    Args:
        inputs: Declared inputs, in ONNX's text format; a type without brackets has no shape.
        outputs: Declared outputs.
        nodes: The nodes; an input that is left out is ``""``.
        opset: The version of ONNX's operators.
        ir: The version of the file format.
        domain: The domain of other operators, in its version 1.
        weights: Initializers.
    """
    opsets = f'"": {opset}' + f', "{domain}": 1' * bool(domain)
    model = parser.parse_model(
        f"<ir_version: {ir}, opset_import: [{opsets}]> graph ({inputs}) => ({outputs}) {{ {nodes} }}"
    )
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items())
    return model


def saved(path: Path, *text: str, **more: Any) -> Path:
    """Save the model of these texts, and return the path; see `onnx_model`."""
    onnx.save(onnx_model(*text, **more), path)
    return path
