"""Sessions of `pytest harness` and commands of `conformance`, for which PyTorch is imported once.

Most of a small run's time is its start, which has tests of its own.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

#: The entry point that is called.
Program = Literal["pytest", "conformance"]

#: Reads entry points and words of command lines from its input, and writes exit statuses to what was its
#: output; the output of each call goes to the files that are named with its words.
_IN_TURN = """
import json, os, sys
from multiprocessing import process
import pytest

def conformance(words):
    from harness.app.cli._group import conformance
    try:
        conformance(words, prog_name="conformance")
    except SystemExit as end:
        return end.code or 0

statuses = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    program, words, directory, *files = json.loads(line)
    for descriptor, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(directory)
    # Where multiprocessing starts processes.
    process.ORIGINAL_DIR = directory
    status = {"pytest": pytest.main, "conformance": conformance}[program](words)
    sys.stdout.flush()
    sys.stderr.flush()
    print(int(status), file=statuses, flush=True)
"""

#: The number of processes that are kept, each with a fork server and a worker.
_KEPT = 2


class Sessions:
    """A process that runs sessions and commands; it starts with the first, and again after one that ends it."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = _strip_test(environment)
        self._process: subprocess.Popen[str] | None = None
        self._in_turn = threading.Lock()

    def run(
        self, program: Program, words: Sequence[str], cwd: Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `program` with these words in `cwd` to its end, after what another thread runs.

        Raises:
            subprocess.TimeoutExpired: it takes longer than `timeout` seconds.
        """
        with self._in_turn:
            return self._run(program, words, cwd, timeout)

    def _run(
        self, program: Program, words: Sequence[str], cwd: Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _IN_TURN],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with tempfile.TemporaryDirectory() as directory:
            files = [Path(directory) / name for name in ("output", "errors")]
            for file in files:
                file.touch()
            request = [program, list(words), str(cwd), *map(str, files)]
            print(json.dumps(request), file=process.stdin, flush=True)
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                ended = selector.select(timeout)
            if not ended:
                process.kill()
                self.close()
                raise subprocess.TimeoutExpired(words, timeout, files[0].read_text())
            line = process.stdout.readline()
            if not line:
                self.close()
            status = int(line) if line else process.returncode
            return subprocess.CompletedProcess(words, status, *(file.read_text() for file in files))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate(timeout=60)
            self._process = None


def _strip_test(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables except those that name the test that runs now."""
    return {name: word for name, word in environment.items() if not name.startswith("PYTEST_")}


#: Variables of an environment → its process; the process that was used last comes last.
_SESSIONS: dict[str, Sessions] = {}


def sessions(environment: dict[str, str]) -> Sessions:
    """Return the process of an environment, which all tests of this process share."""
    key = json.dumps(sorted(_strip_test(environment).items()))
    found = _SESSIONS.pop(key, None)
    if found is None:
        while len(_SESSIONS) >= _KEPT:
            _SESSIONS.pop(next(iter(_SESSIONS))).close()
        found = Sessions(environment)
    _SESSIONS[key] = found
    return found


def close_all() -> None:
    """End all processes of sessions."""
    while _SESSIONS:
        _SESSIONS.popitem()[1].close()
