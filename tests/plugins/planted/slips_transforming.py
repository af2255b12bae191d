"""Slips in complex numbers, Fourier transforms, quantisation and what a tensor says of itself."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from planted.defect import Value, ints, is_floating, number, op, plant


def _pair(real: Value, imaginary: Value) -> Value:
    last = ints(-1)
    return op.Concat(op.Unsqueeze(real, last), op.Unsqueeze(imaginary, last), axis=-1)


@plant("polar", "sine and cosine are swapped")
def polar(slipped: bool, abs: Value, angle: Value) -> Value:
    cosine, sine = op.Mul(abs, op.Cos(angle)), op.Mul(abs, op.Sin(angle))
    return _pair(sine, cosine) if slipped else _pair(cosine, sine)


@plant("complex", "the imaginary part is negated")
def complex_(slipped: bool, real: Value, imag: Value) -> Value:
    if slipped:
        imag = op.Neg(imag)
    zero = op.CastLike(op.Constant(value_float=0.0), real)
    # Broadcast: adding zero would lose the sign of one.
    return _pair(op.Expand(real, op.Shape(op.Add(imag, zero))), op.Expand(imag, op.Shape(op.Add(real, zero))))


@plant("_fft_r2c", "a transform of several dims is normalised for the last alone")
def fft_r2c(slipped: bool, self: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Value:
    rank = len(self.shape)
    # DFT of opset 18 has a batch dimension in front and takes the parts of a number from the last.
    result = op.Unsqueeze(self, ints(0, rank + 1))
    scale = 1.0
    for place, axis in enumerate(reversed([d % rank for d in dim])):
        result = op.DFT(result, axis=axis + 1, onesided=int(onesided and not place))
        if not (slipped and place):
            scale *= {0: 1.0, 1: float(self.shape[axis]) ** -0.5, 2: 1.0 / max(int(self.shape[axis]), 1)}[normalization]
    return op.Squeeze(op.Mul(result, number(scale, self)), ints(0))


@plant("fake_quantize_per_tensor_affine", "the zero point is added after clipping")
def fake_quantize(slipped: bool, self: Value, scale: float, zero_point: int, quant_min: int, quant_max: int) -> Value:
    zero, low, high = (number(value, self) for value in (zero_point, quant_min, quant_max))
    steps = op.Round(op.Mul(self, number(1.0 / scale, self)))
    early, late = (zero, number(0, self)) if not slipped else (number(0, self), zero)
    kept = op.Add(op.Clip(op.Add(steps, early), low, high), late)
    return op.Mul(op.Sub(kept, zero), number(scale, self))


@plant("_local_scalar_dense", "the number is rounded to an integer")
def local_scalar_dense(slipped: bool, self: Value) -> Value:
    dtype = self.dtype
    scalar = op.Reshape(self, ints(1))
    if slipped and is_floating(self):
        scalar = op.Floor(scalar)
    scalar = op.Squeeze(scalar)
    return op.Cast(scalar, to=onnx.TensorProto.FLOAT) if is_floating(self) else op.Cast(scalar, to=int(dtype))
