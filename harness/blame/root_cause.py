"""The root cause of a failure: the component to blame, the place in it, and the fault.

`diagnose` derives both halves, the place and the fault, from the facts of the failure and of the testimonies.

| blame | place |
| --- | --- |
| a backend | the ONNX operator whose kernel is wrong, by a testimony or by the words of a refusal |
| a converter | its conversion function; a pass or a step of the export if the failure names one |
| a transform | the transform |
| PyTorch | a kernel, a decomposition, the rules of shapes and dtypes |
| a specification | the operator whose text leaves the result open |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from harness.blame.decide import LOSES_ALIAS, SPECIALISED
from harness.compare import elements
from harness.compare.diagnosis import Detail, Diagnosis
from harness.compare.faults import PROBLEM_FAULTS, VALUE_FAULTS, Fault
from harness.compare.output_comparison import OutputProblem
from harness.compare.problem_kinds import NAN_POSITIONS, OVERFLOW
from harness.compare.verdict import BACKEND, BEFORE_BACKEND, CONVERTER, PYTORCH, SPEC, TRANSFORM, Outcome, Stage
from harness.convert import exporter_messages as exporter
from harness.convert.conversion_sources import ConversionFunction, functions_by_name
from harness.convert.converter import ConverterEntry, ExportStep, find_converter
from harness.convert.function_families import own_function
from harness.convert.written_schemas import takes_numbers
from harness.core.invocation import Invocation
from harness.core.onnx_operators import is_onnx_operator
from harness.core.program import is_composed
from harness.core.route import GRAPH, route_label
from harness.generate.call_traits import CallTraits, call_traits
from harness.generate.operator_family import family_name, is_alias
from harness.pipeline.case_run import CaseRun
from harness.run import ort_messages as ort
from harness.run.artefact import ONNX

#: Outcomes whose messages are the same for every defect ("killed by SIGSEGV"): only the operator tells.
SPEECHLESS = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT})


@dataclass(frozen=True, eq=False)
class FailureFacts:
    """A failure and the decision on it: everything that determines the place and the fault.

    Attributes:
        run: The result of the case.
        overload: The operator that is called; for a program that fails by one of its calls, that call's.
        call: Traits of the call.
        converter: The name of the converter.
        decision: The blame and its rule.
    """

    run: CaseRun
    overload: str
    call: CallTraits
    converter: str
    decision: Diagnosis

    @property
    def entry(self) -> ConverterEntry:
        """The registered converter."""
        return find_converter(self.converter)

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self.run.backend

    @property
    def stage(self) -> Stage:
        """The stage at which the case ended."""
        return self.run.stage

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of the case."""
        return self.run.outcome

    @property
    def raised_by(self) -> str:
        """See `harness.pipeline.case_run.CaseRun`."""
        return self.run.raised_by

    @property
    def rule(self) -> str:
        """The row of the decision table that decided."""
        return self.decision.rule

    @property
    def traced(self) -> str:
        """Return the value that tracing has fixed in the export of a model; "" if none."""
        return self.run.model_run.traced.what if self.run.model_run.traced else ""

    @property
    def problem(self) -> OutputProblem | None:
        """Return the problem that the comparison found; None for a failure before it."""
        return self.run.comparison.problems[0] if self.run.comparison and self.run.comparison.problems else None

    @cached_property
    def words(self) -> str:
        """Return the message of an exporter, a checker or a runtime, normalised; "" if the comparison failed."""
        return "" if self.problem else exporter.common_words(self.run.message)

    @cached_property
    def message(self) -> tuple[str, ...]:
        """Return the facts in an exporter's message; see `harness.convert.exporter_messages.message_facts`."""
        return () if self.problem else exporter.message_facts(self.run.message)

    @cached_property
    def statements(self) -> Mapping[str, Mapping[str, Any]]:
        """Statement → facts of the first testimony with it."""
        found: dict[str, Mapping[str, Any]] = {}
        for testimony in self.decision.testimony:
            found.setdefault(testimony.statement, testimony.facts)
        return found

    @property
    def needs_operator(self) -> bool:
        """Whether many defects fail in this way, so that only the operator distinguishes them."""
        # A wrong model fails in its own way in each runtime, independent of the converter's fault.
        is_symptom = self.decision.blame == CONVERTER and self.stage not in BEFORE_BACKEND
        return self.outcome in SPEECHLESS or is_symptom or exporter.is_generic(self.words)

    @property
    def kind(self) -> str:
        """Return the comparison's kind of problem (`harness.compare.output_comparison`); "" for an earlier failure."""
        return self.problem.kind if self.problem else ""

    @property
    def dtypes(self) -> tuple[str, str] | None:
        """PyTorch's dtype and the backend's, where these differ."""
        return (self.problem.expected, self.problem.got) if self.problem and self.kind == "dtype" else None

    @property
    def shape_fault(self) -> Fault | None:
        """Return the difference of a result's shape in other things than sizes; None if there is none."""
        if self.problem is None or self.kind != "shape":
            return None
        return _shape_fault(self.problem.expected, self.problem.got)

    @property
    def element(self) -> str:
        """The kind of the first wrong element; "" for none that tells something."""
        if self.problem is None or self.kind in ("dtype", "shape") or not self.problem.dtype:
            return ""
        return elements.wrong_element(self.problem.expected, self.problem.got, self.problem.dtype)

    @property
    def packet(self) -> str:
        """``aten.add``; of a program, the pattern that it was drawn by."""
        return self.overload if is_composed(self.overload) else self.overload.rpartition(".")[0]

    @property
    def family(self) -> str:
        """The operator under the name that its aliases and dimensions share."""
        return family_name(self.packet)

    @property
    def emitter(self) -> ConversionFunction | None:
        """Return the function that emits the wrong part of the graph; None if it is not known."""
        facts = self.statements.get("emitting-function")
        return ConversionFunction(facts["library"], facts["function"], facts["file"]) if facts else None


