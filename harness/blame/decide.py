"""From testimonies to a blame: one table, read from the top. Pure.

Failures that need no witness (`at_once`):

| stage | outcome | blame |
| --- | --- | --- |
| convert | unsupported, error | converter: the model is its work |
| check | error | converter: what it emits is no valid ONNX |
| any | crash, timeout | whose code runs at that stage; a runtime must survive any model |

A wrong result (`mismatch`); the first row that holds:

| testimony | blame |
| --- | --- |
| PyTorch's kernels give the backend's answer themselves, or another answer each time | pytorch |
| the backend is right when it runs the case alone | unknown |
| PyTorch's shape and dtype rules (meta kernels) say what the backend gives, its kernel does not | pytorch |
| the failure hangs on what the specification leaves open | spec |
| the failure hangs on what the specification decides otherwise than the graph assumes | converter |
| the failure hangs on what the specification leaves open and the call does not ask | converter |
| right with graph optimisations off, and no independent runtime gives the wrong answer | backend |
| shape inference rejects the model | converter |
| ONNX's dtype or shape rules say what the backend gives; PyTorch's decomposition too | pytorch |
| ONNX's dtype or shape rules say what the backend gives | converter |
| ONNX's dtype or shape rules say what PyTorch gives | backend |
| some independent runtimes give PyTorch's answer, others the backend's | unknown |
| an independent runtime gives PyTorch's answer; PyTorch's decomposition the backend's | unknown |
| a runtime gives PyTorch's answer | backend |
| the graph has fewer bits than the call, and that explains the answer | converter |
| independent runtimes give the backend's answer (so in the rows to come); the decomposition too | pytorch |
| float64 too, and PyTorch in the case's dtype does not | pytorch |
| PyTorch in the case's dtype is itself far from float64 | unknown |
| another converter's export gives the backend's answer, so that PyTorch stands alone | unknown |
| the exporter's optimiser breaks it, or another converter's export is right | converter |
| other independent runtimes give yet another answer | unknown |
| nothing else is known | converter |
| every independent runtime that ran it is wrong, and another converter's export is right | converter |
| anything else | unknown |

A model that a backend cannot load or run (`error`, `unsupported`):

| testimony | blame |
| --- | --- |
| shape inference rejects the model | converter |
| the failure hangs on what the specification leaves open and the call does not ask | converter |
| the backend admits a gap, the model is valid | backend |
| right with graph optimisations off | backend |
| an independent runtime gives PyTorch's answer for the same, valid model | backend |
| an independent runtime fails on it too or is wrong, and another converter's export is right | converter |
| independent runtimes fail on it too, all of them, for another reason than a gap | converter |
| anything else | unknown |
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.blame.testimony import Charge, Decision, Finding, Role, Testimony
from harness.compare import BACKEND, CONVERTER, PYTORCH, RUNS_AT, SPEC, UNKNOWN, Outcome, Stage, normalise
from harness.execute import OWN_FAULT

#: The order of testimonies in the evidence: the most telling first.
_ORDER = (
    Role.ALONE,
    Role.SPECIFICATION,
    Role.NARROWED,
    Role.PYTORCH,
    Role.META,
    Role.RUNTIME,
    Role.PLAIN,
    Role.CONVERTER,
    Role.UNOPTIMISED,
    Role.FLOAT64,
    Role.DECOMPOSITION,
    Role.MODEL,
    Role.ABSENT,
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


def decide(charge: Charge, testimonies: Sequence[Testimony]) -> Decision:
    """The blame for a failure that was looked into.

    Args:
        charge: At stage `LOAD`, `RUN` or `COMPARE`.
        testimonies: Of all witnesses that were asked.
    """
    heard = _Heard(testimonies)
    judge = _of_mismatch if charge.outcome is Outcome.MISMATCH else _of_refusal
    blame, why = judge(charge, heard)
    told = sorted(testimonies, key=lambda t: _ORDER.index(t.role))
    return Decision(blame, " ".join([why, *dict.fromkeys(t.words for t in told)]))


class _Heard:
    def __init__(self, testimonies: Sequence[Testimony]) -> None:
        self._all = testimonies

    def any(self, role: Role, *findings: Finding, independent: bool = False) -> bool:
        return any(
            t.role is role and t.finding in findings and (t.independent or not independent) for t in self._all
        )


def _of_mismatch(charge: Charge, heard: _Heard) -> tuple[str, str]:
    backend, converter = charge.backend, charge.converter
    if heard.any(Role.PYTORCH, Finding.CONTRADICTS):
        return PYTORCH, "PyTorch contradicts itself."
    if heard.any(Role.ALONE, Finding.RIGHT):
        return UNKNOWN, "The failure does not repeat."
    if heard.any(Role.META, Finding.CONTRADICTS):
        return PYTORCH, "PyTorch's kernel contradicts PyTorch's own shape and dtype rules."
    if heard.any(Role.SPECIFICATION, Finding.OPEN):
        return SPEC, "The specification leaves the result open."
    if heard.any(Role.SPECIFICATION, Finding.SETTLED):
        return CONVERTER, f"The graph that {converter} emits asks for something else by the specification."
    if heard.any(Role.SPECIFICATION, Finding.INVENTED):
        return CONVERTER, _INVENTED.format(converter)
    right = heard.any(Role.RUNTIME, Finding.RIGHT)
    same = heard.any(Role.RUNTIME, Finding.SAME, independent=True)
    if heard.any(Role.PLAIN, Finding.RIGHT) and not same:
        return BACKEND, f"{backend}'s graph optimisation: right with optimisations off."
    if heard.any(Role.MODEL, Finding.INVALID):
        return CONVERTER, f"The model that {converter} emits is not valid."
    if heard.any(Role.MODEL, Finding.SAME):
        if heard.any(Role.DECOMPOSITION, Finding.CONTRADICTS):
            return PYTORCH, _DECOMPOSED
        if heard.any(Role.UNOPTIMISED, Finding.RIGHT):
            return CONVERTER, _OPTIMISED.format(converter)
        return CONVERTER, f"The graph that {converter} emits is wrong by ONNX's own rules."
    if heard.any(Role.MODEL, Finding.RIGHT):
        return BACKEND, f"{backend} gives what ONNX's own rules forbid."
    if right and same:
        return UNKNOWN, "The runtimes disagree about the model."
    if right:
        if heard.any(Role.DECOMPOSITION, Finding.CONTRADICTS):
            return UNKNOWN, "PyTorch's kernel and its decomposition disagree, and so do the runtimes."
        return BACKEND, f"The model is right, {backend} computes it wrongly."
    if heard.any(Role.NARROWED, Finding.SAME) and not heard.any(Role.DECOMPOSITION, Finding.CONTRADICTS):
        return CONVERTER, f"The graph that {converter} emits has fewer bits than the call."
    if same:
        return _of_graph(converter, heard)
    wrong = heard.any(Role.RUNTIME, Finding.OTHER, independent=True)
    if wrong and heard.any(Role.CONVERTER, Finding.RIGHT):
        return CONVERTER, f"No runtime gets PyTorch's result from {converter}'s graph."
    return UNKNOWN, "No witness tells the graph from the backend."


_OPTIMISED = "{}'s optimiser breaks the graph: it is right before it."
_DECOMPOSED = "PyTorch's kernel and its own decomposition of the operator disagree."
_INVENTED = "The graph that {} emits rests on what the specification leaves open, which the call does not."


def _of_graph(converter: str, heard: _Heard) -> tuple[str, str]:
    """Independent runtimes agree on the model's result, and it is not PyTorch's."""
    if heard.any(Role.DECOMPOSITION, Finding.CONTRADICTS):
        return PYTORCH, _DECOMPOSED
    if heard.any(Role.FLOAT64, Finding.CONTRADICTS):
        return PYTORCH, "PyTorch is off: the backend has the answer that PyTorch has in float64."
    if heard.any(Role.FLOAT64, Finding.INEXACT):
        return UNKNOWN, "Both the graph and PyTorch are far from float64."
    confirmed = any(heard.any(r, Finding.CONFIRMS) for r in (Role.FLOAT64, Role.DECOMPOSITION, Role.META))
    if not confirmed and heard.any(Role.CONVERTER, Finding.SAME):
        return UNKNOWN, "PyTorch stands alone against two converters, and nothing confirms it."
    if heard.any(Role.UNOPTIMISED, Finding.RIGHT):
        return CONVERTER, _OPTIMISED.format(converter)
    if heard.any(Role.RUNTIME, Finding.OTHER, independent=True):
        if heard.any(Role.CONVERTER, Finding.RIGHT):
            return CONVERTER, f"No runtime gets PyTorch's result from {converter}'s graph."
        return UNKNOWN, "The runtimes disagree about the model."
    return CONVERTER, f"The graph that {converter} emits is wrong: every backend agrees on its result."


def _of_refusal(charge: Charge, heard: _Heard) -> tuple[str, str]:
    backend, converter = charge.backend, charge.converter
    if heard.any(Role.ALONE, Finding.RIGHT):
        return UNKNOWN, "The failure does not repeat."
    if heard.any(Role.MODEL, Finding.INVALID):
        return CONVERTER, f"The model that {converter} emits is not valid."
    if heard.any(Role.SPECIFICATION, Finding.INVENTED):
        return CONVERTER, _INVENTED.format(converter)
    if charge.outcome is Outcome.UNSUPPORTED:
        if heard.any(Role.MODEL, Finding.VALID):
            return BACKEND, f"The model is valid, {backend} does not implement it."
        return UNKNOWN, "Whether the model is valid is not known."
    if heard.any(Role.PLAIN, Finding.RIGHT):
        return BACKEND, f"{backend}'s graph optimisation: right with optimisations off."
    if heard.any(Role.RUNTIME, Finding.RIGHT, independent=True):
        if heard.any(Role.MODEL, Finding.VALID):
            return BACKEND, f"The model is valid and right, {backend} fails on it."
        return UNKNOWN, "Whether the model is valid is not known."
    refused = heard.any(Role.RUNTIME, Finding.REFUSES, independent=True)
    wrong = heard.any(Role.RUNTIME, Finding.OTHER, independent=True)
    if (refused or wrong) and heard.any(Role.CONVERTER, Finding.RIGHT):
        return CONVERTER, f"No runtime gets PyTorch's result from {converter}'s graph."
    if refused and not wrong:
        return CONVERTER, f"No runtime can run the graph that {converter} emits."
    return UNKNOWN, "No witness tells the graph from the backend."
