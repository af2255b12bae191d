"""A node with its inputs, as formulas take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx

from harness.core.dtypes import Array


@dataclass(frozen=True)
class NodeCall:
    """A node with its inputs.

    Attributes:
        inputs: Inputs by position; None for an omitted one. Floats may be wider than the node's.
        opset: Opset of the default domain.
        dtype: Dtype of the node's first input in the graph.
    """

    node: onnx.NodeProto
    inputs: Sequence[Array | None]
    opset: int
    dtype: str

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute; a default is as exact as an attribute can be, which is float32."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx.helper.get_attribute_value(attribute)
        return float(np.float32(default)) if isinstance(default, float) else default

    def given(self, position: int) -> Array | None:
        """Return an input; None if it is omitted."""
        return self.inputs[position] if position < len(self.inputs) else None


def widen(array: Array) -> Array:
    """Return an array in float64; one of float64 or wider unchanged."""
    return array if array.dtype.kind == "f" and array.dtype.itemsize >= 8 else array.astype(np.float64)


#: Returns the outputs; None if the reference evaluator is right.
Formula: TypeAlias = Callable[[NodeCall], Sequence[Array] | None]
