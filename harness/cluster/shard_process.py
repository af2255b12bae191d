"""The process of one shard: `pytest harness --shard I/N`, on a leash.

`python -m harness.cluster.shard_process ACCOUNT ARGS`. Its standard input is a pipe from the task that
started it. If that ends, with its worker, its node or its driver, this process ends with all that it started.
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

#: Seconds after which those who wait for the shard hear of it again.
_EVERY = 2.0


class _Accountant:
    """A pytest plug-in that counts cases and keeps the counts in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept = float("-inf")
        self._cases = self._failures = 0
        self._problem = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take note of one item."""
        properties = dict(report.user_properties)
        if report.when == "call":
            self._cases += properties.get("cases", 0)
            self._failures += properties.get("failures", 0)
            if time.monotonic() - self._kept > _EVERY:
                self.keep()

    def pytest_exception_interact(self, call: pytest.CallInfo[Any]) -> None:
        """Note an item that raised; a failing case raises another exception."""
        if call.excinfo is not None and not call.excinfo.errisinstance(pytest.fail.Exception):
            self._problem = self._problem or reason(call.excinfo.value)

    def keep(self) -> None:
        """Write what is known by now."""
        account = ShardAccount(cases=self._cases, failures=self._failures, problem=self._problem)
        beside = self._file.with_suffix(".new")
        beside.write_text(to_json(account), encoding="utf-8")
        # Another process may be reading it.
        beside.replace(self._file)
        self._kept = time.monotonic()


def _end_with_task(leash: int) -> None:
    while os.read(leash, 1):
        pass
    # The process of the shard leads a group of its own.
    os.killpg(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Run the shard; pytest's exit status."""
    # Pytest's capture puts another file in place of the standard input, which looks like the end of the pipe.
    threading.Thread(target=_end_with_task, args=(os.dup(0),), daemon=True).start()
    account, *arguments = sys.argv[1:]
    accountant = _Accountant(Path(account))
    try:
        return pytest_main(arguments, accountant)
    finally:
        # A session that cannot complete its record ends with an exception.
        accountant.keep()


if __name__ == "__main__":
    sys.exit(main())
