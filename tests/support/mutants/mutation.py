"""The list of mutations of a module, always the same one, and the module's source with one of them."""

from __future__ import annotations

import ast
import copy
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mutants.changes import changes, negated

_TORCHLIB = "onnxscript.function_libs.torch_lib.ops"
_SCRIPTING = "torch.onnx._internal.torchscript_exporter"
#: Converter → the modules that its conversion functions are in.
MODULES: dict[str, tuple[str, ...]] = {
    "dynamo": (
        *(f"{_TORCHLIB}.{name}" for name in ("common", "core", "fft", "linalg", "nn", "prims", "special")),
        *(f"torch.onnx._internal.exporter._torchlib.ops.{name}" for name in ("core", "nn", "symops")),
    ),
    "torchscript": (
        f"{_SCRIPTING}.symbolic_helper",
        *(f"{_SCRIPTING}.symbolic_opset{version}" for version in range(9, 21)),
    ),
}
#: Calls whose arguments are not computed with.
_SPEECH = frozenset(
    (
        *("_unimplemented", "_onnx_unsupported", "_onnx_opset_unsupported"),
        *("_onnx_opset_unsupported_detailed", "warn", "warning", "debug", "info"),
        *("isinstance", "cast", "assert_never"),
    )
)


@dataclass(frozen=True)
class Mutation:
    """One expression of a conversion function, and what takes its place.

    Attributes:
        function: Qualified name: of the outermost function, where one is within another.
        statement: Place of the function in its module.
        number: Place of the expression in the function.
        choice: Which of the expression's changes.
    """

    converter: str
    module: str
    function: str
    line: int
    kind: str
    was: str
    becomes: str
    statement: int
    number: int
    choice: int

    @property
    def id(self) -> str:
        """Unique, without spaces: ``core.aten_celu:812:operator:4.0``."""
        kind = self.kind.replace(" ", "-")
        return f"{_short(self.module)}.{self.function}:{self.line}:{kind}:{self.number}.{self.choice}"

    @property
    def site(self) -> str:
        """The expression: module and place."""
        return f"{self.module}:{self.statement}:{self.number}"


@dataclass
class _Place:
    """An expression of a tree, and where it hangs."""

    parent: ast.AST
    field: str
    index: int | None
    node: ast.expr
    is_test: bool

    def put(self, new: ast.expr) -> None:
        for node in ast.walk(new):
            if isinstance(node, ast.expr | ast.keyword) and not hasattr(node, "lineno"):
                ast.copy_location(node, self.node)
        if self.index is None:
            setattr(self.parent, self.field, new)
        else:
            getattr(self.parent, self.field)[self.index] = new


def source_file(module: str) -> Path:
    """The file of a module; nothing of it is run, but its packages are imported."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin)


@cache
def mutations(converter: str) -> tuple[Mutation, ...]:
    """All mutations of a converter's conversion functions, in the order of the source."""
    return tuple(m for module in MODULES[converter] for m in _mutate_module(converter, module))


def mutated_source(name: str, text: str) -> ast.Module:
    """The whole module of a mutation with it, from the module's source."""
    function, _, rest = name.partition(".")[2].partition(":")
    number, _, choice = rest.rpartition(":")[2].partition(".")
    line = int(rest.partition(":")[0])
    tree = ast.parse(text)
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == function:
            places = _places(statement)
            if int(number) < len(places) and places[int(number)].node.lineno == line:
                places[int(number)].put(list(_choices(places[int(number)]))[int(choice)][1])
                return ast.fix_missing_locations(tree)
    raise LookupError(f"no mutation is called {name}")


def mutated(mutation: Mutation) -> ast.Module:
    """A module of the function with the mutation alone, with the lines of its file."""
    statement, place = _copy_of(mutation)
    place.put(list(_choices(place))[mutation.choice][1])
    return _module(statement)


def _short(module: str) -> str:
    name = module.rpartition(".")[2]
    return f"torch-{name}" if module.startswith("torch.onnx._internal.exporter") else name


def _copy_of(mutation: Mutation) -> tuple[ast.FunctionDef, _Place]:
    statement = copy.deepcopy(dict(_functions(mutation.module))[mutation.statement])
    return statement, _places(statement)[mutation.number]


def _module(statement: ast.stmt) -> ast.Module:
    return ast.fix_missing_locations(ast.Module([statement], []))


def _mutate_module(converter: str, module: str) -> Iterator[Mutation]:
    for index, statement in _functions(module):
        for number, place in enumerate(_places(statement)):
            for choice, (kind, new) in enumerate(_choices(place)):
                yield Mutation(
                    converter=converter,
                    module=module,
                    function=statement.name,
                    line=place.node.lineno,
                    kind=kind,
                    was=ast.unparse(place.node),
                    becomes=ast.unparse(new),
                    statement=index,
                    number=number,
                    choice=choice,
                )


def _choices(place: _Place) -> Iterator[tuple[str, ast.expr]]:
    yield from changes(place.node)
    if place.is_test and not isinstance(place.node, ast.Compare | ast.UnaryOp):
        yield "condition", negated(place.node)


@cache
def _functions(module: str) -> tuple[tuple[int, ast.FunctionDef], ...]:
    """Return the functions of a module with their places in it; they must not be changed."""
    tree = ast.parse(source_file(module).read_text(encoding="utf-8"))
    return tuple((i, s) for i, s in enumerate(tree.body) if isinstance(s, ast.FunctionDef))


def _places(statement: ast.FunctionDef) -> list[_Place]:
    """The expressions within a function that can be changed."""
    return [place for place in _within(statement) if any(_choices(place))]


def _within(node: ast.AST) -> Iterator[_Place]:
    for field, value in _children(node):
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST):
                continue
            is_test = field == "test"
            if isinstance(child, ast.expr) and isinstance(getattr(child, "ctx", ast.Load()), ast.Load):
                yield _Place(node, field, index, child, is_test)
            yield from _within(child)


def _children(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """The fields of a node that are run where the function is called, and change what it does."""
    if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Global):
        return
    if isinstance(node, ast.Call) and _called(node) in _SPEECH:
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    for field, value in ast.iter_fields(node):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and field != "body":
            continue
        if field in ("annotation", "slice_") or (isinstance(node, ast.ExceptHandler) and field == "type"):
            continue
        yield field, value


def _called(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
