"""The sentences that people read about a diagnosis. To change the wording of one, change it here.

`RULES` has a sentence for each row of the decision table, `SENTENCES` one for each statement and finding of a
witness; the names in braces are facts of the diagnosis. `FAULTS` describes the fault at a place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from harness.causes.cause import RootCause
from harness.causes.groups import FailureGroup
from harness.compare.diagnosis import CALL_ALONE, COMPOSED, DIVERGENCE, NO_DIVERGENCE, OTHERWISE, Diagnosis, Testimony
from harness.compare.faults import Fault
from harness.compare.problem_kinds import PROBLEMS
from harness.compare.verdict import BACKEND, CONVERTER, PYTORCH, SPEC, TRANSFORM, UNKNOWN, Outcome, Stage
from harness.core.route import EXPORTED, FILE, GRAPH
from harness.present.model_run_text import divergence_sentence, model_run_sentences

#: Row of the decision table → why.
RULES: dict[str, str] = {
    "all-disagree": "PyTorch's kernel and its decomposition disagree, and so do the runtimes.",
    "backends-agree-on-graph": "The graph that {converter} emits is wrong: every backend agrees on its result.",
    "both-are-off": "Both the graph and PyTorch are far from the float64 result.",
    "cannot-convert": "{converter} says that it cannot convert a call that PyTorch accepts: {message}",
    "constant-result": "{converter} computes the result itself and stores it as a constant in the graph.",
    "crashes-when-repeated": "The process crashed when the case was run again.",
    "definitions-differ": "The text of the operator gives another result than its function body and the evaluator.",
    "drops-guard": "{converter} drops a check of sizes that PyTorch's own program makes, and that fails here.",
    "decomposition-fails": "PyTorch's decomposition, which {converter} translates, also fails in PyTorch.",
    "decomposition-gives-it": "PyTorch's decomposition, which {converter} translates, gives {backend}'s result in PyTorch.",
    "departs-from-onnx": "PyTorch's implementation of ONNX's operator departs from ONNX's definition.",
    "does-not-repeat": "The failure does not repeat.",
    "drawn-at-random": "The failure does not repeat: its numbers are drawn at random.",
    "examination-failed": "The failure could not be examined.",
    "fails-on-valid-model": "The model is valid and right; {backend} fails on it.",
    "fails-on-valid-node": "{backend} fails on a valid node.",
    "fails-to-convert": "{converter} fails to convert a call that PyTorch accepts: {message}",
    "fewer-bits": "The graph that {converter} emits computes at lower precision than the call.",
    "forbidden-by-onnx-rules": "{backend} gives a result that ONNX's own rules forbid.",
    "graph-asks-otherwise": "The graph that {converter} emits computes something different.",
    "graph-asks-otherwise-by-spec": "By the specification, the graph that {converter} emits computes something different.",
    "graph-optimisation": "{backend}'s graph optimisation is wrong: the result is right with optimisations off.",
    "harness-failed": "The harness itself failed on this case; nothing else is blamed.",
    "ignored-argument": "The graph that {converter} emits ignores an argument of the call.",
    "invalid-model": "The model that {converter} emits is not valid.",
    "invalid-node": "The graph that {converter} emits has a node that is not valid.",
    "kernel-against-decomposition": "PyTorch's kernel and its own decomposition of the operator disagree.",
    "kernel-against-meta-rules": "PyTorch's kernel contradicts PyTorch's own shape and dtype rules.",
    "left-open": "The specification leaves the result open.",
    "lowered-program-is-right": "The program that {converter} lowers to is right; {backend} computes something different.",
    "lowered-program-is-wrong": "The program that {converter} lowers to computes something different.",
    "model-is-right": "The model is right; {backend} computes it incorrectly.",
    "model-rejected": "The model that {converter} emits is rejected: {message}",
    "no-runtime-is-right": "No runtime gets PyTorch's result from {converter}'s graph.",
    "no-runtime-runs-it": "No runtime can run the graph that {converter} emits.",
    "nodes-together": "{backend} is right node by node, and wrong with the whole graph.",
    "not-examined": "Not examined: the run ended first.",
    "not-implemented": "The model is valid; {backend} does not implement it.",
    "optimiser-breaks-graph": "{converter}'s optimiser breaks the graph, which is right before it.",
    "other-converter-is-right": "{backend} is right with another converter's model, and not with what {converter} makes.",
    "other-converter-too": "{backend} fails in the same way with another converter's model.",
    "others-disagree": "Not examined; similar failures were blamed on: {blames}.",
    "process-ended": "{component} ran at stage {stage} when the process ended: {message}",
    "pytorch-alone": "Two converters agree with each other and disagree with PyTorch; nothing confirms PyTorch's result.",
    "pytorch-contradicts-itself": "PyTorch contradicts itself.",
    "pytorch-is-off": "PyTorch's result is inaccurate: {backend} has the answer that PyTorch gives in float64.",
    "pytorch-leaves-range": "PyTorch leaves the range of its dtype in an intermediate step.",
    "raises-without-values": "PyTorch's own {part} raises for a call that its kernel accepts: {message}",
    "rests-on-open-question": "The graph that {converter} emits depends on what the specification leaves open; the call does not.",
    "rounded-formula": "{backend} is as exact as the operator's own formula, each step rounded once, and less exact than PyTorch.",
    "right-alone": "{backend} computes these nodes correctly alone but not within the batch.",
    "runtimes-disagree": "The runtimes disagree about the model.",
    "specialised-by-tracing": "{converter} fixes {what} of the example in the export.",
    "takes-alias-for-copy": "{converter} takes what {alias} returns for a copy, so that {in_place} changes only one of the two.",
    "transform-breaks-model": "{transform} breaks the model, which is right before it.",
    "cannot-transform": "{transform} says that it cannot transform the model: {message}",
    "transform-fails": "{transform} fails on a valid model: {message}",
    "undecided": "The evidence does not show whether the graph or the backend is wrong.",
    "validity-unknown": "Whether the model is valid is not known.",
    "wrong-by-onnx-rules": "The graph that {converter} emits is wrong by ONNX's own rules.",
    "wrong-node": "{backend} computes a node incorrectly by its operator's definition.",
    "wrong-with-plain-kernels": "What {converter} makes is as wrong with {backend}'s plain kernels.",
}

#: Statement/finding → sentence on a witness's finding.
SENTENCES: dict[str, str] = {
    "alone/right": "Alone, without the rest of its batch, {backend} gives PyTorch's result.",
    "alias-as-copy/same": "PyTorch gives {backend}'s result if what {alias} returns is copied before {in_place} changes it.",
    "backend-without-optimisations/same": "{witness} gives what {backend} gives with graph optimisations off, which is also wrong.",
    "cast-to-float32/same": "At the wrong elements, {backend}'s result is that of a cast to float32, which the graph has.",
    "checker/valid": "The ONNX checker and strict shape inference accept the model.",
    "constant-output/same": "The graph has {output} as a constant.",
    "corner-pixels/contradicts": "PyTorch's documentation of align_corners keeps the values at the corner pixels; {overload} makes {got} of {kept}.",
    "declared-shape/invalid": "The graph declares {input} with the shape {declared}; it has {given}.",
    "decomposition/confirms": "PyTorch's decomposition of the operator agrees with the eager kernel.",
    "decomposition/contradicts": "PyTorch's decomposition of the operator gives {backend}'s result.",
    "decomposition/other": "PyTorch's decomposition of the operator gives {backend}'s result, but {converter} translates the operator itself.",
    "decomposition/refuses": "PyTorch's decomposition of the operator rejects the call: {error}.",
    "defined-shape/shape-or-dtype": "By the definitions of its nodes, the graph's result has the shape {defined}; PyTorch's has {expected}.",
    "drawn-numbers/same": "The graph draws {drawn} numbers for the {elements} elements of {output}, which are independent of each other.",
    "emitting-rule/same": "The rule {rule} makes what is wrong, from {overload}.",
    "emitting-function/same": "{library}'s {function} makes what is wrong, from {overload}.",
    "exporters-program/same": "PyTorch gives its own result for the call's program, and {backend}'s for what {converter} has made of that before it translates it.",
    "exporter-passes/right": "The graph is right until {converter}'s optimiser applies {passes}.",
    "float32-graph/right": "{witness}, which cannot run the model in float64, gives {right_result} for it in float32.",
    "float32-graph/same": "{witness}, which cannot run the model in float64, gives {backend}'s result for it in float32.",
    "formula-rounded/wrong": "{backend} follows the formula of {node}.",
    "float64/confirms": "Error against float64 at the wrong elements: PyTorch's is {pytorch_ulps}, {backend}'s is {backend_ulps}.",
    "float64/contradicts": "Error against float64 at the wrong elements: PyTorch's is {pytorch_ulps}, {backend}'s is {backend_ulps}.",
    "float64/inexact": "Error against float64 at the wrong elements: PyTorch's is {pytorch_ulps}, {backend}'s is {backend_ulps}.",
    "ignored-argument/same": "Without `{argument}`, PyTorch gives {backend}'s result.",
    "inferred-form/right": "By ONNX's own {property} rules, the model gives PyTorch's {property}.",
    "inferred-form/same": "By ONNX's own {property} rules, the model gives {backend}'s {property}.",
    "left-open/open": "{why}",
    "lowered-program/lacks": "PyTorch cannot run what {converter} makes.",
    "lowered-program/other": "PyTorch, on the program that {converter} lowers to, gives a third result.",
    "lowered-program/refuses": "PyTorch does not run the program that {converter} lowers to: {error}",
    "lowered-program/right": "PyTorch, on the program that {converter} lowers to, gives its own result.",
    "lowered-program/same": "PyTorch, on the program that {converter} lowers to, gives {backend}'s result.",
    "meta-kernel/confirms": "PyTorch's shape and dtype rules agree with its kernel.",
    "meta-kernel/contradicts": "PyTorch's own shape and dtype rules give {backend}'s result.",
    "meta-kernel/refuses": "PyTorch's own shape and dtype rules reject the call: {error}.",
    "nodes-as-defined/same": "Evaluating {nodes} exactly per the ONNX specification, on {backend}'s own inputs, does not give {right_result}: the graph itself is wrong.",
    "nodes-as-defined/shape-or-dtype": "Evaluating {nodes} exactly per the ONNX specification, on {backend}'s own inputs, does not give {right_result}: the graph itself is wrong.",
    "nodes-together/right": "Node by node, {backend} gives {right_result}: it goes wrong where it runs nodes together.",
    "one-element/contradicts": "For one element at a time, PyTorch itself gives {backend}'s result.",
    "other-backend/lacks": "{witness} does not implement the model ({detail}).",
    "other-backend/other": "{witness} gives a different wrong result for {same_model} ({detail}).",
    "other-backend/refuses": "{witness} also fails on {same_model} ({detail}).",
    "other-backend/right": "{witness} gives {right_result} for {same_model}.",
    "other-backend/same": "{witness} gives {backend}'s result for {same_model}.",
    "other-conversion/lacks": "{witness} has no conversion for the call.",
    "other-conversion/refuses": "{witness} fails to convert the call ({error}).",
    "other-converter/lacks": "{witness}'s export of the call needs a kernel that {backend} lacks.",
    "other-converter/other": "{witness}'s export of the call gives a different wrong result in {backend}.",
    "other-converter/refuses": "{witness}'s export of the call also fails in {backend}.",
    "other-converter/right": "{witness}'s export of the call is right in {backend}.",
    "other-converter/same": "{witness}'s export of the call gives the same wrong result in {backend}.",
    "own-operator/same": "The call is that of ONNX's {operator}, and the graph has that node.",
    "own-tool/valid": "{converter} made the artefact without complaint.",
    "program/confirms": "For the decomposed program ({operators}), PyTorch gives its own result.",
    "program/contradicts": "PyTorch decomposes {overload} to {operators}, and gives {backend}'s result for that.",
    "program/invalid": "PyTorch decomposes {overload} to {operators}, and its program refuses these sizes: {error}",
    "program/refuses": "PyTorch decomposes {overload} to {operators}, and fails on that itself: {error}.",
    "pytorch-leaves-range/inexact": "Node by node, {backend} is right, and has numbers at the end of the range where PyTorch gets zero, an infinity or NaN from finite numbers.",
    "refused-node/valid": "{backend} does not run {node} by itself, which is valid and has a defined result: {error}.",
    "repeated-call/contradicts": "PyTorch gives a different result when it is called again with the same inputs.",
    "rounded-arguments/same": "The graph has {numbers}: with that, PyTorch gives {backend}'s result.",
    "rounded-reciprocal/same": "The graph has the number {number}, a rounded 1/{divisor}: {backend} gives PyTorch's result with a division by {divisor}.",
    "rounded-constant/same": "The graph has the number {number} in float32's precision: {exact} would give PyTorch's result.",
    "sibling-overload/contradicts": "With the number given as a tensor ({overload}), PyTorch itself gives {backend}'s result.",
    "row-major/contradicts": "For row-major copies of the inputs, PyTorch itself gives {backend}'s result.",
    "runtime-passes/right": "{backend} gives {right_result} without {passes}.",
    "shape-of-updates/invalid": "ONNX {operator}: the updates have the “{quote}”; {node} has updates of the shape {updates} and indices of {indices}.",
    "strict-inference/invalid": "ONNX's strict shape inference rejects the model: {error}.",
    "sum-leaves-range/inexact": "Node by node, {backend} is right, and would give PyTorch's result if a sum, whose order is not specified, left the range on its way.",
    "unoptimised-model/right": "Exported without {converter}'s optimiser, the model is valid and gives PyTorch's result.",
    "unoptimised-export/lacks": "Exported without {converter}'s optimiser, the call needs a kernel that {backend} lacks.",
    "unoptimised-export/other": "Exported without {converter}'s optimiser, the call gives a different wrong result in {backend}.",
    "unoptimised-export/refuses": "Exported without {converter}'s optimiser, the call also fails in {backend}.",
    "unoptimised-export/right": "Exported without {converter}'s optimiser, the call gives PyTorch's result in {backend}.",
    "unoptimised-export/same": "Exported without {converter}'s optimiser, the call gives the same wrong result in {backend}.",
    "witness-died/died": "{witness} crashed while being asked.",
    "witness-raised/raised": "{witness} could not be asked: {error}.",
    "within-7-bits/right": "With its 8-bit weights halved, {backend} is right: this processor adds pairs of products in 16 bits, and reduce_range avoids that they saturate.",
    "without-optimisations/lacks": "With graph optimisations off, {backend} lacks a kernel.",
    "without-optimisations/other": "With graph optimisations off, {backend} gives a different wrong result ({detail}).",
    "without-optimisations/refuses": "With graph optimisations off, {backend} also fails ({detail}).",
    "without-optimisations/right": "With graph optimisations off, {backend} gives {right_result}.",
    "without-optimisations/same": "With graph optimisations off, {backend} gives the same wrong result.",
}  # fmt: skip

#: Fault → description, as a predicate of the place.
FAULTS: dict[str, str] = {
    Fault.AS_EXACT_AS_FLOAT32: "gives results that are only as exact as float32",
    Fault.ASKS_UNFIT: "passes an invalid argument to {symptom}",
    Fault.COMPUTES_IN_ANOTHER_DTYPE: "computes in a different dtype than the call",
    Fault.CONSTANT_RESULT: "stores a result that depends on the inputs as a constant",
    Fault.COUNT: "returns a wrong number of outputs",
    Fault.CRASH: "crashes",
    Fault.DIES_OF_FORBIDDEN: "crashes or hangs on an invalid node",
    Fault.DTYPE: "gives a wrong dtype",
    Fault.EMPTIED: "leaves a result without elements",
    Fault.FAILS: "fails",
    Fault.FLOAT64_IN_FLOAT32: "computes float64 in float32",
    Fault.FLUSHES_SMALL_NUMBERS: "flushes small numbers to zero",
    Fault.IGNORES_ARGUMENT: "ignores {symptom}",
    Fault.INEXACT: "is inexact",
    Fault.INEXACT_FLOAT64: "is inexact in float64",
    Fault.INACCURATE: "is as exact as its formula",
    Fault.INFINITIES: "gives wrong infinities",
    Fault.INTEGER_DIVISION_BY_ZERO: "divides integers by zero",
    Fault.KERNEL_LOSES_NAN: "loses NaN",
    Fault.LARGER_DTYPE: "gives a larger dtype than the call",
    Fault.LEAVES_16_BITS_IN_FLOAT32: "leaves 16-bit results in float32",
    Fault.LEAVES_RANGE: "overflows",
    Fault.LEFT_OPEN: "the specification does not decide: {symptom}",
    Fault.LOSES_CHANGE_IN_PLACE: "loses what a call changes in place",
    Fault.LOSES_INFINITIES: "loses infinities",
    Fault.LOSES_NAN: "loses NaN",
    Fault.LOSES_SIGN_OF_ZERO: "loses the sign of zero",
    Fault.MAKES_INFINITIES: "turns finite numbers into infinities",
    Fault.MAKES_NAN: "turns numbers into NaN",
    Fault.NAN_POSITIONS: "gives NaN at wrong elements",
    Fault.NO_BOOL_AS_NUMBER: "does not accept a bool as a number",
    Fault.NO_CONVERSION: "is missing",
    Fault.NO_DIMENSIONS: "asks for dimensions that do not exist",
    Fault.NO_KERNEL: "has no kernel for these dtypes",
    Fault.NO_SUCH_OVERLOAD: "has no {symptom} for such arguments",
    Fault.NUMBER_OF_RESULTS: "gives a wrong number of results",
    Fault.RESTS_ON_OPEN_QUESTION: "depends on what the specification of {symptom} leaves open",
    Fault.SATURATES_IN_16_BITS: "adds products of 8 bits in 16 bits, which saturate on this processor (reduce_range avoids it)",
    Fault.SCALARS_AS_NUMBERS: "treats 0-d tensors as numbers",
    Fault.SHAPE: "gives a wrong shape",
    Fault.SIGN_OF_ZERO: "gives zeros of the wrong sign",
    Fault.SPECIALISED: "fixes {symptom} of the example in the export",
    Fault.TIMEOUT: "does not return in time",
    Fault.TOO_FEW_DIMENSIONS: "gives too few dimensions",
    Fault.TOO_MANY_DIMENSIONS: "gives too many dimensions",
    Fault.UNDEFINED_DTYPE: "gives nodes dtypes that they are not defined for ({symptom})",
    Fault.UNFIT_INPUTS: "passes invalid inputs to {symptom}",
    Fault.UNFIT_SHAPES: "makes incompatible shapes",
    Fault.UNKNOWN_ALIAS: "does not know operators by their other names",
    Fault.UNSORTED: "does not sort the nodes",
    Fault.VALUES: "gives wrong values",
    Fault.WRONG_AT_EXTREMES: "gives wrong results for infinities, NaN and huge numbers",
    Fault.WRONG_COMPLEX_NUMBERS: "gives wrong complex numbers",
    Fault.WRONG_DTYPE: "gives a wrong dtype",
    Fault.WRONG_INTEGERS: "gives wrong integers",
    Fault.WRONG_LIST_LENGTH: "gives lists of a wrong length",
    Fault.WRONG_NUMBERS: "gives wrong numbers",
    Fault.WRONG_SHAPE: "gives a wrong shape",
    Fault.WRONG_STEPS: "stores numbers in wrong steps ({symptom})",
    Fault.WRONG_TRUTH_VALUES: "gives wrong truth values",
    Fault.WRONG_WITHOUT_ELEMENTS: "goes wrong with tensors without elements",
}


def evidence(diagnosis: Diagnosis) -> str:
    """Return the evidence for a blame: the sentence of the rule, and one for each testimony."""
    parts = [
        _program_sentence(diagnosis.facts),
        *_divergence(diagnosis.facts),
        rule_sentence(diagnosis),
        *dict.fromkeys(sentence(t, is_of_file=_is_exported(diagnosis)) for t in diagnosis.testimony),
    ]
    text = " ".join(filter(None, parts))
    return f"Same cause as case {diagnosis.inherited_from}: {text}" if diagnosis.inherited_from else text


def _divergence(facts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the place where a model's wrong result begins, or the reason why it is unknown."""
    if DIVERGENCE in facts:
        yield divergence_sentence(facts[DIVERGENCE])
    if NO_DIVERGENCE in facts:
        yield f"No first divergence: {facts[NO_DIVERGENCE]}."


