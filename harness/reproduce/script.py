"""Write a failure as a script that needs PyTorch, ONNX, the runtime and the route's transforms, but not the harness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import find_converter
from harness.convert.rules.rule import RuleProblem
from harness.convert.rules.standalone_source import NotSeparable, RuleSource
from harness.core.control_flow import FLOW_OPERATORS, is_flow_operator
from harness.core.dtypes import PARTS, PRECISION
from harness.core.invocation import Invocation
from harness.core.program import calls_of
from harness.core.route import Route
from harness.core.snippet import ExportSnippet, ExportWanted, RunSnippet, RunWanted
from harness.core.tensors import graph_input_shape
from harness.core.torch_operators import DEFINED_IN, FLOW_IMPORTS
from harness.generate.case_library import load_cases
from harness.pipeline.reference import run_reference
from harness.reproduce.call_source import CallSource, source_of, uses_inf_or_nan
from harness.reproduce.criterion import Criterion, criterion
from harness.reproduce.failure import ReproducibleFailure, rules_of, title
from harness.reproduce.script_text import NoScript, assemble, caught, import_lines, left_to_child, refused
from harness.reproduce.transform_source import transform_source
from harness.run.backend import BACKENDS


@dataclass(frozen=True)
class _Parts:
    """The parts of a script, line by line."""

    source: CallSource
    inputs: list[str]
    export: ExportSnippet
    transform: ExportSnippet
    run: RunSnippet
    rules: RuleSource

    @property
    def making(self) -> list[str]:
        """The code that makes the model that is checked and loaded."""
        return [*self.export.code, *self.transform.code]


def write_script(failure: ReproducibleFailure, heading: str = "") -> str:
    """Write the script for a failure.

    Args:
        heading: Its first line; "" for a description of the failure with the case's id.

    Raises:
        NoScript: its converter or backend has no stand-alone code, or PyTorch no longer accepts the case.
    """
    if failure.verdict.stage is Stage.REFERENCE:
        raise NoScript("it ended before anything was exported; try it with `conformance replay`")
    parts = _parts(failure)
    checks: tuple[str, ...] = ()
    if failure.verdict.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        body = _dying(failure, parts)
    elif failure.verdict.stage is Stage.COMPARE:
        # Operators are judged as their family files say.
        load_cases()
        reference = run_reference(failure.invocation)
        found = criterion(failure, reference.judge, reference, parts.source)
        checks = found.helpers
        body = _comparing(failure, parts, found)
    else:
        body = _raising(failure, parts)
    pairs = parts.source.helpers if "parts(" in "\n".join(body) else []
    helpers = [*pairs, *(["", ""] if pairs and checks else []), *checks]
    return _assembled(failure, parts, helpers, body, heading)


def write_graph_script(failure: ReproducibleFailure) -> str:
    """Write a script that prints the exported model as ONNX's text format.

    Raises:
        NoScript: see `write_script`.
    """
    parts = _parts(failure)
    body = [*parts.inputs, *parts.making, "print(onnx.printer.to_text(model))"]
    registering = _registering(failure.invocation)
    exporting = [*parts.export.imports, *parts.transform.imports]
    wanted = ["import onnx", "import torch", *registering, *exporting, *parts.rules.imports]
    return "\n".join([*import_lines(wanted, "\n".join(body)), "", "", *_defined(parts), "", "", *body, ""])


def _parts(failure: ReproducibleFailure) -> _Parts:
    converter = find_converter(failure.verdict.converter)
    if converter.snippet is None:
        raise NoScript(
            f"converter {failure.verdict.converter} has no stand-alone code (`snippet` of its ConverterEntry)"
        )
    source = source_of(failure.invocation)
    dynamic, examples = None, []
    if failure.dynamic_dims is not None:
        dynamic = {n: tuple(sorted(d)) for n, d in zip(source.names, failure.dynamic_dims, strict=True)}
        if failure.exported != failure.invocation:
            examples = source_of(failure.exported).inputs("examples")
    try:
        source.module()
    except Exception as error:
        raise NoScript(f"PyTorch rejects the call here ({type(error).__name__}: {error})") from error
    try:
        functions, rules = rules_of(failure)
    except (RuleProblem, NotSeparable) as error:
        raise NoScript(str(error)) from None
    export = converter.snippet(
        ExportWanted(
            examples="examples" if examples else "inputs",
            opset=failure.opset,
            dynamic=dynamic,
            rules=functions,
        )
    )
    run = RunSnippet(load=())
    if failure.verdict.stage in (Stage.LOAD, Stage.RUN, Stage.COMPARE):
        run = _backend(failure, source)
        if failure.verdict.stage is not Stage.LOAD and not run.run:
            raise NoScript(
                f"backend {failure.verdict.backend} has stand-alone code that loads a model, and none that runs it"
            )
    transform = transform_source(Route.parse(failure.verdict.converter))
    return _Parts(source, [*source.inputs(), *examples], export, transform, run, rules)


def _backend(failure: ReproducibleFailure, source: CallSource) -> RunSnippet:
    entry, argument = BACKENDS.find(failure.verdict.backend)
    if entry.snippet is None:
        raise NoScript(f"backend {failure.verdict.backend} has no stand-alone code (`snippet` of its BackendEntry)")
    tensors = list(failure.invocation.tensors())
    ranges = {}
    for name, spec, exported in zip(source.names, tensors, failure.exported.tensors(), strict=True):
        sizes = list(zip(graph_input_shape(spec), graph_input_shape(exported), strict=True))
        ranges[name] = tuple(map(min, sizes)), tuple(map(max, sizes))
    return entry.snippet(
        RunWanted(
            argument=argument,
            raw="bfloat16" in (*(spec.dtype for spec in tensors), *source.output_dtypes),
            kind=find_converter(failure.verdict.converter).makes,
            ranges=ranges if failure.dynamic_dims is not None else None,
        )
    )


def _defined(parts: _Parts) -> list[str]:
    return [*parts.rules.code, *(["", ""] if parts.rules.code else []), *parts.source.module()]


def _raising(failure: ReproducibleFailure, parts: _Parts) -> list[str]:
    """Write code for a failure with an exception, which is caught at the stage that raised it."""
    export, run = parts.export.code, parts.run
    if failure.verdict.stage is Stage.CONVERT:
        return [*parts.inputs, *refused(export, "an exported model")]
    if failure.verdict.stage is Stage.TRANSFORM:
        return [*parts.inputs, *export, *refused(parts.transform.code, "a transformed model")]
    before = [*parts.inputs, *parts.making]
    if failure.verdict.stage is Stage.CHECK:
        return [*before, *refused(_checks(failure, parts), "a valid model")]
    if failure.verdict.stage is Stage.LOAD:
        return [*before, *refused(run.load, "the model to load")]
    expected = ['print("PyTorch gives", Model()(*inputs.values()))', *parts.source.fed]
    return [*before, *run.load, *expected, *refused(run.run, "the model to run")]


def _checks(failure: ReproducibleFailure, parts: _Parts) -> list[str]:
    """Return all checks that the harness makes of a model, as `harness.pipeline.stages.check_model` does."""
    count, opset = len(parts.source.output_dtypes), []
    if failure.opset is not None and not parts.transform.code:
        opset = [
            "emitted = [o.version for o in model.opset_import if o.domain == '']",
            f'assert emitted == [{failure.opset}], f"opset {{emitted}} in place of {failure.opset}"',
        ]
    return [
        *opset,
        "found = len(model.graph.output)",
        f'assert found == {count}, f"{{found}} outputs in place of {count}"',
        "onnx.checker.check_model(model, full_check=True)",
    ]


def _comparing(failure: ReproducibleFailure, parts: _Parts, found: Criterion) -> list[str]:
    eager = parts.source.listed(f"Model()(*{parts.source.eager_inputs}.values())")
    if found.runs == 1:
        run = [
            *parts.run.run,
            *_digits(parts.source),
            *(["torch.manual_seed(0)"] if parts.source.is_random else []),
            f"expected = {eager}",
            r'print(f"expected {expected}\ngot      {outputs}")',
        ]
    else:
        stacked = f"[torch.stack(runs) for runs in zip(*({{}} for _ in range({found.runs})))]"
        run = [
            "def run():",
            *(f"    {line}" for line in parts.run.run),
            "    return outputs",
            f"outputs = {stacked.format('run()')}",
            "torch.manual_seed(0)",
            f"expected = {stacked.format(eager)}",
            r'print(f"expected {[e[0] for e in expected]}\ngot      {[o[0] for o in outputs]}")',
        ]
    return [
        *parts.inputs,
        *parts.making,
        *parts.run.load,
        *parts.source.fed,
        *run,
        *caught(found.lines, "AssertionError", "error"),
    ]


def _digits(source: CallSource) -> list[str]:
    """Write code that prints enough digits to tell different numbers apart; PyTorch prints four."""
    bits = max((PRECISION.get(PARTS.get(dtype, dtype), 0) for dtype in source.output_dtypes), default=0)
    digits = math.ceil(1 + bits * math.log10(2))
    return [f"torch.set_printoptions(precision={digits})"] if digits > 4 else []


def _dying(failure: ReproducibleFailure, parts: _Parts) -> list[str]:
    """Write code for a failure that ends the process: a child runs it."""
    steps = [*parts.inputs, *(parts.export.code if failure.verdict.stage is Stage.CONVERT else parts.making)]
    if failure.verdict.stage is Stage.CHECK:
        steps.append("onnx.checker.check_model(model, full_check=True)")
    steps += parts.run.load
    if failure.verdict.stage in (Stage.RUN, Stage.COMPARE):
        steps += [*parts.source.fed, *parts.run.run]
    return left_to_child(steps, round(failure.timeout) + 60)


def _registering(invocation: Invocation) -> list[str]:
    """Write imports after which PyTorch knows the operators that are called."""
    lines: list[str] = []
    for overload in calls_of(invocation):
        namespace = overload.partition(".")[0]
        if is_flow_operator(overload):
            lines += [FLOW_IMPORTS[name] for name in FLOW_OPERATORS[overload].functions]
        elif namespace in DEFINED_IN:
            lines.append(f"import {DEFINED_IN[namespace]}")
    return lines


def _assembled(
    failure: ReproducibleFailure, parts: _Parts, helpers: Sequence[str], body: list[str], heading: str
) -> str:
    module = _defined(parts)
    imports = [
        "import onnx",
        "import torch",
        *_registering(failure.invocation),
        *parts.export.imports,
        *parts.transform.imports,
        *parts.run.imports,
        *parts.rules.imports,
    ]
    if failure.verdict.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        imports += ["import subprocess", "import sys"]
    names = uses_inf_or_nan("\n".join([*module, *body]))
    if names:
        imports.append(f"from torch import {', '.join(names)}")
    return assemble(
        heading or title(failure),
        "" if heading else f"Case {failure.verdict.case_id}{', shrunk' if failure.minimal else ''}. ",
        imports=imports,
        packages=("torch", "onnx", *parts.export.packages, *parts.run.packages),
        parts=(module, helpers, body),
    )
