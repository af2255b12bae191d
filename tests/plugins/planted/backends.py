"""Backends: ONNX Runtime with defects, each in how one ONNX operator is computed, optimised or accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from harness.core.dtypes import Array
from harness.run.backend import (
    BACKENDS,
    Backend,
    BackendEntry,
    BackendFailure,
    BackendSession,
    InvalidModel,
    ShapeRange,
    register,
)

Rewrite = Callable[[onnx.NodeProto], None]


def _becomes(operator: str) -> Rewrite:
    def rewrite(node: onnx.NodeProto) -> None:
        node.op_type = operator

    return rewrite


def _swaps_inputs(node: onnx.NodeProto) -> None:
    inputs = list(node.input)
    del node.input[:]
    node.input.extend(inputs[::-1])


def _drops_attributes(node: onnx.NodeProto) -> None:
    del node.attribute[:]


def _swaps_branches(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        attribute.name = {"then_branch": "else_branch", "else_branch": "then_branch"}[attribute.name]


#: ATen operator → the ONNX operator that it becomes, and what the kernel computes instead.
WRONG_KERNELS: Mapping[str, tuple[str, Rewrite]] = {
    "aten.floor.default": ("Floor", _becomes("Ceil")),
    "aten.sin.default": ("Sin", _becomes("Cos")),
    "aten.maximum.default": ("Max", _becomes("Min")),
    "aten.gt.Tensor": ("Greater", _becomes("GreaterOrEqual")),
    "aten.sub.Tensor": ("Sub", _swaps_inputs),
    "aten.leaky_relu.default": ("LeakyRelu", _drops_attributes),
    "aten.erf.default": ("Erf", _becomes("Tanh")),
    "aten.logical_and.default": ("And", _becomes("Or")),
    "control_flow.cond.default": ("If", _swaps_branches),
}
#: The same, but right with optimisations off.
WRONG_OPTIMISATIONS: Mapping[str, tuple[str, Rewrite]] = {
    "aten.round.default": ("Round", _becomes("Floor")),
    "aten.neg.default": ("Neg", _becomes("Abs")),
    "aten.div.Tensor": ("Div", _swaps_inputs),
    "aten.le.Tensor": ("LessOrEqual", _becomes("Less")),
    "aten.logical_xor.default": ("Xor", _becomes("Or")),
    "aten.tanh.default": ("Tanh", _becomes("Erf")),
}
#: ATen operator → the ONNX operator that is taken for invalid on loading, or fails when it is run.
REJECTED: Mapping[str, tuple[str, str]] = {
    "aten.mul.Tensor": ("Mul", "load"),
    "aten.sqrt.default": ("Sqrt", "load"),
    "aten.ceil.default": ("Ceil", "load"),
    "aten.exp.default": ("Exp", "run"),
    "aten.log.default": ("Log", "run"),
    "aten.sigmoid.default": ("Sigmoid", "run"),
}


class _Wrapped:
    """ONNX Runtime."""

    device = "cpu"
    version = "planted 1.0"

    def __init__(self, name: str) -> None:
        entry, argument = BACKENDS.find("ort-cpu")
        self.name = name
        self._inner: Backend = entry.create(argument)

    def narrows(self, dtype: str) -> str | None:
        """See `harness.run.backend.Backend`."""
        return self._inner.narrows(dtype)


class _Rewritten(_Wrapped):
    def __init__(self, name: str, defects: Mapping[str, tuple[str, Rewrite]]) -> None:
        super().__init__(name)
        self._rewrites = dict(defects.values())

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """See `harness.run.backend.Backend`."""
        changed = onnx.ModelProto()
        changed.CopyFrom(model)
        for node in changed.graph.node:
            if node.op_type in self._rewrites:
                self._rewrites[node.op_type](node)
        return self._inner.load(changed, shapes)


class WrongKernels(_Rewritten):
    """Wrong with and without optimisations."""

    def plain(self) -> Backend:
        """See `harness.run.backend.HasPlain`."""
        return self


class WrongOptimisations(_Rewritten):
    """Right with optimisations off."""

    def plain(self) -> Backend:
        """See `harness.run.backend.HasPlain`."""
        return self._inner


class _Failing:
    runnable = True

    def __init__(self, operator: str) -> None:
        self._operator = operator

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """See `harness.run.backend.BackendSession`."""
        raise BackendFailure(f"planted: {self._operator} failed")


class Rejecting(_Wrapped):
    """Takes valid models for invalid ones."""

    def load(self, model: onnx.ModelProto, shapes: Mapping[str, ShapeRange] | None) -> BackendSession:
        """See `harness.run.backend.Backend`."""
        stages = dict(REJECTED.values())
        for node in model.graph.node:
            if stages.get(node.op_type) == "load":
                raise InvalidModel(f"planted: {node.op_type} is not valid", [node.name])
        for node in model.graph.node:
            if stages.get(node.op_type) == "run":
                return _Failing(node.op_type)
        return self._inner.load(model, shapes)


def _register(name: str, create: Callable[[], Backend]) -> None:
    register(
        BackendEntry(
            name=name,
            probe=lambda argument: None,
            create=lambda argument: create(),
            version=lambda argument: "planted 1.0",
            engine="onnxruntime",
        )
    )


_register("planted-kernels", lambda: WrongKernels("planted-kernels", WRONG_KERNELS))
_register("planted-optimiser", lambda: WrongOptimisations("planted-optimiser", WRONG_OPTIMISATIONS))
_register("planted-rejects", lambda: Rejecting("planted-rejects"))
