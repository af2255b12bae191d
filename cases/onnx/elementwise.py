"""Operators that work element by element."""

from __future__ import annotations

from harness.core.dtypes import ALL, WIDE_UNSIGNED
from harness.core.onnx_arrays import NARROW_DTYPES, STRING, element_type
from harness.generate.draw import ANY, NONZERO, OMIT, Draw
from harness.generate.onnx_case import OnnxFamily, dtype_for
from harness.generate.operator_case import Arguments

ops = OnnxFamily("elementwise")

ops.simple("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp")
ops.simple("Floor", "HardSwish", "IsNaN", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign")
ops.simple("Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Tan", "Tanh")
ops.simple("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "Shrink", "SwiGLU", "Swish", "ThresholdedRelu")
ops.simple("Add", "Sub", "Mul", "And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
ops.simple("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
ops.simple("IsInf", detect_negative=lambda d: d.flag(), detect_positive=lambda d: d.flag())
ops.simple("Gelu", approximate=lambda d: d.choose(OMIT, "none", "tanh"))


def _takes_one_shape(d: Draw) -> bool:
    """Whether operands broadcast only if an attribute asks for it, as before version 7."""
    return d.schema is not None and d.schema.attribute("broadcast") is not None


@ops.case("Div")
def divide(d: Draw) -> Arguments:
    if _takes_one_shape(d):
        shape = d.shape()
        return {"A": d.tensor(shape), "B": d.tensor(shape, domain=NONZERO)}
    return d.operands("A", "B", domains={"B": NONZERO})


@ops.case("Mod")
def modulo(d: Draw) -> Arguments:
    # The text wants fmod for floats.
    is_float = d.dtype.startswith(("float", "bfloat"))
    return {**d.operands("A", "B", domains={"B": NONZERO}), "fmod": 1 if is_float else d.flag()}


@ops.case("Equal", strings=True)
def equal(d: Draw) -> Arguments:
    if _takes_one_shape(d):
        shape = d.shape()
        return {"A": d.tensor(shape), "B": d.tensor(shape)}
    return d.operands("A", "B")


@ops.case("Pow")
def power(d: Draw) -> Arguments:
    assert d.schema is not None
    own = d.schema.inputs[1].variable == d.schema.inputs[0].variable
    kept = d.dtype if d.dtype in d.schema.inputs[1].dtypes else "float32"
    dtype = d.dtype if own else d.choose(kept, kept, dtype_for(d, "Y"))
    if _takes_one_shape(d):
        shape = d.shape()
        return {"X": d.tensor(shape), "Y": d.tensor(shape)}
    # A negative power of an integer is a fraction, about which the text is silent.
    is_float = d.dtype.startswith(("float", "bfloat"))
    domain = ANY if is_float else ("range", 0, 4)
    operands = d.operands("X", "Y", domains={"Y": domain})
    return {**operands, "Y": d.tensor(operands["Y"].shape, dtype, domain)}


@ops.case("PRelu")
def prelu(d: Draw) -> Arguments:
    shape = d.shape()
    assert d.schema is not None
    if d.schema.version < 7:
        channels = shape[1] if len(shape) > 1 else 1
        return {"X": d.tensor(shape), "slope": d.tensor((d.choose(channels, 1),))}
    return {"X": d.tensor(shape), "slope": d.tensor(d.broadcastable(shape))}


@ops.case("BitShift")
def shift(d: Draw) -> Arguments:
    bits = int(d.dtype.removeprefix("uint").removeprefix("int"))
    operands = d.operands("X", "Y", domains={"Y": ("range", 0, bits - 1)})
    return {**operands, "direction": d.choose("LEFT", "RIGHT")}


@ops.case("Max", "Min", "Mean", "Sum")
def variadic(d: Draw) -> Arguments:
    count = d.choose(2, 1, 3, 4)
    assert d.schema is not None
    if d.schema.version < 8:
        shape = d.shape()
        return {"data_0": [d.tensor(shape) for _ in range(count)]}
    return {"data_0": list(d.operands(*(f"x{i}" for i in range(count))).values())}


@ops.case("Where", about="X", strings=True)
def where(d: Draw) -> Arguments:
    operands = d.operands("condition", "X", "Y")
    return {**operands, "condition": d.tensor(operands["condition"].shape, "bool")}


@ops.case("Clip")
def clip(d: Draw) -> Arguments:
    return {"input": d.any_tensor(), "min": d.maybe(lambda: _bound(d, -1)), "max": d.maybe(lambda: _bound(d, 1))}


def _bound(d: Draw, sign: int) -> float | int:
    if d.dtype.startswith(("float", "bfloat")):
        return d.choose(sign * 0.5, 0.0, sign * 2.0, -sign * 0.5, float("inf") * sign, float("nan"))
    return d.choose(0, 1, 2) if d.dtype.startswith("uint") else d.choose(sign, 0, 2 * sign, -sign)


_CAST = (*ALL, *WIDE_UNSIGNED, *NARROW_DTYPES, STRING)
#: The names of dtypes that are written as strings before version 6.
_NAMES = {"float32": "FLOAT", "float64": "DOUBLE"}


@ops.case("Cast", narrow=True, strings=True)
def cast(d: Draw) -> Arguments:
    assert d.schema is not None
    target = d.choose(*(dtype for dtype in _CAST if dtype in d.schema.outputs[0].dtypes))
    number = element_type(target)
    is_short = target.startswith("float8")
    domain = ANY if target == d.dtype or d.dtype == STRING else _exactly_held(target)
    named = _NAMES.get(target, target.upper())
    return {
        "input": d.tensor(d.shape(), domain=domain),
        "to": named if d.schema.version < 6 else number,
        "saturate": d.flag() if is_short and target != "float8_e8m0fnu" else OMIT,
        "round_mode": d.choose(OMIT, "up", "down", "nearest") if target == "float8_e8m0fnu" else OMIT,
    }


def _exactly_held(target: str) -> tuple[str | int | float, ...]:
    """Return the numbers whose cast the text defines: those in the range of an integer."""
    if target.startswith(("float", "bfloat", "bool", "string")):
        return ANY
    return ("range", 0, 3) if target.startswith("u") else ("range", -2, 1)


@ops.case("CastLike", narrow=True, strings=True)
def cast_like(d: Draw) -> Arguments:
    assert d.schema is not None
    target = d.choose(*(dtype for dtype in _CAST if dtype in d.schema.outputs[0].dtypes))
    domain = ANY if target == d.dtype or d.dtype == STRING else _exactly_held(target)
    saturate = d.flag() if target.startswith("float8") and target != "float8_e8m0fnu" else OMIT
    return {"input": d.tensor(d.shape(), domain=domain), "target_type": d.tensor((1,), target), "saturate": saturate}


_BITS = {"bool": 8, "bfloat16": 16}


@ops.case("BitCast", narrow=True)
def bit_cast(d: Draw) -> Arguments:
    assert d.schema is not None
    width = _width(d.dtype)
    alike = [dtype for dtype in _CAST if dtype in d.schema.outputs[0].dtypes and _width(dtype) == width]
    return {"input": d.any_tensor(), "to": element_type(d.choose(*alike))}


def _width(dtype: str) -> int:
    digits = "".join(c for c in dtype.partition("_")[0] if c.isdigit())
    return _BITS.get(dtype) or int(digits or 0)