def _program_sentence(facts: Mapping[str, Any]) -> str:
    """Say whether a program fails by one of its calls; "" for a single call."""
    if CALL_ALONE in facts:
        return f"The program's call of {facts[CALL_ALONE]} fails by itself."
    if COMPOSED not in facts:
        return ""
    if not facts.get(OTHERWISE):
        return f"Each of the program's {facts[COMPOSED]} calls passes by itself."
    return (
        f"None of the program's {facts[COMPOSED]} calls fails by itself as the program does; "
        f"{facts[OTHERWISE]} of them fail otherwise, or cannot be run by themselves."
    )


def evidence_of_row(row: Mapping[str, Any]) -> str:
    """Return the evidence of a row of the record; a record of an earlier version has it in words."""
    diagnosis, model_run = Diagnosis.from_row(row), row.get("model_run", "")
    if diagnosis is None and not model_run:
        return str(row["evidence"])
    return " ".join([*([evidence(diagnosis)] if diagnosis is not None else []), *model_run_sentences(model_run)])


def rule_sentence(diagnosis: Diagnosis) -> str:
    """Return the sentence of the rule that decided."""
    facts = {"converter": "the converter", "backend": "the backend", "message": "", **diagnosis.facts}
    if diagnosis.rule == "process-ended" and not facts["component"]:
        facts["component"] = "The comparison, with PyTorch in float64,"
    facts["blames"] = ", ".join(facts.get("blames", ()))
    rules = {**RULES, **_RULES_OF_GRAPHS} if diagnosis.facts.get("converter") in (FILE, GRAPH) else RULES
    return rules[diagnosis.rule].format(**facts) if diagnosis.rule else ""


