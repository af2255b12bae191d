"""Run a script that the harness wrote, and see whether it fails as it should."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from harness.analyse.repro.script import THERE


@dataclass(frozen=True)
class ScriptResult:
    """How a script ended.

    Attributes:
        exit_status: Its own; negative for a signal, None where it did not end in time.
        output: What it printed.
        errors: What it wrote to standard error: warnings, tracebacks.
    """

    exit_status: int | None
    output: str
    errors: str = ""

    @property
    def reproduces(self) -> bool:
        """Whether it found the defect, rather than failing in another way."""
        return self.exit_status == 1 and THERE in self.output


def run_text(script: str, *, timeout: float = 300.0) -> ScriptResult:
    """Run `script` by itself, in an empty directory.

    Args:
        script: Its text.
        timeout: In seconds.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "repro.py"
        path.write_text(script, encoding="utf-8")
        try:
            done = subprocess.run(
                [sys.executable, str(path)],
                cwd=directory,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ScriptResult(None, "", f"no end within {timeout:g} seconds")
    return ScriptResult(done.returncode, done.stdout, done.stderr)
