"""Names of dtypes, grouped as operator cases speak of them.

A dtype is a string here (``float32``), so that invocations stay plain values and the record,
the reports and goldens need no PyTorch to read them.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

#: Feeds and outputs. bfloat16 and float8 travel as `ml_dtypes` arrays, everything else as plain NumPy; arrays
#: are C-contiguous.
Array: TypeAlias = npt.NDArray[Any]

FLOATS: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")
INTS: tuple[str, ...] = ("int64", "int32", "int16", "int8", "uint8")
SIGNED_INTS: tuple[str, ...] = INTS[:-1]
#: PyTorch moves and compares them, but promotes them to nothing and converts no negative number to them.
WIDE_UNSIGNED: tuple[str, ...] = ("uint16", "uint32", "uint64")
UNSIGNED: tuple[str, ...] = ("uint8", *WIDE_UNSIGNED)
BOOL: tuple[str, ...] = ("bool",)
NUMBERS: tuple[str, ...] = FLOATS + INTS
INTEGRAL: tuple[str, ...] = INTS + BOOL
ALL: tuple[str, ...] = NUMBERS + BOOL
#: PyTorch's CPU kernels of many linear-algebra and vision operators stop here.
FULL_FLOATS: tuple[str, ...] = ("float32", "float64")

#: Complex dtype → that of its parts. ONNX has operators for none of them: an exporter that takes complex
#: numbers represents them as pairs of reals in one more dimension.
PARTS: dict[str, str] = {"complex64": "float32", "complex128": "float64"}
COMPLEX: tuple[str, ...] = tuple(PARTS)

#: Significand precision p in bits (the implicit one counted), and the range of finite values.
PRECISION: dict[str, int] = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}

INT_RANGE: dict[str, tuple[int, int]] = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint8": (0, 2**8 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}


def is_float(dtype: str) -> bool:
    """Whether `dtype` is a real floating-point dtype."""
    return dtype in PRECISION


def is_integer(dtype: str) -> bool:
    """Whether `dtype` is an integer dtype; bool is not."""
    return dtype in INT_RANGE


def wider_float(dtype: str) -> str:
    """The dtype of the oracle for `dtype`: float64 for floats, complex128 for complex, else itself."""
    if dtype in PARTS:
        return "complex128"
    return "float64" if is_float(dtype) else dtype
