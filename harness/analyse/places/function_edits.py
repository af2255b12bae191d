"""Small changes of a conversion function as a whole: the dtype that all of it computes in."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from harness.analyse.places.dtype_edits import WIDER, cast_to, is_taken, taken_dtypes
from harness.analyse.places.edit import Edit, Replacement, innermost
from harness.analyse.places.source_code import SourceCode, Statement, own_expressions, parameters_of
from harness.analyse.places.surroundings import Surroundings, operator_of

#: What the first tensor is called while the function computes with another.
_GIVEN = "given"


def whole_casts(
    statement: Statement, expressions: Sequence[ast.AST], around: Surroundings, source: SourceCode
) -> Iterator[Edit]:
    """The function in a dtype that an operator of a statement takes, where it is given another one.

    Args:
        expressions: Of the statement.
    """
    outermost = source.file(statement.file).function(statement.function, statement.line)
    if outermost is None or not around.emits or not around.tensors or _GIVEN in around.names:
        return
    function = innermost(outermost, statement.line)
    keep = ast.Assign([ast.Name(_GIVEN, ast.Store())], ast.Name(around.tensors[0], ast.Load()))
    back = tuple(_cast_back(function, statement, around))
    calls = [call for call in expressions if isinstance(call, ast.Call) and operator_of(call)[0]]
    for call in calls:
        name, first = operator_of(call)
        supported = taken_dtypes(name, around.opset)
        for wide in WIDER:
            if wide not in supported:
                continue
            here = tuple(_operand_casts(statement, expressions, call.args[first:], supported, wide, around))
            words = f"compute {name} in {wide.lower()} where it does not take the dtype of {around.tensors[0]}"
            if here:
                yield Edit(words, statement, here, (keep,))
                yield Edit(f"{words}, and cast back", statement, (*here, *back), (keep,))
            begin = tuple(_casts(function, supported, wide, around))
            words = f"compute all in {wide.lower()} where {name} does not take the dtype"
            if begin:
                yield Edit(words, statement, (), begin)
                yield Edit(f"{words}, and cast back", statement, back, (keep, *begin))


def _operand_casts(
    statement: Statement,
    expressions: Sequence[ast.AST],
    operands: Sequence[ast.expr],
    supported: Sequence[str],
    wide: str,
    around: Surroundings,
) -> Iterator[Replacement]:
    """Casts of what is computed with; the dtype is asked of what the function is given, since what has been
    emitted has none that is known."""
    fits = is_taken(ast.Name(_GIVEN, ast.Load()), supported, around)
    if fits is None:
        return
    for operand in operands:
        if isinstance(operand, ast.Constant | ast.Starred | ast.List | ast.Tuple):
            continue
        place = next(i for i, one in enumerate(expressions) if one is operand)
        yield Replacement(statement, place, ast.IfExp(fits, operand, cast_to(operand, wide, around)))


def _casts(function: ast.FunctionDef, supported: Sequence[str], wide: str, around: Surroundings) -> Iterator[ast.stmt]:
    """Statements that cast each tensor that is to have the dtype of the first one."""
    said = {a.arg: ast.unparse(a.annotation) for a in parameters_of(function) if a.annotation is not None}
    first = around.tensors[0]
    for tensor in around.tensors:
        if tensor != first and (tensor not in said or said[tensor] != said.get(first)):
            continue
        fits = is_taken(ast.Name(tensor, ast.Load()), supported, around)
        if fits is not None:
            cast = cast_to(ast.Name(tensor, ast.Load()), wide, around)
            fits.ops = [ast.NotIn() if isinstance(fits.ops[0], ast.In) else ast.In()]
            yield ast.If(fits, [ast.Assign([ast.Name(tensor, ast.Store())], cast)], [])


def _cast_back(function: ast.FunctionDef, statement: Statement, around: Surroundings) -> Iterator[Replacement]:
    """The first result in the dtype of the first tensor, wherever the function returns."""
    given = ast.Name(_GIVEN, ast.Load())
    for node in ast.walk(function):
        if not isinstance(node, ast.Return) or innermost(function, node.lineno) is not function:
            continue
        value = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
        if value is None:
            continue
        place = next(i for i, one in enumerate(own_expressions(node)) if one is value)
        here = Statement(statement.file, node.lineno, statement.function)
        yield Replacement(here, place, around.emit("CastLike", [value, given]))