def _is_exported(diagnosis: Diagnosis) -> bool:
    return diagnosis.facts.get("converter") in EXPORTED


def sentence(testimony: Testimony, *, is_of_file: bool = False) -> str:
    """Describe a witness's finding; `is_of_file` says that no PyTorch program takes part."""
    right_result = "the right result" if is_of_file else "PyTorch's result"
    if testimony.statement in _OWN:
        return _OWN[testimony.statement]({**testimony.facts, "right_result": right_result})
    facts = {name: _shown(name, value) for name, value in testimony.facts.items()}
    facts["right_result"] = right_result
    same = "the same model and finite inputs" if testimony.facts.get("finite_inputs") else "the same model"
    words = SENTENCES.get(f"{testimony.statement}/{testimony.finding}")
    # A witness of one's own may bring its sentence along.
    return words.format(**{"same_model": same, **facts}) if words else testimony.statement


#: Sentences that are different if nothing has converted the graph.
_RULES_OF_GRAPHS = {
    "graph-asks-otherwise": "The graph computes something different from what its nodes give one by one.",
    "invalid-model": "The graph is not a valid ONNX model.",
    "invalid-node": "The graph has a node that is not valid.",
    "no-runtime-runs-it": "No runtime can run the graph.",
    "rests-on-open-question": "The graph depends on what the specification leaves open.",
}

