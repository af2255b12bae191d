"""Defects made by a generator, each of which a failing case can be blamed on.

A plant changes how an honest case comes about: a kernel of the runtime, the graph that the converter emits,
what PyTorch decomposes the call to, a pass of an optimiser. Whether that shows in the case is up to the test.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from harness.convert.converter import Converter, ExportRequest, HasUnoptimised
from harness.convert.operator_calls import OperatorCalls
from harness.core.tensors import output_tensors
from harness.core.torch_operators import pytree
from harness.run.backend import Backend, BackendSession, ShapeRange

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
INTS = (TensorProto.INT64, TensorProto.INT32)

#: Changes the nodes of one type in a model; whether it could.
Slip = Callable[[onnx.ModelProto, int], bool]

# Slips: in place of what a node computes


#: Kernels of others may read beyond an input that has another's shape.
_BINARY = frozenset({"Sub", "Div", "Pow", "Mod", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"})


def swapped(model: onnx.ModelProto, index: int) -> bool:
    """The first two inputs."""
    node = model.graph.node[index]
    if node.op_type not in _BINARY or node.input[0] == node.input[1]:
        return False
    types = _types(model)
    # Whole numbers may be indices, sizes or divisors: other ones may end the process.
    if types.get(node.input[0]) not in FLOATS or types[node.input[0]] != types.get(node.input[1]):
        return False
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return True


_LIKE = {
    "Floor": "Ceil",
    "Ceil": "Floor",
    "Sin": "Cos",
    "Cos": "Sin",
    "Max": "Min",
    "Min": "Max",
    "Greater": "GreaterOrEqual",
    "Less": "LessOrEqual",
    "GreaterOrEqual": "Greater",
    "And": "Or",
    "LessOrEqual": "Less",
    "Or": "And",
    "Xor": "Or",
    "Exp": "Sigmoid",
    "Tanh": "Erf",
    "Erf": "Tanh",
    "ReduceMax": "ReduceMin",
    "ReduceMin": "ReduceMax",
    "ReduceSum": "ReduceMean",
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Add",
    "Div": "Mul",
    "Round": "Floor",
    "Neg": "Abs",
    "Abs": "Neg",
    "Sqrt": "Abs",
    "Sinh": "Sin",
    "ArgMax": "ArgMin",
    "ArgMin": "ArgMax",
    "Softsign": "Tanh",
    "Relu": "Abs",
}


def another_operator(model: onnx.ModelProto, index: int) -> bool:
    """A similar operator."""
    node = model.graph.node[index]
    if node.op_type not in _LIKE or _types(model).get(node.output[0]) in INTS:
        return False
    node.op_type = _LIKE[node.op_type]
    return True


def another_attribute(model: onnx.ModelProto, index: int) -> bool:
    """A number among the attributes."""
    for attribute in model.graph.node[index].attribute:
        if attribute.type == onnx.AttributeProto.FLOAT:
            attribute.f = attribute.f * 1.5 + 0.25
            return True
        if attribute.name in ("largest", "exclusive", "reverse", "upper", "select_last_index"):
            attribute.i = 1 - attribute.i
            return True
    return False


def scaled(model: onnx.ModelProto, index: int) -> bool:
    """A result that is one per cent too large."""
    return _behind(model, index, FLOATS, lambda made, kind, name: [("Mul", [made, _number(name, 1.01, kind)])])


def rounded(model: onnx.ModelProto, index: int) -> bool:
    """A result in float16's precision."""
    return _behind(
        model,
        index,
        (TensorProto.FLOAT, TensorProto.DOUBLE),
        lambda made, kind, name: [("Cast", [made], TensorProto.FLOAT16), ("Cast", [""], kind)],
    )


def one_more(model: onnx.ModelProto, index: int) -> bool:
    """Add one to whole numbers, unless they are indices or sizes."""
    if any(model.graph.node[index].output[0] in node.input for node in model.graph.node):
        return False
    return _behind(model, index, INTS, lambda made, kind, name: [("Add", [made, _number(name, 1, kind)])])


def negated(model: onnx.ModelProto, index: int) -> bool:
    """The opposite."""
    return _behind(model, index, (TensorProto.BOOL,), lambda made, kind, name: [("Not", [made])])


def clipped(model: onnx.ModelProto, index: int) -> bool:
    """Clip values at one half."""
    return _behind(model, index, FLOATS, lambda made, kind, name: [("Min", [made, _number(name, 0.5, kind)])])


