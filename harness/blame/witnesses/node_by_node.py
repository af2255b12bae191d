"""The graph node by node, each judged on the backend's own inputs by its operator's definition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from harness.blame.differences import WrongElements
from harness.blame.failure_context import FailureContext
from harness.blame.graph_questions import questions
from harness.blame.witness import backends_to_ask, witness
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.drawn import draws
from harness.compare.faults import Fault
from harness.compare.judge import Mask
from harness.compare.verdict import Outcome
from harness.core.dtypes import PRECISION, Array
from harness.core.text import one_line
from harness.pipeline.graph_oracle import steps_of_moderate_size
from harness.pipeline.nodes.definition import Definition
from harness.pipeline.nodes.judged_nodes import overflown
from harness.pipeline.nodes.kernel_fault import node_facts, wrong_node
from harness.pipeline.nodes.node_steps import SteppedGraph, split_steps
from harness.pipeline.nodes.preconditions import broken_precondition
from harness.pipeline.nodes.walk import Attempts, Walk, WrongStep, walk
from harness.pipeline.run_graph import run_graph
from harness.pipeline.stages import emitted_opset
from harness.pipeline.submodel import extract
from harness.run.backend import Backend

#: Number of nodes above which a graph is not examined: running each by itself takes long.
_MOST_STEPS = 400
#: The same for an ONNX file, whose nodes are the subject of the run.
_MOST_STEPS_OF_GRAPH = 3000


@witness("the nodes one by one", place=40)
def ask_nodes(context: FailureContext) -> Iterator[Testimony]:
    """Testify if a node departs from its definition, and if that explains the failure."""
    if context.narrows(context.accused):
        return
    if context.failure.outcome is Outcome.MISMATCH and context.got is not None:
        yield from _examine_result(context)
    elif context.failure.outcome is not Outcome.MISMATCH:
        yield from _examine_rejection(context)


def _examine_result(context: FailureContext) -> Iterator[Testimony]:
    names = [value.name for value in context.model.graph.output]
    question = WrongElements.of(context.answer, names, context.comparison)
    if question is None or not question.names or (draws(context.judge) and not question.is_about_form):
        return
    graph = _towards(context, question.names)
    if _is_large(context, graph):
        return
    attempts: Attempts = {}
    found = _walk(context, graph, attempts)
    if not found.ended:
        return
    name = context.failure.backend
    if found.wrong and _helps(question, found):
        fault = _decisive(context, question, graph, found, attempts)
        if not question.is_about_form and any(question.left(found)):
            context.unexplained = question.unexplained(found)
        yield _wrong_node(context, question.among_wrong(fault))
        return
    if found.unjudged or found.failing:
        return
    own = found if not found.wrong else _walk(context, graph, attempts, corrected=False)
    if not any(question.left(own)):
        yield Testimony(Role.NODES, Finding.RIGHT, "nodes-together", {"backend": name})
        return
    strictly = _walk(context, graph, attempts, strict=True)
    if strictly.wrong and not any(question.left(strictly)):
        yield _wrong_node(context, question.among_wrong(strictly.wrong[0]))
        return
    explained = not found.wrong or question.gives_the_same(found)
    if explained and _stay_wrong(context, question, found):
        if _leaves_range(context, question, found):
            yield Testimony(Role.NODES, Finding.INEXACT, "pytorch-leaves-range", {"backend": name})
            return
        if _leaves_range_in_a_sum(context, question, graph):
            yield Testimony(Role.NODES, Finding.INEXACT, "sum-leaves-range", {"backend": name})
            return
        by_form = question.is_about_form and not any(n.op_type in _BY_VALUES for n in graph.model.graph.node)
        finding = Finding.SHAPE_OR_DTYPE if by_form else Finding.SAME
        facts = {"nodes": len(graph.steps), "backend": name}
        yield Testimony(Role.NODES, finding, "nodes-as-defined", facts)


def _is_large(context: FailureContext, graph: SteppedGraph) -> bool:
    return len(graph.steps) > (_MOST_STEPS if context.has_program else _MOST_STEPS_OF_GRAPH)


def _walk(
    context: FailureContext,
    graph: SteppedGraph,
    attempts: Attempts | None = None,
    *,
    corrected: bool = True,
    strict: bool = False,
    only: Collection[int] | None = None,
) -> Walk:
    backend, evaluator = _backends(context)
    feeds = context.feeds(context.model)
    if only is None and not context.has_program:
        only = steps_of_moderate_size(graph, feeds)
    return walk(
        graph,
        feeds,
        backend,
        evaluator,
        corrected=corrected,
        strict=strict,
        only=only,
        attempts=attempts,
    )


def _backends(context: FailureContext) -> tuple[Backend, Backend]:
    """Return the failing backend without optimisations, and the evaluator of definitions."""
    plain = context.unoptimised or context.accused
    # Onnx's evaluator comes first; it is not asked about itself.
    (judge, *_) = (name for name in backends_to_ask() if context.is_independent(name))
    return context.loading_once(plain), context.loading_once(context.backend(judge))


def _wrong_node(context: FailureContext, fault: WrongStep) -> Testimony:
    invalid = broken_precondition(fault.definition)
    node = _node_facts(context, fault.definition)
    if invalid:
        return Testimony(Role.NODES, Finding.INVALID, "invalid-node", {"node": node, **invalid})
    facts = {"backend": context.failure.backend, **wrong_node(fault), "node": node}
    by_values = fault.definition.operator in _BY_VALUES
    question = _open_question(context, fault) if fault.is_of_right_form or by_values else None
    if question:
        return Testimony(Role.NODES, Finding.OPEN, "open-node", {**facts, "question": question})
    if facts["kernel_fault"] in _AT_EXTREMES and not _is_wrong_with(context, fault.definition, _moderate):
        # NaN here and an infinity there are symptoms of one fault.
        facts["kernel_fault"] = Fault.WRONG_AT_EXTREMES
    return Testimony(Role.NODES, Finding.WRONG, "wrong-node", facts)


def _node_facts(context: FailureContext, definition: Definition) -> dict[str, Any]:
    """Return the facts of a node; in a file it has a name that its user knows, and may say where it is from."""
    facts = node_facts(definition)
    if context.has_program:
        return facts
    nodes = [node for node in definition.graph.model.graph.node if node.op_type != "Constant"]
    node = nodes[definition.step.index] if definition.step.index < len(nodes) else onnx.NodeProto()
    notes = {entry.key: entry.value for entry in node.metadata_props}
    known = {"name": node.name, "origin": notes.get("pkg.torch.onnx.fx_node", "")}
    return facts | {key: text for key, text in known.items() if text}


def _helps(question: WrongElements, found: Walk) -> bool:
    """Whether elements in question are right with the definition's results, so that a wrong node explains them.

    These must be most of them if the node is only a little off: it does not explain a graph that stays wrong without
    it. A node that gives another number explains what it mends, and the rest has another cause.
    """
    left, asked = sum(question.left(found)), sum(question.counts)
    gives_others = any(wrong_node(fault)["kernel_fault"] in _OTHER_NUMBERS for fault in found.wrong)
    return left < asked if gives_others and not question.is_about_form else 2 * left < asked


#: Faults of a kernel that gives other numbers. A NaN that a definition puts in its place may be of its own making.
_OTHER_NUMBERS = frozenset(
    {Fault.WRONG_NUMBERS, Fault.WRONG_INTEGERS, Fault.WRONG_TRUTH_VALUES, Fault.WRONG_COMPLEX_NUMBERS}
)


def _stay_wrong(context: FailureContext, question: WrongElements, found: Walk) -> bool:
    """Whether most elements in question are wrong with the definitions' results, too: all, of each output."""
    left, asked = question.left(found), question.counts
    return left == asked or (bool(found.wrong) and 2 * sum(left) > sum(asked))


