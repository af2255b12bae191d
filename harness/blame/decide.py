"""Decide the blame from testimonies: a table for wrong results and one for models that do not run. Pure.

A table is read from the top; the first row that holds decides. If no row holds, the blame is unknown. Failures that
need no witness are decided by `decide_directly`. `harness.compare.diagnosis.Finding` defines "the backend's answer"
and the like. Agreement with a runtime that shares an engine with the failing backend clears that backend of nothing:
such rows ask for an independent runtime.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from harness.compare.diagnosis import Diagnosis, Finding as F, Role as R, Testimony
from harness.compare.signatures import normalise
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, RUNS_AT, SPEC, TRANSFORM, UNKNOWN, Outcome, Stage
from harness.core.route import GRAPH, Route
from harness.pipeline.case_run import CaseRun

#: The order of testimonies in the evidence: the most telling first.
_ORDER = (
    R.ALONE,
    R.TRANSFORM,
    R.PASS,
    R.NODES,
    R.SPECIFICATION,
    R.CONSTANT,
    R.IGNORED,
    R.NARROWED,
    R.PYTORCH,
    R.META,
    R.RUNTIME,
    R.PLAIN,
    R.CONVERTER,
    R.UNOPTIMISED,
    R.FLOAT64,
    R.DECOMPOSITION,
    R.PROGRAM,
    R.EMISSION,
    R.OPERATOR,
    R.LOWERED,
    R.RANGE,
    R.MODEL,
    R.ABSENT,
)


def decide_directly(result: CaseRun, route: Route) -> Diagnosis | None:
    """Return the blame for a failure that needs no witness; None for a failure that needs one."""
    converter, transform = route.converter, result.transform or "+".join(route.transforms)
    # An exporter's first lines are about itself.
    lines = [normalise(result.message)] if result.stage is Stage.CONVERT else result.message.splitlines()
    facts = {"stage": str(result.stage), "message": (lines or [""])[0][:200]}
    if result.is_of_harness:
        return Diagnosis(UNKNOWN, "harness-failed")
    if result.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        # Of a graph, what runs before the backend is ONNX's own checker, or our evaluation of definitions.
        is_before = route.converter == GRAPH and result.stage is Stage.REFERENCE
        who = UNKNOWN if is_before else RUNS_AT[result.stage]
        name = {CONVERTER: converter, TRANSFORM: transform, BACKEND: result.backend, PYTORCH: "PyTorch"}.get(who)
        return Diagnosis(who, "process-ended", {**facts, "component": name or ""})
    if result.raised_by:
        return Diagnosis(PYTORCH, "raises-without-values", {**facts, "part": result.raised_by})
    if result.stage is Stage.CONVERT:
        rule = "cannot-convert" if result.outcome is Outcome.UNSUPPORTED else "fails-to-convert"
        return Diagnosis(CONVERTER, rule, {**facts, "converter": converter})
    if result.stage is Stage.TRANSFORM:
        rule = "cannot-transform" if result.outcome is Outcome.UNSUPPORTED else "transform-fails"
        return Diagnosis(TRANSFORM, rule, {**facts, "transform": transform})
    if result.stage is Stage.CHECK:
        return Diagnosis(CONVERTER, "model-rejected", {**facts, "converter": converter})
    return None


#: That a witness of a kind found something; a third element asks for one that shares no engine with the
#: failing backend.
Fact: TypeAlias = "tuple[R, F] | tuple[R, F, str]"

_OWN = "independent"
_RIGHT: Fact = (R.RUNTIME, F.RIGHT)
_SAME: Fact = (R.RUNTIME, F.SAME, _OWN)
_OTHER: Fact = (R.RUNTIME, F.OTHER, _OWN)
_REFUSES: Fact = (R.RUNTIME, F.REFUSES, _OWN)
_DECOMPOSED: Fact = (R.DECOMPOSITION, F.CONTRADICTS)
#: PyTorch itself defines the call otherwise than its kernel.
_DEFINED_SO: tuple[Fact, ...] = (_DECOMPOSED, (R.PROGRAM, F.CONTRADICTS), (R.OPERATOR, F.SAME))
#: Something else than the kernel confirms PyTorch's answer.
_CONFIRMED: tuple[Fact, ...] = tuple((r, F.CONFIRMS) for r in (R.FLOAT64, R.DECOMPOSITION, R.META))


@dataclass(frozen=True)
class _Row:
    """The blame and the rule that apply if all of `facts` and none of `without` are testified."""

    blame: str
    rule: str
    facts: tuple[Fact, ...]
    without: tuple[Fact, ...] = ()


_NO_REPEAT = _Row(UNKNOWN, "does-not-repeat", ((R.ALONE, F.RIGHT),))
#: Rules that blame a graph for what it is, and not for what it computes.
_INVALIDITY_RULES = frozenset({"invalid-model", "invalid-node"})
_INVALID = _Row(CONVERTER, "invalid-model", ((R.MODEL, F.INVALID),))
_DECOMPOSES_WRONGLY = "decomposition-fails"
_INVALID_NODE = (
    # PyTorch's own program refuses the sizes.
    _Row(CONVERTER, "drops-guard", ((R.PROGRAM, F.INVALID),)),
    # PyTorch's own decomposition may ask for results that the node's text does not allow.
    _Row(PYTORCH, _DECOMPOSES_WRONGLY, ((R.NODES, F.INVALID), (R.PROGRAM, F.REFUSES))),
    _Row(CONVERTER, "invalid-node", ((R.NODES, F.INVALID),)),
)
_INVENTED = _Row(
    CONVERTER,
    "rests-on-open-question",
    ((R.SPECIFICATION, F.INVENTED),),
)
OPTIMISED = "optimiser-breaks-graph"
#: The rule of nodes that depart from their definitions.
WRONG_NODE = "wrong-node"
#: The rule of exports of models that are right for the inputs that they were made with.
SPECIALISED = "specialised-by-tracing"
#: The rule of exports that lose what a call changes in place.
LOSES_ALIAS = "takes-alias-for-copy"
_DISAGREE = "kernel-against-decomposition"
_NONE_RIGHT = "no-runtime-is-right"
_BY_OPTIMISATION = "graph-optimisation"

_FEWER_BITS = "fewer-bits"
_DECOMPOSES = "decomposition-gives-it"
_ASKS_OTHERWISE = "graph-asks-otherwise"
_LEFT_OPEN = "left-open"
_OFF = "pytorch-is-off"
_BOTH_OFF = "both-are-off"


def _asked_by_graph(fact: Fact) -> tuple[_Row, ...]:
    """Return the rows for a graph whose nodes are all right by definition but whose result is not PyTorch's."""
    return (
        _Row(PYTORCH, "departs-from-onnx", (fact, (R.OPERATOR, F.SAME))),
        _Row(PYTORCH, _DISAGREE, (fact, _DECOMPOSED)),
        _Row(PYTORCH, _DECOMPOSES, (fact, (R.PROGRAM, F.CONTRADICTS))),
        _Row(CONVERTER, _ASKS_OTHERWISE, (fact,)),
    )


