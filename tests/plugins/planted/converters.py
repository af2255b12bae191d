"""Converters: `dynamo` with one defect each."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import onnx
import torch
from onnxscript import opset18 as op
from onnxscript.function_libs.torch_lib.ops import core
from torch.onnx._internal.exporter import _schemas

from harness.convert.converter import ConverterEntry, ExportRequest, register
from harness.convert.converters.dynamo import DynamoConverter, snippet
from harness.convert.converters.torchscript import TorchScriptConverter
from harness.convert.torch_private import script_symbolics
from harness.core.snippet import ExportSnippet, ExportWanted
from planted import _guilty
from planted.translations import symbolics, translations


class Segfault(DynamoConverter):
    """Reads address 0 when it exports an input with the guilty size."""

    name = "planted-segfault"

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        if any(_guilty.SIZE in tensor.shape for tensor in request.inputs):
            ctypes.string_at(0)
        return super().convert(request)


register(ConverterEntry(name=Segfault.name, probe=lambda: None, create=Segfault, version=lambda: "planted 1.0"))


#: The exporter works the signatures of a hundred conversions out at each call.
_signature = cache(_schemas.op_signature_from_function)


class _Translating(DynamoConverter):
    """A dynamo converter with other conversions, as a user's rules are."""

    slipped: bool

    def __init__(self, public_api: bool) -> None:
        super().__init__(public_api)
        self._table = {**translations(self.slipped)}

    def _export(self, *given: Any, **more: Any) -> torch.onnx.ONNXProgram:
        with patch.object(_schemas, "op_signature_from_function", _signature):
            return super()._export(*given, **more)


def _wrong_snippet(wanted: ExportWanted) -> ExportSnippet:
    honest = snippet(wanted, "custom_translation_table=translations(True)")
    return replace(honest, imports=("from planted.translations import translations",))


class Wrong(_Translating):
    """Converts some operators wrongly."""

    name = "planted-wrong"
    slipped = True


class Right(_Translating):
    """Converts the same operators in the same way, but for the slips."""

    name = "planted-right"
    slipped = False


_complex_product: Any = core.aten_mul_complex
_right_product = _complex_product.func


def _conjugating(self: Any, other: Any) -> Any:
    """The product of a complex number and the conjugate of another."""
    signs: Any = op.Constant(value_floats=[1.0, -1.0])
    return _right_product(self, op.Mul(other, op.CastLike(signs, other)))


class WrongProducts(DynamoConverter):
    """A dynamo converter with a wrong sign of one imaginary part in products of complex numbers."""

    name = "planted-complex"

    def _export(self, *given: Any, **more: Any) -> torch.onnx.ONNXProgram:
        with patch.object(_complex_product, "func", _conjugating):
            return super()._export(*given, **more)


class _Symbolic(TorchScriptConverter):
    """A TorchScript converter with other symbolic functions."""

    slipped: bool
    #: One is ignored unless it is registered for the opset of the export.
    opset = 18

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        registered = symbolics(self.slipped)
        for name, function in registered.items():
            script_symbolics().register_custom_op_symbolic(name, function, self.opset)
        try:
            return super().convert(replace(request, opset=self.opset))
        finally:
            for name in registered:
                script_symbolics().unregister_custom_op_symbolic(name, self.opset)


class WrongSymbolic(_Symbolic):
    """Converts some operators wrongly."""

    name = "planted-wrong-torchscript"
    slipped = True


class RightSymbolic(_Symbolic):
    """Converts the same operators in the same way, but for the slips."""

    name = "planted-right-torchscript"
    slipped = False


for made in (Right, WrongProducts, WrongSymbolic, RightSymbolic):
    register(ConverterEntry(name=made.name, probe=lambda: None, create=made, version=lambda: "planted 1.0"))
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
