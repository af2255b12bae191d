"""The built wheel, installed: everything from an empty directory, and nothing in another project's tests."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness_runs import ROOT, output, rows

pytestmark = [pytest.mark.slowest(7), pytest.mark.slow]

POOL = (
    *("--op", "avg_pool2d", "--dtype", "float32", "--examples", "8", "--source", "generated"),
    *("--shrink", "0"),
)
MODEL = """\
import torch

def make_model():
    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)
    return torch.nn.Sequential(*layers), (torch.ones(3, 4),)
"""
#: The settings, the option and the package `harness` of a project that has nothing to do with this one.
OTHER_PROJECT = {
    "pytest.ini": "[pytest]\naddopts = --of-the-other-project\n",
    "conftest.py": (
        "def pytest_addoption(parser):\n    parser.addoption('--of-the-other-project', action='store_true')\n"
    ),
    "harness/__init__.py": "OURS = True\n",
    "harness/test_more.py": "def test_more():\n    pass\n",
    "test_harness.py": (
        "import sys\n"
        "import harness\n"
        "def test_nothing_of_the_conformance_harness_is_here():\n"
        "    assert harness.OURS\n"
        "    assert not {'torch', 'numpy', 'cases', 'harness.app'} & sys.modules.keys()\n"
    ),
    "model.py": MODEL,
}


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and the packages that it depends on.

    Attributes:
        wheel: The file.
        bin: The folder of its programs.
    """

    wheel: Path
    bin: Path

    def conformance(self, *words: str | Path, cwd: Path, status: int = 0) -> str:
        return self.run([self.bin / "conformance", *words], cwd, status)

    def pytest(self, *words: str | Path, cwd: Path, status: int = 0, shadow: bool = False) -> str:
        """Run ``pytest``, or ``python -m pytest``, which lets the current directory `shadow` packages."""
        alone = () if shadow else ("-P",)
        return self.run([self.bin / "python", *alone, "-m", "pytest", *words], cwd, status)

    def run(self, command: Sequence[str | Path], cwd: Path, status: int) -> str:
        ours = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTEST_ADDOPTS")}
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env={**ours, "OMP_NUM_THREADS": "1", "COLUMNS": "160"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == status, output(done)
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    work = tmp_path_factory.mktemp("installed")
    for name in ("harness", "cases"):
        shutil.copytree(ROOT / name, work / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, work / "source")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", work, work / "source"]
    subprocess.run([*pip, *map(str, build)], check=True, timeout=600)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(work / "venv")], check=True, timeout=600)
    python = work / "venv" / "bin" / "python"
    # A line of a .pth file makes packages importable without running their own .pth files: an editable
    # installation of this project stays out.
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    home = subprocess.run(
        [str(python), "-c", where], check=True, capture_output=True, text=True, timeout=600
    ).stdout.strip()
    (Path(home) / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    (wheel,) = work.glob("*.whl")
    subprocess.run([*pip, "--python", str(python), "install", "--no-deps", str(wheel)], check=True, timeout=600)
    return Installed(wheel, python.parent)


@pytest.fixture(scope="module")
def run(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of an operator by a worker of pytest-xdist, started in an empty directory."""
    empty = tmp_path_factory.mktemp("empty")
    installed.conformance("run", *POOL, "-n", "1", "--results-dir", "run", cwd=empty, status=1)
    return empty / "run"


def test_the_wheel_has_every_file(installed: Installed) -> None:
    packed = set(zipfile.ZipFile(installed.wheel).namelist())
    ours = {
        path.relative_to(ROOT).as_posix()
        for name in ("harness", "cases")
        for path in (ROOT / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in ("", ".md")
    }
    entry_point = {name for name in ours if name.startswith("harness/app/entry_point/")}
    assert ours - entry_point <= packed
    assert "aten_onnx_conformance/__init__.py" in packed
    assert not {name.partition("/")[0] for name in packed} & {"tests", "ci", "golden"}


def test_what_runs_is_the_installed_package(installed: Installed, tmp_path: Path) -> None:
    code = "import harness, cases; print(harness.__file__); print(cases.__file__)"
    places = installed.run([installed.bin / "python", "-P", "-c", code], tmp_path, 0).split()
    assert all(Path(place).is_relative_to(installed.bin.parent) for place in places)


def test_operators_run_from_an_empty_directory(run: Path) -> None:
    recorded = rows(run, "overload", "outcome")
    assert {row["overload"] for row in recorded} == {"aten.avg_pool2d.default"}
    assert {row["outcome"] for row in recorded} == {"pass", "mismatch"}
    assert sorted(path.name for path in run.parent.iterdir() if not path.name.startswith(".")) == ["run"]


def test_pytest_runs_the_harness_by_its_name_and_reads_a_baseline(installed: Installed, run: Path) -> None:
    installed.conformance("baseline", run, "--out", "expected", cwd=run.parent)
    said = installed.pytest(
        *("--pyargs", "harness", *POOL, "--baseline", "expected", "--results-dir", "again"),
        cwd=run.parent,
    )
    assert "Compared with the baseline: 1 of 1 operator/dtype entries" in said
    assert "nothing differs" in said


def test_the_dashboard_is_written_with_its_page_and_libraries(installed: Installed, run: Path) -> None:
    installed.conformance("dashboard", run, "--out", "site", cwd=run.parent)
    page = run.parent / "site"
    named = [part.split('"')[0] for part in (page / "index.html").read_text(encoding="utf-8").split('src="')[1:]]
    assert len(named) > 20
    assert all((page / name).is_file() for name in named)
    assert "aten.avg_pool2d.default" in (page / "data" / "index.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def other_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    project = tmp_path_factory.mktemp("other")
    for name, text in OTHER_PROJECT.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    return project


@pytest.mark.parametrize(
    "words",
    [(), ("-k", "harness"), ("harness", "test_harness.py"), ("-k", f"harness or {'long' * 1000}")],
    ids=["all", "an expression", "a folder", "no file name"],
)
def test_another_project_does_not_notice(installed: Installed, other_project: Path, words: tuple[str, ...]) -> None:
    installed.pytest(*words, cwd=other_project, shadow=True)


def test_another_project_sees_no_options(installed: Installed, other_project: Path) -> None:
    said = installed.pytest("--help", cwd=other_project, shadow=True)
    assert "--of-the-other-project" in said
    assert "--converter" not in said
    assert "--converter" in installed.pytest("--pyargs", "harness", "--help", cwd=other_project.parent)


def test_a_model_runs_in_another_project_without_its_settings(
    installed: Installed, other_project: Path, tmp_path: Path
) -> None:
    words = ("--model", "model.py:make_model", "--results-dir", tmp_path / "run")
    installed.conformance("run", *words, cwd=other_project)
    assert {row["outcome"] for row in rows(tmp_path / "run", "outcome")} == {"pass"}
