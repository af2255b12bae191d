"""What converters and backends make of a few drawn calls, and the nodes that a converter emits for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx

from harness.analyse.explain.onnx_operator import shown
from harness.analyse.explain.operator import signature
from harness.analyse.places.source_code import emitting_place
from harness.compare import Outcome, Stage, Verdict
from harness.convert import EmittedGraph, emitted, find_converter, quiet
from harness.core import Invocation, build_tensors, plain
from harness.execute import Exportable, Settings, Supervisor, call_invocation, emitted_opset, export_request
from harness.generate import OPERATOR_CASES, Replayed, draw_cases
from harness.plan import Unit, run_unit

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
        line: Of the converter's source that emitted it, with its function; "" where nobody knows.
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
    said = ""
    if failures:
        signature = failures.most_common(1)[0][0]
        first = next(v for v in verdicts if v.signature == signature)
        said = plain(f"{first.outcome} at {first.stage}: {first.message}", 240)
    return Outcomes(
        overload=overload,
        converter=converter,
        backend=backend,
        counts=dict(Counter(str(v.outcome) for v in verdicts)),
        converted=sum(v.stage in _CONVERTED for v in verdicts),
        refusal=said,
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
    started = find_converter(converter).create(False)
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
