"""Whether the line is found of a defect that a mutation makes in a conversion function.

    PYTHONPATH=.:tests/support python -m located_mutants --count 100 --seed 1

For each operator and converter, in an order that the seed gives, mutations of lines that run are tried until
some case fails at check or compare that passes without. Each operator has a process of its own, since what is
mutated may crash it.
"""

from __future__ import annotations

import json
import multiprocessing
import queue
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

import click
from mutants.applied import applied
from mutants.mutation import Mutation, mutated_source, mutations, source_file

from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import find_converter
from harness.convert.provenance import CodeLine
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.generate.operator_case import OPERATOR_CASES
from harness.locate.locate import locate
from harness.locate.observed_case import GraphRunner
from harness.locate.source_code import SourceCode, Statement
from harness.locate.suspect import Suspect
from harness.run.backend import BACKENDS

#: Cases of an operator, and mutations that are tried of one.
_CASES, _TRIED = 9, 5
#: Seconds of processor time for one operator: what is mutated may hang.
_PATIENCE = 60
Located: TypeAlias = "Sequence[tuple[Statement, Suspect]]"


@dataclass(frozen=True)
class Found:
    """The search for the line of one mutation that makes a case fail.

    Attributes:
        place: Of its statement among the suspects, 1 for the first; 0 for none.
        function: Whether the first suspect is in its function.
    """

    mutation: str
    operator: str
    converter: str
    place: int
    function: bool


def runner(converter: str) -> GraphRunner:
    """A converter and onnxruntime, started."""
    entry, argument = BACKENDS.find("ort-cpu")
    return GraphRunner(find_converter(converter).create(False), entry.create(argument), Route(converter=converter))


def drawn_calls(operator: str, converter: str, seed: int) -> list[Invocation]:
    """Drawn cases that pass."""
    load_cases()
    own = runner(converter)
    cases = draw_cases(OPERATOR_CASES[operator], seed=seed, structures=_CASES, values=1)
    calls = [drawn.invocations[0] for drawn in cases]
    return [call for call in calls if _ended(own, call)[1] is Outcome.PASS]


def locate_mutation(mutation: Mutation, calls: Sequence[Invocation]) -> tuple[Located, SourceCode] | None:
    """Return the suspects if a mutation makes cases fail at check or compare; else None."""
    file = str(source_file(mutation.module))
    with applied(mutation):
        own = runner(mutation.converter)
        ends = [(call, *_ended(own, call)) for call in calls]
        failing = [c for c, stage, outcome in ends if outcome is not Outcome.PASS and stage in _STAGES]
        if not failing:
            return None
        tree = mutated_source(mutation.id, Path(file).read_text(encoding="utf-8"))
        source = SourceCode({file: tree})
        passing = [c for c, _, outcome in ends if outcome is Outcome.PASS]
        return locate(own, failing, passing, source), source


def place_of(mutation: Mutation, located: Located, source: SourceCode) -> tuple[int, bool]:
    """Place of the mutated statement among the suspects, and whether the first is in its function."""
    file = str(source_file(mutation.module))
    truth = source.statement(CodeLine(file, mutation.line, mutation.function))
    statements = [statement for statement, _ in located]
    first = bool(statements) and (statements[0].file, statements[0].function) == (file, mutation.function)
    return (statements.index(truth) + 1 if truth in statements else 0), first


_STAGES = (Stage.CHECK, Stage.COMPARE)


def shows(own: GraphRunner, call: Invocation) -> bool:
    """Whether a case fails here as a mutation makes cases fail that count."""
    stage, outcome = _ended(own, call)
    return outcome is not Outcome.PASS and stage in _STAGES


def operators_and_converters(seed: int) -> list[tuple[str, str]]:
    """Return all pairs of an operator and a converter, in an order that the seed gives."""
    pairs = [(name, converter) for name in sorted(OPERATOR_CASES) for converter in ("dynamo", "torchscript")]
    random.Random(seed).shuffle(pairs)
    return pairs


def reached_mutations(operator: str, converter: str, seed: int, calls: Sequence[Invocation]) -> list[Mutation]:
    """Mutations of lines that run for some cases of an operator, in an order that the seed gives."""
    own = runner(converter)
    ran = {(line.file, line.line) for call in calls[:4] for line, _ in own.trace(call).executed}
    reached = [m for m in mutations(converter) if (str(source_file(m.module)), m.line) in ran]
    random.Random(f"{seed} {operator} {converter}").shuffle(reached)
    return reached


def _ended(own: GraphRunner, call: Invocation) -> tuple[Stage, Outcome]:
    try:
        run = own.ending(call)
    except Exception:
        # PyTorch itself refuses the call.
        return Stage.REFERENCE, Outcome.SKIP
    return run.stage, run.outcome


def _try_operator(operator: str, converter: str, seed: int, send: Callable[[Found | None], None]) -> None:
    signal.setitimer(signal.ITIMER_PROF, _PATIENCE)
    calls = drawn_calls(operator, converter, seed)
    for mutation in reached_mutations(operator, converter, seed, calls)[:_TRIED]:
        found = locate_mutation(mutation, calls)
        if found is not None:
            located, source = found
            place, first = place_of(mutation, located, source)
            send(Found(mutation.id, operator, converter, place, first))
            break
    send(None)


@click.command()
@click.option("--count", default=100, show_default=True, help="Mutations that make a case fail.")
@click.option("--seed", default=0, show_default=True, help="Which ones these are.")
@click.option("--out", type=click.Path(path_type=Path), help="File to add what is found to, a line each.")
def main(count: int, seed: int, out: Path | None) -> None:
    """Mutate conversion functions, and look for the lines."""
    load_cases()
    context = multiprocessing.get_context("fork")
    found: list[Found] = []
    for operator, converter in operators_and_converters(seed):
        if len(found) >= count:
            break
        results = context.Queue()
        process = context.Process(target=_try_operator, args=(operator, converter, seed, results.put))
        process.start()
        one = _answer(process, results)
        process.join()
        if one is not None:
            found.append(one)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(one)) + "\n")
    total = max(len(found), 1)
    click.echo(f"{len(found)} mutations that make a case fail")
    click.echo(f"function right: {sum(one.function for one in found) / total:.1%}")
    click.echo(f"line among the first three: {sum(0 < one.place <= 3 for one in found) / total:.1%}")


def _answer(process: multiprocessing.process.BaseProcess, results: multiprocessing.Queue) -> Found | None:  # type: ignore[type-arg]
    """Return what a process sends; None if it finds nothing, or dies."""
    while True:
        try:
            one: Found | None = results.get(timeout=1)
        except queue.Empty:
            if process.is_alive():
                continue
            return None
        return one


if __name__ == "__main__":
    main()
