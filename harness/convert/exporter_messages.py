"""Facts named in the messages of exporters and of the ONNX checker: this module alone reads such text.

The texts are PyTorch's, onnxscript's and onnx's; a new version may word them in another way. Each pattern has
an example in ``tests/convert/test_exporter_messages.py``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from harness.compare.faults import Fault
from harness.compare.signatures import normalise
from harness.generate.operator_family import generalize_dimensions

#: Steps of PyTorch's exporter.
CAPTURE, DECOMPOSITION, TRANSLATION, OPTIMISER = "capture", "decomposition", "translation", "optimiser"
#: Kinds of facts.
NODE, FILE, SYMBOLIC, STEP, NO_OP, COMPLEX = "node", "file", "symbolic", "step", "no op", "complex"
ASKING = "asking"

#: How a shape differs that has as many dimensions as it must.
SIZE = "size"
#: That it has no elements, and must have some.
EMPTY = "empty"
#: Matches a message that blames the second operand of a node for its dtype; the first one's dtype is fine.
SECOND = "second"

_STEPS = {"1": CAPTURE, "2": DECOMPOSITION, "3": TRANSLATION}
_STEP = re.compile(r"This is step ([123])/3")
_TRANSLATING = re.compile(r"Occurred when translating (\w+)\)")
_ASSERTION = re.compile(r'INTERNAL ASSERT FAILED at "[^"]*?\b(torch/csrc/[\w/]+\.cpp)"')
#: PyTorch's function that needs to know data.
_ASKING = re.compile(r"Caused by: \((\w[\w/]*\.py):\d+ in (\w+)\)")
#: A call that TorchScript has no operator for, by the types of its arguments.
_NO_OP = re.compile(r"We don't have an op for (\w+::\w+) .*?Argument types: (.*)", re.DOTALL)
#: A node that is named after the PyTorch operator that it was exported from, not after its own.
_NODE = re.compile(r"node name: node_([a-z_]\w*?)_*\d*(?:__\d+)?\)")
_SECOND = re.compile(r"\bB typestr: T, has unsupported type")
#: The inferred and the declared form in a checker's message.
_DIFFER = re.compile(
    r"Inferred shape and existing shape differ in "
    r"(?:rank: \((\d+)\) vs \((\d+)\)|dimension \d+: \((\d+)\) vs \((\d+)\))"
)
#: onnxscript evaluates nodes of constants, and so fails at an invalid one.
_UNFOLDABLE = re.compile(r"Error during constant folding for node '([^']+)'")
_FAILING_PASS = re.compile(r"occurred when running the '<[\w.]*?(\w+) object")
_COMPLEX = re.compile(r"ScalarType Complex\w+ is an unexpected tensor scalar type")


def message_facts(message: str) -> tuple[str, ...]:
    """Return a kind, and the names in a message; () if it has none.

    It may be the PyTorch operator of a node and how its shape differs, an operator that TorchScript does not
    have as it is called, a complex dtype that it does not know, a file of PyTorch's, a function of it that
    needs to know data, a symbolic function, or a step of the export.
    """
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


#: The user's line at which a capture ends.
_RAISING = re.compile(r'The following call raised this error:\n  File "([^"]+)", line (\d+), in \w+\n\s+(.+)')


def raising_line(message: str) -> str:
    """Return the line of a model at which its capture ends, as ``model.py:47: return self.decoder(x)``; "" for none."""
    found = _RAISING.search(message)
    return f"{found[1].rpartition('/')[2]}:{found[2]}: {found[3]}" if found else ""


def _differing(inferred: str | None, declared: str | None, size: str | None, right: str | None) -> str:
    """Return how a shape differs from the declared one: in the number of dimensions or in a size."""
    if inferred and declared:
        return "few" if int(inferred) < int(declared) else "many"
    return EMPTY if size == "0" and right != "0" else SIZE


_NO_CONVERSION = re.compile(
    r"No ONNX function found for (\w+\.\w+)|Exporting the operator '(\w+::\w+)' to ONNX opset"
    r"|No conversion rule found for operations?: (\w+\.\w+)|Missing out variants: \{'(\w+::\w+)"
    r"|Operator (\w+\.\w+)(?:\.\w+)? is not in Core ATen opset|Lowering not found: (\w+\.\w+)"
    r"|failed to legalize operation '(tfl\.\w+)'"
)
#: Python's words for a tensor where a number or a list of them must be.
_NO_NUMBER = re.compile(r".*(?:only one element tensors can be converted|iteration over a .*-d tensor).*")
_NO_CONSTANT = re.compile(r"(expected a constant value of the '\w+' argument), got .*")
_TENSOR_TYPE = re.compile(r": <dtype>\([^()]*\)")
#: Kernel, strides, dilations: if one list has the wrong length, so do the others.
_ATTRIBUTE_SIZE = re.compile(r"Attribute \w+ has incorrect size")
#: A wrong shape propagates; the node that reports it is arbitrary.
_SHAPES = re.compile(r"^InferenceError: (?!.*op_type:Reshape).*Inferred shape and existing shape differ.*")
#: Which of two operands does not fit depends on the sizes.
_SIDE = re.compile(r"\b(?:left|right) operand\b")
#: A kernel that has no counterpart for tensors that are only traced, as sizes have it.
_NO_DATA = re.compile(r".*(?:Cannot access data pointer of Tensor|its data is not allocated yet).*", re.DOTALL)
#: Unsigned dtypes, which TorchScript looks up in two tables, one of Python's and one of C++'s.
_NO_SCALAR = re.compile(r".*Unknown torch or scalar type.*")
_NO_SCALAR_TYPE = re.compile(r".*is an unexpected tensor scalar type.*")
#: Numbers and dtypes of an export's question about data that it does not have.
_GUARDED = re.compile(r"(data-dependent expression) .*", re.DOTALL)
_NO_ANSWER = re.compile(r"^no answer within .*")
#: An overload in a message: the conversions of an operator's overloads share their defects.
_OVERLOAD = re.compile(r"\b(aten|prims)\.(\w+)\.[A-Za-z_]\w*\b")


@lru_cache(maxsize=10_000)
def common_words(signature: str) -> str:
    """Return a signature in the words that all failures of its defect share."""
    # A record of another version may hold signatures that are normalised less.
    words = normalise(signature)
    missing = _NO_CONVERSION.search(words)
    if missing:
        return f"no conversion for {missing[missing.lastindex or 1].replace('::', '.')}"
    words = _ATTRIBUTE_SIZE.sub("An attribute has incorrect size", words)
    words = _OVERLOAD.sub(r"\1.\2", words)
    words = _NO_CONSTANT.sub(r"\1", words)
    words = _TENSOR_TYPE.sub(": <dtype>", words)
    words = _NO_NUMBER.sub("takes a tensor for a number", words)
    words = _NO_DATA.sub("reads data of a tensor that has none in an export", words)
    words = _NO_SCALAR.sub("does not know a dtype", words)
    words = _NO_SCALAR_TYPE.sub("does not know the dtype of a tensor", words)
    words = _SIDE.sub("an operand", words)
    words = _SHAPES.sub("Inferred shape and existing shape differ", words)
    words = _GUARDED.sub(r"\1", words)
    words = _NO_ANSWER.sub("no answer in time", words)
    return generalize_dimensions(words)


#: Messages about the end of a conversion that leave out its cause: two operators that end so have different
#: defects.
_GENERIC = re.compile(
    r"""
    Inferred\ shape\ and\ existing\ shape\ differ | data-dependent\ expression | PendingUnbackedSymbolNotFound
    | ZeroDivisionError | index\ out\ of\ range$ | 'NoneType'\ object\ has\ no\ attribute | _M_range_check
    | constant\ folding | takes\ a\ tensor\ for\ a\ number | iteration\ over\ a
    | Cannot\ determine\ scalar\ type | ^reads\ data
    """,
    re.VERBOSE,
)


def is_generic(words: str) -> bool:
    """Return whether a normalised message tells only that a conversion ended, and not why."""
    return _GENERIC.search(words) is not None


# Messages of the ONNX checker and its shape inference about a model that they reject, in normalised words; runtimes
# repeat the same texts while they load a model.

#: Passes that make the dtypes of a node's operands equal have not done so: the first one decides about
#: ``Or``.
_MIXED_OPERANDS = re.compile(r"inconsistent type$|op_type:(?:And|Not|Or|Xor)\): unsupported type$")
#: A cast that is missing leaves a node operands of two dtypes, or the call a result of another one.
_MIXED = re.compile(r"\(op_type:\w+\): (?:inconsistent type$|\[TypeInferenceError\] .*\belement type\b)", re.I)
#: A node that is not arithmetic infers its shape from an input that has the dtype, or asks for it.
_WRONG_TYPE = re.compile(r"ParseData type mismatch|Only supports .* inputs|must be 1D tensor of type")
#: A wrong shape propagates, of results or of operands, by the checker,
#: when a model is loaded or when it is run, as sizes happen to be known.
_UNFIT = re.compile(
    r"Inferred shape and existing shape differ|.*\[ShapeInferenceError\] Incompatible dimensions"
    r"|.*\[ShapeInferenceError\] (?:Negative dimension value|Mismatch between the sum|Last dimension of)"
    r"|.*\(op_type:Reshape\)|FAIL: Reshape \[ShapeInferenceError\]|FAIL: running Reshape: "
)
#: An axis of a tensor without dimensions, or a window for a tensor without a batch dimension.
_RANKLESS = re.compile(
    r"axis'? must be in \[-rank|Unexpected axis value|Input tensor must have at least"
    r"|IsAxisInRange|operator on a scalar|Input dimension cannot be less than|Input rank must be >="
    r"|must have rank (?:>=|<n>)|need to have rank larger than|Invalid value for attribute axis"
)
#: While constants are folded or when the model is run.
_DIVIDES = re.compile("Integer division by zero")
_UNSUPPORTED = "unsupported type"
#: Kernel, strides, dilations, of one operator and of its transpose: if one list has the wrong length, so do the others.
_LIST = "An attribute has incorrect size"
_REJECTED = re.compile(r"\(op_type:(\w+)(?:, node name: ([^)]+))?\)")
_SCHEMA_INPUTS = re.compile(r"with schema\(::(\w+):.* has input size")
_UNSUPPORTED_CAST = re.compile(r"\(op_type:Cast\): unsupported type$")
_IN_FUNCTION = re.compile(r"in (\w+): ")
_IN_OPERATOR = re.compile(r"in (\w+\.\w+): ")
_DIVISION_SIGNAL = re.compile(r"killed by SIGFPE")
_OVERFLOWING_INT = re.compile("OverflowError: Python int")
#: The end of an export that looks for an axis or a dtype of a value without dimensions.
_LOST_WAY = re.compile(r"^IndexError: list index out of range|Cannot determine scalar type")


def unconverted_operator(words: str) -> str:
    """Return the operator that has no conversion, ``aten.celu``; "" if the message does not name one."""
    prefix = "no conversion for "
    return words.removeprefix(prefix) if words.startswith(prefix) else ""


def operand_dtypes_differ(words: str) -> bool:
    """Whether a node's operands have different dtypes."""
    return _MIXED_OPERANDS.search(words) is not None


