"""A runtime's defect as a script that needs ONNX and the runtime, and neither PyTorch nor the harness.

The script has the model as text and PyTorch's results as numbers.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx

from harness.compare.judge import Judge
from harness.compare.nearness import term_magnitudes
from harness.compare.tolerances import Tolerance
from harness.compare.verdict import Outcome, Stage
from harness.core.dtypes import Array
from harness.core.plugins import installed
from harness.core.snippet import RunSnippet, RunWanted
from harness.generate.case_library import load_cases
from harness.pipeline.case import CaseOracle
from harness.pipeline.reference import run_reference
from harness.reproduce import call_source
from harness.reproduce.call_source import source_of
from harness.reproduce.criterion import compared_outputs, explained, named_output, needs_truth, tolerance_for
from harness.reproduce.failure import ReproducibleFailure
from harness.reproduce.graph_part import GraphPart, pattern
from harness.reproduce.script_text import NoScript, assemble, caught, left_to_child, refused
from harness.run.backend import BACKENDS

#: Characters; a longer model is not text that people read.
_LONGEST_MODEL = 6000
#: Elements; of larger outputs only the one that the failure names is compared.
_MANY = 64
#: Elements; larger inputs would fill pages.
_MOST = 2048
#: Elements of an array that is written on one line.
_SHORT = 8
#: The element that a failure names: ``output 0[2,1]``.
_STRUCTURE = ("number of outputs", "dtype", "shape")


def write_model_script(failure: ReproducibleFailure, model: onnx.ModelProto, heading: str) -> str:
    """Write the script for a failure of the runtime.

    Args:
        model: The exported model.
        heading: The script's first line.

    Raises:
        NoScript: the backend has no code without PyTorch, or the failure cannot be shown by numbers.
    """
    if failure.verdict.stage not in (Stage.LOAD, Stage.RUN, Stage.COMPARE) or failure.dynamic_dims is not None:
        raise NoScript("the failure is not one of the runtime alone")
    if failure.verdict.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        raise NoScript("a process that dies needs one that watches it")
    graph = ['model = onnx.parser.parse_model("""', _plain_text(model), '""")']
    run = _snippet(failure.verdict.backend)
    if failure.verdict.stage is Stage.LOAD:
        return _assembled(heading, run, [*graph, *refused(run.load, "the model to load")])
    # Operators are judged as their family files say.
    load_cases()
    reference = run_reference(failure.invocation)
    names = source_of(failure.invocation).names
    wanted = {value.name for value in model.graph.input}
    feeds = [(n, feed) for n, feed in zip(names, reference.feeds, strict=True) if n in wanted]
    if any(array.size > _MOST or array.dtype.kind not in "fiub" for _, array in feeds):
        raise NoScript("the inputs are too large for a script, or NumPy lacks their dtype")
    made = [f'    "{name}": {array_source(array)},' for name, array in feeds]
    before = [*graph, *(["inputs = {", *made, "}"] if made else ["inputs = {}"]), *run.load]
    if failure.verdict.stage is Stage.RUN:
        return _assembled(heading, run, [*before, *refused(run.run, "the model to run")])
    shown, checks = _comparison(failure, reference.judge, reference)
    checked = caught(checks, "AssertionError", "error")
    return _assembled(heading, run, [*before, *run.run, *shown, *checked])


#: Seconds that a child process is waited for.
_PATIENCE = 120


def write_part_script(part: GraphPart, *, heading: str, saved: str = "") -> str:
    """Write the script for a graph that a runtime refuses or computes wrongly.

    Args:
        part: The graph.
        heading: The script's first line.
        saved: Path without its suffix of an ``.onnx`` file and an ``.npz`` file that hold the graph and its
            inputs; "" if the script is to hold them itself.

    Raises:
        NoScript: the backend has no code without PyTorch, or, without `saved`, the script would be too long or
            NumPy lacks a dtype.
    """
    run = _optimised(_snippet(part.backend)) if part.exporter else _snippet(part.backend)
    if saved:
        made = [f'model = onnx.load("{saved}.onnx")', f'inputs = dict(np.load("{saved}.npz"))']
    else:
        made = [*_model_source(part.proto), *_inputs_source(part.inputs)]
    if part.ends_process:
        child = replace(run, imports=(*run.imports, "import subprocess", "import sys"))
        return _assembled(heading, child, left_to_child([*made, *run.load, *run.run], _PATIENCE))
    if part.stage == Stage.LOAD:
        return _assembled(heading, run, [*made, *refused(run.load, "the model to load")])
    if part.stage == Stage.RUN or not part.expected:
        return _assembled(heading, run, [*made, *run.load, *refused(run.run, "the model to run")])
    compared = _compared(part.expected[part.output], part.output, part.element, part.allowed)
    return _assembled(heading, run, [*made, *run.load, *run.run, *compared])


def _compared(expected: Array, output: int, element: tuple[int, ...] | None, allowed: float) -> list[str]:
    """Write code that compares an output with the right one."""
    if element is None:
        shown = [
            f'expected = ("{expected.dtype}", {expected.shape})',
            f"got = (str(outputs[{output}].dtype), outputs[{output}].shape)",
        ]
        check = 'assert got == expected, "wrong dtype or shape"'
    else:
        is_long = expected.size > _MANY
        want = np.asarray(expected[element]) if is_long else expected
        shown = [f"expected = {array_source(want)}", f"got = outputs[{output}]{list(element) if is_long else ''}"]
        is_floating = expected.dtype.kind == "f"
        bounds = f"assert_allclose(got, expected, rtol=0, atol={allowed:g})"
        check = f"np.testing.{bounds if is_floating else 'assert_array_equal(got, expected)'}"
    shown.append(r'print(f"expected {expected!r}\ngot      {got!r}")')
    return [*shown, *caught([check], "AssertionError", "error")]


def _optimised(run: RunSnippet) -> RunSnippet:
    return replace(
        run,
        load=("model = onnxscript.optimizer.optimize(model)", *run.load),
        imports=(*run.imports, "import onnxscript.optimizer"),
        packages=(*run.packages, *installed("onnxscript")),
    )


def _model_source(model: onnx.ModelProto) -> list[str]:
    """Return code that makes a model: its text, and separately the larger weights."""
    small = onnx.ModelProto()
    small.CopyFrom(model)
    del small.graph.initializer[:]
    weights = {}
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.size > _SHORT:
            weights[tensor.name] = array
        else:
            small.graph.initializer.append(tensor)
    lines = ['model = onnx.parser.parse_model("""', _plain_text(small), '""")']
    if weights:
        lines += [
            f"weights = {{\n{_entries(weights)}\n}}",
            "for name, array in weights.items():",
            "    model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))",
        ]
    return lines


def _inputs_source(inputs: Mapping[str, Array]) -> list[str]:
    return [f"inputs = {{\n{_entries(inputs)}\n}}" if inputs else "inputs = {}"]


def _entries(arrays: Mapping[str, Array]) -> str:
    lines = [f'    "{name}": {array_source(array)},' for name, array in arrays.items()]
    if any(a.dtype.kind not in "fiub" for a in arrays.values()) or max(map(len, lines)) > _LONGEST_MODEL:
        raise NoScript("an array is too large for a script, or NumPy lacks its dtype")
    return "\n".join(lines)


def _plain_text(model: onnx.ModelProto) -> str:
    """Return the text of a model, without the exporter's notes."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    for field in ("producer_name", "producer_version", "doc_string"):
        plain.ClearField(field)
    del plain.metadata_props[:]
    for node in plain.graph.node:
        del node.metadata_props[:]
        node.ClearField("doc_string")
        node.ClearField("name")
    values = {tensor.name for tensor in plain.graph.initializer}
    kept = [value for value in plain.graph.value_info if value.name not in values]
    del plain.graph.value_info[:]
    plain.graph.value_info.extend(kept)
    text: str = onnx.printer.to_text(plain)
    if len(text) > _LONGEST_MODEL:
        raise NoScript("the model is too large for a script")
    try:
        onnx.parser.parse_model(text)
    except Exception as error:
        raise NoScript(f"the text of the model cannot be read back: {error}") from None
    return text.strip()


