"""What a model gives to the operators that it calls: dtypes and attributes, as far as its file tells."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import onnx

#: The call that PyTorch's exporter notes on a node.
_NOTE = re.compile(r"call_function\[target=\S+\]\(args = (\(.*\)), kwargs = (\{.*\})\)$")
_REFERENCE = re.compile(r"%([\w.]+)")
#: What the note does not quote: names of keyword arguments, texts, PyTorch's constants, infinities.
_WORD = re.compile(r"(?<![\w'.%])(-inf\b|(?!(?:True|False|None)\b)[A-Za-z_][\w.]*)")
#: Arguments that say dimensions.
_DIMENSIONS = re.compile(r"(?:\w+_)?dims?\d?|axis\d?|source|destination")
#: Operators whose dimensions are those of a result that has one more than the tensor.
_ONE_MORE = ("aten.unsqueeze.", "aten.stack.", "aten.diag_embed.")


@dataclass(frozen=True)
class ModelCall:
    """One kind of call.

    Attributes:
        dtypes: Argument → dtype of its tensor, or of the first of its tensors; those that are known.
        attributes: Argument that is no tensor → value, defaults too; those that are known.
        rank: Of the first tensor; None where it is not known.
        any_attributes: Whether the question is about the operator as such, with whatever attributes.
    """

    overload: str
    dtypes: Mapping[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rank: int | None = None
    any_attributes: bool = False

    def gives(self, name: str, value: Any) -> bool:
        """Whether an argument has this value, or one that means the same: dimension -1 is the last one."""
        return bool(self._meant(name, self.attributes.get(name)) == self._meant(name, value))

    def _meant(self, name: str, value: Any) -> Any:
        """The value with dimensions counted from the first one."""
        if self.rank is None or not _DIMENSIONS.fullmatch(name):
            return value
        if isinstance(value, list):
            return [self._meant(name, one) for one in value]
        rank = max(1, self.rank + self.overload.startswith(_ONE_MORE))
        negative = isinstance(value, int) and -rank <= value < 0
        return value + rank if negative else value

    def __str__(self) -> str:
        """``aten.celu.default(float32, alpha=2.0)``."""
        given = [*self.dtypes.values(), *(f"{name}={value}" for name, value in self.attributes.items())]
        return f"{self.overload}({', '.join(given)})"


def program_call(node: Any) -> ModelCall:
    """The call of a node of an exported program."""
    import torch

    def dtype(value: Any) -> str:
        first = value[0] if isinstance(value, list | tuple) and value else value
        tensor = first.meta.get("val") if isinstance(first, torch.fx.Node) else None
        return str(tensor.dtype).removeprefix("torch.") if isinstance(tensor, torch.Tensor) else ""

    def known(value: Any) -> bool:
        parts = value if isinstance(value, list | tuple) else [value]
        return not any(isinstance(part, torch.fx.Node) for part in parts)

    given = dict(_named(str(node.target), list(node.args), dict(node.kwargs)))
    call = _call(str(node.target), given, {name: dtype(value) for name, value in given.items()}, known)
    values = (first.meta.get("val") for first in node.all_input_nodes)
    rank = next((value.dim() for value in values if isinstance(value, torch.Tensor)), None)
    return replace(call, rank=rank)


def noted_call(overload: str, note: str, node: onnx.NodeProto, values: ModelValues) -> ModelCall:
    """The call that an exporter noted on a node.

    Args:
        note: ``%celu : … = call_function[target=…](args = (%x, 2.0), kwargs = {})``.
    """
    types = values.types
    found = _NOTE.search(note)
    if found is None:
        return plain_call(overload, node, values)
    texts = (_REFERENCE.sub(r"'%\1'", _WORD.sub(r"'\1'", text)) for text in found.groups())
    try:
        args, kwargs = map(ast.literal_eval, texts)
    except (ValueError, SyntaxError):
        return plain_call(overload, node, values)

    def is_reference(value: Any) -> bool:
        first = value[0] if isinstance(value, list | tuple) and value else value
        return isinstance(first, str) and first.startswith("%")

    given = dict(_named(overload, list(args), kwargs))
    dtypes: dict[str, str] = {}
    for name, value in given.items():
        if is_reference(value):
            first = value[0] if isinstance(value, list | tuple) else value
            # The first tensor is the node's first input, whatever it is called there.
            fallback = "" if dtypes else next((types[i] for i in node.input if i in types), "")
            dtypes[name] = types.get(first[1:], fallback)
    rank = values.ranks.get(first_reference(note), values.rank_of_first(node))
    return replace(_call(overload, given, dtypes, lambda value: not is_reference(value)), rank=rank)


def first_reference(note: str) -> str:
    """The name of the first tensor in a note, ``celu_1``; "" for none."""
    found = _NOTE.search(note)
    reference = _REFERENCE.search(found[1]) if found is not None else None
    return reference[1] if reference is not None else ""


def plain_call(overload: str, node: onnx.NodeProto, values: ModelValues) -> ModelCall:
    """The call that a node without a note stands for: its inputs are the tensors, in order."""
    arguments = _schema(overload)
    tensors = [a.name for a in arguments if "Tensor" in str(a.type)]
    inputs = [values.types.get(name, "") for name in node.input]
    dtypes = {name: dtype for name, dtype in zip(tensors, inputs, strict=False) if dtype}
    names = {argument.name for argument in arguments}
    given = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if a.name in names}
    attributes = {n: v for n, v in given.items() if isinstance(v, int | float | list)}
    return ModelCall(overload, dtypes, attributes, values.rank_of_first(node))


@dataclass(frozen=True)
class ModelValues:
    """What is known of the values of a model's graph, by their names.

    Attributes:
        types: Dtypes.
        ranks: Numbers of dimensions.
    """

    types: Mapping[str, str]
    ranks: Mapping[str, int]

    def rank_of_first(self, node: onnx.NodeProto) -> int | None:
        """Of a node's first input; None where it is not known."""
        return self.ranks.get(node.input[0]) if node.input else None


