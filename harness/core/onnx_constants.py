"""The tensors that ``Constant`` nodes hold, whichever attribute has their numbers."""

from __future__ import annotations

import onnx
from onnx import helper


def constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the tensor of a ``Constant`` node, by the name of its value.

    None for other nodes, and for constants of strings in an attribute and sparse ones.
    """
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    attribute = node.attribute[0]
    value = helper.get_attribute_value(attribute)
    tensor = onnx.TensorProto()
    match attribute.name:
        case "value":
            tensor.CopyFrom(value)
        case "value_float":
            tensor.CopyFrom(helper.make_tensor("", onnx.TensorProto.FLOAT, [], [value]))
        case "value_int":
            tensor.CopyFrom(helper.make_tensor("", onnx.TensorProto.INT64, [], [value]))
        case "value_floats":
            tensor.CopyFrom(helper.make_tensor("", onnx.TensorProto.FLOAT, [len(value)], value))
        case "value_ints":
            tensor.CopyFrom(helper.make_tensor("", onnx.TensorProto.INT64, [len(value)], value))
        case _:
            return None
    tensor.name = node.output[0]
    return tensor
