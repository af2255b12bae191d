"""Which definitions of a Python file are what they were in an earlier version of it.

A definition is a statement at the outermost level of a file together with all that it uses there: functions,
classes, constants, single imported names. Comments, blank lines, docstrings and the order of statements do
not count. A call that declares operators by literal names, ``ops.simple("abs", "neg", …)`` or
``@ops.case("celu")``, is a definition for each of the names.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from harness.schema import normalise, packet

#: Methods and decorators whose literal arguments are names of operators.
_DECLARING = frozenset({"simple", "case", "dynamo", "torchscript", "rule"})


@dataclass(frozen=True)
class _Statement:
    """A statement of the outermost level.

    Attributes:
        node: Itself, without docstrings.
        text: The whole of it.
        shared: The same without the literal names that it declares.
        names: Those.
    """

    node: ast.stmt
    text: str
    shared: str
    names: frozenset[str]

    @property
    def first_line(self) -> int:
        decorators: list[ast.expr] = getattr(self.node, "decorator_list", [])
        return min([self.node.lineno, *(d.lineno for d in decorators)])

    @property
    def used(self) -> set[str]:
        return {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}


class Source:
    """One version of a Python file.

    Args:
        text: Its text.
        other: The same version of a module that it imports names from; None of one that is not looked into.

    Raises:
        SyntaxError: it is none of Python.
    """

    def __init__(self, text: str, other: Callable[[str], Source | None] = lambda module: None) -> None:
        module = ast.parse(text)
        self._statements = [_statement(node) for node in module.body]
        self._binding: dict[str, list[str]] = defaultdict(list)
        self._of_name: dict[str, list[_Statement]] = defaultdict(list)
        for statement in self._statements:
            for name, words in _bound(statement, other):
                self._binding[name].append(words)
                self._of_name[name].append(statement)

    def fingerprint(self, line: int, name: str) -> tuple[str, ...]:
        """What the definition that holds `line` says of `name`: the same in two versions that mean the same.

        Args:
            line: That was running when the name was declared.
            name: As it was declared: ``celu``.
        """
        for statement in self._statements:
            if statement.first_line <= line <= (statement.node.end_lineno or line):
                return self._fingerprint(statement, name if name in statement.names else None)
        return ()

    def names(self, line: int, overload: str) -> list[str]:
        """How the definition that holds `line` spells `overload`; one that cannot be read off is "".

        Args:
            line: That was running when the overload was declared.
            overload: Dotted name.
        """
        for statement in self._statements:
            if statement.first_line <= line <= (statement.node.end_lineno or line):
                spelt = [name for name in sorted(statement.names) if _means(name, overload)]
                return spelt or [""]
        return [""]

    @cached_property
    def fingerprints(self) -> frozenset[tuple[str, ...]]:
        """Of all definitions."""
        return frozenset(
            self._fingerprint(statement, name)
            for statement in self._statements
            for name in (None, *statement.names)
        )

    def of_name(self, name: str) -> str:
        """What the file binds `name` to, with all that this uses."""
        return "\n".join("\n".join(self._fingerprint(s, None)) for s in self._of_name[name])

    def _fingerprint(self, statement: _Statement, name: str | None) -> tuple[str, ...]:
        own = statement.text if name is None else f"{name}: {statement.shared}"
        return own, *sorted(self._uses(statement))

    def _uses(self, statement: _Statement) -> set[str]:
        """All that a statement rests on in this file, directly or not."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = list(statement.used)
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            for words, other in zip(self._binding[name], self._of_name[name], strict=True):
                if other is not statement:
                    found.add(words)
                    waiting += other.used
        return found


def _means(name: str, overload: str) -> bool:
    dotted = normalise(name)
    return overload in (dotted, f"{dotted}.default") or packet(overload) == dotted


def _statement(node: ast.stmt) -> _Statement:
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            _strip_docstring(inner)
    text = ast.dump(node)
    calls = list(_declaring_calls(node))
    names: set[str] = set()
    for call in calls:
        literals = [a for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        names.update(str(literal.value) for literal in literals)
        call.args = [argument for argument in call.args if argument not in literals]
    return _Statement(node, text, ast.dump(node), frozenset(names))


def _strip_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    if ast.get_docstring(node) is not None:
        node.body = node.body[1:] or [ast.Pass(lineno=node.lineno, col_offset=0)]


def _declaring_calls(node: ast.stmt) -> Iterator[ast.Call]:
    expressions: list[ast.expr] = list(getattr(node, "decorator_list", []))
    if isinstance(node, ast.Expr):
        expressions.append(node.value)
    for expression in expressions:
        if isinstance(expression, ast.Call):
            function = expression.func
            name = getattr(function, "attr", None) or getattr(function, "id", "")
            if name in _DECLARING:
                yield expression


def _bound(statement: _Statement, other: Callable[[str], Source | None]) -> Iterator[tuple[str, str]]:
    """Names that a statement binds, and what it says of each."""
    node = statement.node
    if isinstance(node, ast.Import | ast.ImportFrom):
        module = f"{'.' * node.level}{node.module or ''}" if isinstance(node, ast.ImportFrom) else ""
        source = other(module) if module else None
        for alias in node.names:
            meaning = source.of_name(alias.name) if source is not None else ""
            bound = (alias.asname or alias.name).partition(".")[0]
            yield bound, f"import {module}:{alias.name}\n{meaning}"
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name, statement.text
    else:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id, statement.text
