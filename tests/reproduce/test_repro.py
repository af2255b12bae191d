"""Scripts that the harness writes for failures: they run by themselves, fail as long as the defect is there,
and no longer."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any

import pytest
import torch
from click.testing import Result
from commands import entered
from harness_runs import METADATA, literal_unit, record_of, unary, vector
from hypothesis import given, settings, strategies as st
from planted._guilty import VALUE
from recorded_rows import call, recorded, row_of, tensor
from sampling import sampled
from script_runs import ended, fork_scripts, run_script

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.converter import CONVERTERS
from harness.core.dtypes import ALL
from harness.core.invocation import Invocation, Recipe, TensorSpec, contiguous_strides
from harness.core.styles import STYLES
from harness.core.tensors import build_tensor
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings
from harness.plan.unit import run_unit
from harness.record.json_lines import Minimal, append_line
from harness.reproduce import call_source
from harness.reproduce.failure import ReproducibleFailure, find_failure
from harness.reproduce.issue import CallReport, write_issue, write_report
from harness.reproduce.script import write_script
from harness.run.backend import BACKENDS

pytestmark = pytest.mark.slowest(4)

NAN, INF = float("nan"), float("inf")


IMAGE = tensor([[[[1.0, 2.0], [3.0, 6.0]]]])
POOL = {"kernel_size": (2, 2), "stride": (2, 2), "padding": (0, 0)}
FLAGS = {"ceil_mode": False, "count_include_pad": True, "divisor_override": 3}
DIVISOR = call("aten.avg_pool2d.default", self=IMAGE, **POOL, **FLAGS)
NO_DIVISOR = call("aten.avg_pool2d.default", self=IMAGE, **POOL)
DOUBLE = tensor([[[[1.0, 2.0], [3.0, 6.0]]]], "float64")
SCALAR = tensor(2.5)
MIXED = (-0.3, 0.0, 0.7, NAN, INF, -INF)
MISMATCH = (Stage.COMPARE, Outcome.MISMATCH)

#: Name → converter, backend, invocation, and how it ends: real defects of each kind.
REAL: dict[str, tuple[str, str, Invocation, Stage, Outcome]] = {
    "a dropped argument": ("dynamo", "ort-cpu", DIVISOR, *MISMATCH),
    "the same by the other exporter": ("torchscript", "openvino", DIVISOR, *MISMATCH),
    "an invalid model": (
        *("torchscript", "ort-cpu", call("aten.topk.default", self=SCALAR, k=1)),
        *(Stage.CHECK, Outcome.ERROR),
    ),
    "no conversion": (
        *("torchscript", "ort-cpu", unary("aten.erfinv.default", [0.25])),
        *(Stage.CONVERT, Outcome.UNSUPPORTED),
    ),
    "no kernel": (
        *("torchscript", "ort-cpu", call("aten.avg_pool2d.default", self=DOUBLE, **POOL)),
        *(Stage.LOAD, Outcome.UNSUPPORTED),
    ),
    "a model that does not run": (
        *("torchscript", "ort-cpu", call("aten.cumsum.default", self=SCALAR, dim=0)),
        *(Stage.RUN, Outcome.ERROR),
    ),
    "a lost sign of zero": ("dynamo", "ort-cpu", unary("aten.diag_embed.default", [-0.0, 1.0]), *MISMATCH),
    "NaN in other places": (
        *("torchscript", "ort-cpu", call("aten.remainder.Tensor", self=[1.5, INF], other=[-INF, 2.0])),
        *MISMATCH,
    ),
    "a runtime's wrong values": ("dynamo", "ort-cpu", unary("aten.sigmoid.default", [-39.0, -40.0]), *MISMATCH),
    "a runtime's wrong shape": (
        *("dynamo", "ort-cpu", call("aten.repeat_interleave.self_int", self=[1.0, 2.0], repeats=0)),
        *MISMATCH,
    ),
    "a graph in fewer bits": (
        *("dynamo", "ort-cpu", call("aten.celu.default", self=tensor([-1.0, 2.0], "float64"), alpha=0.001)),
        *MISMATCH,
    ),
    "what a builder refuses": (
        *("torchscript", "trt-rtx", call("aten.cumsum.default", self=SCALAR, dim=0)),
        *(Stage.LOAD, Outcome.UNSUPPORTED),
    ),
}
#: Planted ones, whose converter or backend has code of its own.
GUILTY = unary("aten.neg.default", [VALUE])
PLANTED: dict[str, tuple[str, str, Invocation, Stage, Outcome]] = {
    "a wrong conversion": (
        *("planted-wrong", "ort-cpu", call("aten.celu.default", self=[-1.0, 2.0], alpha=2.0)),
        *MISMATCH,
    ),
    "an exception": ("torchscript", "onnx-api:planted.raises", GUILTY, Stage.RUN, Outcome.ERROR),
    "a dead process": ("torchscript", "onnx-api:planted.segfault", GUILTY, Stage.RUN, Outcome.CRASH),
}
EVERY = {**REAL, **PLANTED}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run in which every defect was met, recorded as ever."""
    directory: Path = tmp_path_factory.mktemp("repro") / "run"
    verdicts: list[Verdict] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(METADATA))
        patch.setenv("PYTHONPATH", os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(METADATA))))
        import planted.converters  # noqa: F401 - registers them in this process

        with Supervisor() as supervisor:
            for converter, backend, invocation, _, _ in EVERY.values():
                unit = literal_unit(
                    [invocation], converter=converter, backends=[backend], settings=Settings(batch_size=1)
                )
                verdicts += [v for found in run_unit(unit, supervisor) for v in found]
        yield recorded(directory, verdicts)


