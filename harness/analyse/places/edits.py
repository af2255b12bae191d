"""Small changes of an expression in a conversion function that may repair it, each an instance of a rule."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from harness.analyse.places.attribute_edits import (
    WORDS,
    guessed_attributes,
    literal,
    missing_attributes,
    not_given,
)
from harness.analyse.places.dtype_edits import (
    exact_constants,
    logical_forms,
    named_casts,
    operand_casts,
    promised_casts,
    result_casts,
    wider_computations,
)
from harness.analyse.places.edit import Edit
from harness.analyse.places.function_edits import whole_casts
from harness.analyse.places.source_code import SourceCode, Statement, own_expressions
from harness.analyse.places.surroundings import Surroundings, operator_of
from harness.analyse.places.value_edits import (
    careful_squeezes,
    nan_safe_forms,
    none_safe_forms,
    one_more,
    other_ranks,
    read_arguments,
)

#: ONNX operators that are taken for each other.
_FAMILIES = (
    *(("Add", "Sub"), ("Mul", "Div", "Pow"), ("And", "Or", "Xor"), ("BitwiseAnd", "BitwiseOr", "BitwiseXor")),
    *(("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"), ("Mod", "Sub")),
    *(("ReduceMax", "ReduceMin"), ("ReduceSum", "ReduceMean", "ReduceProd"), ("ReduceL1", "ReduceL2")),
    *(("ArgMax", "ArgMin"), ("Max", "Min"), ("Floor", "Ceil", "Round"), ("Sin", "Cos"), ("Sinh", "Cosh")),
    *(("Exp", "Log"), ("Sqrt", "Reciprocal"), ("Softmax", "LogSoftmax"), ("Relu", "Abs"), ("IsNaN", "IsInf")),
    *(("Tanh", "Sigmoid", "Erf", "Tan"), ("ReduceSum", "ReduceL1")),
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


def edits(statement: Statement, source: SourceCode, opset: int) -> Iterator[Edit]:
    """The changes of a statement that repair most.

    Args:
        opset: Whose operators are emitted.
    """
    node = source.node(statement)
    around = Surroundings.of(statement, source, opset)
    expressions = list(own_expressions(node))
    found = [
        Edit.of(statement, rule, place, new)
        for place, expression in enumerate(expressions)
        if isinstance(expression, ast.expr)
        for rule, new in _changes(expression, around)
    ]
    for place, value in _result(node, expressions):
        found += [Edit.of(statement, rule, place, new) for rule, new in result_casts(value, around)]
    tests = list(_conditions(node, expressions))
    for place, expression in enumerate(expressions):
        if any(expression is t for t in tests) and not isinstance(expression, ast.Compare | ast.UnaryOp):
            assert isinstance(expression, ast.expr)
            found.append(Edit.of(statement, "negate the condition", place, ast.UnaryOp(ast.Not(), expression)))
    yield from found


def _conditions(node: ast.stmt, expressions: Sequence[ast.AST]) -> Iterator[ast.expr]:
    """What a statement decides by, and the parts of it."""
    test = getattr(node, "test", None)
    if test is not None:
        yield test
    for expression in expressions:
        if isinstance(expression, ast.IfExp):
            yield expression.test
        elif isinstance(expression, ast.BoolOp):
            yield from expression.values
        elif isinstance(expression, ast.comprehension):
            yield from expression.ifs


def rarer_edits(statement: Statement, source: SourceCode, opset: int) -> Iterator[Edit]:
    """More changes of a statement: larger ones, and those that repair less often. As `edits`."""
    node = source.node(statement)
    around = Surroundings.of(statement, source, opset)
    expressions = list(own_expressions(node))
    found: list[Edit] = []
    for place, expression in enumerate(expressions):
        if not isinstance(expression, ast.expr):
            continue
        rules = [*exact_constants(expression, around)]
        if isinstance(expression, ast.Call):
            name, first = operator_of(expression)
            operands = expression.args[first:] if name else []
            if operands:
                rules += wider_computations(expression, name, operands, around)
                rules += logical_forms(name, expression, operands, around)
                rules += nan_safe_forms(expression, name, operands, around)
                rules += none_safe_forms(expression, first, around)
                rules += careful_squeezes(name, expression, operands, around)
            given = [keyword for _, keyword, _ in not_given(expression, name, first)]
            rules += read_arguments(expression, first, given, around)
        found += [Edit.of(statement, rule, place, new) for rule, new in rules]
    found += whole_casts(statement, expressions, around, source)
    for place, operand in _computed(expressions):
        rules = [*promised_casts(operand, around), *operand_casts(operand, around)]
        rules += one_more(operand, around)
        found += [Edit.of(statement, rule, place, new) for rule, new in rules]
    yield from found


def rarest_edits(statement: Statement, source: SourceCode, opset: int) -> Iterator[Edit]:
    """Changes that guess: a value of an attribute, an axis, a dtype that nothing promises. As `edits`."""
    node = source.node(statement)
    around = Surroundings.of(statement, source, opset)
    expressions = list(own_expressions(node))
    for place, expression in enumerate(expressions):
        if isinstance(expression, ast.Call) and operator_of(expression)[0]:
            for rule, new in guessed_attributes(expression, *operator_of(expression), around):
                yield Edit.of(statement, rule, place, new)
    results = dict(_result(node, expressions))
    parts = dict(_computed(expressions))
    for place, value in {**results, **parts}.items():
        casts = [] if place in parts else operand_casts(value, around)
        for rule, new in (*casts, *named_casts(value, around), *other_ranks(value, around)):
            yield Edit.of(statement, rule, place, new)


def _computed(expressions: Sequence[ast.AST]) -> Iterator[tuple[int, ast.expr]]:
    """The nodes that a statement emits and their operands, with their places."""
    calls = [call for call in expressions if isinstance(call, ast.Call) and operator_of(call)[0]]
    wanted = [one for call in calls for one in (call, *call.args[operator_of(call)[1] :])]
    for place, expression in enumerate(expressions):
        if isinstance(expression, ast.expr) and any(expression is one for one in wanted):
            yield place, expression


def _result(node: ast.stmt, expressions: Sequence[ast.AST]) -> Iterator[tuple[int, ast.expr]]:
    """What a statement assigns or returns, and its place."""
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign | ast.Return) and isinstance(value, ast.expr):
        yield next(i for i, expression in enumerate(expressions) if expression is value), value


def _changes(node: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.Call):
        yield from _of_call(node, around)
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
    elif isinstance(node, ast.Attribute) and node.attr == "inf":
        yield "another sign", ast.UnaryOp(ast.USub(), node)


def _of_constant(node: ast.Constant) -> Iterator[tuple[str, ast.expr]]:
    value = node.value
    if isinstance(value, bool):
        yield "flip the constant", ast.Constant(not value)
    elif isinstance(value, int | float):
        if value:
            yield "another sign", literal(-value)
        near = (value - 1, value + 1) if isinstance(value, int) else (0.0, 0.5, 1.0, 2.0)
        for number in near:
            if number != value:
                yield "another constant", literal(number)
    elif isinstance(value, str):
        others = dict.fromkeys(word for family in WORDS if value in family for word in family if word != value)
        for word in others:
            yield "another mode", ast.Constant(word)


def _of_call(call: ast.Call, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
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
    yield from missing_attributes(call, name, first, around)
    if name in _CASTS and operands and not isinstance(operands[0], ast.Starred):
        yield "leave out the cast", operands[0]
    elif name in _COMPUTING and around.emits:
        for place, operand in enumerate(operands if len(operands) == 2 else ()):
            cast = around.emit("CastLike", [operand, operands[1 - place]])
            changed = [*call.args[:first], *operands[:place], cast, *operands[place + 1 :]]
            yield "cast to the other operand's dtype", ast.Call(call.func, changed, call.keywords)


def _is_flag(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool) or node.value in (0, 1)
    return isinstance(node, ast.Name | ast.Call | ast.UnaryOp)


def _renamed(call: ast.Call, first: int, name: str) -> ast.Call:
    if first:
        return ast.Call(call.func, [ast.Constant(name), *call.args[1:]], call.keywords)
    assert isinstance(call.func, ast.Attribute)
    return ast.Call(ast.Attribute(call.func.value, name, ast.Load()), call.args, call.keywords)
