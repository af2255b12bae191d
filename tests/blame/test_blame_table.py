"""The decision table, and that what is quoted from the ONNX specification stands there."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from failure_contexts import words_of

from harness.blame.decide import decide, decide_directly
from harness.blame.graph_questions import GRAPH_QUESTIONS
from harness.blame.open_questions import OPEN_QUESTIONS, OpenQuestion
from harness.compare.diagnosis import Finding, Role, Testimony as Said
from harness.compare.verdict import Outcome, Stage
from harness.core.route import Route
from harness.pipeline.case_run import CaseRun
from harness.pipeline.nodes.preconditions import VALUE_LIMITS, operator_text

F, R = Finding, Role
SAME = (R.RUNTIME, F.SAME)
RIGHT = (R.RUNTIME, F.RIGHT)
OTHER = (R.RUNTIME, F.OTHER)

MISMATCHES: list[tuple[str, list[tuple[Role, Finding]]]] = [
    ("unknown", []),
    # The same nodes give another result next to others.
    ("backend", [(R.ALONE, F.RIGHT)]),
    ("pytorch", [(R.ALONE, F.RIGHT), (R.PYTORCH, F.CONTRADICTS)]),
    ("pytorch", [SAME, (R.PYTORCH, F.CONTRADICTS), (R.SPECIFICATION, F.OPEN)]),
    ("pytorch", [SAME, (R.META, F.CONTRADICTS)]),
    ("spec", [SAME, (R.SPECIFICATION, F.OPEN)]),
    # A runtime that contradicts itself is never excused.
    ("backend", [RIGHT, (R.PLAIN, F.RIGHT), (R.SPECIFICATION, F.OPEN)]),
    ("backend", [(R.PLAIN, F.RIGHT), (R.NODES, F.OPEN)]),
    ("converter", [RIGHT, (R.SPECIFICATION, F.SETTLED)]),
    ("converter", [RIGHT, (R.SPECIFICATION, F.SETTLED), (R.PYTORCH, F.CONTRADICTS)]),
    ("converter", [RIGHT, (R.SPECIFICATION, F.INVENTED)]),
    ("backend", [(R.PLAIN, F.RIGHT)]),
    ("backend", [OTHER, (R.PLAIN, F.RIGHT)]),
    ("backend", [RIGHT, (R.PLAIN, F.RIGHT), (R.MODEL, F.VALID)]),
    ("converter", [RIGHT, (R.MODEL, F.INVALID)]),
    ("backend", [RIGHT, (R.PLAIN, F.SAME), (R.MODEL, F.VALID)]),
    ("converter", [(R.MODEL, F.SAME), (R.RUNTIME, F.LACKS)]),
    ("converter", [RIGHT, OTHER, (R.MODEL, F.SAME)]),
    ("converter", [(R.MODEL, F.SAME), (R.UNOPTIMISED, F.RIGHT)]),
    # Another failure without an optimiser clears it of nothing, if one of its changes makes this one.
    ("converter", [RIGHT, (R.UNOPTIMISED, F.OTHER), (R.PASS, F.RIGHT)]),
    ("backend", [RIGHT, (R.UNOPTIMISED, F.OTHER)]),
    ("backend", [OTHER, (R.UNOPTIMISED, F.OTHER), (R.PLAIN, F.OTHER), (R.PASS, F.RIGHT), (R.NODES, F.RIGHT)]),
    ("pytorch", [(R.MODEL, F.SAME), (R.META, F.CONTRADICTS)]),
    ("pytorch", [(R.MODEL, F.SAME), (R.DECOMPOSITION, F.CONTRADICTS)]),
    ("backend", [OTHER, (R.MODEL, F.RIGHT)]),
    ("backend", [SAME, (R.MODEL, F.RIGHT)]),
    ("backend", [RIGHT, OTHER]),
    ("unknown", [RIGHT, SAME]),
    ("unknown", [RIGHT, (R.DECOMPOSITION, F.CONTRADICTS)]),
    ("converter", [(R.IGNORED, F.SAME)]),
    ("backend", [(R.IGNORED, F.SAME), RIGHT]),
    ("pytorch", [(R.IGNORED, F.SAME), SAME, (R.DECOMPOSITION, F.CONTRADICTS)]),
    ("converter", [(R.CONSTANT, F.SAME), SAME, (R.FLOAT64, F.INEXACT)]),
    ("pytorch", [(R.CONSTANT, F.SAME), SAME, (R.DECOMPOSITION, F.CONTRADICTS)]),
    ("converter", [(R.NARROWED, F.SAME)]),
    ("converter", [SAME, (R.NARROWED, F.SAME), (R.CONVERTER, F.SAME)]),
    ("backend", [RIGHT, (R.NARROWED, F.SAME)]),
    ("pytorch", [SAME, (R.NARROWED, F.SAME), (R.DECOMPOSITION, F.CONTRADICTS)]),
    ("converter", [SAME]),
    ("converter", [SAME, (R.PLAIN, F.SAME), (R.FLOAT64, F.CONFIRMS), (R.CONVERTER, F.SAME)]),
    ("converter", [SAME, (R.UNOPTIMISED, F.RIGHT), (R.CONVERTER, F.RIGHT)]),
    ("unknown", [SAME, (R.CONVERTER, F.SAME)]),
    ("converter", [SAME, (R.CONVERTER, F.SAME), (R.DECOMPOSITION, F.CONFIRMS)]),
    ("pytorch", [SAME, (R.DECOMPOSITION, F.CONTRADICTS)]),
    ("pytorch", [SAME, (R.FLOAT64, F.CONTRADICTS)]),
    ("unknown", [SAME, (R.FLOAT64, F.INEXACT)]),
    ("converter", [(R.NODES, F.SAME), SAME, (R.FLOAT64, F.INEXACT)]),
    ("unknown", [SAME, OTHER, (R.FLOAT64, F.CONFIRMS)]),
    ("converter", [SAME, OTHER, (R.CONVERTER, F.RIGHT)]),
    ("unknown", [OTHER, (R.PLAIN, F.SAME)]),
    ("converter", [OTHER, (R.PLAIN, F.SAME), (R.CONVERTER, F.RIGHT)]),
    ("unknown", [(R.RUNTIME, F.DIED), (R.PLAIN, F.SAME), (R.CONVERTER, F.RIGHT)]),
    ("unknown", [(R.RUNTIME, F.LACKS), (R.PLAIN, F.SAME)]),
    # What a node does beats what others say of the whole.
    ("backend", [SAME, (R.NODES, F.WRONG), (R.PYTORCH, F.CONTRADICTS)]),
    ("backend", [(R.NODES, F.WRONG), (R.SPECIFICATION, F.OPEN)]),
    ("converter", [(R.NODES, F.WRONG), (R.SPECIFICATION, F.INVENTED)]),
    ("backend", [SAME, (R.NODES, F.RIGHT)]),
    ("pytorch", [SAME, (R.NODES, F.INEXACT)]),
    ("spec", [RIGHT, (R.NODES, F.OPEN)]),
    ("spec", [(R.NODES, F.SAME), (R.SPECIFICATION, F.OPEN)]),
    ("converter", [(R.NODES, F.SHAPE_OR_DTYPE), (R.SPECIFICATION, F.OPEN)]),
    ("pytorch", [(R.NODES, F.SHAPE_OR_DTYPE), (R.META, F.CONTRADICTS)]),
    ("converter", [RIGHT, (R.NODES, F.SAME)]),
    ("converter", [SAME, (R.NODES, F.SAME), (R.CONVERTER, F.SAME)]),
    ("pytorch", [(R.NODES, F.SAME), (R.PROGRAM, F.CONTRADICTS)]),
    ("converter", [(R.NODES, F.SAME), (R.FLOAT64, F.INEXACT), (R.UNOPTIMISED, F.RIGHT), (R.PASS, F.RIGHT)]),
    ("pytorch", [(R.NODES, F.SAME), (R.DECOMPOSITION, F.CONTRADICTS)]),
    ("converter", [(R.NODES, F.SAME), (R.DECOMPOSITION, F.OTHER)]),
    ("pytorch", [(R.RUNTIME, F.REFUSES), (R.PROGRAM, F.REFUSES)]),
    ("backend", [RIGHT, (R.PROGRAM, F.REFUSES)]),
    ("pytorch", [OTHER, SAME, (R.PROGRAM, F.CONTRADICTS)]),
    ("backend", [RIGHT, (R.PROGRAM, F.CONTRADICTS)]),
    ("converter", [(R.NODES, F.SAME), (R.UNOPTIMISED, F.RIGHT)]),
    ("pytorch", [(R.NODES, F.SAME), (R.FLOAT64, F.CONTRADICTS)]),
]
REFUSALS: list[tuple[str, Outcome, list[tuple[Role, Finding]]]] = [
    ("unknown", Outcome.ERROR, []),
    ("converter", Outcome.ERROR, [RIGHT, (R.MODEL, F.INVALID)]),
    ("converter", Outcome.ERROR, [RIGHT, (R.MODEL, F.VALID), (R.SPECIFICATION, F.INVENTED)]),
    ("backend", Outcome.ERROR, [(R.PLAIN, F.RIGHT), (R.MODEL, F.VALID)]),
    ("backend", Outcome.ERROR, [RIGHT, (R.MODEL, F.VALID)]),
    ("unknown", Outcome.ERROR, [RIGHT]),
    ("converter", Outcome.ERROR, [(R.RUNTIME, F.REFUSES), (R.MODEL, F.VALID)]),
    ("unknown", Outcome.ERROR, [(R.RUNTIME, F.LACKS), (R.MODEL, F.VALID)]),
    ("unknown", Outcome.ERROR, [OTHER, (R.MODEL, F.VALID)]),
    ("unknown", Outcome.ERROR, [OTHER, (R.RUNTIME, F.REFUSES), (R.MODEL, F.VALID)]),
    ("converter", Outcome.ERROR, [OTHER, (R.MODEL, F.VALID), (R.CONVERTER, F.RIGHT)]),
    ("unknown", Outcome.ERROR, [(R.RUNTIME, F.DIED), (R.MODEL, F.VALID)]),
    ("backend", Outcome.ERROR, [(R.RUNTIME, F.REFUSES), (R.NODES, F.VALID), (R.MODEL, F.VALID)]),
    ("pytorch", Outcome.ERROR, [(R.RUNTIME, F.REFUSES), (R.PROGRAM, F.REFUSES), (R.MODEL, F.VALID)]),
    ("backend", Outcome.ERROR, [RIGHT, (R.PROGRAM, F.REFUSES), (R.MODEL, F.VALID)]),
    ("converter", Outcome.ERROR, [RIGHT, (R.NODES, F.INVALID), (R.MODEL, F.VALID)]),
    ("backend", Outcome.UNSUPPORTED, [(R.MODEL, F.VALID)]),
    ("converter", Outcome.UNSUPPORTED, [(R.MODEL, F.INVALID)]),
    ("unknown", Outcome.UNSUPPORTED, []),
]


def ended(stage: Stage, outcome: Outcome, message: str = "") -> CaseRun:
    return CaseRun(case=(0, 0), backend="ort-cpu", stage=stage, outcome=outcome, message=message)


def heard(said: list[tuple[Role, Finding]]) -> list[Said]:
    return [Said(role, finding, f"{role} says {finding}.") for role, finding in said]


@pytest.mark.parametrize(("blame", "said"), MISMATCHES)
def test_the_table_decides_about_wrong_results(blame: str, said: list[tuple[Role, Finding]]) -> None:
    for order in (said, said[::-1]):
        decision = decide(Outcome.MISMATCH, heard(order))
        assert decision.blame == blame
        # Everybody is heard.
        assert {(t.role, t.finding) for t in decision.testimony} == set(said)


@pytest.mark.parametrize(("blame", "outcome", "said"), REFUSALS)
def test_the_table_decides_about_models_that_do_not_run(
    blame: str, outcome: Outcome, said: list[tuple[Role, Finding]]
) -> None:
    assert decide(outcome, heard(said)).blame == blame


def test_agreement_of_a_backend_with_the_same_engine_says_nothing() -> None:
    related = Said(Role.RUNTIME, Finding.SAME, "ort-cpu agrees.", independent=False)
    assert decide(Outcome.MISMATCH, [related]).blame == "unknown"


def test_a_refusal_of_a_call_that_is_the_node_is_the_runtimes() -> None:
    heard = [
        Said(Role.OPERATOR, Finding.SAME, "own-operator", {"operator": "Attention"}),
        Said(Role.RUNTIME, Finding.REFUSES, "other-backend", {"witness": "openvino"}),
        Said(Role.MODEL, Finding.VALID, "checker"),
    ]
    assert decide(Outcome.ERROR, heard).blame == "backend"


def test_a_wrong_result_of_an_invalid_node_is_the_converters() -> None:
    said = [Said(Role.NODES, Finding.INVALID, "invalid-node"), Said(Role.RUNTIME, Finding.RIGHT, "model")]
    assert decide(Outcome.MISMATCH, said).rule == "invalid-node"


def test_two_independent_agreements_outvote_a_definition() -> None:
    wrong = Said(Role.NODES, Finding.WRONG, "wrong-node")
    same = Said(Role.RUNTIME, Finding.SAME, "other-backend", independent=True)
    defined = Said(Role.DECOMPOSITION, Finding.CONTRADICTS, "decomposition")
    for said, blame in (([wrong, same], "backend"), ([wrong, defined], "backend"), ([wrong, same, defined], "pytorch")):
        assert decide(Outcome.MISMATCH, said).blame == blame


@pytest.mark.parametrize(
    ("stage", "outcome", "blame"),
    [
        (Stage.CONVERT, Outcome.UNSUPPORTED, "converter"),
        (Stage.CONVERT, Outcome.ERROR, "converter"),
        (Stage.CHECK, Outcome.ERROR, "converter"),
        (Stage.REFERENCE, Outcome.CRASH, "pytorch"),
        (Stage.CONVERT, Outcome.TIMEOUT, "converter"),
        (Stage.LOAD, Outcome.CRASH, "backend"),
        (Stage.RUN, Outcome.TIMEOUT, "backend"),
        (Stage.COMPARE, Outcome.CRASH, "unknown"),
    ],
)
def test_some_outcomes_are_decided_without_witnesses(stage: Stage, outcome: Outcome, blame: str) -> None:
    decision = decide_directly(ended(stage, outcome, "the first line\nthe second"), Route(converter="dynamo"))
    assert decision is not None
    assert decision.blame == blame
    assert "the first line" in words_of(decision)
    assert "second" not in words_of(decision)


def test_other_outcomes_need_witnesses() -> None:
    for stage, outcome in ((Stage.COMPARE, Outcome.MISMATCH), (Stage.RUN, Outcome.ERROR)):
        assert decide_directly(ended(stage, outcome), Route(converter="dynamo")) is None


# The specification

EMITTED = 20
"""An opset that the exporters emit."""

ENTRIES = [
    (question, operator) for question in (*GRAPH_QUESTIONS, *OPEN_QUESTIONS) for operator in sorted(question.operators)
]


def first_version(operator: str) -> int:
    """Return the first opset that has an operator."""
    return min(
        s.since_version for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == ("", operator)
    )


def texts(operator: str, opset: int) -> list[str]:
    """Return the texts that ONNX has on an operator, part by part."""
    schema = onnx.defs.get_schema(operator, opset)
    parts: list[Any] = [*schema.attributes.values(), *schema.inputs, *schema.outputs]
    return [" ".join(text.split()) for text in (schema.doc, *(part.description for part in parts))]


@pytest.mark.parametrize(("question", "operator"), ENTRIES, ids=[f"{operator}: {q.subject}" for q, operator in ENTRIES])
def test_an_open_question_is_open_in_the_text_that_is_quoted(question: OpenQuestion, operator: str) -> None:
    assert bool(question.quote) != bool(question.silent_on)
    opset = max(EMITTED, first_version(operator))
    assert question.is_open(operator, opset)
    if question.quote:
        assert any(" ".join(question.quote.split()) in text for text in texts(operator, opset))
    else:
        for word in question.silent_on:
            assert not any(word in text.lower() for text in texts(operator, opset))


@pytest.mark.parametrize("opset", [18, 20, 23])
@pytest.mark.parametrize("operator", VALUE_LIMITS)
def test_a_limit_is_in_the_text_of_its_operator(operator: str, opset: int) -> None:
    schema = onnx.defs.get_schema(operator, opset)
    assert VALUE_LIMITS[operator].quote in operator_text(schema)
    assert VALUE_LIMITS[operator].place < len(schema.inputs)


@pytest.mark.skipif(onnx.defs.onnx_opset_version() < 28, reason="ONNX 1.23 settled it, at opset 28")
def test_a_question_that_a_later_version_settles_is_open_no_more() -> None:
    (shifts,) = [q for q in OPEN_QUESTIONS if "BitShift" in q.operators]
    assert any("number of bits" in text for text in texts("BitShift", 28))
    assert not shifts.is_open("BitShift", 28)
    assert shifts.is_open("BitShift", 18)
