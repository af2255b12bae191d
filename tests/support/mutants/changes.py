"""Mutations of one expression: another operator, no cast, a flipped attribute, and so on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

#: ONNX operator → the one that takes its place.
_PAIRS = (
    *(("Add", "Sub"), ("Mul", "Div"), ("Greater", "GreaterOrEqual"), ("Less", "LessOrEqual")),
    *(("ReduceMax", "ReduceMin"), ("ReduceSum", "ReduceProd"), ("ArgMax", "ArgMin"), ("Max", "Min")),
    *(("And", "Or"), ("BitwiseAnd", "BitwiseOr"), ("Floor", "Ceil"), ("Sin", "Cos"), ("Exp", "Log")),
    *(("Sqrt", "Reciprocal"), ("Softmax", "LogSoftmax"), ("Sinh", "Cosh"), ("Relu", "Abs")),
)
_SWAPPED = {
    **dict(_PAIRS),
    **{right: left for left, right in _PAIRS},
    "ReduceMean": "ReduceSum",
    "Equal": "GreaterOrEqual",
    "Pow": "Mul",
    "Xor": "Or",
    "IsNaN": "IsInf",
    "BitwiseXor": "BitwiseOr",
    "Round": "Floor",
    "Erf": "Tanh",
    "Sigmoid": "Tanh",
    "Tan": "Tanh",
    "ReduceL2": "ReduceL1",
    "ReduceL1": "ReduceSum",
    "Mod": "Sub",
}
#: ONNX operators whose loss leaves their first operand.
_DROPPED = frozenset(("Cast", "CastLike", "Not", "Neg", "Abs", "Sign", "Clip", "Squeeze"))
#: Helpers that do no more than cast: name → place of what they cast.
_CASTING = {"_maybe_cast_to_type": 1, "_maybe_cast_reduce_op_input": 1, "_cast_to_type": 1}
#: Operators that take their operands in an order.
_ORDERED = frozenset(("Sub", "Div", "Pow", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "MatMul"))
_FLAGS = frozenset(
    (
        *("keepdims", "exclusive", "reverse", "largest", "sorted", "allowzero", "select_last_index"),
        *("count_include_pad", "noop_with_empty_axes", "upper", "fmod", "align_corners", "transA", "transB"),
        "ceil_mode",
    )
)
_WORDS = {
    "constant": "edge",
    "edge": "reflect",
    "reflect": "edge",
    "linear": "nearest",
    "nearest": "linear",
    "cubic": "linear",
    "floor": "ceil",
    "asymmetric": "half_pixel",
    "half_pixel": "asymmetric",
    "align_corners": "half_pixel",
    "pytorch_half_pixel": "half_pixel",
    "add": "mul",
    "mul": "add",
    "max": "min",
    "min": "max",
    "trunc": "floor",
    "tanh": "none",
    "mean": "sum",
    "sum": "mean",
}
_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Mod: ast.FloorDiv,
}


def changes(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the changes of an expression: the kind of each, and the new expression."""
    if isinstance(node, ast.Call):
        yield from _changed_call(node)
    elif isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            operators = [*node.ops[:place], _COMPARISONS[type(operator)](), *node.ops[place + 1 :]]
            yield "comparison", ast.Compare(node.left, operators, node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        # A word and a list have a sum and no difference.
        if not any(isinstance(side, ast.List | ast.JoinedStr) for side in (node.left, node.right)):
            yield "arithmetic", ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
    elif isinstance(node, ast.BoolOp):
        yield "condition", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "condition" if isinstance(node.op, ast.Not) else "sign", node.operand
    elif isinstance(node, ast.Constant):
        yield from _changed_constant(node)


def negated(test: ast.expr) -> ast.expr:
    """The opposite of a condition."""
    return ast.UnaryOp(ast.Not(), test)


def onnx_operator(call: ast.Call) -> str:
    """The ONNX operator that a call of torchlib or of a symbolic function emits; "" for none."""
    function = call.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return ""
    if function.value.id.startswith("op") and function.attr[0].isupper():
        return function.attr
    if function.attr == "op" and call.args and isinstance(call.args[0], ast.Constant):
        return str(call.args[0].value)
    return ""


def _changed_call(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = onnx_operator(call)
    if not name:
        casting = _CASTING.get(call.func.attr if isinstance(call.func, ast.Attribute) else "")
        if casting is not None and len(call.args) > casting:
            yield "dropped cast", call.args[casting]
        return
    # A symbolic function names the operator before its operands.
    first = int(isinstance(call.func, ast.Attribute) and call.func.attr == "op")
    operands = call.args[first:]
    if name in _SWAPPED:
        yield "operator", _renamed(call, first, _SWAPPED[name])
    if name in _DROPPED and operands and not isinstance(operands[0], ast.Starred):
        yield "dropped cast" if name.startswith("Cast") else "dropped operator", operands[0]
    if name in _ORDERED and len(operands) == 2:
        yield "operands", _replace_operands(call, first, operands[::-1])
    if name == "Where" and len(operands) == 3:
        yield "operands", _replace_operands(call, first, [operands[0], operands[2], operands[1]])
    for place, keyword in enumerate(call.keywords):
        word = (keyword.arg or "").removesuffix("_i").removesuffix("_s").removesuffix("_f")
        if word in _FLAGS:
            flipped = ast.Call(ast.Name("int", ast.Load()), [negated(keyword.value)], [])
            yield "attribute", _replace_keyword(call, place, ast.keyword(keyword.arg, flipped))
        elif word and word not in ("to", "value", "outputs", "value_t", "value_int", "value_ints", "dtype"):
            yield "dropped attribute", _replace_keyword(call, place)


def _renamed(call: ast.Call, first: int, name: str) -> ast.Call:
    if first:
        return ast.Call(call.func, [ast.Constant(name), *call.args[1:]], call.keywords)
    assert isinstance(call.func, ast.Attribute)
    return ast.Call(ast.Attribute(call.func.value, name, ast.Load()), call.args, call.keywords)


def _replace_keyword(call: ast.Call, place: int, *new: ast.keyword) -> ast.Call:
    """The call with other keywords in place of one."""
    return ast.Call(call.func, call.args, [*call.keywords[:place], *new, *call.keywords[place + 1 :]])


def _replace_operands(call: ast.Call, first: int, operands: list[ast.expr]) -> ast.Call:
    return ast.Call(call.func, [*call.args[:first], *operands], call.keywords)


def _changed_constant(constant: ast.Constant) -> Iterator[tuple[str, ast.expr]]:
    value = constant.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value * 1.5 if value and value * 1.5 != value else 0.5)
    elif isinstance(value, str) and value in _WORDS:
        yield "word", ast.Constant(_WORDS[value])