_SETTLED = _Row(
    CONVERTER,
    "graph-asks-otherwise-by-spec",
    ((R.SPECIFICATION, F.SETTLED),),
)

#: The failing backend is wrong with another converter's model, too, or is right with it; for an artefact whose
#: program PyTorch cannot run.
_NOT_RUN: Fact = (R.LOWERED, F.LACKS)
_WITH_OTHER = (
    _Row(BACKEND, "other-converter-too", (_NOT_RUN, (R.CONVERTER, F.SAME))),
    _Row(BACKEND, "other-converter-too", (_NOT_RUN, (R.CONVERTER, F.REFUSES))),
    _Row(CONVERTER, "other-converter-is-right", (_NOT_RUN, (R.CONVERTER, F.RIGHT))),
)
#: The runtime does the same without its optimisations.
_PLAIN_TOO = _Row(CONVERTER, "wrong-with-plain-kernels", (_NOT_RUN, (R.PLAIN, F.SAME)))
_LOWERED_RIGHT = _Row(BACKEND, "lowered-program-is-right", ((R.LOWERED, F.RIGHT),))
#: The graph is right before the exporter's optimiser; the runtime's own defects aside.
_OPTIMISED = _Row(
    CONVERTER,
    OPTIMISED,
    ((R.UNOPTIMISED, F.RIGHT),),
    without=((R.NODES, F.WRONG), (R.NODES, F.RIGHT), (R.NODES, F.VALID), (R.PLAIN, F.RIGHT)),
)
#: The optimiser changes a result that is wrong in another way before.
_ANOTHER_PASS: Fact = (R.PASS, F.RIGHT)
_OPTIMISED_OTHERWISE = _Row(
    CONVERTER,
    OPTIMISED,
    ((R.UNOPTIMISED, F.OTHER), _ANOTHER_PASS),
    without=(*_OPTIMISED.without, (R.PLAIN, F.OTHER)),
)
_MISMATCH = (
    _OPTIMISED,
    _OPTIMISED_OTHERWISE,
    # The graph does not compute the call, whatever PyTorch gives elsewhere.
    _SETTLED,
    *_INVALID_NODE,
    # A definition is run in one order of its terms: an independent runtime and PyTorch's own decomposition that agree
    # with the backend are two others.
    _Row(PYTORCH, _DISAGREE, ((R.NODES, F.WRONG), _SAME, _DECOMPOSED)),
    _Row(
        BACKEND,
        WRONG_NODE,
        ((R.NODES, F.WRONG),),
        without=((R.SPECIFICATION, F.INVENTED),),
    ),
    # A graph that ignores an argument is wrong, whatever PyTorch gives for single elements.
    _Row(PYTORCH, "pytorch-contradicts-itself", ((R.PYTORCH, F.CONTRADICTS),), without=((R.IGNORED, F.SAME),)),
    _Row(BACKEND, "right-alone", ((R.ALONE, F.RIGHT),)),
    _Row(
        PYTORCH,
        "kernel-against-meta-rules",
        ((R.META, F.CONTRADICTS),),
    ),
    *_asked_by_graph((R.NODES, F.SHAPE_OR_DTYPE)),
    # A runtime that contradicts itself is wrong, whatever the text leaves open.
    _Row(BACKEND, _BY_OPTIMISATION, ((R.PLAIN, F.RIGHT),), without=(_SAME,)),
    _Row(SPEC, _LEFT_OPEN, ((R.SPECIFICATION, F.OPEN),)),
    _INVENTED,
    _Row(SPEC, _LEFT_OPEN, ((R.NODES, F.OPEN),)),
    _Row(CONVERTER, _FEWER_BITS, ((R.NODES, F.RIGHT), (R.NARROWED, F.SAME)), without=(_DECOMPOSED,)),
    _Row(BACKEND, _BY_OPTIMISATION, ((R.NODES, F.RIGHT), (R.PLAIN, F.OTHER), _ANOTHER_PASS), without=(_SAME,)),
    _Row(BACKEND, "nodes-together", ((R.NODES, F.RIGHT),)),
    _INVALID,
    _Row(PYTORCH, _DECOMPOSES_WRONGLY, ((R.PROGRAM, F.REFUSES),), without=(_RIGHT,)),
    _Row(PYTORCH, _DECOMPOSES, ((R.NODES, F.SAME), (R.PROGRAM, F.CONTRADICTS))),
    _Row(
        CONVERTER,
        "constant-result",
        ((R.CONSTANT, F.SAME),),
        without=_DEFINED_SO,
    ),
    _Row(
        CONVERTER,
        "ignored-argument",
        ((R.IGNORED, F.SAME),),
        without=(_RIGHT, *_DEFINED_SO),
    ),
    _Row(CONVERTER, _FEWER_BITS, ((R.NODES, F.SAME), (R.NARROWED, F.SAME)), without=(_DECOMPOSED,)),
    _Row(PYTORCH, _OFF, ((R.NODES, F.SAME), (R.FLOAT64, F.CONTRADICTS))),
    _Row(PYTORCH, "pytorch-leaves-range", ((R.NODES, F.INEXACT),)),
    _Row(CONVERTER, _ASKS_OTHERWISE, ((R.NODES, F.SAME), (R.CONVERTER, F.RIGHT))),
    # Inexact as PyTorch may be, a result is wrong only if it is further from float64 than PyTorch's.
    *_asked_by_graph((R.NODES, F.SAME)),
    _Row(PYTORCH, _DISAGREE, ((R.MODEL, F.SAME), _DECOMPOSED)),
    _Row(CONVERTER, "wrong-by-onnx-rules", ((R.MODEL, F.SAME),)),
    _Row(BACKEND, "forbidden-by-onnx-rules", ((R.MODEL, F.RIGHT),)),
    _Row(PYTORCH, _DECOMPOSES, ((R.PROGRAM, F.CONTRADICTS),), without=(_RIGHT,)),
    _Row(UNKNOWN, "runtimes-disagree", (_RIGHT, _SAME)),
    _Row(
        UNKNOWN,
        "all-disagree",
        (_RIGHT, _DECOMPOSED),
    ),
    _Row(BACKEND, "model-is-right", (_RIGHT,)),
    _Row(CONVERTER, _FEWER_BITS, ((R.NARROWED, F.SAME),), without=(_DECOMPOSED,)),
    # Independent runtimes agree on the model's result, and it is not PyTorch's.
    _Row(PYTORCH, _DISAGREE, (_SAME, _DECOMPOSED)),
    _Row(PYTORCH, _OFF, (_SAME, (R.FLOAT64, F.CONTRADICTS))),
    _Row(UNKNOWN, _BOTH_OFF, (_SAME, (R.FLOAT64, F.INEXACT))),
    _Row(
        UNKNOWN,
        "pytorch-alone",
        (_SAME, (R.CONVERTER, F.SAME)),
        without=_CONFIRMED,
    ),
    _Row(CONVERTER, _NONE_RIGHT, (_OTHER, (R.CONVERTER, F.RIGHT))),
    _Row(UNKNOWN, "runtimes-disagree", (_SAME, _OTHER)),
    _Row(CONVERTER, "backends-agree-on-graph", (_SAME,)),
    _Row(PYTORCH, _DISAGREE, ((R.LOWERED, F.SAME), _DECOMPOSED)),
    _Row(CONVERTER, "lowered-program-is-wrong", ((R.LOWERED, F.SAME),)),
    _LOWERED_RIGHT,
    *_WITH_OTHER,
    _PLAIN_TOO,
)

