"""What a failure's own words name of its place, beyond the signature that many failures share."""

from __future__ import annotations

import math
import re

import numpy as np

#: Steps of PyTorch's exporter.
CAPTURE, DECOMPOSITION, TRANSLATION, OPTIMISER = "capture", "decomposition", "translation", "optimiser"
#: Kinds of facts.
DTYPES, RANK, NARROW, NODE, LOST = "dtypes", "rank", "narrow", "node", "lost"
FILE, SYMBOLIC, STEP, NO_OP, COMPLEX = "file", "symbolic", "step", "no op", "complex"
ASKING = "asking"

#: How a shape differs that has as many dimensions as it must.
SIZE = "size"
#: That it has no elements, and must have some.
EMPTY = "empty"
#: That it is the second operand of a node whose dtype does not fit; the first one's does.
SECOND = "second"

_STEPS = {"1": CAPTURE, "2": DECOMPOSITION, "3": TRANSLATION}
_STEP = re.compile(r"This is step ([123])/3")
_TRANSLATING = re.compile(r"Occurred when translating (\w+)\)")
_ASSERTION = re.compile(r'INTERNAL ASSERT FAILED at "[^"]*?\b(torch/csrc/[\w/]+\.cpp)"')
#: The function of PyTorch's that needs to know what only data tell.
_ASKING = re.compile(r"Caused by: \((\w[\w/]*\.py):\d+ in (\w+)\)")
#: A call that TorchScript has no operator for, by the types of its arguments.
_NO_OP = re.compile(r"We don't have an op for (\w+::\w+) .*?Argument types: (.*)", re.DOTALL)
_DTYPES = re.compile(r"dtype: output \d+: expected (\w+), got (\w+)")
_ELEMENT = re.compile(r"values: output [^:]+: expected (\S+), got (\S+)")
_SHAPES = re.compile(r"shape: output \d+: expected \[([^\]]*)\], got \[([^\]]*)\]")
#: No shorter dtype's numbers have so many digits.
_FLOAT64 = re.compile(r"\d{14}")
#: A node that is named after the PyTorch operator that it comes of, not after its own.
_NODE = re.compile(r"node name: node_([a-z_]\w*?)_*\d*(?:__\d+)?\)")
_SECOND = re.compile(r"\bB typestr: T, has unsupported type")
#: What the checker infers, and what the model says.
_DIFFER = re.compile(
    r"Inferred shape and existing shape differ in "
    r"(?:rank: \((\d+)\) vs \((\d+)\)|dimension \d+: \((\d+)\) vs \((\d+)\))"
)
#: An element that is NaN in PyTorch and a number here. Arithmetic that is put another way has an infinity.
_LOST = re.compile(r"NaN positions: output [^:]+: expected nan, got (?!nan|-?inf)")
_COMPLEX = re.compile(r"ScalarType Complex\w+ is an unexpected tensor scalar type")
#: How much a float64 result is off, relatively, that was rounded to float32 on the way.
_LEAST, _MOST = 2.0**-36, 2.0**-20
#: Up to this all whole numbers are numbers of float64.
_EXACT = 2.0**53
#: A regular expression that is found in every message that names something.
TELLING = "|".join(
    (
        r"^(?:dtype|shape|values|NaN positions): output",
        *("node name: node_+[a-z]", "existing shape differ", "This is step [123]/3"),
        *("Occurred when translating", "ScalarType Complex"),
        *("INTERNAL ASSERT FAILED", "^PassError"),
    )
)


def message_facts(message: str) -> tuple[str, ...]:
    """A kind, and what is named; () for nothing.

    It may be the dtypes that differ, whether a result has too few or too many dimensions, a number that had
    no room in a smaller dtype, that NaN is lost, the PyTorch operator of a node and how its shape differs, an
    operator that TorchScript does not have as it is called, a complex dtype that it does not know, a file of
    PyTorch's, a function of it that asks for what only data tell, a symbolic function, or a step of the
    export.
    """
    dtypes = _DTYPES.match(message)
    if dtypes:
        return DTYPES, dtypes[1], dtypes[2]
    shapes = _SHAPES.match(message)
    if shapes:
        right, wrong = (len(shape.split(",")) if shape else 0 for shape in shapes.groups())
        if wrong == right and "0" in shapes[2].split(", ") and "0" not in shapes[1].split(", "):
            return RANK, EMPTY
        return (RANK, "few" if wrong < right else "many") if wrong != right else ()
    element = _ELEMENT.match(message)
    if element:
        return _of_element(element[1], element[2])
    if _LOST.match(message):
        return (LOST,)
    node, differ = _NODE.search(message), _DIFFER.search(message)
    if differ:
        return NODE, node[1] if node else "", _differing(*differ.groups())
    if node:
        return (NODE, node[1], SECOND) if _SECOND.search(message) else (NODE, node[1])
    if _COMPLEX.search(message):
        return (COMPLEX,)
    no_op = _NO_OP.search(message)
    if no_op:
        return NO_OP, "bool" if "bool, " in no_op[2] else no_op[1]
    assertion = _ASSERTION.search(message)
    if assertion:
        return FILE, assertion[1]
    translating = _TRANSLATING.search(message)
    if translating:
        return SYMBOLIC, translating[1]
    asking = _ASKING.search(message)
    if asking:
        return ASKING, asking[2], asking[1]
    if message.startswith("PassError"):
        return STEP, OPTIMISER
    step = _STEP.search(message)
    return (STEP, _STEPS[step[1]]) if step else ()


def _differing(inferred: str | None, declared: str | None, size: str | None, right: str | None) -> str:
    """How a shape differs from the declared one: too few or too many dimensions, or in one of them."""
    if inferred and declared:
        return "few" if int(inferred) < int(declared) else "many"
    return EMPTY if size == "0" and right != "0" else SIZE


def is_lossy(right: str, wrong: str) -> bool:
    """Whether a dtype does not hold all values of another; both by name."""
    held, holding = (name.replace("bfloat16", "float16") for name in (right, wrong))
    try:
        return not np.can_cast(np.dtype(held), np.dtype(holding))
    except TypeError:
        return True


def _of_element(expected: str, got: str) -> tuple[str, ...]:
    """What a wrong element tells of the dtype that it was computed in."""
    try:
        right, wrong = float(expected), float(got)
    except ValueError:
        return ()
    if _is_wrapped(right, wrong) or _is_narrow(expected, got):
        return (NARROW,)
    return ()


def _is_wrapped(right: float, wrong: float) -> bool:
    """Whether a number has the last bits of another, as where an integer in it had no room for more."""
    if wrong == 0 or not abs(right) < _EXACT:
        return False
    return any(
        (right - wrong) % 2**bits == 0 and low <= wrong < low + 2**bits and not low <= right < low + 2**bits
        for bits in (8, 16, 32)
        for low in (0, -(2 ** (bits - 1)))
    )


def _is_narrow(expected: str, got: str) -> bool:
    """Whether a number looks like one of float64 that was computed or kept in float32."""
    right, wrong = float(expected), float(got)
    digits = (text.partition("e")[0].replace(".", "") for text in (expected, got))
    if not any(map(_FLOAT64.search, digits)) or not math.isfinite(right - wrong):
        return False
    size = max(abs(right), abs(wrong))
    return _LEAST * size <= abs(right - wrong) <= _MOST * size
