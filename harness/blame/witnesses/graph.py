"""Witnesses against the graph: checkers, other exports, and what the graph lost of the call.

The ONNX checker, strict shape inference, and what they leave unchecked.

ONNX's own rules for dtypes and shapes, which run no kernel.

PyTorch without one of the call's arguments: what a graph gives that ignores it.

Results that the graph has as constants.

How many numbers a graph draws at random.

The program that the exporter translates, run in PyTorch.

Another converter's export of the same call, in the same backend.

Numbers of the graph that have fewer bits than the call, and need not be numbers of the call.

The graph, held against the precision that the call has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, numpy_helper
from torch.export import ExportedProgram

from harness.blame.failure_context import FailureContext
from harness.blame.witness import Turn, witness
from harness.compare.comparison import compare, wrong_elements
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.drawn import draws
from harness.compare.verdict import Outcome
from harness.convert.converter import CONVERTERS, HasProgram, UnsupportedOperator, find_converter
from harness.convert.torch_private import decomposition_table
from harness.core.dtypes import PRECISION, Array
from harness.core.invocation import Argument, Invocation
from harness.core.program import map_arguments
from harness.core.tensors import build_tensors, overload
from harness.core.text import first_line, one_line
from harness.core.torch_arrays import to_numpy
from harness.pipeline.loaded_models import RANDOM_OPERATORS
from harness.pipeline.reference import run_reference
from harness.pipeline.submodel import all_nodes, extract, subgraphs, with_declared_outputs
from harness.pipeline.torch_call import quiet_call
from harness.run.backend import BACKENDS

#: Of the text of ONNX ScatterElements on its updates.
_SAME_SHAPE = "same rank and shape as indices"


@witness("the ONNX checker", place=110)
def check_validity(context: FailureContext) -> Iterator[Testimony]:
    """Whether the model of the one case is valid, with constants propagated into shapes."""
    model = with_declared_outputs(context.model, context.reference.expected) if context.is_file else context.model
    try:
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        yield Testimony(Role.MODEL, Finding.INVALID, "strict-inference", {"error": one_line(error)[:200]})
        return
    inputs, updates = _unlike_inputs(inferred, context.feeds(context.model)), _unlike_updates(inferred)
    if inputs:
        yield Testimony(Role.MODEL, Finding.INVALID, "declared-shape", inputs)
    elif updates:
        yield Testimony(Role.MODEL, Finding.INVALID, "shape-of-updates", updates)
    else:
        yield Testimony(Role.MODEL, Finding.VALID, "checker")


def _unlike_inputs(model: onnx.ModelProto, feeds: dict[str, Array]) -> dict[str, Any]:
    """The input that the model declares with another shape than the call has; nothing where none is.

    Onnx's reference evaluator takes any.
    """
    for value in model.graph.input:
        declared, given = _shape(value), feeds[value.name].shape
        if declared is not None and not _holds(declared, given):
            return {"input": value.name, "declared": list(declared), "given": list(given)}
    return {}


def _unlike_updates(model: onnx.ModelProto) -> dict[str, Any]:
    """The node that scatters updates of another shape than its indices have; nothing where none does."""
    graph = model.graph
    shapes = {v.name: _shape(v) for v in (*graph.input, *graph.value_info, *graph.output)}
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type not in ("ScatterElements", "Scatter") or node.domain:
            continue
        indices, updates = (shapes.get(name) for name in node.input[1:3])
        if indices and updates and not _holds(indices, updates):
            shapes_of = {"updates": list(updates), "indices": list(indices)}
            return {"operator": node.op_type, "quote": _SAME_SHAPE, "node": node.name, **shapes_of}
    return {}


def _shape(value: onnx.ValueInfoProto) -> tuple[int | None, ...] | None:
    """Sizes, None for those that are not known; None where not even the rank is."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        return None
    return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim)


def _holds(declared: tuple[int | None, ...], shape: tuple[int | None, ...]) -> bool:
    if len(declared) != len(shape):
        return False
    return all(d is None or s is None or d == s for d, s in zip(declared, shape, strict=True))


