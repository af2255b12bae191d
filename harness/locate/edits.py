"""Small changes of a conversion function that may repair it.

A change of a conversion function that may repair it: expressions in place of others.

What a conversion function offers to an expression that is put into it.

Small changes of an expression in a conversion function that may repair it, each an instance of a rule.

Small changes of a node's attributes that a call leaves to their defaults.

Small changes of what dtype something is computed in, or given in.

Small changes of a conversion function as a whole: the dtype that all of it computes in.

Small changes of what is computed: NaN-safe forms, arguments that are never read or given, other ranks.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx

from harness.locate.source_code import SourceCode, Statement, own_expressions, parameters_of

#: What an expression of the source is and where; it stays the same when the tree is copied.
Spot: TypeAlias = tuple[str, int, int, int, int]


@dataclass(frozen=True, eq=False)
class Replacement:
    """One expression of a statement, and what takes its place.

    Attributes:
        place: Of the expression among those of the statement.
        new: It may hold the expression that it replaces.
    """

    statement: Statement
    place: int
    new: ast.expr

    def old(self, source: SourceCode) -> ast.expr:
        """What is replaced."""
        found = list(own_expressions(source.node(self.statement)))[self.place]
        assert isinstance(found, ast.expr)
        return found


@dataclass(frozen=True, eq=False)
class Edit:
    """Changes of one function.

    Attributes:
        rule: In words: "swap the operands".
        statement: That is thought to be wrong.
        begin: Statements that the innermost function around it begins with.
        parts: How many changes by rules it is made of.
    """

    rule: str
    statement: Statement
    changes: tuple[Replacement, ...]
    begin: tuple[ast.stmt, ...] = ()
    parts: int = 1

    @classmethod
    def of(cls, statement: Statement, rule: str, place: int, new: ast.expr) -> Edit:
        """A change of one expression."""
        return cls(rule, statement, (Replacement(statement, place, new),))

    @property
    def key(self) -> str:
        """The same for the same edit, in another process as well."""
        new = (f"{c.statement.line}:{c.place}:{ast.dump(c.new)}" for c in self.changes)
        words = "".join([self.statement.file, self.rule, *map(ast.dump, self.begin), *new])
        return hashlib.sha256(words.encode()).hexdigest()[:16]

    def and_then(self, other: Edit) -> Edit:
        """Both: what both replace becomes what the other makes of it, in what this one makes of that."""
        rule = f"{self.rule}, and {other.rule}"
        changes, begin = (*self.changes, *other.changes), (*self.begin, *other.begin)
        return Edit(rule, self.statement, changes, begin, self.parts + other.parts)

    def function(self, source: SourceCode) -> ast.FunctionDef | None:
        """The outermost function with the changes; None where it has none, or where one undoes another.

        A function that onnxscript builds from its source is marked to be run instead: not all that a change
        may hold can be built.
        """
        original = source.file(self.statement.file).function(self.statement.function, self.statement.line)
        if original is None:
            return None
        changed = copy.deepcopy(original)
        own = innermost(changed, self.statement.line)
        changing = Changing([(spot_of(change.old(source)), change.new) for change in self.changes])
        for field, value in ast.iter_fields(changed):
            setattr(changed, field, changing.all_of(value))
        if len(changing.done) < len(self.changes):
            return None
        at = first_statement(own)
        own.body[at:at] = [copy.deepcopy(statement) for statement in self.begin]
        for statement in own.body[at : at + len(self.begin)]:
            ast.copy_location(statement, own.body[at + len(self.begin)])
        for decorator in built_by(changed):
            decorator.keywords.append(ast.keyword("trace_only", ast.Constant(True)))
        return changed


class Changing(ast.NodeTransformer):
    """Puts expressions in place of others, within each other where they are.

    Attributes:
        done: Which of them found a place.
    """

    def __init__(self, changes: Sequence[tuple[Spot | None, ast.expr]]) -> None:
        self._changes = list(enumerate(changes))
        self.done: set[int] = set()

    def all_of(self, value: object) -> object:
        """The value of a node's field, changed."""
        if isinstance(value, list):
            return [self.all_of(item) for item in value]
        return self.visit(value) if isinstance(value, ast.AST) else value

    def visit(self, node: ast.AST) -> ast.AST:
        """A node, or what takes its place."""
        spot = spot_of(node)
        for one in self._changes if spot is not None else ():
            number, (wanted, new) = one
            if wanted == spot:
                self.done.add(number)
                all_changes = self._changes
                # What is replaced may be a part of what takes its place.
                self._changes = [other for other in all_changes if other is not one]
                made: ast.AST = self.visit(copy.deepcopy(new))
                self._changes = all_changes
                return made
        visited: ast.AST = self.generic_visit(node)
        return visited