def _snippet(backend: str) -> RunSnippet:
    entry, argument = BACKENDS.find(backend)
    if entry.snippet is None:
        raise NoScript(f"backend {backend} has no stand-alone code")
    run = entry.snippet(RunWanted(argument=argument, arrays=True))
    if not run.run or any("torch" in line for line in (*run.load, *run.run)):
        raise NoScript(f"backend {backend} has no code without PyTorch")
    return run


def array_source(array: Array) -> str:
    """Write an expression that makes an array, on one line or several."""
    dtype = f"np.{'bool_' if array.dtype.kind == 'b' else array.dtype.name}"
    flat, shape = array.reshape(-1), array.shape
    if not array.size:
        return f"np.empty({shape}, {dtype})"
    if array.size > _SHORT and (flat == flat[0]).all():
        return f"np.full({shape}, {_number(flat[0])}, {dtype})"
    if array.size > _SHORT and array.dtype.kind == "f" and (array == pattern(array)).all():
        return f"((np.arange({array.size}) * 7 % 13 - 6) / 4).reshape({shape}).astype({dtype})"
    step = int(flat[1]) - int(flat[0]) if array.size > _SHORT and array.dtype.kind in "iu" else 0
    if step and (flat == int(flat[0]) + step * np.arange(array.size)).all():
        first = int(flat[0])
        return f"np.arange({first}, {first + step * array.size}, {step}, {dtype}).reshape{shape}"
    if array.size <= _SHORT:
        nested = re.sub(r"\b(inf|nan)\b", r"np.\1", _nested(array))
        return f"np.array({nested}, {dtype})"
    lines = textwrap.wrap(", ".join(map(_number, flat)), call_source.WIDTH - 12, break_on_hyphens=False)
    body = "\n".join(f"        {line}" for line in lines)
    return f"np.array([\n{body}\n    ], {dtype}).reshape({shape})"


