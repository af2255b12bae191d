"""A node with its inputs, as a formula takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import onnx

from harness.core import Array


@dataclass(frozen=True)
class NodeCall:
    """A node with its inputs.

    Attributes:
        inputs: By position; None where one is left out. Floats may be wider than the node's.
        opset: Of the default domain.
        dtype: Of the node's first input in the graph.
    """

    node: onnx.NodeProto
    inputs: Sequence[Array | None]
    opset: int
    dtype: str

    def attribute(self, name: str, default: Any = None) -> Any:
        """The value of an attribute."""
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx.helper.get_attribute_value(attribute)
        return default

    def given(self, position: int) -> Array | None:
        """An input; None where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else None


#: The outputs; None where the reference evaluator is right.
Formula: TypeAlias = Callable[[NodeCall], Sequence[Array] | None]
