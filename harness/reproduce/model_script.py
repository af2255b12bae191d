"""A runtime's defect as a script that needs ONNX and the runtime, and neither PyTorch nor the harness.

The model is in the script as text. What PyTorch gives is in it as numbers.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Sequence

import numpy as np
import onnx

from harness.compare.judge import Judge
from harness.compare.nearness import term_magnitudes
from harness.compare.tolerances import Tolerance
from harness.compare.verdict import Outcome, Stage
from harness.core.dtypes import Array
from harness.core.snippet import RunSnippet, RunWanted
from harness.execute.reference import Reference, run_reference
from harness.generate.case_library import load_cases
from harness.generate.operator_case import judge_of
from harness.reproduce import call_source
from harness.reproduce.call_source import CallSource
from harness.reproduce.criterion import compared_outputs, explained, named_output, needs_truth, tolerance_for
from harness.reproduce.failure import ReproducibleFailure
from harness.reproduce.script import GONE, THERE, NoScript
from harness.run.backend import BACKENDS

#: Characters; a longer model is not text that people read.
_LONGEST_MODEL = 6000
#: Elements; of larger outputs only the one that the failure names is compared.
_MANY = 64
#: Elements; larger inputs would fill pages.
_MOST = 2048
#: The element that a failure names: ``output 0[2,1]``.
_STRUCTURE = ("number of outputs", "dtype", "shape")


def write_model_script(failure: ReproducibleFailure, model: onnx.ModelProto, heading: str) -> str:
    """The script for a failure of the runtime.

    Args:
        model: What the call was exported as.
        heading: Its first line.

    Raises:
        NoScript: the backend has no code without PyTorch, or the failure cannot be shown by numbers.
    """
    if failure.stage not in (Stage.LOAD, Stage.RUN, Stage.COMPARE) or failure.dynamic_dims is not None:
        raise NoScript("the failure is not one of the runtime alone")
    if failure.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        raise NoScript("a process that dies needs one that watches it")
    text = _plain_text(model)
    run = _backend(failure)
    if failure.stage is Stage.LOAD:
        return _assembled(heading, run, text, _refused(run.load, "load"))
    # Operators are judged as their family files say.
    load_cases()
    reference = run_reference(failure.invocation)
    names = CallSource(failure.invocation).names
    wanted = {value.name for value in model.graph.input}
    feeds = [(n, feed) for n, feed in zip(names, reference.feeds, strict=True) if n in wanted]
    if any(array.size > _MOST or array.dtype.kind not in "fiub" for _, array in feeds):
        raise NoScript("the inputs are too large for a script, or NumPy lacks their dtype")
    made = [f'    "{name}": {array_source(array)},' for name, array in feeds]
    before = [*(["inputs = {", *made, "}"] if made else ["inputs = {}"]), *run.load]
    if failure.stage is Stage.RUN:
        return _assembled(heading, run, text, [*before, *_refused(run.run, "run")])
    shown, checks = _comparison(failure, judge_of(failure.invocation), reference)
    checked = _caught(checks, "AssertionError", "error")
    return _assembled(heading, run, text, [*before, *run.run, *shown, *checked])


def _plain_text(model: onnx.ModelProto) -> str:
    """The text of a model, without what an exporter noted in it."""
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


def _backend(failure: ReproducibleFailure) -> RunSnippet:
    entry, argument = BACKENDS.find(failure.backend)
    if entry.snippet is None:
        raise NoScript(f"backend {failure.backend} has no stand-alone code")
    run = entry.snippet(RunWanted(argument=argument, arrays=True))
    if not run.run or any("torch" in line for line in (*run.load, *run.run)):
        raise NoScript(f"backend {failure.backend} has no code without PyTorch")
    return run


def array_source(array: Array) -> str:
    """An expression that makes an array, on one line or several."""
    dtype = f"np.{'bool_' if array.dtype.kind == 'b' else array.dtype.name}"
    flat, shape = array.reshape(-1), array.shape
    if not array.size:
        return f"np.empty({shape}, {dtype})"
    if array.size > 8 and (flat == flat[0]).all():
        return f"np.full({shape}, {_number(flat[0])}, {dtype})"
    step = int(flat[1]) - int(flat[0]) if array.size > 8 and array.dtype.kind in "iu" else 0
    if step and (flat == int(flat[0]) + step * np.arange(array.size)).all():
        first = int(flat[0])
        return f"np.arange({first}, {first + step * array.size}, {step}, {dtype}).reshape{shape}"
    if array.size <= 8:
        nested = re.sub(r"\b(inf|nan)\b", r"np.\1", _nested(array))
        return f"np.array({nested}, {dtype})"
    lines = textwrap.wrap(", ".join(map(_number, flat)), call_source.WIDTH - 12, break_on_hyphens=False)
    body = "\n".join(f"        {line}" for line in lines)
    return f"np.array([\n{body}\n    ], {dtype}).reshape({shape})"


def _number(value: np.generic) -> str:
    """The fewest digits that are read back as the value."""
    if value.dtype.kind == "f":
        text = str(value)
        return text if np.isfinite(value) else text.replace("inf", "np.inf").replace("nan", "np.nan")
    return str(value)


def _nested(array: Array) -> str:
    if not array.ndim:
        return str(array[()])
    return f"[{', '.join(_nested(part) for part in array)}]"


def _comparison(failure: ReproducibleFailure, judge: Judge, reference: Reference) -> tuple[list[str], list[str]]:
    """Code that shows ``outputs`` beside what PyTorch gives, and code that compares them."""
    expected = reference.expected
    if failure.signature in _STRUCTURE:
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
    failure: ReproducibleFailure, judge: Judge, reference: Reference, place: int
) -> tuple[list[str], list[str]]:
    """Code that compares one output, or one element of a large one."""
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
    signed = judge.exact or judge.signed_zeros or failure.signature == "sign of zero"
    if signed and want.dtype.kind == "f" and (want == 0).any():
        zeros = "(got == 0) & (expected == 0)"
        lines.append(f'assert (np.signbit(got) == np.signbit(expected))[{zeros}].all(), "sign of zero"')
    return shown, lines


def _widened(judge: Judge, reference: Reference, place: int) -> Tolerance:
    """The tolerance, with as much more as PyTorch itself is away from the result in float64."""
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


def _refused(steps: Sequence[str], what: str) -> list[str]:
    """Code that does `steps`, in which the runtime fails."""
    return _caught(steps, "Exception", f'"expected the model to {what}\\ngot", type(error).__name__, error')


def _caught(steps: Sequence[str], kind: str, said: str) -> list[str]:
    return [
        "try:",
        *(f"    {line}" for step in steps for line in step.split("\n")),
        f"except {kind} as error:",
        f'    print({said}, "\\n{THERE}")',
        "    raise SystemExit(1)",
        f'print("{GONE}")',
    ]


def _assembled(heading: str, run: RunSnippet, text: str, body: list[str]) -> str:
    packages = dict.fromkeys(("onnx", *run.packages))
    imports = ["import numpy as np", "import onnx", *run.imports]
    used = "\n".join(body)
    if "np." not in used:
        imports.remove("import numpy as np")
    return "\n".join(
        [
            f'"""{textwrap.fill(heading, call_source.WIDTH - 3)}.',
            "",
            'Exits 1 while the defect is there and 0 once it is gone."""',
            "",
            "from importlib.metadata import version",
            "",
            *dict.fromkeys(sorted(imports, key=lambda line: (line.startswith("from"), line))),
            "",
            f"print({{p: version(p) for p in {json.dumps(list(packages))}}})",
            'model = onnx.parser.parse_model("""',
            text,
            '""")',
            *body,
            "",
        ]
    )
