"""Failures for witnesses to look into, in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import onnx
from onnx import helper, numpy_helper, parser

from harness.blame.examine import examine
from harness.blame.failure_context import FailureContext
from harness.blame.testimony import Failure
from harness.compare.diagnosis import Diagnosis, Testimony
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter, find_converter
from harness.core.case_group import CaseGroup
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.generate.case_library import load_cases
from harness.pipeline.case_run import CaseRun
from harness.pipeline.program import CallStructure, export_alone
from harness.pipeline.reference import run_reference
from harness.pipeline.task import Settings
from harness.present.evidence import evidence
from harness.run.backend import BACKENDS, Backend


@cache
def converter_called(name: str) -> Converter:
    """A started converter."""
    return find_converter(name).create(False)


def start(name: str) -> Backend:
    """A started backend."""
    entry, argument = BACKENDS.find(name)
    return entry.create(argument)


def trial_of(
    *calls: Invocation,
    model: onnx.ModelProto | None = None,
    settings: Settings | None = None,
    dynamic: bool = False,
    converter: str = "dynamo",
    backend: str = "ort-cpu",
    outcome: Outcome = Outcome.MISMATCH,
    stage: Stage = Stage.RUN,
) -> FailureContext:
    """The failure of the last call, which is exported as the first; of another graph where one is given."""
    load_cases()
    settings = settings or Settings()
    route = Route(converter=converter, backend=backend, dynamic=dynamic)
    structure = CallStructure(calls[0], calls, outputs=len(run_reference(calls[0]).expected))
    if model is None:
        model = export_alone(converter_called(converter), structure, route)
    result = CaseRun(
        case=(0, len(calls) - 1),
        backend=backend,
        stage=Stage.COMPARE if outcome is Outcome.MISMATCH else stage,
        outcome=outcome,
        message="values: planted",
    )
    failure = Failure(index=0, result=result, route=route, group=CaseGroup.of(calls[0], calls))
    return FailureContext(failure, settings, converter_called, start, {}, model=model)


def graph_of_nodes(call: Invocation, text: str, numbers: Mapping[str, Array] | None = None) -> onnx.ModelProto:
    """Return a graph in place of the export of one call.

    Args:
        call: The call. Its inputs are `c0_i0`, `c0_i1` and so on, its outputs `c0_o0` and so on.
        text: Nodes in ONNX's text format.
        numbers: Initializers.
    """
    reference = run_reference(call)

    def values(letter: str, arrays: Sequence[Array]) -> list[onnx.ValueInfoProto]:
        return [
            helper.make_tensor_value_info(f"c0_{letter}{i}", helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for i, array in enumerate(arrays)
        ]

    nodes = parser.parse_graph(f"g () => () {{ {text} }}").node
    held = [numpy_helper.from_array(array, name) for name, array in (numbers or {}).items()]
    inputs, outputs = values("i", reference.feeds), values("o", reference.expected)
    graph = helper.make_graph(nodes, "planted", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def diagnosis_of(context: FailureContext) -> Diagnosis:
    """Return what the witnesses make of a failure."""
    return examine(context, frozenset(), lambda name: None)


def states(decision: Diagnosis, statement: str, **facts: Any) -> bool:
    """Whether a witness makes a statement.

    Args:
        decision: The diagnosis.
        statement: The key of the sentence that people read: ``wrong-node/wrong``.
        facts: Some of its facts, or of those of the node that it is about: ``operator="Gelu"``.
    """

    def has_facts(testimony: Testimony) -> bool:
        node = testimony.facts.get("node")
        known = {**testimony.facts, **(node if isinstance(node, Mapping) else {})}
        return facts.items() <= known.items()

    return any(f"{t.statement}/{t.finding}" == statement and has_facts(t) for t in decision.testimony)


def words_of(decision: Diagnosis) -> str:
    """A decision as people read it."""
    return evidence(
        Diagnosis(
            decision.blame,
            decision.rule,
            facts=decision.facts,
            testimony=decision.testimony,
            inherited_from=decision.inherited_from,
        )
    )