@witness("ONNX's type and shape inference", place=30)
def infer_form(context: FailureContext) -> Iterator[Testimony]:
    """What the nodes say of the outputs' dtypes and shapes; not what the exporter declares.

    By ``onnx.shape_inference``, in which the operators' specification states its type constraints.
    """
    comparison = context.comparison
    if context.got is None or comparison is None or comparison.problem not in ("shape", "dtype"):
        return
    by_dtype = comparison.problem == "dtype"
    expected = [str(e.dtype) if by_dtype else e.shape for e in context.reference.expected]
    got = [str(g.dtype) if by_dtype else g.shape for g in context.got]
    ruled = [_dtype(o) if by_dtype else _inferred_shape(o) for o in _inferred(context.model).graph.output]
    if None in ruled:
        return
    facts = {"property": comparison.problem, "backend": context.failure.backend}
    if ruled == got:
        yield Testimony(Role.MODEL, Finding.SAME, "inferred-form", facts)
    elif ruled == expected:
        yield Testimony(Role.MODEL, Finding.RIGHT, "inferred-form", facts)


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    return onnx.shape_inference.infer_shapes(bare, check_type=True, data_prop=True)


def _dtype(output: onnx.ValueInfoProto) -> str | None:
    element = output.type.tensor_type.elem_type
    return str(onnx.helper.tensor_dtype_to_np_dtype(element)) if element else None


