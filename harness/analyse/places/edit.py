"""A change of a conversion function that may repair it: expressions in place of others."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.analyse.places.source_code import SourceCode, Statement, own_expressions

#: What an expression of the source is and where; it stays the same when the tree is copied.
Spot: TypeAlias = tuple[str, int, int, int, int]


@dataclass(frozen=True, eq=False)
class Replacement:
    """One expression of a statement, and what takes its place.

    Attributes:
        place: Of the expression among those of the statement.
        new: It may hold the expression that it replaces.
    """

    statement: Statement
    place: int
    new: ast.expr

    def old(self, source: SourceCode) -> ast.expr:
        """What is replaced."""
        found = list(own_expressions(source.node(self.statement)))[self.place]
        assert isinstance(found, ast.expr)
        return found


@dataclass(frozen=True, eq=False)
class Edit:
    """Changes of one function.

    Attributes:
        rule: In words: "swap the operands".
        statement: That is thought to be wrong.
        begin: Statements that the innermost function around it begins with.
        parts: How many changes by rules it is made of.
    """

    rule: str
    statement: Statement
    changes: tuple[Replacement, ...]
    begin: tuple[ast.stmt, ...] = ()
    parts: int = 1

    @classmethod
    def of(cls, statement: Statement, rule: str, place: int, new: ast.expr) -> Edit:
        """A change of one expression."""
        return cls(rule, statement, (Replacement(statement, place, new),))

    @property
    def key(self) -> str:
        """The same for the same edit, in another process as well."""
        new = (f"{c.statement.line}:{c.place}:{ast.dump(c.new)}" for c in self.changes)
        words = "".join([self.statement.file, self.rule, *map(ast.dump, self.begin), *new])
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    def and_then(self, other: Edit) -> Edit:
        """Both: what both replace becomes what the other makes of it, in what this one makes of that."""
        rule = f"{self.rule}, and {other.rule}"
        changes, begin = (*self.changes, *other.changes), (*self.begin, *other.begin)
        return Edit(rule, self.statement, changes, begin, self.parts + other.parts)

    def function(self, source: SourceCode) -> ast.FunctionDef | None:
        """The outermost function with the changes; None where it has none, or where one undoes another.

        A function that onnxscript builds from its source is marked to be run instead: not all that a change
        may hold can be built.
        """
        original = source.file(self.statement.file).function(self.statement.function, self.statement.line)
        if original is None:
            return None
        changed = copy.deepcopy(original)
        own = innermost(changed, self.statement.line)
        changing = Changing([(spot_of(change.old(source)), change.new) for change in self.changes])
        for field, value in ast.iter_fields(changed):
            setattr(changed, field, changing.all_of(value))
        if len(changing.done) < len(self.changes):
            return None
        at = first_statement(own)
        own.body[at:at] = [copy.deepcopy(statement) for statement in self.begin]
        for statement in own.body[at : at + len(self.begin)]:
            ast.copy_location(statement, own.body[at + len(self.begin)])
        for decorator in built_by(changed):
            decorator.keywords.append(ast.keyword("trace_only", ast.Constant(True)))
        return changed


class Changing(ast.NodeTransformer):
    """Puts expressions in place of others, within each other where they are.

    Attributes:
        done: Which of them found a place.
    """

    def __init__(self, changes: Sequence[tuple[Spot | None, ast.expr]]) -> None:
        self._changes = list(enumerate(changes))
        self.done: set[int] = set()

    def all_of(self, value: object) -> object:
        """The value of a node's field, changed."""
        if isinstance(value, list):
            return [self.all_of(item) for item in value]
        return self.visit(value) if isinstance(value, ast.AST) else value

    def visit(self, node: ast.AST) -> ast.AST:
        """A node, or what takes its place."""
        spot = spot_of(node)
        for one in self._changes if spot is not None else ():
            number, (wanted, new) = one
            if wanted == spot:
                self.done.add(number)
                all_changes = self._changes
                # What is replaced may be a part of what takes its place.
                self._changes = [other for other in all_changes if other is not one]
                made: ast.AST = self.visit(copy.deepcopy(new))
                self._changes = all_changes
                return made
        visited: ast.AST = self.generic_visit(node)
        return visited


def spot_of(node: ast.AST) -> Spot | None:
    """Where an expression of the source is; None for what a rule made."""
    if not isinstance(node, ast.expr) or getattr(node, "end_lineno", None) is None:
        return None
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return type(node).__name__, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def innermost(function: ast.FunctionDef, line: int) -> ast.FunctionDef:
    """The function around a line that no other one within `function` is around."""
    around = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return around[-1] if around else function


def first_statement(function: ast.FunctionDef) -> int:
    """Which of a function's statements is the first behind its documentation."""
    return int(ast.get_docstring(function, clean=False) is not None and len(function.body) > 1)


def built_by(function: ast.FunctionDef) -> list[ast.Call]:
    """The decorator that has onnxscript build a function from its source; none where the function is run."""
    return [
        decorator
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "torch_op"
        and not any(keyword.arg == "trace_only" for keyword in decorator.keywords)
    ]
