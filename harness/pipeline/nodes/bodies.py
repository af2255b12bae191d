"""The function bodies by which ONNX defines some operators: ``ReduceL2`` is ``Sqrt(ReduceSum(x * x))``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.inliner import inline_local_functions

from harness.core.dtypes import PRECISION
from harness.pipeline.stages import emitted_opset
from harness.pipeline.submodel import walk_nodes

_DOMAIN = "formula"


def has_body(node: onnx.NodeProto, opset: int) -> bool:
    """Whether ONNX defines an operator by a function of other operators.

    The body of `Range` is a loop that collects numbers, which the evaluator joins to a column.
    """
    if node.op_type == "Range" or node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, opset, ""):
        return False
    plain, by_types = _versions(node, opset)
    return bool(plain or by_types)


#: Bodies within bodies: that of `Celu` has `Elu`.
_DEEPEST = 4


def inline_bodies(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """Return a model with nodes replaced by their bodies; None if the first has no body for its inputs."""
    for depth in range(_DEEPEST):
        opset = emitted_opset(model) or 1
        called = onnx.ModelProto()
        called.CopyFrom(onnx.shape_inference.infer_shapes(model))
        types = {v.name: v.type for v in (*called.graph.input, *called.graph.value_info)}
        types |= {c.output[0]: _type_of_constant(c) for c in called.graph.node if c.op_type == "Constant"}
        nodes = [node for node in called.graph.node if has_body(node, opset)]
        for number, node in enumerate(nodes):
            body = _body(node, opset, types)
            if body is None:
                return None if not depth else model
            if depth and any(attribute.HasField("g") for inner in body.node for attribute in inner.attribute):
                # `Range` is a loop, whose names inlining mixes up; it computes nothing that a body would round.
                continue
            body.domain, body.name = _DOMAIN, f"{node.op_type}_{number}"
            del body.opset_import[:]
            body.opset_import.extend(called.opset_import)
            called.functions.append(body)
            node.attribute.extend(_defaults(node, opset))
            node.domain, node.op_type = _DOMAIN, body.name
        if not called.functions:
            return model
        called.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
        model = inline_local_functions(called)
        del model.graph.value_info[:]
    return model


_NARROW = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model itself, with its constants and casts in float64, those of its subgraphs included."""
    for node in walk_nodes(model.graph.node):
        if node.op_type == "ConstantOfShape" and not node.attribute:
            node.attribute.append(onnx.helper.make_attribute("value", numpy_helper.from_array(np.zeros(1))))
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in _NARROW:
                attribute.i = onnx.TensorProto.DOUBLE
            makes_constant = node.op_type in ("Constant", "ConstantOfShape")
            if makes_constant and attribute.name in ("value", "value_float", "value_floats"):
                value = attribute.t if attribute.name == "value" else attribute.f or list(attribute.floats)
                array = numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value, "f4")
                if str(array.dtype) in PRECISION:
                    attribute.CopyFrom(onnx.helper.make_attribute("value", numpy_helper.from_array(array.astype("f8"))))
    return model


def _body(node: onnx.NodeProto, opset: int, types: Mapping[str, onnx.TypeProto]) -> onnx.FunctionProto | None:
    schema: Any = onnx.defs.get_schema(node.op_type, opset)
    plain, by_types = _versions(node, opset)
    if plain:
        found = schema.get_function_with_opset_version(max(plain))
    elif by_types:
        given = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
        found = schema.get_context_dependent_function_with_opset_version(max(by_types), node.SerializeToString(), given)
    else:
        return None
    return onnx.FunctionProto.FromString(found) if found else None


def _versions(node: onnx.NodeProto, opset: int) -> tuple[list[int], list[int]]:
    """Return the opsets of an operator's bodies up to an opset: those of one form, and those that depend on its types.

    A body of a later opset has operators at versions that this opset does not have: Relu's first is of opset 18.
    """
    # Not all properties are in the type stubs.
    schema: Any = onnx.defs.get_schema(node.op_type, opset)
    plain = [version for version in schema.function_opset_versions if version <= opset]
    return plain, [version for version in schema.context_dependent_function_opset_versions if version <= opset]


def _defaults(node: onnx.NodeProto, opset: int) -> list[onnx.AttributeProto]:
    """Return the attributes that a node leaves to their defaults, which the function's body needs."""
    given = {attribute.name for attribute in node.attribute}
    schema = onnx.defs.get_schema(node.op_type, opset)
    return [a.default_value for name, a in schema.attributes.items() if name not in given and a.default_value.name]


def _type_of_constant(node: onnx.NodeProto) -> onnx.TypeProto:
    return onnx.helper.make_tensor_type_proto(node.attribute[0].t.data_type or onnx.TensorProto.FLOAT, None)
