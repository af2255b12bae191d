"""Where a defect is, and what is wrong there: the two halves of a root cause.

| blame | place |
| --- | --- |
| a backend | the ONNX operator whose kernel is wrong, by the evidence or the words of a refusal |
| a converter | its conversion function; a pass or a step of the export where the failure names one |
| PyTorch | a kernel, a decomposition, the rules of shapes and dtypes |
| a specification | the operator whose text leaves the result open |
"""

from __future__ import annotations

import re
from collections.abc import Callable

from harness.analyse.blame_facts import RESTS_ON_OPEN
from harness.analyse.converter_place import (
    converter_place,
    makes_complex,
    takes_for_numbers,
    unpromoted,
)
from harness.analyse.defect_place import FailedRow, Place
from harness.analyse.kernel_fault import WITHOUT_ELEMENTS, WRONG_INTEGERS
from harness.analyse.message_facts import DTYPES, EMPTY, NO_OP, NODE, RANK, SIZE, is_lossy
from harness.analyse.wrong_elements import BEYOND, DIGITS, LEFT, LOST, NARROW, THROUGH_INTEGERS
from harness.compare import ELEMENTWISE, FLUSHED, NAN_POSITIONS, OVERFLOW, Stage

ANOTHER_DTYPE = "computes in another dtype than the call"
#: A result in float64 where float32 is promised is no sign of a computation in a smaller dtype.
LARGER_DTYPE = "gives a larger dtype than the call"
UNDEFINED_DTYPE = "gives nodes dtypes that they are not defined for"
LOSES_NAN = "loses NaN"
#: Known by a number alone: nothing in the graph is known to have another dtype.
LOSES_DIGITS = "is as exact as float32"
LEAVES_RANGE = "leaves the range of its numbers"
#: What is said of single elements of a result, by which the algorithms of an operator may differ.
OF_ELEMENTS = frozenset({*ELEMENTWISE, LOSES_NAN, LEAVES_RANGE})
IGNORES = "ignores "
RESTS = "rests on "
RESTS_ON_CAST = f"{RESTS}what the specification of Cast leaves open"
RANKLESS = "asks for dimensions that are not there"
UNFIT = "makes shapes that do not fit"
#: How the shape of a result differs → what is wrong.
_DIMENSIONS = {
    "few": "gives too few dimensions",
    "many": "gives too many dimensions",
    EMPTY: "leaves a result without elements",
    SIZE: "shape",
}
#: What may be said of a result's shape.
SHAPES = frozenset({"shape", UNFIT, *_DIMENSIONS.values()})
OPTIMISATION = "graph optimisation, "
#: A pass of ONNX Runtime's, as a place, that runs kernels.
FOLDING = f"{OPTIMISATION}ConstantFolding"
#: Where the backend has no part in the failure yet.
BEFORE_BACKEND = frozenset({Stage.REFERENCE, Stage.CONVERT, Stage.CHECK})
#: Words of refusals that name the kernel.
_NO_KERNEL = re.compile(r"implementation for (\w+)\(")
_KERNEL = re.compile(r"\brunning (\w+):|^\w+: (\w+) \[\w+Error\]")
#: What ONNX Runtime's optimiser makes of a node and one beside it runs the node's kernel: ``FusedMatMul``.
_FUSED = "Fused"
_OF_SEQUENCES = re.compile(r"Sequence|Optional|ConcatFromSequence")


def place_of(blame: str, row: FailedRow) -> Place:
    """Where the defect is that a failed row comes of."""
    return _PLACES.get(blame, _unknown)(row)


def wrong_of(blame: str, row: FailedRow) -> str:
    """What is wrong there, in words that all failures of the defect share."""
    facts = row.facts
    if blame in ("backend", "spec") and facts.words:
        return facts.words
    if facts.why.startswith("by "):
        general = _OF_ALL_KINDS.search(facts.passes)
        # What a pass does to a graph is one thing, whatever elements it shows in.
        words = "values" if row.words in ELEMENTWISE else row.words
        return f"{words}, {facts.why}" + (f" of {row.family}" if general else "")
    if blame == "converter":
        return _of_converter(row)
    if blame == "pytorch" and row.words in ELEMENTWISE:
        return "values"
    return _ALIKE.get(row.words, row.words)


