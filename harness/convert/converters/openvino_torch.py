"""`openvino-torch`: OpenVINO's own frontend for PyTorch, on the program that `torch.export` captures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from harness.convert.converter import ConverterEntry, ExportRequest, UnsupportedOperator, register, tensor_inputs
from harness.convert.torch_private import quiet
from harness.core.plugins import Unavailable, importable, installed_version
from harness.core.snippet import ExportSnippet, ExportWanted
from harness.run.artefact import OPENVINO_IR, Artefact

_NO_RULE = re.compile(r"No conversion rule found for operations?: (?P<operators>[^\n]+)")
#: A line that says where in OpenVINO's sources an exception was raised.
_SOURCE = re.compile(r"^(?:Exception from|Check .* failed at) .*$", re.MULTILINE)


class OpenVinoTorch:
    """Captures a program and has OpenVINO translate it."""

    name = "openvino-torch"

    def __init__(self) -> None:
        self.version: str = installed_version("openvino")

    def keeps_apart(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Whether a call must be exported alone.

        A tensor without elements would also empty the results of other calls whose sizes are not known beforehand.
        """
        return any(tensor.numel() == 0 for tensor in inputs)

    def convert(self, request: ExportRequest) -> Any:
        """See `harness.convert.converter.Converter`. The content is an `openvino.Model`."""
        import openvino

        with quiet(), torch.no_grad():
            program = request.model_call.captured()
            try:
                model = openvino.convert_model(program)
            except Exception as error:
                message = _SOURCE.sub("", str(error)).strip()
                match = _NO_RULE.search(message)
                if match is None:
                    raise RuntimeError(re.sub(r"\n\s*\n", "\n", message)) from None
                operators = [word.strip() for word in match["operators"].split(",")]
                missing = _missing(program, request.output_names, operators)
                words = f"No conversion rule found for operations: {', '.join(operators)}"
                raise UnsupportedOperator(words, missing) from None
        # OpenVINO drops inputs that nothing reads, and calls the others like PyTorch's graph does.
        names = dict(zip((name for name, _ in tensor_inputs(program)), request.input_names, strict=True))
        for port in model.inputs:
            port.get_tensor().set_names({names[name] for name in port.get_names() if name in names})
        return Artefact(
            kind=OPENVINO_IR,
            input_names=request.input_names,
            output_names=request.output_names,
            content=model,
            examples=request.inputs,
        )


def _missing(program: torch.export.ExportedProgram, names: Iterable[str], operators: Iterable[str]) -> dict[str, str]:
    """Output name → the first of `operators` that the output depends on."""
    wanted = set(operators)
    (results,) = program.graph.output_node().args
    found: dict[str, str] = {}
    for name, result in zip(names, results, strict=False):
        pending, seen = [result], set()
        while pending:
            node = pending.pop()
            if not isinstance(node, torch.fx.Node) or node in seen:
                continue
            seen.add(node)
            if str(node.target) in wanted:
                found[name] = str(node.target)
                break
            pending += node.all_input_nodes
    return found


def _probe() -> Unavailable | None:
    if importable("openvino"):
        return None
    return Unavailable(reason="openvino is not installed", install="pip install 'aten-onnx-conformance[openvino]'")


def _snippet(wanted: ExportWanted) -> ExportSnippet:
    shapes = f", dynamic_shapes=(tuple({wanted.dynamic_shapes}.values()),)" if wanted.dynamic is not None else ""
    return ExportSnippet(
        code=(
            *(("dynamic = torch.export.Dim.DYNAMIC",) if wanted.dynamic is not None else ()),
            f"program = torch.export.export(Model().eval(), {wanted.arguments}{shapes})",
            "model = openvino.convert_model(program)",
        ),
        imports=("import openvino",),
        packages=("openvino",),
    )


register(
    ConverterEntry(
        name="openvino-torch",
        probe=_probe,
        create=lambda public_api: OpenVinoTorch(),
        version=lambda: installed_version("openvino"),
        summary="openvino.convert_model on a captured program",
        snippet=_snippet,
        tracker="openvinotoolkit/openvino",
        opsets=lambda: range(0),
        makes=OPENVINO_IR,
    )
)