def without_nan(model: onnx.ModelProto, index: int) -> bool:
    """Zero in place of NaN."""

    def where(made: str, kind: int, name: str) -> list[tuple[Any, ...]]:
        return [("IsNaN", [made]), ("Where", ["", _number(name, 0.0, kind), made])]

    return _behind(model, index, FLOATS, where)


SLIPS: tuple[Slip, ...] = (
    swapped,
    another_operator,
    another_attribute,
    scaled,
    rounded,
    one_more,
    negated,
    clipped,
    without_nan,
)


@dataclass(frozen=True)
class _Number:
    name: str
    value: float
    kind: int


def _number(name: str, value: float, kind: int) -> _Number:
    return _Number(name, value, kind)


def _types(model: onnx.ModelProto) -> dict[str, int]:
    try:
        known = onnx.shape_inference.infer_shapes(model)
    except onnx.shape_inference.InferenceError:
        known = model
    values = (*known.graph.input, *known.graph.value_info, *known.graph.output)
    types = {v.name: v.type.tensor_type.elem_type for v in values}
    return {**types, **{t.name: t.data_type for t in known.graph.initializer}}


def _behind(
    model: onnx.ModelProto,
    index: int,
    kinds: Collection[int],
    more: Callable[[str, int, str], Sequence[tuple[Any, ...]]],
) -> bool:
    """Put nodes behind one: operator, inputs ("" is what the node before gives), and what a cast is to."""
    node = model.graph.node[index]
    output = node.output[0]
    kind = _types(model).get(output, 0)
    if kind not in kinds:
        return False
    made = f"{output}_before"
    node.output[0] = made
    added, last = [], made
    steps = list(more(made, kind, output))
    for i, (operator, inputs, *to) in enumerate(steps):
        names = []
        for given in inputs:
            if isinstance(given, _Number):
                value = np.asarray(given.value, helper.tensor_dtype_to_np_dtype(given.kind))
                name = f"{given.name}_number"
                model.graph.initializer.append(numpy_helper.from_array(value, name))
                names.append(name)
            else:
                names.append(given or last)
        last = output if i == len(steps) - 1 else f"{output}_{i}"
        added.append(helper.make_node(operator, names, [last], **({"to": to[0]} if to else {})))
    rest = list(model.graph.node[index + 1 :])
    del model.graph.node[index + 1 :]
    model.graph.node.extend([*added, *rest])
    return True