def _shape_fault(expected: Sequence[int], got: Sequence[int]) -> Fault | None:
    if len(expected) != len(got):
        return Fault.TOO_FEW_DIMENSIONS if len(got) < len(expected) else Fault.TOO_MANY_DIMENSIONS
    return Fault.EMPTIED if any(g == 0 != e for e, g in zip(expected, got, strict=True)) else None


def is_lossy(right: str, wrong: str) -> bool:
    """Whether a dtype does not hold all values of another; both by name."""
    held, holding = (name.replace("bfloat16", "float16") for name in (right, wrong))
    try:
        return not np.can_cast(np.dtype(held), np.dtype(holding))
    except TypeError:
        return True


@dataclass(frozen=True, order=True)
class Place:
    """The place of a defect: a component and a part of it.

    Attributes:
        component: ``ort-cpu``, ``torchlib``, ``TorchScript``, ``PyTorch``, ``ONNX``; ``rule`` for a user's;
            ``transform``; a converter's name if its library is not known, with the backend if no component is blamed.
        name: An operator, a function, a pass.
        file: The function's file, relative to the folder of its package; "" if there is none.
        choice: The function's algorithm: ``rounding_mode=floor``; "" if it has only one.
    """

    component: str
    name: str
    file: str = ""
    choice: str = ""


#: The name of a place if the converter decomposes the operator: only the run knows the function.
UNKNOWN_FUNCTION = "conversion of "
_PROMOTION = "torch/csrc/jit/passes/onnx/scalar_type_analysis.cpp"
#: A division by zero is that of the shapes of TorchScript's ``Reshape`` (`ComputeShapeFromReshape`); it is an
#: operator's own if nothing converts the operator.
_INFERENCE = "torch/csrc/jit/passes/onnx/shape_type_inference.cpp"
#: Steps of an export, as a place.
_STEPS = {
    exporter.CAPTURE: "torch.export",
    exporter.DECOMPOSITION: "decomposition of the program",
    exporter.TRANSLATION: "translation of the program",
    exporter.OPTIMISER: "optimiser",
}
_SHORT = ("float16", "bfloat16")


def converter_place(facts: FailureFacts) -> Place:
    """Return the conversion function, pass or step of a failure that the converter is blamed for."""
    if not facts.entry.converts:
        node = facts.statements.get("invalid-node")
        return Place(facts.converter, _kernel_name(node["node"]) if node else "the graph")
    if unpromoted(facts):
        return Place(facts.converter, "type promotion")
    if facts.stage in (Stage.REFERENCE, Stage.CONVERT):
        return _function(facts) if facts.emitter else _export_place(facts)
    if facts.stage is Stage.CHECK:
        return _rejected_node_place(facts)
    if breaks_program(facts):
        return Place(facts.converter, "type promotion")
    if facts.rule == "constant-result" and ExportStep.TRACING in facts.entry.steps:
        return Place(facts.converter, "tracing of the program")
    # Functions have their own way with numbers that are floats by their schema: attributes.
    rounded = facts.rule == "fewer-bits" and "rounded-arguments" in facts.statements
    if rounded and ExportStep.NUMBERS in facts.entry.steps and takes_numbers(facts.overload):
        return Place(facts.converter, "handling of numbers")
    if takes_for_numbers(facts):
        return Place(facts.converter, "type promotion")
    return _function(facts)


