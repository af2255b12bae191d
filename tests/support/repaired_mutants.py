"""Whether `conformance fix` repairs a defect that a mutation makes in a conversion function.

    PYTHONPATH=.:tests/support python -m repaired_mutants --count 100 --seed 1

The mutations are those of `located_mutants`. A change counts only under the rule of `conformance fix`: every
drawn case that fails because of the mutation passes with it, and of ten times as many drawn cases none fails
that passes with the mutation alone.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from located_mutants import bench, drawn_calls, operators_and_converters, reached_mutations, shows
from mutants.applied import applied
from mutants.mutation import Mutation, mutated_source, source_file

from harness.analyse.places.edits import Edit
from harness.analyse.places.failing_group import PASSING, FailingGroup
from harness.analyse.places.fix_task import Ranked, Repair, RepairTask, Trying
from harness.analyse.places.fixing import FixFound, FixLimits, ended_cases, search_fix
from harness.analyse.places.locate import locate
from harness.analyse.places.repair import Search
from harness.analyse.places.source_code import SourceCode
from harness.core import Invocation
from harness.execute import Result, Task, WorkerProcess
from harness.execute.task import Finished
from harness.generate import OPERATOR_CASES, draw_cases, load_cases

#: Cases of a run, with how many values each structure has, and how many mutations are tried of an operator.
_EXAMPLES, _VALUES, _TRIED = 128, 4, 5
#: Seconds of processor time for one operator: what is mutated may hang.
_PATIENCE = 400


@dataclass(frozen=True)
class Mended:
    """What became of one mutation that makes a case fail.

    Attributes:
        rule: Of the change that repairs it; "" for none.
        failing: Cases that fail because of it, and pass with the change.
        passing: Cases that pass with it, and still do with the change.
        tried: Changes that were tried, and how many of them others than the first cases refuted.
    """

    mutation: str
    operator: str
    converter: str
    rule: str = ""
    failing: int = 0
    passing: int = 0
    tried: int = 0
    refuted: int = 0
    seconds: float = 0.0


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


def mend(mutation: Mutation, calls: Sequence[Invocation], limits: FixLimits) -> FixFound:
    """Search for a repair of a mutation, given cases of its operator."""
    file = str(source_file(mutation.module))
    source = SourceCode({file: mutated_source(mutation.id, Path(file).read_text(encoding="utf-8"))})

    def serve(task: RepairTask) -> Iterator[Any]:
        sent: list[Any] = []

        def found(edit: Edit) -> None:
            changed = edit.function(source)
            assert changed is not None
            sent.append(Repair(edit, changed))

        search = Search(
            task.skipped,
            lambda number: sent.append(Trying(number)),
            found,
            lambda statements: sent.append(Ranked(statements)),
        )
        locate(bench(mutation.converter), task.failing, task.passing, source, task.limits, search)
        yield from sent

    group = FailingGroup(
        converter=mutation.converter,
        backend="ort-cpu",
        overloads=(calls[0].overload,),
        failing=(),
        passing=(),
        total=0,
        opset=None,
        seed=0,
        examples=_EXAMPLES,
        values=_VALUES,
    )
    right = ended_cases(calls, group, run_here, passes=True)
    with applied(mutation):
        failing = ended_cases(right, group, run_here, passes=False)
        passing = [call for call in right if call not in failing][:PASSING]
        group = replace(group, failing=tuple(failing), passing=tuple(passing), total=len(failing))
        return search_fix(group, limits, serve, run_here, lambda words: None)


def _try_operator(
    operator: str, converter: str, seed: int, limits: FixLimits, send: Callable[[Mended | None], None]
) -> None:
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE)
    calls = drawn_calls(operator, converter, seed)
    for mutation in reached_mutations(operator, converter, seed, calls)[:_TRIED]:
        with applied(mutation):
            own = bench(converter)
            if not any(shows(own, call) for call in calls):
                continue
        begun = time.monotonic()
        one = Mended(mutation.id, operator, converter)
        # The process may not survive the search.
        send(one)
        more = draw_cases(
            OPERATOR_CASES[operator], seed=seed, structures=_EXAMPLES // _VALUES, values=_VALUES
        )
        found = mend(mutation, [*calls, *(call for case in more for call in case.invocations)], limits)
        send(
            Mended(
                mutation.id,
                operator,
                converter,
                rule=found.edit.rule if found.edit else "",
                failing=found.failing,
                passing=found.passing,
                tried=found.tried,
                refuted=found.refuted,
                seconds=round(time.monotonic() - begun, 1),
            )
        )
        break
    send(None)


@click.command()
@click.option("--count", default=100, show_default=True, help="Mutations that make a case fail.")
@click.option("--seed", default=0, show_default=True, help="Which ones these are.")
@click.option("--seconds", default=60.0, show_default=True, help="For the search of one repair.")
@click.option("--out", type=click.Path(path_type=Path), help="File to add what is found to, a line each.")
def main(count: int, seed: int, seconds: float, out: Path | None) -> None:
    """Mutate conversion functions, and repair them."""
    load_cases()
    context = multiprocessing.get_context("fork")
    limits = FixLimits(seconds=seconds, examples=10 * _EXAMPLES)
    found: list[Mended] = []
    for operator, converter in operators_and_converters(seed):
        if len(found) >= count:
            break
        results = context.Queue()
        arguments = operator, converter, seed, limits, results.put
        process = context.Process(target=_try_operator, args=arguments)
        process.start()
        one = _last(process, results)
        process.join()
        if one is not None:
            found.append(one)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
    total = max(len(found), 1)
    click.echo(f"{len(found)} mutations that make a case fail")
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
