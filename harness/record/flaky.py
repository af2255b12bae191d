"""The cases of a run that ended in two ways when they were run again: ``RESULTS/flaky.jsonl``.

A JSON list per line: case id, exported invocation (JSON; "" for none), converter, backend.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from harness.compare import CaseKey
from harness.record import layout
from harness.record.errors import ResultsError, reason

FLAKY_FILE = "flaky.jsonl"


def write_flaky(results_dir: Path, flaky: Collection[CaseKey]) -> None:
    """Note them in a run; nothing for none.

    Raises:
        ResultsError: the file cannot be written.
    """
    if flaky:
        with layout.replacing(results_dir / FLAKY_FILE) as temporary:
            text = "".join(f"{json.dumps(case)}\n" for case in sorted(flaky))
            temporary.write_text(text, encoding="utf-8")


def read_flaky(results_dir: Path) -> frozenset[CaseKey]:
    """Those that are known of a run.

    Raises:
        ResultsError: the file is damaged.
    """
    path = results_dir / FLAKY_FILE
    found: set[CaseKey] = set()
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            case_id, exported, converter, backend = json.loads(line)
            found.add((case_id, exported, converter, backend))
    except FileNotFoundError:
        return frozenset()
    except (OSError, ValueError, TypeError) as error:
        raise ResultsError(
            f"{path} is damaged ({reason(error)}); restore it, or delete it to take no case for flaky"
        ) from None
    return frozenset(found)
