"""Small changes of an expression in a conversion function that may repair it, each an instance of a rule."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from harness.analyse.places.source_code import SourceCode, Statement, own_expressions

#: ONNX operators that are taken for each other.
_FAMILIES = (
    *(("Add", "Sub"), ("Mul", "Div", "Pow"), ("And", "Or", "Xor"), ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), ("Mod", "Sub")),
    *(("ReduceMax", "ReduceMin"), ("ReduceSum", "ReduceMean", "ReduceProd"), ("ReduceL1", "ReduceL2")),
    *(("ArgMax", "ArgMin"), ("Max", "Min"), ("Floor", "Ceil", "Round"), ("Sin", "Cos"), ("Sinh", "Cosh")),
    *(("Exp", "Log"), ("Sqrt", "Reciprocal"), ("Softmax", "LogSoftmax"), ("Relu", "Abs"), ("IsNaN", "IsInf")),
    *(("Tanh", "Sigmoid", "Erf", "Tan"), ("ReduceSum", "ReduceL1")),
)
_WORDS = (
    *(("constant", "edge", "reflect"), ("linear", "nearest", "cubic"), ("floor", "ceil", "trunc")),
    *(
        ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"),
        ("add", "mul", "none", "max", "min"),
    ),
    *(("mean", "sum"), ("none", "tanh")),
)
_COMPARISONS: tuple[tuple[type[ast.cmpop], ...], ...] = (
    *((ast.Eq, ast.NotEq), (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
)
_ARITHMETIC: tuple[tuple[type[ast.operator], ...], ...] = (
    *((ast.Add, ast.Sub), (ast.Add, ast.Mult), (ast.Mult, ast.Div), (ast.Mult, ast.FloorDiv)),
    *((ast.Mult, ast.Pow), (ast.FloorDiv, ast.Mod)),
)
_CASTS = frozenset(("Cast", "CastLike"))
#: Operators that compute with what they are given, and give its dtype.
_COMPUTING = frozenset(name for family in _FAMILIES for name in family) | {"Where", "MatMul", "Neg"}


@dataclass(frozen=True, eq=False)
class Edit:
    """One expression of a statement, and what takes its place.

    Attributes:
        rule: In words: "swap the operands".
        place: Of the expression among those of the statement.
    """

    statement: Statement
    rule: str
    place: int
    new: ast.expr

    def function(self, source: SourceCode) -> ast.FunctionDef | None:
        """The outermost function with the change; None where it has none."""
        original = source.file(self.statement.file).function(self.statement.function, self.statement.line)
        if original is None:
            return None
        changed = copy.deepcopy(original)
        pairs = zip(ast.walk(original), ast.walk(changed), strict=True)
        node = source.node(self.statement)
        own = next((new for old, new in pairs if old is node), None)
        if not isinstance(own, ast.stmt):
            return None
        old = list(own_expressions(own))[self.place]
        for parent in ast.walk(changed):
            for field, value in ast.iter_fields(parent):
                if value is old:
                    setattr(parent, field, self._located(old))
                    return changed
                if isinstance(value, list) and any(item is old for item in value):
                    setattr(parent, field, [self._located(old) if item is old else item for item in value])
                    return changed
        return None

    def _located(self, old: ast.AST) -> ast.expr:
        new = copy.deepcopy(self.new)
        for node in ast.walk(new):
            ast.copy_location(node, old)
        return new


def edits(statement: Statement, source: SourceCode) -> Iterator[Edit]:
    """The changes of a statement, those first that repair most."""
    node = source.node(statement)
    function = source.file(statement.file).function(statement.function, statement.line)
    names = _parameters(function) if function is not None else []
    expressions = list(own_expressions(node))
    found = [
        Edit(statement, rule, place, new)
        for place, expression in enumerate(expressions)
        if isinstance(expression, ast.expr)
        for rule, new in _changes(expression, names)
    ]
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign | ast.Return) and isinstance(value, ast.expr):
        place = next(i for i, expression in enumerate(expressions) if expression is value)
        found += [Edit(statement, rule, place, new) for rule, new in _casts(value, names)]
    test = getattr(node, "test", None)
    tests = [e.test for e in expressions if isinstance(e, ast.IfExp)] + ([test] if test is not None else [])
    for place, expression in enumerate(expressions):
        if any(expression is t for t in tests) and not isinstance(expression, ast.Compare | ast.UnaryOp):
            assert isinstance(expression, ast.expr)
            found.append(Edit(statement, "negate the condition", place, ast.UnaryOp(ast.Not(), expression)))
    yield from found


def _casts(value: ast.expr, names: list[str]) -> Iterator[tuple[str, ast.expr]]:
    """What a statement computes, cast to a dtype that it may have promised."""
    if isinstance(value, ast.Constant | ast.Tuple | ast.List) or "g" in names or not names:
        return
    op = ast.Name("op", ast.Load())
    if "dtype" in names:
        to = ast.keyword("to", ast.Name("dtype", ast.Load()))
        yield "cast to dtype", ast.Call(ast.Attribute(op, "Cast", ast.Load()), [value], [to])
    like = ast.Attribute(op, "CastLike", ast.Load())
    for name in dict.fromkeys([names[0], names[-1]]):
        yield f"cast to the dtype of {name}", ast.Call(like, [value, ast.Name(name, ast.Load())], [])


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _changes(node: ast.expr, names: list[str]) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Call):
        yield from _of_call(node, names)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for pair in _COMPARISONS:
            if type(node.ops[0]) in pair:
                other = pair[1 - pair.index(type(node.ops[0]))]
                yield "turn the comparison round", ast.Compare(node.left, [other()], node.comparators)
    elif isinstance(node, ast.BinOp):
        for arithmetic in _ARITHMETIC:
            if type(node.op) in arithmetic:
                instead = arithmetic[1 - arithmetic.index(type(node.op))]
                yield "another arithmetic operator", ast.BinOp(node.left, instead(), node.right)
    elif isinstance(node, ast.BoolOp):
        op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield "and in place of or, or the other way round", ast.BoolOp(op, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield "leave out not" if isinstance(node.op, ast.Not) else "another sign", node.operand
    elif isinstance(node, ast.Constant):
        yield from _of_constant(node)


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.expr]]:
    value = node.value
    if isinstance(value, bool):
        yield "flip the constant", ast.Constant(not value)
    elif isinstance(value, int):
        for other in (value - 1, value + 1):
            yield (
                "another constant",
                ast.Constant(other) if other >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-other)),
            )
    elif isinstance(value, float):
        for number in (0.0, 0.5, 1.0, 2.0):
            if number != value:
                yield "another constant", ast.Constant(number)
    elif isinstance(value, str):
        others = dict.fromkeys(
            word for family in _WORDS if value in family for word in family if word != value
        )
        for word in others:
            yield "another mode", ast.Constant(word)


def operator_of(call: ast.Call) -> tuple[str, int]:
    """The ONNX operator that a call emits and how many arguments stand before its operands; "" for none."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id.startswith("op") and function.attr[0].isupper():
            return function.attr, 0
        if function.attr == "op" and call.args and isinstance(call.args[0], ast.Constant):
            return str(call.args[0].value), 1
    return "", 0