def _leaves_range(context: FailureContext, question: WrongElements, found: Walk) -> bool:
    """Whether PyTorch overflows on its way, in all elements in question.

    The graph's result must be finite and so large or small that a step more leaves the range, PyTorch's must
    have left it, and where float64, which has room for it, has a result, the graph's must be that.
    """
    if question.is_about_form or any(e.dtype not in (np.float32, np.float64) for e in question.expected):
        return False
    feeds = [a for a in context.reference.feeds if str(a.dtype) in PRECISION]
    outputs = zip(question.indices, question.expected, question.names, question.masks, strict=True)
    for index, e, name, mask in outputs:
        assert mask is not None
        # Of inputs of the result's shape, the elements at the same places are taken for those that count.
        if not all(np.isfinite(a[mask] if a.shape == e.shape else a).all() for a in feeds):
            return False
        final = np.abs(found.values[name][mask])
        left = ~np.isfinite(e[mask]) | (e[mask] == 0)
        limits = np.finfo(e.dtype)
        low, high = limits.tiny * _NEAR_END, limits.max / _NEAR_END
        at_end = np.isfinite(final) & (final != 0) & ((final < low) | (final > high))
        if not (left & at_end).all() or not _is_near_truth(context, index, found.values[name], mask):
            return False
    return True


