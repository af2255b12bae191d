"""The process of one shard: runs `pytest harness --shard I/N` and ends with the task that started it.

`python -m harness.cluster.shard_process ACCOUNT ARGS`. Standard input is a pipe from the task. When the task ends, with
its worker, node or driver, this process and its children end too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.cluster.staged_run import ShardAccount
from harness.core.documents import to_json
from harness.plan.pytest_session import pytest_main
from harness.record.layout import reason

#: Seconds between updates of the counts.
_EVERY = 2.0


class _Accountant:
    """A pytest plug-in that counts cases and keeps the counts in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept = float("-inf")
        self._cases = self._failures = 0
        self._problem = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count the cases of one test."""
        properties = dict(report.user_properties)
        if report.when == "call":
            self._cases += properties.get("cases", 0)
            self._failures += properties.get("failures", 0)
            if time.monotonic() - self._kept > _EVERY:
                self.keep()

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        """Keep the error of a test that raised; a failing case raises another exception."""
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.fail.Exception):
            self._problem = self._problem or reason(call.excinfo.value)

    def keep(self) -> None:
        """Write the current counts."""
        account = ShardAccount(cases=self._cases, failures=self._failures, problem=self._problem)
        temporary = self._file.with_suffix(".new")
        temporary.write_text(to_json(account), encoding="utf-8")
        # Replaced atomically, since another process may be reading it.
        temporary.replace(self._file)
        self._kept = time.monotonic()


def _end_with_task(leash: int) -> None:
    while os.read(leash, 1):
        pass
    # This process is the leader of its process group.
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run the shard and return pytest's exit status."""
    # Duplicated, since pytest's capture replaces standard input by a file, which looks like the end of the pipe.
    threading.Thread(target=_end_with_task, args=(os.dup(0),), daemon=True).start()
    account, *arguments = sys.argv[1:]
    accountant = _Accountant(Path(account))
    try:
        return pytest_main(arguments, accountant)
    finally:
        # Also when a session that cannot complete its record raises an exception.
        accountant.keep()


if __name__ == "__main__":
    sys.exit(main())