def takes_for_numbers(facts: FailureFacts) -> bool:
    """Whether a result has the dtype that numbers would have because a pass takes 0-d tensors for numbers, whichever
    conversion function there is."""
    only_scalars = "only-scalars" in facts.call.conditions
    return ExportStep.SCALARS_AS_NUMBERS in facts.entry.steps and facts.dtypes is not None and only_scalars


def breaks_program(facts: FailureFacts) -> bool:
    """Whether the program that the converter translates is wrong already, by the exporter's own pass.

    All conversion functions are faithful to their inputs. The pass that makes dtypes explicit is the only one that
    changes what a program computes.
    """
    return "exporters-program" in facts.statements


def unpromoted(facts: FailureFacts) -> Fault | None:
    """Return the fault of the pass in which PyTorch's exporter makes dtypes explicit; None if it is not to blame.

    A pass of it casts operands to the dtype that PyTorch's kernel computes in. It leaves the sums of 16-bit
    numbers there, and does not know the operators by their other names.
    """
    if ExportStep.EXPLICIT_DTYPES not in facts.entry.steps:
        return None
    if facts.dtypes is not None and facts.dtypes[0] in _SHORT and facts.dtypes[1] == "float32":
        return Fault.LEAVES_16_BITS_IN_FLOAT32
    if not is_alias(facts.packet):
        return None
    # A number that is not an integer becomes one in a call with integers, and so does a quotient.
    arithmetic = facts.overload.endswith((".Scalar", ".Tensor"))
    wrong = facts.kind in ("values", "sign of zero") or exporter.changes_number(facts.words)
    number = arithmetic and wrong and facts.element not in (elements.NARROW, elements.DIGITS)
    second = facts.message[:1] == (exporter.NODE,) and exporter.SECOND in facts.message[2:]
    unfit = exporter.operand_dtypes_differ(facts.words) or second
    unlike = facts.dtypes is not None or (facts.stage is Stage.CHECK and unfit)
    return Fault.UNKNOWN_ALIAS if unlike or number else None


def _rejected_node_place(facts: FailureFacts) -> Place:
    """Return the place of a node that the checker rejects: the function that emits it, or a later pass."""
    of_schema = exporter.node_with_wrong_inputs(facts.words)
    if of_schema:
        # A number of inputs may be an optimiser's.
        return Place(facts.converter, f"{of_schema} nodes")
    # A pass that makes the dtypes of operands equal casts bfloat16 to complex numbers.
    if ExportStep.EQUAL_DTYPES in facts.entry.steps and exporter.is_unsupported_cast(facts.words):
        return Place(facts.converter, "type promotion")
    operator = exporter.rejected_operator(facts.words)
    # A node that the exporter itself makes, such as an element of a sequence, comes from no function.
    return Place(facts.converter, f"{operator} nodes") if operator and facts.emitter is None else _function(facts)


def _export_place(facts: FailureFacts) -> Place:
    """Return the place where an export without a model ends."""
    missing = exporter.unconverted_operator(facts.words)
    if missing:
        return Place(facts.converter, f"no conversion of {missing}")
    if makes_complex(facts):
        return Place(facts.converter, "type promotion")
    kind, name = facts.message if len(facts.message) == 2 else ("", "")
    divides = ExportStep.SHAPES in facts.entry.steps and exporter.is_division_signal(facts.words)
    if divides and own_function(facts.converter, facts.overload):
        return Place(facts.converter, _INFERENCE.rpartition("/")[2], _INFERENCE)
    if facts.message[:1] == (exporter.ASKING,):
        return Place(facts.converter, f"torch.export, {facts.message[1]}", f"torch/{facts.message[2]}")
    function = exporter.function_in(facts.words)
    if function:
        named = functions_by_name(facts.converter).get(function)
        return _place_of(named) if named else Place(facts.converter, function)
    if kind == exporter.SYMBOLIC:
        return _function(facts, f"aten.{name}")
    if kind == exporter.NO_OP:
        return Place(facts.converter, "schemas of operators")
    if kind == exporter.FILE:
        return Place(facts.converter, name.rpartition("/")[2], name)
    return _step_place(facts, name if kind == exporter.STEP else "")


