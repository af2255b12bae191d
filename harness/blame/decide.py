"""From testimonies to a blame: a table for wrong results and one for models that do not run. Pure.

A table is read from the top; the first row that holds decides, and where none does the blame is unknown.
Failures that need no witness are decided `at_once`. What "the backend's answer" and the like mean is said by
`harness.blame.testimony.Finding`. Runtimes that share an engine with the failing backend may clear it of
nothing by agreeing with it: such rows ask for an independent one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harness.blame.testimony import Charge, Decision, Finding as F, Role as R, Testimony
from harness.compare import BACKEND, CONVERTER, PYTORCH, RUNS_AT, SPEC, UNKNOWN, Outcome, Stage, normalise
from harness.execute import OWN_FAULT

#: The order of testimonies in the evidence: the most telling first.
_ORDER = (
    R.ALONE,
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
    R.MODEL,
    R.ABSENT,
)


def at_once(charge: Charge) -> Decision | None:
    """The blame for a failure that needs no witness; None for one that does."""
    # An exporter's first lines are about itself.
    lines = [normalise(charge.message)] if charge.stage is Stage.CONVERT else charge.message.splitlines()
    first = (lines or [""])[0][:200]
    if charge.message.startswith(OWN_FAULT):
        return Decision(UNKNOWN, "It failed over the case, which says nothing of anyone else.")
    if charge.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        who = RUNS_AT[charge.stage]
        name = {CONVERTER: charge.converter, BACKEND: charge.backend, PYTORCH: "PyTorch"}.get(who)
        whose = f"{name} ran" if name else "PyTorch in float64 and the harness's own rules ran"
        return Decision(who, f"{whose} at stage {charge.stage} when the process ended: {first}")
    if charge.stage is Stage.CONVERT:
        word = "says that it cannot convert" if charge.outcome is Outcome.UNSUPPORTED else "fails to convert"
        return Decision(CONVERTER, f"{charge.converter} {word} a call that PyTorch accepts: {first}")
    if charge.stage is Stage.CHECK:
        return Decision(CONVERTER, f"The model that {charge.converter} emits is rejected: {first}")
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
_DEFINED_SO: tuple[Fact, ...] = (_DECOMPOSED, (R.PROGRAM, F.CONTRADICTS))
#: Something else than the kernel confirms PyTorch's answer.
_CONFIRMED: tuple[Fact, ...] = tuple((r, F.CONFIRMS) for r in (R.FLOAT64, R.DECOMPOSITION, R.META))


@dataclass(frozen=True)
class _Row:
    """Whose it is, and why, where all of `facts` and none of `without` are testified."""

    blame: str
    why: str
    facts: tuple[Fact, ...]
    without: tuple[Fact, ...] = ()


_NO_REPEAT = _Row(UNKNOWN, "The failure does not repeat.", ((R.ALONE, F.RIGHT),))
_INVALID = _Row(CONVERTER, "The model that {converter} emits is not valid.", ((R.MODEL, F.INVALID),))
_INVENTED = _Row(
    CONVERTER,
    "The graph that {converter} emits rests on what the specification leaves open, which the call does not.",
    ((R.SPECIFICATION, F.INVENTED),),
)
_OPTIMISED = "{converter}'s optimiser breaks the graph: it is right before it."
_DISAGREE = "PyTorch's kernel and its own decomposition of the operator disagree."
_NONE_RIGHT = "No runtime gets PyTorch's result from {converter}'s graph."
_BY_OPTIMISATION = "{backend}'s graph optimisation: right with optimisations off."

_FEWER_BITS = "The graph that {converter} emits computes at lower precision than the call."
_DECOMPOSES = "PyTorch's decomposition, which {converter} translates, gives the backend's result in PyTorch."
_DECOMPOSES_WRONGLY = "PyTorch's decomposition, which {converter} translates, does not run in PyTorch either."
_ASKS_OTHERWISE = "The graph that {converter} emits asks for something else."
_LEFT_OPEN = "The specification leaves the result open."
_OFF = "PyTorch is off: the backend has the answer that PyTorch has in float64."
_BOTH_OFF = "Both the graph and PyTorch are far from float64."


def _asked_by_graph(fact: Fact) -> tuple[_Row, ...]:
    """Whose the graph is, where every node is right by its definition and the result is not PyTorch's."""
    return (
        _Row(PYTORCH, _DISAGREE, (fact, _DECOMPOSED)),
        _Row(PYTORCH, _DECOMPOSES, (fact, (R.PROGRAM, F.CONTRADICTS))),
        _Row(CONVERTER, _OPTIMISED, (fact, (R.UNOPTIMISED, F.RIGHT))),
        _Row(CONVERTER, _ASKS_OTHERWISE, (fact,)),
    )