def _inferred_shape(output: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    kind = output.type.tensor_type
    if not kind.HasField("shape") or not all(dim.HasField("dim_value") for dim in kind.shape.dim):
        return None
    return tuple(dim.dim_value for dim in kind.shape.dim)


#: Truth values that must be wrong, so that they are not so by chance.
_FEW = 4
#: How near numbers of the same answer are, to their size.
_CLOSE = 0.01


@witness("the call without an argument", place=65, of_one_call=True, of_any_artefact=True)
def ask_without_argument(context: FailureContext) -> Iterator[Testimony]:
    """The same call with one argument at a time as if it had not been given."""
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None or draws(context.judge):
        return
    for name, call in _with_one_left_out(context.invocation):
        try:
            outputs = run_reference(call).expected
        except Exception:
            # PyTorch does not take the call so: the argument is not one to leave out.
            continue
        if _explains(context, outputs):
            facts = {"argument": name, "backend": context.failure.backend}
            yield Testimony(Role.IGNORED, Finding.SAME, "ignored-argument", facts)
            return


def _with_one_left_out(invocation: Invocation) -> Iterator[tuple[str, Invocation]]:
    """Names of arguments, and the call with the argument's default, `None` or `False` in their place."""
    schema = {a.name: a for a in overload(invocation.overload)._schema.arguments}
    for i, (name, given) in enumerate(invocation.arguments):
        neutral = _neutral(schema[name], given)
        if neutral != given:
            arguments = invocation.arguments
            yield name, replace(invocation, arguments=(*arguments[:i], (name, neutral), *arguments[i + 1 :]))


def _neutral(argument: Any, given: Any) -> Any:
    """What stands for an argument that is left out; `given` where nothing does."""
    if argument.has_default_value():
        default = argument.default_value
        return tuple(default) if isinstance(default, list) else default
    if str(argument.type).startswith("Optional"):
        return None
    return False if given is True else given


def _in_its_dtypes(context: FailureContext, outputs: Sequence[Array]) -> tuple[Array, ...]:
    """`outputs` as floats of PyTorch's dtypes: a graph may ignore in which dtype it is to compute."""
    expected = context.reference.expected
    if len(outputs) != len(expected):
        return tuple(outputs)
    pairs = zip(outputs, expected, strict=True)
    return tuple(o.astype(e.dtype) if _are_floats(o, e) else o for o, e in pairs)


def _are_floats(*arrays: Array) -> bool:
    return all(str(array.dtype) in PRECISION for array in arrays)


def _explains(context: FailureContext, outputs: Sequence[Array]) -> bool:
    """Whether the failing backend's answer is that of the call without the argument.

    Infinities, NaN, zeros and truth values are alike for many reasons: another number must be, or a few truth
    values and all beside them.
    """
    assert context.got is not None
    if context.comparison is not None and context.comparison.problem in ("shape", "dtype"):
        return context.is_same(outputs)
    outputs = _in_its_dtypes(context, outputs)
    if not context.is_same(outputs) or _has_a_part(context, outputs):
        return False
    wrong = wrong_elements(context.judge, context.reference, context.got)
    pairs = [(g[w], o[w]) for g, o, w in zip(context.got, outputs, wrong, strict=True) if w.any()]
    if any(_tells(g, o) for g, o in pairs):
        return True
    if not all(g.dtype == np.bool_ and g.size >= _FEW for g, _ in pairs):
        return False
    other = replace(context.reference, expected=tuple(outputs))
    return compare(context.judge, other, context.got).problem is None


def _has_a_part(context: FailureContext, outputs: Sequence[Array]) -> bool:
    """Whether the backend is right at an element where the call without the argument is wrong: the argument
    has its part in the result then, and what else is alike is so by chance."""
    assert context.got is not None
    expected = context.reference.expected
    if [(o.shape, o.dtype) for o in outputs] != [(e.shape, e.dtype) for e in expected]:
        return False
    wrong = wrong_elements(context.judge, context.reference, context.got)
    without = wrong_elements(context.judge, context.reference, outputs)
    return any(bool((o & ~w).any()) for w, o in zip(wrong, without, strict=True) if w.shape == o.shape)


def _tells(got: Array, without: Array) -> bool:
    """Whether there is a number that two wrong answers do not have by chance."""
    if got.dtype == np.bool_:
        return False
    g, w = got.astype(np.float64), without.astype(np.float64)
    with np.errstate(all="ignore"):
        telling = np.isfinite(g) & (g != 0) & (np.abs(g) != 1) & (np.abs(g - w) <= _CLOSE * np.abs(g))
    return bool(telling.any())


#: Operators that compute nothing.
_IDLE = frozenset({"Constant", "Identity"})


@witness("the graph's constants", place=66)
def look_for_constant_output(context: FailureContext) -> Iterator[Testimony]:
    """Whether a wrong output was computed by the exporter: no backend has a part in it."""
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None:
        return
    inputs = [value.name for value in context.model.graph.input]
    for output, wrong in zip(context.model.graph.output, context.wrong, strict=True):
        if not wrong.any():
            continue
        part = extract(context.model, inputs, [output.name]).graph
        held = {tensor.name for tensor in part.initializer}
        read = {name for node in part.node for name in node.input if name}
        if all(n.op_type in _IDLE for n in part.node) and not (read | {output.name}) & (set(inputs) - held):
            yield Testimony(Role.CONSTANT, Finding.SAME, "constant-output", {"output": output.name})
            return


@witness("the graph's random numbers", place=41)
def count_drawn_numbers(context: FailureContext) -> Iterator[Testimony]:
    """Whether the elements of a random result can be independent of each other, as PyTorch draws them."""
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None or not draws(context.judge):
        return
    inputs = [value.name for value in context.model.graph.input]
    for output, wrong in zip(context.model.graph.output, context.wrong, strict=True):
        drawn = _drawn(extract(context.model, inputs, [output.name])) if wrong.any() else None
        if drawn and drawn < wrong.size:
            facts = {"drawn": drawn, "elements": wrong.size, "output": output.name}
            yield Testimony(Role.NODES, Finding.SAME, "drawn-numbers", facts)
            return


def _drawn(model: onnx.ModelProto) -> int | None:
    """How many numbers its nodes draw; None where a shape is not known."""
    known = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    shapes = {value.name: value.type.tensor_type.shape for value in (*known.value_info, *known.output)}
    total = 0
    for node in model.graph.node:
        if node.op_type not in RANDOM_OPERATORS:
            continue
        shape = shapes.get(node.output[0])
        if shape is None or not all(dim.HasField("dim_value") for dim in shape.dim):
            return None
        total += prod(dim.dim_value for dim in shape.dim)
    return total


#: Operators that are named; a program may have hundreds.
_MOST_NAMED = 24


def translated_program(context: FailureContext) -> ExportedProgram | None:
    """The program that the failing converter translates; None where it cannot tell.

    Raises what the converter raises.
    """
    converter = context.converter(context.failure.converter)
    if not isinstance(converter, HasProgram):
        return None
    return context.translation.program


def operators_of(program: ExportedProgram) -> list[str]:
    """Names of the operators that a program calls, in order, each once."""
    return list(dict.fromkeys(str(n.target) for n in program.graph.nodes if n.op == "call_function"))


@witness("ONNX's own operator", place=4, of_one_call=True)
def recognise_own_operator(context: FailureContext) -> Iterator[Testimony]:
    """A call of `torch.onnx.ops` is the node: where the node's definition gives another result, PyTorch's
    implementation of it departs from ONNX."""
    namespace, operator, _ = context.invocation.overload.split(".")
    found = [node for node in all_nodes(context.model) if node.op_type == operator]
    if namespace != "onnx" or len(found) != 1:
        return
    taken = {a.name: onnx.helper.get_attribute_value(a) for a in found[0].attribute}
    numbers = {n: a for n, a in context.invocation.arguments if isinstance(a, bool | int | float)}
    # What is left out is as ONNX has it by default, which is how PyTorch has it.
    if all(taken.get(name, 0) == number for name, number in numbers.items()):
        yield Testimony(Role.OPERATOR, Finding.SAME, "own-operator", {"operator": operator})


@witness("the decomposed program", place=5, turn=Turn.GRAPH, of_one_call=True)
def ask_decomposed_program(context: FailureContext) -> Iterator[Testimony]:
    """Whether PyTorch gives the failing backend's result once it has decomposed the call.

    Where it does, the conversions of the operators that are left translate a program that is wrong already;
    so they do where PyTorch cannot even run what it has made of a call that its kernel accepts.
    """
    if context.failure.outcome is Outcome.UNSUPPORTED:
        return
    if context.got is None and context.failure.outcome is Outcome.MISMATCH:
        return
    program = translated_program(context)
    if program is None:
        return
    operators = operators_of(program)
    if context.invocation.overload in operators:
        # Not decomposed: it is the kernel again.
        return
    facts = {"overload": context.invocation.overload, "operators": operators[:_MOST_NAMED]}
    inputs = tuple(t.clone() for t in build_tensors(context.invocation))
    try:
        outputs = _run_program(program.module(check_guards=False), inputs)
        if len(outputs) != len(context.reference.expected):
            return
        if compare(context.judge, context.reference, outputs).problem is None:
            yield Testimony(Role.PROGRAM, Finding.CONFIRMS, "program", facts)
            return
        if context.got is None or not context.is_same(outputs):
            return
    except (IndexError, RuntimeError):
        # Whether PyTorch's own program fails so decides.
        pass
    yield from _ask_own_program(context, inputs, {**facts, "backend": context.failure.backend})


def _run_program(module: torch.nn.Module, inputs: Sequence[torch.Tensor]) -> list[Array]:
    with quiet_call():
        results = module(*inputs)
    return [to_numpy(t) for t in results if isinstance(t, torch.Tensor)]


def _ask_own_program(
    context: FailureContext, inputs: Sequence[torch.Tensor], facts: Mapping[str, Any]
) -> Iterator[Testimony]:
    """Run the program that PyTorch itself captures and decomposes, with its checks of sizes.

    What the exporter translates has lost the checks, and has been through passes of the exporter's own, such as that
    for type promotion.
    """
    request = context.structure.request(context.route)

    def own() -> torch.nn.Module:
        with quiet_call():
            captured = request.model_call.captured()
            module: torch.nn.Module = captured.run_decompositions(dict(decomposition_table())).module()
            return module

    try:
        module = context.kept("PyTorch's own program", own)
    except Exception:
        # It cannot be captured so: nothing is known.
        return
    try:
        outputs = _run_program(module, inputs)
    except AssertionError as error:
        yield Testimony(Role.PROGRAM, Finding.INVALID, "program", {**facts, "error": first_line(error)})
    except (IndexError, RuntimeError) as error:
        yield Testimony(Role.PROGRAM, Finding.REFUSES, "program", {**facts, "error": first_line(error)})
    else:
        if context.got is not None and context.is_same(outputs):
            yield Testimony(Role.PROGRAM, Finding.CONTRADICTS, "program", facts)


@witness("the other converter", place=10, turn=Turn.GRAPH, of_any_artefact=True, of_pytorch=True)
def ask_other_converter(context: FailureContext) -> Iterator[Testimony]:
    """Asks the first by `ConverterEntry.witness` that is not the failing one, can run here, and makes what the failing
    backend takes."""
    if context.failure.outcome is Outcome.UNSUPPORTED:
        return
    taken = BACKENDS.find(context.failure.backend)[0].takes
    places = ((entry.witness, entry.name) for entry in CONVERTERS.entries() if entry.makes in taken)
    for _, name in sorted((place, name) for place, name in places if place is not None):
        if name != context.failure.converter and find_converter(name).probe() is None:
            yield _ask(name, context)
            return


def _ask(name: str, context: FailureContext) -> Testimony:
    try:
        model = context.export(context.converter(name), name)
    except UnsupportedOperator:
        return Testimony(Role.CONVERTER, Finding.LACKS, "other-conversion", {"witness": name})
    except Exception as error:
        facts = {"witness": name, "error": type(error).__name__}
        return Testimony(Role.CONVERTER, Finding.REFUSES, "other-conversion", facts)
    finding, _ = context.find(context.ask(context.accused, model))
    facts = {"witness": name, "backend": context.accused.name}
    return Testimony(Role.CONVERTER, finding, "other-converter", facts)


#: The last 12 of float32's 23 stored bits: a number that has one of them set is not a round one.
_LAST_BITS = 0xFFF
#: How far a number is moved, to see what the result owes to it: more than float32 rounds, and little.
_STEP = 2.0**-18
#: What float32 rounds, and a little more: the result is taken to be linear.
_ROUNDING = 1.02 * 2.0**-24
#: Of a difference that a rounding explains, what may be left unexplained.
_LEFT = 2.0**-6
#: Numbers looked at, each for a run of the graph.
_MOST = 4
#: Float16 has every whole number up to this.
_GREATEST_DIVISOR = 2**11
#: The name of an initializer that no exporter makes.
_DIVISOR = "harness_divisor"


@witness("the graph's rounded numbers", place=30, turn=Turn.GRAPH, of_one_call=True)
def look_for_rounded_numbers(context: FailureContext) -> Iterator[Testimony]:
    """Whether one number with more bits would make a float64 result PyTorch's.

    The exporter may have computed it from the call's, like the root of a scale: its true value is not known.
    So it is moved a little, and what the result owes to it says how far off it would have to be.
    """
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None:
        return
    where = [i for i, mask in enumerate(context.wrong) if mask.any()]
    if len(where) != 1 or context.comparison is None or context.comparison.problem != "values":
        return
    (output,) = where
    mask = context.wrong[output]
    expected, got = context.reference.expected[output], context.got[output]
    # One element could be off for many reasons.
    if str(expected.dtype) != "float64" or got.dtype != expected.dtype or mask.sum() < 2:
        return
    for number in _rounded_numbers(context.model)[:_MOST]:
        moved, by = _moved(context.model, number)
        answer = context.ask(context.accused, moved).outputs
        if answer is None or answer[output].shape != got.shape:
            continue
        off = _off_by(expected[mask], got[mask], answer[output][mask], by)
        if off is not None:
            facts = {"number": number, "exact": number * (1 + off)}
            yield Testimony(Role.NARROWED, Finding.SAME, "rounded-constant", facts)
            return


#: Dtypes in which a reciprocal is rounded.
_FLOATS = (TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@witness("the graph's reciprocals", place=1010)
def look_for_rounded_reciprocals(context: FailureContext) -> Iterator[Testimony]:
    """Whether PyTorch's result follows where the graph divides by a whole number that it has the reciprocal of.

    A tenth is not exact in any precision: `x * 0.1` is not `x / 10`, by most in float16.
    """
    comparison = context.comparison
    if context.failure.outcome is not Outcome.MISMATCH or comparison is None or comparison.problem != "values":
        return
    for tensor in list(_tensors(context.model))[:_MOST]:
        divisor = _divisor(tensor)
        if divisor is None:
            continue
        divided = _with_divisor(context.model, tensor, divisor)
        if divided is not None and context.find(context.ask(context.accused, divided))[0] is Finding.RIGHT:
            number = float(numpy_helper.to_array(tensor).reshape(-1)[0])
            facts = {"number": number, "divisor": divisor, "backend": context.failure.backend}
            yield Testimony(Role.NARROWED, Finding.SAME, "rounded-reciprocal", facts)
            return


def _divisor(tensor: onnx.TensorProto) -> int | None:
    """The whole number whose reciprocal, rounded, is the single element of `tensor`; None where that is exact."""
    if tensor.data_type not in _FLOATS or math.prod(tensor.dims) != 1:
        return None
    array = numpy_helper.to_array(tensor).reshape(-1)
    number = float(array[0])
    if not 0 < abs(number) < 1 or abs(1 / number) > _GREATEST_DIVISOR:
        return None
    divisor = round(1 / number)
    is_rounded = Fraction(number) * divisor != 1 and float(np.asarray(1 / divisor, array.dtype)) == number
    return divisor if is_rounded else None


def _with_divisor(model: onnx.ModelProto, tensor: onnx.TensorProto, divisor: int) -> onnx.ModelProto | None:
    """`model` with `/ divisor` for `* number`, and `* divisor` for `/ number`; None where it has neither."""
    divided = onnx.ModelProto()
    divided.CopyFrom(model)
    names = {tensor.name} | {
        node.output[0]
        for node in model.graph.node
        if node.op_type == "Constant" and any(a.t == tensor for a in node.attribute if a.HasField("t"))
    }
    changed = False
    for node in divided.graph.node:
        second = len(node.input) == 2 and node.input[1] in names
        if second and node.op_type in ("Mul", "Div"):
            node.op_type = {"Mul": "Div", "Div": "Mul"}[node.op_type]
            node.input[1] = _DIVISOR
            changed = True
    if not changed:
        return None
    array = numpy_helper.to_array(tensor)
    divided.graph.initializer.append(numpy_helper.from_array(np.full_like(array, divisor), _DIVISOR))
    return divided


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    yield from model.graph.initializer
    for node in model.graph.node:
        if node.op_type == "Constant":
            yield from (a.t for a in node.attribute if a.HasField("t"))


def _rounded_numbers(model: onnx.ModelProto) -> list[float]:
    """Single numbers that float32 has and that are not round, each once."""
    found: dict[float, None] = {}
    for tensor in _tensors(model):
        if tensor.data_type not in (TensorProto.DOUBLE, TensorProto.FLOAT) or math.prod(tensor.dims) != 1:
            continue
        number = float(numpy_helper.to_array(tensor).reshape(-1)[0])
        narrow = np.float32(number) if abs(number) < float(np.finfo(np.float32).max) else np.float32(0)
        if float(narrow) == number and narrow.view(np.uint32) & _LAST_BITS:
            found[number] = None
    return list(found)


def _moved(model: onnx.ModelProto, number: float) -> tuple[onnx.ModelProto, float]:
    """`model` with another number near `number` wherever it has that, and how far that is off, relatively."""
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    other = float(np.float32(number * (1 + _STEP)))
    for tensor in _tensors(moved):
        if tensor.data_type not in (TensorProto.DOUBLE, TensorProto.FLOAT) or math.prod(tensor.dims) != 1:
            continue
        array = numpy_helper.to_array(tensor)
        if float(array.reshape(-1)[0]) == number:
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(array, other), tensor.name))
    return moved, other / number - 1


