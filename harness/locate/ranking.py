"""Rank the statements that ran while failing cases were exported.

Three things speak for a statement: that it runs where cases fail and not where they pass (Ochiai's
coefficient), that it made a node on the way to the wrong output, gave a value to what did, or raised what was
raised, and that something is missing in it.
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

#: How much each thing speaks for a statement beside Ochiai's coefficient, which is at most 1.
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
    """Statements that may make the cases fail, the likeliest first.

    Args:
        passing: Of the same operator, or of others.
        others: Failing cases of other operators; they may well fail for the same reason.
    """
    table: dict[Statement, _Counts] = {}
    for cases, of in ((failing, "failing"), (others, "others"), (passing, "passing")):
        for case in cases:
            for statement in _statements(_lines(case), source):
                counts = table.setdefault(statement, _Counts())
                setattr(counts, of, getattr(counts, of) + 1)
    for case in failing:
        for statement, bonus, reason in _evidence(case, source):
            counts = table.setdefault(statement, _Counts(failing=1))
            counts.bonuses.add(bonus)
            counts.reasons[reason] = None
    for place, statement in enumerate(_statements(_lines(failing[0]), source)):
        table[statement].order = place
    found = [
        (statement, _suspect(statement, counts, len(failing), len(others), source))
        for statement, counts in table.items()
        if counts.failing
    ]

    def standing(pair: tuple[Statement, Suspect]) -> tuple[float, float, int]:
        """Of those with one score, the one for which more speaks comes first, then the later one."""
        counts = table[pair[0]]
        return -pair[1].score, -sum(counts.bonuses), -counts.order

    return sorted(found, key=standing)


def _lines(case: ObservedCase) -> list[CodeLine]:
    """Those that ran, without decompositions of which nothing came into the graph: they gave shapes alone."""
    stacks = (*(case.graph.lines if case.graph else ()), case.raised)
    files = {line.file for lines in stacks for line in lines}
    return [line for line, _ in case.executed if line.file in files or not line.decomposes]


def _statements(lines: Sequence[CodeLine], source: SourceCode) -> list[Statement]:
    found = (source.statement(line) for line in lines)
    # The head of a function runs when its module is imported, and says nothing.
    return list(dict.fromkeys(s for s in found if s and not isinstance(source.node(s), ast.FunctionDef)))


def _suspect(statement: Statement, counts: _Counts, failing: int, others: int, source: SourceCode) -> Suspect:
    ran = counts.failing + counts.others
    ochiai = ran / math.sqrt((failing + others) * (ran + counts.passing))
    if _UNREAD in counts.bonuses:
        # Whether other operators fail tells nothing of an argument that only this one has.
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
    """What speaks for single statements in one failing case."""
    for depth, line in enumerate(case.raised):
        statement = source.statement(line)
        if statement is not None:
            words = "It raises the error." if depth == 0 else "The error comes through it."
            yield statement, _RAISED / (1 + depth), words
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
    ran = _ran(case, source)
    said = case.stage in (Stage.CHECK, Stage.LOAD, Stage.RUN)
    for index in on_path:
        node, lines = model.graph.node[index], case.graph.lines[index]
        for depth, line in enumerate(lines):
            statement = source.statement(line)
            if statement is None:
                continue
            departs = case.graph.of_node[index] in case.first_wrong_nodes
            named = depth == 0 and said and _is_named(node.name, case.message)
            if named and (departs or not case.first_wrong_nodes):
                yield statement, _NAMED, f"It emits {node.name}, which the error names."
            elif depth == 0 and departs:
                yield statement, _DEPARTS, f"It emits {node.op_type} where a value first goes wrong."
            elif depth == 0:
                yield statement, _EMITS, f"It emits {node.op_type} on the way to the wrong output."
            else:
                yield statement, _CALLS, f"It calls what emits {node.op_type} on the way to the wrong output."
            if case.first_wrong_nodes and not departs:
                continue
            own = ran.get(statement.function, ())
            flow = [one for one in flow_of(statement, source) if one in own or not own]
            for carrying in carried_from(statement, source) if depth == 0 else ():
                if carrying in own:
                    yield carrying, _CARRIES, "It takes what is emitted there."
            for leading in flow:
                yield leading, _LEADS if depth == 0 else _CALLS, "It decides what is emitted there."
            less = 1.0 if depth == 0 else _CALLS / _LEADS
            for returned, bonus, words in _returned([statement, *flow], ran, source):
                yield returned, less * bonus, words


def _ran(case: ObservedCase, source: SourceCode) -> dict[str, list[Statement]]:
    """The statements that ran, by their functions' names."""
    found: dict[str, list[Statement]] = {}
    for statement in _statements(_lines(case), source):
        found.setdefault(statement.function, []).append(statement)
    return found


def _returned(
    statements: Iterable[Statement], ran: Mapping[str, Sequence[Statement]], source: SourceCode
) -> Iterator[tuple[Statement, float, str]]:
    """What gave some statements the values of the functions that they call."""
    seen: set[str] = set()
    left = list(statements)
    while left:
        caller = left.pop()
        for name in set(called_names(own_expressions(source.node(caller)))) - seen - {caller.function}:
            seen.add(name)
            for statement in ran.get(name, ()):
                if isinstance(source.node(statement), ast.Return):
                    flow = [one for one in flow_of(statement, source) if one in ran[name]]
                    words = f"What it returns to {caller.function} decides what is emitted there."
                    yield statement, _RETURNS, words
                    for leading in flow:
                        yield leading, _LEADS, words.replace("What it returns", "What is returned")
                    left += [statement, *flow]


def _is_named(name: str, message: str) -> bool:
    return bool(name) and re.search(rf"\b{re.escape(name)}\b", message) is not None
