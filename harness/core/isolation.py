"""Run code in a process that may die, hang or use too much memory, as PyTorch, exporters and runtimes do.

What the process announced last can be read whatever happens to it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import mmap
import multiprocessing
import os
import pickle
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.machinery import PathFinder
from itertools import pairwise
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeAlias, TypeVar, cast

import psutil

from harness.core.text import describe_error

_COUNT = struct.Struct("<Q")
_LENGTH = struct.Struct("<I")
#: Largest pickled value, in bytes.
_ROOM = 4096


class Blackboard:
    """Shared memory in which a process announces a plain value, such as its next step; it survives the process.

    Each value replaces the previous one. Writing costs far less than a message, which would wake the reader. A pickled
    blackboard carries its path: unpickling gives access to the same memory.

    Args:
        path: The file that backs the memory; it is created if missing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        size = _COUNT.size + 2 * (_LENGTH.size + _ROOM)
        with path.open("a+b") as file:
            file.truncate(size)
            self._memory = mmap.mmap(file.fileno(), size)

    def __reduce__(self) -> tuple[type[Blackboard], tuple[Path]]:
        return Blackboard, (self._path,)

    @property
    def count(self) -> int:
        """The number of values written since the last `clear`."""
        return int(_COUNT.unpack_from(self._memory)[0])

    def clear(self) -> None:
        """Remove the value."""
        _COUNT.pack_into(self._memory, 0, 0)

    def write(self, value: object) -> None:
        """Replace the value; raises `ValueError` if it is too large."""
        data = pickle.dumps(value)
        if len(data) > _ROOM:
            raise ValueError(f"a message of {len(data)} bytes is longer than {_ROOM}")
            # The process may end at any moment, so the old value stays intact until the new one is complete.
        count = self.count + 1
        place = self._place(count)
        _LENGTH.pack_into(self._memory, place, len(data))
        self._memory[place + _LENGTH.size : place + _LENGTH.size + len(data)] = data
        _COUNT.pack_into(self._memory, 0, count)

    def read(self) -> object:
        """Return the value that was written last; None if there is none."""
        if not self.count:
            return None
        place = self._place(self.count)
        (length,) = _LENGTH.unpack_from(self._memory, place)
        value: object = pickle.loads(self._memory[place + _LENGTH.size : place + _LENGTH.size + length])
        return value

    @staticmethod
    def _place(count: int) -> int:
        return _COUNT.size + count % 2 * (_LENGTH.size + _ROOM)


P = ParamSpec("P")
R = TypeVar("R")

#: Seconds between checks of a working process's memory.
_POLL = 0.1
#: Seconds that a start may take: PyTorch's import and a first export, on a loaded machine.
_START_TIMEOUT = 300.0

#: Bytes at the end of a log that are searched for the cause of death; a stack of a hundred frames takes some 20,000.
_LAST_WORDS = 65536

#: Sends a plain value to the process that asked.
Send: TypeAlias = Callable[[object], None]
#: Handles one request.
Serve: TypeAlias = Callable[[Any], None]


class ProcessDied(Exception):
    """A process ended, or was ended, before it answered.

    Args:
        message: How it ended.
        words: The last lines that it printed.
        limit: The limit that it exceeded, ``time`` or ``memory``; "" if it was not ended by us.
    """

    def __init__(self, message: str, *, words: str = "", limit: str = "") -> None:
        super().__init__(message)
        self.words = words
        self.limit = limit

    @property
    def hung(self) -> bool:
        """Whether it was ended because it did not answer in time."""
        return self.limit == "time"

    @property
    def account(self) -> str:
        """The message, followed by the last lines that the process printed."""
        return f"{self}\n{self.words}" if self.words else str(self)


