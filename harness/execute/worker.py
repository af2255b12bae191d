"""The process that runs PyTorch, exporters and runtimes, so that it may die in place of the session."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import importlib
import os
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import torch

from harness.convert import Converter, RuleBook, find_converter
from harness.core import describe_error
from harness.execute.task import OWN_FAULT, Finished, Ready, Settings, Started, WorkerTask
from harness.generate import load_cases
from harness.run import BACKENDS, Backend, DeviceLost


def main(connection: Connection, alive: Connection, log: str) -> None:
    """Serve tasks until the other side hangs up.

    Args:
        connection: Each `WorkerTask` comes in, the messages of its handler and at last `Finished` go out.
        alive: A pipe on which nothing comes, and whose closing ends the process.
        log: Where everything that is printed goes: runtimes write to file descriptors 1 and 2 from
            native code, and a dying process leaves its last words there.
    """
    _redirect_output(log)
    _die_with_session(alive)
    # One thread a process: the harness runs as many processes as the user asks for.
    torch.set_num_threads(1)
    # Operators are judged as their family files say, whoever started the fork server.
    load_cases()
    # What was imported before the fork lives as long as the process; collecting it again and again
    # takes a tenth of the time of an export.
    gc.collect()
    gc.freeze()
    worker = WorkerProcess(connection)
    connection.send(Ready())
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        worker.serve(task)


#: A converter, and the user's rules that it was started with.
StartedConverter: TypeAlias = "tuple[Converter, RuleBook | None]"


class WorkerProcess:
    """What a task has of the process that carries it out: started converters and backends, and the way back.

    Args:
        connection: To the supervisor.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._converters: dict[tuple[str, bool, tuple[str, ...]], StartedConverter] = {}
        self._backends: dict[str, Backend] = {}

    def serve(self, task: WorkerTask) -> None:
        """Carry out `task`, and say how that ended."""
        module, _, function = task.handler.partition(":")
        try:
            getattr(importlib.import_module(module), function)(task, self)
        except DeviceLost as error:
            self.send(Finished(lost=str(error) or "the device was lost"))
        except Exception as error:
            # What converters, backends and PyTorch raise is caught where they are called.
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            self.send(Finished(lost=f"{OWN_FAULT}, please report it: {describe_error(error)} ({place})"))
        else:
            self.send(Finished())

    def send(self, message: object) -> None:
        """Send a plain value to whoever gave the task."""
        self._connection.send(message)

    def start(self, name: str) -> Backend:
        """The backend called `name`, whose facts the supervisor learns for the record."""
        backend = self.backend(name)
        self.send(Started(name, backend.version, backend.device))
        return backend

    def backend(self, name: str) -> Backend:
        """The backend called `name`, started once."""
        if name not in self._backends:
            entry, argument = BACKENDS.find(name)
            self._backends[name] = entry.create(argument)
        return self._backends[name]

    def converter(self, name: str, settings: Settings) -> StartedConverter:
        """The converter called `name`, started once, with the user's rules for it."""
        key = (name, settings.public_api, settings.rules)
        if key not in self._converters:
            self._converters[key] = _start(*key)
        return self._converters[key]


def _start(name: str, public_api: bool, rules: tuple[str, ...]) -> StartedConverter:
    entry = find_converter(name)
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