#: Operators of a program that are named.
_NAMED = 6


def _shown(name: str, value: Any) -> str:
    """Return a fact in words."""
    if name == "operators":
        more = ", …" if len(value) > _NAMED else ""
        return ", ".join(value[:_NAMED]) + more
    if name == "passes":
        return f"its pass {value[0]}" if len(value) == 1 else f"its passes {', '.join(value)}"
    if name.endswith("_ulps"):
        return "infinite or NaN" if value is None else f"{value:.3g} ULP"
    if name == "numbers":
        return ", ".join(f"{before!r} as float32, {after!r}" for before, after in value)
    if name == "nodes":
        return {0: "the graph, which has no node that computes the result,", 1: "its only node"}.get(
            value, f"each of its {value} nodes"
        )
    if name == "node" and isinstance(value, Mapping):
        return node_text(value)
    if name == "exact":
        return f"{value:.10g}"
    if name in ("declared", "updates", "indices"):
        return f"[{', '.join('?' if size is None else str(size) for size in value)}]"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def node_text(node: Mapping[str, Any]) -> str:
    """Return ``Clip (node 3; float32, float32; min=0)``; for a file, with the node's name and its call."""
    attributes = ", ".join(f"{name}={value}" for name, value in node["attributes"].items())
    parts = (f"node {node['index']}", ", ".join(node["dtypes"]), attributes)
    name = f" {node['name']!r}" if node.get("name") else ""
    origin = f", from {node['origin']}" if node.get("origin") else ""
    return f"{node['operator']} ({'; '.join(filter(None, parts))}){name}{origin}"


