"""`harness.check` and `harness.assert_survives`: models of a test, judged as `conformance check` judges files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from harness_runs import environment, output

import harness
from harness.core.plugins import UnknownName
from harness.models.stored_model import KEPT
from harness.pipeline.model_loading import ModelProblem
from harness.plan.options import UsageProblem

#: A generator, which cannot be pickled.
ONCE = (number for number in (1, 2))
#: A conversion function that drops `alpha`, as a contributor might write it.
WRONG_RULE = """\
from onnxscript import opset18 as op

from harness.convert.rules import dynamo


@dynamo("aten::celu")
def celu(self, alpha: float = 1.0):
    return op.Celu(self)
"""


class Celu(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.celu(self.inner(x), alpha=2.0)


class FixesItsSize(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(int(x.shape[0]), dtype=x.dtype)[:, None]


@pytest.fixture(scope="module")
def supervisor() -> Iterator[harness.Supervisor]:
    with harness.Supervisor(timeout=120) as runner:
        yield runner


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def modes(answer: harness.CheckAnswer) -> set[tuple[str, str]]:
    return {(str(way.route), way.route.shape_mode) for way in answer.model.ways}


@pytest.mark.parametrize(
    ("inputs", "dynamic", "shapes"),
    [
        pytest.param(torch.ones(2, 4), None, {"static"}, id="a tensor"),
        pytest.param(
            (torch.ones(2, 4),),
            ({0: torch.export.Dim.DYNAMIC},),
            {"static", "dynamic"},
            id="dynamic_shapes",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"x": torch.ones(2, 4)},
            {"x": {0: torch.export.Dim("n")}},
            {"static", "dynamic"},
            id="keywords",
            marks=pytest.mark.slow,
        ),
        pytest.param((torch.ones(2, 4),), ["x:0=1..8"], {"static", "dynamic"}, id="a text"),
    ],
)
def test_a_right_model_survives(supervisor: harness.Supervisor, inputs: Any, dynamic: Any, shapes: set[str]) -> None:
    answer = harness.assert_survives(Celu(), inputs, dynamic=dynamic, supervisor=supervisor)
    assert modes(answer) == {("dynamo → ort-cpu", shape) for shape in shapes}
    assert not KEPT.exists()


def test_functions_and_local_classes_reach_the_worker(supervisor: harness.Supervisor) -> None:
    factor = 3

    class Local(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * factor

    harness.assert_survives(Local(), torch.ones(2), supervisor=supervisor)
    harness.assert_survives(lambda x: x + factor, torch.ones(2), supervisor=supervisor)


@pytest.mark.slow
def test_a_wrong_rule_fails_the_assertion_and_the_kept_model_fails_as_well(
    supervisor: harness.Supervisor, tmp_path: Path
) -> None:
    (tmp_path / "wrong.py").write_text(WRONG_RULE)
    inputs = (torch.linspace(-3, 3, 8).reshape(2, 4),)
    with pytest.raises(harness.DoesNotSurvive) as failed:
        harness.assert_survives(Celu(), inputs, rules=["wrong.py"], supervisor=supervisor)
    answer = failed.value.answer
    (way,) = answer.model.ways
    assert [call.overload for call in way.guilty_calls] == ["aten.celu.default"]
    assert answer.model.name == "Celu"
    assert "wrong.py:celu" in str(failed.value)
    again = harness.check(answer.model.word, rules=["wrong.py"], supervisor=supervisor)
    assert not again.survives
    assert harness.check(answer.model.word, supervisor=supervisor).survives


@pytest.mark.slow
def test_a_size_that_tracing_fixes_fails_with_dynamic_shapes_alone(supervisor: harness.Supervisor) -> None:
    answer = harness.check(
        FixesItsSize(),
        torch.ones(2, 4),
        routes=["torchscript -> ort-cpu"],
        dynamic=["x:0=1..8"],
        supervisor=supervisor,
    )
    assert {way.route.shape_mode: way.survives for way in answer.model.ways} == {"static": True, "dynamic": False}


@pytest.mark.slow
def test_several_routes_are_checked_in_one_call(supervisor: harness.Supervisor) -> None:
    routes = ["dynamo -> ort-cpu", "dynamo -> onnx-reference", "dynamo@18+float16 → ort-cpu"]
    answer = harness.assert_survives(torch.nn.Linear(4, 3), torch.ones(2, 4), routes=routes, supervisor=supervisor)
    expected = {"dynamo → ort-cpu", "dynamo → onnx-reference", "dynamo+float16 → ort-cpu"}
    assert {str(way.route) for way in answer.model.ways} == expected


@pytest.mark.slow
def test_a_graph_is_checked_with_drawn_inputs_and_with_given_ones(
    supervisor: harness.Supervisor, tmp_path: Path
) -> None:
    torch.onnx.export(Celu().eval(), (torch.ones(2, 4),), tmp_path / "celu.onnx", dynamo=True, verbose=False)
    graph = onnx.load(tmp_path / "celu.onnx")
    name = graph.graph.input[0].name
    for given in ((), {name: np.ones((2, 4), np.float32)}):
        assert harness.assert_survives(graph, given, supervisor=supervisor).model.ways
    np.savez(tmp_path / "inputs.npz", **{name: np.ones((2, 4), np.float32)})  # type: ignore[arg-type]
    harness.assert_survives(tmp_path / "celu.onnx", inputs_from=tmp_path / "inputs.npz", supervisor=supervisor)


@pytest.mark.parametrize(
    ("model", "inputs", "options", "error"),
    [
        pytest.param(Celu(), torch.ones(2, 4), {"routes": ["dynamo -> nowhere"]}, UsageProblem, id="no such backend"),
        pytest.param(Celu(), torch.ones(2, 4), {"routes": ["dynamo"]}, ModelProblem, id="no backend"),
        pytest.param(Celu(), torch.ones(2, 4), {"dynamic": ["x:0"]}, ModelProblem, id="an axis without sizes"),
        pytest.param(Celu(), torch.ones(2, 4), {"inputs_from": "nowhere"}, ModelProblem, id="no such inputs"),
        pytest.param("nowhere.py:make", (), {}, ModelProblem, id="no such file"),
        pytest.param("nomodel", (), {}, UnknownName, id="no such model"),
        pytest.param("resnet50", np.ones(2), {}, ModelProblem, id="inputs of a named model"),
        pytest.param(3, (), {}, ModelProblem, id="no model"),
        pytest.param(lambda x: next(ONCE) + x, torch.ones(2), {}, ModelProblem, id="not to be pickled"),
    ],
)
def test_a_wrong_request_is_an_error_and_no_verdict(
    supervisor: harness.Supervisor, model: Any, inputs: Any, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        harness.check(model, inputs, supervisor=supervisor, **options)


TESTS = """\
import pytest
import torch
from harness import assert_survives

class Celu(torch.nn.Module):
    def forward(self, x):
        return torch.celu(x, alpha=2.0)

@pytest.mark.parametrize("n", [1, 2])
def test_right(assert_survives, n):
    assert_survives(Celu(), torch.ones(n, 4))

def test_wrong(assert_survives):
    assert_survives(Celu(), torch.linspace(-3, 3, 8), rules=["wrong.py"])

def test_by_import():
    assert_survives(Celu(), torch.ones(2))
"""


@pytest.mark.slow
def test_the_fixture_serves_the_tests_of_another_project_on_several_workers(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(WRONG_RULE)
    (tmp_path / "test_theirs.py").write_text(TESTS)
    words = [sys.executable, "-P", "-m", "pytest", "test_theirs.py", "-n", "2"]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, output(done)
    assert "1 failed, 3 passed" in done.stdout, output(done)
    # Pytest shows the user's line and the answer, and none of the harness's own lines.
    assert "assert_survives(Celu(), torch.linspace" in done.stdout
    assert "survival.py" not in done.stdout.partition("short test summary")[0].replace("harness.app.survival", "")
