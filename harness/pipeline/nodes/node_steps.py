"""Split a graph into steps, a node each or several that exchange values other than tensors.

Results of a step are judged by its operator: choices exactly, sums by their terms, others closely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import onnx
from onnx import helper, numpy_helper
from onnx.inliner import inline_local_functions

from harness.core.dtypes import Array
from harness.core.onnx_constants import constant_tensor
from harness.pipeline.submodel import outer_names

#: Results are elements of the inputs, or numbers that follow from them without a rounding. The definition is
#: evaluated in the dtypes that the node has, and one answer is right.
EXACT: frozenset[str] = frozenset(
    {
        # Moved or selected.
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Concat"),
        *("Split", "Slice", "Gather", "GatherElements", "GatherND", "Where", "Compress", "Pad", "Trilu"),
        *("DepthToSpace", "SpaceToDepth", "ReverseSequence", "CenterCropPad", "ScatterElements", "ScatterND"),
        *("OneHot", "EyeLike", "ConstantOfShape", "Constant", "Shape", "Size", "NonZero", "Unique"),
        *("SequenceConstruct", "SequenceAt", "SplitToSequence", "ConcatFromSequence", "TensorScatter"),
        *("MaxPool", "GlobalMaxPool", "Max", "Min", "ReduceMax", "ReduceMin", "TopK", "ArgMax", "ArgMin"),
        *("Clip", "Relu", "BitCast"),
        # Decided, or rounded to a whole number.
        *("Abs", "Neg", "Sign", "Floor", "Ceil", "Round", "IsNaN", "IsInf", "Not", "And", "Or", "Xor"),
        *("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "BitShift"),
        *("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"),
        # The rounding is the definition.
        *("Cast", "CastLike"),
    }
)

#: A zero that is copied keeps its sign.
COPIES: frozenset[str] = frozenset(
    {
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Tile", "Concat"),
        *("Split", "Slice", "Gather", "GatherElements", "GatherND", "Where", "Compress", "Trilu"),
        *("DepthToSpace", "SpaceToDepth", "ReverseSequence", "Neg", "Cast", "CastLike"),
    }
)

#: Sums of products: roundings scale with the sum of the terms' magnitudes.
ACCUMULATING: frozenset[str] = frozenset(
    {
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "ReduceSum", "ReduceMean", "ReduceSumSquare"),
        *("CumSum", "AveragePool", "GlobalAveragePool", "Sum", "Mean", "Add", "Sub", "ReduceL1", "ReduceL2"),
        *("Col2Im", "DFT", "STFT", "Resize", "GridSample", "LpPool", "RoiAlign"),
        *("Attention", "CausalConvWithState", "DeformConv", "QLinearConv"),
        # ONNX Runtime's own.
        *("FusedMatMul", "FusedConv", "FusedGemm"),
    }
)

#: Operator → places of the inputs that say where its terms lie or how many they are, and are none.
PLACING: Mapping[str, frozenset[int]] = {
    "Resize": frozenset({1, 2}),
    "GridSample": frozenset({1}),
    "RoiAlign": frozenset({1}),
    # Weights are those of queries and keys; the terms are values.
    "Attention": frozenset({0, 1, 3, 4, 6}),
    "DeformConv": frozenset({2}),
}


@dataclass(frozen=True, eq=False)
class NodeStep:
    """Nodes that are run together.

    Attributes:
        index: Index of the first node in the graph, without ``Constant`` nodes.
        nodes: One node, or several that exchange sequences or optional values, which no runtime takes as inputs.
            Each is named by its place, so that a runtime's message does not depend on the graph's names:
            an exporter gives other names to a case in a batch than to the same case alone.
        inputs: Names of the tensors that they take.
        outputs: Names of the tensors that they give, to any reader.
    """

    index: int
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def node(self) -> onnx.NodeProto:
        """The last node, which stands for the step."""
        return self.nodes[-1]

    @property
    def is_single(self) -> bool:
        """Whether it is one node without a body."""
        return len(self.nodes) == 1 and not any(a.HasField("g") or a.graphs for a in self.node.attribute)

    @cached_property
    def names_alone(self) -> Mapping[str, str]:
        """Return the names of the tensors in the step's own model: by their places, if it is single,
        so that the same nodes are the same model."""
        if not self.is_single:
            return {name: name for name in (*self.inputs, *self.outputs)}
        given = {name: f"y{i}" for i, name in enumerate(self.outputs)}
        return given | {name: f"x{i}" for i, name in enumerate(self.inputs)}


@dataclass(frozen=True, eq=False)
class SteppedGraph:
    """A model in steps.

    Attributes:
        model: The model, with its own functions inlined.
        constants: Weights and the results of ``Constant`` nodes.
    """

    model: onnx.ModelProto
    steps: tuple[NodeStep, ...]
    constants: Mapping[str, onnx.TensorProto]

    def alone(
        self, step: NodeStep, values: Mapping[str, Array], *, fed_with_constants: bool = False
    ) -> onnx.ModelProto:
        """Return a model of one step; its inputs are its values other than constants, or all values.

        Its values are called as `NodeStep.names_alone` says.
        """
        part = self._bare(step)
        for name in step.inputs:
            if name in self.constants and not fed_with_constants:
                part.graph.initializer.append(self.constants[name])
                part.graph.initializer[-1].name = step.names_alone[name]
                continue
            array = values[name]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            info = helper.make_tensor_value_info(step.names_alone[name], kind, array.shape)
            part.graph.input.append(info)
        return _declare_types(part)

    def feeds_alone(self, step: NodeStep, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs of the model of one step, without the constants that it holds."""
        return {step.names_alone[name]: values[name] for name in step.inputs if name not in self.constants}

    def _bare(self, step: NodeStep) -> onnx.ModelProto:
        part = onnx.ModelProto()
        part.ir_version = self.model.ir_version
        part.opset_import.extend(self.model.opset_import)
        part.graph.name = "step"
        part.graph.node.extend(step.nodes)
        names = step.names_alone
        if step.is_single:
            (node,) = part.graph.node
            node.name = "node"
            del node.metadata_props[:]
            node.input[:] = [names.get(name, name) for name in node.input]
            node.output[:] = [names.get(name, name) for name in node.output]
        part.graph.output.extend(onnx.ValueInfoProto(name=names[name]) for name in step.outputs)
        return part

    def of(self, step: NodeStep) -> SteppedGraph:
        """Return the graph of one step alone."""
        return replace(self, steps=(step,))

    @cached_property
    def constant_values(self) -> Mapping[str, Array]:
        """The constants as arrays."""
        return {name: numpy_helper.to_array(tensor) for name, tensor in self.constants.items()}


