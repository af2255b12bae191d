"""Converters: `dynamo` with one defect each."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import onnx
import torch

from harness.converters.base import ConverterEntry, ExportRequest, register
from harness.converters.dynamo import DynamoConverter, quiet, snippet
from harness.converters.kept_constants import kept
from harness.snippet import ExportSnippet, ExportWanted
from planted import _guilty
from planted.translations import WRONG


class Segfault(DynamoConverter):
    """Reads address 0 when it exports an input with the guilty size."""

    name = "planted-segfault"

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.converters.base.Converter`."""
        if any(_guilty.SIZE in tensor.shape for tensor in request.inputs):
            ctypes.string_at(0)
        return super().convert(request)


register(
    ConverterEntry(name=Segfault.name, probe=lambda: None, create=Segfault, version=lambda: "planted 1.0")
)


class Wrong(DynamoConverter):
    """Converts some operators wrongly, as a user's rules may."""

    name = "planted-wrong"

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.converters.base.Converter`."""
        with kept(fallbacks=not request.tentative), quiet():
            program = torch.onnx.export(
                request.program,
                request.inputs,
                input_names=list(request.input_names),
                output_names=list(request.output_names),
                opset_version=request.opset,
                dynamo=True,
                verbose=False,
                custom_translation_table=WRONG,
            )
        assert program is not None
        return program.model_proto


def _wrong_snippet(wanted: ExportWanted) -> ExportSnippet:
    honest = snippet(wanted, "custom_translation_table=WRONG")
    return replace(honest, imports=("from planted.translations import WRONG",))


register(
    ConverterEntry(
        name=Wrong.name,
        probe=lambda: None,
        create=Wrong,
        version=lambda: "planted 1.0",
        snippet=_wrong_snippet,
        tracker="planted/defects",
    )
)