def failure_of(run: Path, name: str) -> ReproducibleFailure:
    """The recorded failure of one of `EVERY`."""
    converter, backend, invocation, _, _ = EVERY[name]
    return find_failure(run, invocation.case_id, converter=converter, backend=backend)


#: Failures at each stage, whose scripts run by default.
RUN_BY_DEFAULT = {"a dropped argument", "no conversion", "no kernel", "a runtime's wrong values", "a dead process"}


@pytest.mark.parametrize("name", sampled(EVERY, named=RUN_BY_DEFAULT))
def test_a_script_fails_by_itself_as_the_case_did(name: str, run: Path, tmp_path: Path) -> None:
    failure = failure_of(run, name)
    assert (failure.verdict.stage, failure.verdict.outcome) == EVERY[name][3:], failure.verdict.message
    script = write_script(failure)
    assert "harness" not in script
    done = run_script(tmp_path, script)
    assert done.returncode == 1, ended(done)
    # What C++ prints comes when the process ends.
    assert "The defect is there." in done.stdout.splitlines(), ended(done)
    assert "expected" in done.stdout
    assert "got" in done.stdout
    assert torch.__version__ in done.stdout


#: A defect → the same call where it is not met.
GONE: dict[str, Invocation] = {
    "the same by the other exporter": NO_DIVISOR,
    "an invalid model": call("aten.topk.default", self=[1.0, 2.0], k=1),
    "no conversion": unary("aten.neg.default", [0.25]),
    "no kernel": NO_DIVISOR,
    "a model that does not run": call("aten.cumsum.default", self=[1.0], dim=0),
    "a lost sign of zero": unary("aten.diag_embed.default", [0.0, 1.0]),
    "a dead process": unary("aten.neg.default", [1.0]),
}


@pytest.mark.parametrize("name", sampled(GONE, named=RUN_BY_DEFAULT))
def test_a_script_ends_well_once_the_defect_is_gone(name: str, run: Path, tmp_path: Path) -> None:
    fixed = replace(failure_of(run, name), invocation=GONE[name], exported=GONE[name])
    done = run_script(tmp_path, write_script(fixed))
    assert done.returncode == 0, ended(done)
    assert done.stdout.rstrip().endswith("The defect is gone.")


