"""Where in a converter a defect is, by what the record says of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from harness.analyse.defect_place import FailedRow, Place
from harness.analyse.function_families import function_named, function_of_family, own_function, standing_for
from harness.analyse.message_facts import (
    ASKING,
    CAPTURE,
    COMPLEX,
    DECOMPOSITION,
    DTYPES,
    FILE,
    NO_OP,
    NODE,
    OPTIMISER,
    SECOND,
    STEP,
    SYMBOLIC,
    TRANSLATION,
)
from harness.analyse.operator_family import family_name, is_alias, packet_of
from harness.analyse.wrong_elements import DIGITS, NARROW
from harness.compare import Stage
from harness.convert import ConversionFunction, emitting_function, left_to, takes_numbers
from harness.core import listed

#: How a place is named where the converter takes the operator apart: the function is known to who runs it.
UNKNOWN_FUNCTION = "conversion of "
#: Words of failures, and what they name.
_EMITTED = re.compile(r"\(op_type:(\w+)\)")
_INPUTS = re.compile(r"with schema\(::(\w+):.* has input size")
_IN_FUNCTION = re.compile(r"in (\w+): ")
_IN_OPERATOR = re.compile(r"in (\w+\.\w+): ")
_NO_CONVERSION = re.compile(r"no conversion for (\S+)")
#: A node that a runtime does not load or run.
_RUN = re.compile(r"(?:FAIL|INVALID_ARGUMENT): (?:running )?(\w+)[ :]|FAIL: Node \(.*?\) Op \((\w+)\)")
#: Python's words of a function, or of the one that it leaves its operator to.
_PYTHONS = re.compile("(?:Attribute|Index|Key|Type|Value)Error: ")
#: A division by zero is that of the shapes of TorchScript's ``Reshape`` (`ComputeShapeFromReshape`); it is an
#: operator's own where nothing converts the operator.
_DIVISION = re.compile(r"killed by SIGFPE")
_PROMOTION = "torch/csrc/jit/passes/onnx/scalar_type_analysis.cpp"
_INFERENCE = "torch/csrc/jit/passes/onnx/shape_type_inference.cpp"
#: Steps of an export, as a place.
_STEPS = {
    CAPTURE: "torch.export",
    DECOMPOSITION: "decomposition of the program",
    TRANSLATION: "translation of the program",
    OPTIMISER: "optimiser",
}
_SHORT = ("float16", "bfloat16")
#: How it shows that a number was changed to fit the dtype of a tensor.
_CHANGED_NUMBER = re.compile("^values$|^sign of zero$|Integer division by zero|OverflowError: Python int")
#: How it shows that the operands of a node have different dtypes; the first one decides about ``Or``.
_MIXED = re.compile(r"inconsistent type$|op_type:(?:And|Not|Or|Xor)\): unsupported type$")


def converter_place(row: FailedRow) -> Place:
    """The conversion function, pass or step of a failure that the converter is blamed for."""
    if unpromoted(row):
        return Place(row.converter, "type promotion")
    if row.stage in (Stage.REFERENCE, Stage.CONVERT):
        return _of_export(row)
    if row.stage is Stage.CHECK:
        return _of_invalid(row)
    if row.facts.why == "by the exporter's optimiser":
        return Place(row.converter, f"optimiser, {row.facts.passes or row.family}")
    if row.facts.why == "constant" and row.converter == "torchscript":
        return Place(row.converter, "tracing of the program")
    # Each symbolic function of TorchScript's has its own way with numbers, and each function of others with
    # those that are floats by its schema: attributes.
    if row.facts.rounded and row.converter != "torchscript" and takes_numbers(row.overload):
        return Place(row.converter, "numbers of the call")
    if takes_for_numbers(row):
        return Place(row.converter, "type promotion")
    named = _RUN.match(row.words)
    own = _own(row)
    emitting = (
        emitting_function(row.converter, own, named[1] or named[2], row.packet) if named and own else None
    )
    place = _of(row, emitting, "") if emitting else _function(row, row.family)
    return replace(place, choice=row.called.choice)


def _own(row: FailedRow) -> ConversionFunction | None:
    """The function that the call of a row is translated with."""
    return own_function(row.converter, row.overload, of_complex=row.called.has_complex)


def _left_to(converter: str, function: ConversionFunction) -> ConversionFunction:
    """The last function in the row of those that leave their operator to another."""
    met = [function]
    while (following := left_to(converter, met[-1])) not in met:
        met.append(following)
    return met[-1]


def takes_for_numbers(row: FailedRow) -> bool:
    """Whether TorchScript gives a result the dtype that numbers would have, as it does where all tensors are
    0-d: a pass of it takes those for numbers, whichever symbolic function there is."""
    return row.converter == "torchscript" and row.said[:1] == (DTYPES,) and row.called.only_single


def told_place(place: Place, converter: str, overloads: Iterable[str]) -> str:
    """A place of a converter for people, with the functions that translate some overloads."""
    functions = {name: own_function(converter, name) for name in overloads}
    known = sorted({function for function in functions.values() if function})
    here = [function for function in known if standing_for(converter, function).name == place.name]
    if here:
        names = listed(list(dict.fromkeys(one.name for one in here)), 3)
        return str(replace(place, name=names, file=here[0].file))
    if not place.file and len(known) == 1 and all(functions.values()):
        return str(Place(place.owner, f"{place.name} of {known[0].name}", known[0].file))
    return str(place)


def unpromoted(row: FailedRow) -> str:
    """What PyTorch's exporter leaves undone where it makes dtypes explicit; "" where that is not in question.

    A pass of it casts operands to the dtype that PyTorch's kernel computes in. It leaves the sums of 16-bit
    numbers there, and does not know the operators by their other names.
    """
    if row.converter != "dynamo":
        return ""
    kind, *dtypes = row.said or ("",)
    if kind == DTYPES and dtypes[0] in _SHORT and dtypes[1] == "float32":
        return "leaves 16-bit results in float32"
    if not is_alias(row.packet):
        return ""
    # A number that is no integer becomes one beside integers, and so does a quotient.
    arithmetic = row.overload.endswith((".Scalar", ".Tensor"))
    changed = row.element not in (NARROW, DIGITS) and _CHANGED_NUMBER.search(row.words)
    number = arithmetic and changed
    unfit = _MIXED.search(row.words) or (kind == NODE and SECOND in dtypes[1:])
    unlike = kind == DTYPES or (row.stage is Stage.CHECK and unfit)
    return "does not know operators by their other names" if unlike or number else ""


def _of_invalid(row: FailedRow) -> Place:
    """Where a node comes from that the checker rejects: the function that emits it.

    Two functions that each lack the same cast are two defects, and those that leave the node to one helper
    have one. Where nothing that is called emits it, as where the operator is taken apart first, a dtype that
    an operator does not have is a matter of all that emit it. The rest is one function's where functions of
    all kinds emit the operator; few emit such as ``Conv``, and those share what is wrong. A number of inputs
    may be an optimiser's.
    """
    of_schema, found = _INPUTS.search(row.words), _EMITTED.search(row.words)
    if of_schema:
        return Place(row.converter, f"{of_schema[1]} nodes")
    # A pass that makes the dtypes of operands equal casts bfloat16 to complex numbers.
    if row.converter == "torchscript" and _CAST.search(row.words):
        return Place(row.converter, "type promotion")
    kind, *names = row.said or ("",)
    of_node = names[0] if kind == NODE else ""
    emitting = found and _emitting(row, found[1], of_node)
    if emitting:
        return Place(emitting.library, emitting.name, emitting.file)
    of_function = _USUAL if row.words.endswith(_UNSUPPORTED) else _COMMON
    if row.by_operator or found is None or of_function.fullmatch(found[1]):
        return _function(row, family_name(f"aten.{of_node}") if of_node else row.family)
    return Place(row.converter, f"{found[1]} nodes")


def _emitting(row: FailedRow, operator: str, of_node: str) -> ConversionFunction | None:
    """The function that emits an ONNX operator for a call.

    Where the call is taken apart, that of the PyTorch operator that a node is named after, or of the one that
    the ONNX operator is named like.
    """
    families = [family_name(f"{of}.{of_node}") for of in ("aten", "prims")] if of_node else [row.family]
    function = (
        _own(row)
        or next(filter(None, (function_of_family(row.converter, family) for family in families)), None)
        or own_function(row.converter, f"aten.{operator.lower()}.default")
    )
    return function and emitting_function(row.converter, function, operator, row.packet)


_UNSUPPORTED = "unsupported type"
_CAST = re.compile(r"\(op_type:Cast\): unsupported type$")
#: Operators that most functions emit, each with dtypes of its own choice.
_USUAL = re.compile("Add|Concat|Div|Mul|SequenceConstruct|Sub|Where")
#: Operators that functions of all kinds emit to bring tensors into form.
_COMMON = re.compile(
    "Add|Concat|ConstantOfShape|Div|Expand|Gather.*|Identity|If|Loop|MatMul|Mul|Pad|Pow|Range|Reduce.*|Reshape"
    "|Scatter.*|SequenceConstruct|Shape|Slice|Split|Squeeze|Sub|Tile|Transpose|Unsqueeze|Where"
)


def _of_export(row: FailedRow) -> Place:
    """Where an export ends that gives no model."""
    missing = _NO_CONVERSION.match(row.words)
    if missing:
        return Place(row.converter, f"no conversion of {missing[1]}")
    if makes_complex(row):
        return Place(row.converter, "type promotion")
    kind, name = row.said if len(row.said) == 2 else ("", "")
    divides = row.converter == "torchscript" and _DIVISION.search(row.words)
    if divides and function_of_family(row.converter, row.family):
        return Place(row.converter, _INFERENCE.rpartition("/")[2], _INFERENCE)
    if row.said[:1] == (ASKING,):
        return Place(row.converter, f"torch.export, {row.said[1]}", f"torch/{row.said[2]}")
    function = _IN_FUNCTION.match(row.words)
    if function:
        return _of(row, function_named(row.converter, function[1]), function[1])
    if kind == SYMBOLIC:
        return _function(row, family_name(f"aten.{name}"))
    if kind == NO_OP:
        return Place(row.converter, "schemas of operators")
    if kind == FILE:
        return Place(row.converter, name.rpartition("/")[2], name)
    step = name if kind == STEP else ""
    operator = _IN_OPERATOR.match(row.words)
    if step == TRANSLATION and operator:
        return _function(row, family_name(operator[1]))
    if step and not (step == TRANSLATION and row.by_operator):
        return Place(row.converter, f"{_STEPS[step]} of {row.family}" if row.by_operator else _STEPS[step])
    if not row.by_operator:
        return Place(row.converter, "export")
    own = _own(row)
    if own and _PYTHONS.match(row.words):
        return _of(row, left_to(row.converter, own), own.name)
    return _function(row, row.family)


def makes_complex(row: FailedRow) -> bool:
    """Whether TorchScript's pass that makes the dtypes of operands equal takes bfloat16 for complex numbers,
    or cannot say what comes of it, before the checker sees any."""
    if row.converter != "torchscript" or row.stage is not Stage.CONVERT:
        return False
    complex_ = row.said == (COMPLEX,) and not row.called.has_complex
    return complex_ or row.said == (FILE, _PROMOTION)


def _function(row: FailedRow, family: str) -> Place:
    """The conversion function of a family; where it is not known, as of what is taken apart first, all that
    converts the operator."""
    found = _own(row) if family == row.family else None
    if found and row.stage not in (Stage.REFERENCE, Stage.CONVERT):
        # What a wrapper gives is wrong wherever the wrapped function is called.
        found = _left_to(row.converter, found)
    found = found or function_of_family(row.converter, family)
    if found is None and row.facts.translated:
        found = function_of_family(row.converter, family_name(packet_of(row.facts.translated)))
    return _of(row, found, f"{UNKNOWN_FUNCTION}{family}")


def _of(row: FailedRow, function: ConversionFunction | None, otherwise: str) -> Place:
    if function is None:
        return Place(row.converter, otherwise)
    function = standing_for(row.converter, function)
    return Place(function.library, function.name, function.file)
