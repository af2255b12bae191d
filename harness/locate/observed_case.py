"""Export, check and run a case again while recording the converter's lines and the first wrong node.

It also finds what a conversion function lacks: an argument that no line reads, a cast to the promised dtype.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from harness.blame.departing_nodes import departing_nodes, wrongly_formed
from harness.compare.comparison import wrong_elements
from harness.compare.verdict import Outcome, Stage
from harness.convert.converter import Converter, ExportRequest, HasUnoptimised
from harness.convert.provenance import CodeLine, EmittedGraph, emitted, executed_lines, raising_lines, traced_functions
from harness.convert.torch_private import quiet
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.tensors import build_tensors
from harness.generate.operator_case import judge_of
from harness.locate.source_code import SourceCode, Statement, reads
from harness.pipeline.case import Case, CaseOracle
from harness.pipeline.case_run import CaseRun
from harness.pipeline.program import CallStructure, export_request
from harness.pipeline.reference import run_reference
from harness.pipeline.run_case import run_case
from harness.pipeline.started_route import StartedRoute
from harness.run.backend import Backend

#: See `ObservedCase.executed`.
Executed: TypeAlias = "tuple[tuple[CodeLine, str], ...]"


@dataclass(frozen=True, eq=False)
class ObservedCase:
    """The outcome of a case, and the code that its export ran.

    Attributes:
        invocation: The case.
        run: How it ended.
        executed: Lines of conversion functions in the order of their first execution, each with the PyTorch node that
            was translated, or "".
        graph: The graph without the exporter's optimiser, with the lines that emitted it; None if there is none.
        raised: Lines that an exception passed through, the innermost first.
        wrong: Names of the wrong outputs.
        expected: Output → dtypes of PyTorch's result and of the backend's.
        first_wrong_nodes: Names of the PyTorch nodes that compute the first wrong value; empty if unknown.
    """

    invocation: Invocation
    run: CaseRun
    executed: Executed = ()
    graph: EmittedGraph | None = None
    raised: tuple[CodeLine, ...] = ()
    wrong: tuple[str, ...] = ()
    expected: dict[str, tuple[str, str]] = field(default_factory=dict)
    first_wrong_nodes: frozenset[str] = frozenset()

    @property
    def passes(self) -> bool:
        """Whether it passed."""
        return self.run.outcome is Outcome.PASS


class _Trace(NamedTuple):
    """The lines that run in an export, the graph if there is one, and the lines of an exception."""

    executed: Executed
    graph: EmittedGraph | None
    raised: tuple[CodeLine, ...]


@dataclass(frozen=True, eq=False)
class GraphRunner:
    """Exports and runs cases.

    Attributes:
        converter: A started converter.
        backend: A started backend; None stops before running.
        route: The static route of the cases.
    """

    converter: Converter
    backend: Backend | None
    route: Route
    _references: dict[str, CaseOracle] = field(default_factory=dict)

    def reference(self, invocation: Invocation) -> CaseOracle:
        """Return PyTorch's result, computed once."""
        key = invocation.case_id
        if key not in self._references:
            self._references[key] = run_reference(invocation)
        return self._references[key]

    def observe(self, invocation: Invocation) -> ObservedCase:
        """Run a case through all stages and record the lines of its export."""
        reference = self.reference(invocation)
        # Run it first, since the first export imports modules, whose lines have nothing to do with the case.
        run = self.ending(invocation)
        outputs = run.outputs
        executed, graph, raised = self._trace(invocation, converts=run.stage is not Stage.CONVERT)
        wrong: list[str] = []
        expected: dict[str, tuple[str, str]] = {}
        names = [f"c0_o{i}" for i in range(len(reference.expected))]
        if outputs is not None and len(outputs) == len(reference.expected):
            masks = wrong_elements(judge_of(invocation).without_unsettled, reference, outputs)
            for name, e, got, mask in zip(names, reference.expected, outputs, masks, strict=True):
                expected[name] = str(e.dtype), str(got.dtype)
                if mask.any() or (e.shape, e.dtype) != (got.shape, got.dtype):
                    wrong.append(name)
        first_wrong_nodes: frozenset[str] = frozenset()
        if graph is not None and run.stage in (Stage.CHECK, Stage.LOAD):
            first_wrong_nodes = wrongly_formed(graph)
        elif wrong and graph is not None and self.backend is not None:
            feeds = self._structure(invocation).feeds(graph.model, reference.feeds)
            first_wrong_nodes = departing_nodes(graph, build_tensors(invocation), feeds, self.backend)
        return ObservedCase(
            invocation, run, executed, graph, raised,
            tuple(wrong or names), expected, first_wrong_nodes,
        )  # fmt: skip

    def trace(self, invocation: Invocation) -> ObservedCase:
        """Record only the lines of the export of a case that is known to pass."""
        executed, graph, _ = self._trace(invocation, converts=True)
        return ObservedCase(invocation, CaseRun(stage=Stage.COMPARE, outcome=Outcome.PASS), executed, graph)

    def _trace(self, invocation: Invocation, *, converts: bool) -> _Trace:
        """Record what runs in an export; `converts` tells whether one is known to succeed."""
        with traced_functions():
            trace = self._export(invocation)
        # Some functions cannot be built from their source, so the export is repeated without.
        return self._export(invocation) if converts and trace.graph is None else trace

    def _export(self, invocation: Invocation) -> _Trace:
        executed: dict[tuple[CodeLine, str], None] = {}

        def notice(line: CodeLine, node: str) -> None:
            executed[line, node] = None

        graph: EmittedGraph | None = None
        raised: tuple[CodeLine, ...] = ()
        request = self._request(invocation)
        with executed_lines(notice):
            try:
                with quiet():
                    graph = emitted(self.plain, request)
            except Exception as error:
                raised = raising_lines(error)
        return _Trace(tuple(executed), graph, raised)

    @property
    def plain(self) -> Converter:
        """The converter without its optimiser, which folds what conversion functions emit."""
        return self.converter.unoptimised() if isinstance(self.converter, HasUnoptimised) else self.converter

    def ending(self, invocation: Invocation) -> CaseRun:
        """Return how a case ends, without recording lines."""
        judge = judge_of(invocation).without_unsettled
        case = Case(self._structure(invocation), self.reference(invocation), judge)
        with quiet():
            return run_case(case, StartedRoute(self.route, self.converter, self.backend))

    def _structure(self, invocation: Invocation) -> CallStructure:
        return CallStructure(invocation, outputs=len(self.reference(invocation).expected))

    def _request(self, invocation: Invocation) -> ExportRequest:
        return export_request([self._structure(invocation)], self.route)