def result_dtypes_differ(words: str) -> bool:
    """Whether a node has operands of two dtypes, or gives another one than is declared."""
    return _MIXED.search(words) is not None


def lacks_dtype(words: str) -> bool:
    """Whether a node is said not to be defined for the dtype that it gets."""
    return words.endswith(_UNSUPPORTED)


def infers_from_wrong_dtype(words: str) -> bool:
    """Whether inference finds another dtype than it needs."""
    return _WRONG_TYPE.search(words) is not None


def model_fault(words: str) -> Fault | None:
    """Return the fault of a model that a checker's or runtime's message tells; None if none is known."""
    if _UNFIT.match(words):
        return Fault.UNFIT_SHAPES
    if _RANKLESS.search(words):
        return Fault.NO_DIMENSIONS
    if _DIVIDES.search(words):
        return Fault.INTEGER_DIVISION_BY_ZERO
    if lacks_dtype(words):
        return Fault.UNDEFINED_DTYPE
    return Fault.WRONG_LIST_LENGTH if words.endswith(_LIST) else None


def rejected_node(message: str) -> tuple[str, str] | None:
    """Return the ONNX operator and the name of the node that the checker rejects, with "" for a name that is missing.

    Common words have no names of nodes.
    """
    rejected = _REJECTED.search(message)
    return (rejected[1], rejected[2] or "") if rejected else None


