"""Where a defect is, and what is wrong there: the two halves of a root cause.

| blame | place |
| --- | --- |
| a backend | the ONNX operator whose kernel is wrong, by a testimony or by the words of a refusal |
| a converter | its conversion function; a pass or a step of the export where the failure names one |
| PyTorch | a kernel, a decomposition, the rules of shapes and dtypes |
| a specification | the operator whose text leaves the result open |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from harness.blame.converter_place import (
    Place,
    converter_place,
    makes_complex,
    takes_for_numbers,
    unpromoted,
)
from harness.blame.failure_facts import BEFORE_BACKEND, FailureFacts, is_lossy
from harness.blame.testimony import Decision
from harness.compare import (
    BACKEND,
    CONVERTER,
    NAN_POSITIONS,
    OVERFLOW,
    PYTORCH,
    SPEC,
    Detail,
    Diagnosis,
    Outcome,
    Stage,
    elements,
    faults,
)
from harness.convert import exporter_messages as exporter
from harness.core import Invocation
from harness.execute import Result
from harness.run import ort_messages as ort


class Fault(NamedTuple):
    """What is wrong: a fault, and what else tells it from others of its kind."""

    name: str
    symptom: str = ""


def diagnose(result: Result, invocation: Invocation, converter: str, decision: Decision) -> Diagnosis:
    """The diagnosis of a failed result, given who is to blame and why."""
    facts = FailureFacts.of(result, invocation, converter, decision)
    by_rule = decision.blame == CONVERTER and result.rule
    fault = _fault(decision.blame, facts)
    # It took the place of the converter's own.
    place = Place("rule", result.rule) if by_rule else _PLACES.get(decision.blame, _unknown)(facts)
    lossy = facts.dtypes is not None and is_lossy(*facts.dtypes)
    refused = result.stage in (Stage.LOAD, Stage.RUN) and result.outcome is Outcome.ERROR
    element = ""
    if decision.blame == CONVERTER:
        element = elements.CAST if "cast-to-float32" in facts.statements else facts.element
    return Diagnosis(
        blame=decision.blame,
        rule=decision.rule,
        component=place.component,
        place=place.name,
        file=place.file,
        fault=fault.name,
        detail=Detail(
            symptom=fault.symptom,
            # Dtypes, shapes and refusals are what all algorithms of an operator have in common.
            choice=place.choice if fault.name in _OF_ELEMENTS else "",
            element=element,
            lossy=lossy,
            refusal=f"{result.backend}: {facts.words}" if refused else "",
        ),
        facts=decision.facts,
        testimony=decision.testimony,
        inherited_from=decision.inherited_from,
    )


#: What is said of single elements of a result, by which the algorithms of an operator may differ.
_OF_ELEMENTS = faults.OF_VALUES | {"loses-nan", "leaves-range"}
#: Rules of the decision table by which an optimiser is to blame.
BY_PASS = frozenset({"graph-optimisation", "optimiser-breaks-graph"})
#: Passes that do more than one thing.
_OF_ALL_KINDS = re.compile("Constant|RewritePass")


def passes_of(facts: FailureFacts) -> str:
    """The passes without which all is right, with commas between; "" for none."""
    found = facts.statements.get("runtime-passes") or facts.statements.get("exporter-passes") or {}
    return ", ".join(found.get("passes", ()))


def _own_fault(facts: FailureFacts) -> Fault:
    """What a comparison found, or the words of whoever refused."""
    if facts.problem is not None:
        return Fault(faults.OF_PROBLEM[facts.problem.kind])
    if facts.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        return Fault(str(facts.outcome), facts.words)
    return Fault("fails", facts.words)


def _fault(blame: str, facts: FailureFacts) -> Fault:
    node = facts.statements.get("wrong-node")
    if blame == BACKEND and node is not None and facts.rule == "wrong-node":
        return Fault(node["kernel_fault"])
    if blame == SPEC:
        return Fault("left-open", _question(facts).get("subject", ""))
    if facts.rule in BY_PASS:
        # What a pass does to a graph is one thing, whatever elements it shows in.
        own = _own_fault(facts)
        fault = Fault("values") if own.name in faults.OF_VALUES else own
        of_family = bool(_OF_ALL_KINDS.search(passes_of(facts)))
        return replace_symptom(fault, facts.family) if of_family else fault
    if blame == CONVERTER:
        return _of_converter(facts)
    own = _own_fault(facts)
    if blame == PYTORCH and own.name in faults.OF_VALUES:
        return Fault("values")
    if blame == BACKEND and facts.problem is None and ort.missing_kernel(facts.words):
        return Fault("no-kernel")
    return own


def replace_symptom(fault: Fault, symptom: str) -> Fault:
    """The fault with one more thing that tells it from others."""
    return fault._replace(symptom=" ".join(filter(None, [fault.symptom, symptom])))


#: One argument for each axis: what ignores one ignores all.
_OF_AXIS = re.compile(r"_[dhw]$")


def _of_converter(facts: FailureFacts) -> Fault:
    promotion = unpromoted(facts)
    if promotion:
        return Fault(promotion)
    if facts.message[:1] == (exporter.NO_OP,):
        what = facts.message[1]
        return Fault("no-bool-as-number") if what == "bool" else Fault("no-such-overload", what)
    if makes_complex(facts):
        return Fault("undefined-dtype")
    if facts.stage in (Stage.REFERENCE, Stage.CONVERT):
        return _of_export(facts)
    if facts.rule == "constant-result" and facts.converter == "torchscript":
        return Fault("constant-result")
    if takes_for_numbers(facts):
        return Fault("scalars-as-numbers")
    if facts.rule == "ignored-argument":
        argument = _OF_AXIS.sub("", facts.statements["ignored-argument"]["argument"])
        if argument == "dtype":
            return Fault("computes-in-another-dtype")
        return Fault("ignores-argument", argument)
    return _of_model(facts)


def _of_export(facts: FailureFacts) -> Fault:
    if exporter.unconverted_operator(facts.words):
        return Fault("no-conversion")
    if "scalar" in facts.call.conditions and exporter.lost_its_way(facts.words):
        return Fault("no-dimensions")
    return _own_fault(facts)


def _of_model(facts: FailureFacts) -> Fault:
    """What is wrong with a model that was emitted, by the checker, a runtime, or its result."""
    if facts.dtypes is not None and not is_lossy(*facts.dtypes):
        return Fault("larger-dtype")
    if facts.stage is Stage.CHECK and exporter.infers_from_wrong_dtype(facts.words):
        return Fault("undefined-dtype", _undefined_node(facts.words))
    narrow = facts.rule == "fewer-bits" or facts.element == elements.NARROW
    if narrow or facts.dtypes is not None or exporter.result_dtypes_differ(facts.words):
        return Fault("computes-in-another-dtype")
    if facts.problem is not None:
        return _of_result(facts)
    return _of_refusal(facts)


def _of_result(facts: FailureFacts) -> Fault:
    """What is wrong with the elements or the shape of a result."""
    own = _own_fault(facts)
    of_values = own.name in faults.OF_VALUES
    if facts.element == elements.DIGITS:
        # A result of float64 that is asked for of others must be computed in it. Where a part of the call has
        # no more digits than float32, that says nothing.
        if "no-float64" in facts.call.conditions:
            return Fault("computes-in-another-dtype")
        return Fault("values" if "mixed-precision" in facts.call.conditions else "as-exact-as-float32")
    if facts.rule == "rests-on-open-question" and of_values:
        return Fault("rests-on-open-question", _question(facts).get("operator", ""))
    # What is made up, or was no integer where it had to be one, is wrong in all ways.
    if of_values and (facts.rule == "constant-result" or facts.element == elements.THROUGH_INTEGERS):
        return Fault("values")
    if facts.element == elements.LOST:
        return Fault("loses-nan")
    if facts.element in (elements.LEFT, elements.BEYOND) or facts.kind in (NAN_POSITIONS, OVERFLOW):
        return Fault("leaves-range")
    return Fault(facts.shape_fault) if facts.shape_fault else own


def _of_refusal(facts: FailureFacts) -> Fault:
    """What is wrong with a model that is rejected, or that a runtime does not load or run."""
    differs = facts.message[2] if facts.message[:1] == (exporter.NODE,) and len(facts.message) > 2 else ""
    how = {"few": "too-few-dimensions", "many": "too-many-dimensions", exporter.EMPTY: "emptied"}
    if differs in how:
        return Fault(how[differs])
    if differs == exporter.SIZE:
        return Fault("unfit-shapes")
    known = exporter.model_fault(facts.words)
    if known:
        return Fault(known, _undefined_node(facts.words) if known == "undefined-dtype" else "")
    name, operator = ort.complaint(facts.words)
    if ort.is_out_of_bounds(facts.words):
        return Fault("values")
    return Fault(name, operator) if name else _own_fault(facts)


def _undefined_node(words: str) -> str:
    """The node that is not defined for a dtype; all reductions are one."""
    return re.sub("^Reduce.*", "Reduce", exporter.emitted_node(words).removeprefix("Global"))


def _question(facts: FailureFacts) -> Any:
    """The facts of the open question that a failure rests on."""
    said = facts.statements
    if "open-question" in said:
        return said["open-question"]
    if "open-node" in said:
        return said["open-node"]["question"]
    if "epsilon-schema" in said:
        return {"operator": " and ".join(said["epsilon-schema"]["operators"]), "subject": "epsilon"}
    return {"operator": "", "subject": said.get("left-open", {}).get("why", "")}


#: ONNX Runtime's operators that compare integers share how they do.
_COMPARISON = re.compile(r"(?:Reduce)?(?:Max|Min)|Sign|Clip")
#: Its reductions share what they do without elements.
_REDUCTION = re.compile(r"Reduce\w+|ArgM(?:ax|in)")
_OF_SEQUENCES = re.compile(r"Sequence|Optional|ConcatFromSequence")
#: Attributes that choose among the algorithms of an ONNX operator.
_MODES = ("mode", "reduction", "approximate")


def _backend(facts: FailureFacts) -> Place:
    if facts.rule in BY_PASS:
        return Place(facts.backend, f"graph optimisation, {passes_of(facts) or facts.family}")
    node = facts.statements.get("wrong-node") or facts.statements.get("refused-node")
    operator = _kernel_name(node["node"]) if node else ""
    wrong = facts.statements.get("wrong-node", {}).get("kernel_fault", "")
    missing, named = ort.missing_kernel(facts.words), ort.failing_kernel(facts.words)
    # A runtime may run an operator as others that define it, and blame looks at nodes for sequences together.
    operator = missing or operator
    if not operator or _OF_SEQUENCES.match(operator):
        operator = named or operator
    if wrong == "wrong-without-elements" and _REDUCTION.match(operator):
        operator = "reductions"
    if wrong == "wrong-integers" and _COMPARISON.fullmatch(operator):
        operator = "comparisons of integers"
    if operator:
        return Place(facts.backend, operator)
    which = "nodes taken together" if facts.rule == "nodes-together" else "unknown node"
    return Place(facts.backend, f"{which} of {facts.family}" if facts.by_operator else which)


def _kernel_name(node: Any) -> str:
    modes = [f"{name}={node['attributes'][name]}" for name in _MODES if name in node["attributes"]]
    return f"{node['operator']} ({', '.join(modes)})" if modes else str(node["operator"])


#: One kernel and one decomposition compute them.
_VARIANCE = re.compile(r"aten\.(?:std|var)(?:_mean)?")
_PARTS = {
    "decomposition-gives-it": "decomposition",
    "decomposition-fails": "decomposition",
    "kernel-against-decomposition": "kernel or decomposition",
    "kernel-against-meta-rules": "shape and dtype rules",
}


def _pytorch(facts: FailureFacts) -> Place:
    of = "aten.var" if _VARIANCE.fullmatch(facts.family) else facts.family
    return Place("PyTorch", f"{_PARTS.get(facts.rule, 'kernel')} of {of}", choice=facts.call.choice)


def _spec(facts: FailureFacts) -> Place:
    operator = _question(facts).get("operator", "")
    if operator:
        return Place("ONNX", operator)
    # One sentence may be about many operators, each of which does as it likes.
    return Place("PyTorch", f"documentation of {facts.family}")


def _unknown(facts: FailureFacts) -> Place:
    who = facts.converter if facts.stage in BEFORE_BACKEND else f"{facts.converter} → {facts.backend}"
    return Place(who, facts.family if facts.by_operator else "unknown place")


def _converter(facts: FailureFacts) -> Place:
    if facts.rule == "optimiser-breaks-graph":
        return Place(facts.converter, f"optimiser, {passes_of(facts) or facts.family}")
    return replace(converter_place(facts), choice=facts.call.choice)


_PLACES: dict[str, Callable[[FailureFacts], Place]] = {
    "converter": _converter,
    "backend": _backend,
    "pytorch": _pytorch,
    "spec": _spec,
}
