"""Which statements of a function another one depends on, and which depend on it: by names and conditions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from harness.analyse.places.source_code import SourceCode, Statement, is_compound, own_expressions


def flow_of(statement: Statement, source: SourceCode) -> list[Statement]:
    """The statements that give a statement the names that it reads, and the conditions around it."""
    node = source.node(statement)
    function = source.file(statement.file).function(statement.function, statement.line)
    if function is None:
        return []
    wanted = reads(node)
    found = [
        other
        for other in ast.walk(function)
        if isinstance(other, ast.stmt) and other is not function and other is not node
        if _leads(other, node, wanted)
    ]
    return [Statement(statement.file, other.lineno, statement.function) for other in found]


def carried_from(statement: Statement, source: SourceCode) -> list[Statement]:
    """The statements further on that read a name which a statement writes."""
    node = source.node(statement)
    function = source.file(statement.file).function(statement.function, statement.line)
    written = set(_writes(node))
    if function is None or not written:
        return []
    return [
        Statement(statement.file, other.lineno, statement.function)
        for other in ast.walk(function)
        if isinstance(other, ast.stmt) and other.lineno > node.lineno and reads(other) & written
    ]


def _leads(other: ast.stmt, node: ast.stmt, wanted: set[str]) -> bool:
    if isinstance(other, ast.If | ast.While | ast.For) and any(child is node for child in ast.walk(other)):
        return True
    return other.lineno < node.lineno and bool(set(_writes(other)) & wanted)


def reads(node: ast.stmt) -> set[str]:
    """Names that a statement reads itself."""
    return {
        child.id for child in own_expressions(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)
    }


def _writes(node: ast.stmt) -> Iterator[str]:
    if is_compound(node) and not isinstance(node, ast.For):
        return
    for child in own_expressions(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
