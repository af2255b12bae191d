"""`torchscript`: ``torch.onnx.export(..., dynamo=False)``, the tracing exporter with its symbolics."""

from __future__ import annotations

import io

import onnx
import torch

from harness.availability import Unavailable
from harness.converters.base import ConverterEntry, ExportRequest, UnsupportedOperator, register
from harness.converters.dynamo import quiet
from harness.snippet import ExportSnippet, ExportWanted


class TorchScriptConverter:
    """Traces the program and applies one symbolic function per operator.

    Args:
        public_api: Without effect: nothing is kept between calls.
    """

    name = "torchscript"

    def __init__(self, public_api: bool) -> None:
        self.version = _version()

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.converters.base.Converter`."""
        axes = None
        if request.dynamic_dims is not None:
            axes = {
                name: {dim: f"{name}_d{dim}" for dim in sorted(dims)}
                for name, dims in zip(request.input_names, request.dynamic_dims, strict=True)
                if dims
            }
        buffer = io.BytesIO()
        with quiet(), torch.no_grad():
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


def _snippet(wanted: ExportWanted) -> ExportSnippet:
    keywords = [f"input_names={wanted.names}", "dynamo=False"]
    if wanted.opset is not None:
        keywords.append(f"opset_version={wanted.opset}")
    if wanted.dynamic is not None:
        axes = {name: list(dims) for name, dims in wanted.dynamic.items() if dims}
        keywords.append(f"dynamic_axes={axes}")
    call = f"Model().eval(), {wanted.arguments}, buffer, {', '.join(keywords)}"
    export = (
        ("torch.onnx.export(", f"    {call},", ")") if len(call) > 90 else (f"torch.onnx.export({call})",)
    )
    return ExportSnippet(
        code=(
            "buffer = io.BytesIO()",
            *export,
            "model = onnx.load_model_from_string(buffer.getvalue())",
        ),
        imports=("import io",),
    )


register(
    ConverterEntry(
        name="torchscript",
        probe=_probe,
        create=TorchScriptConverter,
        version=_version,
        summary="torch.onnx.export(dynamo=False)",
        snippet=_snippet,
        tracker="pytorch/pytorch",
    )
)