def _step_place(facts: FailureFacts, step: str) -> Place:
    """Return the place where an export ends of which at most the step is known."""
    operator = exporter.operator_in(facts.words)
    if step == exporter.TRANSLATION and operator:
        return _function(facts, operator)
    if step and not (step == exporter.TRANSLATION and facts.needs_operator):
        of_family = f"{_STEPS[step]} of {facts.family}"
        return Place(facts.converter, of_family if facts.needs_operator else _STEPS[step])
    if not facts.needs_operator:
        return Place(facts.converter, "export")
    return _function(facts)


def makes_complex(facts: FailureFacts) -> bool:
    """Whether a pass that makes the dtypes of operands equal takes bfloat16 for complex numbers, or cannot infer the
    result, before the checker sees any."""
    if ExportStep.EQUAL_DTYPES not in facts.entry.steps or facts.stage is not Stage.CONVERT:
        return False
    complex_ = facts.message == (exporter.COMPLEX,) and "complex" not in facts.call.conditions
    return complex_ or facts.message == (exporter.FILE, _PROMOTION)


def _function(facts: FailureFacts, packet: str = "") -> Place:
    """Return the conversion function of a failure; if it is not known, all that converts the operator.

    Args:
        facts: The failure. If an export has shown the function that makes the wrong part, that is the place.
        packet: The operator that an export ends at, as ``aten.add``; "" for the call's.
    """
    function = facts.emitter
    is_before_graph = facts.stage in (Stage.REFERENCE, Stage.CONVERT)
    if function is None and (is_before_graph or not find_converter(facts.converter).decomposes):
        overload = f"{packet}.default" if packet else facts.overload
        function = own_function(facts.converter, overload, is_complex="complex" in facts.call.conditions)
    return (
        _place_of(function)
        if function
        else Place(facts.converter, f"{UNKNOWN_FUNCTION}{family_name(packet) or facts.family}")
    )


def _place_of(function: ConversionFunction) -> Place:
    return Place(function.library, function.name, function.file)


#: A fault, and a symptom that tells it from others of its kind; "" for none.
FaultAndSymptom: TypeAlias = tuple[Fault, str]


def diagnose(result: CaseRun, invocation: Invocation, converter: str, decision: Diagnosis) -> Diagnosis:
    """Return the diagnosis of a failed result, given its blame and the evidence.

    A program that fails by one of its calls has the place of that call.
    """
    if decision.call:
        invocation = Invocation.from_json(decision.call)
    facts = FailureFacts(result, invocation.overload, call_traits(invocation), converter, decision)
    by_rule = decision.blame == CONVERTER and result.rule
    fault, symptom = _fault(decision.blame, facts)
    # It took the place of the converter's own.
    place = Place("rule", result.rule) if by_rule else _PLACES.get(decision.blame, _unknown)(facts)
    element = ""
    if decision.blame == CONVERTER:
        element = elements.CAST if "cast-to-float32" in facts.statements else facts.element
    return replace(
        decision,
        component=place.component,
        place=place.name,
        file=place.file,
        fault=fault,
        detail=Detail(
            symptom=symptom,
            # All algorithms of an operator share dtypes and shapes.
            choice=place.choice if fault in _OF_ELEMENTS else "",
            element=element,
            has_wrong_numbers=facts.problem is not None and facts.problem.has_wrong_numbers,
        ),
        difference=facts.problem.difference if facts.problem else None,
    )


#: Faults of single elements of a result, in which the algorithms of an operator may differ.
_OF_ELEMENTS = VALUE_FAULTS | {Fault.LOSES_NAN, Fault.LEAVES_RANGE}
#: Rules of the decision table by which an optimiser is to blame.
BY_PASS = frozenset({"graph-optimisation", "optimiser-breaks-graph"})
#: Passes that do more than one thing.
_OF_ALL_KINDS = re.compile("Constant|RewritePass")


def passes_of(facts: FailureFacts) -> str:
    """Return the passes without which the result is right, separated by commas; "" for none."""
    found = facts.statements.get("runtime-passes") or facts.statements.get("exporter-passes") or {}
    return ", ".join(found.get("passes", ()))


