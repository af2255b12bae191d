"""What a failure's own words name of its place, beyond the signature that many failures share."""

from __future__ import annotations

import re

import numpy as np

from harness.analyse.wrong_elements import wrong_element

#: Steps of PyTorch's exporter.
CAPTURE, DECOMPOSITION, TRANSLATION, OPTIMISER = "capture", "decomposition", "translation", "optimiser"
#: Kinds of facts.
DTYPES, RANK, NODE, ELEMENT = "dtypes", "rank", "node", "element"
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
_SHAPES = re.compile(r"shape: output \d+: expected \[([^\]]*)\], got \[([^\]]*)\]")
#: A node that is named after the PyTorch operator that it comes of, not after its own.
_NODE = re.compile(r"node name: node_([a-z_]\w*?)_*\d*(?:__\d+)?\)")
_SECOND = re.compile(r"\bB typestr: T, has unsupported type")
#: What the checker infers, and what the model says.
_DIFFER = re.compile(
    r"Inferred shape and existing shape differ in "
    r"(?:rank: \((\d+)\) vs \((\d+)\)|dimension \d+: \((\d+)\) vs \((\d+)\))"
)
_COMPLEX = re.compile(r"ScalarType Complex\w+ is an unexpected tensor scalar type")
#: A regular expression that is found in every message that names something.
TELLING = "|".join(
    (
        r"^(?:dtype|shape|values|NaN positions|infinities|overflow to infinity): output",
        *("node name: node_+[a-z]", "existing shape differ", "This is step [123]/3"),
        *("Occurred when translating", "ScalarType Complex"),
        *("INTERNAL ASSERT FAILED", "^PassError"),
    )
)


def message_facts(message: str) -> tuple[str, ...]:
    """A kind, and what is named; () for nothing.

    It may be the dtypes that differ, whether a result has too few or too many dimensions, the kind of a
    wrong element (see `harness.analyse.wrong_elements`), the PyTorch operator of a node and how its shape
    differs, an operator that TorchScript does not have as it is called, a complex dtype that it does not
    know, a file of PyTorch's, a function of it that asks for what only data tell, a symbolic function, or a
    step of the export.
    """
    dtypes = _DTYPES.match(message)
    if dtypes:
        return DTYPES, dtypes[1], dtypes[2]
    shapes = _SHAPES.match(message)
    if shapes:
        right, wrong = (shape.split(", ") if shape else [] for shape in shapes.groups())
        if len(right) != len(wrong):
            return RANK, "few" if len(wrong) < len(right) else "many"
        emptied = any(got == "0" != size for size, got in zip(right, wrong, strict=True))
        return (RANK, EMPTY) if emptied else ()
    element = wrong_element(message)
    if element:
        return ELEMENT, element
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
