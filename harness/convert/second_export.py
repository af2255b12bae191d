"""Notice models that PyTorch exports differently a second time.

PyTorch keeps state from one export to the next in a process. So a user who exports several models, or one model twice,
may get different graphs: with PyTorch 2.13, a recurrent layer whose length is dynamic the first time has a fixed length
from then on, without a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

import torch

from harness.compare.signatures import informative_line
from harness.convert.converter import ExportRequest
from harness.convert.operator_calls import OperatorCalls
from harness.convert.torch_private import RECURRENT
from harness.core.text import plain

#: The dimensions of each input, None for a dynamic one, and the operators of the nodes.
_Form: TypeAlias = tuple[dict[str, tuple[int | None, ...]], tuple[str, ...]]


class SecondExports:
    """Exports models, and the first program of each kind that PyTorch replaces kernels for, twice.

    Args:
        converter: The name of the converter, for the notes.
        export: The plain public export; its second argument says whether it is to be as in a new process.
    """

    def __init__(self, converter: str, export: Callable[[ExportRequest, bool], torch.onnx.ONNXProgram]) -> None:
        self._converter = converter
        self._export = export
        self._seen: set[Hashable] = set()
        #: Messages for the user, a line each.
        self.notes: list[str] = []

    def compare(self, request: ExportRequest, first: torch.onnx.ONNXProgram | None) -> None:
        """Export a request with dynamic shapes twice, unless one of its kind has been, and note a difference.

        Args:
            request: The request.
            first: Its plain public export as in a new process; None to make it here.
        """
        names = _names(request)
        kind = (*names, repr(request.model_call.dynamic_shapes))
        if request.model_call.dynamic_shapes is None or not names or {names, kind} & self._seen:
            return
        self._seen.add(kind)
        try:
            first = first or self._export(request, True)
        except Exception:
            # The record has it.
            return
        try:
            difference = _difference(_form(first), _form(self._export(request, False)))
        except Exception as error:
            difference = f"fails ({plain(informative_line(str(error)), 120)})"
        if difference:
            self._seen.add(names)
            self.notes.append(
                f"{self._converter}: a second export of {', '.join(names)} in the same process {difference}; "
                "export each model in a process of its own"
            )


def _names(request: ExportRequest) -> tuple[str, ...]:
    """Return the class of a model, or the operators of a program that PyTorch replaces kernels for."""
    if isinstance(request.program, OperatorCalls):
        return tuple(sorted(request.program.overloads.intersection(RECURRENT)))
    program = request.model_call.program
    return (type(program).__qualname__,) if isinstance(program, torch.nn.Module) else ()


def _form(program: torch.onnx.ONNXProgram) -> _Form:
    graph = program.model.graph
    dims = {
        str(value.name): tuple(dim if isinstance(dim, int) else None for dim in value.shape or ())
        for value in graph.inputs
    }
    return dims, tuple(node.op_type for node in graph)


def _difference(first: _Form, second: _Form) -> str:
    """Return how the second graph differs, as a clause; "" if it does not."""
    for name, dims in first[0].items():
        for place, (before, after) in enumerate(zip(dims, second[0].get(name, ()), strict=False)):
            if before is None and after is not None:
                return f"fixes dimension {place} of {name} at {after}"
    return "" if first == second else "gives another graph"
