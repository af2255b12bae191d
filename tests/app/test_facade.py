"""`import harness`: what a notebook gets, and what it does not cost."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import harness

ROOT = Path(__file__).parents[2]


def test_importing_the_harness_does_not_import_pytorch() -> None:
    code = "import harness, sys; print(harness.__version__, 'torch' in sys.modules, 'pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == [harness.__version__, "False", "False"]


def test_the_facade_has_what_a_notebook_needs() -> None:
    names = {"Options", "Session", "Supervisor", "Unit", "Verdict", "load_cases", "make_plan", "run_unit"}
    assert names <= set(dir(harness))
    for name in names:
        assert getattr(harness, name).__module__.startswith("harness."), name


def test_the_version_and_the_licence_are_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" not in project
    assert importlib.metadata.version("aten-onnx-conformance") == harness.__version__
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
