"""Scripts that need nothing of the harness, each run in a process that is forked for it.

A fork server imports PyTorch and the exporters once, which takes each script seconds otherwise.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from harness_runs import PLUGINS

from harness.reproduce.script_text import ScriptResult

#: A script can import planted plug-ins, but not the harness; nor can the processes that it starts.
GUARD = f"""
import sys
sys.path.append({str(PLUGINS)!r})
for name in ["harness", "cases", *(name for name in sys.modules if name.startswith(("harness.", "cases.")))]:
    sys.modules[name] = None
"""


def run_script(directory: Path, script: str, *, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a script as ``script.py`` in `directory`, and return its exit status and what it prints.

    Raises:
        subprocess.TimeoutExpired: it takes longer than `timeout` seconds.
    """
    path = directory / "script.py"
    (directory / "sitecustomize.py").write_text(GUARD)
    path.write_text(script)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("output", "errors")]
        process = multiprocessing.get_context("forkserver").Process(target=_become_script, args=(path, files))
        process.start()
        process.join(timeout)
        if process.is_alive():
            process.kill()
            raise subprocess.TimeoutExpired([str(path)], timeout)
        status = process.exitcode or 0
        return subprocess.CompletedProcess([str(path)], status, *(file.read_text() for file in files))


def _become_script(path: Path, files: list[Path]) -> None:
    """Run a script as Python does that starts for it in its folder."""
    for descriptor, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.chdir(path.parent)
    os.environ["PYTHONPATH"] = str(path.parent)
    sys.path.insert(0, str(path.parent))
    sys.argv[:] = [str(path)]
    runpy.run_path("sitecustomize.py")
    runpy.run_path(str(path), run_name="__main__")


def ended(done: subprocess.CompletedProcess[str]) -> str:
    """Describe how a script ended, for the message of an assertion."""
    return f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"


def run_text(script: str, *, timeout: float = 300.0) -> ScriptResult:
    """Run a script as `harness.reproduce.script_text.run_text` does, in a forked process."""
    with tempfile.TemporaryDirectory() as directory:
        done = run_script(Path(directory), script, timeout=timeout)
    return ScriptResult(done.returncode, done.stdout, done.stderr)


def fork_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the scripts forked that the harness runs to see whether they fail as recorded."""
    monkeypatch.setattr("harness.reproduce.issue.run_text", run_text)
    monkeypatch.setattr("harness.reproduce.script_text.run_text", run_text)