def slipped(model: onnx.ModelProto, operator: str, slip: Slip) -> onnx.ModelProto | None:
    """Return the model with a slip in every node of one type; None if no node can have it."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    done = False
    for index in reversed(range(len(changed.graph.node))):
        if changed.graph.node[index].op_type == operator:
            done |= slip(changed, index)
    return changed if done else None


# What is planted


class WrongKernel:
    """A runtime that computes one operator wrongly, whatever it is asked to optimise."""

    device, version = "cpu", "planted"

    def __init__(self, inner: Backend, operator: str, slip: Slip) -> None:
        self.name = inner.name
        self._inner, self._operator, self._slip = inner, operator, slip

    def plain(self) -> Backend:
        return self

    def narrows(self, dtype: str) -> str | None:
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        return self._inner.load(slipped(model, self._operator, self._slip) or model, shapes)


class WrongRuntimePass:
    """A runtime with several passes, all but one of which change nothing."""

    device, version = "cpu", "planted"

    def __init__(self, inner: Any, guilty: str, names: Sequence[str], operator: str, slip: Slip) -> None:
        self.name = inner.name
        self._inner, self._guilty, self._names = inner, guilty, tuple(names)
        self._operator, self._slip = operator, slip
        self._left_out: tuple[str, ...] = ()

    def plain(self) -> Backend:
        backend: Backend = self._inner.plain()
        return backend

    def passes(self) -> Sequence[str]:
        return self._names

    def without(self, passes: Sequence[str]) -> Backend:
        other = WrongRuntimePass(self._inner, self._guilty, self._names, self._operator, self._slip)
        other._left_out = tuple(passes)
        return other

    def narrows(self, dtype: str) -> str | None:
        return None

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        if self._guilty not in self._left_out:
            model = slipped(model, self._operator, self._slip) or model
        session: BackendSession = self._inner.load(model, shapes)
        return session


class WrongConversion:
    """A converter that translates one operator wrongly, with its optimiser and without."""

    def __init__(self, inner: Converter, operator: str, slip: Slip) -> None:
        self.name, self.version = inner.name, inner.version
        self._inner, self._operator, self._slip = inner, operator, slip

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        model = self._inner.convert(request)
        return slipped(model, self._operator, self._slip) or model

    def unoptimised(self) -> Converter:
        inner = self._inner.unoptimised() if isinstance(self._inner, HasUnoptimised) else self._inner
        return WrongConversion(inner, self._operator, self._slip)

    def program(self, request: ExportRequest) -> torch.onnx.ONNXProgram:
        program: torch.onnx.ONNXProgram = self._inner.program(request)  # type: ignore[attr-defined]
        return program


class _Decomposed(torch.nn.Module):
    """Calls of operators by a decomposition."""

    def __init__(self, calls: OperatorCalls, decomposition: Callable[..., Any]) -> None:
        super().__init__()
        self._calls = [(one, one.call.with_target(decomposition)) for one in calls.calls]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        (one, call), *_ = self._calls
        return tuple(output_tensors(call(tensors[: one.tensors])))


class WrongDecomposition:
    """A converter that translates a program in which PyTorch has decomposed one operator wrongly."""

    def __init__(self, inner: Any, decomposition: Callable[..., Any]) -> None:
        self.name, self.version = inner.name, inner.version
        self._inner, self._decomposition = inner, decomposition

    def _changed(self, request: ExportRequest) -> ExportRequest:
        assert isinstance(request.program, OperatorCalls)
        program = _Decomposed(request.program, self._decomposition).eval()
        return ExportRequest(
            program=program,
            inputs=request.inputs,
            input_names=request.input_names,
            output_names=request.output_names,
            opset=request.opset,
        )

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        model: onnx.ModelProto = self._inner.convert(self._changed(request))
        return model

    def unoptimised(self) -> Converter:
        return WrongDecomposition(self._inner.unoptimised(), self._decomposition)

    def program(self, request: ExportRequest) -> torch.onnx.ONNXProgram:
        program: torch.onnx.ONNXProgram = self._inner.program(self._changed(request))
        return program


def _last(result: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A result with its first tensor changed."""
    leaves, spec = pytree.tree_flatten(result)
    return pytree.tree_unflatten([change(leaves[0]), *leaves[1:]], spec)


def decompositions(definition: Callable[..., Any], chance: random.Random) -> Iterator[Callable[..., Any]]:
    """Wrong ones made of a right one: an argument that is another, a step too many at the end."""

    def other_argument(*args: Any, **kwargs: Any) -> Any:
        changed = [a * 1.5 + 0.25 if isinstance(a, float) and not isinstance(a, bool) else a for a in args]
        return definition(*changed, **kwargs)

    def swapped_arguments(*args: Any, **kwargs: Any) -> Any:
        first, second, *others = args
        return definition(second, first, *others, **kwargs)

    def scaled_result(*args: Any, **kwargs: Any) -> Any:
        return _last(definition(*args, **kwargs), lambda t: torch.ops.aten.mul.Scalar(t, 1.01))

    def moved_result(*args: Any, **kwargs: Any) -> Any:
        return _last(definition(*args, **kwargs), lambda t: torch.ops.aten.add.Scalar(t, 0.125))

    def clamped_result(*args: Any, **kwargs: Any) -> Any:
        return _last(definition(*args, **kwargs), lambda t: torch.ops.aten.clamp_max.default(t, 0.5))

    def first_argument_scaled(*args: Any, **kwargs: Any) -> Any:
        return definition(torch.ops.aten.mul.Scalar(args[0], 1.5), *args[1:], **kwargs)

    made = [other_argument, swapped_arguments, scaled_result, moved_result, clamped_result]
    made.append(first_argument_scaled)
    chance.shuffle(made)
    yield from made


def may_end_the_process(model: onnx.ModelProto) -> bool:
    """Whether a slip may make a divisor zero, or an index one of nothing."""
    types = _types(model)
    given = {v.name for v in (*model.graph.input, *model.graph.initializer)}
    return any(
        (node.op_type in ("Div", "Mod") and types.get(node.input[1]) not in FLOATS)
        or (node.op_type.startswith(("Gather", "Scatter")) and node.input[1] not in given)
        for node in model.graph.node
    )
