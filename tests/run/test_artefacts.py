"""Artefacts other than ONNX models run in the real tools; a tool that is missing skips its tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import typed
from harness_runs import output, rows, run_harness
from script_runs import run_text

from harness.convert.converter import find_converter
from harness.run.backend import BACKENDS

#: Converter → the backends that run what it makes.
RUN_BY = {
    "torch-compile": ("aot-eager", "aot-eager-decomposed", "inductor"),
    "openvino-torch": ("openvino",),
    "executorch": ("executorch",),
    "executorch-xnnpack": ("executorch",),
    "litert": ("litert",),
}
#: `torch.compile` takes seconds to start, and Inductor compiles each call with a C++ compiler.
PAIRS = [
    pytest.param(converter, backend, marks=pytest.mark.slow if converter.startswith("torch-compile") else ())
    for converter, backends in RUN_BY.items()
    for backend in backends
]
FEW = ("--op", "aten.mul.Tensor", "--op", "aten.relu.default", "--examples", "12", "--record-only")


def _require(converter: str, backend: str) -> None:
    for problem in (find_converter(converter).probe(), BACKENDS.find(backend)[0].probe("")):
        if problem is not None:
            pytest.skip(problem.reason)


@pytest.mark.parametrize(("converter", "backend"), PAIRS)
def test_simple_calls_pass(converter: str, backend: str, tmp_path: Path) -> None:
    _require(converter, backend)
    words = ("--converter", converter, "--backend", backend, "--dtype", "float32", "--shapes", "static")
    done = run_harness(*FEW, *words, "--results-dir", tmp_path / "run")
    assert done.returncode == pytest.ExitCode.OK, output(done)
    found = rows(tmp_path / "run")
    assert {(row["converter"], row["backend"], row["opset"]) for row in found} == {(converter, backend, None)}
    # ExecuTorch takes no input whose memory is in another order than its own, and OpenVINO flushes subnormal numbers.
    refused = [row for row in found if row["outcome"] in ("unsupported", "error")]
    known = ("contiguous", "strides", "dim_order", "alpha")
    assert all(any(word in row["message"] for word in known) for row in refused)
    assert sum(row["outcome"] == "pass" for row in found) > len(found) / 2


def test_a_backend_brings_the_converter_whose_artefacts_it_takes(tmp_path: Path) -> None:
    done = run_harness(*FEW, "--backend", "aot-eager", "--backend", "ort-cpu", "--results-dir", tmp_path / "run")
    assert done.returncode == pytest.ExitCode.OK, output(done)
    pairs = {(row["converter"], row["backend"]) for row in rows(tmp_path / "run")}
    assert pairs == {("dynamo", "ort-cpu"), ("torch-compile", "aot-eager")}


def test_sizes_stay_open_where_they_should(tmp_path: Path) -> None:
    words = ("--op", "aten.relu.default", "--examples", "12", "--shapes", "dynamic", "--record-only")
    done = run_harness(*words, "--backend", "aot-eager", "--results-dir", tmp_path / "run")
    found = rows(tmp_path / "run")
    assert {row["outcome"] for row in found} == {"pass"}, output(done)
    assert any(row["exported_invocation"] != row["invocation"] for row in found)


@pytest.mark.slow
def test_a_batch_does_not_change_a_verdict(tmp_path: Path) -> None:
    """The failing case of a batch is found, although the artefact cannot be cut down."""
    verdicts = []
    for size in ("1", "64"):
        words = ("--op", "aten.celu", "--op", "aten.cumprod", "--examples", "40", "--batch-size", size, "--record-only")
        _require("openvino-torch", "openvino")
        run_harness(*words, "--converter", "openvino-torch", "--results-dir", tmp_path / size)
        verdicts.append(
            {row["case_id"]: (row["stage"], row["outcome"], row["message"]) for row in rows(tmp_path / size)}
        )
    assert verdicts[0] == verdicts[1]
    assert {outcome for _, outcome, _ in verdicts[0].values()} >= {"pass", "mismatch", "unsupported"}


@pytest.mark.slow
def test_openvinos_frontend_is_judged_and_its_script_reproduces(tmp_path: Path) -> None:
    """OpenVINO 2026.4 gives 0 for the celu of NaN."""
    _require("openvino-torch", "openvino")
    run = tmp_path / "run"
    run_harness(
        *("--op", "aten.celu", "--examples", "60", "--record-only", "--converter", "openvino-torch"),
        *("--results-dir", run),
    )
    wrong = [row for row in rows(run) if row["outcome"] == "mismatch"]
    assert {(row["blame"], row["component"], row["place"]) for row in wrong} == {("backend", "openvino", "aten.celu")}
    script = tmp_path / "repro.py"
    written = typed("repro", wrong[0]["case_id"], "--run", run, "--out", script)
    assert "the script fails as recorded" in written.stderr + written.output, written.output
    text = script.read_text()
    assert "openvino.convert_model(program)" in text
    assert "harness" not in text
    assert run_text(text).reproduces


def test_a_missing_conversion_is_a_declared_gap(tmp_path: Path) -> None:
    _require("openvino-torch", "openvino")
    run_harness(
        *("--op", "aten.cumprod", "--examples", "12", "--record-only", "--converter", "openvino-torch"),
        *("--results-dir", tmp_path / "run"),
    )
    gaps = [row for row in rows(tmp_path / "run") if row["outcome"] == "unsupported"]
    assert gaps
    assert {(row["blame"], row["place"]) for row in gaps} == {("converter", "no conversion of aten.cumprod")}
