"""Where a run had its rules from: in its options, as paths from its own directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from harness.record.run_info import RunInfo

#: In `RunInfo.options`.
OPTION = "rules"


def recorded(files: Sequence[Path], run: Path) -> list[str]:
    """How the files of rules of the run in directory `run` are recorded."""
    return [os.path.relpath(file, run) for file in files]


def rule_files(run: Path, info: RunInfo) -> tuple[Path, ...]:
    """The files of rules that the run in directory `run` had, if they are still there."""
    files = info.options.get(OPTION)
    named = [run / str(file) for file in files] if isinstance(files, list) else []
    return tuple(file for file in named if file.is_file())