def model_values(model: onnx.ModelProto) -> ModelValues:
    """What a model says of its values, and what shape inference finds."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:
        # A model that is larger than protobuf allows, or invalid.
        graph = model.graph
    values = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    found = {name: tensor.elem_type for name, tensor in values.items()}
    found |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    words = {"float": "float32", "double": "float64"}
    named = {name: onnx.TensorProto.DataType.Name(kind).lower() for name, kind in found.items() if kind}
    ranks = {name: len(tensor.shape.dim) for name, tensor in values.items() if tensor.HasField("shape")}
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    return ModelValues({name: words.get(word, word) for name, word in named.items()}, ranks)


def _call(overload: str, given: Mapping[str, Any], dtypes: Mapping[str, str], known: Any) -> ModelCall:
    attributes = {}
    for argument in _schema(overload):
        if "Tensor" in str(argument.type):
            continue
        if argument.name in given:
            if known(given[argument.name]):
                attributes[argument.name] = _number(plain_value(given[argument.name]))
        elif argument.has_default_value():
            attributes[argument.name] = plain_value(argument.default_value)
    return ModelCall(overload, {name: dtype for name, dtype in dtypes.items() if dtype}, attributes)


def _number(value: Any) -> Any:
    """A number that notes have as a word."""
    return float(value) if value in ("inf", "-inf", "nan") else value


def plain_value(value: Any) -> Any:
    """A value as JSON has it: lists for tuples, ``torch.float32`` as text."""
    if isinstance(value, list | tuple):
        return [plain_value(element) for element in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _named(overload: str, args: list[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Arguments by the schema's names."""
    for argument, value in zip(_schema(overload), args, strict=False):
        yield argument.name, value
    yield from kwargs.items()


def _schema(overload: str) -> list[Any]:
    from harness.core import overload as find_overload

    try:
        return list(find_overload(overload)._schema.arguments)
    except LookupError:
        return []