def _off_by(expected: Array, got: Array, moved: Array, by: float) -> float | None:
    """How far the number is off, relatively; None where its rounding does not explain all the elements."""
    with np.errstate(all="ignore"):
        slope = (moved - got) / by
        each = (expected - got) / slope
        off = float(np.median(each))
        left = np.abs(got + off * slope - expected)
        explained = left <= _LEFT * np.abs(expected - got)
    return off if 0 < abs(off) <= _ROUNDING and bool(explained.all()) else None


_NARROWER = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
#: Tensors of more elements are data, not the numbers of a call.
_NUMBERS = 64


@witness("the graph's precision", place=50, of_one_call=True)
def look_for_fewer_bits(context: FailureContext) -> Iterator[Testimony]:
    """Whether the graph has the call's numbers, or its computation, in fewer bits.

    An attribute of ONNX that is a number is a float32 (``AttributeProto.f``), and some operators are there for float32
    only: a graph that is built of these cannot give a float64 call's result. It need not be built of these.
    """
    comparison = context.comparison
    if context.failure.outcome is not Outcome.MISMATCH or context.got is None or comparison is None:
        return
    if comparison.problem in ("shape", "dtype"):
        return
    backend = context.failure.backend
    rounded = _rounded(context.invocation, context.model)
    if rounded and context.is_same(run_reference(_with(context.invocation, rounded)).expected):
        facts = {"numbers": [[before, after] for before, after in rounded.items()], "backend": backend}
        yield Testimony(Role.NARROWED, Finding.SAME, "rounded-arguments", facts)
    elif _casts_down(context.model) and _is_float32(context):
        yield Testimony(Role.NARROWED, Finding.SAME, "cast-to-float32", {"backend": backend})


