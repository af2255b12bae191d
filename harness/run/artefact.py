"""Artefacts, which flow from a converter to a backend: an ONNX model, or another kind.

A converter declares the kind that it makes (`ConverterEntry.makes`), a backend the kinds that it takes
(`BackendEntry.takes`). Draws, comparison, shrinking and the record are the same for all kinds; only ONNX models have a
checker, opsets and definitions of single nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import onnx

from harness.core.dtypes import Array

if TYPE_CHECKING:
    # Goldens are run without PyTorch.
    import torch

#: The kind of an `onnx.ModelProto`.
ONNX = "onnx"
#: A PyTorch module with example inputs, for `torch.compile`.
CALLABLE = "callable"
#: An `openvino.Model`.
OPENVINO_IR = "openvino-ir"
#: The bytes of a ``.pte`` file.
EXECUTORCH = "executorch"
#: The bytes of a ``.tflite`` file.
LITERT = "litert"


class PlacedNode(NamedTuple):
    """A node of a loaded model, as the runtime sees it after its first optimisations.

    Attributes:
        name: The runtime's name of the node, which the model may not have.
        operator: The type of the node.
        on_device: Whether it runs on the requested device rather than on the CPU.
    """

    name: str
    operator: str
    on_device: bool


@dataclass(frozen=True)
class NodeKernel:
    """A node that a runtime ran, or several that it ran as one, as the runtime describes them.

    Attributes:
        name: The runtime's name of the node, which the model may not have.
        operator: Its type, in the runtime's words.
        device: The device, or the execution provider.
        dtypes: The floating dtypes and integer dtypes that it computed with, in the runtime's words and without
            repetitions.
        kernel: The implementation, in the runtime's words; "" if it does not say.
    """

    name: str
    operator: str
    device: str
    dtypes: tuple[str, ...]
    kernel: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Artefact:
    """A converter's result other than an ONNX model.

    Attributes:
        kind: One of the names above, or a plug-in's own.
        input_names: The request's input names, in the order in which `content` takes them.
        output_names: The request's output names, in the order in which `content` returns them.
        content: The object that backends load.
        examples: The input tensors that the program was captured with; `content` may depend on their memory layout.
        lowered: Runs the program that the converter passes to the runtime with PyTorch's kernels: arrays by input name
            in, outputs out. None if PyTorch cannot run it.
        placed: Output → the kernels that it depends on, and whether they are on the requested device; empty if unknown.
    """

    kind: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    content: Any
    examples: tuple[torch.Tensor, ...]
    lowered: Callable[[Mapping[str, Array]], list[Array]] | None = None
    placed: Mapping[str, Sequence[PlacedNode]] = field(default_factory=dict)


AnyModel: TypeAlias = "onnx.ModelProto | Artefact"


def as_onnx(model: AnyModel) -> onnx.ModelProto:
    """Return an artefact that transforms have made, which are ONNX models."""
    assert not isinstance(model, Artefact)
    return model


def input_names(model: AnyModel) -> tuple[str, ...]:
    """Return the names of the inputs to feed to a model, in order."""
    return model.input_names if isinstance(model, Artefact) else tuple(value.name for value in model.graph.input)


def output_names(model: AnyModel) -> tuple[str, ...]:
    """Return the names of a model's outputs, in order."""
    return model.output_names if isinstance(model, Artefact) else tuple(value.name for value in model.graph.output)
