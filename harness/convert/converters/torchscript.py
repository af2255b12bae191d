"""`torchscript`: ``torch.onnx.export(..., dynamo=False)``, the tracing exporter with its symbolics."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import onnx
import torch

from harness.convert.converter import (
    FIRST_OPSET,
    ConverterEntry,
    ExportRequest,
    ExportStep,
    UnsupportedOperator,
    known_opsets,
    register,
)
from harness.convert.rules.rule import RuleBook
from harness.convert.torch_private import (
    PrivatePartMissing,
    default_script_opset,
    last_script_opset,
    quiet,
    script_symbolic_versions,
    script_symbolics,
)
from harness.core.overloads import packet
from harness.core.plugins import Unavailable
from harness.core.snippet import ExportSnippet, ExportWanted


class TorchScriptConverter:
    """Traces the program and applies one symbolic function per operator.

    Args:
        public_api: Has no effect: the converter only makes the public call.
        book: Symbolic functions that replace the exporter's.
    """

    name = "torchscript"

    def __init__(self, public_api: bool, book: RuleBook | None = None) -> None:
        self.version = _version()
        self._book = book

    def convert(self, request: ExportRequest) -> onnx.ModelProto:
        """See `harness.convert.converter.Converter`."""
        if self._book:
            self._book.start()
        try:
            with _registered(self._book, request.opset):
                return _export(request)
        except Exception as error:
            failure = _failure_of(error, request)
            if failure is error:
                raise
            raise failure from error


def _export(request: ExportRequest) -> onnx.ModelProto:
    axes = None
    if request.dynamic_dims is not None:
        axes = {
            name: {dim: f"{name}_d{dim}" for dim in sorted(dims)}
            for name, dims in zip(request.input_names, request.dynamic_dims, strict=True)
            if dims
        }
    buffer = io.BytesIO()
    with quiet(), torch.no_grad():
        call = request.model_call
        exported = isinstance(call.program, torch.export.ExportedProgram)
        torch.onnx.export(
            # A module is traced; a program as the module that it makes.
            request.program if exported else call.program,
            request.inputs if exported else call.onnx_arguments,
            buffer,  # type: ignore[arg-type]
            kwargs=dict(call.keywords) or None,
            input_names=list(request.input_names),
            output_names=list(request.output_names),
            opset_version=request.opset,
            dynamic_axes=axes,
            dynamo=False,
        )
    return onnx.load_model_from_string(buffer.getvalue())


def _failure_of(error: Exception, request: ExportRequest) -> Exception:
    """Return the harness's exception for an exception of the exporter."""
    # How a conversion function refuses an attribute or a dtype elsewhere.
    refused = isinstance(error, NotImplementedError | torch.onnx.errors.UnsupportedOperatorError)
    if isinstance(error, torch.onnx.errors.OnnxExporterError):
        # The symbolics refuse an attribute or a dtype in these words.
        refused = refused or str(error).lower().startswith(_REFUSALS)
    message = str(error)
    if message.startswith(_NO_COMPLEX) and any(tensor.is_complex() for tensor in request.inputs):
        refused, message = True, f"no complex numbers: {message}"
    if not refused:
        return error
    failure = UnsupportedOperator(message)
    failure.__cause__ = error
    return failure


@contextlib.contextmanager
def _registered(book: RuleBook | None, opset: int | None) -> Iterator[None]:
    """Register the book's symbolics with the exporter within the block.

    A registration below the version of the exporter's own function, or above the opset of the export, is
    silently ignored; that opset itself is always right.
    """
    # The exporter knows operators by packet.
    functions = {_packet(name): f for name, f in (book.functions() if book else {}).items()}
    version = _rule_opset(opset)
    for name, function in functions.items():
        script_symbolics().register_custom_op_symbolic(name, function, version)
    try:
        yield
    finally:
        for name in functions:
            script_symbolics().unregister_custom_op_symbolic(name, version)


def _packet(overload: str) -> str:
    return packet(overload).replace(".", "::", 1)


def _rule_opset(opset: int | None) -> int:
    return opset or default_script_opset()


#: How the exporter says that it does not know a complex dtype.
_NO_COMPLEX = ("ScalarType Complex", "Unknown number type: complex")
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
    lines = (f"torch.onnx.export({call})",)
    export = lines if len(call) <= 90 else ("torch.onnx.export(", f"    {call},", ")")
    return ExportSnippet(
        code=(
            *(
                f'torch.onnx.register_custom_op_symbolic("{_packet(name)}", {function}, {_rule_opset(wanted.opset)})'
                for name, function in wanted.rules.items()
            ),
            "buffer = io.BytesIO()",
            *export,
            "model = onnx.load_model_from_string(buffer.getvalue())",
        ),
        imports=("import io",),
    )


def _opsets() -> range:
    try:
        return range(FIRST_OPSET, last_script_opset() + 1)
    except PrivatePartMissing:
        return known_opsets()


def _conversions(name: str) -> tuple[str, ...]:
    return tuple(f"symbolic_opset{version}" for version in script_symbolic_versions(_packet(name)))


register(
    ConverterEntry(
        name="torchscript",
        default_for_programs=True,
        # Each symbolic function has its own way with numbers.
        steps=frozenset(
            {ExportStep.TRACING, ExportStep.EQUAL_DTYPES, ExportStep.SCALARS_AS_NUMBERS, ExportStep.SHAPES}
        ),
        probe=_probe,
        create=TorchScriptConverter,
        create_with_rules=TorchScriptConverter,
        version=_version,
        summary="torch.onnx.export(dynamo=False)",
        captures=False,
        snippet=_snippet,
        tracker="pytorch/pytorch",
        witness=2,
        conversions=_conversions,
        opsets=_opsets,
    )
)
