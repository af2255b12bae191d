"""Arrays of the dtypes that ONNX has, from the recipes of invocations."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx

from harness.core import values
from harness.core.dtypes import INT_RANGE, Array
from harness.core.invocation import Literal, TensorSpec
from harness.core.tensors import build_tensor
from harness.core.torch_arrays import to_numpy

#: Dtypes that PyTorch lacks or computes little in → the dtype whose values are drawn, and then rounded.
_DRAWN_AS = {
    **dict.fromkeys(("int4", "int2"), "int8"),
    **dict.fromkeys(("uint4", "uint2"), "uint8"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), "float16"),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn"), "float16"),
}
#: Words that stand for the integers of a recipe in a tensor of strings.
_WORDS = ("", "a", "b", "ab", "A", " ", "ä", "1", "-0", "a b", "\n", "日本")
#: Dtypes that are packed or short, which only some operators take.
NARROW_DTYPES = tuple(_DRAWN_AS)
STRING = "string"


def build_array(spec: TensorSpec) -> Array:
    """Return the array that `spec` describes, bit for bit the same on every machine.

    Strings are chosen by the integers of the recipe. Integers of four and two bits wrap around.
    """
    if spec.dtype == STRING:
        return _strings(spec)
    if spec.dtype not in _DRAWN_AS:
        return to_numpy(build_tensor(spec))
    drawn = _DRAWN_AS[spec.dtype]
    if isinstance(spec.values, Literal):
        held = np.asarray(spec.values.values, np.float64 if drawn == "float16" else np.int64)
    else:
        held = values.compute(spec.values, drawn, spec.numel)
    if drawn in INT_RANGE:
        info = ml_dtypes.iinfo(spec.dtype)  # type: ignore[no-untyped-call]
        low, high = int(info.min), int(info.max)
        held = (held.astype(np.int64) - low) % (high - low + 1) + low
    with np.errstate(all="ignore"):
        return np.asarray(held.astype(np.dtype(spec.dtype)).reshape(spec.shape))


def element_type(dtype: str) -> int:
    """Return ONNX's number of a dtype."""
    if dtype == STRING:
        return onnx.TensorProto.STRING
    return int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _strings(spec: TensorSpec) -> Array:
    if isinstance(spec.values, Literal):
        held = np.asarray(spec.values.values, object)
    else:
        places = values.compute(spec.values, "int64", spec.numel).astype(np.int64) % len(_WORDS)
        held = np.asarray([_WORDS[place] for place in places], object)
    return held.reshape(spec.shape)
