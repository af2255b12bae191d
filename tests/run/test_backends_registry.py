"""Availability, names, and third-party backends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from backend_models import needs_no_gpu

from harness.core.plugins import UnknownName
from harness.run import cuda as _cuda
from harness.run.backend import BACKENDS

ROOT = Path(__file__).resolve().parents[2]


@needs_no_gpu
@pytest.mark.parametrize("name", ["ort-cuda", "trt"])
def test_gpu_backends_say_what_is_missing(name: str) -> None:
    problem = BACKENDS.find(name)[0].probe("")
    assert problem is not None
    assert problem.reason
    assert problem.install
    assert "\n" not in problem.reason + problem.install


@needs_no_gpu
def test_silent_fallback_of_cuda_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.warns(UserWarning, match="CUDAExecutionProvider"),
        pytest.raises(RuntimeError, match="fell back to the CPU"),
    ):
        BACKENDS.find("ort-cuda")[0].create("")


def test_hidden_gpus_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert _cuda.missing_gpu() == "CUDA_VISIBLE_DEVICES hides every GPU"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("", "no module is named"),
        ("no_such_module.backend", "cannot be imported"),
        ("json", "it has no function prepare"),
        ("..", "cannot be imported"),
    ],
)
def test_a_bad_module_for_onnx_api_is_refused_with_a_reason(module: str, reason: str) -> None:
    entry, argument = BACKENDS.find(f"onnx-api:{module}")
    problem = entry.probe(argument)
    assert problem is not None
    assert reason in problem.reason
    assert "\n" not in problem.reason
    assert "onnx-api:onnxruntime.backend" in problem.install


def test_every_backend_is_registered() -> None:
    names = [entry.name for entry in BACKENDS.entries()]
    expected = [
        "aot-eager",
        "aot-eager-decomposed",
        "executorch",
        "inductor",
        "iree",
        "litert",
        "onnx-api:",
        "onnx-reference",
        "openvino",
        "ort-cpu",
        "ort-cuda",
        "ort-ep:",
        "ort-web",
        "ort-webgpu",
        "tract",
        "trt",
        "trt-rtx",
        "tvm",
    ]
    assert [name for name in names if name in expected] == expected
    assert [entry.name for entry in BACKENDS.defaults()] == ["inductor", "ort-cpu"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ort-gpu", "ort-cpu or ort-webgpu"),
        ("onnx-api", "onnx-api:"),
        ("tensorrt", "trt"),
        ("ort-cpu:1", "ort-cpu"),
        ("", "known: aot-eager, "),
        ("zzz", "known: aot-eager, "),
    ],
)
def test_unknown_names_give_one_line(name: str, near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        BACKENDS.find(name)
    assert near in str(caught.value)
    assert f"--backend {name}: " in str(caught.value)
    assert "\n" not in str(caught.value)


def python(code: str, *paths: Path) -> str:
    """Return the output of `code` in a fresh interpreter that can import the harness and `paths`."""
    path = os.pathsep.join(str(part) for part in (ROOT, *paths))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=600
    )
    return done.stdout


def test_importing_the_package_imports_no_runtime() -> None:
    runtimes = ["onnxruntime", "openvino", "tensorrt", "tensorrt_rtx_bindings", "torch"]
    code = (
        "import sys; from harness.run.backend import BACKENDS; BACKENDS.entries()\n"
        f"print([m for m in {runtimes} if m in sys.modules])"
    )
    assert python(code) == "[]\n"


PLUGIN = """
import numpy as np
from harness.run.backend import BackendEntry, register

class Echo:
    runnable = True
    def run(self, feeds):
        return [np.array(value) for value in feeds.values()]

class EchoBackend:
    name, device, version = "echo", "cpu", "1.0"
    def narrows(self, dtype):
        return None
    def load(self, model, shapes):
        return Echo()

def create(argument):
    return EchoBackend()

entry = register(BackendEntry(name="echo", probe=lambda a: None, create=create, version=lambda a: "1.0"))
"""


def plug_in(folder: Path, name: str, content: str, target: str) -> None:
    """Install a package of one file with an entry point, as pip would leave it."""
    (folder / f"{name}.py").write_text(content)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[harness.backends]\n{name} = {target}\n")


@pytest.mark.parametrize("target", ["echo", "echo:entry"])
def test_third_party_backend_is_one_file(tmp_path: Path, target: str) -> None:
    plug_in(tmp_path, "echo", PLUGIN, target)
    code = (
        "import numpy as np, harness.run.backend as base\n"
        "entry, argument = base.BACKENDS.find('echo')\n"
        "print(entry.create(argument).load(None, None).run({'x': np.ones(2)}))"
    )
    assert python(code, tmp_path) == "[array([1., 1.])]\n"


def test_a_broken_plug_in_is_listed_as_unavailable(tmp_path: Path) -> None:
    plug_in(tmp_path, "broken", "import no_such_runtime\n", "broken")
    code = (
        "import harness.run.backend as base\n"
        "print(base.BACKENDS.find('broken')[0].probe('').reason)\n"
        "print(base.BACKENDS.find('ort-cpu')[0].name)"
    )
    first, second = python(code, tmp_path).splitlines()
    assert "plug-in broken failed to load" in first
    assert "no_such_runtime" in first
    assert second == "ort-cpu"


def test_a_backend_file_that_fails_does_not_take_the_others_with_it(tmp_path: Path) -> None:
    (tmp_path / "a_half_written.py").write_text("import no_such_runtime\n")
    code = (
        "import harness.run.backends as room, harness.run.backend as base\n"
        f"room.__path__.append({str(tmp_path)!r})\n"
        "print(base.BACKENDS.find('a_half_written')[0].probe('').reason)\n"
        "print(base.BACKENDS.find('ort-cpu')[0].name)"
    )
    first, second = python(code).splitlines()
    assert "harness.run.backends.a_half_written failed to load" in first
    assert "no_such_runtime" in first
    assert second == "ort-cpu"
