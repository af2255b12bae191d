"""What happens when an operator is tried: a few drawn calls, and the specification's own tests.

What converters and backends make of a few drawn calls, and the nodes that a converter emits for one.

Which backends run an ONNX operator: tried with the tests that the ONNX specification itself has for it.

They hold one node each, with inputs and outputs, and are made for the newest opset. A runtime that does not
have that yet is asked in the opset of an earlier version of the operator, too. Each backend is tried in a
process of its own, which may die.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.converter import onnx_converter
from harness.convert.provenance import EmittedGraph, emitted
from harness.convert.torch_private import quiet
from harness.core.documents import plain
from harness.core.invocation import Invocation
from harness.core.isolation import IsolatedCalls, ProcessDied
from harness.core.tensors import build_tensors
from harness.execute.program import Exportable, export_request
from harness.execute.run_steps import emitted_opset
from harness.execute.supervisor import Supervisor
from harness.execute.task import Settings
from harness.execute.torch_call import call_invocation
from harness.explain import onnx_operator
from harness.explain.onnx_operator import shown
from harness.explain.operator import signature
from harness.generate.draws import draw_cases
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.sources.recorded import Replayed
from harness.locate.source_code import emitting_place
from harness.plan.unit import Unit, run_unit
from harness.run.backend import BACKENDS

#: Calls among which the one that shows most is chosen.
_CHOICE = 32
#: Exports in which a node is looked for: an optimiser may leave none of a trivial call.
_LOOKED_AT = 4
#: Stages that a case gets to only with a model.
_CONVERTED = (Stage.LOAD, Stage.RUN, Stage.COMPARE)


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """How the cases of one overload ended with one converter and one backend.

    Attributes:
        counts: Outcome → how many cases.
        converted: How many got a model.
        refusal: What was said of the commonest case that got none, or failed; "" for none.
    """

    overload: str
    converter: str
    backend: str
    counts: dict[str, int]
    converted: int
    refusal: str = ""

    @property
    def cases(self) -> int:
        """All of them, but those that PyTorch rejects."""
        return sum(n for outcome, n in self.counts.items() if outcome != Outcome.SKIP)


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of an exported model.

    Attributes:
        domain: ``ai.onnx`` for the default one.
        inputs: Names; values of constants where these are short.
        attributes: Name → value as text.
        line: Of the converter's source that emitted it, with its function; "" where it is unknown.
    """

    operator: str
    domain: str
    inputs: tuple[str, ...]
    attributes: dict[str, str] = field(default_factory=dict)
    line: str = ""


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """What a converter made of one call: the model's opset, and its nodes without constants."""

    converter: str
    invocation: Invocation
    opset: int | None
    nodes: tuple[Node, ...]


def drawn(name: str, count: int) -> list[Invocation]:
    """Different calls of an overload, the one that shows most first; none where no case covers it."""
    case = OPERATOR_CASES.get(name)
    if case is None:
        return []
    structures = draw_cases(case, seed=0, structures=max(count, _CHOICE), values=1)
    calls = [d.invocations[0] for d in structures if _accepted(d.invocations[0])]
    defaults = {p.name: p.default for p in signature(name).parameters}

    def shows(call: Invocation) -> tuple[bool, bool, int]:
        # The plainest dtype, something to compute, and arguments that are not their defaults.
        given = sum(repr(value) != defaults.get(name) for name, value in call.arguments)
        return call.dtype != case.dtypes[0], any(t.numel < 2 for t in call.tensors()), -given

    best = min(calls, key=shows, default=None)
    return [] if best is None else [best, *(call for call in calls if call is not best)][:count]


def _accepted(invocation: Invocation) -> bool:
    try:
        call_invocation(invocation, build_tensors(invocation))
    except Exception:
        return False
    return True


def try_calls(
    calls: Sequence[Invocation],
    converter: str,
    backends: Sequence[str],
    supervisor: Supervisor,
    rules: tuple[str, ...] = (),
) -> list[Verdict]:
    """Run calls of one overload through a converter and backends, in the supervisor's process."""
    unit = Unit(
        overload=calls[0].overload,
        converter=converter,
        backends=tuple(backends),
        replay=tuple(Replayed(call, None) for call in calls),
        settings=Settings(blame=False, rules=rules),
    )
    return [verdict for verdicts in run_unit(unit, supervisor) for verdict in verdicts]


