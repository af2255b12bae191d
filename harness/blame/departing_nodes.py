"""The calls of a translated program at which a result goes wrong, by their values or by ONNX's rules for forms."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir
import onnx_ir.tensor_adapters
import torch

from harness.blame.first_divergence import BUDGET, scan_checkpoints
from harness.convert.provenance import EmittedGraph
from harness.core.dtypes import Array
from harness.core.torch_operators import OpOverload
from harness.pipeline.intermediate_values import OfWholeModel, PyTorchGraph
from harness.run.backend import Backend


def departing_nodes(
    graph: EmittedGraph, tensors: Sequence[torch.Tensor], feeds: dict[str, Array], backend: Backend
) -> frozenset[str]:
    """Return the names of the calls that compute the first wrong value; empty if it is unknown.

    A program of one call is not run, since its call is the only candidate.

    Args:
        graph: The export, with the program that was translated.
        tensors: The inputs of the program.
        feeds: The same inputs in the export's form.
        backend: Runs the export.
    """
    program = graph.program
    if program is None:
        return frozenset()
    of_form = wrongly_formed(graph)
    if of_form:
        return of_form
    torch_graph = PyTorchGraph.bind(program, tuple(tensors))
    if len(torch_graph.nodes) < 2:
        return frozenset()
    try:
        values = OfWholeModel(graph.model, torch_graph, backend, feeds, torch_graph.sizes(), BUDGET)
        scan = scan_checkpoints(torch_graph, values, lambda: None, thorough=True)
    except Exception:
        # If the runtime or PyTorch fail on the parts, the rest of the evidence stands.
        return frozenset()
    if scan.departure is None:
        return frozenset()
    return frozenset(node.name for node in scan.departure.region.nodes)


def wrongly_formed(graph: EmittedGraph) -> frozenset[str]:
    """Return the name of the first node whose dtype or shape differs between ONNX's rules and PyTorch.

    The set is empty if all agree, or if ONNX's rules do not tell.
    """
    if graph.program is None:
        return frozenset()
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    # The exporter writes down PyTorch's forms; the forms that follow from the nodes are needed.
    del model.graph.value_info[:]
    outputs = [output.name for output in model.graph.output]
    for output in model.graph.output:
        output.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except Exception:
        # If inference fails, the rest of the evidence stands.
        return frozenset()
    forms = {v.name: _form(v) for v in (*inferred.graph.value_info, *inferred.graph.output)}
    results: Any = graph.program.graph.output_node().args[0]
    for node, name in zip(results, outputs, strict=False):
        if isinstance(node, torch.fx.Node) and name in forms:
            forms[node.name] = forms[name]
    for node in graph.program.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        promised = _promised(value)
        if node.op != "call_function":
            forms.setdefault(node.name, promised)
        elif node.name not in graph.of_node and isinstance(node.target, OpOverload):
            # Nothing was emitted for it: it has the value of its input.
            read = next((forms[n.name] for n in node.all_input_nodes if n.name in forms), promised)
            forms.setdefault(node.name, read)
        if forms.get(node.name, promised).contradicts(promised):
            return frozenset({_computing(node).name})
    return frozenset()


def _computing(node: torch.fx.Node) -> torch.fx.Node:
    """Return the call that a node picks one result from; any other node itself."""
    if node.target is operator.getitem and isinstance(node.args[0], torch.fx.Node):
        return node.args[0]
    return node


@dataclass(frozen=True)
class _Form:
    """The known form of a value.

    Attributes:
        elem_type: ONNX's number of the dtype; 0 if unknown.
        shape: None if the rank is unknown; a size is None if it is unknown.
    """

    elem_type: int
    shape: tuple[int | None, ...] | None

    def contradicts(self, other: _Form) -> bool:
        """Whether both cannot be true of one value."""
        if not self.elem_type:
            return False
        if self.elem_type != other.elem_type:
            return True
        if self.shape is None or other.shape is None:
            return False
        sizes = zip(self.shape, other.shape, strict=False)
        return len(self.shape) != len(other.shape) or any(a != b for a, b in sizes if a is not None and b is not None)


def _promised(value: torch.Tensor) -> _Form:
    """Return the form that PyTorch gives a value, as the exporter represents it: a complex number is two real ones."""
    shape = tuple(n if isinstance(n, int) else None for n in value.shape)
    if value.dtype.is_complex:
        return _Form(_elem_type(value.dtype.to_real()), (*shape, 2))
    return _Form(_elem_type(value.dtype), shape)


def _elem_type(dtype: torch.dtype) -> int:
    return int(onnx_ir.tensor_adapters.from_torch_dtype(dtype))


def _form(value: onnx.ValueInfoProto) -> _Form:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return _Form(tensor.elem_type, None)
    sizes = (dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
    return _Form(tensor.elem_type, tuple(sizes))
