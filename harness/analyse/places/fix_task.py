"""What a search for a fix has done in worker processes, which the changed functions may take down."""

from __future__ import annotations

import ast
import gc
import importlib
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import ClassVar

from harness.analyse.places.applied_edit import Holders, applied_edit
from harness.analyse.places.edit import Edit
from harness.analyse.places.locate import locate
from harness.analyse.places.observed_case import Bench
from harness.analyse.places.repair import Limits, Search
from harness.analyse.places.source_code import SourceCode, short_path
from harness.core import Invocation
from harness.execute import Executor, Settings, Task, WorkerProcess

#: Runs whatever ONNX specifies: what a backend has no kernel for is asked of it.
EVALUATOR = "onnx-reference"


@dataclass(frozen=True, kw_only=True)
class RepairTask:
    """Find changes with which some cases pass; see `locate` for the arguments.

    Attributes:
        skipped: Keys of changes that are not tried.
    """

    handler: ClassVar[str] = "harness.analyse.places.fix_task:find_repairs"

    failing: tuple[Invocation, ...]
    passing: tuple[Invocation, ...]
    converter: str
    backend: str
    settings: Settings
    limits: Limits
    skipped: frozenset[str]


@dataclass(frozen=True)
class Trying:
    """The key of the change that is tried next."""

    key: str


@dataclass(frozen=True)
class Repair:
    """A change with which the cases of a `RepairTask` pass.

    Attributes:
        changed: The function with it, with the lines of its file.
        complete: Whether all of them pass; else some, and none newly fails.
    """

    edit: Edit
    changed: ast.FunctionDef
    complete: bool = True


@dataclass(frozen=True)
class Ranked:
    """How many statements may be wrong."""

    statements: int


@dataclass(frozen=True)
class RepairedTask(Task):
    """The same cases with a changed function of the converter, or with none.

    Attributes:
        file: That the function is in.
    """

    handler: ClassVar[str] = "harness.analyse.places.fix_task:carry_out"

    file: str = ""
    changed: ast.FunctionDef | None = None


def find_repairs(task: RepairTask, worker: WorkerProcess) -> None:
    """Find the changes in a worker, and send each."""
    source = SourceCode()
    converter, _ = worker.converter(task.converter, task.settings)
    bench = Bench(converter, worker.backend(task.backend), task.settings.opset)
    evaluator = None
    if task.backend != EVALUATOR:
        evaluator = replace(bench, backend=worker.backend(EVALUATOR))

    def found(edit: Edit, complete: bool = True) -> None:
        changed = edit.function(source)
        assert changed is not None
        worker.send(Repair(edit, changed, complete))

    def partial(edit: Edit) -> None:
        found(edit, complete=False)

    def ranked(statements: int) -> None:
        worker.send(Ranked(statements))

    search = Search(task.skipped, lambda key: worker.send(Trying(key)), found, ranked, partial)
    locate(bench, task.failing, task.passing, source, task.limits, search, evaluator)


def carry_out(task: RepairedTask, worker: WorkerProcess) -> None:
    """Run the cases in a worker, with the changed function in place."""
    if task.changed is None:
        Executor(task, worker).execute()
        return
    # What it converts with is imported by then.
    worker.converter(task.converter, task.settings)
    with applied_edit(task.file, task.changed, functions_of(task.file)):
        Executor(task, worker).execute()


def functions_of(file: str) -> Holders:
    """The functions of a file, wherever they are kept in this process."""
    name = ".".join(Path(short_path(file)).with_suffix("").parts)
    importlib.import_module(name.removesuffix(".__init__"))
    # What a process had before it was forked is hidden from a search.
    gc.unfreeze()
    found: Holders = {}
    for thing in gc.get_objects():
        # Some things that modules hold warn of their age when they are asked what they are.
        if type(thing) is FunctionType and thing.__code__.co_filename == file:
            code = thing.__code__
            found.setdefault((code.co_filename, code.co_firstlineno, code.co_name), []).append(thing)
    return found