def _question(facts: Mapping[str, Any]) -> str:
    if facts["quote"]:
        return f"ONNX {facts['operator']}: “{facts['quote']}”."
    return (
        f"The specification of ONNX {facts['operator']} (opset {facts['opset']}) does not mention {facts['subject']}."
    )


def _open_question(facts: Mapping[str, Any]) -> str:
    without = f"; without that, {facts['backend']} gives PyTorch's result" if facts["tried"] else ""
    return f"{_question(facts)} The graph asks {facts['operator']} for {facts['subject']}{without}."


def _before_transform(facts: Mapping[str, Any]) -> str:
    if facts["stage"] == Stage.CHECK:
        return f"Before {facts['transform']}, the ONNX checker accepts the model."
    result = facts["right_result"] if facts["is_right"] else "another result"
    return f"Before {facts['transform']}, {facts['backend']} gives {result} for the model."


#: Change of a transformed node → sentence.
_CHANGES = {
    "axis": "The scales of {operator} {value} are along another axis than its weights.",
    "overflows": "{operator} {value} leaves the range of its dtype: its largest result is {largest:.6g} in float32.",
    "packing": "The weights of {operator} {value} have the two halves of each byte in the wrong order.",
    "scale": "{operator} {value} has another scale than what quantises its input.",
    "shape": "{operator} {value} has another shape than before.",
    "transposed": "The weights of {operator} {value} are transposed.",
    "values": "{operator} {value} is the first value that differs from that before by more than roundings.",
    "vanishes": "Results of {operator} {value} vanish in its dtype, and a later node leaves the range because of that.",
    "weight": "The weights of {operator} {value} are off by up to {steps:.3g} steps.",
    "zero-point": "The zero point of {operator} {value} is off.",
}


