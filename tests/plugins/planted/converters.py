"""Converters: `dynamo` with one defect each."""

from __future__ import annotations

import ctypes

import onnx

from harness.converters.base import ConverterEntry, ExportRequest, register
from harness.converters.dynamo import DynamoConverter
from planted import _guilty


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