def _is_near_truth(context: FailureContext, output: int, values: Array, mask: Mask) -> bool:
    """Whether half of the digits are float64's; always true for a float64 result, which float64 cannot check."""
    truth = context.reference.truth[output] if context.reference.truth else None
    if truth is None or values.dtype == np.float64 or truth.shape != values.shape:
        return True
    exact = truth[mask]
    with np.errstate(all="ignore"):
        error = np.abs(values[mask].astype(np.float64) - exact)
    bound = np.abs(exact) * 2.0 ** (-PRECISION[str(values.dtype)] / 2)
    return bool((error <= bound).all())


def _leaves_range_in_a_sum(context: FailureContext, question: WrongElements, graph: SteppedGraph) -> bool:
    """Whether PyTorch's infinities and NaN are caused by another order of summation in one of the nodes."""
    pairs = zip(question.expected, question.masks, strict=True)
    if question.is_about_form or not all(_has_no_number(e[mask]) for e, mask in pairs if mask is not None):
        return False
    if any(_float64_confirms(context, i, m) for i, m in zip(question.indices, question.masks, strict=True)):
        return False
    backend, evaluator = _backends(context)
    feeds = context.feeds(context.model)
    for instead in (np.inf, -np.inf, np.nan):
        altered = partial(overflown, instead=instead)
        other = walk(graph, feeds, backend, evaluator, corrected=False, altered=altered)
        if other.ended and not any(question.left(other)):
            return True
    return False


def _float64_confirms(context: FailureContext, output: int, mask: Mask | None) -> bool:
    """Whether PyTorch's result is that of a dtype of a wider range, too."""
    expected = context.reference.expected[output]
    truth = context.reference.truth[output] if context.reference.truth else None
    if truth is None or mask is None or expected.dtype == np.float64 or truth.shape != expected.shape:
        return False
    return np.array_equal(truth[mask], expected[mask].astype(np.float64), equal_nan=True)


def _has_no_number(values: Array) -> bool:
    return str(values.dtype) in PRECISION and not np.isfinite(values.astype(np.float64)).any()


#: Within this factor of the ends of a dtype's range, a step with a number of everyday size leaves it.
_NEAR_END = 64


def _decisive(
    context: FailureContext, question: WrongElements, graph: SteppedGraph, found: Walk, attempts: Attempts
) -> WrongStep:
    """Return the first of several wrong nodes whose definition by itself makes most elements right."""
    if len(found.wrong) == 1:
        return found.wrong[0]
    left = []
    for fault in found.wrong:
        alone = _walk(context, graph, attempts, only=(fault.definition.step.index,))
        # Behind another wrong node the graph may not run at all.
        left.append(sum(question.left(alone) if alone.ended else question.counts))
    return found.wrong[left.index(min(left))]


