"""The examples of the READMEs, as a newcomer would try them: copied into their files, and run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.record import store

ROOT = Path(__file__).parents[2]
README, GUIDE, HOUSE = (
    (ROOT / place).read_text(encoding="utf-8")
    for place in ("README.md", "harness/app/README.md", "harness/README.md")
)
FILES = dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", README + HOUSE, re.DOTALL))
#: What the example of a backend is tried on.
CELU = "aten.celu.default"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the product with the operator, backend, converter and witness of the READMEs."""
    copy = tmp_path_factory.mktemp("extended")
    for name in ("harness", "cases"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    for name, text in FILES.items():
        (copy / name).write_text(text, encoding="utf-8")
    return copy


def test_there_is_an_example_of_each_in_under_twenty_lines() -> None:
    assert set(FILES) == {
        "cases/mine.py",
        "harness/run/backends/tract_runtime.py",
        "harness/convert/converters/unoptimised.py",
        "harness/blame/witnesses/one_thread.py",
        "my_rules.py",
    }
    for name, text in FILES.items():
        assert len([line for line in text.splitlines() if line.strip()]) < 20, name


def test_each_example_of_the_walks_is_one_file(extended: Path, tmp_path: Path) -> None:
    pytest.importorskip("tract")
    operators = ("--op", "flatten_dense_tensors", "--op", "celu", "--dtype", "float32")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "harness", "--examples", "40", "--record-only", *operators),
            *("--backend", "tract", "--backend", "ort-cpu"),
            *("--converter", "unoptimised", "--converter", "dynamo"),
            *("--results-dir", str(tmp_path / "run"), "-p", "no:cacheprovider"),
        ],
        cwd=extended,
        env={**os.environ, "PYTHONPATH": str(extended), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = list(store.verdicts(tmp_path / "run"))
    took_part = {(v.overload, v.converter, v.backend) for v in verdicts}
    assert took_part == {
        (operator, converter, backend)
        for operator in ("aten.flatten_dense_tensors.default", CELU)
        for converter in ("unoptimised", "dynamo")
        for backend in ("tract", "ort-cpu")
    }
    ends = {
        backend: {
            v.case_id
            for v in verdicts
            if v.overload == CELU and v.backend == backend and v.outcome == outcome
        }
        for backend, outcome in (("tract", "mismatch"), ("ort-cpu", "pass"))
    }
    # As harness/README.md says of tract 0.23.
    assert ends["tract"] & ends["ort-cpu"]
    assert any("PyTorch gives the same result on one thread." in v.evidence for v in verdicts)


def test_the_python_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(import harness\n.*?)```", README, re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example.replace("examples=40", "examples=4"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "compare pass" in done.stdout


def test_the_query_of_the_readme_runs(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    (query,) = re.findall(r'duckdb\.sql\("""(.*?)"""\)', GUIDE, re.DOTALL)
    run = tmp_path / "results" / "run"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "harness", "--op", "abs", "--examples", "40"),
            *("--source", "generated", "--record-only", "--results-dir", str(run), "-p", "no:cacheprovider"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = duckdb.sql(query.replace("results/", f"{tmp_path}/results/")).fetchall()
    assert {row[0] for row in rows} == {"aten.abs.default"}


def test_the_rules_are_tried(extended: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "harness", "--rules", "my_rules.py", "--examples", "16"),
            *("--record-only", "--results-dir", str(tmp_path / "run"), "-p", "no:cacheprovider"),
        ],
        cwd=extended,
        env={**os.environ, "PYTHONPATH": str(extended), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rules = {verdict.rule for verdict in store.verdicts(tmp_path / "run")}
    assert rules == {"", "my_rules.py:fmax", "my_rules.py:celu"}
