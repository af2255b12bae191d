"""Slips in what is computed element by element."""

from __future__ import annotations

import math

from planted.defect import Value, number, op, plant

# Activations


@plant("celu", "alpha is dropped")
def celu(slipped: bool, self: Value, alpha: float = 1.0) -> Value:
    return op.Celu(self, alpha=1.0 if slipped else alpha)


@plant("leaky_relu", "the slope is a constant")
def leaky_relu(slipped: bool, self: Value, negative_slope: float = 0.01) -> Value:
    return op.LeakyRelu(self, alpha=0.01 if slipped else negative_slope)


@plant("gelu", "approximate is ignored")
def gelu(slipped: bool, self: Value, approximate: str = "none") -> Value:
    half, one = number(0.5, self), number(1, self)
    if approximate == "none" or slipped:
        inner = op.Erf(op.Mul(self, number(0.5**0.5, self)))
    else:
        cube = op.Mul(op.Mul(self, self), self)
        polynomial = op.Add(self, op.Mul(number(0.044715, self), cube))
        inner = op.Tanh(op.Mul(number((2 / math.pi) ** 0.5, self), polynomial))
    return op.Mul(op.Mul(half, self), op.Add(one, inner))


@plant("elu", "scale is skipped")
def elu(slipped: bool, self: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    low = op.Sub(op.Exp(op.Mul(self, number(input_scale, self))), number(1, self))
    result = op.Where(op.Greater(self, number(0, self)), self, op.Mul(low, number(alpha, self)))
    return result if slipped else op.Mul(result, number(scale, self))


@plant("relu", "NaN is lost")
def relu(slipped: bool, self: Value) -> Value:
    zero = number(0, self)
    if slipped:
        return op.Where(op.Greater(self, zero), self, zero)
    return op.Where(op.Less(self, zero), zero, self)


@plant("softplus", "beta is dropped")
def softplus(slipped: bool, self: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    factor = number(1 if slipped else beta, self)
    scaled = op.Mul(self, factor)
    return op.Where(op.Greater(scaled, number(threshold, self)), self, op.Div(op.Softplus(scaled), factor))


@plant("glu", "the halves are swapped")
def glu(slipped: bool, self: Value, dim: int = -1) -> Value:
    first, second = op.Split(self, axis=dim, num_outputs=2)
    if slipped:
        first, second = second, first
    return op.Mul(first, op.Sigmoid(second))


@plant("hardtanh", "the upper bound is a constant")
def hardtanh(slipped: bool, self: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    low, high = number(min_val, self), number(1 if slipped else max_val, self)
    return op.Where(op.Greater(self, high), high, op.Where(op.Less(self, low), low, self))


@plant("sigmoid", "the hard one is taken")
def sigmoid(slipped: bool, self: Value) -> Value:
    return op.HardSigmoid(self, alpha=0.25, beta=0.5) if slipped else op.Sigmoid(self)


# Functions of one tensor


@plant("round", "ties go away from zero")
def round_ties(slipped: bool, self: Value) -> Value:
    if not slipped:
        return op.Round(self)
    return op.Mul(op.Sign(self), op.Floor(op.Add(op.Abs(self), number(0.5, self))))


@plant("round.decimals", "decimals is ignored")
def round_decimals(slipped: bool, self: Value, decimals: int = 0) -> Value:
    if slipped:
        return op.Round(self)
    ten = number(10.0 ** abs(decimals), self)
    if decimals < 0:
        return op.Mul(op.Round(op.Div(self, ten)), ten)
    return op.Div(op.Round(op.Mul(self, ten)), ten)


@plant("trunc", "floor for truncation")
def trunc(slipped: bool, self: Value) -> Value:
    if slipped:
        return op.Floor(self)
    return op.Where(op.Less(self, number(0, self)), op.Ceil(self), op.Floor(self))


@plant("frac", "the integer part is the floor")
def frac(slipped: bool, self: Value) -> Value:
    if slipped:
        return op.Sub(self, op.Floor(self))
    whole = op.Where(op.Less(self, number(0, self)), op.Ceil(self), op.Floor(self))
    return op.Sub(self, whole)


@plant("rad2deg", "π is 3.14")
def rad2deg(slipped: bool, self: Value) -> Value:
    return op.Mul(self, number(180 / (3.14 if slipped else math.pi), self))


@plant("sinc", "zero is forgotten")
def sinc(slipped: bool, self: Value) -> Value:
    angle = op.Mul(self, number(math.pi, self))
    quotient = op.Div(op.Sin(angle), angle)
    if slipped:
        return quotient
    return op.Where(op.Equal(self, number(0, self)), number(1, self), quotient)


@plant("log2", "the logarithm is natural")
def log2(slipped: bool, self: Value) -> Value:
    logarithm = op.Log(self)
    return logarithm if slipped else op.Div(logarithm, number(math.log(2), self))


@plant("logit", "eps is ignored")
def logit(slipped: bool, self: Value, eps: float | None = None) -> Value:
    one = number(1, self)
    if eps is not None and not slipped:
        low, high = number(eps, self), number(1 - eps, self)
        self = op.Where(op.Greater(self, high), high, op.Where(op.Less(self, low), low, self))
    return op.Log(op.Div(self, op.Sub(one, self)))


# Functions of several tensors


@plant("add.Tensor", "alpha is dropped")
def add(slipped: bool, self: Value, other: Value, alpha: float = 1.0) -> Value:
    return op.Add(self, other if slipped else op.Mul(other, number(alpha, other)))


@plant("sub.Tensor", "the operands are swapped")
def sub(slipped: bool, self: Value, other: Value, alpha: float = 1.0) -> Value:
    other = op.Mul(other, number(alpha, other))
    return op.Sub(other, self) if slipped else op.Sub(self, other)


@plant("div.Tensor_mode", "floor for truncation")
def trunc_division(slipped: bool, self: Value, other: Value, rounding_mode: str | None = None) -> Value:
    quotient = op.Div(self, other)
    if rounding_mode is None:
        return quotient
    if slipped or rounding_mode == "floor":
        return op.Floor(quotient)
    return op.Where(op.Less(quotient, number(0, quotient)), op.Ceil(quotient), op.Floor(quotient))


@plant("remainder.Tensor", "the sign is the dividend's")
def remainder(slipped: bool, self: Value, other: Value) -> Value:
    if slipped or not self.dtype.is_floating_point():
        return op.Mod(self, other, fmod=int(slipped))
    return op.Sub(self, op.Mul(op.Floor(op.Div(self, other)), other))


@plant("fmod.Tensor", "the sign is the divisor's")
def fmod(slipped: bool, self: Value, other: Value) -> Value:
    if slipped:
        return op.Sub(self, op.Mul(op.Floor(op.Div(self, other)), other))
    return op.Mod(self, other, fmod=1)


@plant("pow.Tensor_Scalar", "the exponent is cast to an integer")
def power(slipped: bool, self: Value, exponent: float) -> Value:
    return op.Pow(self, number(int(exponent) if slipped else exponent, self))


@plant("maximum", "NaN on the left is lost")
def maximum(slipped: bool, self: Value, other: Value) -> Value:
    if slipped:
        return op.Where(op.Greater(self, other), self, other)
    larger = op.Where(op.Less(self, other), other, self)
    return op.Where(op.Equal(other, other), larger, other)


@plant("addcmul", "value is dropped")
def addcmul(slipped: bool, self: Value, tensor1: Value, tensor2: Value, value: float = 1.0) -> Value:
    product = op.Mul(tensor1, tensor2)
    return op.Add(self, product if slipped else op.Mul(product, number(value, product)))


@plant("addcdiv", "value divides")
def addcdiv(slipped: bool, self: Value, tensor1: Value, tensor2: Value, value: float = 1.0) -> Value:
    factor, quotient = number(value, self), op.Div(tensor1, tensor2)
    return op.Add(self, op.Div(quotient, factor) if slipped else op.Mul(quotient, factor))


@plant("lerp.Scalar", "the weight is the other end's")
def lerp(slipped: bool, self: Value, end: Value, weight: float) -> Value:
    share = number(1 - weight if slipped else weight, self)
    return op.Add(self, op.Mul(share, op.Sub(end, self)))


@plant("logaddexp", "large exponents overflow")
def logaddexp(slipped: bool, self: Value, other: Value) -> Value:
    if slipped:
        return op.Log(op.Add(op.Exp(self), op.Exp(other)))
    larger = op.Where(op.Less(self, other), other, self)
    distance = op.Abs(op.Sub(self, other))
    return op.Add(larger, op.Log(op.Add(number(1, self), op.Exp(op.Neg(distance)))))


@plant("heaviside", "the values at zero are ignored")
def heaviside(slipped: bool, self: Value, values: Value) -> Value:
    zero, one = number(0, self), number(1, self)
    if slipped:
        return op.Where(op.Less(self, zero), zero, one)
    step = op.Where(op.Greater(self, zero), one, zero)
    return op.Where(op.Equal(self, zero), values, step)


@plant("xlogy.Tensor", "zero times infinity is not a number")
def xlogy(slipped: bool, self: Value, other: Value) -> Value:
    product = op.Mul(self, op.Log(other))
    if slipped:
        return product
    zero = number(0, self)
    return op.Where(op.And(op.Equal(self, zero), op.Equal(other, other)), zero, product)


@plant("bitwise_not", "the negative is taken")
def bitwise_not(slipped: bool, self: Value) -> Value:
    if str(self.dtype) == "BOOL":
        return op.Not(self)
    return op.Neg(self) if slipped else op.BitwiseNot(self)


@plant("bitwise_or.Tensor", "or is exclusive")
def bitwise_or(slipped: bool, self: Value, other: Value) -> Value:
    if str(self.dtype) == "BOOL":
        return op.Xor(self, other) if slipped else op.Or(self, other)
    return op.BitwiseXor(self, other) if slipped else op.BitwiseOr(self, other)
