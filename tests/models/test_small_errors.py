"""Errors that no user of a model would notice do not fail; others of the same size do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import checked
from harness_runs import literal_unit, unary
from onnx_texts import saved
from sampling import sampled

from harness.compare.verdict import Outcome, Verdict
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.generate.case_library import load_cases
from harness.pipeline.model_oracle import RANDOM
from harness.pipeline.supervisor import Supervisor
from harness.plan.unit import run_unit

FLUSHES = "onnx-api:planted.flushes"

MODELS = """
import torch
from torch import nn

class Draws(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = scale
    def forward(self, x):
        return x + torch.rand_like(x), x * 2, torch.log(torch.rand_like(x) * self.scale)

def sure():
    return nn.Softmax(-1), (torch.tensor([[0.0, -100.0]]),)

def draws():
    return Draws(), (torch.randn(3, 4),)

class Fills(nn.Module):
    def forward(self, x):
        return x * torch.empty_like(x).normal_()

def fills():
    return Fills(), (torch.randn(3, 4),)

class Drops(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True)

def drops():
    return Drops(), (torch.randn(3, 4),)

class Formula(nn.Module):
    def forward(self, x):
        return torch.celu(x, 1.5)

def formula():
    torch.manual_seed(0)
    return Formula(), (torch.randn(2, 32, 17, 20),)

def norm(mode):
    torch.manual_seed(0)
    return nn.BatchNorm1d(3).train(mode), (torch.randn(4, 3) * 2 + 1,)

def trains():
    return norm(True)

def evaluates():
    return norm(False)

def linear():
    return nn.Linear(3, 2), (torch.randn(4, 3),)
"""

ADDS_MORE = """
from onnxscript import opset18 as op
from harness.convert.rules import dynamo

@dynamo("aten::add.Tensor")
def add(self, other, alpha=1.0):
    return op.Add(self, op.Add(other, other))
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "small.py"
    path.write_text(MODELS)
    return path


def test_a_subnormal_number_that_a_module_loses_is_no_failure(models: Path) -> None:
    assert checked(f"{models}:sure", "--backend", FLUSHES)["survives"]


def test_a_subnormal_number_that_a_file_loses_is_no_failure(tmp_path: Path) -> None:
    saved(tmp_path / "sure.onnx", "float[1,2] x", "float[1,2] y", "y = Softmax (x)", opset=17, ir=8)
    np.savez(tmp_path / "sure.npz", x=np.array([[0.0, -100.0]], np.float32))
    assert checked(tmp_path / "sure.onnx", "--inputs", tmp_path / "sure.npz", "--backend", FLUSHES)["survives"]


def run_call(call: Invocation) -> Verdict:
    """Run a call in a backend that flushes subnormal numbers."""
    load_cases()
    with Supervisor(timeout=60) as supervisor:
        ((verdict,),) = run_unit(literal_unit([call], converter="dynamo", backends=[FLUSHES]), supervisor)
    return verdict


def softmax(*values: float) -> Invocation:
    spec = TensorSpec((1, len(values)), "float32", (len(values), 1), 0, Literal(values))
    return Invocation("aten.softmax.int", (("self", spec), ("dim", -1)))


def test_a_subnormal_number_that_an_ordinary_call_loses_is_inaccurate() -> None:
    verdict = run_call(softmax(0.0, -100.0))
    assert (verdict.ordinary, verdict.outcome, verdict.component) == (True, Outcome.INACCURATE, FLUSHES)


def test_a_result_of_subnormal_numbers_alone_is_a_mismatch() -> None:
    assert run_call(unary("aten.neg.default", [1e-39, 2e-39])).outcome is Outcome.MISMATCH


def test_a_model_that_is_as_exact_as_its_operators_formula_survives(models: Path) -> None:
    (way,) = checked(f"{models}:formula")["ways"]
    assert {run["outcome"] for run in way["runs"]} == {"pass", "inaccurate"}


@pytest.mark.slow
def test_random_outputs_are_compared_by_their_form_and_others_by_value(models: Path) -> None:
    way, fed = checked(f"{models}:draws")["ways"]
    assert all(RANDOM in run["excused"] for run in way["runs"])
    assert way["runs"][0]["error"] < 1e-6
    assert (way["noise_as_input"], fed["noise_as_input"]) == (False, True)


@pytest.mark.parametrize("name", sampled(["draws", "fills"], every=2))
def test_what_is_drawn_is_an_input_so_that_the_result_is_compared_by_value(name: str, models: Path) -> None:
    _, fed = checked(f"{models}:{name}")["ways"]
    assert fed["survives"]
    assert not any(RANDOM in run["excused"] for run in fed["runs"])
    assert fed["runs"][0]["error"] < 1e-6


@pytest.mark.slow
def test_a_wrong_conversion_of_what_is_drawn_is_seen_by_value(models: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(ADDS_MORE, encoding="utf-8")
    way, fed = checked(f"{models}:draws", "--rules", rules, status=1)["ways"]
    assert (way["survives"], fed["survives"]) == (True, False)


def test_dropout_is_no_input(models: Path) -> None:
    (way,) = checked(f"{models}:drops")["ways"]
    assert all(RANDOM in run["excused"] for run in way["runs"])


@pytest.mark.parametrize(("name", "is_said"), [("trains", True), ("evaluates", False), ("linear", False)])
def test_a_training_mode_that_matters_is_noted(name: str, is_said: bool, models: Path) -> None:
    assert checked(f"{models}:{name}")["given_in_training_mode"] is is_said