#: Small numbers that become zero are wrong like others, and large ones that become infinite like infinities.
_ALIKE = {FLUSHED: "values", OVERFLOW: "infinities"}


def _of_converter(row: FailedRow) -> str:
    facts = row.facts
    promotion = unpromoted(row)
    if promotion:
        return promotion
    if row.said[:1] == (NO_OP,):
        what = row.said[1]
        return "takes no bool for a number" if what == "bool" else f"has no {what} for such arguments"
    if makes_complex(row):
        return UNDEFINED_DTYPE
    if row.stage in (Stage.REFERENCE, Stage.CONVERT):
        return row.words
    if facts.why == "constant" and row.converter == "torchscript":
        return "makes a constant of what depends on the inputs"
    if takes_for_numbers(row):
        return "takes 0-d tensors for numbers"
    if facts.argument:
        return ANOTHER_DTYPE if facts.argument == "dtype" else f"{IGNORES}`{facts.argument}`"
    if row.said[:1] == (DTYPES,) and not is_lossy(*row.said[1:]):
        return LARGER_DTYPE
    if row.stage is Stage.CHECK and _WRONG_TYPE.search(row.words):
        return UNDEFINED_DTYPE
    narrow = facts.why == "narrowed" or row.element == NARROW
    if narrow or row.said[:1] == (DTYPES,) or _MIXED.search(row.words):
        return ANOTHER_DTYPE
    if row.element == DIGITS:
        # A result of float64 that is asked for of others must be computed in it. Where a part of the call has
        # no more digits than float32, that says nothing.
        return ANOTHER_DTYPE if row.called.is_short else "values" if row.called.is_mixed else LOSES_DIGITS
    if facts.why == RESTS_ON_OPEN and row.words in ELEMENTWISE:
        return f"{RESTS}what the specification of {facts.operator} leaves open"
    # What is made up, or was no integer where it had to be one, is wrong in all ways.
    if row.words in ELEMENTWISE and (facts.why == "constant" or row.element == THROUGH_INTEGERS):
        return "values"
    if row.element == LOST:
        return LOSES_NAN
    if row.element in (LEFT, BEYOND) or row.words in (NAN_POSITIONS, OVERFLOW):
        return LEAVES_RANGE
    words = _of_dimensions(row) or _ALIKE.get(row.words, row.words)
    if _UNFIT.match(words):
        return UNFIT
    if _RANKLESS.search(words):
        return RANKLESS
    if _DIVIDES.search(words):
        return "divides integers by zero"
    if words.endswith(_UNDEFINED):
        return UNDEFINED_DTYPE
    if words.endswith(_LIST):
        return "gives lists of a wrong length"
    words = _INVALID.sub(r"gives \1 inputs that do not fit", words)
    return _RUNNING.sub(r"asks \1 for what does not fit", words)


def _of_dimensions(row: FailedRow) -> str:
    """How a result's shape differs: to have another rank or no elements is not to have wrong sizes."""
    kind, *said = row.said or ("",)
    how = said[:1] if kind == RANK else said[1:] if kind == NODE else ()
    return _DIMENSIONS.get(how[0], "") if how else ""


