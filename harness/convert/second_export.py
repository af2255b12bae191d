"""Notice models that PyTorch exports differently a second time.

PyTorch keeps state from one export to the next in a process. So a user who exports several models, or one model twice,
may get different graphs: with PyTorch 2.13, a recurrent layer whose length is dynamic the first time has a fixed length
from then on, without a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

import torch

from harness.compare.signatures import normalise
from harness.convert.converter import ExportRequest
from harness.convert.operator_calls import OperatorCalls
from harness.convert.torch_private import RECURRENT
from harness.core.text import plain

#: The dimensions of each input, None for a dynamic one, and the operators of the nodes.
_Form: TypeAlias = tuple[dict[str, tuple[int | None, ...]], tuple[str, ...]]


class SecondExports:
    """Exports models, and programs that PyTorch replaces kernels for, a second time, one of each kind.

    Args:
        converter: The name of the converter, for the notes.
        again: The public export, as a process does it that has exported before.
    """

    def __init__(self, converter: str, again: Callable[[ExportRequest], torch.onnx.ONNXProgram]) -> None:
        self._converter = converter
        self._again = again
        self._seen: set[Hashable] = set()
        #: Messages for the user, a line each.
        self.notes: list[str] = []

    def compare(self, request: ExportRequest, first: torch.onnx.ONNXProgram) -> None:
        """Export a request with dynamic shapes again, unless one of its kind has been, and note a difference.

        Args:
            request: The request.
            first: Its public export as a new process does it.
        """
        names = _names(request)
        kind = (*names, repr(request.model_call.dynamic_shapes))
        if request.model_call.dynamic_shapes is None or not names or {names, kind} & self._seen:
            return
        self._seen.add(kind)
        try:
            difference = _difference(_form(first), _form(self._again(request)))
        except Exception as error:
            difference = f"fails ({plain(normalise(str(error)), 120)})"
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
