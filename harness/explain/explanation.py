"""Collect all facts about one operator on its way to ONNX.

They are PyTorch's schema and decomposition, ONNX's counterpart and its arguments, each converter's functions, and the
results of some drawn calls with every converter and backend.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from harness.compare.verdict import Outcome, Stage, Verdict
from harness.convert.converter import CONVERTERS, find_converter
from harness.convert.provenance import emitted
from harness.convert.torch_private import PrivatePartMissing, quiet
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.tensors import build_tensors
from harness.core.text import plain
from harness.explain import onnx_operator
from harness.explain.onnx_operator import Candidate, Meaning, OnnxOperator, Slot, same_name, synonyms
from harness.explain.operator import (
    Operator,
    OperatorDecomposition,
    Overload,
    Parameter,
    Signature,
    decompose,
    find_operator,
    signature,
)
from harness.generate.case_library import load_cases
from harness.generate.draws import draw_cases
from harness.generate.operator_case import OPERATOR_CASES
from harness.generate.sources.recorded import FromRecord
from harness.locate.source_code import emitting_place
from harness.pipeline.program import CallStructure, export_request
from harness.pipeline.stages import emitted_opset
from harness.pipeline.start import start_converter
from harness.pipeline.supervisor import Supervisor
from harness.pipeline.task import Settings
from harness.pipeline.torch_call import call_invocation
from harness.plan.unit import Unit, run_unit
from harness.run.artefact import ONNX
from harness.run.backend import BACKENDS

#: Number of calls from which the most revealing one is chosen.
_CHOICE = 32
#: Number of exports in which a node is searched: an optimiser may remove it from a trivial call.
_LOOKED_AT = 4
#: Stages that a case reaches only with a model.
_CONVERTED = (Stage.LOAD, Stage.RUN, Stage.COMPARE)
#: Operators that converters put around the one that does the work.
_GLUE = frozenset(
    {"Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Concat", "Shape", "Gather", "Slice"}
)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """An argument of an ATen schema and its counterpart in ONNX.

    Attributes:
        aten: The argument with its type and default; "" if only ONNX has it.
        onnx: The input or attribute; "" if only PyTorch has it.
        kind: ``input`` or ``attribute``; "" without `onnx`.
        type: The type of the ONNX side, with its default.
        why: Why they correspond, or what to do if one side is empty.
    """

    aten: str
    onnx: str
    kind: str
    type: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of an exported model.

    Attributes:
        operator: The ONNX operator.
        domain: The operator's domain, ``ai.onnx`` for the default one.
        line: The function and line of the converter's source that emitted it; "" if unknown.
    """

    operator: str
    domain: str
    line: str = ""


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """The model that a converter emitted for one call: its opset, and its nodes without constants."""

    converter: str
    call: str
    opset: int | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The conversion of one overload by one converter.

    Attributes:
        overload: The overload.
        converter: The converter.
        how: ``own`` (a conversion function for it), ``decomposition`` (conversion functions for everything that it is
            decomposed into), ``otherwise`` (a case was converted although neither is known), ``none``.
        functions: Names of its own conversion functions.
    """

    overload: str
    converter: str
    how: str
    functions: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """The results of an overload's cases on one route.

    Attributes:
        overload: The overload.
        converter: The converter.
        backend: The backend.
        counts: Outcome → number of cases.
        converted: Number of cases that were converted.
        refusal: The message of the most frequent failure; "" if none failed.
    """

    overload: str
    converter: str
    backend: str
    counts: dict[str, int]
    converted: int
    refusal: str = ""

    @property
    def cases(self) -> int:
        """The number of cases without those that PyTorch rejects."""
        return sum(n for outcome, n in self.counts.items() if outcome != Outcome.SKIP)


@dataclass(frozen=True, kw_only=True)
class About:
    """The facts about one overload.

    Attributes:
        overload: The overload.
        case: The family of its operator case; "" if it has none.
        decomposition: Its decomposition; None if it is not functional.
        conversions: Its conversion by each converter.
        outcomes: The results of its cases on each route.
        emitted: The model that each converter emitted for one call.
        pairs: Its arguments and ONNX's; empty without an ONNX operator.
    """

    overload: Overload
    case: str
    decomposition: OperatorDecomposition | None
    conversions: tuple[Conversion, ...]
    outcomes: tuple[Outcomes, ...]
    emitted: tuple[Emitted, ...]
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """The facts about one operator.

    Attributes:
        operator: The operator.
        overloads: The facts about each functional overload.
        onnx: The corresponding ONNX operator; None if none is known.
        candidate: The correspondence between the two.
        emits: Converter → operators that it emits.
        unavailable: Converter or backend → why it is unavailable.
        missing: Converter → overloads that it cannot convert; only converters that lack some.
    """

    operator: Operator
    overloads: tuple[About, ...]
    onnx: OnnxOperator | None
    candidate: Candidate | None
    emits: dict[str, tuple[str, ...]]
    unavailable: dict[str, str]
    missing: dict[str, tuple[str, ...]]

    def to_data(self) -> dict[str, Any]:
        """Return plain JSON data."""
        data = dataclasses.asdict(self)
        for about, plain_about in zip(self.overloads, data["overloads"], strict=True):
            if about.decomposition is not None:
                plain_about["decomposition"]["reaches"] = about.decomposition.reaches
        if self.onnx is not None:
            data["onnx"]["first_opset"] = self.onnx.first_opset
        return data


def explain_operator(
    word: str, *, examples: int = 10, backend_names: Sequence[str] = (), converter_names: Sequence[str] = ()
) -> Explanation:
    """Collect all facts about an operator.

    Args:
        word: The operator as a user writes it.
        examples: Number of calls to draw and run.
        backend_names: The backends; empty means all for ONNX that can run here.
        converter_names: The converters; empty means all that can run here.

    Raises:
        harness.core.overloads.UnknownOperator: PyTorch has no such operator.
        harness.pipeline.supervisor.WorkerFailed: No worker process can be started.
    """
    operator = find_operator(word)
    load_cases()
    unavailable = _unavailable()
    converters, backends = _choose_routes(converter_names, backend_names, unavailable)
    calls = {o.name: draw_calls(o.name, examples) for o in operator.functional}
    candidate = onnx_operator.candidate(operator.name)
    outcomes, exports = _run(calls, converters, backends, candidate.onnx if candidate else None)
    candidate = candidate or _only_emitted(exports)
    standard = onnx_operator.find(candidate.onnx) if candidate else None
    abouts = tuple(
        _about(
            o,
            calls[o.name],
            converters,
            [o2 for o2 in outcomes if o2.overload == o.name],
            exports[o.name],
            align(o.signature, standard, candidate) if standard and candidate else (),
        )
        for o in operator.functional
    )
    lacking = [c for about in abouts for c in about.conversions if c.how == "none"]
    return Explanation(
        operator=operator,
        overloads=abouts,
        onnx=standard,
        candidate=candidate,
        emits=_operators_by_converter(exports),
        unavailable=unavailable,
        missing={
            name: tuple(c.overload for c in lacking if c.converter == name)
            for name in converters
            if any(c.converter == name for c in lacking)
        },
    )


# Run drawn calls.


def draw_calls(name: str, count: int) -> list[Invocation]:
    """Draw different calls of an overload, the most revealing one first; empty if no operator case draws it."""
    case = OPERATOR_CASES.get(name)
    if case is None:
        return []
    structures = draw_cases(case, seed=0, structures=max(count, _CHOICE), values=1)
    calls = [group.exported for group in structures if _is_accepted(group.exported)]
    defaults = {p.name: p.default for p in signature(name).parameters}

    def sort_key(call: Invocation) -> tuple[bool, bool, int]:
        # Prefer the plainest dtype, several elements, and arguments that differ from their defaults.
        explicit = sum(repr(value) != defaults.get(name) for name, value in call.arguments)
        return call.dtype != case.dtypes[0], any(t.numel < 2 for t in call.tensors()), -explicit

    best = min(calls, key=sort_key, default=None)
    return [] if best is None else [best, *(call for call in calls if call is not best)][:count]


def _is_accepted(invocation: Invocation) -> bool:
    try:
        call_invocation(invocation, build_tensors(invocation))
    except Exception:
        return False
    return True


def _run(
    calls: Mapping[str, Sequence[Invocation]],
    converters: Sequence[str],
    backends: Sequence[str],
    counterpart: str | None,
) -> tuple[list[Outcomes], dict[str, list[Emitted]]]:
    """Return the results of the calls, and by overload a model of each converter, preferably with a `counterpart`."""
    outcomes: list[Outcomes] = []
    exports: dict[str, list[Emitted]] = {name: [] for name in calls}
    with Supervisor() as supervisor:
        for name, drawn in calls.items():
            for converter in converters if drawn else ():
                unit = Unit(
                    overload=name,
                    route=Route.parse(converter),
                    backends=tuple(backends),
                    sources=(FromRecord.of_calls(drawn),),
                    settings=Settings(blame=False),
                )
                verdicts = [verdict for rows in run_unit(unit, supervisor) for verdict in rows]
                outcomes += [_outcomes([v for v in verdicts if v.backend == backend]) for backend in backends]
                converted = {v.case_id for v in verdicts if v.stage in _CONVERTED}
                export = _emit_one([call for call in drawn if call.case_id in converted], converter, counterpart)
                exports[name] += [export] if export is not None else []
    return outcomes, exports


def _outcomes(verdicts: Sequence[Verdict]) -> Outcomes:
    """Count the verdicts of one overload on one route."""
    failures = Counter(v.signature for v in verdicts if v.outcome.is_failure)
    message = ""
    if failures:
        commonest = failures.most_common(1)[0][0]
        first = next(v for v in verdicts if v.signature == commonest)
        message = plain(f"{first.outcome} at {first.stage}: {first.message}", 240)
    return Outcomes(
        overload=verdicts[0].overload,
        converter=verdicts[0].converter,
        backend=verdicts[0].backend,
        counts=dict(Counter(str(v.outcome) for v in verdicts)),
        converted=sum(v.stage in _CONVERTED for v in verdicts),
        refusal=message,
    )


def _emit_one(calls: Sequence[Invocation], converter: str, operator: str | None) -> Emitted | None:
    """Export the first call whose model has a node of `operator`, else the first call; None without calls."""
    exports = []
    for call in calls[:_LOOKED_AT]:
        exports.append(_emit(call, converter))
        if operator is None or any(node.operator == operator for node in exports[-1].nodes):
            return exports[-1]
    return exports[0] if exports else None


def _emit(call: Invocation, converter: str) -> Emitted:
    structure = CallStructure(call, outputs=len(call_invocation(call, build_tensors(call))))
    with quiet():
        route = Route.parse(converter)
        graph = emitted(start_converter(route), export_request([structure], route))
    nodes = tuple(
        Node(operator=node.op_type, domain=node.domain or "ai.onnx", line=emitting_place(lines))
        for node, lines in zip(graph.model.graph.node, graph.lines, strict=True)
        if node.op_type != "Constant"
    )
    return Emitted(converter=converter, call=str(call), opset=emitted_opset(graph.model), nodes=nodes)


def _operators_by_converter(exports: Mapping[str, Sequence[Emitted]]) -> dict[str, tuple[str, ...]]:
    operators: dict[str, dict[str, None]] = {}
    for export in chain.from_iterable(exports.values()):
        operators.setdefault(export.converter, {}).update(dict.fromkeys(n.operator for n in export.nodes))
    return {converter: tuple(names) for converter, names in operators.items()}


def _only_emitted(exports: Mapping[str, Sequence[Emitted]]) -> Candidate | None:
    """Return the only ONNX operator that a converter emits in addition to glue, for use if no name corresponds."""
    for export in chain.from_iterable(exports.values()):
        operators = {n.operator for n in export.nodes if n.domain == "ai.onnx"} - _GLUE
        if len(operators) == 1:
            return Candidate(onnx=operators.pop(), why=f"emitted for it by {export.converter}")
    return None


# Choose converters and backends.


def _about(
    overload: Overload,
    calls: Sequence[Invocation],
    converters: Sequence[str],
    outcomes: Sequence[Outcomes],
    exports: Sequence[Emitted],
    pairs: tuple[Pair, ...],
) -> About:
    case = OPERATOR_CASES.get(overload.name)
    decomposition = decompose(overload.name, calls)
    return About(
        overload=overload,
        case=case.family if case else "",
        decomposition=decomposition,
        conversions=tuple(_conversion(overload.name, name, decomposition, outcomes) for name in converters),
        outcomes=tuple(outcomes),
        emitted=tuple(exports),
        pairs=pairs,
    )


def _conversion(
    overload: str, converter: str, decomposition: OperatorDecomposition, outcomes: Sequence[Outcomes]
) -> Conversion:
    entry = find_converter(converter)
    try:
        functions = entry.conversions(overload) if entry.conversions else ()
    except PrivatePartMissing:
        # The results of its cases suffice.
        functions = ()
    if functions:
        how = "own"
    elif entry.decomposes and decomposition.reaches:
        how = "decomposition"
    elif any(o.converter == converter and o.converted for o in outcomes):
        how = "otherwise"
    else:
        how = "none"
    return Conversion(overload=overload, converter=converter, how=how, functions=functions)


def _choose_routes(
    converters: Sequence[str], backends: Sequence[str], unavailable: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return the converters and backends that the user names, or all for ONNX that can run here."""
    makers = [e.name for e in CONVERTERS.entries() if e.makes == ONNX]
    takers = [e.name for e in BACKENDS.entries() if ONNX in e.takes and not e.name.endswith(":")]
    makers, takers = ([name for name in known if name not in unavailable] for known in (makers, takers))
    return list(converters) or makers, list(backends) or takers


