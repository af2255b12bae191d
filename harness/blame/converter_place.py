"""Where in a converter a defect is, by what the record says of a failure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.blame.failure_facts import FailureFacts
from harness.compare import Stage, elements
from harness.convert import (
    ConversionFunction,
    emitting_function,
    exporter_messages as exporter,
    function_named,
    function_of_family,
    left_to,
    own_function,
    standing_for,
    takes_numbers,
)
from harness.generate import family_name, is_alias, packet_of
from harness.run import ort_messages as ort


@dataclass(frozen=True, order=True)
class Place:
    """Where a defect is: whose it is, and what of theirs.

    Attributes:
        component: ``ort-cpu``, ``torchlib``, ``TorchScript``, ``PyTorch``, ``ONNX``; ``rule`` for a user's; a
            converter's name where its library is not known, with the backend where nobody is blamed.
        name: An operator, a function, a pass.
        file: Of a function, relative to the folder of its package; "" where there is none.
        choice: Which of a function's algorithms: ``rounding_mode=floor``; "" where it has one.
    """

    component: str
    name: str
    file: str = ""
    choice: str = ""


#: How a place is named where the converter decomposes the operator: the function is known to who runs it.
UNKNOWN_FUNCTION = "conversion of "
_PROMOTION = "torch/csrc/jit/passes/onnx/scalar_type_analysis.cpp"
#: A division by zero is that of the shapes of TorchScript's ``Reshape`` (`ComputeShapeFromReshape`); it is an
#: operator's own where nothing converts the operator.
_INFERENCE = "torch/csrc/jit/passes/onnx/shape_type_inference.cpp"
#: Steps of an export, as a place.
_STEPS = {
    exporter.CAPTURE: "torch.export",
    exporter.DECOMPOSITION: "decomposition of the program",
    exporter.TRANSLATION: "translation of the program",
    exporter.OPTIMISER: "optimiser",
}
_SHORT = ("float16", "bfloat16")


def converter_place(facts: FailureFacts) -> Place:
    """The conversion function, pass or step of a failure that the converter is blamed for."""
    if unpromoted(facts):
        return Place(facts.converter, "type promotion")
    if facts.stage in (Stage.REFERENCE, Stage.CONVERT):
        return _of_export(facts)
    if facts.stage is Stage.CHECK:
        return _of_invalid(facts)
    if facts.rule == "constant-result" and facts.converter == "torchscript":
        return Place(facts.converter, "tracing of the program")
    # Each symbolic function of TorchScript's has its own way with numbers, and each function of others with
    # those that are floats by its schema: attributes.
    rounded = facts.rule == "fewer-bits" and "rounded-arguments" in facts.statements
    if rounded and facts.converter != "torchscript" and takes_numbers(facts.overload):
        return Place(facts.converter, "numbers of the call")
    if takes_for_numbers(facts):
        return Place(facts.converter, "type promotion")
    named, own = ort.refused_node(facts.words), _own(facts)
    emitting = emitting_function(facts.converter, own, named, facts.packet) if named and own else None
    return _of(facts, emitting, "") if emitting else _function(facts, facts.family)


def _own(facts: FailureFacts) -> ConversionFunction | None:
    """The function that the call of a facts is translated with."""
    return own_function(facts.converter, facts.overload, of_complex="complex" in facts.call.conditions)


def _left_to(converter: str, function: ConversionFunction) -> ConversionFunction:
    """The last function in the facts of those that leave their operator to another."""
    met = [function]
    while (following := left_to(converter, met[-1])) not in met:
        met.append(following)
    return met[-1]


def takes_for_numbers(facts: FailureFacts) -> bool:
    """Whether TorchScript gives a result the dtype that numbers would have, as it does where all tensors are
    0-d: a pass of it takes those for numbers, whichever symbolic function there is."""
    only_scalars = "only-scalars" in facts.call.conditions
    return facts.converter == "torchscript" and facts.dtypes is not None and only_scalars


def unpromoted(facts: FailureFacts) -> str:
    """The fault of PyTorch's exporter where it makes dtypes explicit; "" where that is not in question.

    A pass of it casts operands to the dtype that PyTorch's kernel computes in. It leaves the sums of 16-bit
    numbers there, and does not know the operators by their other names.
    """
    if facts.converter != "dynamo":
        return ""
    if facts.dtypes is not None and facts.dtypes[0] in _SHORT and facts.dtypes[1] == "float32":
        return "leaves-16-bits-in-float32"
    if not is_alias(facts.packet):
        return ""
    # A number that is no integer becomes one beside integers, and so does a quotient.
    arithmetic = facts.overload.endswith((".Scalar", ".Tensor"))
    wrong = facts.kind in ("values", "sign of zero") or exporter.changes_number(facts.words)
    number = arithmetic and wrong and facts.element not in (elements.NARROW, elements.DIGITS)
    second = facts.message[:1] == (exporter.NODE,) and exporter.SECOND in facts.message[2:]
    unfit = exporter.operand_dtypes_differ(facts.words) or second
    unlike = facts.dtypes is not None or (facts.stage is Stage.CHECK and unfit)
    return "unknown-alias" if unlike or number else ""


def _of_invalid(facts: FailureFacts) -> Place:
    """Where a node comes from that the checker rejects: the function that emits it.

    Two functions that each lack the same cast are two defects, and those that leave the node to one helper
    have one. Where nothing that is called emits it, as where the operator is taken apart first, a dtype that
    an operator does not have is a matter of all that emit it. The rest is one function's where functions of
    all kinds emit the operator; few emit such as ``Conv``, and those share what is wrong. A number of inputs
    may be an optimiser's.
    """
    of_schema, found = exporter.node_with_wrong_inputs(facts.words), exporter.emitted_node(facts.words)
    if of_schema:
        return Place(facts.converter, f"{of_schema} nodes")
    # A pass that makes the dtypes of operands equal casts bfloat16 to complex numbers.
    if facts.converter == "torchscript" and exporter.is_unsupported_cast(facts.words):
        return Place(facts.converter, "type promotion")
    kind, *names = facts.message or ("",)
    of_node = names[0] if kind == exporter.NODE else ""
    emitting = _emitting(facts, found, of_node) if found else None
    if emitting:
        return Place(emitting.library, emitting.name, emitting.file)
    of_function = _USUAL if exporter.lacks_dtype(facts.words) else _COMMON
    if facts.by_operator or not found or of_function.fullmatch(found):
        return _function(facts, family_name(f"aten.{of_node}") if of_node else facts.family)
    return Place(facts.converter, f"{found} nodes")


def _emitting(facts: FailureFacts, operator: str, of_node: str) -> ConversionFunction | None:
    """The function that emits an ONNX operator for a call.

    Where the call is taken apart, that of the PyTorch operator that a node is named after, or of the one that
    the ONNX operator is named like.
    """
    families = [family_name(f"{of}.{of_node}") for of in ("aten", "prims")] if of_node else [facts.family]
    function = (
        _own(facts)
        or next(filter(None, (function_of_family(facts.converter, family) for family in families)), None)
        or own_function(facts.converter, f"aten.{operator.lower()}.default")
    )
    return function and emitting_function(facts.converter, function, operator, facts.packet)


#: Operators that most functions emit, each with dtypes of its own choice.
_USUAL = re.compile("Add|Concat|Div|Mul|SequenceConstruct|Sub|Where")
#: Operators that functions of all kinds emit to bring tensors into form.
_COMMON = re.compile(
    "Add|Concat|ConstantOfShape|Div|Expand|Gather.*|Identity|If|Loop|MatMul|Mul|Pad|Pow|Range|Reduce.*|Reshape"
    "|Scatter.*|SequenceConstruct|Shape|Slice|Split|Squeeze|Sub|Tile|Transpose|Unsqueeze|Where"
)


def _of_export(facts: FailureFacts) -> Place:
    """Where an export ends that gives no model."""
    missing = exporter.unconverted_operator(facts.words)
    if missing:
        return Place(facts.converter, f"no conversion of {missing}")
    if makes_complex(facts):
        return Place(facts.converter, "type promotion")
    kind, name = facts.message if len(facts.message) == 2 else ("", "")
    divides = facts.converter == "torchscript" and exporter.is_division_signal(facts.words)
    if divides and function_of_family(facts.converter, facts.family):
        return Place(facts.converter, _INFERENCE.rpartition("/")[2], _INFERENCE)
    if facts.message[:1] == (exporter.ASKING,):
        return Place(facts.converter, f"torch.export, {facts.message[1]}", f"torch/{facts.message[2]}")
    function = exporter.function_in(facts.words)
    if function:
        return _of(facts, function_named(facts.converter, function), function)
    if kind == exporter.SYMBOLIC:
        return _function(facts, family_name(f"aten.{name}"))
    if kind == exporter.NO_OP:
        return Place(facts.converter, "schemas of operators")
    if kind == exporter.FILE:
        return Place(facts.converter, name.rpartition("/")[2], name)
    return _of_step(facts, name if kind == exporter.STEP else "")


def _of_step(facts: FailureFacts, step: str) -> Place:
    """Where an export ends of which at most the step is known."""
    operator = exporter.operator_in(facts.words)
    if step == exporter.TRANSLATION and operator:
        return _function(facts, family_name(operator))
    if step and not (step == exporter.TRANSLATION and facts.by_operator):
        of_family = f"{_STEPS[step]} of {facts.family}"
        return Place(facts.converter, of_family if facts.by_operator else _STEPS[step])
    if not facts.by_operator:
        return Place(facts.converter, "export")
    own = _own(facts)
    if own and exporter.is_pythons(facts.words):
        return _of(facts, left_to(facts.converter, own), own.name)
    return _function(facts, facts.family)


def makes_complex(facts: FailureFacts) -> bool:
    """Whether TorchScript's pass that makes the dtypes of operands equal takes bfloat16 for complex numbers,
    or cannot say what comes of it, before the checker sees any."""
    if facts.converter != "torchscript" or facts.stage is not Stage.CONVERT:
        return False
    complex_ = facts.message == (exporter.COMPLEX,) and "complex" not in facts.call.conditions
    return complex_ or facts.message == (exporter.FILE, _PROMOTION)


def _function(facts: FailureFacts, family: str) -> Place:
    """The conversion function of a family; where it is not known, as of what is taken apart first, all that
    converts the operator."""
    found = _own(facts) if family == facts.family else None
    if found and facts.stage not in (Stage.REFERENCE, Stage.CONVERT):
        # What a wrapper gives is wrong wherever the wrapped function is called.
        found = _left_to(facts.converter, found)
    found = found or function_of_family(facts.converter, family)
    if found is None and facts.translated:
        found = function_of_family(facts.converter, family_name(packet_of(facts.translated)))
    return _of(facts, found, f"{UNKNOWN_FUNCTION}{family}")


def _of(facts: FailureFacts, function: ConversionFunction | None, otherwise: str) -> Place:
    if function is None:
        return Place(facts.converter, otherwise)
    function = standing_for(facts.converter, function)
    return Place(function.library, function.name, function.file)
