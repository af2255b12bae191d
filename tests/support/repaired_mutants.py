"""Whether `conformance fix` repairs a defect that a mutation makes in a conversion function.

    PYTHONPATH=.:tests/support python -m repaired_mutants --count 100 --seed 1 --out repaired.jsonl

The mutations are those of `located_mutants`, and so is what is said of their lines: a search begins with
the one that ranks them. A change counts only under the rule of `conformance fix`: every drawn case that fails
because of the mutation passes with it, and of ten times as many drawn cases none fails that passes with the
mutation alone. With a file that is there already, it goes on where it ended.
"""

from __future__ import annotations

import gc
import json
import logging
import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
from located_mutants import (
    LIMITS,
    bench,
    drawn_calls,
    operators_and_converters,
    place_of,
    reached_mutations,
    shows,
)
from mutants.applied import applied
from mutants.mutation import Mutation, mutated_source, source_file

from harness.analyse.places.edit import Edit
from harness.analyse.places.failing_group import PASSING, FailingGroup
from harness.analyse.places.fix_task import Ranked, Repair, RepairTask, Trying
from harness.analyse.places.fixing import FixFound, FixLimits, ended_cases, search_fix
from harness.analyse.places.locate import locate
from harness.analyse.places.repair import Search
from harness.analyse.places.source_code import SourceCode
from harness.compare import Outcome
from harness.core import Invocation
from harness.execute import Death, Result, Task, WorkerProcess
from harness.execute.task import Finished
from harness.generate import OPERATOR_CASES, draw_cases, load_cases

#: Values that each structure has, and how many mutations are tried of an operator.
_VALUES, _TRIED = 4, 5
#: Seconds of processor time to find a mutation that fails, to run and check its cases, and for one change:
#: what is mutated may hang.
_PATIENCE, _PATIENCE_OF_CHECK, _PATIENCE_OF_CHANGE = 60, 200, 30


@dataclass(frozen=True)
class Mended:
    """What became of one mutation that makes a case fail.

    Attributes:
        mutation: "" where none of those that were tried does.
        place: Of its statement among the suspects, 1 for the first; 0 for none.
        function: Whether the first suspect is in its function.
        rule: Of the change that repairs it; "" for none.
        failing: Cases that fail because of it, and pass with the change.
        passing: Cases that pass with it, and still do with the change.
        tried: Changes that were tried, and how many of them others than the first cases refuted.
        seconds: Of processor time.
    """

    mutation: str
    operator: str
    converter: str
    place: int = 0
    function: bool = False
    rule: str = ""
    failing: int = 0
    passing: int = 0
    tried: int = 0
    refuted: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Placed:
    """The place of a mutated statement among the suspects, and whether the first is in its function."""

    place: int
    function: bool


def run_here(tasks: Iterable[Task]) -> Iterator[list[Result]]:
    """The results of tasks that this process carries out."""
    sent: list[Any] = []
    worker = WorkerProcess(sent.append)
    for task in tasks:
        worker.serve(task)
        lost = next((m.lost for m in sent if isinstance(m, Finished) and m.lost), "")
        if lost:
            raise RuntimeError(lost)
        yield from (message for message in sent if isinstance(message, list))
        sent.clear()


def mend(
    mutation: Mutation, calls: Sequence[Invocation], examples: int, limits: FixLimits
) -> tuple[FixFound, Placed]:
    """Search for a repair of a mutation, given cases of its operator; also says where it was looked for."""
    file = str(source_file(mutation.module))
    source = SourceCode({file: mutated_source(mutation.id, Path(file).read_text(encoding="utf-8"))})
    placed = Placed(0, False)

    def serve(task: RepairTask) -> Iterator[Any]:
        nonlocal placed
        for message in _apart(lambda send: _search(task, mutation, source, send)):
            if isinstance(message, Placed):
                placed = message
            else:
                yield message

    group = FailingGroup(
        converter=mutation.converter,
        backend="ort-cpu",
        overloads=(calls[0].overload,),
        failing=(),
        passing=(),
        total=0,
        opset=None,
        seed=0,
        examples=examples,
        values=_VALUES,
    )
    right = ended_cases(calls, group, run_here, passes=True)
    with applied(mutation):
        failing = ended_cases(right, group, run_here, passes=False)
        passing = [call for call in right if call not in failing][:PASSING]
        group = replace(group, failing=tuple(failing), passing=tuple(passing), total=len(failing))
        return search_fix(group, limits, serve, _run_apart, lambda words: None), placed


def _run_apart(tasks: Iterable[Task]) -> Iterator[list[Result]]:
    """The results of tasks that a process of its own carries out, up to where it dies."""

    def run(send: Callable[[Any], None]) -> None:
        for results in run_here(tasks):
            send(results)

    for message in _apart(run):
        if isinstance(message, list):
            yield message


