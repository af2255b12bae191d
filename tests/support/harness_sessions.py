"""Sessions of `pytest harness` one after the other in a process, which imports PyTorch once for all.

Most of a small run's time is its start, which has tests of its own.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

#: Reads words of command lines from its input, and writes exit statuses to what was its output; the output of
#: each session goes to the files that are named with its words.
_PROGRAM = """
import json, os, sys
import pytest

statuses = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    words, *files = json.loads(line)
    for descriptor, file in enumerate(files, 1):
        opened = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(opened, descriptor)
        os.close(opened)
    status = pytest.main(words)
    sys.stdout.flush()
    sys.stderr.flush()
    print(int(status), file=statuses, flush=True)
"""


class Sessions:
    """A process that runs sessions; it starts with the first one, and again where one ends it."""

    def __init__(self, cwd: Path, environment: dict[str, str]) -> None:
        self._cwd, self._environment = cwd, environment
        self._process: subprocess.Popen[str] | None = None

    def run(self, words: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        """Run `pytest` with these words to its end.

        Raises:
            subprocess.TimeoutExpired: it takes longer than `timeout` seconds.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                cwd=self._cwd,
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
            print(json.dumps([list(words), *map(str, files)]), file=process.stdin, flush=True)
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                ended = selector.select(timeout)
            if not ended:
                process.kill()
                self.close()
                raise subprocess.TimeoutExpired(words, timeout, files[0].read_text())
            said = process.stdout.readline()
            if not said:
                self.close()
            status = int(said) if said else process.returncode
            return subprocess.CompletedProcess(words, status, *(file.read_text() for file in files))

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate(timeout=60)
            self._process = None


_SESSIONS: dict[tuple[str, str], Sessions] = {}


def sessions(cwd: Path, environment: dict[str, str]) -> Sessions:
    """Those of this directory and environment, one process for all tests of a file."""
    key = str(cwd), json.dumps(sorted(environment.items()))
    return _SESSIONS.setdefault(key, Sessions(cwd, environment))


def close_all() -> None:
    """End all processes of sessions."""
    while _SESSIONS:
        _SESSIONS.popitem()[1].close()
