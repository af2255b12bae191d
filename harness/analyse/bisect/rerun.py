"""A case with another release of a package, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
from harness.analyse.bisect.search import Verdicts

#: Seconds: the command imports PyTorch and the exporters, and may export a few times for blame.
_PATIENCE = 600


@dataclass(frozen=True)
class Rerun:
    """How `conformance replay` is called for each release.

    Attributes:
        words: The case and the options.
        cwd: Where.
    """

    words: Sequence[str]
    cwd: Path

    def verdicts(self, package: str, release: str, directory: Path) -> Verdicts:
        """What the case comes to with the release in `directory` before the installed one."""
        ours = str(Path(harness.__file__).parents[1])
        path = os.pathsep.join([str(directory), ours, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "harness.app.cli", "replay", *self.words, "--json"],
                env={**os.environ, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                cwd=self.cwd,
                timeout=_PATIENCE,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdicts("", f"it took longer than {_PATIENCE} s with {package} {release}")
        try:
            cases = json.loads(done.stdout)["cases"]
        except (ValueError, KeyError):
            said = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
            return Verdicts("", f"it cannot be run with {package} {release}: {said[:200]}")
        if not cases:
            return Verdicts("", f"no converter and backend of it is available with {package} {release}")
        return Verdicts("; ".join(sorted({_said(case["verdict"]) for case in cases})))


def _said(verdict: dict[str, Any]) -> str:
    """``dynamo → ort-cpu: mismatch at compare: values``."""
    how = verdict["outcome"]
    if how != "pass":
        how = f"{how} at {verdict['stage']}: {verdict['signature']}"
    return f"{verdict['converter']} → {verdict['backend']}: {how}"
