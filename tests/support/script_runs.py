"""Scripts that need nothing of the harness, each run in a process that is forked for it.

A process that starts for a script imports PyTorch for seconds, which `harness.reproduce.script_text.run_text`
has to wait for. The parent of these processes has imported it already.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from harness_runs import PLUGINS
from harness_sessions import scripts

from harness.reproduce.script_text import ScriptResult

#: The harness cannot be imported; planted plug-ins can.
GUARD = f"import sys\nsys.path.append({str(PLUGINS)!r})\nsys.modules['harness'] = None\n"


def run_script(directory: Path, script: str, *, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a script as ``script.py`` in `directory`."""
    path = directory / "script.py"
    (directory / "sitecustomize.py").write_text(GUARD)
    path.write_text(script)
    return scripts().run("script", [str(path)], directory, timeout)


def ended(done: subprocess.CompletedProcess[str]) -> str:
    """For the message of an assertion."""
    return f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"


def run_text(script: str, *, timeout: float = 300.0) -> ScriptResult:
    """As `harness.reproduce.script_text.run_text`."""
    with tempfile.TemporaryDirectory() as directory:
        done = run_script(Path(directory), script, timeout=timeout)
    return ScriptResult(done.returncode, done.stdout, done.stderr)


def fork_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the scripts forked that the harness runs to see whether they fail as recorded."""
    monkeypatch.setattr("harness.reproduce.issue.run_text", run_text)
    monkeypatch.setattr("harness.reproduce.script_text.run_text", run_text)
