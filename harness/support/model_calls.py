"""The operator calls of a model, read off its file.

What a model gives to the operators that it calls: dtypes and attributes, as far as its file tells.

Which ATen operators a model calls: read off an exported program, or off an ONNX file's nodes.
"""

from __future__ import annotations

import ast
import re
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx

from harness.explain.onnx_operator import candidate
from harness.record.layout import reason

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
        attributes: Argument that is not a tensor → value, defaults too; those that are known.
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
    from harness.core.tensors import overload as find_overload

    try:
        return list(find_overload(overload)._schema.arguments)
    except LookupError:
        return []


#: What torch.onnx.export(dynamo=True) notes on each node: the module path down to the ATen operator.
_HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_NAMES = "pkg.torch.onnx.name_scopes"
_CALL = "pkg.torch.onnx.fx_node"
_OVERLOAD = re.compile(r"(?:aten|prims|torchvision|quantized)\.\w+\.\w+")
#: PyTorch's exporter numbers calls of one name: ``conv2d_1``.
_NUMBERED = re.compile(r"_\d+$")
#: Nodes that do nothing of their own.
_GLUE = frozenset({"Constant", "Identity", "Cast", "CastLike"})


class ModelError(Exception):
    """A file that is not a model; the message is one line that says so."""


@dataclass(frozen=True, kw_only=True)
class ModelOperators:
    """All of an ``onnx`` model or a ``program``.

    Attributes:
        unmapped: Node types and other operators that are not known as an ATen operators, sorted.
        calls: The kinds of calls of ATen operators, sorted.
    """

    kind: str
    unmapped: tuple[str, ...]
    calls: tuple[ModelCall, ...] = ()


def operators_of(path: Path, covered: Sequence[str]) -> ModelOperators:
    """The operators of a model file.

    Args:
        path: ``.onnx``, or ``.pt2`` as `torch.export.save` writes it.
        covered: Overloads with an operator case; of several that a node may come from, these are preferred.

    Raises:
        ModelError: the file is neither, or damaged.
    """
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file")
    if path.suffix == ".pt2" or zipfile.is_zipfile(path):
        return _of_program(path)
    return _of_onnx(path, covered)


def _of_program(path: Path) -> ModelOperators:
    import torch

    try:
        program = torch.export.load(str(path))
    except Exception as error:
        raise ModelError(f"{path} is not a readable exported program: {reason(error)}") from None
    return of_program(program)


def of_program(program: Any) -> ModelOperators:
    """The operators of a `torch.export.ExportedProgram`."""
    import torch

    from harness.core.torch_operators import OpOverload

    other: set[str] = set()
    calls: dict[str, ModelCall] = {}
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "call_function" and isinstance(node.target, OpOverload):
                name = str(node.target)
                if name.startswith("aten."):
                    call = program_call(node)
                    calls[str(call)] = call
                else:
                    other.add(name)
    return ModelOperators(kind="program", unmapped=tuple(sorted(other)), calls=_sorted(calls))


def _of_onnx(path: Path, covered: Sequence[str]) -> ModelOperators:
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise ModelError(f"{path} is not an ONNX model: {reason(error)}") from None
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path} is not an ONNX model: it holds no graph")
    return of_onnx(model, covered)


