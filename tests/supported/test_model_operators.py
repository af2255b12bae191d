"""`conformance supports` on models and their files, and `conformance graphs`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from harness_runs import record_of, row_of, unary, vector

from harness.app.cli._group import conformance
from harness.compare.verdict import Outcome, Stage, Verdict
from harness.core.invocation import Invocation
from harness.record import store
from harness.record.json_lines import read_graphs, read_scripts
from harness.record.run_info import RunInfo
from harness.record.writer import RunWriter

pytestmark = pytest.mark.slowest(29)


class Small(torch.nn.Module):
    """Four operators, one of them twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.celu(self.linear(x), alpha=2.0)
        return torch.nn.functional.celu(x) + x.softmax(-1)


def supports(*words: str | Path) -> Result:
    return CliRunner().invoke(conformance, ["supports", *map(str, words)])


def calls(done: Result) -> dict[str, dict[str, Any]]:
    (answer,) = json.loads(done.stdout)
    return {call["overload"]: call for call in answer["calls"]}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    model, inputs = Small().eval(), (torch.randn(2, 3),)
    torch.onnx.export(model, inputs, str(directory / "noted.onnx"), dynamo=True, verbose=False)
    torch.onnx.export(model, inputs, str(directory / "plain.onnx"), dynamo=False)
    torch.export.save(torch.export.export(model, inputs), directory / "program.pt2")
    return directory


@pytest.fixture(scope="module")
def answering(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which celu fails in float64 and, in float32, with another alpha than the model's."""

    def celu(dtype: str, alpha: float, **more: Any) -> Verdict:
        values = vector([0.5, -1.0], dtype)
        call = Invocation("aten.celu.default", (("self", values), ("alpha", alpha)))
        return row_of(call, dtype=dtype, **more)

    failure = {"outcome": Outcome.MISMATCH, "signature": "values", "message": "wrong"}
    passing = [unary("aten.softmax.int", [1.0, 2.0])]
    mixed = [unary("aten.add.Tensor", [float(n)]) for n in (1, 2)]
    mixed = [Invocation(one.overload, (*one.arguments, ("other", vector([1.0])), ("alpha", 3.0))) for one in mixed]
    directory = tmp_path_factory.mktemp("answers") / "run"
    with RunWriter(directory, RunInfo.begin(seed=0, options={})) as writer:
        writer.write(
            [
                celu("float32", 2.0),
                celu("float32", 1),
                celu("float32", 3.0, **failure),
                celu("float64", 2.0, **failure),
                *(row_of(Invocation(o.overload, (*o.arguments, ("dim", 0)))) for o in passing),
                row_of(mixed[0]),
                row_of(mixed[1], **failure),
            ]
        )
    store.finish(directory, 1)
    return directory


@pytest.mark.parametrize("name", ["program.pt2", "noted.onnx", "plain.onnx"])
def test_a_run_answers_for_the_calls_of_a_model(models: Path, answering: Path, name: str) -> None:
    done = supports(models / name, "--record", answering, "--json")
    assert done.exit_code == 3, done.output
    found = calls(done)
    names = {"aten.linear.default", "aten.celu.default", "aten.softmax.int", "aten.add.Tensor"}
    assert names - {"aten.linear.default"} <= found.keys()
    # Linear and softmax over this dimension were never recorded; add was with another alpha only.
    assert found["aten.add.Tensor"]["standing"] == "unknown"
    assert not found["aten.add.Tensor"]["these_attributes"]
    assert found["aten.softmax.int"]["standing"] == "unknown"
    assert found["aten.celu.default"]["standing"] == "supported"


def test_the_dtypes_of_the_model_are_those_that_are_judged(answering: Path, tmp_path: Path) -> None:
    model, inputs = torch.nn.CELU(2.0).double(), (torch.randn(2, 3, dtype=torch.float64),)
    torch.export.save(torch.export.export(model, inputs), tmp_path / "program.pt2")
    done = supports(tmp_path / "program.pt2", "--record", answering)
    assert done.exit_code == 1
    assert done.stdout.startswith("aten.celu.default(float64, alpha=2.0): unsupported: 1 of 1 case fails")


@pytest.mark.parametrize(
    ("node_type", "inputs", "overload"),
    [
        ("Where", 3, "aten.where.self"),
        ("NonZero", 1, "aten.nonzero.default"),
        ("ReduceSum", 2, "aten.sum.dim_IntList"),
        ("ReduceSum", 1, "aten.sum.default"),
        ("Add", 2, "aten.add.Tensor"),
        ("Concat", 3, "aten.concat.default"),
    ],
)
def test_a_node_is_traced_back_to_an_overload_that_takes_its_inputs(
    node_type: str, inputs: int, overload: str, tmp_path: Path
) -> None:
    names = [f"x{i}" for i in range(inputs)]
    values = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1]) for n in (*names, "y")]
    node = onnx.helper.make_node(node_type, names, ["y"])
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:-1], values[-1:])),
        tmp_path / "m.onnx",
    )
    assert calls(supports(tmp_path / "m.onnx", "--json")).keys() == {overload}


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Mystery", ["x"], ["y"], domain="com.example")
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    done = supports(tmp_path / "model.onnx")
    # ONNX Runtime knows no such operator either, and says so when it loads the file.
    assert done.exit_code == 1
    assert "com.example::Mystery: unknown: it is not a known ATen operator" in done.stdout
    assert "ort-cpu cannot load it" in done.stdout
    (tmp_path / "text.onnx").write_text("no model")
    for name in ("text.onnx", "none.onnx"):
        wrong = supports(tmp_path / name)
        assert wrong.exit_code == 2
        assert name in wrong.output


def test_graphs_and_scripts_are_written_once(tmp_path: Path) -> None:
    invocation = unary("aten.celu.default", [-1.0, 0.5, 2.0])
    failure = {
        "outcome": Outcome.UNSUPPORTED,
        "stage": Stage.LOAD,
        "signature": "no kernel",
        "message": "no kernel",
    }
    run = record_of(tmp_path / "run", [invocation], **failure)
    for times in (1, 0):
        done = CliRunner().invoke(conformance, ["graphs", str(run), "--json"])
        assert done.exit_code == 0, done.output
        said = json.loads(done.stdout)
        assert (said["graphs"], said["scripts"], said["failed"]) == (times, times, {})
    graph = read_graphs(run)["aten.celu.default", "dynamo"]
    assert graph.node_types == ("Celu",)
    assert onnx.parser.parse_model(graph.text).graph.node[0].op_type == "Celu"
    assert "  # aten_celu (onnxscript/function_libs/torch_lib/ops/nn.py:" in graph.text
    script = read_scripts(run)[invocation.case_id, "dynamo", "ort-cpu"]
    compile(script.text, "script.py", "exec")
    assert "torch.ops.aten.celu.default" in script.text