def ends_in_optimiser(message: str) -> bool:
    """Whether an export ends in the exporter's optimiser."""
    return message_facts(message) == (STEP, OPTIMISER)


def failing_pass(message: str) -> str:
    """Return the pass of the exporter's optimiser that raises, the innermost one; "" if it names none."""
    return str((_FAILING_PASS.findall(message) or [""])[-1])


def unfoldable_node(message: str) -> str:
    """Return the name of the node that the exporter's optimiser fails to evaluate; "" if it fails elsewhere."""
    found = _UNFOLDABLE.search(message)
    return found[1] if found else ""


def rejected_operator(message: str) -> str:
    """Return the ONNX operator of the node that the checker rejects; "" if it names none."""
    return (rejected_node(message) or ("", ""))[0]


def node_with_wrong_inputs(words: str) -> str:
    """Return the ONNX operator that gets another number of inputs than it has; "" for none."""
    found = _SCHEMA_INPUTS.search(words)
    return found[1] if found else ""


def is_unsupported_cast(words: str) -> bool:
    """Whether a ``Cast`` gets a dtype that it has not."""
    return _UNSUPPORTED_CAST.search(words) is not None


def function_in(words: str) -> str:
    """Return the conversion function in which an export ended; "" for none."""
    found = _IN_FUNCTION.match(words)
    return found[1] if found else ""


def operator_in(words: str) -> str:
    """Return the operator, ``aten.celu``, in whose translation an export ended; "" for none."""
    found = _IN_OPERATOR.match(words)
    return found[1] if found else ""


def is_division_signal(words: str) -> bool:
    """Whether the process ended because of a division by zero."""
    return _DIVISION_SIGNAL.search(words) is not None


def changes_number(words: str) -> bool:
    """Whether a number was changed to fit the dtype of a tensor."""
    return _DIVIDES.search(words) is not None or _OVERFLOWING_INT.search(words) is not None


def lost_its_way(words: str) -> bool:
    """Whether an export looked for an axis or a dtype of a value without dimensions."""
    return _LOST_WAY.search(words) is not None
