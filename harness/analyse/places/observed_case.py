"""One case exported, checked and run again, with the lines of the converter that took part."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import NamedTuple, TypeAlias

import onnx

from harness.analyse.places.departing import departing_nodes, wrongly_formed
from harness.compare import Outcome, Stage, compare, wrong_elements
from harness.convert import (
    CodeLine,
    Converter,
    EmittedGraph,
    ExportRequest,
    HasUnoptimised,
    emitted,
    executed_lines,
    quiet,
    raising_lines,
    traced_functions,
)
from harness.core import Array, Invocation
from harness.execute import (
    Exportable,
    Reference,
    StepFailure,
    export_request,
    outputs_or_failure,
    run_reference,
)
from harness.generate import judge_of
from harness.run import Backend

#: See `ObservedCase.executed`.
Executed: TypeAlias = "tuple[tuple[CodeLine, str], ...]"


@dataclass(frozen=True, eq=False)
class ObservedCase:
    """What became of one case.

    Attributes:
        stage: At which it ended, and how.
        message: What was said; "" for a case that passes.
        executed: Lines of conversion functions that ran, in the order in which they ran first, and for which
            PyTorch node; "" for none.
        codes: The code of each function that ran.
        graph: With the lines that emitted it, without the exporter's optimiser; None where it was not made.
        raised: Lines that an exception came through, the innermost first.
        wrong: Names of the outputs that are wrong.
        departing: Names of the PyTorch nodes that compute the first wrong value; none where unknown.
        expected: Dtypes of PyTorch's outputs by name, and those that came.
    """

    invocation: Invocation
    stage: Stage
    outcome: Outcome
    message: str = ""
    executed: Executed = ()
    codes: frozenset[CodeType] = frozenset()
    graph: EmittedGraph | None = None
    raised: tuple[CodeLine, ...] = ()
    wrong: tuple[str, ...] = ()
    expected: dict[str, tuple[str, str]] = field(default_factory=dict)
    departing: frozenset[str] = frozenset()

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.outcome is Outcome.PASS


class _Trace(NamedTuple):
    """Lines that run in an export, their code, the graph if it is made, and lines of an exception."""

    executed: Executed
    codes: frozenset[CodeType]
    graph: EmittedGraph | None
    raised: tuple[CodeLine, ...]


@dataclass(frozen=True, eq=False)
class Bench:
    """What exports and runs cases.

    Attributes:
        converter: Started.
        backend: Started; None to stop before running.
        opset: To emit; None for the converter's default.
    """

    converter: Converter
    backend: Backend | None
    opset: int | None = None
    _references: dict[str, Reference] = field(default_factory=dict)

    def reference(self, invocation: Invocation) -> Reference:
        """PyTorch's answer, asked for once."""
        key = invocation.case_id
        if key not in self._references:
            self._references[key] = run_reference(invocation)
        return self._references[key]

    def observe(self, invocation: Invocation) -> ObservedCase:
        """Take a case through all stages, and notice the lines."""
        reference = self.reference(invocation)
        # First, since modules that an export imports run lines that have nothing to do with the case.
        stage, outcome, message, outputs = self.outcome(invocation)
        executed, codes, graph, raised = self._traced(invocation, converts=stage is not Stage.CONVERT)
        wrong: list[str] = []
        expected: dict[str, tuple[str, str]] = {}
        names = [f"c0_o{i}" for i in range(len(reference.expected))]
        if outputs is not None and len(outputs) == len(reference.expected):
            masks = wrong_elements(judge_of(invocation).settled, reference, outputs)
            for name, e, got, mask in zip(names, reference.expected, outputs, masks, strict=True):
                expected[name] = str(e.dtype), str(got.dtype)
                if mask.any() or (e.shape, e.dtype) != (got.shape, got.dtype):
                    wrong.append(name)
        departing: frozenset[str] = frozenset()
        if graph is not None and stage in (Stage.CHECK, Stage.LOAD):
            departing = wrongly_formed(graph)
        elif wrong and graph is not None and self.backend is not None:
            feeds = self._structure(invocation).feeds(graph.model, reference.feeds)
            departing = departing_nodes(graph, invocation, feeds, self.backend)
        return ObservedCase(
            invocation, stage, outcome, message, executed, codes, graph, raised,
            tuple(wrong or names), expected, departing,
        )  # fmt: skip

    def lines_of(self, invocation: Invocation) -> ObservedCase:
        """The same for a case that is known to pass: only the lines."""
        executed, codes, graph, _ = self._traced(invocation, converts=True)
        return ObservedCase(invocation, Stage.COMPARE, Outcome.PASS, "", executed, codes, graph)

    def _traced(self, invocation: Invocation, *, converts: bool) -> _Trace:
        """What runs in an export; `converts` is whether one is known to succeed."""
        with traced_functions():
            found = self._export(invocation)
        # Few functions can only be built from their source.
        return self._export(invocation) if converts and found.graph is None else found

    def _export(self, invocation: Invocation) -> _Trace:
        executed: dict[tuple[CodeLine, str], None] = {}
        codes: set[CodeType] = set()

        def notice(line: CodeLine, code: CodeType, node: str) -> None:
            executed[line, node] = None
            codes.add(code)

        graph: EmittedGraph | None = None
        raised: tuple[CodeLine, ...] = ()
        request = self._request(invocation)
        with executed_lines(notice):
            try:
                with quiet():
                    graph = emitted(self.plain, request)
            except Exception as error:
                raised = raising_lines(error)
        return _Trace(tuple(executed), frozenset(codes), graph, raised)

    @property
    def plain(self) -> Converter:
        """The converter without its optimiser, which folds what conversion functions emitted."""
        return self.converter.unoptimised() if isinstance(self.converter, HasUnoptimised) else self.converter

    def outcome(self, invocation: Invocation) -> tuple[Stage, Outcome, str, tuple[Array, ...] | None]:
        """How a case ends, what is said, and its outputs; no line is noticed."""
        reference = self.reference(invocation)
        try:
            with quiet():
                model = self.converter.convert(self._request(invocation))
        except Exception as error:
            return Stage.CONVERT, Outcome.ERROR, str(error), None
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception as error:
            return Stage.CHECK, Outcome.ERROR, str(error), None
        if self.backend is None:
            return Stage.CHECK, Outcome.PASS, "", None
        feeds = self._structure(invocation).feeds(model, reference.feeds)
        found = outputs_or_failure(self.backend, model, feeds)
        if isinstance(found, StepFailure):
            return found.stage, found.outcome, str(found.error), None
        comparison = compare(judge_of(invocation).settled, reference, found)
        outcome = Outcome.PASS if comparison.problem is None else Outcome.MISMATCH
        return Stage.COMPARE, outcome, comparison.message, found

    def _structure(self, invocation: Invocation) -> Exportable:
        return Exportable.of(invocation, outputs=len(self.reference(invocation).expected))

    def _request(self, invocation: Invocation) -> ExportRequest:
        return export_request([self._structure(invocation)], opset=self.opset, dynamic=False)
