"""Exports of many calls in which each failure costs one call.

The error of capturing a call is known from another call of its kind.

If PyTorch's first way of capturing a program fails, the exporter tries a second, which takes many times
as long and fails as well. A single call is run without values in milliseconds, and if that raises, the
capture raises the same. So the exporter is asked once for each kind of failure.

The exporter stops at the first call that it cannot convert. Here the program is captured and decomposed
once, cut into the parts that compute each call, and translated; if that fails, the call that failed is
taken out, and the others are translated again.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import onnx
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind, TensorArgument

from harness.convert.converter import ExportRequest, PartialResult, UnsupportedOperator
from harness.convert.fast.decomposition import NotDecomposed
from harness.convert.fast.direct_program import (
    CapturedCalls,
    DirectCall,
    NotDirect,
    TracedCall,
    ValuesDecide,
    ancestors,
    assemble_program,
    returned,
)
from harness.convert.operator_calls import OperatorCalls
from harness.convert.torch_private import quiet
from harness.core.tensors import BoundCall
from harness.core.text import error_chain

#: As a tensor without values shows them, with 0 for each number.
_SIZES = re.compile(r"\((?:u?0(?:, )?)+,?\)")
_DTYPE = re.compile(r", dtype=\w+")


@dataclass(frozen=True)
class _Known:
    """The exception that the exporter raised for a call.

    Attributes:
        raised: The error message of the call without values, the text that the exporter puts after it, and the
            exporter's message, which quotes both; None if it does not quote them.
    """

    kind: type[Exception]
    raised: tuple[str, str, str] | None


@dataclass
class KnownFailures:
    """The kinds of failures that an exporter has been asked about.

    Calls of an operator with the same arguments given, which fail in the same words but for numbers, sizes
    and dtypes, are of one kind.
    """

    _known: dict[tuple[object, ...], _Known] = field(default_factory=dict)

    def learn(self, call: BoundCall, error: BaseException, failure: Exception) -> None:
        """Remember the exception that the exporter raises for a call.

        Args:
            call: The call.
            error: The call's error without values.
            failure: The exporter's exception if neither way of capturing works.
        """
        message, quoted = str(failure), str(error)
        cause = failure.__cause__
        quotes = type(cause) is type(error) and str(cause).startswith(quoted) and str(cause) in message
        more = str(cause).removeprefix(quoted)
        raised = (quoted, more, message) if quotes and quoted else None
        self._known[_kind(call, error)] = _Known(type(failure), raised)

    def is_known(self, call: BoundCall, error: BaseException) -> bool:
        """Whether both ways of capturing have failed for a call of this kind."""
        return _kind(call, error) in self._known

    def failure(self, call: BoundCall, error: BaseException) -> Exception | None:
        """Return the exporter's exception for a call that raises `error` without values; None if only the exporter
        can tell."""
        known = self._known.get(_kind(call, error))
        if known is None or known.raised is None:
            return None
        quoted, more, message = known.raised
        failure = known.kind(message.replace(quoted, str(error)))
        failure.__cause__ = _saying_more(error, more) if more else error
        return failure


def _kind(call: BoundCall, error: BaseException) -> tuple[Any, ...]:
    given = len(call.positional), tuple(name for name, _ in call.keywords)
    words = _DTYPE.sub("", re.sub(r"[\d.]+", "0", str(error)))
    return str(call.target), given, type(error), _SIZES.sub("(0)", words)


def _saying_more(error: BaseException, more: str) -> BaseException:
    other = copy.copy(error)
    other.args = (f"{error}{more}",)
    return other


#: How the exporter and PyTorch's interpreter name the node at which they failed.
_FAILED_NODE = re.compile(r"(?:Error when translating node|While executing) %([\w.]+)")
#: So few calls rather go through the exporter again than into a model of their own.
_FEW = 4
#: Stands for a size that values decide.
_SYMBOL = re.compile(r"\bu\d+\b")
_NUMBER = re.compile(r"_\d+$")


class Exporting(Protocol):
    """The steps of an exporter."""

    def export(
        self, program: ExportedProgram, inputs: Sequence[str], outputs: Sequence[str], *, decomposed: bool
    ) -> onnx.ModelProto:
        """Export the model of a program, which is decomposed first unless it has been, with names for its inputs and
        outputs."""

    def known_failure(self, call: BoundCall, error: BaseException) -> Exception | None:
        """Return the exporter's exception for a call that raises `error` without values, if it is known."""

    def decompositions(self) -> Hashable | None:
        """Return a key that tells apart the effects of `decompose` at different opsets; None if that is not known."""

    def decompose(self, program: ExportedProgram) -> tuple[ExportedProgram, Sequence[str]]:
        """Return the decomposed program, and for each of its results the first operator without a conversion that
        it needs, or "".

        Raises:
            NotDecomposed: some of the calls cannot be decomposed, or not with others.
        """