def test_a_script_ends_well_once_the_conversion_is_right(run: Path, tmp_path: Path) -> None:
    script = write_script(failure_of(run, "a wrong conversion"))
    wrong = "custom_translation_table=translations(True)"
    assert wrong in script
    done = run_script(tmp_path, script.replace(wrong, "custom_translation_table=translations(False)"))
    assert done.returncode == 0, ended(done)


@pytest.mark.slow
def test_a_child_that_hangs_is_ended(run: Path, tmp_path: Path) -> None:
    dead = failure_of(run, "a dead process")
    failure = replace(
        dead,
        verdict=replace(dead.verdict, backend="onnx-api:planted.hang", outcome=Outcome.TIMEOUT),
        timeout=3.0,
    )
    script = write_script(failure)
    assert "timeout=63" in script
    done = run_script(tmp_path, script.replace("timeout=63", "timeout=6"))
    assert done.returncode == 1, ended(done)
    assert "no answer within" in done.stdout


def test_a_dynamic_export_runs_at_other_sizes(tmp_path: Path) -> None:
    def roll(size: int, *shifts: int) -> Invocation:
        data = vector([float(i) for i in range(size)])
        dims = (-1,) * len(shifts)
        return Invocation("aten.roll.default", (("self", data), ("shifts", shifts), ("dims", dims)))

    # Shifts beyond the size are taken for the size of the example.
    failure = ReproducibleFailure(
        verdict=row_of(
            roll(9, 11, -27, 11),
            converter="torchscript",
            backend="onnx-reference",
            stage=Stage.COMPARE,
            outcome=Outcome.MISMATCH,
            signature="values",
        ),
        invocation=roll(9, 11, -27, 11),
        exported=roll(8, 11, -27, 11),
        dynamic_dims=(frozenset({0}),),
        opset=18,
    )
    script = write_script(failure)
    assert "opset_version=18" in script
    done = run_script(tmp_path, script)
    assert done.returncode == 1, ended(done)
    assert "The defect is there." in done.stdout, ended(done)
    verdict = replace(failure.verdict, converter="dynamo")
    within = replace(failure, verdict=verdict, invocation=roll(5, 1), exported=roll(3, 1))
    script = write_script(within)
    assert "dynamic_shapes" in script
    done = run_script(tmp_path, script)
    assert done.returncode == 0, ended(done)


@pytest.mark.slow
def test_what_is_drawn_is_compared_as_a_distribution(tmp_path: Path) -> None:
    def failing(overload: str, p: float) -> ReproducibleFailure:
        call = Invocation(overload, (("self", vector([1.0] * 6)), ("p", p)))
        return ReproducibleFailure(
            verdict=row_of(
                call,
                converter="dynamo",
                backend="ort-cpu",
                stage=Stage.COMPARE,
                outcome=Outcome.MISMATCH,
                signature="values",
            ),
            invocation=call,
            exported=call,
        )

    script = write_script(failing("aten.bernoulli.p", 0.75))
    right = run_script(tmp_path, script)
    assert right.returncode == 0, ended(right)
    assert "(x, 0.75)" in script
    wrong = run_script(tmp_path, script.replace("[Model()(", "[1 - Model()("))
    assert wrong.returncode == 1, ended(wrong)