@contextlib.contextmanager
def _hide_missing_script() -> Iterator[None]:
    """Hide the path of a script read from standard input, which a new process would try to import."""
    main = vars(sys.modules["__main__"])
    script = main.get("__file__")
    if script is None or Path(script).exists():
        yield
        return
    del main["__file__"]
    try:
        yield
    finally:
        main["__file__"] = script


class IsolatedProcess:
    """A process that serves one request after another and is replaced when it dies.

    Use it as a context manager, or close it. The process starts with the first request and never outlives this one.

    Args:
        start: Called in the process with a function that sends answers; returns the function that handles requests. It
            is pickled.
        fork: Fork the process from the fork server, which has imported the modules given to `preload_in_fork_server`.
            Otherwise it starts fresh, without anything that this process has imported or started.
        memory_limit: Bytes of resident memory that the process may use; None means no limit.
        environment: Additional environment variables, set before the process imports anything else.
        board: A place for the process to announce its next step; that extends the timeout as an answer does.
    """

    def __init__(
        self,
        start: Callable[[Send], Serve],
        *,
        fork: bool = False,
        memory_limit: int | None = None,
        environment: Mapping[str, str] | None = None,
        board: Blackboard | None = None,
    ) -> None:
        self._start = start
        self._context: Any = multiprocessing.get_context("forkserver" if fork else "spawn")
        self._memory_limit = memory_limit
        self._environment = dict(environment or {})
        self._board = board
        self._process: Any = None
        self._connection: Connection | None = None
        #: Never written to; the worker notices when it closes, which happens however this process ends.
        self._alive: Connection | None = None
        self._ended_for: ProcessDied | None = None
        self._looked = 0.0
        #: When the message that is arriving must be complete, and the seconds that it may take; None between messages.
        self._whole_by: tuple[float, float] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="harness-worker-")
        self._log = Path(self._directory.name) / "output"
        #: How many requests the current process has received.
        self.served = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and remove its files."""
        self.stop()
        self._directory.cleanup()

    @property
    def pid(self) -> int | None:
        """The process id; None if no process runs."""
        return self._process.pid if self._process is not None else None

    def send(self, request: object) -> None:
        """Send a request, which is pickled; receive all of its answers before the next one.

        Raises:
            ProcessDied: No process can be started.
        """
        if self._connection is None:
            for last in (False, False, True):
                try:
                    self._launch()
                    break
                except ProcessDied as died:
                    if died.limit or last:
                        raise
                    # Try again if it was killed while starting: perhaps the fork server, which refuses connections
                    # while it ends and is replaced only afterwards.
                    time.sleep(_POLL)
        assert self._connection is not None
        self.served += 1
        # If the process has died, `receive` reports how.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(request)

    def receive(self, timeout: float) -> Any:
        """Return the next value that the process sends.

        Args:
            timeout: Seconds to wait.

        Raises:
            ProcessDied: It ended before sending a value, or exceeded the time or memory limit.
        """
        assert self._connection is not None
        deadline = time.monotonic() + timeout
        seen = self._board.count if self._board else 0
        while True:
            # Check even while it keeps sending; values that it sent before it was ended are still received.
            self._look_at_memory()
            patience = min(_POLL, max(0.0, deadline - time.monotonic()))
            if self._connection.poll(0 if self._ended_for else patience):
                try:
                    return self._receive_whole(max(deadline - time.monotonic(), _POLL))
                except (EOFError, OSError):
                    raise self._ended() from None
            if self._ended_for:
                raise self._ended()
            if self._board and self._board.count != seen:
                seen, deadline = self._board.count, time.monotonic() + timeout
            if time.monotonic() >= deadline:
                self._end_for(ProcessDied(f"no answer within {timeout:g} s", limit="time"))
                raise self._ended()

    def _receive_whole(self, seconds: float) -> Any:
        """Receive the message that has begun to arrive; a process that stops within it is ended after `seconds`."""
        assert self._connection is not None
        self._whole_by = time.monotonic() + seconds, seconds
        try:
            return self._connection.recv()
        finally:
            self._whole_by = None

    def _watch(self, process: Any) -> None:
        """End a process that stops within a message."""
        # One thread for all messages of a process: starting one takes longer than receiving a message.
        while self._process is process:
            whole_by = self._whole_by
            if whole_by is not None and time.monotonic() >= whole_by[0]:
                self._end_for(ProcessDied(f"no answer within {whole_by[1]:g} s", limit="time"))
                return
            time.sleep(_POLL)

    def stop(self) -> None:
        """End the process; the next request starts another."""
        if self._process is None:
            return
        assert self._connection is not None
        assert self._alive is not None
        self._connection.close()
        self._process.join(0.2)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._alive.close()
        self._process = self._connection = self._alive = None

    def _launch(self) -> None:
        self._log.write_bytes(b"")
        self._connection, theirs = self._context.Pipe()
        watched, self._alive = self._context.Pipe(duplex=False)
        start = pickle.dumps(self._start)
        self._process = self._context.Process(
            target=_run, args=(theirs, watched, str(self._log), self._environment, start), daemon=True
        )
        try:
            with _hide_missing_script():
                if self._context.get_start_method() == "forkserver":
                    _start_fork_server()
                self._process.start()
        except (EOFError, OSError) as error:
            # A fork server that hangs while importing ends itself.
            self._process = None
            for end in (self._connection, theirs, watched, self._alive):
                end.close()
            self._connection = self._alive = None
            raise ProcessDied(f"no worker process can be started: {describe_error(error)}") from None
        theirs.close()
        watched.close()
        self.served, self._ended_for = 0, None
        threading.Thread(target=self._watch, args=(self._process,), daemon=True).start()
        try:
            self.receive(_START_TIMEOUT)
        except ProcessDied as died:
            message = f"the worker process does not start: {died}"
            raise ProcessDied(message, words=died.words, limit=died.limit) from None

    def _look_at_memory(self) -> None:
        now = time.monotonic()
        if self._memory_limit is None or self._ended_for or now - self._looked < _POLL:
            return
        self._looked = now
        with contextlib.suppress(psutil.Error):
            if psutil.Process(self._process.pid).memory_info().rss > self._memory_limit:
                excess = f"more than {self._memory_limit / 2**30:g} GiB of memory"
                self._end_for(ProcessDied(excess, limit="memory"))

    def _end_for(self, reason: ProcessDied) -> None:
        self._process.kill()
        self._process.join()
        self._ended_for = reason

    def _ended(self) -> ProcessDied:
        """Return how the process ended; call this once it has."""
        died = self._ended_for
        if died is None:
            self._process.join()
            code = self._process.exitcode
            killed = code is not None and code < 0
            how = f"killed by {signal.Signals(-code).name}" if killed else f"exited with status {code}"
            died = ProcessDied(f"process {how}", words=self._last_words())
        self.stop()
        return died

    def _last_words(self) -> str:
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _LAST_WORDS))
            text = log.read().decode(errors="replace")
            lines = [line for line in text.splitlines() if line.strip()]
            # faulthandler's stack shows the harness, not the runtime that died.
            for i, line in enumerate(lines):
                if line.startswith("Fatal Python error"):
                    return "\n".join(_panic(lines[:i]) or lines[max(0, i - 3) : i + 1])
            return "\n".join(lines[-4:])
        return ""


def _panic(lines: Sequence[str]) -> list[str]:
    """Return where and why Rust code panicked, if that ended the process, without the backtrace."""
    if not lines or not lines[-1].startswith("thread caused non-unwinding panic"):
        return []
    panics = [
        [where.partition(") ")[2] or where, why]
        for where, why in pairwise(lines)
        # The panic that matters is followed by another one, of the frame that must not unwind.
        if " panicked at " in where and why != "panic in a function that cannot unwind"
    ]
    return panics[-1] if panics else []


class IsolatedCalls(IsolatedProcess):
    """Calls module-level functions in an isolated process.

    Args:
        timeout: Seconds that a call may take; the first call of a process includes its imports.
        prepare: Called when a process starts.
        fork: See `IsolatedProcess`.
        environment: See `IsolatedProcess`.
    """

    def __init__(
        self,
        *,
        timeout: float = 60.0,
        prepare: Callable[[], object] | None = None,
        fork: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(partial(_calling, prepare), fork=fork, environment=environment)
        self._timeout = timeout

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return `function(*args, **kwargs)`, computed in the process; all of it is pickled.

        Raises:
            ProcessDied: The process did not answer.
            Exception: The exception that the function raised.
        """
        self.send((function, args, kwargs))
        returned, result = self.receive(self._timeout)
        if not returned:
            raise result
        return cast(R, result)