def spot_of(node: ast.AST) -> Spot | None:
    """Where an expression of the source is; None for what a rule made."""
    if not isinstance(node, ast.expr) or getattr(node, "end_lineno", None) is None:
        return None
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return type(node).__name__, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset


def innermost(function: ast.FunctionDef, line: int) -> ast.FunctionDef:
    """The function around a line that no other one within `function` is around."""
    around = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return around[-1] if around else function


def first_statement(function: ast.FunctionDef) -> int:
    """Which of a function's statements is the first behind its documentation."""
    return int(ast.get_docstring(function, clean=False) is not None and len(function.body) > 1)


def built_by(function: ast.FunctionDef) -> list[ast.Call]:
    """The decorator that has onnxscript build a function from its source; none where the function is run."""
    return [
        decorator
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "torch_op"
        and not any(keyword.arg == "trace_only" for keyword in decorator.keywords)
    ]


#: Tensors of a function that are looked at.
_TENSORS = 4
#: What annotations of tensors hold: the type variables of torchlib, dtypes of onnxscript, values.
_ANNOTATED = re.compile(r"\b(T[A-Z]\w*|(B?FLOAT|DOUBLE|U?INT|BOOL|COMPLEX)\w*|Value)\b")


@dataclass(frozen=True)
class Surroundings:
    """The innermost function that an expression is in.

    Attributes:
        parameters: Of the function, in their order.
        names: These, and what the function assigns.
        unread: Parameters that no line of it reads.
        imported: Names of its module.
        opset: Whose operators are emitted.
        known_tensors: Parameters that are tensors, by what the function says of them.
    """

    parameters: tuple[str, ...]
    names: frozenset[str]
    unread: tuple[str, ...]
    imported: frozenset[str]
    opset: int
    known_tensors: tuple[str, ...] = ()

    @classmethod
    def of(cls, statement: Statement, source: SourceCode, opset: int) -> Surroundings:
        """Of a statement."""
        file = source.file(statement.file)
        outermost = file.function(statement.function, statement.line)
        if outermost is None:
            return cls((), frozenset(), (), frozenset(), opset)
        function = innermost(outermost, statement.line)
        arguments = parameters_of(function)
        parameters = tuple(argument.arg for argument in arguments)
        used = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        stored = {node.id for node in used if isinstance(node.ctx, ast.Store)}
        read = {node.id for node in used if isinstance(node.ctx, ast.Load)}
        return cls(
            parameters=parameters,
            names=frozenset(parameters) | stored,
            unread=tuple(name for name in parameters if name not in read | stored),
            imported=file.names,
            opset=opset,
            known_tensors=tuple(_known_tensors(function)),
        )

    @property
    def of_torchscript(self) -> bool:
        """Whether nodes are emitted as TorchScript's symbolic functions do it."""
        return "g" in self.parameters

    @property
    def emits(self) -> bool:
        """Whether nodes can be emitted here: not in PyTorch's decompositions."""
        return self.of_torchscript or "op" in self.imported

    @property
    def tensors(self) -> tuple[str, ...]:
        """Parameters that are tensors; where nothing tells, the first two and the last."""
        given = [name for name in self.parameters if name != "g"]
        return self.known_tensors[:_TENSORS] or tuple(dict.fromkeys([*given[:2], *given[-1:]]))

    def emit(self, name: str, operands: Sequence[ast.expr], **attributes: ast.expr) -> ast.Call:
        """A call that emits a node; attributes are whole numbers."""
        emitting = ast.Name("g" if self.of_torchscript else "op", ast.Load())
        if self.of_torchscript:
            keywords = [ast.keyword(f"{key}_i", value) for key, value in attributes.items()]
            call = ast.Attribute(emitting, "op", ast.Load())
            return ast.Call(call, [ast.Constant(name), *operands], keywords)
        keywords = [ast.keyword(key, value) for key, value in attributes.items()]
        return ast.Call(ast.Attribute(emitting, name, ast.Load()), list(operands), keywords)

    @property
    def optional(self) -> tuple[str, ...]:
        """Parameters that may not be given: all but the first, as signatures do not always tell."""
        return tuple(name for name in self.parameters if name != "g")[1:]

    def is_given(self, name: str) -> ast.expr | None:
        """Whether an argument is given; None where the module has no words for it."""
        argument = ast.Name(name, ast.Load())
        if not self.of_torchscript:
            return ast.Compare(argument, [ast.IsNot()], [ast.Constant(None)])
        is_none = self.helper("_is_none")
        return ast.UnaryOp(ast.Not(), ast.Call(is_none, [argument], [])) if is_none is not None else None

    def helper(self, name: str) -> ast.expr | None:
        """A function of TorchScript's `symbolic_helper`, as the module calls it; None where it does not."""
        if name in self.imported:
            return ast.Name(name, ast.Load())
        if "symbolic_helper" in self.imported:
            return ast.Attribute(ast.Name("symbolic_helper", ast.Load()), name, ast.Load())
        return None

    def element_type(self, name: str, number: int) -> ast.expr:
        """ONNX's dtype of a name, as the module writes it: ``FLOAT.dtype``."""
        if not self.of_torchscript and name in self.imported:
            return ast.Attribute(ast.Name(name, ast.Load()), "dtype", ast.Load())
        if self.of_torchscript and "_C_onnx" in self.imported:
            types = ast.Attribute(ast.Name("_C_onnx", ast.Load()), "TensorProtoDataType", ast.Load())
            return ast.Attribute(types, name, ast.Load())
        return ast.Constant(number)