@pytest.mark.parametrize("overload", ["aten.celu.default", "aten.remainder.Tensor", "aten.trunc.default"])
def test_a_script_for_a_pointwise_operator_is_short(overload: str) -> None:
    arguments: tuple[tuple[str, Any], ...] = (("self", vector(MIXED[:4])),)
    if overload.endswith("Tensor"):
        arguments = (*arguments, ("other", vector([1.0, -2.0, 0.1, INF])))
    call = Invocation(overload, arguments)
    for converter in ("dynamo", "torchscript"):
        failure = ReproducibleFailure(
            verdict=row_of(
                call,
                converter=converter,
                backend="ort-cpu",
                stage=Stage.COMPARE,
                outcome=Outcome.MISMATCH,
                signature="values",
            ),
            invocation=call,
            exported=call,
        )
        script = write_script(failure)
        assert len(script.splitlines()) < 42, script


# Literals


def layouts() -> st.SearchStrategy[tuple[tuple[int, ...], tuple[int, ...], int]]:
    shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
    plain = shapes.map(lambda shape: (shape, contiguous_strides(shape), 0))
    strided = st.tuples(shapes, st.integers(0, 3), st.integers(0, 2)).map(
        lambda t: (t[0], tuple((s * t[1]) for s in contiguous_strides(t[0])), t[2])
    )
    return st.one_of(plain, strided)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(layouts(), st.sampled_from(ALL), st.sampled_from(sorted(STYLES)), st.integers(0, 2**32 - 1))
def test_a_literal_is_the_tensor_bit_for_bit(
    layout: tuple[tuple[int, ...], tuple[int, ...], int], dtype: str, style: str, seed: int
) -> None:
    shape, strides, offset = layout
    spec = TensorSpec(shape, dtype, strides, offset, Recipe(("any",), style, seed))
    made, wanted = eval(call_source.tensor(spec), {"torch": torch, "nan": NAN, "inf": INF}), build_tensor(spec)
    assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
    if made.numel():
        assert (made.stride(), made.storage_offset()) == (wanted.stride(), wanted.storage_offset())
    if made.is_floating_point():
        assert torch.equal(made.isnan(), wanted.isnan())
        made, wanted = (
            made.nan_to_num(nan=0.0, posinf=INF, neginf=-INF),
            wanted.nan_to_num(nan=0.0, posinf=INF, neginf=-INF),
        )
        assert torch.equal(made.signbit(), wanted.signbit())
    assert torch.equal(made, wanted)


def test_long_literals_say_a_pattern() -> None:
    assert call_source.tensor(tensor([7] * 20, "int32")) == "torch.full((20,), 7, dtype=torch.int32)"
    assert call_source.tensor(tensor([*range(12)], shape=(3, 4))).startswith("torch.arange(0, 12, 1")


def test_a_literal_keeps_few_digits() -> None:
    assert call_source.tensor(tensor([0.1, -0.0])) == "torch.tensor([0.1, -0.0], dtype=torch.float32)"
    third = call_source.tensor(tensor(1 / 3, "bfloat16"))
    assert third == "torch.tensor(0.334, dtype=torch.bfloat16)"
    assert math.isclose(float(eval(third, {"torch": torch})), 1 / 3, rel_tol=2**-8)


# The command


def invoke(*words: str | Path) -> Result:
    return entered("repro", *words)


def test_the_command_writes_a_script_and_runs_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case_id = REAL["an invalid model"][2].case_id
    said = invoke(case_id[:8], "--run", run, "--json")
    assert said.exit_code == 0, said.output
    found = json.loads(said.output)
    assert found["reproduces"] is True
    assert found["exit_status"] == 1
    assert "The defect is there." in found["output"]
    assert Path(found["path"]).read_text() == found["script"]
    assert found["path"] == f"repro_{case_id[:8]}.py"


