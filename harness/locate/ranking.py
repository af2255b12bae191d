"""Rank the statements that ran while failing cases were exported.

A statement is suspicious if

1. it runs in failing cases and not in passing ones (Ochiai's coefficient);
2. it emitted a node on the path to the wrong output, influenced one, or raised the error;
3. something is missing in it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from harness.compare.verdict import Stage
from harness.convert.provenance import CodeLine
from harness.core.text import count
from harness.locate.observed_case import ObservedCase, missing_things
from harness.locate.source_code import (
    SourceCode,
    Statement,
    called_names,
    carried_from,
    flow_of,
    own_expressions,
    short_path,
)
from harness.locate.suspect import Suspect
from harness.pipeline.submodel import extract

#: The weights of single observations, added to Ochiai's coefficient, which is at most 1.
_RAISED, _NAMED, _DEPARTS, _TRANSLATES = 1.0, 0.9, 0.7, 0.6
_UNREAD, _EMITS, _UNCAST, _RETURNS, _LEADS, _CARRIES, _CALLS = 0.5, 0.4, 0.4, 0.35, 0.3, 0.3, 0.2
_MOST = 2.0


@dataclass
class _Counts:
    failing: int = 0
    others: int = 0
    passing: int = 0
    bonuses: set[float] = field(default_factory=set)
    reasons: dict[str, None] = field(default_factory=dict)
    order: int = 0


def rank(
    failing: Sequence[ObservedCase],
    passing: Sequence[ObservedCase],
    source: SourceCode,
    others: Sequence[ObservedCase] = (),
) -> list[tuple[Statement, Suspect]]:
    """Return the statements that may make the cases fail, most suspicious first.

    Args:
        failing: Failing cases of one operator.
        passing: Passing cases of this or other operators.
        source: The converter's source.
        others: Failing cases of other operators, which may fail for the same reason.
    """
    table: dict[Statement, _Counts] = {}
    for cases, counter in ((failing, "failing"), (others, "others"), (passing, "passing")):
        for case in cases:
            for statement in _statements(_lines(case), source):
                counts = table.setdefault(statement, _Counts())
                setattr(counts, counter, getattr(counts, counter) + 1)
    for case in failing:
        for statement, bonus, reason in _evidence(case, source):
            counts = table.setdefault(statement, _Counts(failing=1))
            counts.bonuses.add(bonus)
            counts.reasons[reason] = None
    for place, statement in enumerate(_statements(_lines(failing[0]), source)):
        table[statement].order = place
    suspects = [
        (statement, _suspect(statement, counts, len(failing), len(others), source))
        for statement, counts in table.items()
        if counts.failing
    ]

    def sort_key(pair: tuple[Statement, Suspect]) -> tuple[float, float, int]:
        """Order by score, then by the number of observations, then later statements first."""
        counts = table[pair[0]]
        return -pair[1].score, -sum(counts.bonuses), -counts.order

    return sorted(suspects, key=sort_key)


def _lines(case: ObservedCase) -> list[CodeLine]:
    """Return the lines that ran, without decompositions that contributed only shapes to the graph."""
    stacks = (*(case.graph.lines if case.graph else ()), case.raised)
    files = {line.file for lines in stacks for line in lines}
    return [line for line, _ in case.executed if line.file in files or not line.decomposes]


def _statements(lines: Sequence[CodeLine], source: SourceCode) -> list[Statement]:
    statements = (source.statement(line) for line in lines)
    # The head of a function runs when its module is imported.
    return list(dict.fromkeys(s for s in statements if s and not isinstance(source.node(s), ast.FunctionDef)))


def _suspect(statement: Statement, counts: _Counts, failing: int, others: int, source: SourceCode) -> Suspect:
    ran = counts.failing + counts.others
    ochiai = ran / math.sqrt((failing + others) * (ran + counts.passing))
    if _UNREAD in counts.bonuses:
        # Failures of other operators prove nothing about an argument that only this operator has.
        alone = counts.failing / math.sqrt(failing * (counts.failing + counts.passing))
        ochiai = max(ochiai, alone)
    reasons = list(counts.reasons)
    where = f"It runs in {counts.failing} of {failing} failing cases"
    if counts.others:
        where += f", in {counts.others} of {count(others, 'failing case')} of other operators,"
    reasons.append(
        f"{where} and in {counts.passing} passing ones." if counts.passing else f"{where} and in no passing one."
    )
    return Suspect(
        function=statement.function,
        file=short_path(statement.file),
        line=statement.line,
        text=source.head(statement),
        reason=" ".join(reasons),
        score=(ochiai + max(counts.bonuses, default=0.0)) / _MOST,
    )


def _evidence(case: ObservedCase, source: SourceCode) -> Iterator[tuple[Statement, float, str]]:
    """Yield the observations on single statements in one failing case."""
    for depth, line in enumerate(case.raised):
        statement = source.statement(line)
        if statement is not None:
            sentence = "It raises the error." if depth == 0 else "The error passes through it."
            yield statement, _RAISED / (1 + depth), sentence
    yield from missing_things(case, source, _UNREAD, _UNCAST)
    for line, node in case.executed:
        if node in case.first_wrong_nodes:
            statement = source.statement(line)
            if statement is not None:
                yield statement, _TRANSLATES, f"It translates {node}, where a value first goes wrong."
    if case.graph is None:
        return
    model = case.graph.model
    names = {n.output[0]: i for i, n in enumerate(model.graph.node) if n.output}
    path = extract(model, [i.name for i in model.graph.input], case.wrong)
    on_path = [names[n.output[0]] for n in path.graph.node if n.output and n.output[0] in names]
    ran = _statements_that_ran(case, source)
    has_error = case.run.stage in (Stage.CHECK, Stage.LOAD, Stage.RUN)
    for index in on_path:
        node, lines = model.graph.node[index], case.graph.lines[index]
        for depth, line in enumerate(lines):
            statement = source.statement(line)
            if statement is None:
                continue
            departs = case.graph.of_node[index] in case.first_wrong_nodes
            named = depth == 0 and has_error and _is_named(node.name, case.run.message)
            if named and (departs or not case.first_wrong_nodes):
                yield statement, _NAMED, f"It emits {node.name}, which the error names."
            elif depth == 0 and departs:
                yield statement, _DEPARTS, f"It emits {node.op_type} where a value first goes wrong."
            elif depth == 0:
                yield statement, _EMITS, f"It emits {node.op_type} on the path to the wrong output."
            else:
                yield statement, _CALLS, f"It calls code that emits {node.op_type} on the path to the wrong output."
            if case.first_wrong_nodes and not departs:
                continue
            statements = ran.get(statement.function, ())
            flow = [s for s in flow_of(statement, source) if s in statements or not statements]
            for carrying in carried_from(statement, source) if depth == 0 else ():
                if carrying in statements:
                    yield carrying, _CARRIES, "It reads the emitted value."
            for leading in flow:
                yield leading, _LEADS if depth == 0 else _CALLS, "It determines the code that emits the node."
            factor = 1.0 if depth == 0 else _CALLS / _LEADS
            for returned, bonus, sentence in _returned([statement, *flow], ran, source):
                yield returned, factor * bonus, sentence


def _statements_that_ran(case: ObservedCase, source: SourceCode) -> dict[str, list[Statement]]:
    """Return the statements that ran, by function name."""
    by_function: dict[str, list[Statement]] = {}
    for statement in _statements(_lines(case), source):
        by_function.setdefault(statement.function, []).append(statement)
    return by_function


def _returned(
    statements: Iterable[Statement], ran: Mapping[str, Sequence[Statement]], source: SourceCode
) -> Iterator[tuple[Statement, float, str]]:
    """Yield the statements that produced the values of the functions that some statements call."""
    seen: set[str] = set()
    pending = list(statements)
    while pending:
        caller = pending.pop()
        for name in set(called_names(own_expressions(source.node(caller)))) - seen - {caller.function}:
            seen.add(name)
            for statement in ran.get(name, ()):
                if isinstance(source.node(statement), ast.Return):
                    flow = [s for s in flow_of(statement, source) if s in ran[name]]
                    sentence = (
                        f"The result that it returns to {caller.function} determines the code that emits the node."
                    )
                    yield statement, _RETURNS, sentence
                    for leading in flow:
                        yield leading, _LEADS, sentence.replace("The result that it returns", "The result returned")
                    pending += [statement, *flow]


def _is_named(name: str, message: str) -> bool:
    return bool(name) and re.search(rf"\b{re.escape(name)}\b", message) is not None
