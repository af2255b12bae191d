"""`import harness`: what a notebook gets, and what it does not cost."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

from harness_runs import recorded, row_of, vector

import harness
from harness.compare.verdict import Outcome
from harness.core.invocation import Invocation

ROOT = Path(__file__).parents[2]


def test_importing_the_harness_does_not_import_pytorch() -> None:
    code = "import harness, sys; print(harness.__version__, 'torch' in sys.modules, 'pytest' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == [harness.__version__, "False", "False"]


def test_the_facade_has_what_a_notebook_needs() -> None:
    names = {"Options", "Session", "Supervisor", "Unit", "Verdict", "load_cases", "make_plan", "run_unit"}
    names |= {"is_supported", "read_failures", "read_verdicts"}
    assert names <= set(dir(harness))
    for name in names:
        assert getattr(harness, name).__module__.startswith("harness."), name


def test_a_run_is_read_as_frames(tmp_path: Path) -> None:
    celu = Invocation("aten.celu.default", (("self", vector([0.5])), ("alpha", 2.0)))
    wrong = {"outcome": Outcome.MISMATCH, "signature": "values", "message": "wrong", "blame": "backend"}
    recorded(tmp_path, [row_of(celu), row_of(replace(celu, overload="aten.elu.default"), **wrong)])
    verdicts = harness.read_verdicts(tmp_path)
    assert verdicts["outcome"].value_counts().to_dict() == {"pass": 1, "mismatch": 1}
    failures = harness.read_failures(tmp_path)
    assert failures[["outcome", "blame", "cases"]].values.tolist() == [["mismatch", "backend", 1]]
    assert failures["operators"].tolist() == [["aten.elu.default"]]


def test_the_version_and_the_licence_are_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "version" not in project
    assert importlib.metadata.version("aten-onnx-conformance") == harness.__version__
    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