def _rounded(invocation: Invocation, model: onnx.ModelProto) -> dict[float, float]:
    """Numbers of the call → what they are in float32, of those that the graph does not have as they are.

    A backend is given the graph alone: what that lacks, no backend has rounded.
    """
    numbers: list[float] = []

    def noted(argument: Argument) -> Argument:
        if isinstance(argument, float):
            numbers.append(argument)
        return argument

    map_arguments(_with_defaults(invocation), noted)
    exact = _held(model)
    with np.errstate(over="ignore"):
        found = {number: float(np.float32(number)) for number in numbers if not math.isnan(number)}
    return {before: after for before, after in found.items() if before != after and before not in exact}


def _with_defaults(invocation: Invocation) -> Invocation:
    """With the numbers that the schema has where the call gives none."""
    given = {name for name, _ in invocation.arguments}
    schema = overload(invocation.overload)._schema
    defaults = tuple(
        (argument.name, argument.default_value)
        for argument in schema.arguments
        if argument.name not in given and isinstance(argument.default_value, float)
    )
    return replace(invocation, arguments=(*invocation.arguments, *defaults))


def _with(invocation: Invocation, numbers: Mapping[float, float]) -> Invocation:
    def changed(argument: Argument) -> Argument:
        return numbers.get(argument, argument) if isinstance(argument, float) else argument

    return map_arguments(_with_defaults(invocation), changed)