_SETTLED = _Row(
    CONVERTER,
    "The graph that {converter} emits asks for something else by the specification.",
    ((R.SPECIFICATION, F.SETTLED),),
)

_MISMATCH = (
    # Whatever PyTorch says elsewhere, the graph does not say it.
    _SETTLED,
    _Row(
        BACKEND,
        "{backend} computes a node wrongly by its operator's definition.",
        ((R.NODES, F.WRONG),),
        without=((R.SPECIFICATION, F.INVENTED),),
    ),
    _Row(PYTORCH, "PyTorch contradicts itself.", ((R.PYTORCH, F.CONTRADICTS),)),
    _Row(BACKEND, "{backend} gives the same nodes another result beside others.", ((R.ALONE, F.RIGHT),)),
    _Row(
        PYTORCH,
        "PyTorch's kernel contradicts PyTorch's own shape and dtype rules.",
        ((R.META, F.CONTRADICTS),),
    ),
    *_asked_by_graph((R.NODES, F.FORM)),
    _Row(SPEC, _LEFT_OPEN, ((R.SPECIFICATION, F.OPEN),)),
    _INVENTED,
    _Row(SPEC, _LEFT_OPEN, ((R.NODES, F.OPEN),)),
    _Row(BACKEND, _BY_OPTIMISATION, ((R.PLAIN, F.RIGHT),), without=(_SAME,)),
    _Row(BACKEND, "{backend} is right node by node, and wrong with the whole graph.", ((R.NODES, F.RIGHT),)),
    _INVALID,
    _Row(PYTORCH, _DECOMPOSES_WRONGLY, ((R.PROGRAM, F.REFUSES),), without=(_RIGHT,)),
    _Row(PYTORCH, _DECOMPOSES, ((R.NODES, F.SAME), (R.PROGRAM, F.CONTRADICTS))),
    _Row(CONVERTER, _OPTIMISED, ((R.UNOPTIMISED, F.RIGHT), (R.PASS, F.RIGHT))),
    _Row(
        CONVERTER,
        "{converter} computes the result itself, for a constant of the graph.",
        ((R.CONSTANT, F.SAME),),
        without=_DEFINED_SO,
    ),
    _Row(
        CONVERTER,
        "The graph that {converter} emits ignores an argument of the call.",
        ((R.IGNORED, F.SAME),),
        without=(_RIGHT, *_DEFINED_SO),
    ),
    _Row(CONVERTER, _FEWER_BITS, ((R.NODES, F.SAME), (R.NARROWED, F.SAME)), without=(_DECOMPOSED,)),
    _Row(PYTORCH, _OFF, ((R.NODES, F.SAME), (R.FLOAT64, F.CONTRADICTS))),
    _Row(PYTORCH, "PyTorch leaves the range of its dtype on the way.", ((R.NODES, F.INEXACT),)),
    _Row(CONVERTER, _ASKS_OTHERWISE, ((R.NODES, F.SAME), (R.CONVERTER, F.RIGHT))),
    # Inexact as PyTorch may be, a result is wrong only if it is further from float64 than PyTorch's.
    *_asked_by_graph((R.NODES, F.SAME)),
    _Row(PYTORCH, _DISAGREE, ((R.MODEL, F.SAME), _DECOMPOSED)),
    _Row(CONVERTER, _OPTIMISED, ((R.MODEL, F.SAME), (R.UNOPTIMISED, F.RIGHT))),
    _Row(CONVERTER, "The graph that {converter} emits is wrong by ONNX's own rules.", ((R.MODEL, F.SAME),)),
    _Row(BACKEND, "{backend} gives what ONNX's own rules forbid.", ((R.MODEL, F.RIGHT),)),
    _Row(PYTORCH, _DECOMPOSES, ((R.PROGRAM, F.CONTRADICTS),), without=(_RIGHT,)),
    _Row(UNKNOWN, "The runtimes disagree about the model.", (_RIGHT, _SAME)),
    _Row(
        UNKNOWN,
        "PyTorch's kernel and its decomposition disagree, and so do the runtimes.",
        (_RIGHT, _DECOMPOSED),
    ),
    _Row(BACKEND, "The model is right, {backend} computes it wrongly.", (_RIGHT,)),
    _Row(CONVERTER, _FEWER_BITS, ((R.NARROWED, F.SAME),), without=(_DECOMPOSED,)),
    # Independent runtimes agree on the model's result, and it is not PyTorch's.
    _Row(PYTORCH, _DISAGREE, (_SAME, _DECOMPOSED)),
    _Row(PYTORCH, _OFF, (_SAME, (R.FLOAT64, F.CONTRADICTS))),
    _Row(UNKNOWN, _BOTH_OFF, (_SAME, (R.FLOAT64, F.INEXACT))),
    _Row(
        UNKNOWN,
        "PyTorch stands alone against two converters, and nothing confirms it.",
        (_SAME, (R.CONVERTER, F.SAME)),
        without=_CONFIRMED,
    ),
    _Row(CONVERTER, _OPTIMISED, (_SAME, (R.UNOPTIMISED, F.RIGHT))),
    _Row(CONVERTER, _NONE_RIGHT, (_OTHER, (R.CONVERTER, F.RIGHT))),
    _Row(UNKNOWN, "The runtimes disagree about the model.", (_SAME, _OTHER)),
    _Row(
        CONVERTER, "The graph that {converter} emits is wrong: every backend agrees on its result.", (_SAME,)
    ),
)

