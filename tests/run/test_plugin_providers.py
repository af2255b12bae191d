"""ONNX Runtime's plug-in providers, on WebGPU's real package; without it these tests are skipped."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from backend_models import F32, determinant, exact, run, unary
from harness_runs import output, rows, run_harness
from onnx import TensorProto

from harness.core.placement import OnCpu, Placement
from harness.pipeline.placement import placement_of
from harness.record.run_info import read_run_info
from harness.run.backend import BACKENDS, Backend, BackendFailure, UnsupportedModel


@pytest.fixture(scope="module")
def webgpu() -> Backend:
    entry, argument = BACKENDS.find("ort-webgpu")
    problem = entry.probe(argument)
    if problem is not None:
        pytest.skip(problem.reason)
    return entry.create(argument)


def test_what_webgpu_takes_runs_there_and_the_rest_on_the_cpu(webgpu: Backend) -> None:
    x = np.array([1.0, -2.0], np.float32)
    for operator, place in (("Neg", None), ("Celu", Placement(OnCpu.WHOLLY, ("Celu",)))):
        model = unary(operator, F32, [2])
        session = webgpu.load(model, None)
        assert placement_of(session, model) == place
        (y,) = session.run({"x": x})
        exact(y, -x if operator == "Neg" else np.maximum(x, 0) + np.minimum(0, np.expm1(x)))


def test_a_missing_kernel_names_its_node(webgpu: Backend) -> None:
    with pytest.raises(UnsupportedModel) as caught:
        webgpu.load(determinant(), None)
    assert caught.value.nodes == ("bad one (1)",)


def test_a_library_is_named_by_its_file_too(webgpu: Backend) -> None:
    library = importlib.import_module("onnxruntime_ep_webgpu").get_library_path()
    entry, argument = BACKENDS.find(f"ort-ep:{library}")
    assert entry.probe(argument) is None
    by_file = entry.create(argument)
    assert by_file.name == f"ort-ep:{library}"
    (y,) = run(by_file, unary("Relu", F32, [2]), x=np.array([1.0, -2.0], np.float32))
    exact(y, np.array([1.0, 0.0], np.float32))


def test_other_backends_of_the_process_do_not_get_the_provider(webgpu: Backend) -> None:
    """The software GPU refuses float16."""
    half = np.array([1.0, -2.0], np.float16)
    for word in ("onnx-api:onnxruntime.backend", "ort-cpu"):
        entry, argument = BACKENDS.find(word)
        (y,) = run(entry.create(argument), unary("Neg", TensorProto.FLOAT16, [2]), x=half)
        exact(y, -half)


def test_what_is_no_provider_does_not_start(tmp_path: Path) -> None:
    file = tmp_path / "library.so"
    file.write_text("not a library")
    entry, argument = BACKENDS.find(f"ort-ep:{file}")
    assert entry.probe(argument) is None
    with pytest.raises(BackendFailure, match="does not load"):
        entry.create(argument)


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("ort-ep:nothing", "--backend ort-ep:nothing: onnxruntime-ep-nothing is not installed"),
        ("ort-ep:/nothing.so", "--backend ort-ep:/nothing.so: /nothing.so is not there"),
        ("ort-ep:", "name a plug-in provider"),
    ],
)
def test_what_is_wrong_is_one_line(word: str, line: str, tmp_path: Path) -> None:
    done = run_harness("--backend", word, "--op", "celu", cwd=tmp_path)
    assert done.returncode == 4
    assert line in output(done)


@pytest.mark.slow
def test_a_run_names_the_adapter(webgpu: Backend, tmp_path: Path) -> None:
    words = ("--backend", "ort-webgpu", "--backend", "ort-cpu", "--op", "tan", "--dtype", "float32", "--examples", "8")
    done = run_harness(*words, "--record-only", "--results-dir", tmp_path / "run", cwd=tmp_path)
    assert done.returncode == 0, output(done)
    adapter = webgpu.version.partition(", on ")[2]
    assert f"backends: ort-webgpu on {adapter}, ort-cpu (" in output(done)
    assert read_run_info(tmp_path / "run").versions["backend ort-webgpu"] == webgpu.version
    found = rows(tmp_path / "run")
    assert {row["outcome"] for row in found if row["backend"] == "ort-cpu"} == {"pass"}
    assert len({row["case_id"] for row in found if row["backend"] == "ort-webgpu"}) >= 4


@pytest.mark.slow
def test_a_flushed_subnormal_is_no_defect_of_webgpus(webgpu: Backend, tmp_path: Path) -> None:
    words = ("--backend", "ort-webgpu", "--op", "aten.exp.default", "--dtype", "float32", "--examples", "60")
    run_harness(*words, "--record-only", "--results-dir", tmp_path / "run")
    found = rows(tmp_path / "run")
    assert any(row["outcome"] == "narrowed" and "which WGSL allows" in row["message"] for row in found)
    assert not any("subnormals flushed" in row["message"] for row in found)


def test_no_provider_library_is_loaded_to_list_backends() -> None:
    code = "from harness.run.backend import BACKENDS; import sys\n"
    code += "[entry.version('') for entry in BACKENDS.entries() if entry.name == 'ort-webgpu']\n"
    code += "print('onnxruntime' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
