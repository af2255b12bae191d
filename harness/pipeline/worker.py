"""The process that runs PyTorch, exporters and runtimes, so that it may die in place of the session."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import os
import sys
import traceback
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

import onnx
import torch

import cases
from harness import backends, converters
from harness.backends.base import Backend, DeviceLost
from harness.converters.base import Converter
from harness.models.task import DivergeTask, ModelTask
from harness.pipeline.execute import Executor, describe_error
from harness.pipeline.resize import variants
from harness.pipeline.task import (
    OWN_FAULT,
    Asking,
    Blamed,
    BlameTask,
    Finished,
    Message,
    Ready,
    Resized,
    ResizeTask,
    Settings,
    Started,
    Step,
    Task,
)
from harness.rules.load import RuleBook
from harness.verdict.verdict import Stage


def main(connection: Connection, alive: Connection, log: str) -> None:
    """Serve tasks until the other side hangs up.

    Args:
        connection: `Task`, `ResizeTask` and `BlameTask` come in, `Message` goes out.
        alive: A pipe on which nothing comes, and whose closing ends the process.
        log: Where everything that is printed goes: runtimes write to file descriptors 1 and 2 from
            native code, and a dying process leaves its last words there.
    """
    _redirect_output(log)
    _die_with_session(alive)
    # One thread a process: the harness runs as many processes as the user asks for.
    torch.set_num_threads(1)
    # Operators are judged as their family files say, whoever started the fork server.
    cases.load()
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
        self._converters: dict[tuple[str, bool, tuple[str, ...]], _StartedConverter] = {}
        self._backends: dict[str, Backend] = {}

    def serve(self, task: Task | ResizeTask | BlameTask | ModelTask | DivergeTask) -> None:
        try:
            if isinstance(task, ResizeTask):
                self._resize(task)
            elif isinstance(task, BlameTask):
                self._blame(task)
            elif isinstance(task, ModelTask | DivergeTask):
                self._model(task)
            else:
                self._execute(task)
        except DeviceLost as error:
            self._send(Finished(lost=str(error) or "the device was lost"))
        except Exception as error:
            # What converters, backends and PyTorch raise is caught where they are called.
            where = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(where.filename).name}:{where.lineno}"
            self._send(Finished(lost=f"{OWN_FAULT}, please report it: {describe_error(error)} ({place})"))
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

    def _blame(self, task: BlameTask) -> None:
        from harness.blame.examine import examine
        from harness.blame.trial import Trial

        exports: dict[tuple[int, str], onnx.ModelProto | Exception] = {}
        for complaint in task.complaints:
            index = complaint.index
            self._send(Asking(index, ""))
            trial = Trial(
                complaint,
                task.settings,
                lambda name: self._converter(name, task.settings)[0],
                self._backend,
                exports,
            )
            dead = task.barred | {witness for i, witness in task.dead if i == index}
            decision = examine(trial, dead, partial(self._ask, index), complaint.converter)
            self._send(Blamed(index, decision.blame, decision.evidence))

    def _ask(self, index: int, witness: str) -> None:
        self._send(Asking(index, witness))

    def _execute(self, task: Task) -> None:
        converter, book = self._converter(task.converter, task.settings)
        for name in task.backends:
            self._started(name)
        Executor(task, converter, self._backends, self._send, book).execute()

    def _model(self, task: ModelTask | DivergeTask) -> None:
        from harness.models.serve import serve

        serve(task, self._converter(task.converter, task.settings), self._started, self._connection.send)

    def _started(self, name: str) -> Backend:
        backend = self._backend(name)
        self._send(Started(name, backend.version, backend.device))
        return backend

    def _converter(self, name: str, settings: Settings) -> _StartedConverter:
        key = (name, settings.public_api, settings.rules)
        if key not in self._converters:
            self._converters[key] = _start(*key)
        return self._converters[key]

    def _backend(self, name: str) -> Backend:
        if name not in self._backends:
            entry, argument = backends.find(name)
            self._backends[name] = entry.create(argument)
        return self._backends[name]


_StartedConverter: TypeAlias = "tuple[Converter, RuleBook | None]"


def _start(name: str, public_api: bool, rules: tuple[str, ...]) -> _StartedConverter:
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
