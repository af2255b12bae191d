"""`torchscript`: ``torch.onnx.export(..., dynamo=False)``, the tracing exporter with its symbolics."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import onnx
import torch
from torch.onnx import utils

from harness.availability import Unavailable
from harness.converters.base import ConverterEntry, ExportRequest, UnsupportedOperator, register
from harness.converters.dynamo import quiet
from harness.rules.load import RuleBook
from harness.schema import packet


class TorchScriptConverter:
    """Traces the program and applies one symbolic function per operator.

    Args:
        public_api: Without effect: nothing is kept between calls.
        book: Symbolic functions in place of the exporter's.
    """

    name = "torchscript"

    def __init__(self, public_api: bool, book: RuleBook | None = None) -> None:
        self.version = _version()
        self._book = book

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.converters.base.Converter`."""
        if self._book:
            self._book.start()
        axes = None
        if request.dynamic_dims is not None:
            axes = {
                name: {dim: f"{name}_d{dim}" for dim in sorted(dims)}
                for name, dims in zip(request.input_names, request.dynamic_dims, strict=True)
                if dims
            }
        buffer = io.BytesIO()
        with quiet(), torch.no_grad(), _registered(self._book, request.opset):
            try:
                torch.onnx.export(
                    request.program,
                    request.inputs,
                    buffer,  # type: ignore[arg-type]
                    input_names=list(request.input_names),
                    output_names=list(request.output_names),
                    opset_version=request.opset,
                    dynamic_axes=axes,
                    dynamo=False,
                )
            except torch.onnx.errors.OnnxExporterError as error:
                # The symbolics say so in these words where they refuse an attribute or a dtype.
                if isinstance(error, torch.onnx.errors.UnsupportedOperatorError) or (
                    str(error).lower().startswith(_REFUSALS)
                ):
                    raise UnsupportedOperator(str(error)) from error
                raise
        return onnx.load_model_from_string(buffer.getvalue())


@contextlib.contextmanager
def _registered(book: RuleBook | None, opset: int | None) -> Iterator[None]:
    """The book's symbolics in the exporter's registry.

    A registration below the version of the exporter's own function, or above the opset of the export, is
    silently ignored; that opset itself is always right.
    """
    # The exporter knows operators by packet.
    functions = {
        packet(name).replace(".", "::", 1): f for name, f in (book.functions() if book else {}).items()
    }
    version = opset or torch.onnx._constants.ONNX_DEFAULT_OPSET
    for name, function in functions.items():
        utils.register_custom_op_symbolic(name, function, version)
    try:
        yield
    finally:
        for name in functions:
            utils.unregister_custom_op_symbolic(name, version)


#: How the symbolics begin to say that ONNX, or the exporter, has no such thing.
_REFUSALS = (
    "unsupported: onnx ",
    "onnx export does not support",
    "onnx does not support",
    "onnx export only",
)


def _version() -> str:
    return f"torch {torch.__version__}"


def _probe() -> Unavailable | None:
    if not hasattr(torch.onnx, "errors"):
        return Unavailable(
            reason=f"PyTorch {torch.__version__} no longer has the TorchScript exporter",
            install="pip install 'torch<=2.13'",
        )
    return None


register(
    ConverterEntry(
        name="torchscript",
        probe=_probe,
        create=TorchScriptConverter,
        create_with_rules=TorchScriptConverter,
        version=_version,
        summary="torch.onnx.export(dynamo=False)",
    )
)