_REFUSAL = (
    _NO_REPEAT,
    _INVALID,
    _INVENTED,
    *_INVALID_NODE,
)
_UNSUPPORTED = (
    *_REFUSAL,
    _Row(BACKEND, "not-implemented", ((R.MODEL, F.VALID),)),
    _Row(UNKNOWN, "validity-unknown", ()),
)
_ERROR = (
    _NO_REPEAT,
    _OPTIMISED,
    *_REFUSAL,
    _Row(PYTORCH, _DECOMPOSES_WRONGLY, ((R.PROGRAM, F.REFUSES),), without=(_RIGHT,)),
    # A runtime that fails has no part in the result.
    _Row(CONVERTER, _ASKS_OTHERWISE, ((R.NODES, F.SHAPE_OR_DTYPE),)),
    _Row(BACKEND, _BY_OPTIMISATION, ((R.PLAIN, F.RIGHT),)),
    _Row(BACKEND, "fails-on-valid-node", ((R.NODES, F.VALID),)),
    _Row(
        BACKEND,
        "fails-on-valid-model",
        ((*_RIGHT, _OWN), (R.MODEL, F.VALID)),
    ),
    _Row(UNKNOWN, "validity-unknown", ((*_RIGHT, _OWN),)),
    # The call is the node: no converter has chosen it.
    _Row(BACKEND, "fails-on-valid-node", ((R.OPERATOR, F.SAME), (R.MODEL, F.VALID))),
    _Row(CONVERTER, _NONE_RIGHT, (_REFUSES, (R.CONVERTER, F.RIGHT))),
    _Row(CONVERTER, _NONE_RIGHT, (_OTHER, (R.CONVERTER, F.RIGHT))),
    _Row(CONVERTER, "no-runtime-runs-it", (_REFUSES,), without=(_OTHER,)),
    _LOWERED_RIGHT,
    *_WITH_OTHER,
)