def _held(model: onnx.ModelProto) -> set[float]:
    """The numbers that the graph has in float64."""
    tensors = [
        *model.graph.initializer,
        *(t for node in all_nodes(model) for graph in subgraphs(node) for t in graph.initializer),
        *(a.t for node in all_nodes(model) for a in node.attribute if a.HasField("t")),
    ]
    small = [t for t in tensors if t.data_type == TensorProto.DOUBLE and math.prod(t.dims) <= _NUMBERS]
    return {number for tensor in small for number in numpy_helper.to_array(tensor).ravel().tolist()}


def _casts_down(model: onnx.ModelProto) -> bool:
    return any(
        node.op_type == "Cast" and any(a.name == "to" and a.i in _NARROWER for a in node.attribute)
        for node in all_nodes(model)
    )


def _is_float32(context: FailureContext) -> bool:
    """Whether what is wrong in float64 came through float32: by chance, one result in 2²⁹ looks so."""
    assert context.got is not None
    telling = False
    for expected, got, wrong in zip(context.reference.expected, context.got, context.wrong, strict=True):
        if not wrong.any():
            continue
        if got.dtype != np.float64 or not _in_float32(got[wrong]).all():
            return False
        telling |= bool((_is_not_round(got[wrong]) & ~_in_float32(expected[wrong])).any())
    return telling


def _in_float32(values: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(values == values.astype(np.float32)) | np.isnan(values)


def _is_not_round(values: Array) -> Array:
    with np.errstate(over="ignore"):
        bits = values.astype(np.float32).view(np.uint32) & _LAST_BITS
    return np.asarray((bits != 0) & np.isfinite(values))