def outcomes(verdicts: Sequence[Verdict]) -> list[Outcomes]:
    """Verdicts counted by overload, converter and backend."""
    groups: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in verdicts:
        groups.setdefault((verdict.overload, verdict.converter, verdict.backend), []).append(verdict)
    return [_outcomes(*key, group) for key, group in groups.items()]


def _outcomes(overload: str, converter: str, backend: str, verdicts: Sequence[Verdict]) -> Outcomes:
    failures = Counter(v.signature for v in verdicts if v.outcome.is_failure)
    message = ""
    if failures:
        signature = failures.most_common(1)[0][0]
        first = next(v for v in verdicts if v.signature == signature)
        message = plain(f"{first.outcome} at {first.stage}: {first.message}", 240)
    return Outcomes(
        overload=overload,
        converter=converter,
        backend=backend,
        counts=dict(Counter(str(v.outcome) for v in verdicts)),
        converted=sum(v.stage in _CONVERTED for v in verdicts),
        refusal=message,
    )


def convertible(calls: Sequence[Invocation], verdicts: Sequence[Verdict], converter: str) -> list[Invocation]:
    """The calls that a converter has just made a model of, in their order."""
    got = {v.case_id for v in verdicts if v.converter == converter and v.stage in _CONVERTED}
    return [call for call in calls if call.case_id in got]


def emit_one(calls: Sequence[Invocation], converter: str, operator: str | None) -> Emitted | None:
    """What a converter makes of the first of some calls that becomes a node of `operator`, else of the first;
    None for no call.
    """
    first = None
    for call in calls[:_LOOKED_AT]:
        one = emit(call, converter)
        if operator is None or any(node.operator == operator for node in one.nodes):
            return one
        first = first or one
    return first


def emit(call: Invocation, converter: str) -> Emitted:
    """Export one call alone and read the nodes."""
    structure = Exportable.of(call, outputs=len(call_invocation(call, build_tensors(call))))
    started = onnx_converter(converter)
    with quiet():
        graph = emitted(started, export_request([structure], opset=None, dynamic=False))
    opset, nodes = emitted_opset(graph.model), tuple(_nodes(graph))
    return Emitted(converter=converter, invocation=call, opset=opset, nodes=nodes)


def _nodes(graph: EmittedGraph) -> list[Node]:
    model = graph.model
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            value = onnx.helper.get_attribute_value(attribute)
            is_tensor = isinstance(value, onnx.TensorProto)
            constants[node.output[0]] = value if is_tensor else onnx.numpy_helper.from_array(_array(value))
    return [
        Node(
            operator=node.op_type,
            domain=node.domain or "ai.onnx",
            inputs=tuple(_input(name, constants) for name in node.input),
            attributes={a.name: _attribute(a) for a in node.attribute},
            line=emitting_place(lines),
        )
        for node, lines in zip(model.graph.node, graph.lines, strict=True)
        if node.op_type != "Constant"
    ]


def _array(value: object) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _input(name: str, constants: dict[str, onnx.TensorProto]) -> str:
    if name not in constants:
        return name
    values = onnx.numpy_helper.to_array(constants[name])
    return shown(values.tolist()) if values.size <= 8 else f"{name}: a constant of {values.size}"


def _attribute(attribute: onnx.AttributeProto) -> str:
    if attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
        return "a graph"
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        array = onnx.numpy_helper.to_array(value)
        return shown(array.tolist()) if array.size <= 8 else f"a constant of {array.size}"
    return shown(value)


#: As ONNX's own test runner compares.
_RTOL, _ATOL = 1e-3, 1e-7
#: Seconds for all tests of an operator in one backend.
_TIMEOUT = 120.0
#: That every runtime here reads.
_IR_VERSION = 10


@dataclass(frozen=True, kw_only=True)
class SpecResult:
    """How a backend does in the tests of one ONNX operator.

    Attributes:
        tests: How many there are.
        built: How many it could load.
        agreed: How many it ran with the outputs that the specification states.
        opsets: In which opsets it loaded them.
        problem: What it said of the first that did not agree.
    """

    backend: str
    tests: int
    built: int = 0
    agreed: int = 0
    opsets: tuple[int, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class _Test:
    """A test that travels between processes."""

    name: str
    model: bytes
    data_sets: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]