def test_a_bug_report_has_what_its_tracker_asks_for(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_scripts(monkeypatch)
    report = tmp_path / "report.md"
    case = REAL["no kernel"][2].case_id
    said = invoke(case, "--run", run, "--issue", "--out", report)
    assert said.exit_code == 0, said.output
    text = report.read_text()
    assert "github.com/microsoft/onnxruntime" in text
    assert "\n# AveragePool is not implemented for float64 on CPU\n" in text
    for heading in ("Describe the issue", "To reproduce", "ONNX Runtime Version", "Execution Provider"):
        assert f"### {heading}" in text
    assert "AveragePool" in text.partition("onnx.parser.parse_model")[2]
    assert "NOT_IMPLEMENTED" in text
    assert "### Architecture\n\nX64\n" in text or platform.machine() != "x86_64"
    case = REAL["no conversion"][2].case_id
    said = invoke(case, "--run", run, "--issue", "--out", "-", "--no-check")
    assert "github.com/pytorch/pytorch" in said.output
    assert "### 🐛 Describe the bug" in said.output


#: Defect → the title that its tracker gets.
RUNTIME = {
    "no kernel": "AveragePool is not implemented for float64 on CPU",
    "a model that does not run": "CumSum for float32 on CPU: running the model fails",
    "a runtime's wrong values": "Sigmoid gives wrong values for float32 on CPU",
    "a runtime's wrong shape": "A model of Reshape, Unsqueeze and Expand gives a wrong shape for float32",
}


@pytest.mark.parametrize("name", sampled(RUNTIME, named=RUN_BY_DEFAULT))
def test_a_runtimes_maintainers_get_a_script_without_pytorch(
    name: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_scripts(monkeypatch)
    failure = failure_of(run, name)
    cause = replace(failure.cause, blame="backend", component="ort-cpu", place="its kernel") if failure.cause else None
    verdict = replace(failure.verdict, blame="backend")
    report = write_report(replace(failure, verdict=verdict, cause=cause), check=False)
    assert report.title.startswith(RUNTIME[name])
    assert "torch" not in report.script
    done = run_script(tmp_path, report.script)
    assert done.returncode == 1, ended(done)
    # What C++ prints comes when the process ends.
    assert "The defect is there." in done.stdout.splitlines(), ended(done)
    text = write_issue(report)
    assert "Diagnosis: the defect is in ONNX Runtime, its kernel." in text
    assert "[pip3] torch" not in text
    if name == "a runtime's wrong values":
        node = "sigmoid = Sigmoid (x)"
        right = "n = Neg (x) e = Exp (n) one = Constant <value_float = 1.0> () d = Add (e, one)"
        mended = report.script.replace(node, f"{right} sigmoid = Reciprocal (d)")
        assert run_script(tmp_path, mended).returncode == 0


def test_a_report_for_pytorch_can_be_filed_as_it_stands(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_scripts(monkeypatch)
    evidence = "The graph that dynamo emits computes at lower precision than the call. ort-cpu is right."
    versions = {"python": "3.11.7", "torch": "2.13.0+cu130", "onnx": "1.23.2", "pytest": "9.2.0"}
    failure = failure_of(run, "a graph in fewer bits")
    verdict = replace(failure.verdict, blame="converter")
    known = replace(failure, verdict=verdict, evidence=evidence, versions=versions, system="Linux 6 x86_64")
    report = write_report(known)
    text = write_issue(report)
    assert "\n# [ONNX] celu computes float64 in float32\n" in text
    assert "Blame" not in text
    assert verdict.case_id not in text
    assert "The graph that `torch.onnx.export(dynamo=True)` emits" in text
    assert "ONNX Runtime is right." in text
    # The numbers are printed, and how near they had to be.
    (expected,) = re.findall(r"^expected (\[.*)$", text, re.MULTILINE)
    (got,) = re.findall(r"^got +(\[.*)$", text, re.MULTILINE)
    assert expected != got
    assert "# The relative tolerance is 11 units in the last place of float64." in text
    assert " ".join(text.partition("### Versions")[2].split()) == (
        "``` PyTorch version: 2.13.0+cu130 CUDA used to build PyTorch: 13.0 OS: Linux 6 x86_64 "
        "Python version: 3.11.7 Versions of relevant libraries: [pip3] onnx==1.23.2 "
        "[pip3] torch==2.13.0+cu130 ```"
    )


def test_the_forms_ask_for_what_a_report_has() -> None:
    forms = [*(e.issue_form for e in CONVERTERS.entries()), *(e.issue_form for e in BACKENDS.entries())]
    texts = [text for form in forms for text in form.values()]
    named = {name for text in texts for _, name, _, _ in Formatter().parse(text) if name}
    assert {"summary", "code", "versions", "diagnosis"} <= named <= set(CallReport.FIELDS)


def test_the_shrunk_case_is_preferred(run: Path) -> None:
    recorded = failure_of(run, "the same by the other exporter").verdict
    small = call(DIVISOR.overload, self=tensor([[[[3.0]]]]), kernel_size=(1, 1), divisor_override=2)
    append_line(
        run,
        Minimal(
            case_id=recorded.case_id,
            overload=DIVISOR.overload,
            converter=recorded.converter,
            backend=recorded.backend,
            stage=recorded.stage,
            outcome=recorded.outcome,
            signature=recorded.signature,
            blame=recorded.blame,
            evidence="",
            message=recorded.message,
            minimal_id=small.case_id,
            invocation=small.json,
            matters=("fails with divisor_override given, not without it",),
        ),
    )
    assert failure_of(run, "the same by the other exporter").invocation == small
    original = find_failure(run, recorded.case_id, converter="torchscript", backend="openvino", original=True)
    assert original.invocation == DIVISOR
    assert find_failure(run, small.case_id).verdict.case_id == recorded.case_id


def test_a_failure_that_cannot_be_reproduced_is_one_line(tmp_path: Path) -> None:
    call = unary("aten.neg.default", [1.0])
    passed = record_of(tmp_path / "passed", [call])
    said = invoke(call.case_id, "--run", passed)
    assert said.exit_code != 0
    assert "nothing to reproduce (dynamo → ort-cpu: pass)" in said.output
    said = invoke(f"{call.case_id[:-1]}x", "--run", passed)
    assert "near:" in said.output
    assert call.case_id in said.output
    said = invoke(call.case_id, "--run", passed, "--backend", "openvino")
    assert "it was with dynamo → ort-cpu" in said.output
    failed = record_of(
        tmp_path / "failed", [call], converter="planted-segfault", stage=Stage.LOAD, outcome=Outcome.ERROR
    )
    import planted.converters  # noqa: F401 - registers it in this process

    said = invoke(call.case_id, "--run", failed)
    assert "converter planted-segfault has no stand-alone code" in said.output
    early = record_of(tmp_path / "early", [call], stage=Stage.REFERENCE, outcome=Outcome.CRASH)
    said = invoke(call.case_id, "--run", early)
    assert "it ended before anything was exported" in said.output


@pytest.mark.slow
def test_a_script_that_does_not_show_the_failure_is_reported(tmp_path: Path) -> None:
    call = unary("aten.neg.default", [1.0])
    recorded = record_of(
        tmp_path / "run",
        [call],
        converter="torchscript",
        stage=Stage.COMPARE,
        outcome=Outcome.MISMATCH,
        signature="values",
    )
    said = invoke(call.case_id, "--run", recorded, "--out", tmp_path / "script.py")
    assert said.exit_code == 1
    assert "does not show the failure here (exit status 0)" in said.output


def test_shapes_of_complex_inputs_are_given_as_they_are_fed() -> None:
    small, large = (
        Invocation("aten.abs.default", (("self", vector([1.0 + 2.0j] * size, "complex64")),)) for size in (3, 5)
    )
    failure = ReproducibleFailure(
        verdict=row_of(large, converter="dynamo", backend="trt", stage=Stage.LOAD, outcome=Outcome.ERROR),
        invocation=large,
        exported=small,
        dynamic_dims=(frozenset({0}),),
    )
    assert "set_shape('x', (3, 2), (5, 2), (5, 2))" in write_script(failure)
