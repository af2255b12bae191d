"""What a graph is made of, whatever its sizes, dtypes and numbers are."""

from __future__ import annotations

from collections.abc import Hashable

import onnx
from onnx import AttributeProto

from harness.execute import all_nodes

#: Attributes that say how an operator is meant; others have numbers of the call.
_TELLING = {AttributeProto.INT: "i", AttributeProto.STRING: "s"}


def graph_kind(model: bytes) -> Hashable:
    """The operators of a serialised model, in order, with attributes that are words or whole numbers."""
    return tuple(
        (node.domain, node.op_type, frozenset(_telling(a) for a in node.attribute))
        for node in all_nodes(onnx.load_model_from_string(model))
    )


def _telling(attribute: AttributeProto) -> tuple[str, Hashable]:
    field = _TELLING.get(attribute.type)
    return attribute.name, getattr(attribute, field) if field else None
