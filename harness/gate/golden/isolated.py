"""A process that may die in place of this one: runtimes crash and hang on some models."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Died(Exception):
    """The process ended, or was ended, before it answered; the message says how.

    Args:
        message: For a person.
        hung: Whether it gave no answer in time.
    """

    def __init__(self, message: str, *, hung: bool = False) -> None:
        super().__init__(message)
        self.hung = hung


class Isolated:
    """Calls functions of modules in another process, which is replaced when it dies.

    Args:
        timeout: Seconds that one call may take; the first one in a process imports what it needs, too.
        quiet: Throw away what the process prints: runtimes print from native code.
        environment: Variables that it has beside this process's.
    """

    def __init__(
        self, *, timeout: float = 60.0, quiet: bool = True, environment: Mapping[str, str] | None = None
    ) -> None:
        # Starting from nothing: what this process has imported or started is not in the other.
        self._context = multiprocessing.get_context("spawn")
        self._timeout = timeout
        self._quiet = quiet
        self._environment = dict(environment or {})
        self._process: Any = None
        self._connection: Connection | None = None

    def __enter__(self) -> Isolated:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.join(5)
            if self._process.is_alive():
                self._process.kill()
                self._process.join()
            self._process = None

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """`function(*args, **kwargs)` there; all of them are pickled.

        Raises:
            Died: there is no answer.
            Exception: what the function raised.
        """
        connection = self._started()
        try:
            connection.send((function, args, kwargs))
            if not connection.poll(self._timeout):
                self._process.kill()
                self._process.join()
                self._forget()
                raise Died(f"no answer within {self._timeout:g} s", hung=True)
            ok, result = connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            self._forget()
            raise Died(_how(code)) from None
        if not ok:
            raise result
        answer: R = result
        return answer

    def _started(self) -> Connection:
        if self._connection is None:
            ours, theirs = self._context.Pipe()
            self._process = self._context.Process(target=_serve, args=(theirs, self._quiet), daemon=True)
            before = dict(os.environ)
            os.environ.update(self._environment)
            try:
                self._process.start()
            finally:
                os.environ.clear()
                os.environ.update(before)
            theirs.close()
            self._connection = ours
        return self._connection

    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._process = None


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"process killed by {signal.Signals(-code).name}"
    return f"process exited with status {code}"


def _serve(connection: Connection, quiet: bool) -> None:
    if quiet:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
    while True:
        try:
            function, args, kwargs = connection.recv()
        except EOFError:
            return
        try:
            answer = True, function(*args, **kwargs)
        except Exception as error:
            answer = False, error
        connection.send(answer)
