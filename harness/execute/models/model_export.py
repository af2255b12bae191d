"""A model as a converter takes it, and the inputs of a run as a backend takes them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import torch

from harness.convert import ExportRequest
from harness.core import Array
from harness.execute.models.model_loading import LoadedModel
from harness.execute.models.model_reference import ModelReference, quiet_call
from harness.execute.run_steps import named_feeds


def input_names(model: LoadedModel) -> tuple[str, ...]:
    """Of the graph: the model's own, with what keeps them apart from the names of values."""
    return tuple(f"in_{name}" for name in model.input_names)


def export_of(
    model: LoadedModel, dynamic: bool, opset: int | None, inputs: Sequence[torch.Tensor] | None = None
) -> ExportRequest:
    """One export of a model.

    Args:
        model: The model.
        dynamic: Leave the sizes of its axes open.
        opset: To emit; None for the converter's own.
        inputs: To export with, in place of the example.
    """
    examples = tuple(t.clone() for t in (inputs if inputs is not None else model.inputs))
    with quiet_call():
        outputs = len(model.program(*(t.clone() for t in examples)))
    return ExportRequest(
        program=model.program,
        inputs=examples,
        input_names=input_names(model),
        output_names=tuple(f"out_{i}" for i in range(outputs)),
        opset=opset,
        dynamic_dims=model.dynamic_dims if dynamic else None,
    )


def feeds_of(model: LoadedModel, reference: ModelReference, proto: onnx.ModelProto) -> dict[str, Array]:
    """The inputs of a run by name, without those that the export left out."""
    return named_feeds(proto, input_names(model), reference.feeds)
