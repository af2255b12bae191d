"""Small changes of what is computed: NaN-safe forms, arguments that nobody reads or gives, other ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from harness.analyse.places.attribute_edits import literal
from harness.analyse.places.surroundings import Surroundings

#: Comparisons, and the one whose opposite they are but for NaN.
_OPPOSITES = {
    "GreaterOrEqual": "Less",
    "LessOrEqual": "Greater",
    "Less": "GreaterOrEqual",
    "Greater": "LessOrEqual",
}
#: Operators that lose a NaN of an operand, or make one of an infinity.
_ELEMENTWISE = frozenset(
    (
        *("Max", "Min", "Clip", "Relu", "Sign", "Floor", "Ceil", "Round", "Mod", "Pow", "Where", "Tanh"),
        *("Sigmoid", "Erf", "Exp", "Log", "Abs", "Cast", "CastLike", "Div", "Mul", "Add", "Sub"),
    )
)
_BINARY = ("Mul", "Add", "Sub", "Div", "Max", "Min")
#: Operators whose loss leaves their operand.
_UNARY = ("Not", "Neg", "Abs")


def nan_safe_forms(
    call: ast.Call, name: str, operands: Sequence[ast.expr], around: Surroundings
) -> Iterator[tuple[str, ast.expr]]:
    """Forms that keep a NaN where it belongs, and make none."""
    if not around.emits:
        return
    if name in _OPPOSITES and len(operands) == 2:
        opposite = around.emit(_OPPOSITES[name], operands)
        yield "a NaN-safe comparison", around.emit("Not", [opposite])
    if name == "Not" and isinstance(operands[0], ast.Call):
        first = operands[0]
        emitted = first.func.attr if isinstance(first.func, ast.Attribute) else ""
        values = first.args
        if emitted == "op" and values and isinstance(values[0], ast.Constant):
            emitted, values = str(values[0].value), values[1:]
        if emitted in _OPPOSITES:
            yield "a NaN-safe comparison", around.emit(_OPPOSITES[emitted], values)
    if name == "Mul" and len(operands) == 2 and not around.of_torchscript:
        for mask, value in (operands, operands[::-1]):
            like = next((operand for operand in (value, mask) if isinstance(operand, ast.Name)), None)
            if like is not None:
                # Infinity times a mask's zero is NaN.
                chosen = around.emit("Cast", [mask], to=around.element_type("BOOL", 9))
                zero = around.emit("CastLike", [ast.Constant(0), like])
                words = "choose by the mask instead of multiplying"
                yield words, around.emit("Where", [chosen, value, zero])
    if name in _ELEMENTWISE:
        for operand in dict.fromkeys(o for o in operands if isinstance(o, ast.Name)):
            unsafe = around.emit("IsNaN", [operand])
            yield f"keep the NaN of {ast.unparse(operand)}", around.emit("Where", [unsafe, operand, call])


def none_safe_forms(call: ast.Call, first: int, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """Forms that do without an argument that is not given.

    Args:
        first: How many arguments stand before the operands.
    """
    operands = call.args[first:]
    for place, operand in enumerate(operands):
        if not isinstance(operand, ast.Name) or operand.id not in around.optional:
            continue
        given = around.is_given(operand.id)
        if given is None:
            continue
        words = f"where {operand.id} is not given"
        if not around.of_torchscript:
            yield f"compute nothing {words}", ast.IfExp(given, call, ast.Constant(None))
        if place:
            yield f"leave it as it is {words}", ast.IfExp(given, call, operands[0])
        if place and place == len(operands) - 1:
            without = ast.Call(call.func, call.args[:-1], call.keywords)
            yield f"leave {operand.id} out {words}", ast.IfExp(given, call, without)


def careful_squeezes(
    name: str, call: ast.Call, operands: Sequence[ast.expr], around: Surroundings
) -> Iterator[tuple[str, ast.expr]]:
    """A node that takes an axis away only if it has size 1, as PyTorch does."""
    if name != "Squeeze" or len(operands) != 2 or around.of_torchscript:
        return
    value, axes = operands
    if isinstance(value, ast.Name) and isinstance(axes, ast.List) and len(axes.elts) == 1:
        size = ast.Subscript(ast.Attribute(value, "shape", ast.Load()), axes.elts[0], ast.Load())
        is_one = ast.Compare(size, [ast.Eq()], [ast.Constant(1)])
        yield "leave an axis of another size than 1", ast.IfExp(is_one, call, value)


def read_arguments(
    call: ast.Call, first: int, attributes: Sequence[str], around: Surroundings
) -> Iterator[tuple[str, ast.expr]]:
    """The call with an argument that no line reads: as an attribute, for a constant, as an operand.

    Args:
        first: How many arguments stand before the operands.
        attributes: Keywords that the call does not give.
    """
    for name in around.unread:
        value = ast.Name(name, ast.Load())
        words = f"read the argument {name}"
        for place, keyword in enumerate(call.keywords):
            if isinstance(keyword.value, ast.Constant | ast.List):
                given = ast.keyword(keyword.arg, value)
                keywords = [*call.keywords[:place], given, *call.keywords[place + 1 :]]
                yield words, ast.Call(call.func, call.args, keywords)
        for attribute in attributes:
            given = ast.keyword(attribute, value)
            yield words, ast.Call(call.func, call.args, [*call.keywords, given])
        for place, operand in enumerate(call.args[first:], first):
            if isinstance(operand, ast.Constant):
                changed = [*call.args[:place], value, *call.args[place + 1 :]]
                yield words, ast.Call(call.func, changed, call.keywords)
        if around.emits:
            for binary in _BINARY:
                yield f"{words} in {binary}", around.emit(binary, [call, value])


def one_more(value: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """A value negated, or without its sign."""
    if around.emits and not isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Starred):
        for name in _UNARY:
            yield f"put {name} around it", around.emit(name, [value])


def other_ranks(value: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """A value in the shape of another, with axes of size 1 less, or with one more."""
    if isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Starred) or not around.emits:
        return
    for like in around.tensors:
        if not (isinstance(value, ast.Name) and value.id == like):
            shape = around.emit("Shape", [ast.Name(like, ast.Load())])
            yield f"expand to the shape of {like}", around.emit("Expand", [value, shape])
    yield "take all axes of size 1 away", around.emit("Squeeze", [value])
    for name, words in (("Squeeze", "take axis {} away"), ("Unsqueeze", "add axis {}")):
        for axis in (0, 1, -1):
            axes = ast.List([literal(axis)], ast.Load())
            changed = around.emit(name, [value, axes])
            if around.of_torchscript:
                # How the operator is told of its axes depends on the opset, and one function knows.
                helper = around.helper(f"_{name.lower()}_helper")
                if helper is None:
                    continue
                changed = ast.Call(helper, [ast.Name("g", ast.Load()), value, axes], [])
            yield words.format(axis), changed
