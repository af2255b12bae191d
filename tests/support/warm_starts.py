"""Python processes that have imported what takes long before they start.

PyTorch, its exporters and pytest take a process many seconds, and the fork server of a session once more.
Here such a process is forked from another, its template, which has imported them and done nothing else:
nothing of this project, and no plug-in. It has the environment, the path, the streams and the parent that it
would have if Python had started for it, and so have its own fork server, workers of pytest-xdist and modules
that it runs; but sets have the order that they have in its template. What a start takes, imports or prints,
and what is the same in every process, is for tests that start Python.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing import util
from pathlib import Path
from typing import Any, Literal, TypeAlias

#: What a template has imported: PyTorch, or its exporters, too.
Imported: TypeAlias = Literal["exporters", "torch"]
#: What a template runs.
_PROGRAM = Path(__file__).with_name("warm_template.py")
#: An argument, in place of which a forked process shows those that it was started with.
_ROOM = "." * 2000
#: `prctl`'s, by which those whose parent ends become this process's children.
_SET_CHILD_SUBREAPER = 36
#: What a fork server starts with, and what a worker of pytest-xdist runs.
_FORK_SERVER = "from multiprocessing.forkserver import main"
_WORKER = "import sys;exec(eval(sys.stdin.readline()))"
#: The arguments of what starts a process, of which newer versions of Python have more.
_STARTING = list(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


class Template:
    """A process that has imported what takes long; each process that is started here is forked from it.

    It ends with this one.

    Args:
        channel: To it.
        process: What it was started as; nothing where this process was forked with it.
    """

    def __init__(self, channel: socket.socket, process: object = None) -> None:
        self._channel = channel
        self._process = process
        self._owner = os.getpid()
        self._in_turn = threading.Lock()

    @property
    def mine(self) -> bool:
        """Whether this process may start others; one that is forked from it may not."""
        return os.getpid() == self._owner

    def start(
        self,
        words: Sequence[str],
        descriptors: Mapping[int, int],
        *,
        environment: Mapping[str, str] | None = None,
        directory: str | Path | None = None,
        new_session: bool = False,
    ) -> int:
        """Start ``python WORDS`` as a child of this process; its id.

        Args:
            descriptors: Its open ones, by number, and what they are here.
        """
        request = {
            "words": list(words),
            "numbers": list(descriptors),
            "environment": dict(os.environ if environment is None else environment),
            "directory": str(directory or Path.cwd()),
            "new_session": new_session,
        }
        with self._in_turn, _adopting():
            socket.send_fds(self._channel, [json.dumps(request).encode()], list(descriptors.values()))
            return int(self._channel.recv(64))


@contextmanager
def _adopting() -> Iterator[None]:
    """Have those become children of this process whose parents end meanwhile."""
    libc = ctypes.CDLL(None)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


#: The templates of this process, once it has them, by what they have imported.
_own: dict[Imported, Template] = {}


def template(imported: Imported = "exporters") -> Template:
    """That of this process; it lasts as long as this process does."""
    if imported not in _own:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        without = ("PYTHON", "PYTEST_")
        clean = {name: word for name, word in os.environ.items() if not name.startswith(without)}
        process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), str(theirs.fileno()), imported, _ROOM],
            env={**clean, "OMP_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        _own[imported] = Template(ours, process)
    return _own[imported]


def warm_all_below(own: Template) -> None:
    """Have what this process starts forked from its template: modules, workers, and its fork server."""
    _own["exporters"] = own
    plain = util.spawnv_passfds

    def spawn(path: Any, words: Sequence[Any], descriptors: Sequence[int]) -> int:
        said = [os.fsdecode(word) for word in words]
        if own.mine and any(word.startswith(_FORK_SERVER) for word in said):
            return own.start(said[1:], {number: number for number in (0, 1, 2, *descriptors)})
        started: int = plain(path, words, descriptors)
        return started

    util.spawnv_passfds = spawn  # type: ignore[assignment]
    subprocess.Popen = _WarmModules  # type: ignore[misc, assignment]


class WarmPopen(subprocess.Popen[str]):
    """`subprocess.Popen` for ``[sys.executable, ...]``."""

    imported: Imported = "exporters"

    def _execute_child(self, *arguments: Any) -> None:
        given = dict(zip(_STARTING, arguments, strict=True))
        if not self._warm(given["args"]):
            super()._execute_child(*arguments)  # type: ignore[misc]
            return
        streams = {0: given["p2cread"], 1: given["c2pwrite"], 2: given["errwrite"]}
        self.pid = template(self.imported).start(
            given["args"][1:],
            {number: number if there == -1 else there for number, there in streams.items()},
            environment=given["env"],
            directory=given["cwd"],
            new_session=given["start_new_session"],
        )
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[end] for end in ends))  # type: ignore[attr-defined]

    def _warm(self, words: Sequence[str]) -> bool:
        return sys.platform == "linux" and words[0] == sys.executable and template(self.imported).mine


class PlainPopen(WarmPopen):
    """The same with PyTorch alone, whose exporters the process imports itself."""

    imported = "torch"


class _WarmModules(WarmPopen):
    """The same for workers of pytest-xdist, and for what Python runs by its name."""

    def _warm(self, words: Sequence[str]) -> bool:
        ours = words[-1] == _WORKER or list(words[1:2]) == ["-m"]
        return ours and super()._warm(words)


def run(words: Sequence[str | Path], *, timeout: float = 600, **options: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`, with all that is printed."""
    text = list(map(str, words))
    pipe = subprocess.PIPE
    with WarmPopen(text, stdout=pipe, stderr=pipe, text=True, **options) as started:
        try:
            printed = started.communicate(timeout=timeout)
        except BaseException:
            started.kill()
            raise
        return subprocess.CompletedProcess(text, started.wait(), *printed)
