"""`conformance operators`, and `conformance graphs`, which it learns from."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from click.testing import CliRunner, Result
from harness_runs import environment, record_of, row_of, unary, vector
from warm_starts import run

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


def operators(*words: str | Path) -> Result:
    return CliRunner().invoke(conformance, ["operators", *map(str, words)])


def named(done: Result) -> dict[str, tuple[int, str]]:
    data = json.loads(done.stdout)
    return {one["name"]: (one["nodes"], one["how"]) for one in data["operators"]}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("models")
    model, inputs = Small().eval(), (torch.randn(2, 3),)
    torch.onnx.export(model, inputs, str(directory / "noted.onnx"), dynamo=True, verbose=False)
    torch.onnx.export(model, inputs, str(directory / "plain.onnx"), dynamo=False)
    torch.export.save(torch.export.export(model, inputs), directory / "program.pt2")
    return directory


def test_an_exported_program_and_what_the_exporter_notes_agree(models: Path) -> None:
    program, noted = operators(models / "program.pt2", "--json"), operators(models / "noted.onnx", "--json")
    assert program.exit_code == noted.exit_code == 0, program.output + noted.output
    expected = {"aten.linear.default": 1, "aten.celu.default": 2, "aten.softmax.int": 1, "aten.add.Tensor": 1}
    assert named(program) == {name: (nodes, "program") for name, nodes in expected.items()}
    assert named(noted) == {name: (nodes, "node") for name, nodes in expected.items()}


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
    mixed = [
        Invocation(one.overload, (*one.arguments, ("other", vector([1.0])), ("alpha", 3.0))) for one in mixed
    ]
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
def test_a_run_decides_which_operators_of_a_model_pass(models: Path, answering: Path, name: str) -> None:
    done = operators(models / name, "--run", answering)
    assert done.stdout.endswith("--dtype=float32\n")
    answer = next(line for line in done.stderr.splitlines() if line.startswith("dynamo → ort-cpu: "))
    # celu with these values of alpha, softmax in another dimension, add with another alpha, and no linear.
    known = "2 of 4 operators pass in float32, 1 with these attributes and 1 with others"
    assert answer.partition(": ")[2] == f"{known}; 2 are not decided"
    assert "is not decided: aten.add.Tensor(float32, float32" in done.stderr
    # Without a note of the exporter, ONNX's Add does not tell what alpha was.
    why = (
        "its attributes are not known; "
        if name == "plain.onnx"
        else "no case has these attributes; with others "
    )
    assert f"{why}1 of 2 cases fail" in done.stderr
    said = json.loads(operators(models / name, "--run", answering, "--json").stdout)
    assert said["dtypes"] == ["float32"]
    (found,) = said["answers"]
    assert found["operators"]["aten.celu.default"] == "passes"


def test_the_dtypes_of_the_model_are_those_that_are_judged(answering: Path, tmp_path: Path) -> None:
    model, inputs = torch.nn.CELU(2.0).double(), (torch.randn(2, 3, dtype=torch.float64),)
    torch.export.save(torch.export.export(model, inputs), tmp_path / "program.pt2")
    done = operators(tmp_path / "program.pt2", "--run", answering)
    assert done.stdout == "--op=aten.celu.default\n--dtype=float64\n"
    assert "0 of 1 operator passes in float64 with these attributes; 1 does not" in done.stderr
    assert (
        "fails: aten.celu.default(float64, alpha=2.0): 1 of 1 case fails: mismatch at compare" in done.stderr
    )


def test_nodes_without_notes_are_traced_back_by_name(models: Path) -> None:
    found = named(operators(models / "plain.onnx", "--json"))
    assert found["aten.celu.default"] == (2, "name")
    assert found["aten.add.Tensor"] == (1, "name")


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
    assert named(operators(tmp_path / "m.onnx", "--json")) == {overload: (1, "name")}


def test_the_list_is_what_pytest_takes(models: Path, tmp_path: Path) -> None:
    done = operators(models / "program.pt2")
    (tmp_path / "operators.txt").write_text(done.stdout)
    collected = run(
        [
            *(sys.executable, "-m", "pytest", "harness", f"@{tmp_path / 'operators.txt'}", "--co", "-q"),
            *("-p", "no:cacheprovider", "--source", "generated"),
        ],
        cwd=Path(__file__).parents[2],
        env=environment(),
    )
    assert collected.returncode == 0, collected.stdout + collected.stderr
    for name in ("linear.default", "celu.default", "softmax.int", "add.Tensor"):
        assert f"test_conformance[aten.{name}-dynamo]" in collected.stdout


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Mystery", ["x"], ["y"], domain="com.example")
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", value[:1], value[1:])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    done = operators(tmp_path / "model.onnx")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "no known ATen operator: com.example::Mystery (1 node)\n"
    (tmp_path / "text.onnx").write_text("no model")
    for name in ("text.onnx", "none.onnx"):
        wrong = operators(tmp_path / name)
        assert wrong.exit_code == 2
        assert name in wrong.output


def test_graphs_and_scripts_are_written_once_and_tell_where_nodes_come_from(tmp_path: Path) -> None:
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
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([onnx.helper.make_node("Celu", ["x"], ["y"])], "g", value[:1], value[1:])
    )
    onnx.save(model, tmp_path / "model.onnx")
    found = named(operators(tmp_path / "model.onnx", "--json", "--run", run))
    assert found == {"aten.celu.default": (1, "record")}
