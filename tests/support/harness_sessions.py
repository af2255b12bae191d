"""Sessions of `pytest harness`, commands of `conformance` and scripts, for which PyTorch is imported once.

Most of a small run's time is its start, which has tests of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from warm_starts import WarmPopen

#: Which entry point is called; a script is called by its path.
Program = Literal["pytest", "conformance", "script"]

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

#: The same for scripts, each in a process that is forked for it.
_FORKED = """
import gc, json, os, runpy, sys
import onnx, onnxscript, torch

sys.path.insert(0, os.environ.pop("SUPPORT"))
from exporter_sources import read_once
from quick_end import run_to_the_end

del sys.path[0]
reading = read_once()
reading.__enter__()
# What the first export imports. ONNX Runtime would start a thread, which no forked process has.
torch.onnx.export(torch.nn.ReLU(), (torch.zeros(1),), dynamo=True, verbose=False)
gc.freeze()
statuses = os.fdopen(os.dup(1), "w")
for line in sys.stdin:
    _, words, directory, *files = json.loads(line)
    child = os.fork()
    if not child:
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=statuses, flush=True)
else:
    sys.exit()
for descriptor, file in enumerate(files, 1):
    os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND), descriptor)
os.chdir(directory)
# As Python does it for a process that starts here with this path.
os.environ["PYTHONPATH"] = sys.path[0] = directory
sys.argv[:] = words
runpy.run_path("sitecustomize.py")
run_to_the_end(lambda: runpy.run_path(words[0], run_name="__main__"))
"""

#: How many processes are kept, each with a fork server and a worker.
_KEPT = 2


class Sessions:
    """A process that runs sessions and commands; it starts with the first, and again where one ends it."""

    def __init__(
        self,
        environment: dict[str, str],
        program: str = _IN_TURN,
        start: type[WarmPopen] = WarmPopen,
    ) -> None:
        self._environment, self._program = _without_test(environment), program
        self._start = start
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
            self._process = self._start(
                [sys.executable, "-c", self._program],
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


def _without_test(environment: dict[str, str]) -> dict[str, str]:
    """Without what names the test that runs now."""
    return {name: word for name, word in environment.items() if not name.startswith("PYTEST_")}


#: The one that was used last comes last.
_SESSIONS: dict[str, Sessions] = {}


def sessions(environment: dict[str, str]) -> Sessions:
    """Those of this environment, one process for all tests that this one runs."""
    key = json.dumps(sorted(_without_test(environment).items()))
    found = _SESSIONS.pop(key, None)
    if found is None:
        while len(_SESSIONS) >= _KEPT:
            _SESSIONS.pop(next(iter(_SESSIONS))).close()
        found = Sessions(environment)
    _SESSIONS[key] = found
    return found


class Scripts(Sessions):
    """A process that has imported what exporters need, and is forked for each script.

    A folder with a script has a ``sitecustomize.py``, which is run before it.
    """

    def __init__(self) -> None:
        # Neither the harness nor its plug-ins are on the path.
        ours = {"PYTHONPATH": "", "OMP_NUM_THREADS": "1", "SUPPORT": str(Path(__file__).parent)}
        super().__init__({**os.environ, **ours}, _FORKED)


@cache
def scripts() -> Scripts:
    """One process for all tests that this one runs."""
    return Scripts()


def close_all() -> None:
    """End all processes of sessions and scripts."""
    while _SESSIONS:
        _SESSIONS.popitem()[1].close()
    if scripts.cache_info().currsize:
        scripts().close()
