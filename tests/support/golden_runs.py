"""`conformance golden` as a user starts it, and the set of this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness_runs import ROOT, environment
from recorded_run import conformance

COMMITTED = ROOT / "golden"


def golden(*words: str | Path, path: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """`conformance golden`: in a process of its own if it has `path` before all others or
    `more` environment."""
    if path is None and not more:
        return conformance("golden", *words, cwd=ROOT)
    env = {**environment(), **more}
    if path is not None:
        env["PYTHONPATH"] = f"{path}:{env['PYTHONPATH']}"
    return subprocess.run(
        [sys.executable, "-m", "harness.app.cli", "golden", *map(str, words)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def hide_torch(directory: Path) -> Path:
    """A directory that hides PyTorch from a process that finds modules there first."""
    package = directory / "blocked" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('PyTorch is blocked')\n")
    return package.parent
