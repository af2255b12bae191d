"""Which ATen operators a model calls: read off an exported program, or off an ONNX file's nodes."""

from __future__ import annotations

import ast
import re
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from harness.analyse.explain.known import candidate
from harness.analyse.support.model_calls import (
    ModelCall,
    first_reference,
    model_values,
    noted_call,
    plain_call,
    program_call,
)
from harness.record import reason

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
    """A file that is no model; the message is one line that says so."""


@dataclass(frozen=True, kw_only=True)
class ModelOperators:
    """All of an ``onnx`` model or a ``program``.

    Attributes:
        unmapped: Node types and other operators that are not known ATen operators, sorted.
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
        raise ModelError(f"{path} is no exported program that this PyTorch reads: {reason(error)}") from None
    return of_program(program)


def of_program(program: Any) -> ModelOperators:
    """The operators of a `torch.export.ExportedProgram`."""
    import torch

    from harness.core import OpOverload

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
        raise ModelError(f"{path} is no ONNX model: {reason(error)}") from None
    if not model.graph.node and not model.graph.output:
        raise ModelError(f"{path} is no ONNX model: it holds no graph")
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
    from harness.core import overload as find_overload

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