def of_onnx(model: onnx.ModelProto, covered: Sequence[str]) -> ModelOperators:
    """The operators of an ONNX model; for `covered` see `operators_of`."""
    noted: dict[str, set[str]] = defaultdict(set)
    functions = {(f.domain, f.name) for f in model.functions}
    values = model_values(model)
    calls: dict[str, ModelCall] = {}
    unnoted: dict[tuple[str, int], list[onnx.NodeProto]] = defaultdict(list)
    there = _values(model)
    for number, node in enumerate(_nodes(model)):
        notes = {entry.key: entry.value for entry in node.metadata_props}
        name = _noted(notes)
        fused = _fused(node, notes.get(_CALL, ""), there) if name is not None else ""
        if fused:
            name, notes[_CALL] = fused, ""
        if name is not None:
            scope = notes.get(_NAMES) or str(number)
            if name.startswith("aten.") and scope not in noted[name]:
                call = noted_call(name, notes.get(_CALL, ""), node, values)
                calls[str(call)] = call
            noted[name].add(scope)
        elif (node.domain, node.op_type) not in functions and node.op_type not in _GLUE:
            node_type = f"{node.domain}::{node.op_type}" if node.domain else node.op_type
            unnoted[node_type, sum(map(bool, node.input))].append(node)
    other = {name for name in noted if not name.startswith("aten.")}
    by_name = _by_name(covered) if unnoted else {}
    for (node_type, inputs), nodes in unnoted.items():
        choices = by_name.get(node_type)
        if not choices:
            other.add(node_type)
            continue
        best = min(choices, key=lambda overload: _plainness(overload, node_type, inputs, covered))
        for node in nodes:
            call = plain_call(best, node, values)
            calls[str(call)] = call
    return ModelOperators(kind="onnx", unmapped=tuple(sorted(other)), calls=_sorted(calls))


def _sorted(calls: Mapping[str, ModelCall]) -> tuple[ModelCall, ...]:
    return tuple(calls[text] for text in sorted(calls))


def _nodes(model: Any) -> Iterator[Any]:
    """All nodes, those of subgraphs and functions too."""
    waiting = [model.graph.node, *(function.node for function in model.functions)]
    while waiting:
        for node in waiting.pop():
            yield node
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    waiting.append(attribute.g.node)
                waiting += [graph.node for graph in attribute.graphs]


def _values(model: Any) -> set[str]:
    """The names of all values of a model's graphs."""
    found = {value.name for value in (*model.graph.input, *model.graph.initializer)}
    return found | {name for node in _nodes(model) for name in node.output}


def _fused(node: onnx.NodeProto, note: str, there: Collection[str]) -> str:
    """The operator of a node whose note is of what was fused with it, as a Conv takes in what follows it.

    The note's first tensor is then what the node would have given before, and is named after the operator.
    Of other nodes "".
    """
    before = first_reference(note)
    if not before or before in there:
        return ""
    packet = _NUMBERED.sub("", before)
    known = candidate(f"aten::{packet}")
    return f"aten.{packet}.default" if known is not None and known.onnx == node.op_type else ""


def _noted(notes: Mapping[str, str]) -> str | None:
    """The operator that the exporter noted on a node; None without a note."""
    try:
        path = ast.literal_eval(notes.get(_HIERARCHY, "[]"))
        last = str(path[-1]) if path else ""
    except (ValueError, SyntaxError, TypeError, IndexError, KeyError):
        return None
    return last if _OVERLOAD.fullmatch(last) else None


def _by_name(covered: Sequence[str]) -> dict[str, list[str]]:
    """ONNX node type → overloads that it may stand for, as `conformance explain` finds them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for overload in covered:
        known = candidate(overload.rpartition(".")[0].replace(".", "::", 1))
        if known is not None:
            found[known.onnx].append(overload)
    return found


def _takes(overload: str, inputs: int) -> bool:
    """Whether a call can stand for a node with so many inputs, which are tensors or other arguments."""
    from harness.core.tensors import overload as find_overload

    try:
        arguments = find_overload(overload)._schema.arguments
    except LookupError:
        return False
    types = [str(argument.type) for argument in arguments if not argument.kwarg_only]
    # Each tensor of a list is an input of its own.
    return "List[Tensor]" in types or types.count("Tensor") <= inputs <= len(types)


def _plainness(overload: str, node_type: str, inputs: int, covered: Sequence[str]) -> tuple[Any, ...]:
    """Sorts the likeliest origin of a node first: it takes the inputs, and has the name that models call."""
    packet, _, name = overload.removeprefix("aten.").partition(".")
    return (
        not _takes(overload, inputs),
        overload not in covered,
        packet.replace("_", "").lower() != node_type.lower(),
        packet.startswith("_"),
        name not in ("default", "Tensor"),
        len(overload),
        overload,
    )
