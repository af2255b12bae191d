"""What a runtime leaves to the CPU although another device was asked for: told per case, shown everywhere."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import pytest
from backend_models import F32, I64, info, model_of, node, start_to_run
from click.testing import CliRunner
from harness_runs import output, rows, run_harness, unary
from onnx import helper

from harness.app.cli._group import conformance
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.route import Route
from harness.pipeline.batch_export import Accepted, Converted
from harness.pipeline.case_run import CaseRun
from harness.pipeline.placement import placement_of, placements
from harness.pipeline.reference import run_reference
from harness.pipeline.task import Group, Settings, Task
from harness.pipeline.worker import WorkerProcess
from harness.present.dashboard.operator_data import COLUMNS as OPERATOR_COLUMNS, Attachments, decoded, operator_data
from harness.present.run_counts import fallbacks
from harness.record import store
from harness.run.backend import BACKENDS, Backend, BackendFailure

NOTHING = " (nothing ran on the device)"
DET = Invocation(
    "aten.det.default", (("self", TensorSpec((2, 2), "float32", (2, 1), 0, Literal((1.0, 2.0, 3.0, 5.0)))),)
)


def started(name: str) -> Backend:
    # Imported here: it registers a backend, which the other files of this process are not to meet.
    importlib.import_module("planted.providers")
    entry, argument = BACKENDS.find(name)
    problem = entry.probe(argument)
    if problem is not None:
        pytest.skip(problem.reason)
    try:
        return entry.create(argument)
    except BackendFailure as failure:
        # OpenVINO's provider takes processors of Intel only.
        pytest.skip(str(failure))


def together(calls: Sequence[Invocation], backend: str) -> Mapping[str, str]:
    """Overload → what is said of its case, for calls that are exported and loaded together."""
    groups = tuple(Group(i, call, ((0, call),)) for i, call in enumerate(calls))
    said: list[object] = []
    WorkerProcess(said.append).serve(Task(groups, Route(converter="torchscript"), (backend,), Settings(blame=False)))
    results = [r for found in said if isinstance(found, list) for r in found if isinstance(r, CaseRun)]
    assert len(results) == len(calls)
    return {calls[r.case[0]].overload: r.placement for r in results}


def test_each_case_of_a_batch_is_told_its_own_nodes() -> None:
    calls = [unary(f"aten.{name}.default", [1.0, 0.0]) for name in ("relu", "nonzero", "mish")]
    assert together(calls, "ort-cpu") == {call.overload: "" for call in calls}
    started("planted-ort:azure")
    assert together(calls, "planted-ort:azure") == {
        "aten.relu.default": f"fell back to CPU: Relu{NOTHING}",
        "aten.nonzero.default": f"fell back to CPU: NonZero, Transpose{NOTHING}",
        "aten.mish.default": f"fell back to CPU: Mul, Softplus, Tanh{NOTHING}",
    }


@pytest.mark.parametrize(
    ("provider", "on_cpu"),
    [
        ("ort-ep:openvino", {"aten.det.default": "Det"}),
        (
            "ort-webgpu",
            {
                "aten.det.default": "Det",
                "aten.nonzero.default": "NonZero, Transpose",
                "aten.sign.default": "Sign",
            },
        ),
    ],
)
def test_a_real_provider_that_takes_some_nodes(provider: str, on_cpu: Mapping[str, str]) -> None:
    started(provider)
    calls = [
        DET,
        *(unary(f"aten.{name}.default", [1.0, 0.0]) for name in ("relu", "nonzero", "sign", "mish")),
    ]
    told = together(calls, provider)
    fallen = {overload: f"fell back to CPU: {operators}{NOTHING}" for overload, operators in on_cpu.items()}
    assert told == {call.overload: fallen.get(call.overload, "") for call in calls}


@pytest.mark.parametrize(
    ("provider", "rest"), [("planted-ort:azure", f", Relu{NOTHING}"), ("ort-ep:openvino", ""), ("ort-webgpu", "")]
)
def test_one_node_of_a_case_falls_back(provider: str, rest: str) -> None:
    backend = started(provider)
    model = model_of(
        [node("Relu", ["x"], ["r"], name="relu"), node("Det", ["r"], ["y"], name="det")],
        [info("x", F32, [2, 2])],
        [info("y", F32, [])],
    )
    assert placement_of(backend.load(model, None), model) == f"fell back to CPU: Det{rest}"


@pytest.mark.gpu
def test_what_cuda_takes_runs_there() -> None:
    start_to_run("ort-cuda")
    calls = [unary(f"aten.{name}.default", [1.0, 0.0]) for name in ("relu", "nonzero", "mish")]
    assert together(calls, "ort-cuda") == {call.overload: "" for call in calls}


def test_nodes_within_branches_are_told() -> None:
    branches = [
        helper.make_graph([node(name, ["x"], ["b"], name=name.lower())], name, [], [info("b", F32, [2])])
        for name in ("Celu", "Relu")
    ]
    choice = node("If", ["c"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1])
    model = model_of([choice], [info("x", F32, [2]), info("c", onnx.TensorProto.BOOL, [])], [info("y", F32, [2])])
    assert (
        placement_of(started("planted-ort:azure").load(model, None), model)
        == f"fell back to CPU: Celu, If, Relu{NOTHING}"
    )


def test_a_graph_without_inputs_is_computed_while_it_is_loaded() -> None:
    bounds = [helper.make_tensor(name, I64, [], [value]) for name, value in (("a", 0), ("b", 5), ("c", 1))]
    model = model_of([node("Range", ["a", "b", "c"], ["y"], name="range")], [], [info("y", I64, [5])], bounds)
    assert (
        placement_of(started("planted-ort:azure").load(model, None), model) == "computed on the CPU while it was loaded"
    )


def test_nodes_that_the_runtime_names_anew_are_told_of_the_right_case() -> None:
    backend = started("planted-ort:azure")
    members = []
    for index, overload in enumerate(("aten.celu.default", "aten.relu.default")):
        call = unary(overload, [1.0, -1.0])
        members.append(Accepted.of(Group(index, call, ((0, call),)), {0: run_reference(call)}))
    (x,), (z,) = (member.structure.input_names for member in members)
    (y,), (w,) = (member.structure.output_names for member in members)
    model = model_of(
        [node("Own", [x], [y], name="call", domain="own"), node("Relu", [z], [w], name="relu")],
        [info(x, F32, [2]), info(z, F32, [2])],
        [info(y, F32, [2]), info(w, F32, [2])],
        domains=["own"],
    )
    body = [node("Celu", ["a"], ["t"], name="inner"), node("Neg", ["t"], ["b"], name="outer")]
    model.functions.append(helper.make_function("own", "Own", ["a"], ["b"], body, [helper.make_opsetid("", 18)]))
    session = backend.load(model, None)
    assert placements(backend, session, Converted(model, tuple(members), 0.0), None) == {
        0: f"fell back to CPU: Celu, Neg{NOTHING}",
        1: f"fell back to CPU: Relu{NOTHING}",
    }


def test_a_backend_that_does_not_start_is_named_with_its_reason(tmp_path: Path) -> None:
    done = run_harness(
        *("--op", "aten::celu", "--backend", "planted-ort:none", "--examples", "2", "--converter", "dynamo"),
        *("--results-dir", tmp_path / "run"),
    )
    assert done.returncode == 1
    why = "planted-ort:none does not start: BackendFailure: Unknown Provider Type: NoExecutionProvider"
    assert f"\nthe worker process ended before it began: {why}\n" in done.stdout


def test_a_run_says_what_fell_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = run_harness(
        *(
            "--op",
            "aten::nonzero",
            "--op",
            "aten::celu",
            "--backend",
            "planted-ort:azure",
            "--backend",
            "ort-cpu",
        ),
        *("--converter", "dynamo", "--examples", "6", "--no-blame", "--results-dir", run),
    )
    ran = [row for row in rows(run) if row["stage"] in ("run", "compare")]
    fallen = [row for row in ran if row["backend"] == "planted-ort:azure"]
    assert fallen, output(done)
    assert {row["placement"] for row in ran if row["backend"] == "ort-cpu"} == {""}
    assert all(row["placement"].startswith("fell back to CPU: ") for row in fallen)
    (found,) = fallbacks(run)
    assert (found.backend, found.fell_back) == ("planted-ort:azure", len(fallen))
    assert found.operators["NonZero"] == sum("NonZero" in row["placement"] for row in fallen) > 0
    assert f"{len(fallen)} cases fell back to the CPU, in part or wholly: " in done.stdout
    case = next(row for row in fallen if "NonZero" in row["placement"])
    shown = CliRunner().invoke(conformance, ["show", case["case_id"], "--run", str(run)]).output
    assert case["placement"] in shown
    data = json.loads(CliRunner().invoke(conformance, ["show", case["case_id"], "--run", str(run), "--json"]).output)
    assert {v["backend"]: v["placement"] for v in data["verdicts"]} == {
        "ort-cpu": "",
        "planted-ort:azure": case["placement"],
    }
    table = decoded(store.read(run, OPERATOR_COLUMNS))
    shown_cases = operator_data(case["overload"], table, Attachments(), [case["case_id"]])["cases"]
    assert [one.get("placement", "") for one in shown_cases[0]["rows"]] == [
        row["placement"] for row in rows(run) if row["case_id"] == case["case_id"]
    ]
    markdown = CliRunner().invoke(conformance, ["summary", str(run)]).output
    assert f"- {found.sentence}" in markdown
    summed = json.loads(CliRunner().invoke(conformance, ["summary", str(run), "--json"]).output)
    assert summed["fallbacks"] == [found.to_data()]