def _of_call(call: ast.Call, names: list[str]) -> Iterator[tuple[str, ast.expr]]:
    name, first = operator_of(call)
    if not name:
        return
    operands = call.args[first:]
    for family in _FAMILIES:
        for other in family if name in family else ():
            if other != name:
                yield f"{other} in place of {name}", _renamed(call, first, other)
    if len(operands) == 2 and name not in ("Add", "Mul", "And", "Or", "Equal"):
        yield "swap the operands", ast.Call(call.func, [*call.args[:first], *operands[::-1]], call.keywords)
    if name == "Where" and len(operands) == 3:
        swapped = [operands[0], operands[2], operands[1]]
        yield "swap the branches", ast.Call(call.func, [*call.args[:first], *swapped], call.keywords)
    for place, keyword in enumerate(call.keywords):
        if keyword.arg and (keyword.arg.endswith("_i") or first == 0) and _is_flag(keyword.value):
            flipped = ast.Call(ast.Name("int", ast.Load()), [ast.UnaryOp(ast.Not(), keyword.value)], [])
            keywords = [
                *call.keywords[:place],
                ast.keyword(keyword.arg, flipped),
                *call.keywords[place + 1 :],
            ]
            yield f"flip {keyword.arg}", ast.Call(call.func, call.args, keywords)
    yield from _with_attribute(call, name, first, names)
    if name in _CASTS and operands and not isinstance(operands[0], ast.Starred):
        yield "leave out the cast", operands[0]
    elif name in _COMPUTING and not first:
        for place, operand in enumerate(operands if len(operands) == 2 else ()):
            cast = _op(call, "CastLike", [operand, operands[1 - place]])
            changed = [*operands[:place], cast, *operands[place + 1 :]]
            yield "cast to the other operand's dtype", ast.Call(call.func, changed, call.keywords)


#: What conversion functions call the attributes of ONNX operators.
_ALSO = {"keepdims": "keepdim", "axis": "dim", "perm": "dims", "to": "dtype"}


def _with_attribute(
    call: ast.Call, name: str, first: int, names: list[str]
) -> Iterator[tuple[str, ast.expr]]:
    """The call with an attribute that it leaves to its default: an argument's value, or the other flag."""
    if not onnx.defs.has(name):
        return
    given = {(keyword.arg or "").rpartition("_")[0] if first else keyword.arg for keyword in call.keywords}
    for attribute, known in onnx.defs.get_schema(name).attributes.items():
        suffix = _SUFFIXES.get(known.type)
        if attribute in given or suffix is None:
            continue
        keyword = f"{attribute}_{suffix}" if first else attribute
        for wanted in (attribute, _ALSO.get(attribute, "")):
            if wanted in names:
                value: ast.expr = ast.Name(wanted, ast.Load())
                yield f"read the argument {wanted}", _with_keyword(call, keyword, value)
        if known.type == onnx.defs.OpSchema.AttrType.INT and known.default_value.i in (0, 1):
            flag = ast.Constant(1 - known.default_value.i)
            yield f"give {attribute}", _with_keyword(call, keyword, flag)


_SUFFIXES = {
    onnx.defs.OpSchema.AttrType.INT: "i",
    onnx.defs.OpSchema.AttrType.INTS: "i",
    onnx.defs.OpSchema.AttrType.FLOAT: "f",
    onnx.defs.OpSchema.AttrType.STRING: "s",
}


def _with_keyword(call: ast.Call, name: str, value: ast.expr) -> ast.Call:
    return ast.Call(call.func, call.args, [*call.keywords, ast.keyword(name, value)])


def _is_flag(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool) or node.value in (0, 1)
    return isinstance(node, ast.Name | ast.Call | ast.UnaryOp)


def _op(like: ast.Call, name: str, operands: list[ast.expr]) -> ast.Call:
    assert isinstance(like.func, ast.Attribute)
    return ast.Call(ast.Attribute(like.func.value, name, ast.Load()), operands, [])


def _renamed(call: ast.Call, first: int, name: str) -> ast.Call:
    if first:
        return ast.Call(call.func, [ast.Constant(name), *call.args[1:]], call.keywords)
    assert isinstance(call.func, ast.Attribute)
    return ast.Call(ast.Attribute(call.func.value, name, ast.Load()), call.args, call.keywords)