def _transformed_node(facts: Mapping[str, Any]) -> str:
    return _CHANGES[facts["change"]].format(**facts)


def _wrong_node(facts: Mapping[str, Any]) -> str:
    taken, node = ", ".join(facts["inputs"]), node_text(facts["node"])
    if "right" not in facts:
        return f"{facts['backend']} computes {node} incorrectly: for {taken}, it gives a different number of results than its definition."
    where = f" at [{','.join(map(str, facts['place']))}]" if facts.get("place") else ""
    result = f"for {taken}, its definition gives {facts['right']}{where}, {facts['backend']} gives {facts['got']}"
    return f"{facts['backend']} computes {node} incorrectly: {result}. With the definition's result instead, the graph gives {facts['right_result']}."


def _open_node(facts: Mapping[str, Any]) -> str:
    right, got = facts.get("right", "another number of results"), facts.get("got", "")
    result = f"for {', '.join(facts['inputs'])}, its definition gives {right}, {facts['backend']} gives {got}"
    return f"{_question(facts['question'])} {node_text(facts['node'])}: {result}."


def _invalid_node(facts: Mapping[str, Any]) -> str:
    return f"{node_text(facts['node'])} is not valid by ONNX's own rules: {invalid_text(facts)}."


def invalid_text(facts: Mapping[str, Any]) -> str:
    """Why ONNX's own rules reject a node."""
    if "error" in facts:
        return str(facts["error"])
    what = f"values {facts['values']}" if "values" in facts else f"shape {facts['shape']}"
    return f"its input {facts['input']} has the {what}, and ONNX's text says “{facts['quote']}”"


