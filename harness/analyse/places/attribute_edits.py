"""Small changes of a node's attributes that a call leaves to their defaults."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import onnx

from harness.analyse.places.surroundings import Surroundings

#: Values of words that are taken for each other.
WORDS = (
    *(("constant", "edge", "reflect"), ("linear", "nearest", "cubic"), ("floor", "ceil", "trunc")),
    *(
        ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"),
        ("add", "mul", "none", "max", "min"),
    ),
    *(("mean", "sum"), ("none", "tanh")),
)
#: What conversion functions call the attributes of ONNX operators.
_ALSO = {
    "keepdims": ("keepdim",),
    "axis": ("dim",),
    "axes": ("dim", "dims"),
    "perm": ("dims", "axes"),
    "to": ("dtype",),
    "alpha": ("negative_slope", "lambd"),
    "epsilon": ("eps",),
    "kernel_shape": ("kernel_size",),
    "strides": ("stride",),
    "dilations": ("dilation",),
    "pads": ("padding", "pad"),
    "group": ("groups",),
    "approximate": ("mode",),
    "p": ("ord",),
}
#: Letters in the names of variables that hold an axis.
_AXES = ("dim", "axis", "axes")
_PERMUTATIONS = ((1, 0), (1, 0, 2), (0, 2, 1), (0, 2, 1, 3), (0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 1, 2))
_SUFFIXES = {
    onnx.defs.OpSchema.AttrType.INT: "i",
    onnx.defs.OpSchema.AttrType.INTS: "i",
    onnx.defs.OpSchema.AttrType.FLOAT: "f",
    onnx.defs.OpSchema.AttrType.STRING: "s",
}


def literal(number: float) -> ast.expr:
    """A number as it is written."""
    positive = ast.Constant(abs(number))
    return ast.UnaryOp(ast.USub(), positive) if number < 0 else positive


def expression(text: str) -> ast.expr:
    """What a text says, without the places of its parts: it is not in the source."""
    found = ast.parse(text, mode="eval").body
    for node in ast.walk(found):
        for name in node._attributes:
            if hasattr(node, name):
                delattr(node, name)
    return found


def not_given(call: ast.Call, name: str, first: int) -> Iterator[tuple[str, str, onnx.defs.OpSchema.Attribute]]:
    """Attributes that a call does not give, and its keywords for them."""
    if name == "Constant" or not onnx.defs.has(name):
        return
    given = {(keyword.arg or "").rpartition("_")[0] if first else keyword.arg for keyword in call.keywords}
    for attribute, known in onnx.defs.get_schema(name).attributes.items():
        suffix = _SUFFIXES.get(known.type)
        if attribute not in given and suffix is not None:
            yield attribute, f"{attribute}_{suffix}" if first else attribute, known


def missing_attributes(call: ast.Call, name: str, first: int, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """The call with an attribute that it leaves to its default: an argument's value, or the other flag."""
    for attribute, keyword, known in not_given(call, name, first):
        for wanted in (attribute, keyword, *_ALSO.get(attribute, ())):
            if wanted in around.names:
                value: ast.expr = ast.Name(wanted, ast.Load())
                yield f"read the argument {wanted}", _with_keyword(call, keyword, value)
        for words, value in _other_values(known):
            yield f"give {attribute}={words}", _with_keyword(call, keyword, value)


def guessed_attributes(call: ast.Call, name: str, first: int, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """The call with a usual value of an attribute that it leaves to its default, or with what a variable
    holds whose name says that it is an axis."""
    for attribute, keyword, known in not_given(call, name, first):
        if attribute in ("axis", "axes"):
            for held in sorted(n for n in around.names if any(part in n for part in _AXES)):
                if held not in (attribute, keyword, *_ALSO[attribute]):
                    value = ast.Name(held, ast.Load())
                    yield f"give {attribute}={held}", _with_keyword(call, keyword, value)
        for guess in _guesses(known):
            yield f"give {attribute}={ast.unparse(guess)}", _with_keyword(call, keyword, guess)


def _guesses(known: onnx.defs.OpSchema.Attribute) -> Iterator[ast.expr]:
    if known.type == onnx.defs.OpSchema.AttrType.INTS:
        numbers = _PERMUTATIONS if known.name == "perm" else ((-1,), (0,), (1,), (-2,))
        if known.name in ("perm", "axes"):
            for some in numbers:
                yield ast.List([literal(number) for number in some], ast.Load())
    elif known.type == onnx.defs.OpSchema.AttrType.INT and known.name in ("start", "end"):
        for number in (0, 1, 2, -1):
            if number or known.name == "end":
                yield literal(number)


def _other_values(known: onnx.defs.OpSchema.Attribute) -> Iterator[tuple[str, ast.expr]]:
    """Usual values of an attribute that are not its default."""
    if known.type == onnx.defs.OpSchema.AttrType.INT:
        default = None if known.required else known.default_value.i
        numbers = (0, 1, -1) if known.name == "axis" else (1 - default,) if default in (0, 1) else ()
        for number in numbers:
            if number != default:
                yield str(number), literal(number)
    elif known.type == onnx.defs.OpSchema.AttrType.STRING:
        usual = known.default_value.s.decode()
        for family in WORDS:
            for word in family if usual in family else ():
                if word != usual:
                    yield word, ast.Constant(word)


def _with_keyword(call: ast.Call, name: str, value: ast.expr) -> ast.Call:
    return ast.Call(call.func, call.args, [*call.keywords, ast.keyword(name, value)])
