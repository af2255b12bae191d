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
_UNFIT = ("ModuleNotFoundError: ", "ImportError: ")


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
        return verdicts_of([case["verdict"] for case in cases], package, release)


def verdicts_of(found: Sequence[dict[str, Any]], package: str, release: str) -> Verdicts:
    """What `conformance replay` found with a release; none where the release does not go with the others.

    Args:
        found: Verdicts as the command prints them.
        package: Whose release was tried.
        release: The version.
    """
    if not found:
        return Verdicts("", f"no converter and backend of it is available with {package} {release}")
    # An exporter that lacks a module of another package says nothing about the case.
    unfit = [one["signature"] for one in found if one["signature"].startswith(_UNFIT)]
    if unfit:
        return Verdicts("", f"{package} {release} does not go with the other packages: {unfit[0][:200]}")
    return Verdicts("; ".join(sorted(set(map(_said, found)))))


def _said(verdict: dict[str, Any]) -> str:
    """``dynamo → ort-cpu: mismatch at compare: values``."""
    how = verdict["outcome"]
    if how != "pass":
        how = f"{how} at {verdict['stage']}: {verdict['signature']}"
    return f"{verdict['converter']} → {verdict['backend']}: {how}"
