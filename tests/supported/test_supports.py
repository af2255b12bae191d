"""`conformance supports` and `harness.is_supported`: by running calls here, and as a view of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import Result
from commands import entered
from harness_runs import row_of, vector

import harness
from harness.compare.verdict import Outcome
from harness.core.invocation import Invocation
from harness.core.overloads import UnknownOperator
from harness.record import store
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter
from harness.support.answer import SupportLevel, operator_support


def supports(*words: str | Path) -> Result:
    return entered("supports", *words)


def test_an_operator_is_run_and_the_condition_of_its_failure_named() -> None:
    found = harness.is_supported("aten.mean.dim", dtype="float32")
    assert found.level is SupportLevel.PARTLY
    (operator,) = found.operators
    (failing,) = operator.failing
    assert failing.condition == "dim=None"
    assert operator.cases - operator.passing == failing.cases
    assert harness.is_supported("relu", dtype=torch.float32)


@pytest.mark.slow
def test_a_script_from_standard_input_gets_an_answer(tmp_path: Path) -> None:
    script = 'import harness\nprint(harness.is_supported("relu", dtype="float32"))'
    done = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False
    )
    assert done.stdout.startswith("<relu by dynamo in ort-cpu: supported"), done.stderr


def test_a_model_is_answered_by_its_calls() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
    found = harness.is_supported(module, (torch.randn(2, 4),))
    assert found.level is SupportLevel.SUPPORTED
    assert {o.overload for o in found.operators} == {
        "aten.linear.default",
        "aten.layer_norm.default",
        "aten.gelu.default",
    }


def test_a_dtype_is_that_of_the_model(tmp_path: Path) -> None:
    file = tmp_path / "models.py"
    file.write_text("import torch\ndef make(): return torch.nn.Linear(4, 3), (torch.randn(2, 4),)\n")
    found = supports(f"{file}:make", "--dtype", "float16", "--json")
    (answer,) = json.loads(found.stdout)["answers"]
    assert [(call["overload"], call["dtype"]) for call in answer["calls"]] == [("aten.linear.default", "float16")]
    assert found.exit_code == 0


def test_a_condition_is_what_all_failures_share_and_no_pass_has() -> None:
    def row(alpha: float | None, shape: int, outcome: Outcome) -> dict[str, object]:
        call = Invocation("aten.celu.default", (("self", vector([1.0] * shape)), ("alpha", alpha)))
        failed = {"signature": "wrong", "message": "wrong"} if outcome.is_failure else {}
        return vars(row_of(call, outcome=outcome, **failed))

    rows = [row(1.0, 2, Outcome.PASS), row(2.0, 3, Outcome.PASS), row(None, 2, Outcome.MISMATCH)]
    (operator,) = operator_support([*rows, row(None, 3, Outcome.MISMATCH)])
    assert (operator.passing, operator.cases) == (2, 4)
    assert [(failing.cases, failing.condition) for failing in operator.failing] == [(2, "alpha=None")]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tanh = Invocation("aten.tanh.default", (("self", vector([0.5])),))
    relu = Invocation("aten.relu.default", (("self", vector([0.5])),))
    directory = tmp_path_factory.mktemp("supports") / "run"
    with RunWriter(directory, RunInfo.begin(seed=0, options={})) as writer:
        wrong = {"outcome": Outcome.MISMATCH, "signature": "values", "message": "wrong"}
        writer.write([row_of(tanh), row_of(relu, **wrong)])
    store.finish(directory, 1)
    return directory


def test_tables_and_pages_are_views_of_a_run(recorded: Path, tmp_path: Path) -> None:
    table = supports("--record", recorded, "--table")
    assert table.exit_code == 0
    first, second = (line for line in table.stdout.splitlines() if "aten." in line)
    assert "aten.relu.default" in first
    assert "aten.tanh.default" in second
    assert "aten.relu" not in supports("tanh", "--record", recorded).stdout
    page = tmp_path / "support.html"
    assert supports("--record", recorded, "--page", page).exit_code == 0
    assert "aten.relu.default" in page.read_text()


def test_what_cannot_be_answered_is_one_line(recorded: Path) -> None:
    for words in (
        ("nonesuch",),
        ("celu", "--backend", "nonesuch"),
        ("celu", "--dtype", "nonesuch"),
        ("celu", "--table"),
        ("model.onnx",),
        ("--record", recorded, "--backend", "tract"),
    ):
        done = supports(*words)
        assert done.exit_code == 2 or done.exit_code == 1
        assert "Traceback" not in done.output
    with pytest.raises(UnknownOperator):
        harness.is_supported("nonesuch")
