"""One case exported, checked and run again, with the converter's lines that took part and the first wrong node.

What is missing in a conversion function is found here, too: an argument that nothing reads, a cast to a promised dtype.
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
from harness.core.dtypes import Array
from harness.core.invocation import Invocation
from harness.core.route import Route
from harness.core.tensors import build_tensors
from harness.generate.operator_case import judge_of
from harness.locate.source_code import SourceCode, Statement, reads
from harness.pipeline.program import Exportable, export_request
from harness.pipeline.reference import Reference, run_reference
from harness.pipeline.run_case import StartedRoute, run_case
from harness.pipeline.torch_case import TorchCase
from harness.run.backend import Backend

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
        graph: With the lines that emitted it, without the exporter's optimiser; None where it was not made.
        raised: Lines that an exception came through, the innermost first.
        wrong: Names of the outputs that are wrong.
        first_wrong_nodes: Names of the PyTorch nodes that compute the first wrong value; none where unknown.
        expected: Dtypes of PyTorch's outputs by name, and those that came.
    """

    invocation: Invocation
    stage: Stage
    outcome: Outcome
    message: str = ""
    executed: Executed = ()
    graph: EmittedGraph | None = None
    raised: tuple[CodeLine, ...] = ()
    wrong: tuple[str, ...] = ()
    expected: dict[str, tuple[str, str]] = field(default_factory=dict)
    first_wrong_nodes: frozenset[str] = frozenset()

    @property
    def passes(self) -> bool:
        """Whether nothing is wrong with it."""
        return self.outcome is Outcome.PASS


class _Trace(NamedTuple):
    """Lines that run in an export, the graph if it is made, and lines of an exception."""

    executed: Executed
    graph: EmittedGraph | None
    raised: tuple[CodeLine, ...]


@dataclass(frozen=True, eq=False)
class GraphRunner:
    """What exports and runs cases.

    Attributes:
        converter: Started.
        backend: Started; None to stop before running.
        route: The static route of the cases.
    """

    converter: Converter
    backend: Backend | None
    route: Route
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
        executed, graph, raised = self._traced(invocation, converts=stage is not Stage.CONVERT)
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
        if graph is not None and stage in (Stage.CHECK, Stage.LOAD):
            first_wrong_nodes = wrongly_formed(graph)
        elif wrong and graph is not None and self.backend is not None:
            feeds = self._structure(invocation).feeds(graph.model, reference.feeds)
            first_wrong_nodes = departing_nodes(graph, build_tensors(invocation), feeds, self.backend)
        return ObservedCase(
            invocation, stage, outcome, message, executed, graph, raised,
            tuple(wrong or names), expected, first_wrong_nodes,
        )  # fmt: skip

    def lines_of(self, invocation: Invocation) -> ObservedCase:
        """The same for a case that is known to pass: only the lines."""
        executed, graph, _ = self._traced(invocation, converts=True)
        return ObservedCase(invocation, Stage.COMPARE, Outcome.PASS, "", executed, graph)

    def _traced(self, invocation: Invocation, *, converts: bool) -> _Trace:
        """What runs in an export; `converts` is whether one is known to succeed."""
        with traced_functions():
            found = self._export(invocation)
        # Few functions can only be built from their source.
        return self._export(invocation) if converts and found.graph is None else found

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
        """The converter without its optimiser, which folds what conversion functions emitted."""
        return self.converter.unoptimised() if isinstance(self.converter, HasUnoptimised) else self.converter

    def outcome(self, invocation: Invocation) -> tuple[Stage, Outcome, str, tuple[Array, ...] | None]:
        """How a case ends, what is said, and its outputs; no line is noticed."""
        judge = judge_of(invocation).without_unsettled
        case = TorchCase(self._structure(invocation), self.reference(invocation), judge)
        with quiet():
            run = run_case(case, StartedRoute(self.route, self.converter, self.backend))
        if run.failure is not None:
            return run.stage, run.outcome, str(run.failure.error), None
        return run.stage, run.outcome, run.comparison.message if run.comparison is not None else "", run.outputs

    def _structure(self, invocation: Invocation) -> Exportable:
        return Exportable.of(invocation, outputs=len(self.reference(invocation).expected))

    def _request(self, invocation: Invocation) -> ExportRequest:
        return export_request([self._structure(invocation)], self.route)


def missing_things(
    case: ObservedCase, source: SourceCode, unread: float, uncast: float
) -> Iterator[tuple[Statement, float, str]]:
    """Statements at which something is missing, how much that weighs, and what it is.

    Args:
        unread: What an argument weighs that no line reads.
        uncast: What a dtype weighs that no line casts back to.
    """
    ran = _by_function([line for line, _ in case.executed], source)
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
        # What is not read should mostly be where the result is computed.
        place = next((s for s in reversed(statements) if s in emitting), last)
        for name in sorted(_parameters(function, statements, source) & given - read):
            yield place, unread, f"No line that runs reads the argument {name}."
        # What only answers a question has no result to cast.
        outputs = case.expected.items() if (last.file, last.function) in taking_part else ()
        for output, (promised, got) in outputs:
            if promised != got and isinstance(source.node(last), ast.Return):
                yield last, uncast, f"{output} should be {promised}, is {got}, and no line casts it back."


def _parameters(function: ast.FunctionDef, ran: Sequence[Statement], source: SourceCode) -> set[str]:
    """Of a function and of those within it, as far as something of them ran."""
    nodes = {source.node(statement) for statement in ran}
    inner = (n for n in ast.walk(function) if isinstance(n, ast.FunctionDef))
    return {
        argument.arg
        for one in inner
        if any(child in nodes for child in ast.walk(one))
        for argument in (*one.args.posonlyargs, *one.args.args, *one.args.kwonlyargs)
    }


def _by_function(lines: Sequence[CodeLine], source: SourceCode) -> dict[tuple[str, str], list[Statement]]:
    found: dict[tuple[str, str], list[Statement]] = {}
    for line in lines:
        statement = source.statement(line)
        if statement is not None and not isinstance(source.node(statement), ast.FunctionDef):
            found.setdefault((statement.file, statement.function), []).append(statement)
    return found
