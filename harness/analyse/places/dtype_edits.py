"""Small changes of what dtype something is computed in, or given in."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence

import onnx

from harness.analyse.places.attribute_edits import expression, literal
from harness.analyse.places.surroundings import Surroundings

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
