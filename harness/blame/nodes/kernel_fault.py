"""What a kernel does wrong, by the first element that is not what its operator's definition gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.core import Array

#: Relative differences up to which a result is inexact rather than another: of 16 bits, and of more.
_INEXACT_SHORT, _INEXACT = 0.05, 0.01
_SHORT = ("float16", "bfloat16")
#: How much a float64 result is off, relatively, that was rounded to float32 on the way.
_LEAST_ROUNDED, _MOST_ROUNDED = 2.0**-36, 2.0**-20
#: A few roundings of a float64 about 1, of which little may be left.
_ROUNDING_OF_ONE = 2.0**-50
#: The smallest number of float32 that has all of its bits.
_SMALLEST_NORMAL = 2.0**-126


def kernel_fault(inputs: Sequence[Array], right: Array, got: Array, place: Any = None) -> str:
    """The kind of difference between a definition's result and a kernel's: one of `harness.compare.faults`.

    Args:
        inputs: Of the node.
        right: What the definition gives.
        got: What the kernel gives.
        place: Index of the first wrong element; None where dtypes or shapes differ.
    """
    # An operator of a few steps goes wrong with tensors without elements in its own way, whatever it gives.
    if _takes_empty(inputs):
        return "wrong-without-elements"
    if place is None:
        return "wrong-dtype" if right.dtype != got.dtype else "wrong-shape"
    if right.dtype.kind == "b" and got.dtype.kind == "b":
        return "wrong-truth-values"
    dtypes = [str(array.dtype) for array in inputs]
    one, other = right[place], got[place]
    if right.dtype.kind in "iu" and got.dtype.kind in "iu":
        return "wrong-integers"
    if right.dtype.kind == "c":
        return "wrong-complex-numbers"
    return _wrong_float(float(one), float(other), dtypes)


def _wrong_float(right: float, got: float, dtypes: Sequence[str]) -> str:
    if math.isnan(right) or math.isnan(got):
        return "makes-nan" if math.isnan(got) else "kernel-loses-nan"
    if math.isinf(right) or math.isinf(got):
        return "makes-infinities" if math.isfinite(right) else "loses-infinities"
    if right == got:
        return "loses-sign-of-zero"
    if got == 0 and abs(right) < _SMALLEST_NORMAL:
        return "flushes-small-numbers"
    wide = dtypes[:1] == ["float64"]
    inexact = "inexact-float64" if wide else "inexact"
    # What cancels out leaves a little of numbers about 1, or nothing.
    if 0 in (right, got) and abs(right - got) <= _MOST_ROUNDED:
        return inexact
    off = abs(right - got) / max(abs(right), abs(got))
    # A kernel that rounds to float32 on the way is as exact as it can be for the rest.
    rounded = _LEAST_ROUNDED <= off <= _MOST_ROUNDED and abs(right - got) > _ROUNDING_OF_ONE
    if wide and rounded:
        return "float64-in-float32"
    most = _INEXACT_SHORT if any(short in dtypes for short in _SHORT) else _INEXACT
    return "wrong-numbers" if off > most else inexact


def _takes_empty(inputs: Sequence[Array]) -> bool:
    """Whether an input has no element; not so for a list of axes that is empty, behind the first input."""
    return any(
        not array.size and not (number and (str(array.dtype), array.shape) == ("int64", (0,)))
        for number, array in enumerate(inputs)
    )
