"""The source of conversion functions, statement by statement."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.convert import CodeLine

#: Statements that hold others; the statement itself is only their head.
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)
#: Longer statements are cut.
_LONGEST = 160


@dataclass(frozen=True, order=True)
class Statement:
    """A statement of a file; of one that holds others the head.

    Attributes:
        file: Absolute path.
        line: Its first.
        function: Outermost function that it is in; "" for none.
    """

    file: str
    line: int
    function: str


class SourceFile:
    """One file of source.

    Args:
        path: The file.
        tree: What is run, where that is not what the file says.
    """

    def __init__(self, path: str, tree: ast.Module | None = None) -> None:
        self.path = path
        self._tree = tree

    @cached_property
    def text(self) -> str:
        """All of it; "" for code that was made while the program ran."""
        path = Path(self.path)
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @cached_property
    def tree(self) -> ast.Module:
        """All of it, parsed; nobody may change it."""
        return self._tree or ast.parse(self.text)

    @cached_property
    def _by_line(self) -> dict[int, tuple[ast.stmt, str]]:
        """Line → the innermost statement that it belongs to, and its outermost function."""
        found: dict[int, tuple[ast.stmt, str]] = {}
        for node, function in _statements(self.tree.body, ""):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            for line in range(first, (node.end_lineno or node.lineno) + 1):
                found[line] = node, function
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """What the file imports or defines at its top."""
        found: set[str] = set()
        for node in self.tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.update(name.asname or name.name.partition(".")[0] for name in node.names)
            elif isinstance(node, ast.Assign):
                found.update(target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, ast.FunctionDef):
                found.add(node.name)
        return frozenset(found)

    def statement(self, line: int) -> tuple[ast.stmt, Statement] | None:
        """The statement at a line; None where there is none."""
        found = self._by_line.get(line)
        if found is None:
            return None
        node, function = found
        return node, Statement(self.path, node.lineno, function)

    def function(self, name: str, line: int) -> ast.FunctionDef | None:
        """The outermost function of a name around a line; None where there is none."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if first <= line <= (node.end_lineno or node.lineno):
                    return node
        return None


class SourceCode:
    """Source files by path; `trees` has those that differ from what is run."""

    def __init__(self, trees: Mapping[str, ast.Module] | None = None) -> None:
        self._trees = dict(trees or {})
        self._files: dict[str, SourceFile] = {}

    def file(self, path: str) -> SourceFile:
        """The file at a path."""
        if path not in self._files:
            self._files[path] = SourceFile(path, self._trees.get(path))
        return self._files[path]

    def statement(self, line: CodeLine) -> Statement | None:
        """What a line that ran belongs to; None for what is no function."""
        found = self.file(line.file).statement(line.line)
        return found[1] if found and found[1].function else None

    def node(self, statement: Statement) -> ast.stmt:
        """The tree of a statement."""
        found = self.file(statement.file).statement(statement.line)
        assert found is not None
        return found[0]

    def head(self, statement: Statement) -> str:
        """A statement in a line."""
        node = self.node(statement)
        if isinstance(node, ast.FunctionDef):
            return f"def {node.name}({ast.unparse(node.args)})"[:_LONGEST]
        text = ast.unparse(node).splitlines()[0]
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def is_compound(node: ast.stmt) -> bool:
    """Whether a statement holds others."""
    return isinstance(node, _COMPOUND)


def own_expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """The parts of a statement that are not of statements within it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from ast.walk(child)


def parameters_of(function: ast.FunctionDef) -> list[ast.arg]:
    """What a function takes, in its order."""
    given = function.args
    return [*given.posonlyargs, *given.args, *given.kwonlyargs]


def short_path(path: str) -> str:
    """A file's path from the folder of its package on."""
    roots = sorted((p for p in sys.path if p and path.startswith(f"{p.rstrip('/')}/")), key=len)
    return path[len(roots[-1].rstrip("/")) + 1 :] if roots else path


def emitting_place(lines: Sequence[CodeLine]) -> str:
    """Where a node was emitted: ``aten_celu (onnxscript/function_libs/torch_lib/ops/nn.py:304)``; "" where
    nobody knows."""
    return f"{lines[0].function} ({short_path(lines[0].file)}:{lines[0].line})" if lines else ""


def _statements(body: list[ast.stmt], function: str) -> Iterator[tuple[ast.stmt, str]]:
    """All statements with their outermost functions, those within others later."""
    for node in body:
        inner = function or (node.name if isinstance(node, ast.FunctionDef) else "")
        yield node, inner
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ExceptHandler):
                yield from _statements(child.body, inner)
        for field in ("body", "orelse", "finalbody"):
            below = getattr(node, field, [])
            if isinstance(below, list) and is_compound(node):
                yield from _statements(below, inner)