def operator_of(call: ast.Call) -> tuple[str, int]:
    """The ONNX operator that a call emits and how many arguments stand before its operands; "" for none."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if function.value.id.startswith("op") and function.attr[0].isupper():
            return function.attr, 0
        if function.attr == "op" and call.args and isinstance(call.args[0], ast.Constant):
            return str(call.args[0].value), 1
    return "", 0


def _known_tensors(function: ast.FunctionDef) -> Iterator[str]:
    """The parameters that are tensors by their annotations, or by what TorchScript parses them as."""
    arguments = parameters_of(function)
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and "parse_args" in ast.unparse(decorator.func):
            kinds = [kind.value if isinstance(kind, ast.Constant) else "" for kind in decorator.args]
            yield from (argument.arg for argument, kind in zip(arguments[1:], kinds, strict=False) if kind == "v")
            return
    for argument in arguments:
        said = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        if _ANNOTATED.search(said) and "Sequence" not in said:
            yield argument.arg


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


#: Dtype of ONNX → its number, its name in TorchScript, and as ONNX's schemas write it.
_DTYPES = {
    "FLOAT": (1, "Float", "float"),
    "DOUBLE": (11, "Double", "double"),
    "FLOAT16": (10, "Half", "float16"),
    "BFLOAT16": (16, "BFloat16", "bfloat16"),
    "INT8": (3, "Char", "int8"),
    "INT16": (5, "Short", "int16"),
    "INT32": (6, "Int", "int32"),
    "INT64": (7, "Long", "int64"),
    "UINT8": (2, "Byte", "uint8"),
    "UINT16": (4, "UInt16", "uint16"),
    "UINT32": (12, "UInt32", "uint32"),
    "UINT64": (13, "UInt64", "uint64"),
    "BOOL": (9, "Bool", "bool"),
}
#: What is computed in where an operator does not take a dtype, if it takes this one.
WIDER = ("FLOAT", "DOUBLE", "INT64", "INT32")
_LOGICAL = ("BOOL",)
_TRUTHS = {"Add": "Or", "Mul": "And", "Sub": "Xor", "Max": "Or", "Min": "And"}
#: What parts of a computation are cast to.
_USUAL = ("FLOAT", "INT64", "BOOL", "DOUBLE", "INT32")
#: Constants that conversion functions write down with too few digits.
_EXACT = (
    *(math.pi, math.pi / 2, 2 * math.pi, 1 / math.pi, math.sqrt(math.pi), math.sqrt(2 * math.pi)),
    *(2 / math.sqrt(math.pi), math.sqrt(2 / math.pi), math.e, math.log(2), 1 / math.log(2)),
    *(math.log(10), 1 / math.log(10), math.sqrt(2), math.sqrt(0.5), math.log(2 * math.pi) / 2),
    *(1.6732632423543772, 1.0507009873554805, 0.5772156649015329),
)
_NEAR = 1e-4


def result_casts(value: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """What a statement computes, cast to a dtype that it may have promised."""
    if isinstance(value, ast.Constant | ast.Tuple | ast.List) or not around.emits:
        return
    if "dtype" in around.names:
        to = _given_dtype(around)
        if to is not None:
            yield "cast to dtype", around.emit("Cast", [value], to=to)
    for name in around.tensors:
        like = ast.Name(name, ast.Load())
        yield f"cast to the dtype of {name}", around.emit("CastLike", [value, like])


def operand_casts(value: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """A part of what is computed, cast to a usual dtype."""
    if isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Starred) or not around.emits:
        return
    for dtype in _USUAL:
        yield f"cast to {dtype.lower()}", cast_to(value, dtype, around)
    for name in around.tensors:
        if not (isinstance(value, ast.Name) and value.id == name):
            like = ast.Name(name, ast.Load())
            yield f"cast a part to the dtype of {name}", around.emit("CastLike", [value, like])


def named_casts(value: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """What is computed, cast to what a variable holds whose name says that it is a dtype."""
    if isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Starred) or not around.emits:
        return
    for name in sorted(name for name in around.names if "type" in name):
        held: ast.expr = ast.Name(name, ast.Load())
        if around.of_torchscript and "onnx" not in name and "_type_utils" in around.imported:
            known = ast.Attribute(ast.Name("_type_utils", ast.Load()), "JitScalarType", ast.Load())
            of_torch = ast.Call(known, [held], [])
            held = ast.Call(ast.Attribute(of_torch, "onnx_type", ast.Load()), [], [])
        yield f"cast to {name}", around.emit("Cast", [value], to=held)


def promised_casts(value: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """A value in the dtype that the call asks for, if it asks for one."""
    if isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Starred) or not around.emits:
        return
    if "dtype" not in around.parameters:
        return
    to, given = _given_dtype(around), around.is_given("dtype")
    if to is None or given is None:
        return
    if not around.of_torchscript:
        # An attribute of onnxscript has a number for what is not given.
        number = ast.Compare(ast.Name("dtype", ast.Load()), [ast.NotEq()], [literal(-1)])
        given = ast.BoolOp(ast.And(), [given, number])
    cast = around.emit("Cast", [value], to=to)
    yield "cast to dtype where it is given", ast.IfExp(given, cast, value)
    if not around.of_torchscript:
        # What is computed in float may be rounded in the end.
        wide: list[ast.expr] = [around.element_type(dtype, _DTYPES[dtype][0]) for dtype in ("FLOAT", "DOUBLE")]
        is_wide = ast.Compare(ast.Name("dtype", ast.Load()), [ast.In()], [ast.Tuple(wide, ast.Load())])
        yield "cast to dtype where it is float or double", ast.IfExp(is_wide, cast, value)


def _given_dtype(around: Surroundings) -> ast.expr | None:
    """The argument `dtype` as ONNX's attribute wants it; None where the module has no words for it."""
    given = ast.Name("dtype", ast.Load())
    if not around.of_torchscript:
        return given
    if not {"symbolic_helper", "_type_utils"} <= around.imported:
        return None
    return expression("_type_utils.JitScalarType(symbolic_helper._get_const(dtype, 'i', 'dtype')).onnx_type()")


