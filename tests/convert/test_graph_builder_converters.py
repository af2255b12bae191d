"""The exporters of experimental-experiment and yobx, tried for real where they are importable.

Neither is a dependency of the project; a clone on ``PYTHONPATH`` is enough.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import typed
from harness_runs import literal_unit, output, rows, run_harness, unary, vector

from harness.convert.converter import ExportRequest, UnsupportedOperator, find_converter
from harness.convert.rules.rule import RuleBook
from harness.core.invocation import Invocation
from harness.pipeline.supervisor import Supervisor
from harness.plan.options import Options, UsageProblem
from harness.plan.plan import make_plan
from harness.plan.unit import run_unit

NAMES = ("experimental-experiment", "yobx")
RULE = """
from harness.convert.rules import rule


@rule("{name}", "aten::celu")
def celu(g, sts, outputs, x, alpha=1.0, name="celu"):
    return g.op.Celu(x, alpha={alpha}, outputs=outputs, name=name)
"""


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of an exporter that is importable here."""
    wanted: str = request.param
    problem = find_converter(wanted).probe()
    if problem is not None:
        pytest.skip(problem.reason)
    return wanted


class Elu(torch.nn.Module):
    """A program that one of the two refuses for some arguments."""

    def __init__(self, input_scale: float = 1.0) -> None:
        super().__init__()
        self.input_scale = input_scale

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(torch.ops.aten.elu.default(t, 1.0, 1.0, self.input_scale) for t in tensors)


def request_of(program: torch.nn.Module, **more: Any) -> ExportRequest:
    inputs = (torch.linspace(-2, 2, 6).view(2, 3), torch.linspace(-1, 1, 4))
    return ExportRequest(
        program=program.eval(),
        inputs=inputs,
        input_names=("one_i", "two_i"),
        output_names=("one_o", "two_o"),
        **more,
    )


@pytest.mark.parametrize("missing", NAMES)
def test_one_that_is_not_importable_says_how_to_get_it(missing: str) -> None:
    if find_converter(missing).probe() is None:
        pytest.skip(f"{missing} is importable")
    with pytest.raises(UsageProblem, match=f"--converter {missing}: .* not installed; to get it: pip"):
        make_plan(Options(ops=("celu",), converters=(missing,)))


def test_names_opset_and_dynamic_dimensions_are_those_asked_for(name: str) -> None:
    converter = find_converter(name).create(False)
    dims = (frozenset({0}), frozenset[int]())
    model = converter.convert(request_of(Elu(), opset=18, dynamic_dims=dims))
    assert [value.name for value in model.graph.input] == ["one_i", "two_i"]
    assert [value.name for value in model.graph.output] == ["one_o", "two_o"]
    assert [entry.version for entry in model.opset_import if entry.domain == ""] == [18]
    first, second = (value.type.tensor_type.shape.dim for value in model.graph.input)
    assert first[0].dim_param
    assert [d.dim_value for d in (first[1], second[0])] == [3, 4]


def test_a_refusal_is_no_error(name: str) -> None:
    converter = find_converter(name).create(False)
    with pytest.raises(UnsupportedOperator, match="input_scale") as refused:
        converter.convert(request_of(Elu(input_scale=2.0)))
    assert len(str(refused.value)) < 600


def test_its_optimiser_can_be_left_out(name: str) -> None:
    converter: Any = find_converter(name).create(False)
    model = converter.unoptimised().convert(request_of(Elu()))
    optimised = converter.convert(request_of(Elu()))
    assert len(model.graph.node) > len(optimised.graph.node)


def test_a_graph_builder_tells_its_own_conversions(name: str) -> None:
    conversions = find_converter(name).conversions
    assert conversions is not None
    assert conversions("aten.elu.default") == ("aten_elu",)
    assert conversions("aten.special_hermite_polynomial_h.default") == ()


def test_a_batch_of_calls_is_run_and_judged(name: str) -> None:
    calls = [unary("aten.relu.default", [-1.0, 0.0, 2.0]), unary("aten.relu.default", [-1.0, 3.0])]
    unit = literal_unit(calls, converter=name, backends=["ort-cpu"])
    with Supervisor() as supervisor:
        verdicts = [v for some in run_unit(unit, supervisor) for v in some]
    assert Counter(str(v.outcome) for v in verdicts) == {"pass": 2}
    assert {v.converter for v in verdicts} == {name}
    assert all("torch" in v.converter_version for v in verdicts)


@pytest.mark.parametrize(("alpha", "outcome"), [("float(alpha)", "pass"), ("1.0", "mismatch")])
def test_its_dispatcher_takes_rules(name: str, tmp_path: Path, alpha: str, outcome: str) -> None:
    file = tmp_path / "my_rules.py"
    file.write_text(RULE.format(name=name, alpha=alpha))
    book = RuleBook.load([str(file)], name)
    entry = find_converter(name)
    assert entry.create_with_rules is not None
    assert set(book.rules) == {"aten.celu.default"}
    call = Invocation("aten.celu.default", (("self", vector([-1.0, 0.5])), ("alpha", 2.5)))
    unit = literal_unit([call], converter=name, backends=["ort-cpu"], rules=[str(file)])
    with Supervisor() as supervisor:
        (verdict,) = [v for some in run_unit(unit, supervisor) for v in some]
    assert verdict.rule == "my_rules.py:celu"
    assert str(verdict.outcome) == outcome


def test_pytest_harness_runs_it_and_its_failures_have_scripts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators = ("--op", "aten.elu.default", "--op", "aten.add.Tensor", "--op", "aten.relu.default")
    options = ("--converter", name, "--examples", "12", "--record-only", "--no-blame", "--dtype", "float32")
    done = run_harness(*options, *operators, "--shapes", "both", "--results-dir", tmp_path / "run")
    assert done.returncode == 0, output(done)
    recorded = rows(tmp_path / "run", "case_id", "outcome", "stage", "message", "shape_mode", "overload")
    passed = {(row["overload"], row["shape_mode"]) for row in recorded if row["outcome"] == "pass"}
    assert ("aten.relu.default", "static") in passed
    assert ("aten.relu.default", "dynamic") in passed
    refused = next(r for r in recorded if r["outcome"] == "unsupported" and r["shape_mode"] == "static")
    monkeypatch.chdir(tmp_path)
    typed("repro", refused["case_id"], "--run", tmp_path / "run")
    (script,) = tmp_path.glob("repro_*.py")
    assert "to_onnx(" in script.read_text()
