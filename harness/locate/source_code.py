"""The source of conversion functions: its statements, the data flow between them, and which operators reach a function.

Data flow is approximated by names and conditions, calls by the names of functions.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.convert.provenance import CodeLine

#: Statements that contain others; as a `Statement` such a one is only its head.
_COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)
#: Longest text of a statement, in characters.
_LONGEST = 160


@dataclass(frozen=True, order=True)
class Statement:
    """A statement of a file, or the head of a compound one.

    Attributes:
        file: Absolute path.
        line: Its first line.
        function: The outermost function that contains it; "" if there is none.
    """

    file: str
    line: int
    function: str


class SourceFile:
    """A source file.

    Args:
        path: The file.
        tree: The code that runs, if it differs from the file.
    """

    def __init__(self, path: str, tree: ast.Module | None = None) -> None:
        self.path = path
        self._tree = tree

    @cached_property
    def text(self) -> str:
        """The text of the file; "" for code that was generated at run time."""
        path = Path(self.path)
        return path.read_text(encoding="utf-8") if path.is_file() else ""

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file; it must not be changed."""
        return self._tree or ast.parse(self.text)

    @cached_property
    def _by_line(self) -> dict[int, tuple[ast.stmt, str]]:
        """Line → the innermost statement that contains it, and that statement's outermost function."""
        found: dict[int, tuple[ast.stmt, str]] = {}
        for node, function in _statements(self.tree.body, ""):
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            for line in range(first, (node.end_lineno or node.lineno) + 1):
                found[line] = node, function
        return found

    @cached_property
    def names(self) -> frozenset[str]:
        """The names that the file imports or defines at the top level."""
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
        """Return the statement at a line; None if there is none."""
        found = self._by_line.get(line)
        if found is None:
            return None
        node, function = found
        return node, Statement(self.path, node.lineno, function)

    def function(self, name: str, line: int) -> ast.FunctionDef | None:
        """Return the outermost function with a name that contains a line; None if there is none."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if first <= line <= (node.end_lineno or node.lineno):
                    return node
        return None


class SourceCode:
    """Source files by path; `trees` has the code of those that run modified."""

    def __init__(self, trees: Mapping[str, ast.Module] | None = None) -> None:
        self._trees = dict(trees or {})
        self._files: dict[str, SourceFile] = {}

    def file(self, path: str) -> SourceFile:
        """Return the file at a path."""
        if path not in self._files:
            self._files[path] = SourceFile(path, self._trees.get(path))
        return self._files[path]

    def statement(self, line: CodeLine) -> Statement | None:
        """Return the statement of a line that ran; None if it is not in a function."""
        found = self.file(line.file).statement(line.line)
        return found[1] if found and found[1].function else None

    def node(self, statement: Statement) -> ast.stmt:
        """Return the syntax tree of a statement."""
        found = self.file(statement.file).statement(statement.line)
        assert found is not None
        return found[0]

    def head(self, statement: Statement) -> str:
        """Return a statement, or the head of a compound one, on one line."""
        node = self.node(statement)
        if isinstance(node, ast.FunctionDef):
            return f"def {node.name}({ast.unparse(node.args)})"[:_LONGEST]
        text = ast.unparse(node).splitlines()[0]
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def is_compound(node: ast.stmt) -> bool:
    """Whether a statement contains others."""
    return isinstance(node, _COMPOUND)


def own_expressions(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the parts of a statement that do not belong to statements within it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from ast.walk(child)


def short_path(path: str) -> str:
    """Return a file's path relative to the folder of its package."""
    roots = sorted((p for p in sys.path if p and path.startswith(f"{p.rstrip('/')}/")), key=len)
    return path[len(roots[-1].rstrip("/")) + 1 :] if roots else path


def emitting_place(lines: Sequence[CodeLine]) -> str:
    """Return where a node was emitted: ``aten_celu (onnxscript/function_libs/torch_lib/ops/nn.py:304)``; "" if
    unknown."""
    return f"{lines[0].function} ({short_path(lines[0].file)}:{lines[0].line})" if lines else ""


def _statements(body: list[ast.stmt], function: str) -> Iterator[tuple[ast.stmt, str]]:
    """Yield all statements with their outermost functions, inner statements after outer ones."""
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


def flow_of(statement: Statement, source: SourceCode) -> list[Statement]:
    """Return the statements that assign the names that a statement reads, and the conditions around it."""
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
    """Return the later statements that read a name that a statement assigns."""
    node = source.node(statement)
    function = source.file(statement.file).function(statement.function, statement.line)
    assigned = set(_assigned_names(node))
    if function is None or not assigned:
        return []
    return [
        Statement(statement.file, other.lineno, statement.function)
        for other in ast.walk(function)
        if isinstance(other, ast.stmt) and other.lineno > node.lineno and reads(other) & assigned
    ]


def _leads(other: ast.stmt, node: ast.stmt, wanted: set[str]) -> bool:
    if isinstance(other, ast.If | ast.While | ast.For) and any(child is node for child in ast.walk(other)):
        return True
    return other.lineno < node.lineno and bool(set(_assigned_names(other)) & wanted)


def reads(node: ast.stmt) -> set[str]:
    """Return the names that a statement itself reads."""
    return {
        child.id for child in own_expressions(node) if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Load)
    }


def _assigned_names(node: ast.stmt) -> Iterator[str]:
    if is_compound(node) and not isinstance(node, ast.For):
        return
    for child in own_expressions(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id


#: Prefix of operators where conversion functions are registered.
_ATEN = "aten::"


def called_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names of called functions, without their modules."""
    for child in nodes:
        if isinstance(child, ast.Call):
            name = _last_name(child.func)
            if name:
                yield name


class Callers:
    """Finds the callers of functions in some modules.

    Args:
        modules: Source of conversion functions.
    """

    def __init__(self, modules: Iterable[ast.Module]) -> None:
        self._callers: dict[str, dict[str, None]] = {}
        self._operators: dict[str, dict[str, None]] = {}
        functions = (node for module in modules for node in module.body if isinstance(node, ast.FunctionDef))
        for function in functions:
            for name in called_names(ast.walk(function)):
                self._callers.setdefault(name, {})[function.name] = None
            self._operators.setdefault(function.name, {}).update(dict.fromkeys(_registered(function)))

    def operators(self, function: str) -> Iterator[str]:
        """Yield operators, such as ``aten.conv2d``, whose conversion functions call this one directly or indirectly,
        those of the nearest callers first."""
        seen, nearest = {function}, [function]
        while nearest:
            nearest = list(dict.fromkeys(c for f in nearest for c in self._callers.get(f, ()) if c not in seen))
            seen.update(nearest)
            for caller in nearest:
                yield from self._operators[caller]


def _registered(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the operators that a function is registered for by its decorators."""
    for decorator in function.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Constant) and str(node.value).startswith(_ATEN):
                yield f"aten.{str(node.value).removeprefix(_ATEN).partition('.')[0]}"


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
