"""What flows from a converter to a backend: an ONNX model, or an artefact of another kind.

A converter says which kind it makes (`ConverterEntry.makes`), a backend which kinds it takes
(`BackendEntry.takes`). Draws, comparison, shrinking and the record are the same for all kinds; what is about ONNX
graphs (the checker, opsets, the definition of single nodes) is asked of ONNX models alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import onnx

from harness.core.dtypes import Array

if TYPE_CHECKING:
    # Whoever runs goldens does so without PyTorch.
    import torch

#: The kind of an `onnx.ModelProto`.
ONNX = "onnx"
#: A PyTorch module with example inputs: what `torch.compile` takes.
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
        name: The runtime's name of it, which the model need not have.
        operator: Its type.
        on_device: Whether it runs on the device that was asked for. If not, it runs on the CPU.
    """

    name: str
    operator: str
    on_device: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Artefact:
    """What a converter makes that is not an ONNX model.

    Attributes:
        kind: One of the names above, or a plug-in's own.
        input_names: As in the request, in the order in which `content` takes them.
        output_names: As in the request, in the order in which `content` gives them.
        content: What backends that take the kind load.
        examples: Of the inputs, the tensors that the program was captured with. It may be made for the order in which
            their memory has the dimensions.
        lowered: Runs, by PyTorch's own kernels, the program that the converter hands over to the runtime: arrays by
            input name in, outputs out. None where PyTorch cannot run it.
        placed: Output → the kernels that it depends on, and whether those are where the converter was asked to have
            them; empty where it does not tell.
    """

    kind: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    content: Any
    examples: tuple[torch.Tensor, ...]
    lowered: Callable[[Mapping[str, Array]], list[Array]] | None = None
    placed: Mapping[str, Sequence[PlacedNode]] = field(default_factory=dict)


AnyModel: TypeAlias = "onnx.ModelProto | Artefact"


def input_names(model: AnyModel) -> tuple[str, ...]:
    """The inputs that are fed to a model, in order."""
    return model.input_names if isinstance(model, Artefact) else tuple(value.name for value in model.graph.input)


def output_names(model: AnyModel) -> tuple[str, ...]:
    """The outputs of a model, in order."""
    return model.output_names if isinstance(model, Artefact) else tuple(value.name for value in model.graph.output)
