"""`conformance doctor`: what is wrong with an installation, on installations that are wrong on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness_runs import environment, output


def doctor(cwd: Path, *words: str, path: str = "", status: int) -> dict[str, Any]:
    """Run the command in a process of its own, with further places on Python's path."""
    ours = environment(metadata=cwd / "none")
    if path:
        ours["PYTHONPATH"] = f"{path}:{ours['PYTHONPATH']}"
    command = [sys.executable, "-P", "-m", "harness.app.cli", "doctor", "--json", *words]
    done = subprocess.run(command, cwd=cwd, env=ours, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == status, output(done)
    data: dict[str, Any] = json.loads(done.stdout)
    assert data["healthy"] is (status == 0)
    return data


def distribution(place: Path, name: str, version: str, *requires: str, module: str = "") -> None:
    """Install the metadata of a distribution that has no files but perhaps a module."""
    folder = place / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    (folder / "METADATA").write_text("\n".join([*lines, *(f"Requires-Dist: {text}" for text in requires), ""]))
    (folder / "RECORD").write_text(f"{module}/__init__.py,,\n" if module else "")


def problems(data: dict[str, Any]) -> set[tuple[str, str]]:
    return {(problem["id"], problem["subject"]) for problem in data["problems"]}


@pytest.mark.slow
def test_nothing_is_wrong_here(tmp_path: Path) -> None:
    data = doctor(tmp_path, "--seconds", "0", status=0)
    kinds = {plugin["name"]: plugin["reason"] for plugin in data["plugins"]}
    assert kinds["dynamo"] == kinds["ort-cpu"] == kinds["ort-basic"] == ""
    assert data["versions"]["torch"]
    assert data["tests"] == []


def test_two_distributions_of_one_runtime_are_wrong(tmp_path: Path) -> None:
    distribution(tmp_path / "more", "onnxruntime-gpu", "1.30.0")
    data = doctor(tmp_path, "--seconds", "0", path=str(tmp_path / "more"), status=1)
    assert ("two-distributions", "onnxruntime") in problems(data)


@pytest.mark.slow
def test_a_requirement_that_is_not_met_is_wrong(tmp_path: Path) -> None:
    distribution(tmp_path / "more", "apache-tvm", "9.0.0", "numpy<1", "absent-package>=2", 'pandas<1; extra == "all"')
    data = doctor(tmp_path, "--seconds", "0", path=str(tmp_path / "more"), status=1)
    unmet = [problem["details"][0] for problem in data["problems"] if problem["subject"] == "apache-tvm 9.0.0"]
    assert unmet == ["numpy<1", "absent-package>=2"]


@pytest.mark.parametrize("name", ["onnx.py", pytest.param("onnxscript/__init__.py", marks=pytest.mark.slow)])
def test_a_file_that_hides_a_package_is_wrong(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    data = doctor(tmp_path, "--seconds", "0", status=1)
    module = name.partition("/")[0].removesuffix(".py")
    assert problems(data) == {("hidden-package", module)}
    assert data["problems"][0]["details"][0] == str(tmp_path / name)


@pytest.mark.slow
def test_the_self_test_runs_every_route_and_finds_a_backend_that_is_wrong(tmp_path: Path) -> None:
    data = doctor(tmp_path, status=0)
    tests = {test["route"]: test for test in data["tests"]}
    for route in ("dynamo → ort-cpu", "torchscript → ort-cpu", "dynamo → onnx-reference"):
        assert tests[route]["cases"] == tests[route]["passed"] > 0
    assert next(iter(tests)) == "dynamo → ort-cpu"


WRONG_BACKEND = """\
import types

from harness.run.backend import BackendEntry, graph_inputs, register


class AddsOne:
    name, device, version = "adds-one", "cpu", "1"

    def narrows(self, dtype):
        return None

    def load(self, model, shapes):
        import onnxruntime

        session = onnxruntime.InferenceSession(model.SerializeToString())
        return types.SimpleNamespace(runnable=True, run=lambda feeds: [o + 1 for o in session.run(None, feeds)])


register(
    BackendEntry(
        name="adds-one", probe=lambda argument: None, create=lambda argument: AddsOne(), version=lambda argument: "1"
    )
)
"""


@pytest.mark.slow
def test_a_backend_that_is_wrong_is_found(tmp_path: Path) -> None:
    distribution(tmp_path / "more", "adds-one", "1.0")
    points = tmp_path / "more" / "adds_one-1.0.dist-info" / "entry_points.txt"
    points.write_text("[harness.backends]\nadds-one = adds_one\n")
    (tmp_path / "more" / "adds_one.py").write_text(WRONG_BACKEND)
    data = doctor(tmp_path, "--seconds", "120", path=str(tmp_path / "more"), status=1)
    assert problems(data) == {("route-fails", "dynamo → adds-one")}