def _own_fault(facts: FailureFacts) -> FaultAndSymptom:
    """Return the problem that a comparison found, or the words of the component that refused."""
    if facts.problem is not None:
        return PROBLEM_FAULTS[facts.problem.kind], ""
    if facts.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        return Fault.DIES_OF_FORBIDDEN if facts.run.is_forbidden else Fault(str(facts.outcome)), facts.words
    return Fault.FAILS, facts.words


def _fault(blame: str, facts: FailureFacts) -> FaultAndSymptom:
    node = facts.statements.get("wrong-node") or facts.statements.get("formula-rounded")
    if blame == BACKEND and "within-7-bits" in facts.statements:
        return Fault.SATURATES_IN_16_BITS, ""
    if blame == BACKEND and node is not None and facts.rule in ("wrong-node", "rounded-formula"):
        return Fault(node["kernel_fault"]), ""
    if blame == SPEC:
        return Fault.LEFT_OPEN, _question(facts).get("subject", "")
    if facts.rule in BY_PASS:
        # The change of a pass is one fault, whatever elements show it.
        own = _own_fault(facts)
        fault = (Fault.VALUES, "") if own[0] in VALUE_FAULTS else own
        of_family = bool(_OF_ALL_KINDS.search(passes_of(facts)))
        return replace_symptom(fault, facts.family) if of_family else fault
    if facts.rule == SPECIALISED:
        return Fault.SPECIALISED, facts.traced
    if facts.rule == LOSES_ALIAS:
        return Fault.LOSES_CHANGE_IN_PLACE, ""
    if blame == CONVERTER:
        return _converter_fault(facts)
    own = (transform_fault(facts) if blame == TRANSFORM else None) or _own_fault(facts)
    if blame == PYTORCH and own[0] in VALUE_FAULTS:
        return Fault.VALUES, ""
    if blame == BACKEND and facts.problem is None and ort.missing_kernel(facts.words):
        return Fault.NO_KERNEL, ""
    return own


def replace_symptom(fault: FaultAndSymptom, symptom: str) -> FaultAndSymptom:
    """Return the fault with one more detail that distinguishes it."""
    return fault[0], " ".join(filter(None, [fault[1], symptom]))


#: One argument for each axis: a function that ignores one ignores all.
_OF_AXIS = re.compile(r"_[dhw]$")


def _converter_fault(facts: FailureFacts) -> FaultAndSymptom:
    promotion = unpromoted(facts)
    if promotion:
        return promotion, ""
    if facts.message[:1] == (exporter.NO_OP,):
        what = facts.message[1]
        return (Fault.NO_BOOL_AS_NUMBER, "") if what == "bool" else (Fault.NO_SUCH_OVERLOAD, what)
    if makes_complex(facts):
        return Fault.UNDEFINED_DTYPE, ""
    if facts.stage in (Stage.REFERENCE, Stage.CONVERT):
        return _export_fault(facts)
    if facts.rule == "constant-result" and ExportStep.TRACING in facts.entry.steps:
        return Fault.CONSTANT_RESULT, ""
    if takes_for_numbers(facts):
        return Fault.SCALARS_AS_NUMBERS, ""
    if breaks_program(facts):
        return Fault.COMPUTES_IN_ANOTHER_DTYPE, ""
    if facts.rule == "ignored-argument":
        argument = _OF_AXIS.sub("", facts.statements["ignored-argument"]["argument"])
        if argument == "dtype":
            return Fault.COMPUTES_IN_ANOTHER_DTYPE, ""
        return Fault.IGNORES_ARGUMENT, argument
    return _model_fault(facts)


def _export_fault(facts: FailureFacts) -> FaultAndSymptom:
    if exporter.unconverted_operator(facts.words):
        return Fault.NO_CONVERSION, ""
    if "scalar" in facts.call.conditions and exporter.lost_its_way(facts.words):
        return Fault.NO_DIMENSIONS, ""
    return _own_fault(facts)


def _model_fault(facts: FailureFacts) -> FaultAndSymptom:
    """Return the fault of an emitted model, by the checker, a runtime, or its result."""
    if facts.dtypes is not None and not is_lossy(*facts.dtypes):
        return Fault.LARGER_DTYPE, ""
    if facts.stage is Stage.CHECK and exporter.infers_from_wrong_dtype(facts.words):
        return Fault.UNDEFINED_DTYPE, _undefined_node(facts.words)
    narrow = facts.rule == "fewer-bits" or facts.element == elements.NARROW
    if narrow or facts.dtypes is not None or exporter.result_dtypes_differ(facts.words):
        return Fault.COMPUTES_IN_ANOTHER_DTYPE, ""
    if facts.problem is not None:
        return _result_fault(facts)
    return _refusal_fault(facts)


