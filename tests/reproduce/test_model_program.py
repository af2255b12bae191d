"""A model that fails only as a whole is reproduced by the program of its calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from commands import typed

from harness.core.program import Program
from harness.models.as_program import program_of
from harness.pipeline.model_loading import given_model

CACHE = """
import torch

class Cache(torch.nn.Module):
    def forward(self, cache, new):
        cache = cache.clone()
        row = cache[0]
        row += new
        last = cache[:, -1]
        last.mul_(2)
        return cache

def make():
    torch.manual_seed(0)
    return Cache(), (torch.randn(2, 3), torch.randn(3))
"""
CALLS = ["aten.clone.default", "aten.select.int", "aten.add_.Tensor", "aten.select.int", "aten.mul_.Tensor"]


@pytest.mark.slow
def test_a_write_through_a_view_that_an_exporter_loses_is_five_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "view.py").write_text(CACHE)
    monkeypatch.chdir(tmp_path)
    typed("repro", "view.py:make", "--converter", "torchscript")
    (script,) = tmp_path.glob("repro_*.py")
    text = script.read_text()
    assert [text.count(f"torch.ops.{call}(") for call in dict.fromkeys(CALLS)] == [1, 2, 1, 1]
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1
    assert "The defect is there." in ran.stdout


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        low, high = torch.aminmax(x * self.weight)
        return high - low, x + low


def test_a_model_is_a_program_of_its_calls_with_its_weights() -> None:
    invocation = program_of(given_model("weighted", Weighted(), (torch.randn(2, 3),), {}))
    assert invocation is not None
    program = Program.of(invocation)
    assert [call.overload for call in program.calls] == [
        *("aten.mul.Tensor", "aten.aminmax.default", "aten.sub.Tensor", "aten.add.Tensor")
    ]
    assert len(list(invocation.tensors())) == 1


class Long(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(100):
            x = x.sin()
        return x


def test_a_long_model_is_no_program() -> None:
    assert program_of(given_model("long", Long(), (torch.randn(2),), {})) is None