def _number(value: np.generic) -> str:
    """Write the fewest digits that are read back as the value."""
    if value.dtype.kind == "f":
        text = str(value)
        return text if np.isfinite(value) else text.replace("inf", "np.inf").replace("nan", "np.nan")
    return str(value)


def _nested(array: Array) -> str:
    if not array.ndim:
        return str(array[()])
    return f"[{', '.join(_nested(part) for part in array)}]"


def _comparison(failure: ReproducibleFailure, judge: Judge, reference: CaseOracle) -> tuple[list[str], list[str]]:
    """Return code that shows ``outputs`` and PyTorch's results, and code that compares them."""
    expected = reference.expected
    if failure.verdict.signature in _STRUCTURE:
        if judge.unused_outputs and judge.unused_outputs(reference.arguments):
            raise NoScript("some outputs are left open")
        shapes = ", ".join(f'("{e.dtype}", {e.shape})' for e in expected)
        shown = [
            f"expected = [{shapes}]",
            "got = [(str(o.dtype), o.shape) for o in outputs]",
            r'print(f"expected {expected}\ngot      {got}")',
        ]
        return shown, ['assert got == expected, "wrong dtype or shape"']
    if judge.undefined is not None and any(
        mask is not None and mask.any() for mask in judge.undefined(reference.arguments, expected)
    ):
        raise NoScript("some elements are left open")
    named = named_output(failure)
    places = [i for i in compared_outputs(judge, reference, named) if named is None or i == named]
    if len(places) != 1 or places[0] in judge.rules or expected[places[0]].dtype.kind not in "fiub":
        raise NoScript("the outputs are not compared by numbers alone")
    (place,) = places
    return _numbers(failure, judge, reference, place)


def _numbers(
    failure: ReproducibleFailure, judge: Judge, reference: CaseOracle, place: int
) -> tuple[list[str], list[str]]:
    """Write code that compares one output, or one element of a large one."""
    want = reference.expected[place]
    tolerance = _widened(judge, reference, place)
    got, where = f"outputs[{place}]", ""
    if want.size > _MANY:
        difference = failure.diagnosis.difference if failure.diagnosis else None
        if difference is None or not difference.element:
            raise NoScript("the output is too large for a script")
        where = f"[{','.join(map(str, difference.element))}]"
        want = np.asarray(want[difference.element])
    shown = [
        f"expected = {array_source(want)}",
        f"got = {got}{where}",
        r'print(f"expected {expected!r}\ngot      {got!r}")',
    ]
    lines = [
        *explained(tolerance, str(want.dtype)),
        f"np.testing.assert_allclose(got, expected, rtol={tolerance.rtol:g}, atol={tolerance.atol:g})",
    ]
    signed = judge.exact or judge.signed_zeros or failure.verdict.signature == "sign of zero"
    if signed and want.dtype.kind == "f" and (want == 0).any():
        zeros = "(got == 0) & (expected == 0)"
        lines.append(f'assert (np.signbit(got) == np.signbit(expected))[{zeros}].all(), "sign of zero"')
    return shown, lines


def _widened(judge: Judge, reference: CaseOracle, place: int) -> Tolerance:
    """Widen the tolerance by the difference between PyTorch's result and float64's."""
    want = reference.expected[place]
    tolerance = tolerance_for(judge, want, ruled=False)
    truth = reference.truth[place] if reference.truth else None
    if truth is None or not needs_truth(judge, reference, place, tolerance, None):
        return tolerance
    with np.errstate(all="ignore"):
        slack = np.abs(want.astype(np.float64) - truth)
        terms = term_magnitudes(judge, reference, place)
        more = 2 * float(np.max(slack[np.isfinite(slack)], initial=0.0))
        if terms is not None:
            more += tolerance.rtol * float(np.max(terms[np.isfinite(terms)], initial=0.0))
    return Tolerance(tolerance.rtol, tolerance.atol + more)


def _assembled(heading: str, run: RunSnippet, body: list[str]) -> str:
    imports = ("import numpy as np", "import onnx", *run.imports)
    return assemble(f"{heading}.", "", imports=imports, packages=("onnx", *run.packages), parts=(body,))
