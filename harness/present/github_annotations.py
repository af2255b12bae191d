"""The failures of a run as annotations of a GitHub job: a line each, which its page shows next to the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.causes.groups import COLUMNS, FAILED, failure_groups
from harness.causes.known_issues import read_known_issues
from harness.compare.verdict import SPEC
from harness.core.text import count, listed
from harness.present.evidence import fault_text, place_text
from harness.record import store
from harness.record.json_lines import read_minimal

#: GitHub shows so many errors of a step.
_SHOWN = 10


def github_annotations(results_dir: Path) -> Iterator[str]:
    """Return ``::error title=…::…`` for each of the worst failures of a run.

    Raises:
        ResultsError: the run cannot be read.
    """
    rows = store.read(results_dir, COLUMNS, FAILED, encoded=True)
    groups = failure_groups(rows, read_minimal(results_dir), read_known_issues())
    for group in [group for group in groups if group.blame != SPEC][:_SHOWN]:
        title = f"{place_text(group.cause)} {fault_text(group.cause)}".strip()
        where = f"{listed(group.overloads, 4)}: {group.outcome} at {group.stage}, {count(group.cases, 'case')}"
        text = f"{where}\n{group.message}\nconformance show {group.case_id}"
        yield f"::error title={_escaped(title, ',:')}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    """Escape text for GitHub's workflow commands: percent signs, line ends, and in properties `more`."""
    for character in f"%\r\n{more}":
        text = text.replace(character, f"%{ord(character):02X}")
    return text