def wider_computations(
    call: ast.Call, name: str, operands: Sequence[ast.expr], around: Surroundings
) -> Iterator[tuple[str, ast.expr]]:
    """A node in a dtype that its operator takes, where it is not given one."""
    # The dtype is asked of the first operand that has a name: to ask a call would emit its nodes twice.
    asked = next((operand for operand in operands if isinstance(operand, ast.Name)), None)
    if asked is None or not around.emits or not onnx.defs.has(name, max_inclusive_version=around.opset):
        return
    schema = onnx.defs.get_schema(name, max_inclusive_version=around.opset)
    of_type = schema.inputs[0].type_str if schema.inputs else ""
    supported = taken_dtypes(name, around.opset)
    fits = is_taken(asked, supported, around)
    if fits is None:
        return
    halves = _is_one_of(asked, ["FLOAT16", "BFLOAT16"], around)
    back = bool(schema.outputs) and schema.outputs[0].type_str == of_type
    if back and len(operands) == 1:
        # Whole numbers are rounded already.
        as_it_is = around.emit("Identity", [asked])
        yield f"leave out {name} where it does not take the dtype", ast.IfExp(fits, call, as_it_is)
    for wide in _LOGICAL if supported == ["BOOL"] else WIDER:
        if wide not in supported:
            continue
        to = around.element_type(wide, _DTYPES[wide][0])
        cast = [
            _cast(operand, to, formal, around) if formal is not None else operand
            for operand, formal in zip(operands, _formals(schema, operands, of_type), strict=True)
        ]
        first = len(call.args) - len(operands)
        computed = ast.Call(call.func, [*call.args[:first], *cast], call.keywords)
        words = f"compute in {wide.lower()} what {name} does not take"
        yield words, ast.IfExp(fits, call, computed)
        if back:
            returned = around.emit("CastLike", [computed, asked])
            yield f"{words}, and cast back", ast.IfExp(fits, call, returned)
            if wide == "FLOAT":
                either = ast.IfExp(halves, returned, computed)
                yield f"{words}, and cast halves back", ast.IfExp(fits, call, either)