_OWN: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "before-transform": _before_transform,
    "transformed-node": _transformed_node,
    "open-question": _open_question,
    "wrong-node": _wrong_node,
    "open-node": _open_node,
    "invalid-node": _invalid_node,
}


def place_text(cause: RootCause, file: str = "") -> str:
    """Describe a defect's place: ``torchlib: aten_clamp in onnxscript/function_libs/torch_lib/ops/core.py``."""
    choice = f" ({cause.choice})" if cause.choice else ""
    # The fault says that it is missing.
    name = cause.place.removeprefix("no ") if cause.fault == "no-conversion" else cause.place
    place = f"{cause.component}: {name}" if name else cause.component
    return f"{place}{choice}" + (f" in {file}" if file else "")


def fault_text(cause: RootCause) -> str:
    """Describe the fault as a predicate: ``ignores `alpha```; the signature for an earlier record."""
    if not cause.fault:
        return cause.symptom
    argument = f"`{cause.symptom}`" if cause.fault == "ignores-argument" else cause.symptom
    text = FAULTS[cause.fault].format(symptom=argument).replace(" ()", "")
    return f"{text}: {cause.symptom}" if cause.fault == "fails" and cause.symptom else text


#: Faults that say no more than that a result is wrong, or how the case ended.
_PLAIN_FAULTS = frozenset(
    {
        *(
            Fault.VALUES,
            Fault.SHAPE,
            Fault.DTYPE,
            Fault.COUNT,
            Fault.INFINITIES,
            Fault.NAN_POSITIONS,
            Fault.SIGN_OF_ZERO,
            Fault.NUMBER_OF_RESULTS,
        ),
        *("wrong-numbers", "wrong-shape", "wrong-dtype", "wrong-integers", "fails", "crash", "timeout", "left-open"),
        *("no-kernel", "no-conversion"),
    }
)


