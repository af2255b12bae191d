"""Many operator calls as one PyTorch program, with names that lead back to the cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
import torch

from harness.convert import ExportRequest
from harness.core import BoundCall, Invocation, output_tensors


@dataclass(frozen=True)
class Exportable:
    """One structure ready for export.

    Attributes:
        index: Of its group.
        call: The operator call with its tensors left open.
        tensors: Example inputs; no tensor is shared with another structure, since exporters treat a
            shared one as one input.
        outputs: How many tensors the call returns.
        dynamic_dims: Per tensor, dimensions to leave dynamic; empty sets for a static export.
    """

    index: int
    call: BoundCall
    tensors: tuple[torch.Tensor, ...]
    outputs: int
    dynamic_dims: tuple[frozenset[int], ...]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Graph inputs of this structure."""
        return tuple(f"c{self.index}_i{j}" for j in range(len(self.tensors)))

    @property
    def output_names(self) -> tuple[str, ...]:
        """Graph outputs of this structure."""
        return tuple(f"c{self.index}_o{j}" for j in range(self.outputs))


class Program(torch.nn.Module):
    """Calls every operator once, side by side; nothing flows from one to another."""

    def __init__(self, members: Sequence[Exportable]) -> None:
        super().__init__()
        self._calls = [(m.call, len(m.tensors)) for m in members]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """All outputs, in the order of the calls."""
        outputs: list[torch.Tensor] = []
        start = 0
        for call, count in self._calls:
            outputs.extend(output_tensors(call(tensors[start : start + count])))
            start += count
        return tuple(outputs)


def export_request(members: Sequence[Exportable], *, opset: int | None, dynamic: bool) -> ExportRequest:
    """One export of `members` together."""
    return ExportRequest(
        program=Program(members).eval(),
        inputs=tuple(t for m in members for t in m.tensors),
        input_names=tuple(n for m in members for n in m.input_names),
        output_names=tuple(n for m in members for n in m.output_names),
        opset=opset,
        dynamic_dims=tuple(d for m in members for d in m.dynamic_dims) if dynamic else None,
        tentative=len(members) > 1,
    )


def varying_dims(exported: Invocation, others: Sequence[Invocation]) -> tuple[frozenset[int], ...]:
    """Per tensor of `exported`, the dimensions in which `others` differ from it."""
    shapes = [spec.shape for spec in exported.tensors()]
    dims: list[set[int]] = [set() for _ in shapes]
    for other in others:
        for found, ours, theirs in zip(dims, shapes, (s.shape for s in other.tensors()), strict=True):
            found |= {i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b}
    return tuple(frozenset(d) for d in dims)


def emitted_opset(model: onnx.ModelProto) -> int | None:
    """Version of the default operator set that `model` imports."""
    for imported in model.opset_import:
        if imported.domain in ("", "ai.onnx"):
            return int(imported.version)
    return None