_REFUSAL = (
    _NO_REPEAT,
    _INVALID,
    _INVENTED,
    _Row(
        CONVERTER, "The graph that {converter} emits has a node that is not valid.", ((R.NODES, F.INVALID),)
    ),
)
_UNSUPPORTED = (
    *_REFUSAL,
    _Row(BACKEND, "The model is valid, {backend} does not implement it.", ((R.MODEL, F.VALID),)),
    _Row(UNKNOWN, "Whether the model is valid is not known.", ()),
)
_ERROR = (
    *_REFUSAL,
    _Row(PYTORCH, _DECOMPOSES_WRONGLY, ((R.PROGRAM, F.REFUSES),), without=(_RIGHT,)),
    # Who fails at it has no part in that.
    _Row(CONVERTER, _ASKS_OTHERWISE, ((R.NODES, F.FORM),)),
    _Row(BACKEND, _BY_OPTIMISATION, ((R.PLAIN, F.RIGHT),)),
    _Row(BACKEND, "{backend} fails on a valid node.", ((R.NODES, F.VALID),)),
    _Row(
        BACKEND,
        "The model is valid and right, {backend} fails on it.",
        ((*_RIGHT, _OWN), (R.MODEL, F.VALID)),
    ),
    _Row(UNKNOWN, "Whether the model is valid is not known.", ((*_RIGHT, _OWN),)),
    _Row(CONVERTER, _NONE_RIGHT, (_REFUSES, (R.CONVERTER, F.RIGHT))),
    _Row(CONVERTER, _NONE_RIGHT, (_OTHER, (R.CONVERTER, F.RIGHT))),
    _Row(CONVERTER, "No runtime can run the graph that {converter} emits.", (_REFUSES,), without=(_OTHER,)),
)

_TABLES = {Outcome.MISMATCH: _MISMATCH, Outcome.UNSUPPORTED: _UNSUPPORTED}


def telling_findings(outcome: Outcome, role: R) -> frozenset[F]:
    """What a witness may find that the table for `outcome` asks for."""
    facts = (fact for row in _TABLES.get(outcome, _ERROR) for fact in (*row.facts, *row.without))
    return frozenset(fact[1] for fact in facts if fact[0] is role)


def decide(charge: Charge, testimonies: Sequence[Testimony]) -> Decision:
    """The blame for a failure at stage `LOAD`, `RUN` or `COMPARE`, by all witnesses that were asked."""
    known: set[Fact] = {(t.role, t.finding) for t in testimonies}
    known |= {(t.role, t.finding, _OWN) for t in testimonies if t.independent}
    blame, why = UNKNOWN, "No witness tells the graph from the backend."
    for row in _TABLES.get(charge.outcome, _ERROR):
        if known.issuperset(row.facts) and known.isdisjoint(row.without):
            blame, why = row.blame, row.why.format(backend=charge.backend, converter=charge.converter)
            break
    ordered = sorted(testimonies, key=lambda t: _ORDER.index(t.role))
    return Decision(blame, " ".join([why, *dict.fromkeys(t.words for t in ordered)]))
