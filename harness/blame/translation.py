"""What a converter makes of a structure before its own optimiser, and of what."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from torch.export import ExportedProgram

from harness.convert import Converter, HasProgram, HasUnoptimised
from harness.execute import Exportable, export_alone, export_request


@dataclass(frozen=True)
class TranslatedStructure:
    """A graph, and PyTorch's of which it is the translation; None where the converter does not tell."""

    model: onnx.ModelProto
    program: ExportedProgram | None = None


def translate(converter: Converter, structure: Exportable, *, opset: int | None, dynamic: bool) -> TranslatedStructure:
    """Export with `converter`, without its optimiser if it has one; raises what the converter raises."""
    if isinstance(converter, HasUnoptimised):
        converter = converter.unoptimised()
    if not isinstance(converter, HasProgram):
        return TranslatedStructure(export_alone(converter, structure, opset=opset, dynamic=dynamic))
    found = converter.program(export_request([structure], opset=opset, dynamic=dynamic))
    return TranslatedStructure(found.model_proto, found.exported_program)
