"""Graphs of several ONNX operators: written as invocations, and the seeds that others are made of.

A seed is an ONNX model in ONNX's text form under `cases/onnx/graphs/`, with sizes for all inputs. As an invocation a
graph is a program of calls of ONNX operators, so that it has an id, and can be recorded and rebuilt.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, helper, numpy_helper

from harness.core.invocation import (
    GRAPH,
    Argument,
    Input,
    Invocation,
    Literal,
    Recipe,
    Result,
    TensorSpec,
    Weight,
    contiguous_strides,
)
from harness.core.onnx_constants import constant_tensor
from harness.core.onnx_operators import OUTPUTS, OnnxSchema, find_schema
from harness.core.program import DerivedName, Program, Returned
from harness.generate.cases_home import CaseFileError, cases_directory

#: The beginning of a model in ONNX's text form.
_MODEL = re.compile(r"^(?=<\s*ir_version)", re.MULTILINE)
#: Suffixes that optimisers append to the name of a value; a graph may have such a name already.
SUFFIXES = ("_min", "_max", "_bias", "_scaled", "_offset", "/shape", "_unsqueeze", "_axis", "_split_0", "_cast", "_1")
#: The size of a dimension that a model leaves open.
_OPEN_SIZE = 2


#: Any numbers; and 0 or 1 in equal shares, which any index may be.
_ANY: tuple[str | int | float, ...] = ("any",)
_INDICES: tuple[str | int | float, ...] = ("share", 0.5)


class NotWritable(Exception):
    """A graph has an operator, a type or a constant that invocations cannot express."""


@cache
def load_seeds() -> Mapping[str, onnx.ModelProto]:
    """Return the seeds of `cases/onnx/graphs/` by the overload of their graphs, sorted.

    A file of several models gives them numbers: ``graph.models/3``.

    Raises:
        CaseFileError: a file has something else than valid models in ONNX's text form.
    """
    found = {}
    for path in sorted((cases_directory() / "onnx" / "graphs").glob("*.onnxtxt")):
        texts = [text for text in _MODEL.split(path.read_text(encoding="utf-8")) if text.strip()]
        for number, text in enumerate(texts):
            name = GRAPH + path.stem + (f"/{number}" if len(texts) > 1 else "")
            try:
                model = onnx.parser.parse_model(text)
                onnx.checker.check_model(model, full_check=True)
            except Exception as error:
                raise CaseFileError(f"{name}: {type(error).__name__}: {error}") from error
            found[name] = model
    return found


def graph_invocation(model: onnx.ModelProto, overload: str, values: str = "") -> Invocation:
    """Return a model as the invocation of a graph.

    Args:
        model: A model without functions; of an open dimension the size is two.
        overload: The overload of the invocation.
        values: Decides the values of the inputs, with their places; the same text gives the same values.

    Raises:
        NotWritable: it is no program of calls.
    """
    return _Writer(model, values).write_program(overload.removeprefix(GRAPH)).invocation


class _Writer:
    """Writes the nodes of a model as calls."""

    def __init__(self, model: onnx.ModelProto, values: str) -> None:
        self._model = model
        self._values = values
        self._opsets = {imported.domain: imported.version for imported in model.opset_import}
        self._known: dict[str, Argument] = {
            tensor.name: Weight(_literal(numpy_helper.to_array(tensor))) for tensor in model.graph.initializer
        }
        self._inputs = {value.name: value for value in model.graph.input if value.name not in self._known}
        self._places: dict[str, int] = {}

    def write_program(self, name: str) -> Program:
        """Return the program."""
        calls: list[Invocation] = []
        for node in self._model.graph.node:
            constant = constant_tensor(node)
            if constant is not None:
                self._known[constant.name] = Weight(_literal(numpy_helper.to_array(constant)))
                continue
            calls.append(self._call(node, len(calls)))
        returns = tuple(self._returned(value.name) for value in self._model.graph.output)
        return Program(name, tuple(calls), returns, GRAPH, self._derived_names())

    def _derived_names(self) -> tuple[DerivedName, ...]:
        """Return the values that are named after others, as optimisers name what they make."""
        fixed = {value.name for value in (*self._model.graph.input, *self._model.graph.output)}
        made = {name for node in self._model.graph.node for name in (*node.input, *node.output)}
        places = self._known | {name: Input(place) for name, place in self._places.items()}
        known = {name: value for name, value in places.items() if name in made and isinstance(value, Returned)}
        return tuple(
            (value, known[base], suffix)
            for name, value in known.items()
            for suffix in SUFFIXES
            if name not in fixed and (base := name.removesuffix(suffix)) != name and base in known
        )

    def _call(self, node: onnx.NodeProto, place: int) -> Invocation:
        schema = self._schema(node)
        arguments: list[tuple[str, Argument]] = []
        for position, parameter in enumerate(schema.inputs):
            if parameter.is_variadic:
                arguments.append((parameter.name, tuple(self._argument(name) for name in node.input[position:])))
            elif position < len(node.input) and node.input[position]:
                arguments.append((parameter.name, self._argument(node.input[position])))
        for attribute in sorted(node.attribute, key=lambda attribute: attribute.name):
            arguments.append((attribute.name, _attribute_argument(attribute)))
        named = tuple(i for i, name in enumerate(node.output) if name)
        if named != tuple(range(max(schema.least_outputs, 1))):
            arguments.append((OUTPUTS, named))
        for number, output in enumerate(named):
            self._known[node.output[output]] = Result(place, number)
        return Invocation(schema.overload, tuple(arguments))

    def _schema(self, node: onnx.NodeProto) -> OnnxSchema:
        try:
            return _schema_at(node.domain, node.op_type, self._opsets.get("", 0))
        except Exception as error:
            raise NotWritable(f"{node.domain}.{node.op_type}: {error}") from None

    def _argument(self, name: str) -> Argument:
        if name in self._known:
            return self._known[name]
        if name in self._places:
            return Input(self._places[name])
        if name not in self._inputs:
            raise NotWritable(f"{name} is computed nowhere")
        self._places[name] = len(self._places)
        return self._spec(self._inputs[name], self._places[name])

    def _returned(self, name: str) -> Returned:
        found = self._known.get(name)
        if isinstance(found, Result | Weight):
            return found
        if name not in self._places:
            raise NotWritable(f"{name} is returned and read by nothing")
        return Input(self._places[name])

    def _spec(self, value: onnx.ValueInfoProto, place: int) -> TensorSpec:
        tensor = value.type.tensor_type
        shape = tuple(d.dim_value if d.HasField("dim_value") else _OPEN_SIZE for d in tensor.shape.dim)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name
        if value.type.WhichOneof("value") != "tensor_type" or dtype == "object":
            raise NotWritable(f"{value.name} is no tensor of numbers")
        style = ("plain", "mixed", "halves", "one")[zlib.crc32(f"{self._values}/{place}/style".encode()) % 4]
        seed = zlib.crc32(f"{self._values}/{place}".encode())
        domain = _ANY if dtype.startswith(("float", "bfloat")) or dtype == "bool" else _INDICES
        recipe = Recipe(domain, style if self._values and domain is _ANY else "plain", seed)
        return TensorSpec(shape, dtype, contiguous_strides(shape), 0, recipe)


@cache
def _schema_at(domain: str, operator: str, opset: int) -> OnnxSchema:
    version = 1 if domain else onnx.defs.get_schema(operator, opset, "").since_version
    return find_schema(f"{domain or 'ai.onnx'}.{operator}.{version}")


def _literal(array: Any) -> TensorSpec:
    dtype = array.dtype.name
    if array.dtype.kind == "O":
        raise NotWritable("a constant of strings")
    wide = array.astype(np.float64) if array.dtype.kind in "fV" else array
    values = tuple(wide.reshape(-1).tolist())
    return TensorSpec(array.shape, dtype, contiguous_strides(array.shape), 0, Literal(values))


def _attribute_argument(attribute: AttributeProto) -> Argument:
    value = helper.get_attribute_value(attribute)
    match attribute.type:
        case AttributeProto.GRAPH:
            return str(onnx.printer.to_text(value))
        case AttributeProto.TENSOR:
            return Weight(_literal(numpy_helper.to_array(value)))
        case AttributeProto.STRING:
            return str(value.decode())
        case AttributeProto.STRINGS:
            return tuple(part.decode() for part in value)
        case AttributeProto.FLOATS | AttributeProto.INTS:
            return tuple(value)
        case AttributeProto.FLOAT | AttributeProto.INT:
            return value  # type: ignore[no-any-return]
    raise NotWritable(f"the attribute {attribute.name}")