class PartialExport:
    """Exports the calls of a request; those that are not captured directly are left out.

    Args:
        request: One that `harness.convert.fast.direct_program.can_be_direct`.
        captured: Its calls, which may have been captured for another opset.
        exporting: The exporter's steps.
        begin: See `harness.convert.converter.ConvertsParts`.
    """

    def __init__(
        self,
        request: ExportRequest,
        captured: CapturedCalls,
        exporting: Exporting,
        begin: Callable[[Sequence[int]], None],
    ) -> None:
        assert isinstance(request.program, OperatorCalls)
        self._exporting = exporting
        self._begin = begin
        self._captured = captured
        self._inputs: list[tuple[str, ...]] = []
        self._outputs: list[tuple[str, ...]] = []
        taken = given = 0
        for call in request.program.calls:
            self._inputs.append(request.input_names[taken : taken + call.tensors])
            self._outputs.append(request.output_names[given : given + call.results])
            taken += call.tensors
            given += call.results

    def run(self) -> Iterator[PartialResult]:
        """Yield the result of each call."""
        direct: list[int] = []
        traced: list[int] = []
        failing: dict[int, BaseException] = {}
        sized: list[int] = []
        deciding: list[int] = []
        alone: list[int] = []
        #: By operator, how many calls in a row have failed over symbols.
        over_symbols: Counter[Any] = Counter()
        with quiet():
            rewritten = [i for i in range(len(self._captured)) if self._captured.is_rewritten(i)]
            if rewritten:
                self._begin(rewritten)
                self._captured.trace(rewritten)
            for index in range(len(self._captured)):
                target = self._captured.call(index).target
                if over_symbols[target] > 1:
                    # It would most likely fail, too, and is captured once more by itself.
                    alone.append(index)
                    continue
                self._begin([index])
                try:
                    call = self._captured.capture(index)
                except ValuesDecide:
                    deciding.append(index)
                except NotDirect as reason:
                    if reason.__cause__ is None:
                        traced.append(index)
                    elif _SYMBOL.search(str(reason.__cause__)):
                        # Its words number symbols, here through all of the calls.
                        over_symbols[target] += 1
                        alone.append(index)
                    else:
                        failing[index] = reason.__cause__
                else:
                    over_symbols[target] = 0
                    (sized if call.sized_by_values else direct).append(index)
            if deciding:
                self._begin(deciding)
                if self._captured.values_fail(deciding):
                    alone += deciding
                else:
                    traced += deciding
        yield from self._decomposed(direct)
        yield from self._sized_by_values(sized)
        for index, error in failing.items():
            known = self._exporting.known_failure(self._captured.call(index), error)
            yield PartialResult(calls=(index,), failure=known)
        yield from (PartialResult(calls=(index,)) for index in alone)
        if traced:
            yield PartialResult(calls=tuple(traced))

    def _decomposed(self, calls: Sequence[int]) -> Iterator[PartialResult]:
        """Decompose the program of some calls together, and go on with its parts.

        If one call after the other fails, each is tried alone until one does not.
        """
        left = list(calls)
        size = len(left)
        failed = 0
        while left:
            some = left[:size]
            self._begin(some)
            program = self._captured.program(some)
            if len(some) == 1:
                result = self._alone(some[0], program, decomposed=False)
                yield result
                failed = failed + 1 if result.failure is not None else 0
                size = 1 if failed > 1 else len(left)
                del left[:1]
                continue
            try:
                decomposed, lacking = self._decompose(some, program)
            except NotDecomposed as reason:
                for index in self._calls_by_results(some, reason.results):
                    result = self._alone(index, self._captured.program([index]), decomposed=False)
                    yield result
                    left.remove(index)
                    translated = result.failure is None or isinstance(result.failure, UnsupportedOperator)
                    if reason.raised and translated:
                        reason.learn_otherwise()
                        break
                size = len(left)
                continue
            except Exception as error:
                # The calls before the one that failed have been captured.
                size = max(1, some.index(self._apart(some, program, error)[0][0]))
                continue
            if can_be_cut(decomposed):
                parts = ProgramParts(decomposed, [self._captured.capture(index) for index in some])
                yield from self._translated(some, parts, lacking)
            else:
                yield from self._uncut(some, lacking)
            del left[: len(some)]
            size = len(left)

    def _decompose(self, calls: Sequence[int], program: ExportedProgram) -> tuple[ExportedProgram, Sequence[str]]:
        """Return the decomposed program of some calls, which opsets with the same decompositions share."""
        by = self._exporting.decompositions()
        if by is None:
            return self._exporting.decompose(program)
        key = by, tuple(calls)
        if key not in self._captured.decomposed:
            self._captured.decomposed[key] = self._exporting.decompose(program)
        return self._captured.decomposed[key]

    def _sized_by_values(self, calls: Sequence[int]) -> Iterator[PartialResult]:
        """Decompose calls together whose results have sizes that values decide, and go on with the parts.

        Those that cannot be decomposed here are left out.
        """
        left = list(calls)
        while left:
            self._begin(left)
            try:
                decomposed, lacking = self._exporting.decompose(self._captured.program(left))
            except NotDecomposed as reason:
                apart = self._calls_by_results(left, reason.results) or left
            except Exception:
                apart = left
            else:
                if can_be_cut(decomposed):
                    parts = ProgramParts(decomposed, [self._captured.capture(index) for index in left])
                    for result in self._translated(left, parts, lacking):
                        yield replace(result, differs_alone=True)
                    return
                apart = left
            yield PartialResult(calls=tuple(apart))
            left = [index for index in left if index not in apart]

    def _calls_by_results(self, calls: Sequence[int], places: Set[int]) -> list[int]:
        """Return the calls with results at some places of their program's results."""
        results = itertools.count()
        own = {index: {next(results) for _ in self._outputs[index]} for index in calls}
        return [index for index in calls if not places.isdisjoint(own[index])]

    def _uncut(self, calls: Sequence[int], lacking: Sequence[str]) -> Iterator[PartialResult]:
        """Export calls of a program that cannot be cut one by one."""
        results = iter(lacking)
        failures: dict[tuple[str, bool], Exception] = {}
        for index in calls:
            operator = next(filter(None, [next(results) for _ in self._outputs[index]]), "")
            kind = operator, self._takes_complex(index)
            if kind in failures:
                yield PartialResult(calls=(index,), failure=failures[kind])
                continue
            result = self._alone(index, self._captured.program([index]), decomposed=False)
            yield result
            if operator and isinstance(result.failure, UnsupportedOperator):
                failures[kind] = result.failure

    def _takes_complex(self, index: int) -> bool:
        """Whether a call has a complex tensor: the exporter says for which of both an operator has no conversion."""
        return any(fake.is_complex() for fake in self._captured.capture(index).fakes)

    def _translated(self, calls: Sequence[int], parts: ProgramParts, lacking: Sequence[str]) -> Iterator[PartialResult]:
        """Translate the parts of a decomposed program that compute some calls."""
        place = {index: i for i, index in enumerate(calls)}
        by_operator: dict[tuple[str, bool], list[int]] = {}
        rest: list[int] = []
        for index in calls:
            operators = [lacking[i] for i in parts.results[place[index]] if lacking[i]]
            kind = operators[0] if operators else "", self._takes_complex(index)
            (by_operator.setdefault(kind, []) if operators else rest).append(index)
        for same in by_operator.values():
            # All calls that lack the conversion of one operator, for real or complex tensors, fail in the same words.
            result = self._alone(same[0], parts.of([place[same[0]]]))
            if isinstance(result.failure, UnsupportedOperator):
                yield PartialResult(calls=tuple(same), failure=result.failure)
            else:
                yield result
                rest += same[1:]
        stack = [sorted(rest)] if rest else []
        while stack:
            some = stack.pop()
            self._begin(some)
            program = parts.of([place[index] for index in some])
            if len(some) == 1:
                yield self._alone(some[0], program)
                continue
            try:
                model = self._export(some, program)
            except Exception as error:
                stack += reversed(self._apart(some, program, error))
            else:
                yield PartialResult(calls=tuple(some), model=model)

    def _apart(self, calls: Sequence[int], program: ExportedProgram, error: Exception) -> list[list[int]]:
        """Return the calls without the one that failed, and that one; halves if the error does not tell."""
        for cause in error_chain(error):
            found = _FAILED_NODE.search(str(cause))
            node = next((n for n in program.graph.nodes if found and n.name == found.group(1)), None)
            if node is None:
                continue
            guilty = self._call_of(node, calls, program)
            if guilty is not None:
                place = calls.index(guilty)
                before, after = list(calls[:place]), list(calls[place + 1 :])
                if place < _FEW:
                    return [[guilty], before + after] if before or after else [[guilty]]
                # These have been through: they are not tried once more for each that fails after them.
                return [[guilty], before, after] if after else [[guilty], before]
        middle = len(calls) // 2
        return [list(calls[:middle]), list(calls[middle:])]

    def _call_of(self, node: torch.fx.Node, calls: Sequence[int], program: ExportedProgram) -> int | None:
        """Return the call whose result depends on a node."""
        reached = {node}
        for later in program.graph.nodes:
            if later.op != "output" and not reached.isdisjoint(later.all_input_nodes):
                reached.add(later)
        results = iter(returned(program.graph))
        for index in calls:
            if any(next(results) in reached for _ in self._outputs[index]):
                return index
        return None

    def _alone(self, index: int, program: ExportedProgram, *, decomposed: bool = True) -> PartialResult:
        self._begin([index])
        try:
            return PartialResult(calls=(index,), model=self._export([index], program, decomposed=decomposed))
        except Exception as error:
            return PartialResult(calls=(index,), failure=error)

    def _export(self, calls: Sequence[int], program: ExportedProgram, *, decomposed: bool = True) -> onnx.ModelProto:
        inputs = [name for index in calls for name in self._inputs[index]]
        outputs = [name for index in calls for name in self._outputs[index]]
        return self._exporting.export(program, inputs, outputs, decomposed=decomposed)


