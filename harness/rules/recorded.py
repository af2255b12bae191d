"""Where a run had its rules from."""

from __future__ import annotations

from pathlib import Path

from harness.record.run_info import RunInfo


def rule_files(info: RunInfo) -> tuple[Path, ...]:
    """The files of rules that a run was given, from the current directory, if they are still there."""
    files = info.options.get("rules")
    named = [Path(str(file)) for file in files] if isinstance(files, list) else []
    return tuple(file for file in named if file.is_file())
