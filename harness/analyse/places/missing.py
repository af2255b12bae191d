"""What is missing in a conversion function: an argument that nothing reads, a cast to a promised dtype."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from harness.analyse.places.observed_case import ObservedCase
from harness.analyse.places.slicing import reads
from harness.analyse.places.source_code import SourceCode, Statement
from harness.convert import CodeLine


def missing_things(
    case: ObservedCase, source: SourceCode, unread: float, uncast: float
) -> Iterator[tuple[Statement, float, str]]:
    """Statements at which something is missing, how much that weighs, and what it is.

    Args:
        unread: What an argument weighs that no line reads.
        uncast: What a dtype weighs that no line casts back to.
    """
    ran = _by_function([line for line, _ in case.executed], source)
    given = {name for name, value in case.invocation.arguments if value is not None}
    stacks = case.graph.lines if case.graph else ()
    emitting = {source.statement(line) for lines in stacks for line in lines[:1]}
    taking_part = {(s.file, s.function) for lines in stacks for s in map(source.statement, lines) if s}
    for statements in ran.values():
        last = statements[-1]
        function = source.file(last.file).function(last.function, last.line)
        if function is None:
            continue
        read = set().union(*(reads(source.node(s)) for s in statements))
        # What is not read should mostly be where the result is computed.
        place = next((s for s in reversed(statements) if s in emitting), last)
        for name in sorted(_parameters(function, statements, source) & given - read):
            yield place, unread, f"No line that runs reads the argument {name}."
        # What only answers a question has no result to cast.
        outputs = case.expected.items() if (last.file, last.function) in taking_part else ()
        for output, (promised, got) in outputs:
            if promised != got and isinstance(source.node(last), ast.Return):
                yield last, uncast, f"{output} should be {promised}, is {got}, and no line casts it back."


def _parameters(function: ast.FunctionDef, ran: Sequence[Statement], source: SourceCode) -> set[str]:
    """Of a function and of those within it, as far as something of them ran."""
    nodes = {source.node(statement) for statement in ran}
    inner = (n for n in ast.walk(function) if isinstance(n, ast.FunctionDef))
    return {
        argument.arg
        for one in inner
        if any(child in nodes for child in ast.walk(one))
        for argument in (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)
    }


def _by_function(lines: Sequence[CodeLine], source: SourceCode) -> dict[tuple[str, str], list[Statement]]:
    found: dict[tuple[str, str], list[Statement]] = {}
    for line in lines:
        statement = source.statement(line)
        if statement is not None and not isinstance(source.node(statement), ast.FunctionDef):
            found.setdefault((statement.file, statement.function), []).append(statement)
    return found