def split_steps(model: onnx.ModelProto) -> SteppedGraph:
    """Return the steps of a model, in order."""
    if model.functions:
        model = inline_local_functions(model)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        tensor = constant_tensor(node)
        if tensor is None:
            nodes.append(_named(node, len(nodes)))
        else:
            constants[tensor.name] = tensor
    read_later = _last_reads(nodes, model)
    no_tensors = _no_tensors(model)
    steps: list[NodeStep] = []
    start = 0
    while start < len(nodes):
        end = _end(start, nodes, read_later, no_tensors)
        steps.append(_step(start, nodes[start : end + 1], read_later, no_tensors, end))
        start = end + 1
    return SteppedGraph(model, tuple(steps), constants)


def join_steps(graph: SteppedGraph) -> NodeStep:
    """Return all steps of a graph as one; the graph's only step is returned unchanged."""
    if len(graph.steps) == 1:
        return graph.steps[0]
    nodes = tuple(node for step in graph.steps for node in step.nodes)
    made = {name for step in graph.steps for name in step.outputs}
    taken = dict.fromkeys(name for step in graph.steps for name in step.inputs if name not in made)
    return NodeStep(0, nodes, tuple(taken), tuple(value.name for value in graph.model.graph.output))


def _named(node: onnx.NodeProto, place: int) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = f"node_{place}"
    return copy


def _step(
    start: int,
    nodes: Sequence[onnx.NodeProto],
    read_later: Mapping[str, int],
    no_tensors: frozenset[str],
    end: int,
) -> NodeStep:
    made = [name for node in nodes for name in node.output if name]
    taken = dict.fromkeys(name for node in nodes for name in outer_names(node) if name not in made)
    given = [n for n in made if n not in no_tensors and (len(nodes) == 1 or read_later.get(n, -1) > end)]
    return NodeStep(start, tuple(nodes), tuple(taken), tuple(given))


def _end(start: int, nodes: Sequence[onnx.NodeProto], read_later: Mapping[str, int], no_tensors: frozenset[str]) -> int:
    """Return the last node that must run together with a node whose result is not a tensor."""
    end, i = start, start
    while i <= end:
        for name in nodes[i].output:
            if name in no_tensors:
                end = max(end, min(read_later.get(name, i), len(nodes) - 1))
        i += 1
    return end


def _last_reads(nodes: Sequence[onnx.NodeProto], model: onnx.ModelProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for i, node in enumerate(nodes):
        found.update(dict.fromkeys(outer_names(node), i))
    found.update(dict.fromkeys((o.name for o in model.graph.output), len(nodes)))
    return found


def _no_tensors(model: onnx.ModelProto) -> frozenset[str]:
    """Return the names of values that are sequences or optional."""
    try:
        known = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        known = model
    values = (*known.graph.value_info, *known.graph.output, *known.graph.input)
    return frozenset(v.name for v in values if v.type.WhichOneof("value") not in (None, "tensor_type"))


def _declare_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Declare the element types of the outputs, which some runtimes exchange differently; no shapes."""
    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        return model
    for output, known in zip(model.graph.output, inferred.graph.output, strict=True):
        element = known.type.tensor_type.elem_type
        if element:
            output.type.tensor_type.elem_type = element
    return model


def node_attribute(node: onnx.NodeProto, name: str, default: object) -> object:
    """Return an attribute of a node; `default` if it has none of that name."""
    found: Sequence[onnx.AttributeProto] = [a for a in node.attribute if a.name == name]
    return onnx.helper.get_attribute_value(found[0]) if found else default