def run_spec_tests(operator: str, names: Sequence[str]) -> list[SpecResult]:
    """Try the specification's tests of `operator` in some backends; none where it has no test."""
    with IsolatedCalls(timeout=_TIMEOUT, fork=True) as process:
        try:
            tests = process.call(_collect, operator)
        except Exception:
            return []
        results = []
        for name in names if tests else ():
            process.stop()
            try:
                results.append(process.call(_run, name, operator, tests))
            except Exception as error:
                # The message about a process that died says all.
                message = str(error) if isinstance(error, ProcessDied) else f"{type(error).__name__}: {error}"
                results.append(SpecResult(backend=name, tests=len(tests), problem=plain(message, 240)))
    return results


def _collect(operator: str) -> list[_Test]:
    found = []
    with warnings.catch_warnings():
        # ONNX computes what it expects with NumPy, which warns of every overflow that is meant.
        warnings.simplefilter("ignore")
        from onnx.backend.test.case import node as suite

        def import_those_about(package: ModuleType) -> None:
            for name in _modules_about(operator, package):
                importlib.import_module(name)

        # A module of the suite computes all its tests while it is imported: some seconds for all of them.
        with patch.object(suite, "import_recursive", import_those_about):
            collected = suite.collect_testcases(operator)
    for case in collected:
        if case.model is None or not case.data_sets:
            continue
        if [node.op_type for node in case.model.graph.node] == [operator]:
            sets = tuple((tuple(inputs), tuple(outputs)) for inputs, outputs in case.data_sets)
            found.append(_Test(case.name, case.model.SerializeToString(), sets))
    return found


def _modules_about(operator: str, package: ModuleType) -> list[str]:
    """Names of the package's modules that have the operator's name in them: no other makes a node of it."""
    word = re.compile(rf"\b{re.escape(operator)}\b")
    found = []
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        spec = find_spec(module.name)
        file = spec.origin if spec else None
        if file is not None and word.search(Path(file).read_text(encoding="utf-8")):
            found.append(module.name)
    return found


def _run(name: str, operator: str, tests: Sequence[_Test]) -> SpecResult:
    entry, argument = BACKENDS.find(name)
    backend = entry.create(argument)
    built = agreed = 0
    opsets: set[int] = set()
    problem = ""
    for test in tests:
        session, opset, said = _load(backend, operator, onnx.load_model_from_string(test.model))
        if session is None:
            problem = problem or f"{test.name}: {said}"
            continue
        built += 1
        opsets.add(opset)
        if not session.runnable:
            continue
        said = _disagreement(session, onnx.load_model_from_string(test.model), test)
        agreed += not said
        problem = problem or (f"{test.name}: {said}" if said else "")
    return SpecResult(
        backend=name,
        tests=len(tests),
        built=built,
        agreed=agreed,
        opsets=tuple(sorted(opsets)),
        problem=plain(problem, 240),
    )


def _load(backend: Any, operator: str, model: onnx.ModelProto) -> tuple[Any, int, str]:
    """A session, the opset that it was loaded in, and what was said of the newest opset if not."""
    newest = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    versions = [v.opset for v in onnx_operator.find(operator).versions]
    ends = [version - 1 for version in versions[1:]]
    message = ""
    for opset in sorted({newest, *(v for v in (*versions, *ends) if v <= newest)}, reverse=True):
        for entry in model.opset_import:
            if entry.domain in ("", "ai.onnx"):
                entry.version = opset
        model.ir_version = min(model.ir_version, _IR_VERSION)
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception:
            # An earlier version of the operator has no such type or attribute.
            if opset != newest:
                continue
        try:
            return backend.load(model, None), opset, ""
        except Exception as error:
            message = message or f"{type(error).__name__}: {error}"
    return None, 0, message


def _disagreement(session: Any, model: onnx.ModelProto, test: _Test) -> str:
    for inputs, expected in test.data_sets:
        names = [value.name for value in model.graph.input]
        try:
            outputs = session.run(dict(zip(names, map(np.ascontiguousarray, inputs), strict=False)))
            for output, wanted in zip(outputs, expected, strict=False):
                narrow = 1e-2 if np.asarray(wanted).dtype.itemsize < 4 else 0
                np.testing.assert_allclose(
                    _wide(output), _wide(wanted), rtol=max(_RTOL, narrow), atol=max(_ATOL, narrow)
                )
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return ""


def _wide(value: Any) -> Any:
    return np.asarray(value, dtype=np.float64) if np.asarray(value).dtype.kind in "fV" else value