def fault_in_title(cause: RootCause) -> str:
    """Return `fault_text` if it says more than that a result is wrong; else ""."""
    return "" if not cause.fault or cause.fault in _PLAIN_FAULTS else fault_text(cause)


def group_place(group: FailureGroup) -> str:
    """Describe the place of a group's defect."""
    return place_text(group.cause, group.file)


def group_evidence(group: FailureGroup) -> str:
    """Describe the evidence for the blame of a group's smallest case."""
    row = {
        **{name: getattr(group.cause, name) for name in ("blame", "component", "place", "fault")},
        **{name: getattr(group, name) for name in ("detail", "diagnosis", "evidence")},
    }
    return evidence_of_row(row)


def group_data(group: FailureGroup) -> dict[str, Any]:
    """Return a group as JSON: its own data, and in words the place and the fault of the defect."""
    return {**group.to_data(), "where": group_place(group), "wrong": fault_text(group.cause)}


#: Symptoms that are the same for every defect ("values", "killed by SIGSEGV"): only the place tells.
SPEECHLESS = frozenset({Outcome.MISMATCH, Outcome.CRASH, Outcome.TIMEOUT})


def stable_ids() -> dict[str, dict[str, str]]:
    """Return the ids of the record by kind, each with a sentence, which may have placeholders."""
    return {
        "outcomes": {str(outcome): ("failure" if outcome.is_failure else "") for outcome in Outcome},
        "stages": {str(stage): "" for stage in Stage},
        "blames": dict.fromkeys((CONVERTER, TRANSFORM, BACKEND, PYTORCH, SPEC, UNKNOWN), ""),
        "rules": dict(sorted(RULES.items())),
        "faults": dict(sorted((str(fault), FAULTS.get(fault, "")) for fault in Fault)),
        "problems": dict.fromkeys(PROBLEMS, ""),
    }
