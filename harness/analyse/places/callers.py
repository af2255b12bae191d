"""Which operators' conversion functions come to call a function, as far as names in the source tell."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

#: How operators are named where a conversion function is registered.
_ATEN = "aten::"


def called_names(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names of the functions that some parts of source call, without those of their modules."""
    for child in nodes:
        if isinstance(child, ast.Call):
            name = _last_name(child.func)
            if name:
                yield name


class Callers:
    """What calls the functions of some modules.

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
        """Names of operators, such as ``aten.conv2d``, whose conversion functions call this one, however
        indirectly; those of the nearest callers first."""
        seen, nearest = {function}, [function]
        while nearest:
            nearest = list(dict.fromkeys(c for f in nearest for c in self._callers.get(f, ()) if c not in seen))
            seen.update(nearest)
            for caller in nearest:
                yield from self._operators[caller]


def _registered(function: ast.FunctionDef) -> Iterator[str]:
    """The operators that a function is registered for, by its decorators."""
    for decorator in function.decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Constant) and str(node.value).startswith(_ATEN):
                yield f"aten.{str(node.value).removeprefix(_ATEN).partition('.')[0]}"


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