def can_be_cut(program: ExportedProgram) -> bool:
    """Whether the calls of a program depend on nothing but their inputs and on constants.

    Calls with side effects, as of a check that raises, hand a token on from one to the next.
    """
    signature = program.graph_signature
    return all(
        spec.kind in (InputKind.USER_INPUT, InputKind.CONSTANT_TENSOR) for spec in signature.input_specs
    ) and all(spec.kind is OutputKind.USER_OUTPUT for spec in signature.output_specs)


class ProgramParts:
    """A decomposed program of calls that can be cut down to some of them.

    Attributes:
        results: For each call, the places of its results among the program's.
    """

    def __init__(self, program: ExportedProgram, calls: Sequence[DirectCall | TracedCall]) -> None:
        self._program = program
        self._calls = calls
        self._outputs = returned(program.graph)
        self._specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        placeholders = [
            node
            for node in program.graph.nodes
            if node.op == "placeholder" and self._specs[node.name].kind is InputKind.USER_INPUT
        ]
        self._inputs: list[list[torch.fx.Node]] = []
        self.results: list[range] = []
        taken = given = 0
        for call in calls:
            self._inputs.append(placeholders[taken : taken + len(call.tensors)])
            self.results.append(range(given, given + call.results))
            taken += len(call.tensors)
            given += call.results

    def of(self, places: Sequence[int]) -> ExportedProgram:
        """Return the program of some calls, with names as if they had been captured by themselves."""
        outputs = [self._outputs[i] for place in places for i in self.results[place]]
        needed = ancestors(outputs)
        graph = torch.fx.Graph()
        copies: dict[torch.fx.Node, torch.fx.Node] = {}
        specs = []
        inputs = {
            node: f"tensors_{i}" for i, node in enumerate(node for place in places for node in self._inputs[place])
        }
        constants = [node for node in needed if node.op == "placeholder" and node not in inputs]
        for node in (*sorted(constants), *inputs):
            copies[node] = copy = graph.placeholder(inputs.get(node, node.name))
            copy.meta = dict(node.meta)
            spec = self._specs[node.name]
            specs.append(InputSpec(spec.kind, TensorArgument(copy.name), spec.target, spec.persistent))
        for node in self._program.graph.nodes:
            if node.op == "output" or node not in needed or node in copies:
                continue
            copies[node] = copy = graph.create_node(
                node.op,
                node.target,
                torch.fx.node.map_arg(node.args, copies.__getitem__),
                torch.fx.node.map_arg(node.kwargs, copies.__getitem__),
                # The number that tells it from others of its name may be another here.
                name=_NUMBER.sub("", node.name),
            )
            copy.meta = dict(node.meta)
        results = [copies[node] for node in outputs]
        graph.output(tuple(results))
        tensors = [tensor for place in places for tensor in self._calls[place].tensors]
        used = {spec.target for spec in specs if spec.target is not None}
        kept = {name: value for name, value in self._program.constants.items() if name in used}
        return assemble_program(graph, specs, results, tensors, kept)