def _unavailable() -> dict[str, str]:
    found = {e.name: why.reason for e in CONVERTERS.entries() if (why := e.probe())}
    found |= {e.name: why.reason for e in BACKENDS.entries() if not e.name.endswith(":") and (why := e.probe(""))}
    return {name: plain(reason) for name, reason in found.items()}


# Match arguments with their counterparts.


def align(schema: Signature, operator: OnnxOperator, candidate: Candidate) -> tuple[Pair, ...]:
    """Return each argument with its counterpart, followed by the remaining slots of the ONNX operator."""
    slots = {slot.name: slot for slot in operator.node_slots}
    pairs: list[Pair] = []
    taken: set[str] = set()
    for place, parameter in enumerate(schema.parameters):
        meaning = candidate.arguments.get(parameter.name) or _meaning(parameter, place, slots.values(), taken)
        slot = slots.get(meaning.onnx)
        if slot is not None:
            taken.add(slot.name)
        default = "" if parameter.default is None else f"={parameter.default}"
        pairs.append(_pair(f"{parameter.type} {parameter.name}{default}", slot, meaning.why))
    for slot in slots.values():
        if slot.name not in taken:
            pairs.append(_pair("", slot, candidate.others.get(slot.name, _explain_unmatched(slot))))
    return tuple(pairs)


