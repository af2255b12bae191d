"""`litert`: LiteRT's converter from PyTorch to a ``.tflite`` file."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from harness.convert.converter import ConverterEntry, ExportRequest, UnsupportedOperator, register
from harness.convert.torch_private import quiet
from harness.core.plugins import Unavailable, importable, installed_version
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.run.artefact import LITERT, Artefact

#: Its message about an operator that it does not know, or that LiteRT does not have for the call's dtypes.
_MISSING = re.compile(r"Lowering not found: \S+|failed to legalize operation 'tfl\.\w+'")


class LiteRT:
    """Captures a program and has LiteRT's converter lower it."""

    name = "litert"

    def __init__(self) -> None:
        self.version: str = installed_version("litert-torch")

    def convert(self, request: ExportRequest) -> Any:
        """See `harness.convert.converter.Converter`. The content is the bytes of the file.

        Integers stay int64 (``enable_x64``); by default they become int32.
        """
        import litert_torch

        with quiet(), tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.tflite"
            try:
                model = litert_torch.convert(
                    request.program, request.inputs, dynamic_shapes=request.dynamic_shapes, enable_x64=True
                )
                model.export(str(file))
            except Exception as error:
                match = _MISSING.search(str(error))
                if match is None:
                    raise
                raise UnsupportedOperator(match[0]) from None
            content = file.read_bytes()
        return Artefact(
            kind=LITERT,
            input_names=request.input_names,
            output_names=request.output_names,
            content=content,
            examples=request.inputs,
        )


def _probe() -> Unavailable | None:
    if importable("litert_torch"):
        return None
    return Unavailable(reason="litert-torch is not installed", install="pip install 'aten-onnx-conformance[litert]'")


def _snippet(wanted: ExportWanted) -> ExportSnippet:
    shapes = f", dynamic_shapes=tuple({wanted.dynamic_shapes}.values())" if wanted.dynamic is not None else ""
    return ExportSnippet(
        code=(
            *(("dynamic = torch.export.Dim.DYNAMIC",) if wanted.dynamic is not None else ()),
            f"converted = litert_torch.convert(Model().eval(), {wanted.arguments}{shapes}, enable_x64=True)",
            'converted.export("model.tflite")',
            'model = pathlib.Path("model.tflite").read_bytes()',
        ),
        imports=("import pathlib", "import litert_torch"),
        packages=("litert-torch",),
    )


register(
    ConverterEntry(
        name="litert",
        probe=_probe,
        create=lambda public_api: LiteRT(),
        version=lambda: installed_version("litert-torch"),
        summary="litert_torch.convert, int64 kept",
        snippet=_snippet,
        tracker="google-ai-edge/litert-torch",
        opsets=lambda: range(0),
        makes=LITERT,
        max_batch=16,
    )
)