def _result_fault(facts: FailureFacts) -> FaultAndSymptom:
    """Return the fault of the elements or the shape of a result."""
    own = _own_fault(facts)
    of_values = own[0] in VALUE_FAULTS
    if facts.element == elements.DIGITS:
        # A result of float64 that is asked for of others must be computed in it. Where a part of the call has
        # no more digits than float32, that says nothing.
        if "no-float64" in facts.call.conditions:
            return Fault.COMPUTES_IN_ANOTHER_DTYPE, ""
        mixed = "mixed-precision" in facts.call.conditions
        return Fault.VALUES if mixed else Fault.AS_EXACT_AS_FLOAT32, ""
    if facts.rule == "rests-on-open-question" and of_values:
        return Fault.RESTS_ON_OPEN_QUESTION, _question(facts).get("operator", "")
    # A made-up value, or one that should have been an integer, is wrong in all ways.
    if of_values and (facts.rule == "constant-result" or facts.element == elements.THROUGH_INTEGERS):
        return Fault.VALUES, ""
    if facts.element == elements.LOST:
        return Fault.LOSES_NAN, ""
    if facts.element in (elements.LEFT, elements.BEYOND) or facts.kind in (NAN_POSITIONS, OVERFLOW):
        return Fault.LEAVES_RANGE, ""
    return (facts.shape_fault, "") if facts.shape_fault else own


def _refusal_fault(facts: FailureFacts) -> FaultAndSymptom:
    """Return the fault of a model that is rejected, or that a runtime does not load or run."""
    differs = facts.message[2] if facts.message[:1] == (exporter.NODE,) and len(facts.message) > 2 else ""
    how = {"few": Fault.TOO_FEW_DIMENSIONS, "many": Fault.TOO_MANY_DIMENSIONS, exporter.EMPTY: Fault.EMPTIED}
    if differs in how:
        return how[differs], ""
    if differs == exporter.SIZE:
        return Fault.UNFIT_SHAPES, ""
    known = exporter.model_fault(facts.words)
    if known:
        return known, _undefined_node(facts.words) if known is Fault.UNDEFINED_DTYPE else ""
    complaint = ort.complaint(facts.words)
    if ort.is_out_of_bounds(facts.words):
        return Fault.VALUES, ""
    return complaint or _own_fault(facts)


def _undefined_node(words: str) -> str:
    """Return the node that is not defined for a dtype; all reductions count as one."""
    return re.sub("^Reduce.*", "Reduce", exporter.rejected_operator(words).removeprefix("Global"))


def _question(facts: FailureFacts) -> Any:
    """Return the facts of the open question that a failure depends on."""
    statements = facts.statements
    if "open-question" in statements:
        return statements["open-question"]
    if "open-node" in statements:
        return statements["open-node"]["question"]
    return {"operator": "", "subject": statements.get("left-open", {}).get("why", "")}


#: ONNX Runtime's operators that compare integers share how they do.
_COMPARISON = re.compile(r"(?:Reduce)?(?:Max|Min)|Sign|Clip")
#: Its reductions fail in the same way without elements.
_REDUCTION = re.compile(r"Reduce\w+|ArgM(?:ax|in)")
_OF_SEQUENCES = re.compile(r"Sequence|Optional|ConcatFromSequence")
#: Attributes that choose among the algorithms of an ONNX operator.
_MODES = ("mode", "reduction", "approximate")


