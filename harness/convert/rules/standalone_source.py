"""Extract the source of rules without the harness, for a stand-alone script."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_DECORATORS = "harness.convert.rules"


class NotSeparable(Exception):
    """A rule that its file does not define by a statement of its own; the message says which."""


@dataclass(frozen=True)
class RuleSource:
    """Statements of a file of rules.

    Attributes:
        imports: Whole lines.
        code: Lines that define the rules and all that they use, in the file's order.
    """

    imports: tuple[str, ...]
    code: tuple[str, ...]


def rule_source(file: Path, functions: Sequence[str]) -> RuleSource:
    """Return the source that `functions` of a rule file need, without the decorators that make them rules.

    Args:
        file: A Python file.
        functions: Names that the file defines.

    Raises:
        NotSeparable: it defines one of them in another way than by a statement at its top.
    """
    text = file.read_text(encoding="utf-8")
    statements = [s for s in ast.parse(text).body if not _is_decorators_import(s)]
    decorators = _decorator_names(ast.parse(text))
    binders = {name: s for s in statements for name in _bound(s)}
    for name in functions:
        if name not in binders:
            raise NotSeparable(
                f"{file} has no statement that defines the rule {name}; write it as a function of its own"
            )
    needed: set[ast.stmt] = set()
    wanted = [binders[name] for name in functions]
    while wanted:
        statement = wanted.pop()
        if statement not in needed:
            needed.add(statement)
            used = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)}
            wanted += [binders[name] for name in used if name in binders and not hasattr(builtins, name)]
    kept = [s for s in statements if s in needed]
    imports = [ast.unparse(s) for s in kept if isinstance(s, ast.Import | ast.ImportFrom)]
    code: list[str] = []
    for statement in kept:
        if not isinstance(statement, ast.Import | ast.ImportFrom):
            spaced = isinstance(statement, ast.FunctionDef | ast.ClassDef)
            code += ["", ""] if spaced and code else []
            code += _lines(text, statement, decorators)
    return RuleSource(tuple(imports), tuple(code))


def _is_decorators_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == _DECORATORS


def _decorator_names(module: ast.Module) -> frozenset[str]:
    imports = (s for s in module.body if isinstance(s, ast.ImportFrom) and s.module == _DECORATORS)
    return frozenset(alias.asname or alias.name for s in imports for alias in s.names)


def _bound(statement: ast.stmt) -> Iterable[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _lines(text: str, statement: ast.stmt, decorators: frozenset[str]) -> list[str]:
    """Return the source of the statement without the harness's decorators."""
    own: list[str] = []
    if isinstance(statement, ast.FunctionDef):
        for decorator in statement.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if not (isinstance(called, ast.Name) and called.id in decorators):
                own.append(f"@{ast.get_source_segment(text, decorator)}")
    return [*own, *(ast.get_source_segment(text, statement) or "").splitlines()]