def taken_dtypes(name: str, opset: int) -> list[str]:
    """The dtypes that an operator takes as its first operand; none where it is unknown."""
    if not onnx.defs.has(name, max_inclusive_version=opset):
        return []
    schema = onnx.defs.get_schema(name, max_inclusive_version=opset)
    of_type = schema.inputs[0].type_str if schema.inputs else ""
    constraint = next((c for c in schema.type_constraints if c.type_param_str == of_type), None)
    taken = constraint.allowed_type_strs if constraint is not None else []
    return [dtype for dtype, (_, _, word) in _DTYPES.items() if f"tensor({word})" in taken]


def is_taken(value: ast.expr, supported: Sequence[str], around: Surroundings) -> ast.Compare | None:
    """Whether a tensor has a dtype that an operator takes; None where it takes all of them, or none."""
    others = [dtype for dtype in _DTYPES if dtype not in supported]
    if not supported or not others:
        return None
    if len(others) >= len(supported):
        return _is_one_of(value, supported, around)
    fits = _is_one_of(value, others, around)
    fits.ops = [ast.NotIn()]
    return fits


def cast_to(value: ast.expr, dtype: str, around: Surroundings) -> ast.expr:
    """A value in a dtype of ONNX."""
    return around.emit("Cast", [value], to=around.element_type(dtype, _DTYPES[dtype][0]))


def logical_forms(
    name: str, call: ast.Call, operands: Sequence[ast.expr], around: Surroundings
) -> Iterator[tuple[str, ast.expr]]:
    """What arithmetic is for truth values, which ONNX does not compute with."""
    instead = _TRUTHS.get(name)
    asked = next((operand for operand in operands if isinstance(operand, ast.Name)), None)
    if instead is None or asked is None or len(operands) != 2 or not around.emits:
        return
    logical = around.emit(instead, operands)
    yield (
        f"{instead} in place of {name} for bool",
        ast.IfExp(_is_one_of(asked, ["BOOL"], around), logical, call),
    )


def _formals(
    schema: onnx.defs.OpSchema, operands: Sequence[ast.expr], of_type: str
) -> Iterator[onnx.defs.OpSchema.FormalParameter | None]:
    """The parameters of an operator that are to be cast; None for one of another type, and for a literal,
    which is made one of the right type by itself."""
    for place, operand in enumerate(operands):
        formal = schema.inputs[min(place, len(schema.inputs) - 1)]
        yield formal if formal.type_str == of_type and not isinstance(operand, ast.Constant) else None


def _cast(
    operand: ast.expr, to: ast.expr, formal: onnx.defs.OpSchema.FormalParameter, around: Surroundings
) -> ast.expr:
    cast = around.emit("Cast", [operand], to=to)
    if formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
        return cast
    nothing = ast.Constant(None)
    return ast.IfExp(ast.Compare(operand, [ast.IsNot()], [nothing]), cast, nothing)


