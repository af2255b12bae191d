"""Nodes that a runtime leaves to the CPU although another device was asked for are recorded and shown."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import pytest
from backend_models import start_to_run
from commands import answered, typed
from harness_runs import output, rows, run_harness, unary
from onnx_texts import onnx_model

from harness.compare.verdict import Outcome
from harness.core.case_group import CaseGroup
from harness.core.invocation import Invocation, Literal, TensorSpec
from harness.core.placement import OnCpu, Placement
from harness.core.route import Route
from harness.pipeline.batch_export import Converted, Member
from harness.pipeline.case_run import CaseRun
from harness.pipeline.placement import placement_of, placements
from harness.pipeline.program import CallStructure
from harness.pipeline.task import Settings, Task
from harness.pipeline.worker import WorkerProcess
from harness.present.dashboard.operator_data import COLUMNS as OPERATOR_COLUMNS, Attachments, decoded, operator_data
from harness.present.run_counts import fallbacks, placement_text
from harness.record import store
from harness.run.backend import BACKENDS, Backend, BackendFailure

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


def wholly(*operators: str) -> Placement:
    """Return the placement of a case of which nothing ran on the device."""
    return Placement(OnCpu.WHOLLY, operators)


def together(calls: Sequence[Invocation], backend: str) -> Mapping[str, Placement | None]:
    """Overload → the placement of its case, for calls that are exported and loaded together."""
    return {overload: run.placement for overload, run in run_together(calls, backend).items()}


def run_together(calls: Sequence[Invocation], backend: str, *, strict_device: bool = False) -> Mapping[str, CaseRun]:
    groups = tuple(CaseGroup.of(call, index=i) for i, call in enumerate(calls))
    said: list[object] = []
    settings = Settings(blame=False, strict_device=strict_device)
    WorkerProcess(said.append).serve(Task(groups, Route(converter="torchscript"), (backend,), settings))
    results = [r for found in said if isinstance(found, list) for r in found if isinstance(r, CaseRun)]
    assert len(results) == len(calls)
    return {calls[r.case[0]].overload: r for r in results}


def test_what_ran_elsewhere_does_not_conform_if_the_device_is_strict() -> None:
    started("planted-ort:azure")
    calls = [unary(f"aten.{name}.default", [1.0, 0.0]) for name in ("relu", "neg")]
    loose, strict = (run_together(calls, "planted-ort:azure", strict_device=is_strict) for is_strict in (False, True))
    assert [run.outcome for run in loose.values()] == [Outcome.PASS] * 2
    assert [run.outcome for run in strict.values()] == [Outcome.UNSUPPORTED] * 2
    assert strict["aten.relu.default"].placement == wholly("Relu")


def test_each_case_of_a_batch_has_its_own_nodes() -> None:
    calls = [unary(f"aten.{name}.default", [1.0, 0.0]) for name in ("relu", "nonzero", "mish")]
    assert together(calls, "ort-cpu") == {call.overload: None for call in calls}
    started("planted-ort:azure")
    assert together(calls, "planted-ort:azure") == {
        "aten.relu.default": wholly("Relu"),
        "aten.nonzero.default": wholly("NonZero", "Transpose"),
        "aten.mish.default": wholly("Mul", "Softplus", "Tanh"),
    }


@pytest.mark.parametrize(
    ("provider", "on_cpu"),
    [
        ("ort-ep:openvino", {"aten.det.default": ("Det",)}),
        (
            "ort-webgpu",
            {
                "aten.det.default": ("Det",),
                "aten.nonzero.default": ("NonZero", "Transpose"),
                "aten.sign.default": ("Sign",),
            },
        ),
    ],
)
def test_a_real_provider_that_takes_some_nodes(provider: str, on_cpu: Mapping[str, tuple[str, ...]]) -> None:
    started(provider)
    calls = [
        DET,
        *(unary(f"aten.{name}.default", [1.0, 0.0]) for name in ("relu", "nonzero", "sign", "mish")),
    ]
    told = together(calls, provider)
    fallen = {overload: wholly(*operators) for overload, operators in on_cpu.items()}
    assert told == {call.overload: fallen.get(call.overload) for call in calls}


@pytest.mark.parametrize(
    ("provider", "placement"),
    [
        ("planted-ort:azure", wholly("Det", "Relu")),
        ("ort-ep:openvino", Placement(OnCpu.PARTLY, ("Det",))),
        ("ort-webgpu", Placement(OnCpu.PARTLY, ("Det",))),
    ],
)
def test_the_nodes_of_a_case_that_fall_back_are_told(provider: str, placement: Placement) -> None:
    backend = started(provider)
    model = onnx_model("float[2,2] x", "float y", "[relu] r = Relu (x) [det] y = Det (r)", opset=18)
    assert placement_of(backend.load(model, None), model) == placement


@pytest.mark.gpu
def test_what_cuda_takes_runs_there() -> None:
    start_to_run("ort-cuda")
    calls = [unary(f"aten.{name}.default", [1.0, 0.0]) for name in ("relu", "nonzero", "mish")]
    assert together(calls, "ort-cuda") == {call.overload: None for call in calls}


def test_nodes_within_branches_are_told() -> None:
    branches = (
        f"{name} = b () => (float[2] b) {{ b = {kind} (x) }}"
        for name, kind in (("then_branch", "Celu"), ("else_branch", "Relu"))
    )
    nodes = f"y = If <{', '.join(branches)}> (c)"
    model = onnx_model("float[2] x, bool c", "float[2] y", nodes, opset=18)
    assert placement_of(started("planted-ort:azure").load(model, None), model) == wholly("Celu", "If", "Relu")


def test_a_graph_without_inputs_is_computed_while_it_is_loaded() -> None:
    model = onnx_model("", "int64[5] y", "y = Range (a, b, c)", opset=18, a=0, b=5, c=1)
    assert placement_of(started("planted-ort:azure").load(model, None), model) == Placement(OnCpu.FOLDED)


def test_nodes_that_the_runtime_names_anew_are_told_of_the_right_case() -> None:
    backend = started("planted-ort:azure")
    members = []
    for index, overload in enumerate(("aten.celu.default", "aten.relu.default")):
        call = unary(overload, [1.0, -1.0])
        group = CaseGroup.of(call, index=index)
        members.append(Member.of(CallStructure.of(group), group))
    (x,), (z,) = (member.structure.input_names for member in members)
    (y,), (w,) = (member.structure.output_names for member in members)
    outputs, nodes = f"float[2] {y}, float[2] {w}", f"[call] {y} = own.Own ({x}) [relu] {w} = Relu ({z})"
    model = onnx_model(f"float[2] {x}, float[2] {z}", outputs, nodes, opset=18, domain="own")
    body = '<opset_import: ["": 18], domain: "own"> Own (a) => (b) { [inner] t = Celu (a) [outer] b = Neg (t) }'
    model.functions.append(onnx.parser.parse_function(body))
    session = backend.load(model, None)
    assert placements(backend, session, Converted(model, tuple(members), 0.0), None) == {
        0: wholly("Celu", "Neg"),
        1: wholly("Relu"),
    }


@pytest.mark.slow
def test_a_backend_that_does_not_start_is_named_with_its_reason(tmp_path: Path) -> None:
    done = run_harness(
        *("--op", "aten::celu", "--backend", "planted-ort:none", "--examples", "2", "--converter", "dynamo"),
        *("--results-dir", tmp_path / "run"),
    )
    assert done.returncode == 1
    why = "planted-ort:none does not start: BackendFailure: Unknown Provider Type: NoExecutionProvider"
    assert f"\nthe worker process ended before it began: {why}\n" in done.stdout


@pytest.mark.slow
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
    assert all(row["placement"].startswith("wholly-on-cpu ") for row in fallen)
    (found,) = fallbacks(run)
    assert (found.backend, found.fell_back) == ("planted-ort:azure", len(fallen))
    assert found.operators["NonZero"] == sum("NonZero" in row["placement"] for row in fallen) > 0
    assert f"{len(fallen)} cases fell back to the CPU, in part or wholly: " in done.stdout
    case = next(row for row in fallen if "NonZero" in row["placement"])
    shown = typed("show", case["case_id"], "--run", run).output
    assert placement_text(case["placement"]) in shown
    data = answered("show", case["case_id"], "--run", run)
    assert {v["backend"]: v["placement"] for v in data["verdicts"]} == {
        "ort-cpu": "",
        "planted-ort:azure": case["placement"],
    }
    table = decoded(store.read(run, OPERATOR_COLUMNS))
    shown_cases = operator_data(case["overload"], table, Attachments(), [case["case_id"]])["cases"]
    assert [one.get("placement", "") for one in shown_cases[0]["rows"]] == [
        placement_text(row["placement"]) for row in rows(run) if row["case_id"] == case["case_id"]
    ]
    markdown = typed("summary", run).output
    assert f"- {found.sentence}" in markdown
    summed = answered("summary", run)
    assert summed["fallbacks"] == [found.to_data()]


@pytest.mark.parametrize(
    ("text", "placement"),
    [
        ("", None),
        ("partly-on-cpu Add NonZero", Placement(OnCpu.PARTLY, ("Add", "NonZero"))),
        ("folded", Placement(OnCpu.FOLDED)),
        # What earlier versions wrote.
        ("fell back to CPU: Add, NonZero", Placement(OnCpu.PARTLY, ("Add", "NonZero"))),
        ("fell back to CPU: Add (nothing ran on the device)", Placement(OnCpu.WHOLLY, ("Add",))),
        ("computed on the CPU while it was loaded", Placement(OnCpu.FOLDED)),
        ("not known: the runtime does not tell", Placement(OnCpu.UNKNOWN)),
    ],
)
def test_a_column_is_read_also_of_earlier_runs(text: str, placement: Placement | None) -> None:
    assert Placement.parse(text) == placement
    assert placement is None or Placement.parse(placement.text) == placement