_TABLES = {Outcome.MISMATCH: _MISMATCH, Outcome.UNSUPPORTED: _UNSUPPORTED}


def _undecided(row: _Row) -> _Row:
    """Return the row for a drawn graph: no converter made it, so none is blamed."""
    return replace(row, blame=UNKNOWN) if row.blame == CONVERTER else row


def _differing(row: _Row) -> _Row:
    """Return the row for a drawn node: where it would blame a converter, the operator's definitions disagree."""
    is_of_meaning = row.blame == CONVERTER and row.rule not in _INVALIDITY_RULES
    return replace(row, blame=SPEC, rule="definitions-differ") if is_of_meaning else row


_DRAWN_GRAPH_ROWS = {outcome: tuple(map(_undecided, _TABLES.get(outcome, _ERROR))) for outcome in Outcome}
_DRAWN_NODE_ROWS = {**_DRAWN_GRAPH_ROWS, Outcome.MISMATCH: tuple(_undecided(_differing(row)) for row in _MISMATCH)}


def decide(
    outcome: Outcome,
    testimonies: Sequence[Testimony],
    *,
    converter: str = "",
    backend: str = "",
    is_composed: bool = False,
) -> Diagnosis:
    """Decide the blame for a failure at stage `LOAD`, `RUN` or `COMPARE` by all witnesses that were asked.

    Args:
        outcome: The outcome of the case.
        testimonies: The witnesses' testimonies.
        converter: The converter's name, for the rule's sentence.
        backend: The backend's name, for the rule's sentence.
        is_composed: Whether the case consists of several calls or nodes.
    """
    known: set[Fact] = {(t.role, t.finding) for t in testimonies}
    known |= {(t.role, t.finding, _OWN) for t in testimonies if t.independent}
    blame, rule = UNKNOWN, "undecided"
    table = _TABLES.get(outcome, _ERROR)
    if converter == GRAPH:
        table = (_DRAWN_GRAPH_ROWS if is_composed else _DRAWN_NODE_ROWS)[outcome]
    for row in table:
        if known.issuperset(row.facts) and known.isdisjoint(row.without):
            blame, rule = row.blame, row.rule
            break
    ordered = sorted(testimonies, key=lambda t: _ORDER.index(t.role))
    return Diagnosis(blame, rule, {"backend": backend, "converter": converter}, tuple(_distinct(ordered)))


def decide_transform(decision: Diagnosis, found: Sequence[Testimony]) -> Diagnosis:
    """Return the decision on a failure that a transform causes, by what was found of it: the model before it is right.

    A backend that is shown to be wrong with the transformed model keeps the blame, as it does for a converter's. So
    does a specification that leaves the result open.
    """
    testimony = (*found, *decision.testimony)
    if decision.blame in (BACKEND, SPEC):
        return replace(decision, testimony=testimony)
    return Diagnosis(TRANSFORM, "transform-breaks-model", {**decision.facts, **found[0].facts}, testimony)


def _distinct(testimonies: Sequence[Testimony]) -> Iterator[Testimony]:
    """Return each testimony once; several witnesses may give the same."""
    seen: list[Testimony] = []
    for testimony in testimonies:
        if not any(t == testimony and t.facts == testimony.facts for t in seen):
            seen.append(testimony)
            yield testimony