def missing_things(
    case: ObservedCase, source: SourceCode, unread: float, uncast: float
) -> Iterator[tuple[Statement, float, str]]:
    """Yield statements at which something is missing, the weight of it, and a sentence about it.

    Args:
        case: The case.
        source: The converter's source.
        unread: The weight of an argument that no line reads.
        uncast: The weight of a dtype that no line casts back to.
    """
    ran = _statements_by_function([line for line, _ in case.executed], source)
    given = {name for name, value in case.invocation.arguments if value is not None}
    stacks = case.graph.lines if case.graph else ()
    emitting = {source.statement(line) for lines in stacks for line in lines[:1]}
    taking_part = {(s.file, s.function) for lines in stacks for s in map(source.statement, lines) if s}
    for statements in ran.values():
        last = statements[-1]
        function = source.file(last.file).function(last.function, last.line)
        if function is None:
            continue
        read = set().union(*(reads(source.node(s)) for s in statements))
        # An argument should mostly be read where the result is computed.
        place = next((s for s in reversed(statements) if s in emitting), last)
        for name in sorted(_parameters(function, statements, source) & given - read):
            yield place, unread, f"No line that runs reads the argument {name}."
        # A function that emits nothing has no result to cast.
        outputs = case.expected.items() if (last.file, last.function) in taking_part else ()
        for output, (promised, got) in outputs:
            if promised != got and isinstance(source.node(last), ast.Return):
                yield last, uncast, f"{output} should be {promised}, is {got}, and no line casts it back."


def _parameters(function: ast.FunctionDef, ran: Sequence[Statement], source: SourceCode) -> set[str]:
    """Return the parameters of a function and of inner functions of which something ran."""
    nodes = {source.node(statement) for statement in ran}
    functions = (n for n in ast.walk(function) if isinstance(n, ast.FunctionDef))
    return {
        argument.arg
        for inner in functions
        if any(child in nodes for child in ast.walk(inner))
        for argument in (*inner.args.posonlyargs, *inner.args.args, *inner.args.kwonlyargs)
    }


def _statements_by_function(lines: Sequence[CodeLine], source: SourceCode) -> dict[tuple[str, str], list[Statement]]:
    by_function: dict[tuple[str, str], list[Statement]] = {}
    for line in lines:
        statement = source.statement(line)
        if statement is not None and not isinstance(source.node(statement), ast.FunctionDef):
            by_function.setdefault((statement.file, statement.function), []).append(statement)
    return by_function
