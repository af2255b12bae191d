"""Testify whether a wrong result depends on a question that the specification leaves open."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from harness.blame.failure_context import FailureContext, brief_message, change_inputs
from harness.blame.graph_questions import questions
from harness.blame.open_questions import OpenQuestion
from harness.blame.witness import backends_to_ask, witness
from harness.compare.comparison import compare
from harness.compare.diagnosis import Finding, Role, Testimony
from harness.compare.verdict import Outcome
from harness.core.dtypes import Array
from harness.pipeline.case import CaseOracle
from harness.pipeline.stages import emitted_opset
from harness.pipeline.submodel import extract


@witness("the specification", place=100)
def read_specification(context: FailureContext) -> Iterator[Testimony]:
    """Look for open questions in the graph, and remove each to see whether the failure disappears.

    A question counts if a node that the wrong outputs depend on asks it with the values that it gets, and
    the backend gives PyTorch's result once the inputs are changed so that no node asks it.
    """
    if context.failure.outcome is Outcome.UNSUPPORTED:
        return
    model = _towards_wrong_outputs(context)
    opset = emitted_opset(model) or 1
    for question in questions(has_program=context.has_program):
        nodes = [n for n in model.graph.node if n.domain == "" and n.op_type in question.operators]
        nodes = [n for n in nodes if question.is_open(n.op_type, opset)]
        asking = _asking(question, nodes, context, model, context.reference) if nodes else None
        if not asking or not _hangs_on(question, asking, nodes, context, model):
            continue
        facts = {
            **question.facts(asking[0].op_type, opset),
            "backend": context.failure.backend,
            "tried": bool(question.calm or question.repair),
        }
        finding = Finding.SETTLED if question.settled else Finding.OPEN
        if context.has_program and not question.call_asks(context.invocation, context.reference.expected):
            finding = Finding.INVENTED
        elif context.got is None:
            # A runtime may not fail at an open question.
            continue
        yield Testimony(Role.SPECIFICATION, finding, "open-question", facts)
        return


def _towards_wrong_outputs(context: FailureContext) -> onnx.ModelProto:
    if context.got is None:
        return context.model
    wrong = [o.name for o, w in zip(context.model.graph.output, context.wrong, strict=True) if w.any()]
    every = [i.name for i in context.model.graph.input]
    return extract(context.model, every, wrong or [o.name for o in context.model.graph.output])


def _asking(
    question: OpenQuestion,
    nodes: list[onnx.NodeProto],
    context: FailureContext,
    model: onnx.ModelProto,
    reference: CaseOracle,
) -> list[onnx.NodeProto] | None:
    """Return the nodes that ask the question; None if the values that they get cannot be found out."""
    names = list(dict.fromkeys(name for n in nodes for name in (*n.input, *n.output) if name))
    known = _values(names, context, model, reference)
    if known is None:
        return None
    return [
        n
        for n in nodes
        if question.arises(n, [known.get(i) for i in n.input], [known[o] for o in n.output if o in known])
    ]


def _values(
    names: list[str], context: FailureContext, model: onnx.ModelProto, reference: CaseOracle
) -> dict[str, Array] | None:
    """Return the values of the graph called `names`."""
    known: dict[str, Array] = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    known.update(context.feeds(model, reference))
    inside = [name for name in names if name not in known]
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    del probed.graph.output[:]
    probed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in inside)
    if not inside:
        return known
    for name in backends_to_ask():
        answer = context.run_model(context.backend(name), probed, reference)
        if answer.outputs is not None:
            return {**known, **dict(zip(inside, answer.outputs, strict=True))}
    return None


def _hangs_on(
    question: OpenQuestion,
    asking: list[onnx.NodeProto],
    nodes: list[onnx.NodeProto],
    context: FailureContext,
    model: onnx.ModelProto,
) -> bool:
    if question.repair is not None:
        repaired = question.repair(context.model, asking)
        return context.classify(context.run_model(context.accused, repaired))[0] is Finding.RIGHT
    if question.calm is None:
        message = context.failure.result.message + (brief_message(context.plain) if context.plain else "")
        if context.got is None:
            return any(n.op_type in message for n in asking)
        # Values are open, and no shape and no dtype.
        pairs = zip(context.reference.expected, context.got, strict=False)
        return all((expected.shape, expected.dtype) == (got.shape, got.dtype) for expected, got in pairs)
    calmed = change_inputs(context.invocation, question.calm)
    try:
        reference = context.oracle(calmed)
    except Exception:
        # PyTorch does not take the changed inputs: nothing can be learnt from them.
        return False
    if _asking(question, nodes, context, model, reference) != []:
        return False
    answer = context.run_model(context.accused, context.model, reference)
    return answer.outputs is not None and compare(context.judge, reference, answer.outputs).problem is None
