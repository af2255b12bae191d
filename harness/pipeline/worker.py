"""The process that runs PyTorch, exporters and runtimes, so that it may die in place of the session."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import torch

from harness import backends, converters
from harness.backends.base import Backend, DeviceLost
from harness.converters.base import Converter
from harness.pipeline.execute import Executor
from harness.pipeline.resize import variants
from harness.pipeline.task import Finished, Message, Ready, Resized, ResizeTask, Started, Step, Task
from harness.rules.load import RuleBook
from harness.verdict.verdict import Stage


def main(connection: Connection, alive: Connection, log: str) -> None:
    """Serve tasks until the other side hangs up.

    Args:
        connection: `Task` and `ResizeTask` come in, `Message` goes out.
        alive: A pipe on which nothing comes, and whose closing ends the process.
        log: Where everything that is printed goes: runtimes write to file descriptors 1 and 2 from
            native code, and a dying process leaves its last words there.
    """
    _redirect_output(log)
    _die_with_session(alive)
    # One thread a process: the harness runs as many processes as the user asks for.
    torch.set_num_threads(1)
    # What was imported before the fork lives as long as the process; collecting it again and again
    # takes a tenth of the time of an export.
    gc.collect()
    gc.freeze()
    worker = _Worker(connection)
    connection.send(Ready())
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        worker.serve(task)


class _Worker:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._converters: dict[tuple[str, bool, tuple[str, ...]], _Started] = {}
        self._backends: dict[str, Backend] = {}

    def serve(self, task: Task | ResizeTask) -> None:
        try:
            if isinstance(task, ResizeTask):
                self._resize(task)
            else:
                self._execute(task)
        except DeviceLost as error:
            self._send(Finished(lost=str(error) or "the device was lost"))
        else:
            self._send(Finished())

    def _send(self, message: Message) -> None:
        self._connection.send(message)

    def _resize(self, task: ResizeTask) -> None:
        for index, base in task.bases:
            self._send(Step(Stage.REFERENCE, None, ((index, 0),)))
            try:
                found = variants(base, task.count)
            except Exception:
                # PyTorch rejects the base itself, which the task that runs it will report.
                found = ()
            self._send(Resized(index, found))

    def _execute(self, task: Task) -> None:
        key = (task.converter, task.settings.public_api, task.settings.rules)
        if key not in self._converters:
            self._converters[key] = _start(*key)
        converter, book = self._converters[key]
        for name in task.backends:
            if name not in self._backends:
                backend_entry, argument = backends.find(name)
                self._backends[name] = backend_entry.create(argument)
            backend = self._backends[name]
            self._send(Started(name, backend.version, backend.device))
        Executor(task, converter, self._backends, self._send, book).execute()


_Started: TypeAlias = "tuple[Converter, RuleBook | None]"


def _start(name: str, public_api: bool, rules: tuple[str, ...]) -> _Started:
    entry = converters.find(name)
    book = RuleBook.for_converter(rules, name)
    if not book.rules or entry.create_with_rules is None:
        return entry.create(public_api), None
    return entry.create_with_rules(public_api, book), book


def _die_with_session(alive: Connection) -> None:
    """Have the kernel end this process when the other end of `alive` closes, because its session died.

    Inside native code that hangs a process never learns that its connection is closed, and the fork server
    lives as long as its children do. The default action of SIGIO is to end the process.
    """
    fcntl.fcntl(alive.fileno(), fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(alive.fileno(), fcntl.F_SETFL, os.O_ASYNC)
    if alive.poll():
        # It closed before the kernel was asked to watch it.
        os._exit(1)


def _redirect_output(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)
    sys.stdout = sys.stderr = Path(log).open("a", buffering=1)  # noqa: SIM115 - lives as long as the process
    faulthandler.enable(file=2, all_threads=False)