def _pair(aten: str, slot: Slot | None, why: str) -> Pair:
    if slot is None:
        return Pair(aten=aten, onnx="", kind="", type="", why=why)
    default = f" = {slot.default}" if slot.default else ""
    optional = "" if slot.required or default else ", optional"
    return Pair(aten=aten, onnx=slot.name, kind=slot.kind, type=f"{slot.type}{default}{optional}", why=why)


def _meaning(parameter: Parameter, place: int, slots: Iterable[Slot], taken: set[str]) -> Meaning:
    free = [slot for slot in slots if slot.name not in taken]
    for slot in free:
        if same_name(slot.name, parameter.name) and _fits(parameter, slot):
            return Meaning(onnx=slot.name, why="the same name")
    by_name = {slot.name: slot for slot in free}
    for meaning in synonyms(parameter.name):
        match = by_name.get(meaning.onnx)
        if match is not None and _fits(parameter, match):
            return meaning
    if place == 0 and parameter.kind in ("Tensor", "Tensor[]") and free and free[0].kind == "input":
        return Meaning(onnx=free[0].name, why="the first tensor")
    return Meaning(onnx="", why="no counterpart is known")


def _fits(parameter: Parameter, slot: Slot) -> bool:
    """Whether the slot can hold the argument: a tensor is never an attribute."""
    return slot.kind == "input" or not parameter.kind.startswith("Tensor")


def _explain_unmatched(slot: Slot) -> str:
    if slot.required:
        return "required, but no argument is known to correspond to it"
    return f"left at its default, {slot.default}" if slot.default else "may be omitted"