#: Faults of a kernel that may show only for infinities, NaN and huge numbers.
_AT_EXTREMES = frozenset({Fault.MAKES_NAN, Fault.MAKES_INFINITIES, Fault.WRONG_NUMBERS})
#: Operators whose results' shapes depend on values.
_BY_VALUES = frozenset({"NonZero", "Unique", "Compress", "NonMaxSuppression", "Range", "If", "Loop"})


def _towards(context: FailureContext, outputs: Sequence[str]) -> SteppedGraph:
    every = [i.name for i in context.model.graph.input]
    return split_steps(extract(context.model, every, outputs))


def _open_question(context: FailureContext, fault: WrongStep) -> dict[str, Any] | None:
    """Return the facts of the open question that the node raises; None if it raises none.

    A node that is wrong with inputs that do not raise the question is wrong anyway, and so is a node whose results no
    reading of the text gives.
    """
    definition = fault.definition
    node, opset = definition.step.node, emitted_opset(definition.graph.model) or 1
    inputs = [definition.inputs.get(n) for n in node.input]
    for question in questions(has_program=context.has_program):
        if node.op_type not in question.operators or question.settled:
            continue
        if not definition.step.is_single or not question.arises(node, inputs, fault.got):
            continue
        if not question.is_open(node.op_type, opset):
            continue
        if question.calm and _is_wrong_with(context, definition, question.calm):
            continue
        outputs = [i for i, wrong in enumerate(fault.wrong) if wrong.any()]
        if question.fits is None or question.fits(definition, fault.got, partial(_rerun, context), outputs):
            return question.facts(node.op_type, opset)
    return None


def _rerun(context: FailureContext, definition: Definition) -> tuple[Array, ...] | None:
    """Run a node in the failing backend with the inputs of a definition; return None if it fails."""
    backend, _ = _backends(context)
    return run_graph(backend, definition.model, definition.fed).outputs


def _moderate(array: Array) -> Array:
    """Return the array with a half in place of NaN, infinities and numbers that an index cannot hold."""
    if str(array.dtype) not in PRECISION:
        return array
    wide = np.abs(array.astype(np.float64))
    return np.where(wide < _HUGE, array, np.array(0.5, array.dtype))


#: Beyond it float32 has no halves, and most kernels' indices no room.
_HUGE = 2.0**24


def _is_wrong_with(context: FailureContext, definition: Definition, calm: Callable[[Array], Array]) -> bool:
    graph, step = definition.graph, definition.step
    inputs = {n: a if n in graph.constants else calm(a) for n, a in definition.inputs.items()}
    backend, evaluator = _backends(context)
    return bool(walk(graph.of(step), inputs, backend, evaluator).wrong)


def _examine_rejection(context: FailureContext) -> Iterator[Testimony]:
    names = [o.name for o in context.model.graph.output]
    graph = _towards(context, names)
    if _is_large(context, graph):
        return
    found = _walk(context, graph, corrected=False)
    name = context.failure.backend
    if found.failing:
        failing = found.failing[0]
        node = _node_facts(context, failing.definition)
        reason = broken_precondition(failing.definition)
        if reason:
            yield Testimony(Role.NODES, Finding.INVALID, "invalid-node", {"node": node, **reason})
        elif failing.definition.is_random or not any(step is failing.definition.step for step, _ in found.unjudged):
            error = one_line(failing.failure.error)[:160]
            facts = {"backend": name, "node": node, "error": error}
            yield Testimony(Role.NODES, Finding.VALID, "refused-node", facts)
            yield from _compare_form(context, names, found)


def _compare_form(context: FailureContext, names: Sequence[str], found: Walk) -> Iterator[Testimony]:
    """Testify if the graph does not ask for PyTorch's shapes, in any runtime."""
    expected = context.reference.expected
    if not found.ended or found.unjudged or len(expected) != len(names):
        return
    for name, array in zip(names, expected, strict=True):
        shape = found.values[name].shape
        if shape != array.shape:
            facts = {"defined": list(shape), "expected": list(array.shape)}
            yield Testimony(Role.NODES, Finding.SHAPE_OR_DTYPE, "defined-shape", facts)
            return