#: The modules that the fork server imports before it forks, in order.
_preloaded: list[str] = []


def preload_in_fork_server(module: str, *, start: bool = False) -> None:
    """Have the fork server import `module` after those named earlier; no effect once it runs.

    The import must not start threads or touch a device: a forked process inherits neither.

    Args:
        module: The module to import.
        start: Start the server now, so that it imports in the background; otherwise the first forked process waits.
    """
    package = module.partition(".")[0]
    try:
        here = [str(Path.cwd())]
    except FileNotFoundError:
        # The current directory was deleted, so it contains no package.
        here = []
    spec = PathFinder.find_spec(package, here)
    ours = [Path(place).resolve() for place in sys.modules[package].__path__]
    # Until Python 3.13 the server searches the current directory first, which may be another project with a package of
    # that name.
    if spec is None or [Path(place).resolve() for place in spec.submodule_search_locations or ()] == ours:
        if module not in _preloaded:
            _preloaded.append(module)
        multiprocessing.get_context("forkserver").set_forkserver_preload(list(_preloaded))
        if start:
            _start_fork_server()


def _start_fork_server() -> None:
    """Start the fork server unless it runs. It and its children never see an interrupt, which is for the session.

    A terminal sends one to all of its processes, also to one that has only begun to import.
    """
    # It unblocks interrupts when it has been started.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# The following runs in the worker process.


