"""A case ends in a batch as it ends by itself."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from harness_runs import literal_unit
from onnx_texts import saved

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation, Literal, Result, TensorSpec, Weight, contiguous_strides
from harness.core.program import Program
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.pipeline.case import Case
from harness.pipeline.model_task import ModelSource
from harness.pipeline.run_case import run_case
from harness.pipeline.start import start
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings
from harness.pipeline.worker import WorkerProcess
from harness.plan.options import Options
from harness.plan.plan import make_plan
from harness.plan.unit import run_unit

pytestmark = pytest.mark.slowest(40)

#: Right and wrong ones, some that no converter takes, some whose models are not valid or that no runtime loads.
OPERATORS = ("celu", "logit", "mean.dim", "avg_pool2d", "i0", "bitwise_and.Tensor", "cumsum", "topk", "logical_not")

MODEL = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.AvgPool1d(2, ceil_mode=True)), (torch.randn(2, 3, 4),)
"""


def matrix(*shape: int) -> TensorSpec:
    """Return a tensor of the numbers from 1 on."""
    numbers = tuple(float(n + 1) for n in range(math.prod(shape)))
    return TensorSpec(shape, "float32", contiguous_strides(shape), 0, Literal(numbers))


def recorded(options: Options) -> list[Verdict]:
    """Run a plan as a session does, without blame, and return its rows."""
    with Supervisor(timeout=60) as supervisor:
        units = make_plan(replace(options, blame=False)).units
        return [row for unit in units for rows in run_unit(unit, supervisor) for row in rows]


def ends_alone(row: Verdict, source: ModelSource | None = None) -> tuple[object, ...]:
    """Return how a recorded case ends by itself."""
    load_cases()
    route = replace(Route.parse(row.converter), opset=row.opset, backend=row.backend)
    invocation, worker = Invocation.from_json(row.invocation), WorkerProcess(lambda message: None)
    structure = worker.structure(CaseGroup.of(invocation), source, route, row.backend)
    oracle = structure.oracle(invocation)
    run = run_case(Case(structure.returning(len(oracle.expected)), oracle), start(route))
    numbers = run.comparison
    return *run.ending, numbers.max_abs_error if numbers else None


def ends_in_batch(row: Verdict) -> tuple[object, ...]:
    """Return how a case is recorded; what blame calls inaccurate is a mismatch before."""
    outcome = Outcome.MISMATCH if row.outcome is Outcome.INACCURATE else row.outcome
    return row.stage, outcome, row.signature, row.max_abs_error


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_call_ends_in_a_batch_as_by_itself(operator: str) -> None:
    rows = recorded(Options(ops=(operator,), examples=24, shapes="static", converters=("dynamo",)))
    judged = [row for row in rows if row.stage is not Stage.REFERENCE]
    assert len(judged) >= 20
    assert {row.case_id: ends_in_batch(row) for row in judged} == {row.case_id: ends_alone(row) for row in judged}


def test_a_program_ends_in_a_batch_as_by_itself() -> None:
    rows = recorded(Options(ops=("program.conv-bn",), sources=("programs",), examples=8, shapes="static"))
    judged = [row for row in rows if row.stage is not Stage.REFERENCE]
    assert judged
    assert {row.case_id: ends_in_batch(row) for row in judged} == {row.case_id: ends_alone(row) for row in judged}


def test_a_program_of_constants_ends_in_a_batch_as_by_itself() -> None:
    # PyTorch's exporter fails for this one, unless another program gives the model an input.
    constants = Weight(matrix(4, 2), ""), Weight(matrix(2, 1), "")
    product = Invocation("aten.matmul.default", (("self", constants[0]), ("other", constants[1])))
    of_input = Invocation("aten.matmul.default", (("self", matrix(4, 2)), ("other", constants[1])))
    programs = [Program("planted", (call,), (Result(0, 0),)).invocation for call in (product, of_input)]
    unit = literal_unit(programs, backends=("ort-cpu",), settings=Settings(blame=False))
    with Supervisor(timeout=60) as supervisor:
        found = [row for rows in run_unit(unit, supervisor) for row in rows]
    assert len(found) == len(programs)
    assert {row.case_id: ends_in_batch(row) for row in found} == {row.case_id: ends_alone(row) for row in found}


def test_a_program_that_is_right_call_by_call_passes_in_a_batch_as_by_itself() -> None:
    # The squares of a layer norm overflow: its result is NaN in PyTorch, zero in ONNX Runtime.
    rows = [(-4.5e20, -3.4, 2.3, 1.8e12), (0.0,) * 4]
    row, zeros = (TensorSpec((1, 4), "float32", (4, 1), 0, Literal(values)) for values in rows)
    added = Invocation("aten.add.Tensor", (("self", row), ("other", zeros)))
    normalised = Invocation("aten.layer_norm.default", (("input", Result(0, 0)), ("normalized_shape", (4,))))
    program = Program("planted", (added, normalised), (Result(1, 0),)).invocation
    unit = literal_unit([program], backends=("ort-cpu",), settings=Settings(blame=False))
    with Supervisor(timeout=60) as supervisor:
        ((verdict,),) = run_unit(unit, supervisor)
    assert verdict.outcome is Outcome.PASS
    assert "a chain of right calls" in verdict.excused
    assert ends_in_batch(verdict) == ends_alone(verdict)


def test_a_model_or_file_ends_in_a_batch_as_by_itself(tmp_path: Path) -> None:
    model, file = tmp_path / "model.py", tmp_path / "file.onnx"
    model.write_text(MODEL)
    saved(file, "float[N,4] x", "float[N,4] y", "e = Exp (x) y = Softmax (e)", opset=17, ir=8)
    for word in (f"{model}:make", str(file)):
        rows = recorded(Options(models=(word,)))
        assert rows
        for row in rows:
            assert ends_in_batch(row) == ends_alone(row, ModelSource(word)), row.case_id