#: Passes that do more than one thing.
_OF_ALL_KINDS = re.compile("Constant|RewritePass")
#: One shape in which a model is wrong makes the next one wrong, of results or of operands, by the checker,
#: when a model is loaded or when it is run, as sizes happen to be known.
_UNFIT = re.compile(
    r"Inferred shape and existing shape differ|.*\[ShapeInferenceError\] Incompatible dimensions"
    r"|.*\[ShapeInferenceError\] (?:Negative dimension value|Mismatch between the sum|Last dimension of)"
    r"|.*\(op_type:Reshape\)|FAIL: Reshape \[ShapeInferenceError\]|FAIL: running Reshape: "
)
#: An axis of a tensor without dimensions, or a window beside those of a single sample.
_RANKLESS = re.compile(
    r"axis'? must be in \[-rank|Unexpected axis value|Input tensor must have at least"
    r"|IsAxisInRange|operator on a scalar|Input dimension cannot be less than|Input rank must be >="
    r"|must have rank (?:>=|<n>)|need to have rank larger than|Invalid value for attribute axis"
)
#: While constants are folded or when the model is run.
_DIVIDES = re.compile("Integer division by zero")
_UNDEFINED = "unsupported type"
#: Kernel, strides, dilations, of one operator and of its transpose: one list is too short like the next.
_LIST = "An attribute has incorrect size"
#: A cast that is missing leaves a node operands of two dtypes, or the call a result of another one.
_MIXED = re.compile(
    r"\(op_type:\w+\): (?:inconsistent type$|\[TypeInferenceError\] .*\belement type\b)", re.I
)
#: A node that is no arithmetic infers its shape from an input that has the dtype, or asks for it.
_WRONG_TYPE = re.compile(r"ParseData type mismatch|Only supports .* inputs|must be 1D tensor of type")
#: A runtime words it by the first thing that it checks.
_RUNNING = re.compile(r"FAIL: running (\w+): .*", re.DOTALL)
_INVALID = re.compile(r"INVALID_ARGUMENT: running (\w+): .*", re.DOTALL)
#: Its operators that compare integers share how they do.
_COMPARISON = re.compile(r"(?:Reduce)?(?:Max|Min)|Sign|Clip")
#: ONNX Runtime's reductions share what they do without elements.
_REDUCTION = re.compile(r"Reduce\w+|ArgM(?:ax|in)")


def _backend(row: FailedRow) -> Place:
    if row.facts.why.startswith("by "):
        return Place(row.backend, f"{OPTIMISATION}{row.facts.passes or row.family}")
    missing, named = _NO_KERNEL.search(row.words), _KERNEL.search(row.words)
    said = (named[1] or named[2]).removeprefix(_FUSED) if named else ""
    # A runtime may run an operator as others that define it, and blame looks at nodes for sequences together.
    operator = missing[1] if missing else row.facts.operator
    if not operator or _OF_SEQUENCES.match(operator):
        operator = said or operator
    if row.facts.words == WITHOUT_ELEMENTS and _REDUCTION.match(operator):
        operator = "reductions"
    if row.facts.words == WRONG_INTEGERS and _COMPARISON.fullmatch(operator):
        operator = "comparisons of integers"
    if operator:
        return Place(row.backend, operator)
    which = "nodes taken together" if row.facts.why == "nodes together" else "a node that is not known"
    return Place(row.backend, f"{which}, of {row.family}" if row.by_operator else which)


def _pytorch(row: FailedRow) -> Place:
    of = "aten.var" if _VARIANCE.fullmatch(row.family) else row.family
    part = f"{_PARTS.get(row.facts.why, 'kernel')} of {of}"
    return Place("PyTorch", part, choice=row.called.choice)


#: One kernel and one decomposition compute them.
_VARIANCE = re.compile(r"aten\.(?:std|var)(?:_mean)?")
_PARTS = {
    "decomposition": "decomposition",
    "kernel or decomposition": "kernel or decomposition",
    "rules": "shape and dtype rules",
}


def _spec(row: FailedRow) -> Place:
    if row.facts.operator:
        return Place("ONNX", row.facts.operator)
    # One sentence may be about many operators, each of which does as it likes.
    return Place("PyTorch", f"documentation of {row.family}")


def _unknown(row: FailedRow) -> Place:
    who = row.converter if row.stage in BEFORE_BACKEND else f"{row.converter} → {row.backend}"
    return Place(who, row.family if row.by_operator else "a place that is not known")


_PLACES: dict[str, Callable[[FailedRow], Place]] = {
    "converter": converter_place,
    "backend": _backend,
    "pytorch": _pytorch,
    "spec": _spec,
}
