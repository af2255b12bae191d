"""`torch-compile`: the module itself, which `torch.compile` captures when a backend loads it."""

from __future__ import annotations

from typing import Any

from harness.convert.converter import ConverterEntry, ExportRequest, register
from harness.core.plugins import installed_version
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.run.artefact import CALLABLE, Artefact


class TorchCompile:
    """Converts nothing: the capture is a part of compiling."""

    name = "torch-compile"
    version: str = installed_version("torch")

    def convert(self, request: ExportRequest) -> Any:
        """See `harness.convert.converter.Converter`. The content is the module, and whether its sizes stay dynamic."""
        return Artefact(
            kind=CALLABLE,
            input_names=request.input_names,
            output_names=request.output_names,
            content=(request.program, request.dynamic_dims is not None),
            examples=request.inputs,
        )


def _snippet(wanted: ExportWanted) -> ExportSnippet:
    return ExportSnippet(code=(f"model, examples = Model().eval(), {wanted.arguments}",))


register(
    ConverterEntry(
        name="torch-compile",
        probe=lambda: None,
        create=lambda public_api: TorchCompile(),
        version=lambda: installed_version("torch"),
        summary="torch.compile, with the whole call in one graph",
        snippet=_snippet,
        tracker="pytorch/pytorch",
        opsets=lambda: range(0),
        makes=CALLABLE,
    )
)