def _search(task: RepairTask, mutation: Mutation, source: SourceCode, send: Callable[[Any], None]) -> None:
    """Look for the line, then for the changes that were not tried on the way."""
    own = bench(mutation.converter)
    tried: set[str] = set()
    first: list[Repair] = []

    def trying(key: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, _PATIENCE_OF_CHANGE)
        tried.add(key)
        send(Trying(key))

    def repair(edit: Edit) -> Repair:
        changed = edit.function(source)
        assert changed is not None
        return Repair(edit, changed)

    def ranked(statements: int) -> None:
        send(Ranked(statements))

    search = Search(task.skipped, trying, lambda edit: first.append(repair(edit)), ranked)
    located = locate(own, task.failing, task.passing, source, LIMITS, search)
    send(Placed(*place_of(mutation, located, source)))
    for one in first:
        send(one)
    search = Search(task.skipped | tried, trying, lambda edit: send(repair(edit)), ranked)
    locate(own, task.failing, task.passing, source, task.limits, search)


def _apart(work: Callable[[Callable[[Any], None]], None]) -> Iterator[Any]:
    """What work says that a process of its own does; it waits until each message is dealt with."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()

    def worked() -> None:
        here.close()
        work(lambda message: _say(message, there))
        there.send(None)

    process = context.Process(target=worked)
    process.start()
    there.close()
    try:
        while (message := here.recv()) is not None:
            yield message
            here.send(True)
    except EOFError:
        process.join()
        yield Death(Outcome.CRASH, f"exit status {process.exitcode}")
    finally:
        process.kill()
        process.join()


def _say(message: Any, to: Connection) -> None:
    to.send(message)
    try:
        to.recv()
    except EOFError:
        # Nobody wants to know more.
        os._exit(1)


def _try_operator(
    operator: str,
    converter: str,
    seed: int,
    examples: int,
    limits: FixLimits,
    send: Callable[[Mended | None], None],
) -> None:
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE)
    calls = drawn_calls(operator, converter, seed)
    for mutation in reached_mutations(operator, converter, seed, calls)[:_TRIED]:
        with applied(mutation):
            own = bench(converter)
            if not any(shows(own, call) for call in calls):
                continue
        one = Mended(mutation.id, operator, converter)
        signal.setitimer(signal.ITIMER_PROF, _PATIENCE_OF_CHECK)
        # The process may not survive the search.
        send(one)
        more = draw_cases(OPERATOR_CASES[operator], seed=seed, structures=examples // _VALUES, values=_VALUES)
        every = [*calls, *(call for case in more for call in case.invocations)]
        found, placed = mend(mutation, every, examples, limits)
        send(
            replace(
                one,
                place=placed.place,
                function=placed.function,
                rule=found.edit.rule if found.edit else "",
                failing=found.failing,
                passing=found.passing,
                tried=found.tried,
                refuted=found.refuted,
                seconds=round(sum(os.times()[:4]), 1),
            )
        )
        break
    send(None)


@click.command()
@click.option("--count", default=100, show_default=True, help="Mutations that make a case fail.")
@click.option("--seed", default=0, show_default=True, help="Which ones these are.")
@click.option("--seconds", default=60.0, show_default=True, help="For the search of one repair.")
@click.option(
    "--examples", default=128, show_default=True, help="Cases of an operator, a tenth of the check's."
)
@click.option("--out", type=click.Path(path_type=Path), help="File to add what is found to, a line each.")
def main(count: int, seed: int, seconds: float, examples: int, out: Path | None) -> None:
    """Mutate conversion functions, and repair them."""
    _warm_up()
    context = multiprocessing.get_context("fork")
    limits = FixLimits(seconds=seconds, examples=10 * examples)
    known = out.read_text(encoding="utf-8").splitlines() if out is not None and out.exists() else []
    ended = [Mended(**json.loads(line)) for line in known]
    done = {(one.operator, one.converter) for one in ended}
    for operator, converter in operators_and_converters(seed):
        if sum(bool(one.mutation) for one in ended) >= count:
            break
        if (operator, converter) in done:
            continue
        results = context.Queue()
        arguments = operator, converter, seed, examples, limits, results.put
        process = context.Process(target=_try_operator, args=arguments)
        process.start()
        ended.append(_last(process, results) or Mended("", operator, converter))
        process.join()
        if out is not None:
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(ended[-1])) + "\n")
    _report([one for one in ended if one.mutation])


def _warm_up() -> None:
    """Import here what each process would import for itself."""
    # What exporters log, they log on every call.
    logging.disable(logging.CRITICAL)
    load_cases()
    for converter in ("dynamo", "torchscript"):
        drawn_calls("aten.neg.default", converter, 0)
    gc.freeze()


def _report(found: Sequence[Mended]) -> None:
    total = max(len(found), 1)
    click.echo(f"{len(found)} mutations that make a case fail")
    click.echo(f"function right: {sum(one.function for one in found) / total:.1%}")
    click.echo(f"line among the first three: {sum(0 < one.place <= 3 for one in found) / total:.1%}")
    click.echo(f"repaired: {sum(bool(one.rule) for one in found) / total:.1%}")


def _last(process: multiprocessing.process.BaseProcess, results: multiprocessing.Queue) -> Mended | None:  # type: ignore[type-arg]
    """The last that a process says of its mutation; None where it finds none."""
    said: Mended | None = None
    while True:
        try:
            one: Mended | None = results.get(timeout=1)
        except queue.Empty:
            if process.is_alive():
                continue
            return said
        if one is None:
            return said
        said = one


if __name__ == "__main__":
    main()