def _run(connection: Connection, alive: Connection, log: str, environment: Mapping[str, str], start: bytes) -> None:
    os.environ.update(environment)
    _redirect_output(log)
    _die_with_session(alive)
    serve = pickle.loads(start)(connection.send)
    connection.send("ready")
    with contextlib.suppress(EOFError):
        while True:
            serve(connection.recv())


def _calling(prepare: Callable[[], object] | None, send: Send) -> Serve:
    if prepare is not None:
        prepare()

    def serve(request: tuple[Callable[..., object], tuple[Any, ...], dict[str, Any]]) -> None:
        function, args, kwargs = request
        try:
            send((True, function(*args, **kwargs)))
        except Exception as error:
            send((False, _portable(error)))

    return serve


def _portable(error: Exception) -> Exception:
    """Return the error, or a `RuntimeError` with its text if it does not survive pickling."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(describe_error(error))
    return error


def _die_with_session(alive: Connection) -> None:
    """Have the kernel end this process when the other end of `alive` closes because its session died.

    Native code that hangs never learns that a connection was closed, and the fork server lives as long as its children.
    The default action of SIGIO ends the process.
    """
    fcntl.fcntl(alive.fileno(), fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(alive.fileno(), fcntl.F_SETFL, os.O_ASYNC)
    if alive.poll():
        # It closed before the kernel began to watch it.
        os._exit(1)


def _redirect_output(log: str) -> None:
    """Redirect file descriptors 1 and 2, where native code writes, including a dying process's last message."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    sys.stdout = sys.stderr = Path(log).open("a", buffering=1)  # noqa: SIM115 - lives as long as the process
    faulthandler.enable(file=2, all_threads=False)