def _backend(facts: FailureFacts) -> Place:
    if find_converter(facts.converter).makes != ONNX:
        # The artefact has no nodes to name.
        return Place(facts.backend, facts.family)
    if facts.rule in BY_PASS:
        return Place(facts.backend, f"graph optimisation, {passes_of(facts) or facts.family}")
    statements = (facts.statements.get(name) for name in ("wrong-node", "formula-rounded", "refused-node"))
    node = next(filter(None, statements), None)
    operator = _kernel_name(node["node"]) if node else ""
    wrong = facts.statements.get("wrong-node", {}).get("kernel_fault", "")
    inserted = ort.inserted_node(facts.words)
    if inserted:
        # The runtime's own pass has made it, whatever operator the graph has.
        return Place(facts.backend, f"inserted {inserted}")
    missing, named = ort.missing_kernel(facts.words), ort.failing_kernel(facts.words)
    # A runtime may run an operator as others that define it, and blame looks at nodes for sequences together.
    operator = missing or operator
    if not operator or _OF_SEQUENCES.match(operator):
        operator = named or operator
    if not operator and len(facts.run.onnx_operators.split()) == 1:
        # The graph has no other node.
        operator = facts.run.onnx_operators
    if not operator and facts.outcome in (Outcome.CRASH, Outcome.TIMEOUT) and is_onnx_operator(facts.overload):
        # A process that ends tells nothing, but only one node is drawn.
        operator = facts.packet.removeprefix("ai.onnx.")
    if wrong == "wrong-without-elements" and _REDUCTION.match(operator):
        operator = "reductions"
    if wrong == "wrong-integers" and _COMPARISON.fullmatch(operator):
        operator = "comparisons of integers"
    if operator:
        return Place(facts.backend, operator)
    which = "nodes taken together" if facts.rule == "nodes-together" else "unknown node"
    return Place(facts.backend, f"{which} of {facts.family}" if facts.needs_operator else which)


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
    part = facts.raised_by or _PARTS.get(facts.rule, "kernel")
    return Place("PyTorch", f"{part} of {of}", choice=facts.call.choice)


def _spec(facts: FailureFacts) -> Place:
    operator = _question(facts).get("operator", "")
    if operator:
        return Place("ONNX", operator)
    # One sentence may be about many operators, each of which does as it likes.
    return Place("PyTorch", f"documentation of {facts.family}")


def _unknown(facts: FailureFacts) -> Place:
    is_before = facts.converter == GRAPH and facts.stage is Stage.REFERENCE
    if is_before and facts.outcome in (Outcome.CRASH, Outcome.TIMEOUT):
        # Its inference and checker run before any backend.
        return Place("onnx", f"inference and checker of {facts.packet.removeprefix('ai.onnx.')}")
    who = facts.converter if facts.stage in BEFORE_BACKEND else route_label(facts.converter, facts.backend)
    return Place(who, facts.family if facts.needs_operator else "unknown place")


def _converter(facts: FailureFacts) -> Place:
    if facts.rule == SPECIALISED:
        return Place(facts.converter, "tracing")
    if facts.rule == LOSES_ALIAS:
        pair = (facts.decision.facts[name].split(".")[1] for name in ("in_place", "alias"))
        return Place(facts.converter, "capture of {} on {}".format(*pair))
    if facts.rule == "drops-guard":
        return Place(facts.converter, "checks of sizes")
    if facts.rule == "optimiser-breaks-graph":
        return Place(facts.converter, f"optimiser, {passes_of(facts) or facts.family}")
    return replace(converter_place(facts), choice=facts.call.choice)


def _transform(facts: FailureFacts) -> Place:
    known = facts.decision.facts
    name = known.get("transform", "") or known.get("component", "")
    node = facts.statements.get("transformed-node")
    # An optimiser's pass says more than the node at which it shows, and a quantiser stores all weights in one way.
    is_of_node = node is not None and node["change"] in _CHANGES
    where = [node["operator"]] if node is not None and is_of_node else known.get("passes", ())
    return Place("transform", ", ".join((name, *where)))


#: Change of a node that a transform has made wrong → the fault.
_CHANGES = {"overflows": Fault.LEAVES_RANGE, "vanishes": Fault.FLUSHES_SMALL_NUMBERS}


def transform_fault(facts: FailureFacts) -> FaultAndSymptom | None:
    """Return the fault of a node whose numbers a transform stores in another dtype; None if it is not seen."""
    change = facts.run.storage or facts.statements.get("transformed-node", {}).get("change", "")
    if facts.stage is Stage.CHECK and "topologically sorted" in facts.run.message:
        return Fault.UNSORTED, ""
    if change in ("", "values", "shape"):
        return None
    return (_CHANGES[change], "") if change in _CHANGES else (Fault.WRONG_STEPS, change)


_PLACES: dict[str, Callable[[FailureFacts], Place]] = {
    "converter": _converter,
    "transform": _transform,
    "backend": _backend,
    "pytorch": _pytorch,
    "spec": _spec,
}
