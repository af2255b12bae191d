"""Names of dtypes, in the groups that operator cases use.

A dtype is a string here (``float32``), so that invocations are plain values, and records, reports and goldens can be
read without PyTorch.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

#: A feed or an output, C-contiguous. bfloat16 and float8 are `ml_dtypes` arrays, other dtypes plain NumPy.
Array: TypeAlias = npt.NDArray[Any]

FLOATS: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
INTS: tuple[str, ...] = ("int64", "int32", "int16", "int8", "uint8")
SIGNED_INTS: tuple[str, ...] = INTS[:-1]
#: PyTorch moves and compares these, but does not promote them or convert negative numbers to them.
WIDE_UNSIGNED: tuple[str, ...] = ("uint16", "uint32", "uint64")
UNSIGNED: tuple[str, ...] = ("uint8", *WIDE_UNSIGNED)
BOOL: tuple[str, ...] = ("bool",)
NUMBERS: tuple[str, ...] = FLOATS + INTS
INTEGRAL: tuple[str, ...] = INTS + BOOL
ALL: tuple[str, ...] = NUMBERS + BOOL
#: The dtypes that PyTorch's CPU kernels of many linear-algebra and vision operators support.
FULL_FLOATS: tuple[str, ...] = ("float32", "float64")

#: Complex dtype → dtype of its parts. ONNX operators take no complex dtype: exporters represent a complex tensor as
#: pairs of reals in an additional last dimension.
PARTS: dict[str, str] = {"complex64": "float32", "complex128": "float64"}
COMPLEX: tuple[str, ...] = tuple(PARTS)

_LIMITS = {name: ml_dtypes.finfo(name) for name in ("float64", *FLOATS)}  # type: ignore[no-untyped-call]
#: Precision of the significand in bits, including the implicit bit.
PRECISION: dict[str, int] = {name: int(limits.nmant) + 1 for name, limits in _LIMITS.items()}
#: Exponent of the smallest normal number (IEEE 754-2019 §3.3; bfloat16 has float32's).
MIN_EXPONENT: dict[str, int] = {name: int(limits.minexp) for name, limits in _LIMITS.items()}
#: The largest finite number.
LARGEST: dict[str, float] = {name: float(limits.max) for name, limits in _LIMITS.items()}

#: The smallest and the largest integer.
INT_RANGE: dict[str, tuple[int, int]] = {
    name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in (*reversed(SIGNED_INTS), *UNSIGNED)
}


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a real floating-point dtype."""
    return dtype in PRECISION


def is_integer(dtype: str) -> bool:
    """Whether `dtype` is an integer dtype; bool is not."""
    return dtype in INT_RANGE


def wider_float(dtype: str) -> str:
    """Return the dtype that the oracle computes in: float64 for floats, complex128 for complex, else `dtype` itself."""
    if dtype in PARTS:
        return "complex128"
    return "float64" if is_float(dtype) else dtype
