"""What a backend's kernel does wrong, read from what blame says of a node."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

WRONG_INTEGERS = "gives wrong integers"
WITHOUT_ELEMENTS = "goes wrong with tensors without elements"
INEXACT_NUMBERS, WRONG_NUMBERS = "is inexact", "gives wrong numbers"
INEXACT_FLOAT64, NARROW_FLOAT64 = "is inexact in float64", "computes float64 in float32"
SMALL_NUMBERS = "takes small numbers for zero"
MAKES_INFINITIES, MAKES_NAN = "makes infinities of numbers", "makes NaN of numbers"

_NODE = r"(?P<operator>\w+) \(node \d+(?:; (?P<inside>.*?))?\)"
_WRONG = re.compile(
    rf"\S+ computes {_NODE} wrongly: of (?P<taken>.*?) ?its definition gives (?P<right>.*?), "
    r"it gives (?P<got>.*?)\. With the definition's result",
    re.DOTALL,
)
_WRONG_NUMBER = re.compile(
    rf"\S+ computes {_NODE} wrongly: of .* it gives another number of results", re.DOTALL
)
_REFUSED = re.compile(rf"\S+ does not run {_NODE} by itself, which is valid and has a defined result: ")
#: Attributes that choose among the algorithms of an operator.
_MODE = re.compile(r"\b(mode|reduction|approximate)=(\w+)")
#: A tensor's dtype and shape. One of few elements is written with its values, after a space.
_FORM = re.compile(r"(\w+)\[([\d, ]*)\]")
_PLACE = re.compile(r" at \[[\d,]*\]$")
_WHOLE = re.compile(r"-?\d+")
#: Relative differences up to which a result is inexact rather than another: of 16 bits, and of more.
_INEXACT_SHORT, _INEXACT = 0.05, 0.01
_SHORT = ("float16", "bfloat16")
#: How much a float64 result is off, relatively, that was rounded to float32 on the way.
_LEAST_ROUNDED, _MOST_ROUNDED = 2.0**-36, 2.0**-20
#: A few roundings of a float64 about 1, of which little may be left.
_ROUNDING_OF_ONE = 2.0**-50
#: The smallest number of float32 that has all of its bits.
_SMALLEST_NORMAL = 2.0**-126


@dataclass(frozen=True, order=True)
class KernelFault:
    """What is wrong with the kernel of an ONNX operator.

    Attributes:
        operator: Of a wrong result with the algorithm that an attribute chooses: ``Resize (mode=nearest)``.
        words: ``gives wrong integers``; "" where the failure's own message says it.
    """

    operator: str
    words: str = ""


def kernel_fault(evidence: str) -> KernelFault | None:
    """The node that the evidence calls wrong or says is not run; None where it names none."""
    wrong = _WRONG.search(evidence)
    if wrong:
        words = _wrong_result(wrong["taken"], wrong["inside"] or "", wrong["right"], wrong["got"])
        return KernelFault(_with_mode(wrong), words)
    number = _WRONG_NUMBER.search(evidence)
    if number:
        return KernelFault(_with_mode(number), "gives a wrong number of results")
    refused = _REFUSED.search(evidence)
    return KernelFault(refused["operator"]) if refused else None


def _with_mode(node: re.Match[str]) -> str:
    modes = [f"{name}={value}" for name, value in _MODE.findall(node["inside"] or "")]
    return f"{node['operator']} ({', '.join(modes)})" if modes else node["operator"]


def _wrong_result(taken: str, inside: str, right: str, got: str) -> str:
    """The kind of difference between a definition's result and a kernel's, at the first wrong element."""
    # An operator of a few steps goes wrong with tensors without elements in its own way, whatever it gives.
    if _takes_empty(taken):
        return WITHOUT_ELEMENTS
    forms = _FORM.fullmatch(right), _FORM.fullmatch(got)
    if forms[0] and forms[1]:
        return "gives a wrong dtype" if forms[0][1] != forms[1][1] else "gives a wrong shape"
    right, got = (_PLACE.sub("", value) for value in (right, got))
    if {right, got} <= {"True", "False"}:
        return "gives wrong truth values"
    dtypes = inside.partition(";")[0]
    if _WHOLE.fullmatch(right) and _WHOLE.fullmatch(got) and "bfloat16" not in dtypes:
        return WRONG_INTEGERS
    try:
        return _wrong_float(float(right), float(got), dtypes)
    except ValueError:
        return "gives wrong complex numbers"


def _wrong_float(right: float, got: float, dtypes: str) -> str:
    if math.isnan(right) or math.isnan(got):
        return MAKES_NAN if math.isnan(got) else "loses NaN"
    if math.isinf(right) or math.isinf(got):
        return MAKES_INFINITIES if math.isfinite(right) else "loses infinities"
    if right == got:
        return "loses the sign of zero"
    if got == 0 and abs(right) < _SMALLEST_NORMAL:
        return SMALL_NUMBERS
    # What cancels out leaves a little of numbers about 1, or nothing.
    if 0 in (right, got) and abs(right - got) <= _MOST_ROUNDED:
        return INEXACT_FLOAT64 if dtypes.startswith("float64") else INEXACT_NUMBERS
    off = abs(right - got) / max(abs(right), abs(got))
    # A kernel that rounds to float32 on the way is as exact as it can be for the rest.
    rounded = _LEAST_ROUNDED <= off <= _MOST_ROUNDED and abs(right - got) > _ROUNDING_OF_ONE
    if dtypes.startswith("float64") and rounded:
        return NARROW_FLOAT64
    if off > (_INEXACT_SHORT if any(short in dtypes for short in _SHORT) else _INEXACT):
        return WRONG_NUMBERS
    return INEXACT_FLOAT64 if dtypes.startswith("float64") else INEXACT_NUMBERS


def _takes_empty(taken: str) -> bool:
    """Whether an input has no element; not so for a list of axes that is empty, behind the first input."""
    forms = [(match[1], match[2], match.start()) for match in _FORM.finditer(taken)]
    return any(
        "0" in shape.replace(" ", "").split(",") and not (start and (dtype, shape) == ("int64", "0"))
        for dtype, shape, start in forms
    )