def _is_one_of(value: ast.expr, dtypes: Sequence[str], around: Surroundings) -> ast.Compare:
    """Whether a tensor has one of some dtypes."""
    if around.of_torchscript:
        of_type = ast.Call(ast.Attribute(value, "type", ast.Load()), [], [])
        asked: ast.expr = ast.Call(ast.Attribute(of_type, "scalarType", ast.Load()), [], [])
        names = [_DTYPES[dtype][1] for dtype in dtypes]
    else:
        asked = ast.Attribute(ast.Attribute(value, "dtype", ast.Load()), "name", ast.Load())
        names = list(dtypes)
    words: list[ast.expr] = [ast.Constant(name) for name in names]
    return ast.Compare(asked, [ast.In()], [ast.Tuple(words, ast.Load())])


def exact_constants(node: ast.expr, around: Surroundings) -> Iterator[tuple[str, ast.expr]]:
    """A number in float64 where it is rounded to float32, or written with too few digits."""
    words = "a float64 constant"
    if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value:
        for exact in _EXACT:
            if node.value != exact and abs(node.value / exact - 1) < _NEAR:
                yield f"{words} with all its digits", ast.Constant(exact)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    called = node.func.attr
    if called == "tensor" and isinstance(node.func.value, ast.Name) and node.func.value.id == "torch":
        yield from ((words, new) for new in _of_torch_tensor(node))
    if around.of_torchscript or "ir" not in around.imported:
        return
    if called == "CastLike" and len(node.args) == 2 and isinstance(node.args[1], ast.Name):
        number = _number(node.args[0], around)
        if number is not None:
            yield words, _typed(node, number, ast.Attribute(node.args[1], "dtype", ast.Load()))
            yield words, ast.Call(node.func, [_typed(node, number, _double()), node.args[1]], [])
    number = _number(node, around)
    if number is not None:
        yield words, _typed(node, number, _double())


def _of_torch_tensor(call: ast.Call) -> Iterator[ast.expr]:
    """``torch.tensor(x)`` in float64, and as a number without dimensions, to which none is promoted."""
    others = [keyword for keyword in call.keywords if keyword.arg != "dtype"]
    given = next((ast.unparse(k.value) for k in call.keywords if k.arg == "dtype"), "torch.float")
    if given not in ("torch.float", "torch.float32") or len(call.args) != 1:
        return
    (number,) = call.args
    double = ast.keyword("dtype", ast.Attribute(ast.Name("torch", ast.Load()), "float64", ast.Load()))
    if isinstance(number, ast.List) and len(number.elts) == 1:
        yield ast.Call(call.func, [number.elts[0]], [*others, double])
    yield ast.Call(call.func, [number], [*others, double])


def _number(node: ast.expr, around: Surroundings) -> ast.expr | None:
    """The number that is made a tensor of float32: a literal, an argument, ``op.Constant(value_float=…)``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, float):
        return node
    if isinstance(node, ast.Name) and (node.id in around.parameters or node.id.isupper()):
        return node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Constant":
        return next((k.value for k in node.keywords if k.arg == "value_float"), None)
    return None


def _double() -> ast.expr:
    types = ast.Attribute(ast.Name("ir", ast.Load()), "DataType", ast.Load())
    return ast.Attribute(types, "DOUBLE", ast.Load())


def _typed(call: ast.Call, number: ast.expr, dtype: ast.expr) -> ast.Call:
    """``op.Constant(value=ir.tensor(number, dtype=dtype))``."""
    assert isinstance(call.func, ast.Attribute)
    tensor = ast.Attribute(ast.Name("ir", ast.Load()), "tensor", ast.Load())
    value = ast.Call(tensor, [number], [ast.keyword("dtype", dtype)])
    constant = ast.Attribute(call.func.value, "Constant", ast.Load())
    return ast.Call(constant, [], [ast.keyword("value", value)])


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
                # How the operator gets its axes depends on the opset, and one function knows.
                helper = around.helper(f"_{name.lower()}_helper")
                if helper is None:
                    continue
                changed = ast.Call(helper, [ast.Name("g", ast.Load()), value, axes], [])
            yield words.format(axis), changed
