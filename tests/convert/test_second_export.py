"""A recurrent layer is exported as in a new process, and a second export that differs is noted."""

from __future__ import annotations

import pytest
import torch

from harness.convert.converter import ExportRequest, ModelCall
from harness.convert.converters.dynamo import DynamoConverter
from harness.convert.second_export import SecondExports


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.GRU(4, 5, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layer(x)[0]
        return output


class Plain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flip(1)


def request(module: torch.nn.Module) -> ExportRequest:
    """Return the request of a user who leaves the second dimension open."""
    inputs = (torch.randn(2, 7, 4),)
    call = ModelCall(program=module.eval(), arguments=inputs, dynamic_shapes=({1: torch.export.Dim("t")},))
    return ExportRequest(program=module, inputs=inputs, input_names=("x",), output_names=("y",), call=call)


@pytest.mark.slow
def test_an_export_does_not_depend_on_earlier_ones() -> None:
    converter = DynamoConverter(public_api=True)
    for _ in range(2):
        program = converter.program(request(Recurrent()))
        (x,) = program.model.graph.inputs
        assert x.shape is not None
        assert not isinstance(x.shape[1], int)
    (note,) = converter.notes
    assert "Recurrent" in note
    assert "dimension 1 of x at 7" in note


def test_a_second_export_that_is_the_same_is_not_noted() -> None:
    converter = DynamoConverter(public_api=True)
    converter.program(request(Plain()))
    assert converter.notes == ()


def test_a_second_export_that_fails_is_noted() -> None:
    converter = DynamoConverter(public_api=True)

    def again(wanted: ExportRequest) -> torch.onnx.ONNXProgram:
        raise ValueError("the state is gone")

    second = SecondExports("dynamo", again)
    second.compare(request(Plain()), converter.program(request(Plain())))
    (note,) = second.notes
    assert "the state is gone" in note
